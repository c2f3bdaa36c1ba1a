"""One case in a process of its own, by the interpreter of any environment, and the row that it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cases import Case
from harness.cli import EXIT_INTERRUPTED, asked
from model_lists import load_list
from results.store import Run, list_runs, open_run, read

_LEAVE_SECONDS = 60.0
"""Until a run that was asked to end is killed: it ends its own processes first."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of it: the run and its row, or one line of why there is none."""

    run: Run | None
    row: Mapping[str, Any]
    why: str = ""


def run_case(
    plan: asked.Plan, case: Case, columns: tuple[str, ...], python: Path, cache: Path, **settings: str
) -> Ended:
    """Run a case of a plan as `zoo rerun` does, with an interpreter and a cache, and read these columns of its row.

    `settings` are variables of its environment. On Ctrl-C the process is ended first. Raises StoreError and ListError.
    """
    before = set(list_runs(plan.store))
    command = [str(python), "-m", "harness.cli", "rerun", case.id, *_options(plan, case), "--cache", str(cache)]
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        code = _run(command, os.environ | settings, printed)
        printed.seek(0)
        said = [line.strip() for line in printed if line.strip()]
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    for run_id in reversed(list_runs(plan.store)):
        if run_id not in before and (run := open_run(plan.store, run_id)).planned == [case.id]:
            rows = read(run, columns, [case.id])[0].to_pylist()
            if rows:
                return Ended(run, rows[0])
    why = next((line for line in said if line.startswith("ERROR:")), said[-1] if said else f"exit code {code}")
    return Ended(None, {}, why.removeprefix("ERROR:").strip())


def _options(plan: asked.Plan, case: Case) -> list[str]:
    request = plan.request
    lists = [path for path in request.lists if case.entry.id in {entry.id for entry in load_list(path)}][:1]
    options = [f"--list={path}" for path in lists]
    options += [f"--target={request.target}", f"--store={plan.store}", "--workers=1"]
    options += [f"--expectations={request.expectations.absolute()}"] if request.expectations else []
    return options + ([f"--fault={request.fault}"] if request.fault else [])


def _run(command: list[str], environment: Mapping[str, str], printed: Any) -> int:
    """The exit code of a command. A group of its own, so that Ctrl-C reaches it once: from here."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, process_group=0
    )
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(_LEAVE_SECONDS)
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
