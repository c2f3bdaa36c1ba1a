"""The disk that checkpoints may take: a quota, kept by evicting what was used longest ago and is not in use."""

from __future__ import annotations

import dataclasses
import fcntl
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.cases import Verdict
from harness.hub import index
from harness.hub.index import Fetched, Unfetched

QUOTA = 100 * 2**30
"""Bytes of checkpoints that are kept where nothing else is said."""
LEFT_FREE = 2 * 2**30
"""Bytes of the disk that are left to everything else."""


@contextmanager
def in_use(cache: Path, model_id: str) -> Iterator[None]:
    """Keep a model's files from being evicted in here. Released by the kernel if this process dies."""
    with _locked(cache, f"{_repo(model_id)}.use", fcntl.LOCK_SH):
        yield


@contextmanager
def alone(cache: Path, model_id: str) -> Iterator[None]:
    """Be the only one to fetch a model in here, which nobody evicts meanwhile; wait for another who fetches it."""
    with _locked(cache, f"{_repo(model_id)}.fetch", fcntl.LOCK_EX):
        _sweep(cache, model_id)
        yield


def snapshot(cache: Path, fetched: Fetched) -> Path:
    """The folder of a checkpoint's files, whether they are there or not."""
    return index.files(cache) / _repo(fetched.model_id) / "snapshots" / fetched.revision


def reserve(cache: Path, fetched: Fetched, quota: int) -> None:
    """Make room for `fetched.bytes`, and keep the record, so that nobody else counts on the room.

    Who calls is `alone` with the model. What there is of it at another revision stays, counted as that of a list that
    pins this, until it is the turn of that to be evicted.

    Raises Unfetched (DISK_FULL) where the quota or the disk is too small, whatever is evicted, and OSError.
    """
    if fetched.bytes > quota:
        raise Unfetched(Verdict.DISK_FULL, f"needs {fetched.bytes:,} bytes; the quota is {quota:,}")
    with _locked(cache, "quota", fcntl.LOCK_EX):
        index.superseded(cache, fetched)
        own = index.place(cache, fetched.kind, fetched.model_id, fetched.asked)
        known = index.checkpoints(cache)
        others = [one for one in known if index.place(cache, one.kind, one.model_id, one.asked) != own]
        folder = index.files(cache)
        folder.mkdir(parents=True, exist_ok=True)
        missing = max(0, fetched.bytes - sum(path.stat().st_size for path in _present(cache, fetched)))
        taken = sum(one.bytes for one in others)
        for one in others:
            if taken + fetched.bytes <= quota and missing + LEFT_FREE <= shutil.disk_usage(folder).free:
                break
            if one.bytes and _evicted(cache, one, fetched.model_id):
                taken -= one.bytes
        if taken + fetched.bytes > quota:
            used = f"{taken:,} of {quota:,} are in use"
            raise Unfetched(Verdict.DISK_FULL, f"needs {fetched.bytes:,} bytes of the quota, of which {used}")
        if missing + LEFT_FREE > (free := shutil.disk_usage(folder).free):
            left = f"{free:,} are free, and {LEFT_FREE:,} are to stay free"
            raise Unfetched(Verdict.DISK_FULL, f"needs {missing:,} bytes; {left}")
        index.write(cache, fetched)


def _evicted(cache: Path, fetched: Fetched, own: str) -> bool:
    """Remove a model's files, if nobody uses them, or fetches them but who calls, for `own`; whether they are gone."""
    now = fcntl.LOCK_EX | fcntl.LOCK_NB
    try:
        with ExitStack() as held:
            if fetched.model_id != own:
                held.enter_context(_locked(cache, f"{_repo(fetched.model_id)}.fetch", now))
            held.enter_context(_locked(cache, f"{_repo(fetched.model_id)}.use", now))
            _remove(cache, fetched)
    except BlockingIOError:
        return False
    return True


def _remove(cache: Path, fetched: Fetched) -> None:
    """A blob goes with the last link to it: another revision may have the same file."""
    _sweep(cache, fetched.model_id)
    going = _present(cache, fetched)
    blobs = {path.resolve() for path in going}
    for path in going:
        path.unlink()
    snapshots = index.files(cache) / _repo(fetched.model_id) / "snapshots"
    for blob in blobs - {path.resolve() for path in snapshots.rglob("*") if path.is_file()}:
        blob.unlink(missing_ok=True)
    message = "it was evicted to make room for others"
    gone = dataclasses.replace(fetched, config="", weights=(), bytes=0, code="")
    index.write(cache, dataclasses.replace(gone, verdict=Verdict.CHECKPOINT_MISSING, message=message))


def _present(cache: Path, fetched: Fetched) -> list[Path]:
    """The files of a checkpoint that are there."""
    folder = snapshot(cache, fetched)
    return [path for name in dict.fromkeys(("config.json", *fetched.weights)) if (path := folder / name).is_file()]


def _sweep(cache: Path, model_id: str) -> None:
    """Remove what a killed process left of files, which the library begins anew; in a shared folder it may be another's
    who is still at it."""
    if index.shared():
        return
    for leftover in (index.files(cache) / _repo(model_id) / "blobs").glob("*.incomplete"):
        leftover.unlink(missing_ok=True)


def _repo(model_id: str) -> str:
    """The folder of a model in the library's cache."""
    return "--".join(("models", *model_id.split("/")))


@contextmanager
def _locked(cache: Path, name: str, how: int) -> Iterator[None]:
    path = index.root(cache) / "locks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as lock:
        fcntl.flock(lock, how)
        yield
