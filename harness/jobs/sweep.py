"""One job for each of many entries, in processes with limits of time and memory, several side by side."""

from __future__ import annotations

import contextlib
import queue
import resource
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Stage, Verdict
from harness.jobs import death
from harness.jobs.payload import of_case
from harness.jobs.runner import JobRunner
from harness.jobs.supervisor import Limits, Outcome, Server, supervise

MEMORY_BYTES = 6 * 2**30
"""Address space of a process; libraries alone map about two of it."""

Read = Callable[[Path], Any]


def limit_memory() -> None:
    """Hold this process to MEMORY_BYTES."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def outcomes(
    job: str,
    entries: Iterable[Entry],
    limits: Limits,
    *,
    profile: Profile = Profile.PADDED,
    seed: int = 0,
    workers: int = 1,
    read: Read = lambda folder: None,
) -> Iterator[tuple[Entry, Outcome, Any]]:
    """How `job` (`module:function`) ended for each entry, as each ends, and what `read` found in its folder.

    Processes are forked from the reference server. The payload holds `case` (forward, float32), `seed`, and the
    paths `checkpoint` and `folder`, gone afterwards; a folder that a job has not made is not read. Raises
    ServerFailed.
    """
    waiting, ended = queue.SimpleQueue(), queue.SimpleQueue()
    for entry in entries:
        waiting.put(entry)
    servers = tempfile.mkdtemp(prefix="zoo-")

    def work() -> None:
        try:
            with contextlib.ExitStack() as closing:
                server: Server | None = None
                while not waiting.empty():
                    with contextlib.suppress(queue.Empty):
                        entry = waiting.get_nowait()
                        server = server or _joined(Path(servers), closing)
                        outcome, found = _one(server, job, entry, limits, profile, seed, read)
                        ended.put((entry, outcome, found))
                        server = server if outcome.status is not None else None
        except Exception as failure:  # noqa: BLE001 - the boundary of a thread: raised again by its owner
            ended.put(failure)
        ended.put(None)

    # Daemons: where the owner stops early, they and, by their channels, the processes end with it.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    try:
        for thread in threads:
            thread.start()
        left = workers
        while left:
            item = ended.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        shutil.rmtree(servers, ignore_errors=True)


def verdict_of(outcome: Outcome) -> tuple[Verdict, str, str] | None:
    """Verdict, one line and detail of an outcome without the job's own result; None where there is one."""
    if outcome.result is None:
        return *death.of_death(outcome, None), ""
    if error := outcome.result.get("error"):
        return death.of_error(error, outcome.stage, None), death.one_line(error), error["detail"]
    return None


def _joined(servers: Path, closing: contextlib.ExitStack) -> Server:
    server = Server.join("reference", "harness.jobs.preload:reference", "", JobRunner.environment, servers)
    closing.callback(server.close)
    server.ready()
    return server


def _one(
    server: Server, job: str, entry: Entry, limits: Limits, profile: Profile, seed: int, read: Read
) -> tuple[Outcome, Any]:
    case = Case(entry, Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, profile)
    with tempfile.TemporaryDirectory(prefix="zoo-sweep-") as place:
        checkpoint, folder = Path(place) / "checkpoint", Path(place) / "result"
        payload = {"case": of_case(case), "seed": seed, "checkpoint": str(checkpoint), "folder": str(folder)}
        outcome = supervise(server, server.fork(job, payload), limits, Stage.IMPORT, lambda stage: None)
        return outcome, read(folder) if folder.is_dir() else None
