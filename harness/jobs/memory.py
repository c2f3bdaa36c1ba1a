"""How much memory jobs may use at once on this machine: who starts one reserves what it is predicted to need."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from harness.records import Peak
from harness.targets.base import Target

SETTING = "ZOO_MEMORY"
"""Environment variable that says by hand how much may be used, such as 16GB."""

SHARE = 0.9
"""Of the machine's memory jobs may use this; the rest is for workers, servers, and the kernel's cache."""

_POLL_SECONDS = 0.05
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


class BadAmount(ValueError):
    """What was said is no amount of memory; the message is one line."""


def usable() -> int:
    """Bytes that the jobs of this machine may use together: as `ZOO_MEMORY` says, else `SHARE` of what there is.

    Raises BadAmount.
    """
    return _by_hand() or int(SHARE * most())


def most() -> int:
    """Bytes beyond which not even a job that is alone fits: what needed a little less has passed here, perhaps.

    What `ZOO_MEMORY` says, else the machine's memory or what its control groups allow, the smallest. Raises BadAmount.
    """
    return _by_hand() or min([psutil.virtual_memory().total, *_allowed()])


def _by_hand() -> int | None:
    said = os.environ.get(SETTING)
    return in_bytes(said, f"{SETTING}=") if said else None


def in_bytes(said: str, where: str) -> int:
    """Bytes of an amount such as 16GB or 8GiB. Raises BadAmount, which begins with `where` it was said."""
    found = _AMOUNT.fullmatch(said.strip())
    size = int(float(found[1]) * _UNITS.get(found[2].upper(), 0)) if found else 0
    if not size:
        raise BadAmount(f"{where}{said!r} is no amount of memory: give one such as 16GB")
    return size


def _limited_by(there: int) -> str:
    """Who says that there is no more, in the words of a message."""
    if _by_hand():
        return f"by {SETTING} or --memory"
    return "all it has" if there == psutil.virtual_memory().total else "by a control group's limit"


def _allowed() -> Iterator[int]:
    """Limits of the control groups that this process is in, of either version (cgroups(7), Linux)."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                root, name = Path("/sys/fs/cgroup"), "memory.max"
            elif "memory" in controllers.split(","):
                root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
            else:
                continue
            own = root / path.lstrip("/")
            for folder in (own, *own.parents):
                with suppress(OSError, ValueError):  # absent at the root; "max" is no limit
                    yield int((folder / name).read_text())
                if folder == root:
                    break


class TooLarge(RuntimeError):
    """A case needs more memory than jobs may ever use on this machine; the message says how much, in one line."""


def require(peak: Peak, target: Target) -> None:
    """Raises TooLarge for a case that can run neither on this machine nor on the target, and BadAmount."""
    there = most()
    if peak.least is not None and peak.least > there:
        raise TooLarge(
            f"it needs {peak.least / 1e9:.3g} GB of memory ({peak.least} bytes), and jobs may use {there / 1e9:.3g} GB"
            f" here ({there} bytes, {_limited_by(there)}): run it on a larger machine, or allow more"
        )
    there = target.device_bytes
    if peak.device is not None and there is not None and peak.device > there:
        raise TooLarge(
            f"it needs {peak.device / 1e9:.3g} GB of the device's memory ({peak.device} bytes), and {target.name} has"
            f" {there / 1e9:.3g} GB ({there} bytes): run it on a larger device"
        )


class Ledger:
    """Reservations of all who share a folder, on one machine, of no more than `total` bytes together.

    A reservation is a file that its owner keeps locked, so that it ends with its owner, however that ends. Who comes
    first is served first, so that many small ones do not keep a large one waiting for ever. One that is alone may be
    larger than the total.
    """

    def __init__(self, folder: Path, total: int) -> None:
        self.total = total
        self._folder = folder

    @contextmanager
    def reserved(self, need: int) -> Iterator[None]:
        """While it is entered, `need` bytes are reserved; waits until they can be. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            number = 1 + max((place for place, _ in self._others()), default=0)
            ticket = self._folder / f"{number}-{need}"
            handle = os.open(ticket, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            while True:
                with self._alone():
                    earlier = sum(amount for place, amount in self._others() if place < number)
                    if not earlier or earlier + need <= self.total:
                        break
                time.sleep(_POLL_SECONDS)
            yield
        finally:
            with suppress(FileNotFoundError):
                ticket.unlink()
            os.close(handle)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _others(self) -> Iterator[tuple[int, int]]:
        """Number and bytes of every reservation whose owner lives, waiting or not; removes those of the dead."""
        for ticket in self._folder.glob("*-*"):
            try:
                handle = os.open(ticket, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ticket.unlink(missing_ok=True)
            except BlockingIOError:
                number, _, amount = ticket.name.partition("-")
                yield int(number), int(amount)
            finally:
                os.close(handle)
