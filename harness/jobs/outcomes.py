"""From how a process on the target ended to the record of its case."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.cases import Verdict
from harness.jobs import death
from harness.jobs.processes import NotImported
from harness.jobs.supervisor import Outcome
from harness.records import Blame, Counters, Leaf, Record
from harness.targets.base import Target


def judged(record: Record, outcome: Outcome, target: Target) -> Record:
    """`record` with what the job came to: the verdict it delivered, or what its error or its death says."""
    if outcome.result is None:
        return ended(record, outcome, *death.of_death(outcome, target))
    if error := outcome.result.get("error"):
        side = None if isinstance(outcome, NotImported) else target
        return ended(record, outcome, death.of_error(error, outcome.stage, side), death.one_line(error))
    return ended(record, outcome, Verdict(outcome.result["verdict"]), outcome.result["message"])


def ended(record: Record, outcome: Outcome, verdict: Verdict, message: str) -> Record:
    """`record` with this verdict and message, and all the evidence that the process left."""
    result = outcome.result or {}
    counters = Counters(**result.get("counters", {}))
    worst = result.get("worst")
    return dataclasses.replace(
        record,
        verdict=verdict,
        stage=outcome.stage,
        message=message,
        detail=result.get("error", {}).get("detail", ""),
        log=outcome.log,
        signal=outcome.signal,
        exit_code=None if result else outcome.exit_code,
        seconds=added(record.seconds, outcome.seconds),
        counters=dataclasses.replace(counters, peak_host_bytes=outcome.peak_bytes),
        leaves=result.get("leaves"),
        latency_seconds=result.get("latency"),
        cpu_seconds=outcome.cpu_seconds,
        worst=leaf(worst) if worst else None,
        blame=Blame(**result.get("blame", {})),
    )


def told(outcome: Outcome, target: Target) -> str:
    """How a process ended that was to tell more about a failure, as the end of a sentence."""
    result = outcome.result or {}
    if error := result.get("error"):
        return f"failed: {death.one_line(error)}"
    return f"ended as {result['verdict']}" if "verdict" in result else death.of_death(outcome, target)[1]


def leaf(data: dict[str, Any]) -> Leaf:
    """The leaf that a job delivered as JSON data."""
    shape, index = tuple(data["shape"]), data["index"]
    known = {"verdict": Verdict(data["verdict"]), "shape": shape, "index": None if index is None else tuple(index)}
    return Leaf(**data | known)


def added(*parts: dict[str, float]) -> dict[str, float]:
    """Seconds of each stage, over several processes."""
    total: dict[str, float] = {}
    for part in parts:
        for stage, seconds in part.items():
            total[stage] = total.get(stage, 0.0) + seconds
    return total
