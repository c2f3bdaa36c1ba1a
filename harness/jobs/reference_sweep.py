"""Builds, feeds and runs many models on CPU, each in a process of its own with limits of time and memory."""

from __future__ import annotations

import dataclasses
import resource
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Stage, Verdict
from harness.jobs import death
from harness.jobs.channel import Channel
from harness.jobs.payload import of_case
from harness.jobs.runner import JobRunner
from harness.jobs.supervisor import Limits, Server, supervise

LIMITS = Limits(import_=60, build=60, inputs=30, reference=90)
MEMORY_BYTES = 6 * 2**30
"""Address space of a process; libraries alone map about two of it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Swept:
    """How one entry's reference ended: PASS where it is fit to judge a backend by, else why not."""

    entry: Entry
    verdict: Verdict
    stage: Stage
    message: str
    seconds: float
    peak_bytes: int | None
    parameters: int | None
    detail: str = ""


def sweep(
    entries: Iterable[Entry], profile: Profile = Profile.PADDED, seed: int = 0, phase: Phase = Phase.FORWARD
) -> Iterator[Swept]:
    """Each entry's reference in one phase, in order, as each ends. Nothing is kept on disk. Raises ServerFailed."""
    server: Server | None = None
    servers = tempfile.mkdtemp(prefix="zoo-")
    try:
        for entry in entries:
            if server is None:
                server = Server.join(
                    "reference", "harness.jobs.preload:reference", "", JobRunner.environment, Path(servers)
                )
                server.ready()
            with tempfile.TemporaryDirectory(prefix="zoo-sweep-") as folder:
                swept, alive = _one(server, entry, phase, profile, seed, Path(folder))
            yield swept
            if not alive:
                server.close()
                server = None
    finally:
        if server is not None:
            server.close()
        shutil.rmtree(servers, ignore_errors=True)


def _one(server: Server, entry: Entry, phase: Phase, profile: Profile, seed: int, folder: Path) -> tuple[Swept, bool]:
    """How the entry ended, and whether the server outlived it."""
    case = Case(entry, phase, Mode.EAGER, Dtype.FLOAT32, profile)
    payload = {
        "case": of_case(case),
        "seed": seed,
        "checkpoint": str(folder / "checkpoint"),
        "folder": str(folder / "reference"),
    }
    child = server.fork("harness.jobs.reference_sweep:run", payload)
    outcome = supervise(server, child, LIMITS, Stage.IMPORT, lambda stage: None)
    parameters, detail = None, ""
    if outcome.result is None:
        verdict, message = death.of_death(outcome, None)
    elif error := outcome.result.get("error"):
        verdict, message = death.of_error(error, outcome.stage, None), death.one_line(error)
        detail = error["detail"]
    else:
        meta = outcome.result["meta"]
        parameters = meta["parameters"]
        verdict, message = meta["sick"] or (Verdict.PASS, "")
    seconds = sum(outcome.seconds.values())
    swept = Swept(entry, Verdict(verdict), outcome.stage, message, seconds, outcome.peak_bytes, parameters, detail)
    return swept, outcome.status is not None


def run(payload: dict[str, Any], channel: Channel) -> None:
    """A reference job under a memory limit."""
    from harness.jobs import reference_job

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    reference_job.run(payload, channel)
