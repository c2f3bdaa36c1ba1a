"""Flake rates from the history of a store."""

from __future__ import annotations

from dataclasses import replace

import results
from harness.cases import Verdict
from results.flakes import steadiness

FLAKY, PASS, CRASH, BUSY = Verdict.FLAKY, Verdict.PASS, Verdict.CRASH, Verdict.DEVICE_BUSY


def history(store, made, *nights, target="tpu"):
    """A run for each night: `(verdict, version)`."""
    for verdict, version in nights:
        facts = {"settings": {"target": target}, "packages": {"torch": version}}
        run = results.create_run(store, facts, [made.case.id])
        with run.journal("main") as journal:
            journal.append(results.row(replace(made, verdict=verdict, target=target), run.id))


def test_flaky_runs_and_changes_with_the_same_versions_are_counted(tmp_path, record):
    made = record()
    history(
        tmp_path, made, (PASS, "1"), (FLAKY, "1"), (PASS, "1"), (CRASH, "1"), (CRASH, "1"), (PASS, "2"), (PASS, "2")
    )
    history(tmp_path, made, (CRASH, "1"), target="cpu")
    found = steadiness(tmp_path, [made.case.id])
    steady = found["tpu", made.case.id]
    assert (steady.runs, steady.flaky, steady.changes) == (7, 1, 1)
    assert steady.rate == 2 / 7
    assert (found["cpu", made.case.id].runs, found["cpu", made.case.id].changes) == (1, 0)


def test_what_says_nothing_of_the_case_is_no_run(tmp_path, record):
    made = record()
    history(tmp_path, made, (PASS, "1"), (BUSY, "1"), (PASS, "1"))
    (steady,) = steadiness(tmp_path, [made.case.id]).values()
    assert (steady.runs, steady.flaky, steady.changes) == (2, 0, 0)


def test_only_the_newest_runs_and_the_asked_cases_count(tmp_path, record):
    made, other = record("bert"), record("llama")
    history(tmp_path, made, (FLAKY, "1"), (PASS, "1"), (PASS, "1"))
    history(tmp_path, other, (FLAKY, "1"))
    (steady,) = steadiness(tmp_path, [made.case.id], runs=2).values()
    assert (steady.runs, steady.flaky) == (2, 0)
    assert steadiness(tmp_path, ["nothing"]) == {}
    assert steadiness(tmp_path / "nowhere", [made.case.id]) == {}
