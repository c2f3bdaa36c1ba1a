"""Whatever happens to one process costs its own case alone, which ends in one row that says what it was.

All scenarios are cases of one run on two workers, but for those that strike what the workers share. Each is a model of
its own whose case with one input profile is struck, while that with the other is its nearest neighbour.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pandas
import psutil
import pytest
from commands import CASE, PROFILES, command, environment, of_list
from scenarios import SCENARIOS

import results
from harness.cases import Stage, Verdict


@dataclass(frozen=True)
class Ended:
    """What the run left: its rows by case id, and what it printed."""

    folder: Path
    rows: dict[str, list[dict]]
    printed: str


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    rows, printed = {}, ""
    names = [scenario.name for scenario in SCENARIOS]
    alone = [name for name in names if name.startswith("loses_its_server")]  # a server that all workers share
    for some in ([name for name in names if name not in alone], alone):
        asked = command("run", *of_list(folder, some), "--one-attempt")
        done = subprocess.run(asked, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=900)
        printed += done.stdout + done.stderr
        assert done.returncode == (some is not alone), printed
        for row in results.load(folder / "store", runs="latest").to_dict("records"):
            rows.setdefault(row["case_id"], []).append(row)
    return Ended(folder, rows, printed)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_fault_costs_its_own_case_alone_and_its_row_says_what_it_was(run, account, scenario):
    own, neighbour = (CASE.format(scenario.name, profile) for profile in PROFILES)
    found = {case: [row["verdict"] for row in run.rows[case]] for case in (own, neighbour) if case in run.rows}
    account({own: scenario.verdict, neighbour: Verdict.PASS}, found, found.get(own, ["none"])[0])
    row = run.rows[own][0]
    assert row["stage"] == (Stage.COMPARE if scenario.verdict is Verdict.PASS else scenario.stage)
    assert (row["signal"] or "") == scenario.signal
    assert (None if pandas.isna(row["exit_code"]) else row["exit_code"]) == scenario.exit_code
    assert scenario.said in (row["message"] or "")
    assert scenario.printed in (row["log"] or "") + (row["detail"] or "")
    assert [one["verdict"] for one in json.loads(row["attempts"] or "[]")] == list(scenario.attempts)


def test_every_planned_case_is_reported_and_nothing_else(run):
    planned = {CASE.format(scenario.name, profile) for scenario in SCENARIOS for profile in PROFILES}
    assert run.rows.keys() == planned, run.printed[-5000:]
    assert "Traceback" not in run.printed


def test_no_process_and_no_temporary_file_is_left(run):
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("STRIKES") == str(run.folder / "strikes"):
                left.append(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    assert left == []
    assert [path for path in (run.folder / "tmp").iterdir() if not path.name.startswith("pytest-of-")] == []
