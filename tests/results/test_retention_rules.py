from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import results
from harness.cases import Verdict
from results import StoreError
from results.retention import being_written, remove, sort_out, sweep

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def night(tmp_path: Path, record):
    """A run of so many days ago, finished unless it is planned to have more cases than it has."""

    def make(days: int, *, green: bool = True, target: str = "cpu", planned: tuple[str, ...] = (), **settings) -> str:
        made = record(verdict=Verdict.PASS if green else Verdict.CRASH, target=target)
        facts = {"settings": {"target": target, **settings}}
        if not planned:
            facts["ended"] = {"unexpected": int(not green), "missing": 0}
        run = results.create_run(tmp_path, facts, [made.case.id, *planned])
        with run.journal("gw0") as journal:
            journal.append(results.row(made, run.id))
        document = json.loads((run.path / "run.json").read_text())
        moment = NOW - timedelta(days=days)
        (run.path / "run.json").write_text(json.dumps(document | {"created_at": moment.isoformat()}))
        for path in (*run.path.rglob("*"), run.path):
            os.utime(path, (moment.timestamp(), moment.timestamp()))
        return run.id

    return make


def old(store: Path, **rules) -> list[str]:
    return [one.run.id for one in sort_out(store, now=NOW, **rules).old]


def test_what_is_older_goes(tmp_path: Path, night) -> None:
    runs = [night(days) for days in (100, 91, 89, 1)]
    assert old(tmp_path, keep=timedelta(days=90)) == runs[:2]
    assert old(tmp_path, keep=timedelta(days=365)) == []


def test_the_newest_of_each_target_stay_and_either_rule_is_enough(tmp_path: Path, night) -> None:
    runs = [night(days, target=target) for days, target in ((100, "cpu"), (99, "cpu"), (98, "tpu"), (10, "cpu"))]
    assert old(tmp_path, keep_runs=1) == runs[:2]
    assert old(tmp_path, keep_runs=2) == runs[:1]
    assert old(tmp_path, keep_runs=1, keep=timedelta(days=99, hours=1)) == runs[:1]


def test_the_last_run_and_the_last_green_one_of_a_target_stay_however_old(tmp_path: Path, night) -> None:
    first = night(500)
    green = night(400)
    red = night(300, green=False)
    last = night(200, green=False)
    other = night(450, target="tpu", green=False)
    part = night(100, rerun=True)
    found = sort_out(tmp_path, keep=timedelta(days=1), now=NOW)
    assert [one.run.id for one in found.old] == [first, red]
    assert found.kept == {
        part: "it is the last on cpu",
        last: "it is the last on cpu",
        green: "it is the last green one on cpu",
        other: "it is the last on tpu",
    }


def test_a_run_that_goes_on_stays(tmp_path: Path, night) -> None:
    held, fresh, abandoned = night(100), night(0, planned=("more",)), night(100, planned=("more",))
    night(0)
    with results.open_run(tmp_path, held).journal("gw0"):
        assert old(tmp_path, keep_runs=1) == [abandoned]
        assert not remove(results.open_run(tmp_path, held))
    assert old(tmp_path, keep_runs=1) == [held, abandoned]
    assert being_written(results.open_run(tmp_path, fresh), NOW)


def test_a_run_that_cannot_be_read_stays_and_a_rule_is_needed(tmp_path: Path, night) -> None:
    damaged = night(100)
    night(99)
    (tmp_path / "runs" / damaged / "run.json").write_text("{")
    found = sort_out(tmp_path, keep_runs=1, now=NOW)
    assert found.old == ()
    assert "it cannot be read" in found.kept[damaged]
    with pytest.raises(StoreError, match="say what to keep"):
        sort_out(tmp_path)


def test_removing_frees_what_was_said_and_touches_nothing_else(tmp_path: Path, night) -> None:
    first, last = night(100), night(1)
    (going,) = sort_out(tmp_path, keep_runs=1, now=NOW).old
    before = sum(path.stat().st_size for path in tmp_path.rglob("*"))
    rest = results.load(tmp_path, last)
    assert remove(going.run)
    assert results.list_runs(tmp_path) == [last]
    assert results.load(tmp_path).equals(rest)
    folder = tmp_path.stat().st_size  # directories have a size too
    assert before - sum(path.stat().st_size for path in tmp_path.rglob("*")) >= going.bytes - folder
    assert first not in os.listdir(tmp_path / "runs")


@pytest.mark.parametrize("files", [0, 1, 3])
def test_killed_while_removing_leaves_a_readable_store(tmp_path: Path, night, files: int) -> None:
    """The process is killed after it has deleted so many files; what it left is swept up later."""
    code = """
import os, signal, sys
from results import open_run
from results.retention import remove
left = int(sys.argv[3])
unlink = os.unlink
def dying(*arguments, **options):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    unlink(*arguments, **options)
os.unlink = dying
remove(open_run(sys.argv[1], sys.argv[2]))
"""
    first, last = night(100), night(1)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), first, str(files)], check=False)
    assert done.returncode == (-9 if files < 3 else 0)
    assert results.list_runs(tmp_path) == [last]
    assert set(results.load(tmp_path).run_id) == {last}
    assert (sweep(tmp_path) > 0) == (files < 3)
    assert os.listdir(tmp_path / "runs") == [last]
