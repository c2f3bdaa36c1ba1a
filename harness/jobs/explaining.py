"""What a failure is due to: the case runs again, watched, until its record says who disagrees with whom, and where."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.cases import Case, Stage, Verdict
from harness.jobs import attempts, outcomes, trail
from harness.jobs.attempts import WRONG
from harness.jobs.prepared import Prepared
from harness.jobs.processes import Processes
from harness.jobs.supervisor import Outcome
from harness.records import Blame, Record

_LOCATED = (*WRONG, Verdict.RUN_ERROR, Verdict.UNSUPPORTED_OP, Verdict.CRASH)


def is_local(record: Record) -> bool:
    """Whether one operator may be to blame for what a record tells of."""
    return record.verdict in _LOCATED and record.stage in (Stage.RUN, Stage.COMPARE)


class Explainer:
    """Explains the failures of one worker. `execute` runs a record's case once on the target and judges it."""

    def __init__(self, processes: Processes, execute: Callable[[Record, Prepared], Record]) -> None:
        self._processes, self._execute = processes, execute
        self._first_mode = processes.target.modes[0]
        self._plain: dict[tuple[Case, str], Verdict] = {}

    def note(self, record: Record) -> None:
        """Remember what a case came to in the target's first mode, by which the others are told apart."""
        if record.case.mode is self._first_mode:
            self._plain = {(record.case, self._processes.fault): record.verdict}

    def explained(self, record: Record, prepared: Prepared) -> Record:
        """A record of a wrong result with what running again tells of why; a pass where it was only a toss-up.

        Raises what `Processes.on_target` does.
        """
        blame = dataclasses.replace(record.blame, pair=self._pair(record, prepared))
        record = dataclasses.replace(record, blame=blame)
        with tempfile.TemporaryDirectory(dir=self._processes.folder) as folder:
            outcome = self._processes.on_target(record.case, prepared.checkpoint, watch=folder)
            if (outcome.result or {}).get("verdict") != record.verdict:  # what it chose then tells nothing of that
                again = outcomes.told(outcome, self._processes.target)
                return dataclasses.replace(record, message=f"{record.message}; run again, it {again}")
            second = outcomes.judged(record, outcome, self._processes.target)
            record = dataclasses.replace(record, attempts=attempts.told(record, second))
            job = "harness.jobs.reference_job:look_again"
            outcome = self._processes.on_cpu(record.case, prepared.checkpoint, job=job, watch=folder)
        return self._looked_at(record, outcome)

    def located(self, record: Record, prepared: Prepared) -> Record:
        """A record of a failure with the operator that fails first, where one alone does; of one that `is_local`.

        Raises what `Processes.on_target` does.
        """
        case = record.case
        if record.blame.pair == f"{self._first_mode} vs cpu":  # where nothing is fused, and names are ATen's
            case = dataclasses.replace(case, mode=self._first_mode)
        with tempfile.TemporaryDirectory(dir=self._processes.folder) as folder:
            job = "harness.jobs.first_bad_job:run"
            outcome = self._processes.on_target(case, prepared.checkpoint, job=job, watch=folder)
            first = trail.last(Path(folder))
        result = outcome.result or {}
        if result.get("bad"):
            first = result["bad"][0]
        elif "bad" in result:
            told = f"none of {result['checked']} operators fails alone"
            if result["unchecked"]:
                told += f", and the CPU cannot repeat {', '.join(result['unchecked'])}"
            return dataclasses.replace(record, message=f"{record.message}; {told}")
        elif outcome.stage is not Stage.RUN or not first:
            told = f"seeking the operator that fails first {outcomes.told(outcome, self._processes.target)}"
            return dataclasses.replace(record, message=f"{record.message}; {told}")
        else:
            first["why"] = outcomes.told(outcome, self._processes.target)
        blame = dataclasses.replace(record.blame, **first)
        if first["operator"]:
            where = f" in {first['module']}" if first["module"] else ""
            told = f"first to fail: {first['operator']}{where}"
        else:
            told = f"none of {result['checked']} operators fails alone, but the module {first['module']} does"
        message = f"{record.message}; {told}"
        return dataclasses.replace(record, message=message, blame=blame)

    def _pair(self, record: Record, prepared: Prepared) -> str:
        """The two executions that disagree: the mode and the target's first one, or that one and the CPU."""
        plain = dataclasses.replace(record.case, mode=self._first_mode)
        if record.case == plain:
            return f"{plain.mode} vs cpu"
        key = (plain, self._processes.fault)
        if key not in self._plain:
            self._plain = {key: self._execute(dataclasses.replace(record, case=plain), prepared).verdict}
        verdict = self._plain[key]
        if verdict is Verdict.PASS:
            return f"{record.case.mode} vs {plain.mode}"
        return f"{plain.mode} vs cpu" if verdict in WRONG else ""

    def _looked_at(self, record: Record, outcome: Outcome) -> Record:
        result = outcome.result or {}
        if "judged" not in result:
            again = outcomes.told(outcome, self._processes.target)
            return dataclasses.replace(record, message=f"{record.message}; looking again {again}")
        judged, flips, draws = result["judged"], result["flips"], result["draws"]
        blame = dataclasses.replace(record.blame, precision=result["precision"])
        found = {"flips": flips, "blame": blame}
        told = [judged["message"]]
        if flips:
            told.append(f"{flips} choices between equally good candidates are not the CPU's")
        if draws > 1:
            told.append(f"within the noise of {draws} CPU runs, not of the first")
        if len(told) > 1:
            found |= {"worst": outcomes.leaf(judged["worst"]), "verdict": Verdict(judged["verdict"])}
            found["message"] = "; ".join(filter(None, told))
        if found.get("verdict") is Verdict.PASS:  # then nobody is to blame
            found |= {"blame": Blame(repeats=blame.repeats), "attempts": ""}
        return dataclasses.replace(record, **found, seconds=outcomes.added(record.seconds, outcome.seconds))
