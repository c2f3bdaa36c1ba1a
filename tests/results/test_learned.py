"""What planning learns from the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import results
from harness.cases import Mode, Verdict
from results.learned import RECENT_RESULTS, learned


@pytest.fixture
def ran(tmp_path: Path):
    """Records a run of the given records in the test's store."""

    def make(*records, sealed: bool = True, target: str = "tpu-emulated", **settings) -> results.Run:
        run = results.create_run(
            tmp_path / "store", {"settings": {"target": target, **settings}}, [one.case.id for one in records]
        )
        with run.journal("main") as journal:
            for one in records:
                journal.append(results.row(one, run.id))
        if sealed:
            results.seal(run)
        return run

    return make


def test_the_median_of_the_newest_results_and_the_last_verdict(tmp_path, record, ran):
    made = record()
    for seconds in (1000.0, 9.0, 1.0, 3.0, 2.0):
        ran(replace(made, wall_seconds=seconds))
    ran(replace(made, wall_seconds=4.0, verdict=Verdict.NUMERIC_MISMATCH), sealed=False)
    known = learned(tmp_path / "store", "tpu-emulated")[made.case.id]
    assert RECENT_RESULTS == 5
    assert (known.seconds, known.verdict, known.twin) == (3.0, Verdict.NUMERIC_MISMATCH, False)
    assert known.recorded_at > "2026"


def test_the_largest_peak_of_the_newest_results(tmp_path, record, ran):
    made = record()
    for peak in (9_000, 100, 300, None, 200, 250):
        counters = replace(made.counters, peak_host_bytes=peak)
        ran(replace(made, wall_seconds=1.0, counters=counters))
    assert learned(tmp_path / "store", "tpu-emulated")[made.case.id].peak == 300


def test_a_run_without_results_tells_nothing(tmp_path, record, ran):
    made = record()
    ran(replace(made, wall_seconds=8.0))
    results.create_run(tmp_path / "store", {"settings": {"target": "tpu-emulated"}}, [made.case.id])
    assert learned(tmp_path / "store", "tpu-emulated")[made.case.id].seconds == 8.0


def test_other_targets_and_bad_days_do_not_count(tmp_path, record, ran):
    made = record()
    ran(replace(made, wall_seconds=8.0))
    ran(replace(made, wall_seconds=0.1, verdict=Verdict.BACKEND_UNAVAILABLE))
    ran(replace(made, wall_seconds=99.0, target="tpu"), target="tpu")
    ran(replace(made, wall_seconds=77.0, target="tpu-emulated.faulty"), target="tpu-emulated.faulty")
    known = learned(tmp_path / "store", "tpu-emulated")[made.case.id]
    assert (known.seconds, known.verdict) == (8.0, Verdict.BACKEND_UNAVAILABLE)
    assert learned(tmp_path / "store", "tpu")[made.case.id].seconds == 99.0
    assert learned(tmp_path / "nowhere", "tpu") == {}


def test_a_case_that_never_told_its_time(tmp_path, record, ran):
    made = record()
    ran(replace(made, wall_seconds=None, verdict=Verdict.HARNESS_ERROR))
    assert learned(tmp_path / "store", "tpu-emulated")[made.case.id].seconds is None


def test_a_twin_takes_what_its_original_took(tmp_path, record, ran):
    original, twin = record("bert"), record("roberta")
    ran(replace(original, wall_seconds=50.0), replace(twin, wall_seconds=0.5, twin_of=original.case.id))
    known = learned(tmp_path / "store", "tpu-emulated")[twin.case.id]
    assert (known.seconds, known.twin) == (50.0, True)


def test_shards_count_once_their_plan_is_complete(tmp_path, record, ran):
    first, second = replace(record(), wall_seconds=1.0), replace(record(mode=Mode.COMPILED), wall_seconds=2.0)
    plan = {"plan_id": "ab" * 32, "planned_at": "", "filled_shards": 2}
    ran(first, shard="1/2", **plan)
    assert learned(tmp_path / "store", "tpu-emulated") == {}
    ran(second, shard="2/2", **plan)
    assert len(learned(tmp_path / "store", "tpu-emulated")) == 2
    ran(replace(first, wall_seconds=100.0), shard="1/2", **plan)
    assert learned(tmp_path / "store", "tpu-emulated")[first.case.id].seconds == 1.0
    ran(replace(second, wall_seconds=100.0), shard="2/2", **plan)
    assert learned(tmp_path / "store", "tpu-emulated")[first.case.id].seconds == 50.5


def test_a_damaged_run_is_named(tmp_path, record, ran):
    run = ran(record())
    (run.path / "rows.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(results.StoreError, match=r"rows\.parquet is damaged"):
        learned(tmp_path / "store", "tpu-emulated")
