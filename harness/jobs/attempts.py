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
