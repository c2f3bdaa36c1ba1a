"""Stands in for the job runner, so that the command line and pytest are tested without a backend.

`ZOO_FAKE` holds JSON that maps globs over case ids to what happens: a verdict's name, those of two attempts
(`CRASH,PASS`), a verdict and the operator to blame (`CRASH in aten.gelu.default`), `installed:MODULE` (what `VERDICT`
of an installed module says), `die` (the worker process kills itself), `die-once` (the first that comes to it does),
`raise` (the job runner breaks), `hang` (until interrupted), or `unavailable` under the key `target`. Everything else
passes. Loaded as a pytest plugin by name in workers, and as `python -m zoo_fakes` in place of `python -m harness.cli`.
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from harness import jobs
from harness.cases import Stage, Verdict
from harness.jobs import attempts
from harness.records import Blame, Leaf, Record
from harness.targets.base import TargetUnavailable

SCRIPT = json.loads(os.environ.get("ZOO_FAKE", "{}"))
HOSTILE = "[bold red]not markup[/] \x1b[31m<script>alert(1)</script> [/nonsense]"


class FakeRunner:
    """Has the shape of `harness.jobs.JobRunner`."""

    def __init__(self, target, cache, *, worker="main", on_stage=None, again=None, **_):
        self.facts = None
        self.target, self.worker, self.on_stage, self.again = target, worker, on_stage, again

    def start(self):
        """Nothing to start."""

    def run(self, case):
        """What the script says about the case."""
        if SCRIPT.get("target") == "unavailable":
            raise TargetUnavailable("no device here; plug one in")
        self.facts = {"fake": "yes"}
        action = next((act for glob, act in SCRIPT.items() if fnmatch.fnmatchcase(case.id, glob)), "PASS")
        self.on_stage(case, Stage.RUN)
        if trace := os.environ.get("ZOO_FAKE_TRACE"):
            with open(trace, "a", encoding="utf-8") as file:
                file.write(f"{self.worker} {case.id}\n")
        if action.startswith("installed:"):
            action = importlib.import_module(action.removeprefix("installed:")).VERDICT
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "die-once":
            action, once = "PASS", Path(os.environ["ZOO_STORE"]) / "died"
            if not once.exists():
                once.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if action == "raise":
            raise RuntimeError(f"the fake broke {HOSTILE}")
        if action == "hang":
            Path(os.environ["ZOO_FAKE_HANGING"]).touch()
            while True:
                time.sleep(0.05)
        action, _, operator = action.partition(" in ")
        verdict, _, second = action.partition(",")
        record = self.ended(case, Verdict(verdict), Blame(operator=operator, module="layer.0" if operator else ""))
        if self.again and record.verdict in attempts.AGAIN and self.again(record):
            return attempts.settled(record, self.ended(case, Verdict(second or verdict)))
        return record

    def ended(self, case, verdict, blame=Blame()):  # noqa: B008 - frozen
        """The record of one attempt."""
        worst = Leaf(
            "logits", verdict, (2, 3), "float32", 6, 1.0, 1e-6, 1e-6, 4e-6, 2e-6, 2e-6, 8e-6, (1, 2), 0.5, 0.4, 0.4
        )
        return Record(
            case,
            self.target.name,
            self.target.emulated,
            verdict,
            Stage.COMPARE,
            message="" if verdict is Verdict.PASS else HOSTILE,
            worst=worst,
            blame=blame,
            leaves=1,
            worker=self.worker,
        )

    def close(self):
        """Leave behind what tests look for."""
        note(self.worker)


def note(who):
    """Append a line on this process to the file that the environment names."""
    if path := os.environ.get("ZOO_FAKE_CLOSED"):
        # Not ru_maxrss: Linux carries that over from the parent through fork and exec.
        peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        megabytes = int(peak.split()[1]) // 1024
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{who} {megabytes} {'torch' in sys.modules}\n")


def probe(target, cache):
    """The target is there unless the script says otherwise."""
    if SCRIPT.get("target") == "unavailable":
        raise TargetUnavailable("no device here; plug one in")
    return {"fake": "yes"}


jobs.JobRunner = FakeRunner
jobs.probe = probe

if __name__ == "__main__":
    from harness.cli import main

    try:
        main()
    finally:
        note("controller")
