"""`zoo plan`, and `zoo run` of a part of a plan, from the outside."""

from __future__ import annotations

import json

import pytest
from fake_list import HEADER, MODELS

from results import list_runs, load, open_run, provenance_of

RUN = ("run", "--list", "models.csv", "--target", "cpu", "--workers", 1)
PLAN = ("plan", "--list", "models.csv", "--target", "cpu")


def ids(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.count("/") > 5]


def test_the_shards_of_a_plan_are_the_whole_list_each_case_once_whatever_the_order_of_the_list(zoo, models, tmp_path):
    whole = ids(zoo(*RUN, "--dry-run").out)
    planned = zoo(*PLAN, "--shards", 2, "--out", "plan.json")
    assert planned.code == 0, planned.both
    assert "3 models, 6 cases on cpu" in planned.out
    assert "the times of 6 of 6 cases are guessed" in planned.err
    models.write_text("\n".join((HEADER, *reversed(MODELS), "")), encoding="utf-8")
    parts = [ids(zoo("run", "--plan", "plan.json", "--shard", f"{n}/2", "--dry-run").out) for n in (1, 2)]
    assert sorted(parts[0] + parts[1]) == sorted(whole)
    alone = [ids(zoo(*RUN, "--shard", f"{n}/2", "--dry-run").out) for n in (1, 2)]
    assert alone == parts
    first = json.loads((tmp_path / "plan.json").read_text())
    zoo(*PLAN, "--shards", 2, "--out", "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["plan_id"] == first["plan_id"]


def test_shards_that_run_one_after_the_other_into_one_store_are_of_one_plan(zoo, models, tmp_path):
    store = tmp_path / "store"
    for number in (1, 2):
        ended = zoo(*RUN, "--shard", f"{number}/2")
        assert ended.code == 0, ended.both
        assert f"shard {number}/2 of plan " in ended.err
    first, second = (open_run(store, run) for run in list_runs(store))
    settings = [run.provenance["settings"] for run in (first, second)]
    assert [one["shard"] for one in settings] == ["1/2", "2/2"]
    assert settings[0]["plan_id"] == settings[1]["plan_id"]
    assert json.loads((first.path / "plan.json").read_text())["plan_id"] == settings[0]["plan_id"]
    assert len(set(first.planned) | set(second.planned)) == len(first.planned) + len(second.planned) == 6
    assert len(load(store)) == 6
    assert "guessed" not in zoo(*PLAN).err, "both shards ran, so their times are known"


def test_a_planned_shard_runs_its_cases_and_says_so_in_its_provenance(zoo, models, tmp_path):
    zoo(*PLAN, "--shards", 2, "--out", "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    ended = zoo("run", "--plan", "plan.json", "--shard", "2/2")
    assert ended.code == 0, ended.both
    settings = provenance_of("latest", tmp_path / "store")["settings"]
    assert (settings["plan_id"], settings["shard"], settings["target"]) == (document["plan_id"], "2/2", "cpu")
    assert settings["planned_at"] == document["planned_at"] != ""
    own = [case["case"] for case in document["cases"] if case["shard"] == 2]
    assert sorted(load(tmp_path / "store").case_id) == sorted(own)


def test_a_shard_without_cases_is_no_failure(zoo, models):
    ended = zoo(*RUN, "--shard", "16/16")
    assert ended.code == 0
    assert "no cases" in ended.err


def test_the_matrix_is_all_that_is_printed_and_planning_loads_no_torch(zoo, models, tmp_path):
    seen = tmp_path / "seen"
    ended = zoo(*PLAN, "--shards", 3, "--matrix", ZOO_FAKE_CLOSED=str(seen))
    assert json.loads(ended.out) == {"shard": ["1/3", "2/3", "3/3"]}
    assert seen.read_text().split()[-1] == "False"


def test_a_budget_names_and_counts_what_it_leaves_out(zoo, models, tmp_path):
    ended = zoo(*RUN, "--budget", "40s")
    assert ended.code == 0, ended.both
    rows = load(tmp_path / "store")
    assert len(rows) == 4, "each case is guessed at 10 s"
    assert set(rows.model_type) == {"alpha", "beta", "gamma"}
    assert "LEFT OUT: 2 of 6 cases" in ended.err
    assert ended.err.count("  left out ") == 2
    assert provenance_of("latest", tmp_path / "store")["settings"]["left_out"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*RUN, "--shard", "17/16"), "there is no shard 17/16"),
        ((*RUN, "--shard", "x"), "such as 3/16"),
        ((*RUN, "--budget", "soon"), "such as 90m"),
        ((*RUN, "--resume", "latest", "--shard", "1/2"), "--resume goes on with the run's own cases"),
        (("run", "--plan", "absent.json"), "cannot read the plan absent.json"),
        (("run", "--plan", "models.csv"), "not a plan"),
        (("run", "--plan", "plan.json"), "plan for 2 shards: say which with --shard"),
        (("run", "--plan", "plan.json", "--shard", "1/3"), "has 2 shards: there is no 1/3"),
        (("run", "--plan", "plan.json", "--shard", "1/2", "--tier", "smoke"), "--plan says what is run"),
        (("run", "--plan", "plan.json", "--shard", "1/2", "--list", "other.csv"), "made from other model lists"),
        (("run", "--plan", "edited.json", "--shard", "1/2"), "does not match its plan id"),
        ((*PLAN, "--out", "absent/plan.json"), "cannot write absent/plan.json"),
    ],
)
def test_one_line_and_exit_2(zoo, models, tmp_path, arguments, said):
    other = models.read_text().replace("0" * 40, "1" * 40)
    (tmp_path / "other.csv").write_text(other, encoding="utf-8")
    if "--plan" in arguments:
        assert zoo(*PLAN, "--shards", 2, "--out", "plan.json").code == 0
        text = (tmp_path / "plan.json").read_text()
        (tmp_path / "edited.json").write_text(text.replace('"seconds": 10.0', '"seconds": 11.0', 1))
    ended = zoo(*arguments)
    assert ended.code == 2, ended.both
    assert said in ended.err
    errors = [line for line in ended.err.strip().splitlines() if not line.startswith("WARNING: the times of")]
    assert len(errors) == 1
    assert errors[0].startswith("ERROR: ")
    assert not ended.out
    assert not list(tmp_path.glob("store/runs/*"))
