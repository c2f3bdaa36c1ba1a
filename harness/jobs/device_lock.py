"""One job at a time on a device that serves one process at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.targets.base import Target

WAIT_SECONDS = 1800.0
"""How long a job waits for the device: longer than any other job may hold it."""
RETRY_SECONDS = 10.0
"""Until a device that a backend says is in use is tried again: somebody outside the harness has it, and no lock tells
when it is free."""
_POLL_SECONDS = 0.05
_MOMENT_SECONDS = 0.2
"""Waited at least, since a device that changes hands has no name in its lock for a moment."""


class DeviceBusy(RuntimeError):
    """Another process held the device for as long as there was patience."""


class Patience:
    """Seconds that a worker goes on waiting for a device that others have, `seconds` at first.

    All is spent once a wait was in vain, so that thousands of cases do not each wait as long; `renew` it once the
    device served after all. `run` names the run that the worker is of, in one line: its other workers are no others.
    """

    def __init__(self, run: str, seconds: float = WAIT_SECONDS) -> None:
        self.run, self.left = run, seconds
        self._all, self._in_vain = seconds, False

    def renew(self) -> None:
        """Have all of it again."""
        self.left, self._in_vain = self._all, False

    def lasts(self) -> bool:
        """Whether there is some left, after having waited RETRY_SECONDS of it."""
        if self.left <= 0:
            return False
        time.sleep(min(RETRY_SECONDS, self.left))
        self.left = max(self.left - RETRY_SECONDS, 0.0)
        return True

    def lost(self, target: Target) -> DeviceBusy:
        """What to raise at the end of it, or where none was left."""
        also = ", which an earlier case of this worker waited for" if self._in_vain else ""
        self.left, self._in_vain = 0.0, True
        return DeviceBusy(
            f"{target.name} was held by another process for {self._all:.0f} s{also}:"
            " `zoo rerun --verdict DEVICE_BUSY` tries again"
        )


@contextmanager
def held(target: Target, cache: Path, patience: Patience) -> Iterator[None]:
    """Hold the target's device, where it is exclusive. Released by the kernel if this process dies.

    A worker of the same run is waited for as long as it takes, since that goes on. Raises DeviceBusy.
    """
    if not target.exclusive:
        yield
        return
    path = cache / "locks" / f"{target.device_type}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        since = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as busy:
                now = time.monotonic()
                if os.pread(lock, 4096, 0).decode(errors="replace") == patience.run:
                    since = now
                elif now - since >= max(patience.left, _MOMENT_SECONDS):
                    raise patience.lost(target) from busy
                time.sleep(_POLL_SECONDS)
        os.ftruncate(lock, 0)
        os.pwrite(lock, patience.run.encode(), 0)
        yield
    finally:
        os.close(lock)
