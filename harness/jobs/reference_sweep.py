"""Builds, feeds and runs many models on CPU, each in a process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from harness.cases import Entry, Phase, Profile, Stage, Verdict
from harness.jobs.channel import Channel
from harness.jobs.supervisor import Limits
from harness.jobs.sweep import limit_memory, outcomes, verdict_of

LIMITS = Limits(import_=60, build=60, inputs=30, reference=90)


@dataclasses.dataclass(frozen=True, slots=True)
class Swept:
    """How one entry's reference ended: PASS where it is fit to judge a backend by, else why not.

    `cpu_seconds` and `peak_bytes` (resident, shared pages included) are the process's own usage, None where unknown.
    """

    entry: Entry
    verdict: Verdict
    stage: Stage
    message: str
    seconds: float
    cpu_seconds: float | None
    peak_bytes: int | None
    parameters: int | None
    detail: str = ""


def sweep(
    entries: Iterable[Entry],
    profile: Profile = Profile.PADDED,
    seed: int = 0,
    workers: int = 1,
    phase: Phase = Phase.FORWARD,
) -> Iterator[Swept]:
    """The reference of each entry in one phase, as each ends, `workers` of them side by side. Nothing stays on disk.

    Whoever stops early, by closing the iterator or by an exception, leaves no process behind. Raises ServerFailed.
    """
    job = "harness.jobs.reference_sweep:run"
    with closing(outcomes(job, entries, LIMITS, phase=phase, profile=profile, seed=seed, workers=workers)) as ended:
        for entry, outcome, _ in ended:
            parameters = None
            if (failed := verdict_of(outcome)) is not None:
                verdict, message, detail = failed
            else:
                meta, detail = outcome.result["meta"], ""
                parameters = meta["parameters"]
                verdict, message = meta["sick"] or (Verdict.PASS, "")
            yield Swept(
                entry,
                Verdict(verdict),
                outcome.stage,
                message,
                sum(outcome.seconds.values()),
                outcome.cpu_seconds,
                outcome.peak_bytes,
                parameters,
                detail,
            )


def run(payload: dict[str, Any], channel: Channel) -> None:
    """A reference job under a memory limit."""
    from harness.jobs import reference_job

    limit_memory()
    reference_job.run(payload, channel)
