"""`zoo merge` from the outside, on folders and on stores that lie elsewhere."""

from __future__ import annotations

import json
import shutil

import pytest

from results import latest, list_runs, load
from results.remote import pull

RUN = ("run", "--list", "models.csv", "--target", "cpu", "--workers", 1)
PLAN = ("plan", "--list", "models.csv", "--target", "cpu", "--shards", 2, "--out")


@pytest.mark.parametrize("scheme", ["file", "s3", "gs"])
def test_shards_elsewhere_become_one_run_elsewhere(zoo, models, tmp_path, scheme, new_bucket):
    zoo(*PLAN, "plan.json")
    elsewhere = f"file://{tmp_path}" if scheme == "file" else new_bucket(scheme)
    urls = [f"{elsewhere}/shard{number}" for number in (1, 2)]
    for number, url in enumerate(urls, start=1):
        ended = zoo("run", "--plan", "plan.json", "--shard", f"{number}/2", "--store", url, "--workers", 1)
        assert ended.code == 0, ended.both
        assert f"is copied to {url}" in ended.err
    into = f"{elsewhere}/whole"
    ended = zoo("merge", urls[1], "--into", into)
    assert ended.code == 1
    assert "1 of 2 shards" in ended.out
    assert "missing shards: 1/2" in ended.out
    planned = json.loads((tmp_path / "plan.json").read_text())
    lacking = [case["case"] for case in planned["cases"] if case["shard"] == 1]
    assert [line for line in ended.out.splitlines() if line.startswith("  missing ")] == [
        f"  missing {case_id}" for case_id in lacking
    ]
    ended = zoo("merge", *urls, "--into", into, "--plan", "plan.json")
    assert ended.code == 0, ended.both
    assert "2 of 2 shards" in ended.out
    assert "6 of 6 cases" in ended.out
    pull(into, tmp_path / "copy")
    assert len(list_runs(tmp_path / "copy")) == 1
    assert list(load(tmp_path / "copy").case_id) == latest(tmp_path / "copy").planned
    assert "as it was" in zoo("merge", *reversed(urls), "--into", into).out


def test_a_night_on_many_machines_as_ci_runs_it(zoo, models, tmp_path):
    def night(number, script):
        zoo(*PLAN, "plan.json")
        for shard in (1, 2):
            asked = ("--plan", "plan.json", "--shard", f"{shard}/2", "--workers", 1)
            assert zoo("run", *asked, "--store", f"night{number}/{shard}", script=script).code < 2
        shards = [f"night{number}/{shard}" for shard in (1, 2)]
        assert zoo("merge", *shards, "--into", "store", "--plan", "plan.json").code == 0
        merged.append(latest(tmp_path / "store"))
        ended.append(merged[-1].provenance["ended"])
        return zoo("diff", "--format", "markdown", "--out", "summary.md").code, zoo("run", "--resume", "latest").code

    merged, ended = [], []
    assert night(1, {}) == (2, 0), "nothing to compare with, and all as expected"
    assert night(2, {"beta/*/eager/*": "NUMERIC_MISMATCH"}) == (1, 1)
    assert "beta/BetaForCausalLM" in (tmp_path / "summary.md").read_text()
    assert zoo("export", "last", "--format", "junit", "--out", "junit.xml").code == 0
    assert zoo("dashboard", "--out", "site").code == 0
    assert len(list_runs(tmp_path / "store")) == 2, "nothing ran to find that out"
    assert ended == [{"unexpected": 0, "missing": 0}, {"unexpected": 1, "missing": 0}], "of the whole, not of a shard"
    assert "beta" not in (merged[0].path / "failures.toml").read_text()
    assert 'case = "beta/' in (merged[1].path / "failures.toml").read_text()


def test_an_expectation_that_speaks_of_nothing_is_red_once_all_shards_are_merged(zoo, models, tmp_path):
    file = tmp_path / "cpu.toml"
    file.write_text('[[expect]]\ncase = "betta/*"\nverdict = "RUN_ERROR"\nreason = "known"\nadded = 2026-01-31\n')
    zoo(*PLAN, "plan.json")
    for shard in (1, 2):
        asked = ("run", "--plan", "plan.json", "--shard", f"{shard}/2", "--workers", 1, "--expectations", file)
        assert zoo(*asked, "--store", f"shard{shard}").code == 0, "a shard cannot know"
    merge = ("merge", "shard1", "shard2", "--into", "store")
    for _ in range(2):
        ended = zoo(*merge, "--expectations", file)
        assert ended.code == 1, ended.both
        assert "never-matching: betta/* (cpu.toml:1) is no case of these lists" in ended.out
    models.rename(tmp_path / "elsewhere.csv")
    ended = zoo(*merge, "--expectations", file)
    assert ended.code == 0
    assert "WARNING: no expectation was looked for" in ended.err
    assert zoo(*merge, "--expectations", tmp_path / "absent").code == 2


def test_shards_of_different_plans_are_refused_and_nothing_is_written(zoo, models, tmp_path):
    for number in (1, 2):
        zoo(*RUN, "--shard", f"{number}/2", "--mode", ("eager", "compiled")[number - 1], "--store", f"shard{number}")
    plans = [latest(tmp_path / f"shard{number}").provenance["settings"]["plan_id"][:12] for number in (1, 2)]
    ended = zoo("merge", "shard1", "shard2", "--into", "whole")
    assert ended.code == 2
    assert len(ended.err.strip().splitlines()) == 1
    assert all(plan in ended.err for plan in plans)
    assert not (tmp_path / "whole").exists()
    run = latest(tmp_path / "shard1").path
    shutil.copy(latest(tmp_path / "shard2").path / "plan.json", run / "plan.json")
    ended = zoo("merge", "shard1", "--into", "whole")
    assert ended.code == 2
    assert "is damaged: it is not plan" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("merge", "absent", "--into", "whole"), "absent: no such store"),
        (("merge", ".", "--into", "whole"), "nothing to merge"),
        (("merge", "nope://a", "--into", "whole"), "nope"),
        (("show", "alpha", "--list", "models.csv", "--store", "s3://a/b"), "s3://a/b is no folder"),
    ],
)
def test_what_cannot_be_merged_exits_2(zoo, models, tmp_path, arguments, said):
    ended = zoo(*arguments)
    assert ended.code == 2, ended.both
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "whole").exists()
