"""Which failures are worth a second attempt in a fresh process, and what two attempts come to."""

from __future__ import annotations

import dataclasses
import json

from harness.cases import Verdict
from harness.records import Record

WRONG = (
    Verdict.NUMERIC_MISMATCH,
    Verdict.NONFINITE_DEVICE_ONLY,
    Verdict.NONFINITE_REFERENCE_ONLY,
    Verdict.WRONG_STRUCTURE,
    Verdict.WRONG_SHAPE,
    Verdict.WRONG_DTYPE,
)
"""Verdicts that speak of what the target returned, and so are looked into further."""

AGAIN = frozenset(
    {
        *WRONG,
        Verdict.NOT_EXECUTED,
        Verdict.LOAD_ERROR,
        Verdict.COMPILE_ERROR,
        Verdict.RUN_ERROR,
        Verdict.OOM_DEVICE,
        Verdict.CRASH,
        Verdict.EXITED,
        Verdict.TIMEOUT,
    }
)
"""Verdicts that another process may not come to. Not among them: a missing operator or device is missing every time,
and NONDETERMINISTIC, HOST_FALLBACK and RECOMPILES have been seen in several calls already."""


SAME_IN_A_ROW = 10
"""Failures that came to the same end twice, one after another, until a worker runs none a second time: a backend that
fails everything shall not cost twice the time."""


class Budget:
    """Second attempts that a worker may still make."""

    def __init__(self) -> None:
        self._same = 0

    @property
    def left(self) -> bool:
        """Whether a failure may run a second time."""
        return self._same < SAME_IN_A_ROW

    def spend(self, record: Record) -> bool:
        """Take note of what a case came to; true of the one that used up the budget. A flaky one restores all of it."""
        ends = [(one["verdict"], one["stage"]) for one in json.loads(record.attempts or "[]")][-2:]
        if record.twin_of or len(ends) < 2 or record.verdict not in (*AGAIN, Verdict.FLAKY) or not self.left:
            return False
        self._same = self._same + 1 if ends[0] == ends[1] else 0
        return not self.left


def told(*attempts: Record) -> str:
    """What attempts came to, in order, as the JSON that a record's `attempts` holds."""
    kept = ({"verdict": one.verdict, "stage": one.stage, "message": one.message} for one in attempts)
    return json.dumps(list(kept))


def settled(first: Record, second: Record) -> Record:
    """The one record of two attempts: the first's evidence, and FLAKY where the second passed."""
    both = told(first, second)
    if second.verdict is Verdict.PASS:
        message = f"{first.verdict} in {first.stage}: {first.message}; run again, it passes"
        return dataclasses.replace(first, verdict=Verdict.FLAKY, message=message, attempts=both)
    if (second.verdict, second.stage) == (first.verdict, first.stage):
        return dataclasses.replace(first, attempts=both)
    message = f"{first.message}; run again, it ended as {second.verdict} in {second.stage}: {second.message}"
    return dataclasses.replace(first, message=message, attempts=both)


def repeated(taken: Record, again: Record) -> Record:
    """The record of a case whose first process was taken from it, which says nothing about it, and that ran `again`."""
    later = json.loads(again.attempts) if again.attempts else json.loads(told(again))
    return dataclasses.replace(again, attempts=json.dumps(json.loads(told(taken)) + later))
