"""Stores that lie elsewhere: anything fsspec has a URL for (s3://, gs://, memory://, ...), reached by whole runs.

A run is written into a local store, since a journal must be on disk before the next case starts, and copied from there
when it ends. Its `run.json` goes last: a run without one is not there yet.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from model_lists import ListError
from results.errors import StoreError
from results.store import RUN_NAME, Run, by_time

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_LAST = "run.json"
_PRIVATE = "live"
"""Folder of a run that says what its workers do now: of no use once it has ended."""
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


def is_url(store: str) -> bool:
    """Whether `store` names a place for fsspec and not a folder."""
    return "://" in store or "::" in store


def shown(url: str) -> str:
    """The URL without the user and password that it may hold."""
    return _USER_IN_URL.sub("", url)


def local_folder(store: str) -> Path:
    """The folder that `store` names. Raises StoreError where it names a place elsewhere."""
    if is_url(store):
        raise StoreError(f"{shown(store)} is no folder: of stores elsewhere only run, plan and merge know")
    return Path(store)


def mirror(url: str, cache: Path) -> Path:
    """The local store, in the folder `cache`, in which runs for the store at `url` are made."""
    return cache / "stores" / hashlib.sha256(url.encode()).hexdigest()[:16]


def pull(
    url: str, store: Path, newest: int | None = None, wanted: Callable[[str], bool] = lambda _run_id: True
) -> None:
    """Copy the runs of the store at `url` whose id is `wanted` into a local one: the newest ones, all where None.

    Runs that are there already are left as they are. Raises StoreError.
    """
    with reaching(url) as (files, root):
        folder = f"{root}runs"
        found = files.ls(folder, detail=False) if files.exists(folder) else []
        names = (name for name in (str(path).rstrip("/").rpartition("/")[2] for path in found))
        chosen = by_time(name for name in names if RUN_NAME.fullmatch(name) and wanted(name))
        for name in chosen[-newest:] if newest else chosen:
            if not (store / "runs" / name).exists() and files.exists(f"{folder}/{name}/{_LAST}"):
                _fetch(files, f"{folder}/{name}", store / "runs" / name)


def push(run: Run, url: str) -> None:
    """Copy a run to the store at `url`; readers see it once all of it is there. Raises StoreError."""
    paths = sorted(
        (path for path in run.path.rglob("*") if path.is_file() and _PRIVATE not in path.relative_to(run.path).parts),
        key=lambda path: (path.name == _LAST, path),
    )
    with reaching(url) as (files, root):
        goal = f"{root}runs/{run.id}"
        # Where the file system has them, a transaction holds every file back until the last one is written.
        with files.transaction:
            for path in paths:
                name = f"{goal}/{path.relative_to(run.path).as_posix()}"
                files.makedirs(name.rpartition("/")[0], exist_ok=True)
                with files.open(name, "wb") as file:
                    file.write(path.read_bytes())


def _fetch(files: AbstractFileSystem, source: str, goal: Path) -> None:
    draft = goal.with_name(f".{goal.name}.{secrets.token_hex(4)}")
    try:
        for path in files.find(source):
            name = PurePosixPath(str(path)).relative_to(PurePosixPath(source))
            if ".." in name.parts or _PRIVATE in name.parts:
                continue
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            files.get_file(path, str(draft / name))
        for folder in ("journal", _PRIVATE):
            (draft / folder).mkdir(exist_ok=True)
        draft.rename(goal)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def reaching(url: str, what: str = "results store") -> Iterator[tuple[AbstractFileSystem, str]]:
    """The file system of `url`, where `what` lies, and what begins a path in it.

    Whatever goes wrong inside becomes StoreError, but a ListError stays one.
    """
    try:
        from fsspec.core import url_to_fs
        from fsspec.implementations.dirfs import DirFileSystem

        files, root = url_to_fs(url)
        # A folder that is a file system of its own begins where its paths do.
        yield files, "" if isinstance(files, DirFileSystem) or not root.strip("/") else f"{root.rstrip('/')}/"
    except (StoreError, ListError):
        raise
    except ImportError as error:
        raise StoreError(f"the {what} {shown(url)} needs a package that is not installed: {error}") from error
    except Exception as error:
        # Each file system raises errors of its own; here they become one.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise StoreError(f"cannot reach the {what} {shown(url)}: {lines[0][:300]}") from error
