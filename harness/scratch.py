"""Private folders for temporary files, that go with their owner however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX, _OWNER = "zoo-", ".owner"


@contextmanager
def scratch() -> Iterator[Path]:
    """A new folder of this user alone, removed at the end. First removes those whose owner was killed. Raises OSError.

    An owner keeps a file of it locked: the kernel lets go of that when the owner dies.
    """
    _remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    # Locked before it has the name by which others look for it.
    lock = os.open(folder / ".locking", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(folder / ".locking", folder / _OWNER)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_abandoned() -> None:
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER}"):
        try:
            lock = os.open(owner, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # it went meanwhile, or is another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(owner.parent, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
