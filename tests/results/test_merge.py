"""Shards of one plan become one run, whatever the order they come in and how often."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

import results
from harness.cases import Mode, Verdict
from results.merge import merge, shard_runs, the_plan

PLAN = "ab" * 32
NIGHT = "2026-11-30T01:00:00+00:00"
MODES = (Mode.STRICT_EAGER, Mode.DEFER_AND_FUSE, Mode.COMPILED)


@pytest.fixture
def shard(tmp_path: Path, record):
    """Runs one shard of a plan of three cases into a store of its own, and gives that."""

    def make(number: int, store: str = "", planned_at: str = NIGHT, plan_id: str = PLAN, done: bool = True, **changes):
        folder = tmp_path / (store or f"shard{number}")
        # An unknown number is NaN, which is unequal to itself.
        made = replace(record(mode=MODES[number - 1]), wall_seconds=float("nan"))
        made = replace(made, **changes)
        settings = {
            "target": made.target,
            "modes": [made.case.mode.value],
            "plan_id": plan_id,
            "planned_at": planned_at,
            "shard": f"{number}/3",
            "filled_shards": 3,
        }
        facts = {"settings": settings, "packages": {"torch": "2.13"}}
        run = results.create_run(folder, facts, [made.case.id], "the plan\n")
        if done:
            with run.journal("gw0") as journal:
                journal.append(results.row(made, run.id))
            results.seal(run)
        return folder

    return make


@pytest.fixture
def planned(record) -> list[str]:
    return [record(mode=mode).case.id for mode in MODES]


def found(*stores: Path):
    return [one for store in stores for one in shard_runs(store, store.name)]


def content(store: Path) -> list:
    """Everything that can be read of the runs of a store."""
    runs = [results.open_run(store, run_id) for run_id in results.list_runs(store)]
    return [(run.id, run.provenance, run.planned, results.load(store, run.id).to_dict("records")) for run in runs]


def test_any_order_at_once_or_in_parts_and_again_comes_to_the_same_run(tmp_path, shard, planned):
    stores = [shard(number) for number in (1, 2, 3)]
    merged = merge(tmp_path / "whole", found(*stores), planned)
    assert (merged.changed, merged.missing, merged.shards) == (True, [], ["1/3", "2/3", "3/3"])
    whole = content(tmp_path / "whole")
    assert len(whole) == 1
    rows = results.load(tmp_path / "whole")
    assert list(rows.case_id) == planned == merged.run.planned
    assert set(rows.run_id) == {merged.run.id}
    assert list(rows.worker) == ["1/3 gw0", "2/3 gw0", "3/3 gw0"]
    assert merged.run.provenance["settings"]["modes"] == [mode.value for mode in MODES]
    assert "shard" not in merged.run.provenance["settings"]
    for number, order in enumerate(itertools.permutations(stores)):
        into = tmp_path / f"into{number}"
        for part in order if number % 2 else [order]:
            merge(into, found(*([part] if number % 2 else part)), planned)
        # NaN is unequal to itself, hence texts.
        assert str(content(into)) == str(whole)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "whole").rglob("*")}
    assert not merge(tmp_path / "whole", found(*stores), planned).changed
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "whole").rglob("*")} == before


def test_what_is_missing_is_named_and_the_rest_is_there(tmp_path, shard, planned):
    merged = merge(tmp_path / "whole", found(shard(1), shard(3, done=False)), planned)
    assert merged.missing == planned[1:]
    assert merged.shards == ["1/3", "3/3"]
    assert results.missing(merged.run) == planned[1:]


def test_a_truncated_line_is_reported_and_everything_before_it_is_kept(tmp_path, shard, planned):
    store = shard(1, done=False)
    run = results.latest(store)
    whole = results.latest(shard(1, "other")).path / "journal" / "gw0.jsonl"
    (run.path / "journal" / "gw0.jsonl").write_bytes(whole.read_bytes() + whole.read_bytes()[:100])
    merged = merge(tmp_path / "whole", found(store), planned)
    assert merged.missing == planned[1:]
    assert any("gw0.jsonl line 2: unreadable row skipped" in problem for problem in merged.problems)


def test_of_a_shard_that_ran_twice_the_later_row_counts(tmp_path, shard, planned):
    first = shard(1, "first", verdict=Verdict.CRASH)
    second = shard(1, "second", verdict=Verdict.PASS)
    for into, order in (("a", (first, second)), ("b", (second, first))):
        merged = merge(tmp_path / into, found(*order), planned)
        assert list(results.load(tmp_path / into).verdict) == ["PASS"]
        assert any("shard 1/3 was run 2 times" in problem for problem in merged.problems)


def test_shards_of_different_plans_nights_or_targets_are_refused(shard):
    one = shard(1)
    for other, said in (
        (shard(2, "other", plan_id="cd" * 32), rf"{PLAN[:12]}.*{'cd' * 6}"),
        (shard(2, "later", planned_at="2026-12-01T01:00:00+00:00"), "made at 2026-11-30.*made at 2026-12-01"),
        (shard(2, "elsewhere", target="tpu"), "1/3 in shard1 on tpu-emulated, 2/3 in elsewhere on tpu"),
    ):
        with pytest.raises(results.StoreError, match=said) as caught:
            the_plan(found(one, other))
        assert "\n" not in str(caught.value)


def test_nights_of_a_plan_that_every_machine_made_for_itself_are_runs_of_their_own(tmp_path, shard, planned):
    nights = [[shard(number, f"{night}{number}", planned_at="") for number in (1, 2, 3)] for night in "ab"]
    for stores in nights:
        for store in stores[:2], stores[2:]:
            merged = merge(tmp_path / "whole", found(*store), planned)
        assert not merged.missing
    runs = results.list_runs(tmp_path / "whole")
    assert len(runs) == 2
    assert len(results.load(tmp_path / "whole")) == 6
    shards = [results.open_run(tmp_path / "whole", run).provenance["shards"] for run in runs]
    assert [sorted(one) for one in shards] == [["1/3", "2/3", "3/3"]] * 2


def test_versions_that_differ_are_told(tmp_path, shard, planned):
    other = shard(2)
    results.latest(other).amend({"packages": {"torch": "2.14"}})
    merged = merge(tmp_path / "whole", found(shard(1), other), planned)
    assert "the shards were not made alike: torch is 2.13 in 1/3; 2.14 in 2/3" in merged.problems


def test_a_damaged_shard_leaves_the_store_as_it_was(tmp_path, shard, planned):
    merge(tmp_path / "whole", found(shard(1)), planned)
    before = str(content(tmp_path / "whole"))
    damaged = shard(2)
    (results.latest(damaged).path / "rows.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(results.StoreError, match=r"rows\.parquet is damaged"):
        merge(tmp_path / "whole", found(damaged), planned)
    assert str(content(tmp_path / "whole")) == before
