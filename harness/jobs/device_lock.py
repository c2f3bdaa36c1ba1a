"""One job at a time on a device that serves one process at a time."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.targets.base import Target

WAIT_SECONDS = 1800.0
"""How long a job waits for the device: longer than any other job may hold it."""
_POLL_SECONDS = 0.05


class DeviceBusy(RuntimeError):
    """Another process held the device for as long as there was patience."""


class Patience:
    """Seconds that a worker goes on waiting for a device.

    All is spent once a wait was in vain, so that thousands of cases do not each wait as long; whoever gets the device
    after all has all of it again.
    """

    def __init__(self) -> None:
        self.left = WAIT_SECONDS


@contextmanager
def held(target: Target, cache: Path, patience: Patience) -> Iterator[None]:
    """Hold the target's device, where it is exclusive. Released by the kernel if this process dies.

    Raises DeviceBusy.
    """
    if not target.exclusive:
        yield
        return
    path = cache / "locks" / f"{target.device_type}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + patience.left
    with open(path, "w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as busy:
                if time.monotonic() > until:
                    also = "" if patience.left else ", which an earlier case of this worker waited for"
                    patience.left = 0.0
                    raise DeviceBusy(
                        f"{target.name} was held by another process for {WAIT_SECONDS:.0f} s{also}:"
                        " `zoo rerun --verdict DEVICE_BUSY` tries again"
                    ) from busy
                time.sleep(_POLL_SECONDS)
        patience.left = WAIT_SECONDS
        yield
