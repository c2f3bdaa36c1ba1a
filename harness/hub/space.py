"""The disk that checkpoints may take: a quota, kept by evicting what was used longest ago and is not in use."""

from __future__ import annotations

import dataclasses
import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.cases import Verdict, Weights
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
    with _locked(cache, f"{_repo(model_id)}.fetch", fcntl.LOCK_EX), in_use(cache, model_id):
        for leftover in (index.files(cache) / _repo(model_id) / "blobs").glob("*.incomplete"):
            leftover.unlink(missing_ok=True)  # of a process that was killed: the library begins such files anew
        yield


def reserve(cache: Path, fetched: Fetched, quota: int, left_free: int = LEFT_FREE) -> None:
    """Make room for `fetched.bytes`, and keep the record, so that nobody else counts on the room.

    Raises Unfetched (DISK_FULL) where the quota or the disk is too small, whatever is evicted, and OSError.
    """
    with _locked(cache, "quota", fcntl.LOCK_EX):
        own = index.place(cache, fetched.kind, fetched.model_id, fetched.asked)
        others = [
            one
            for one in index.by_use(cache, Weights.HUB)
            if index.place(cache, one.kind, one.model_id, one.asked) != own
        ]
        folder = index.files(cache)
        folder.mkdir(parents=True, exist_ok=True)
        present = sum(path.stat().st_size for path in _present(cache, fetched))
        missing = max(0, fetched.bytes - present)
        if fetched.bytes > quota:
            raise Unfetched(Verdict.DISK_FULL, f"needs {fetched.bytes:,} bytes; the quota is {quota:,}")
        taken = sum(one.bytes for one in others)
        for one in others:
            if taken + fetched.bytes <= quota and missing + left_free <= shutil.disk_usage(folder).free:
                break
            if one.weights and _evicted(cache, one):
                kept = index.read(cache, one.kind, one.model_id, one.asked)
                taken -= one.bytes - (kept.bytes if kept else 0)
        if taken + fetched.bytes > quota:
            used = f"{taken:,} of {quota:,} are in use"
            raise Unfetched(Verdict.DISK_FULL, f"needs {fetched.bytes:,} bytes of the quota, of which {used}")
        free = shutil.disk_usage(folder).free
        if missing + left_free > free:
            raise Unfetched(
                Verdict.DISK_FULL, f"needs {missing:,} bytes; {free:,} are free, and {left_free:,} are to stay free"
            )
        index.write(cache, fetched)


def _evicted(cache: Path, fetched: Fetched) -> bool:
    """Remove a model's files but its config, if nobody uses them; whether they are gone."""
    try:
        with _locked(cache, f"{_repo(fetched.model_id)}.use", fcntl.LOCK_EX | fcntl.LOCK_NB):
            _remove(cache, fetched)
    except BlockingIOError:
        return False
    return True


def _remove(cache: Path, fetched: Fetched) -> None:
    repo = index.files(cache) / _repo(fetched.model_id)
    for leftover in (repo / "blobs").glob("*.incomplete"):
        leftover.unlink(missing_ok=True)
    going = [path for path in _present(cache, fetched) if path.name != "config.json"]
    blobs = {path.resolve() for path in going}
    for path in going:
        path.unlink()
    linked = {path.resolve() for path in (repo / "snapshots").rglob("*") if path.is_file()}
    for blob in blobs - linked:
        blob.unlink(missing_ok=True)
    kept = sum(path.stat().st_size for path in _present(cache, fetched))
    index.write(cache, dataclasses.replace(fetched, weights=(), bytes=kept))


def _present(cache: Path, fetched: Fetched) -> list[Path]:
    """The files of a model that are there."""
    snapshot = index.files(cache) / _repo(fetched.model_id) / "snapshots" / fetched.revision
    return [path for name in dict.fromkeys(("config.json", *fetched.weights)) if (path := snapshot / name).is_file()]


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
