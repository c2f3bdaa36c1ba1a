"""One job for each of many entries, in processes with limits of time and memory, several side by side."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Stage, Verdict
from harness.jobs import death
from harness.jobs.payload import of_case
from harness.jobs.processes import environment
from harness.jobs.supervisor import Child, Limits, Outcome, Server, ServerFailed, supervise
from harness.scratch import scratch

MEMORY_BYTES = 6 * 2**30
"""Address space of a process; libraries alone map about two of it."""

Read = Callable[[Path], Any]
More = Callable[[Entry], dict[str, Any]]


def limit_memory() -> None:
    """Hold this process to MEMORY_BYTES."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def outcomes(
    job: str,
    entries: Iterable[Entry],
    limits: Limits,
    *,
    phase: Phase = Phase.FORWARD,
    profile: Profile = Profile.PADDED,
    seed: int = 0,
    workers: int = 1,
    read: Read = lambda folder: None,
    more: More = lambda entry: {},
) -> Iterator[tuple[Entry, Outcome, Any]]:
    """How `job` (`module:function`) ended for each entry, as each ends, and what `read` found in its folder.

    Processes are forked from the reference server, `workers` of them side by side. The payload holds `case`
    (`phase`, float32), `seed`, the paths `checkpoint` and `folder`, gone afterwards, and what `more` says of an
    entry; a folder that a job has not made is not read. Whoever stops early, by closing the iterator or by an
    exception, leaves no process behind. Raises ServerFailed.
    """
    with _Sweeper(job, limits, phase, profile, seed, read, more) as sweeper, ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(sweeper.ended, entry) for entry in entries]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()
            sweeper.stop()


def verdict_of(outcome: Outcome) -> tuple[Verdict, str, str] | None:
    """Verdict, one line and detail of an outcome without the job's own result; None where there is one."""
    if outcome.result is None:
        return *death.of_death(outcome, None), ""
    if error := outcome.result.get("error"):
        return death.of_error(error, outcome.stage, None), death.one_line(error), error["detail"]
    return None


class _Sweeper:
    """Runs entries for several threads, each on a branch of one reference server."""

    def __init__(
        self, job: str, limits: Limits, phase: Phase, profile: Profile, seed: int, read: Read, more: More
    ) -> None:
        self._job, self._limits, self._seed, self._read, self._more = job, limits, seed, read, more
        self._phase, self._profile = phase, profile
        self._own = ExitStack()
        self._folder = self._own.enter_context(scratch())
        self._idle: SimpleQueue[Server] = SimpleQueue()
        self._running: set[Child] = set()
        self._stopped = False
        self._lock = Lock()

    def __enter__(self) -> _Sweeper:
        return self

    def __exit__(self, *_: object) -> None:
        while not self._idle.empty():
            self._idle.get().close()
        self._own.close()

    def stop(self) -> None:
        """End what is running, which its threads then report as they report any death."""
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.kill()

    def ended(self, entry: Entry) -> tuple[Entry, Outcome, Any]:
        """How the job ended for an entry, and what it left. Raises ServerFailed."""
        case = Case(entry, self._phase, Mode.EAGER, Dtype.FLOAT32, self._profile)
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            checkpoint, folder = Path(place) / "checkpoint", Path(place) / "result"
            paths = {"checkpoint": str(checkpoint), "folder": str(folder)}
            payload = {"case": of_case(case), "seed": self._seed, **paths, **self._more(entry)}
            try:
                outcome = self._run(payload)
            except ServerFailed:  # it died since its last entry, which says nothing about this one
                outcome = self._run(payload)
            return entry, outcome, self._read(folder) if folder.is_dir() else None

    def _run(self, payload: dict[str, Any]) -> Outcome:
        server = self._server()
        alive = False
        try:
            child = server.fork(self._job, payload)
            with self._lock:
                self._running.add(child)
                if self._stopped:
                    child.kill()
            try:
                outcome = supervise(server, child, self._limits, Stage.IMPORT, lambda stage: None)
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
            server = Server.join("reference", "harness.jobs.preload:reference", "", environment, self._folder)
            try:
                server.ready()
            except ServerFailed:
                server.close()
                raise
            return server
