"""A run that is killed, by what it runs or with the machine, is finished by `--resume`: every case once, none wrong."""

from __future__ import annotations

import os
import subprocess

import pytest
from commands import CASE, PROFILES, command, environment, of_list, verdicts
from scenarios import LOSES_ITS_MACHINE, LOSES_ITS_USERS_PROCESS

import results

SOUND = [f"sound-{number}" for number in range(5)]


def passes(names):
    return {CASE.format(name, profile): "PASS" for name in names for profile in PROFILES}


def nothing(journal):
    """Leave it as the kill left it."""


def half_a_line(journal):
    os.truncate(journal, journal.stat().st_size - 40)


def zeros(journal):
    """What a file system may leave of blocks that were never written when the power failed."""
    with journal.open("ab") as file:
        file.write(bytes(1000))


@pytest.mark.parametrize(
    ("killer", "damage"),
    [
        pytest.param(LOSES_ITS_USERS_PROCESS, nothing, id="user's process killed, resumed"),
        pytest.param(LOSES_ITS_MACHINE, half_a_line, id="machine killed, last line of a journal torn, resumed"),
        pytest.param(LOSES_ITS_MACHINE, zeros, id="machine killed, zeros after a journal, resumed"),
    ],
)
def test_killed(tmp_path, account, killer, damage):
    names = [*SOUND[:4], killer.name, *SOUND[4:]]
    env, store = environment(tmp_path), tmp_path / "store"
    with open(tmp_path / "printed", "wb") as printed:
        process = subprocess.Popen(
            command("run", *of_list(tmp_path, names)), cwd=tmp_path, env=env, stdout=printed, stderr=printed
        )
        assert process.wait(300) < 0
    journals = list(store.glob("runs/*/journal/*.jsonl"))
    damage(max(journals, key=lambda journal: journal.stat().st_size))
    assert 0 < len(results.missing(results.latest(store))) < len(passes(names))
    resume = command("run", "--resume", "latest", "--list", "hostile.csv", "--workers", "2")
    done = subprocess.run(resume, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    account(passes(names), verdicts(store), "PASS")
    assert done.returncode == 0, done.stdout + done.stderr
    assert results.missing(results.latest(store)) == []


def test_two_runs_at_once_into_one_store(tmp_path, account):
    env, asked = environment(tmp_path), command("run", *of_list(tmp_path, SOUND))
    with open(tmp_path / "printed", "wb") as printed:
        both = [subprocess.Popen(asked, cwd=tmp_path, env=env, stdout=printed, stderr=printed) for _ in range(2)]
        assert [process.wait(300) for process in both] == [0, 0]
    runs = results.list_runs(tmp_path / "store")
    assert len(runs) == 2
    found = {}
    for run in runs:
        for row in results.load(tmp_path / "store", runs=run).itertuples():
            found.setdefault(f"{run} {row.case_id}", []).append(row.verdict)
    account({f"{run} {case}": "PASS" for run in runs for case in passes(SOUND)}, found, "PASS")
