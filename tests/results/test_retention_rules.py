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
from results.retention import (
    being_written,
    drop_journals,
    leftovers,
    old_surveys,
    remove,
    sort_out,
    sweep,
    with_journals,
)
from results.store import is_sealed

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


def test_journals_of_old_sealed_runs_go_and_their_rows_stay(tmp_path: Path, night, record) -> None:
    old_one, unsealed, young = night(100), night(99), night(1)
    for run_id in (old_one, young):
        results.seal(results.open_run(tmp_path, run_id))
    run = results.open_run(tmp_path, old_one)
    with run.journal("gw1") as journal:
        journal.append(results.row(record("nan", log="\udcff"), run.id) | {"worst_ratio": float("nan")})
    before = results.load(tmp_path)
    assert with_journals(tmp_path, timedelta(days=90), NOW) == {}, "it has rows that are not sealed"
    results.seal(run)
    found = with_journals(tmp_path, timedelta(days=90), NOW)
    assert list(found) == [old_one]
    assert drop_journals(run) == found[old_one] > 0
    assert list(run.path.glob("journal/*")) == []
    assert is_sealed(run)
    assert repr(results.load(tmp_path)) == repr(before)
    assert drop_journals(run) == 0
    with run.journal("gw0") as journal:
        journal.append(results.row(record("late"), run.id))
    assert not is_sealed(run)
    assert unsealed in set(results.load(tmp_path).run_id)


def test_journals_stay_where_anything_would_be_lost(tmp_path: Path, night) -> None:
    run = results.open_run(tmp_path, night(100))
    (path,) = run.path.glob("journal/*")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"case_id": "half')
    results.seal(run)
    with pytest.raises(StoreError, match=r"the journals of .* stay: .* line 2"):
        drop_journals(run)
    path.write_bytes(whole)
    with run.journal("gw0"):
        assert drop_journals(run) == 0
    assert path.read_bytes() == whole


def test_old_surveys_go_but_never_the_last_of_a_kind(tmp_path: Path) -> None:
    made = {}
    for kind, days in (("coverage", 300), ("coverage", 200), ("coverage", 5), ("liveness", 400)):
        path = results.keep_survey(tmp_path, kind, [{"entry": "a"}], {})
        moment = (NOW - timedelta(days=days)).timestamp()
        os.utime(path, (moment, moment))
        made[days] = path
    assert set(old_surveys(tmp_path, keep=timedelta(days=250), now=NOW)) == {made[300]}
    assert set(old_surveys(tmp_path, keep=timedelta(days=1), now=NOW)) == {made[300], made[200]}
    assert old_surveys(tmp_path, keep_runs=2, now=NOW) == {made[300]: made[300].stat().st_size}


def test_drafts_of_killed_processes_go_once_nothing_touches_them(tmp_path: Path, night) -> None:
    run = results.open_run(tmp_path, night(100))
    drafts = [run.path / ".rows.parquet.0a1b2c3d", tmp_path / "runs" / ".20260101T000000Z-cpu-000000" / "plan.txt"]
    drafts[1].parent.mkdir()
    for path in drafts:
        path.write_bytes(b"x" * 1000)
    assert leftovers(tmp_path) == {}, "a process may be writing them"
    later = datetime.now(UTC) + timedelta(days=2)
    assert leftovers(tmp_path, later) == {drafts[0]: 1000, drafts[1].parent: 1000}
    for path in (*drafts, drafts[1].parent):
        os.utime(path, (0, 0))
    assert sweep(tmp_path) == 2000
    assert [path for path in drafts if path.exists()] == []
    assert results.list_runs(tmp_path) == [run.id]
