"""Builds, feeds and runs many models on CPU, each in a process of its own with limits of time and memory."""

from __future__ import annotations

import dataclasses
import resource
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Stage, Verdict
from harness.jobs import death
from harness.jobs.channel import Channel
from harness.jobs.payload import of_case
from harness.jobs.runner import JobRunner
from harness.jobs.supervisor import Child, Limits, Outcome, Server, ServerFailed, supervise

LIMITS = Limits(import_=60, build=60, inputs=30, reference=90)
MEMORY_BYTES = 6 * 2**30
"""Address space of a process; libraries alone map about two of it."""


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
    entries: Iterable[Entry], profile: Profile = Profile.PADDED, seed: int = 0, workers: int = 1
) -> Iterator[Swept]:
    """The reference of each entry, as each ends: `workers` are under way side by side. Nothing is kept on disk.

    Whoever stops early, by closing the iterator or by an exception, leaves no process behind. Raises ServerFailed.
    """
    with _Sweeper(profile, seed) as sweeper, ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(sweeper.swept, entry) for entry in entries]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()
            sweeper.stop()


class _Sweeper:
    """Runs entries for several threads, each on a branch of one reference server."""

    def __init__(self, profile: Profile, seed: int) -> None:
        self.profile, self.seed = profile, seed
        self._folder = tempfile.TemporaryDirectory(prefix="zoo-")
        self._idle: SimpleQueue[Server] = SimpleQueue()
        self._running: set[Child] = set()
        self._stopped = False
        self._lock = Lock()

    def __enter__(self) -> _Sweeper:
        return self

    def __exit__(self, *_: object) -> None:
        while not self._idle.empty():
            self._idle.get().close()
        self._folder.cleanup()

    def stop(self) -> None:
        """End what is running, which its threads then report as they report any death."""
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.kill()

    def swept(self, entry: Entry) -> Swept:
        """How the entry ended. Raises ServerFailed."""
        case = Case(entry, Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, self.profile)
        with tempfile.TemporaryDirectory(prefix="zoo-sweep-") as folder:
            payload = {
                "case": of_case(case),
                "seed": self.seed,
                "checkpoint": str(Path(folder) / "checkpoint"),
                "folder": str(Path(folder) / "reference"),
            }
            try:
                outcome = self._run(payload)
            except ServerFailed:  # it died since its last entry, which says nothing about this one
                outcome = self._run(payload)
        return _told(entry, outcome)

    def _run(self, payload: dict[str, Any]) -> Outcome:
        server = self._server()
        alive = False
        try:
            child = server.fork("harness.jobs.reference_sweep:run", payload)
            with self._lock:
                self._running.add(child)
                if self._stopped:
                    child.kill()
            try:
                outcome = supervise(server, child, LIMITS, Stage.IMPORT, lambda stage: None)
            finally:
                with self._lock:
                    self._running.discard(child)
            alive = outcome.status is not None
            return outcome
        finally:
            if alive:
                self._idle.put(server)
            else:
                server.close()

    def _server(self) -> Server:
        try:
            return self._idle.get_nowait()
        except Empty:
            server = Server.join(
                "reference", "harness.jobs.preload:reference", "", JobRunner.environment, Path(self._folder.name)
            )
            try:
                server.ready()
            except ServerFailed:
                server.close()
                raise
            return server


def _told(entry: Entry, outcome: Outcome) -> Swept:
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
    return Swept(
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

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    reference_job.run(payload, channel)
