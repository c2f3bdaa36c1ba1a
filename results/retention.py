"""What a store lets go of: old runs, never one that others are compared with or that is being written; their journals
once the Parquet file has every row; old surveys; what processes that were killed left behind."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from model_lists.expectations import FOLDER
from results.baseline import is_green, is_whole, target_of
from results.errors import StoreError
from results.store import Run, is_sealed, let_go_of_journals, list_runs, missing, open_run
from results.surveys import KINDS, list_surveys

IDLE = timedelta(days=1)
"""How long nothing may have been written to an unfinished run before it counts as abandoned. A case that takes longer
than all time limits together is not a case."""

_REMOVED = ".removed-"
_DRAFTS = ("runs/.*", "runs/*/.*", "surveys/*/.*")
"""Where what is not whole yet lies, until it is renamed to what it is called by."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Old:
    """A run that may go: when it began, and how many bytes its files take."""

    run: Run
    created_at: str
    bytes: int


@dataclass(frozen=True)
class Sorted:
    """The runs of a store: those that may go, oldest first, how many stay as was asked for, and why others stay too."""

    old: tuple[Old, ...]
    asked: int
    kept: dict[str, str]

    @property
    def bytes(self) -> int:
        """What removing all the old ones frees."""
        return sum(one.bytes for one in self.old)


def sort_out(
    store: Path,
    *,
    keep: timedelta | None = None,
    keep_runs: int | None = None,
    expectations: Path = FOLDER,
    now: datetime | None = None,
) -> Sorted:
    """Say which runs may go; nothing is removed yet.

    A run stays if it is younger than `keep`, or of the newest `keep_runs` of its target, or the last run of its target,
    or the last green one, or being written, or cannot be read. Raises StoreError where neither rule is given or the
    store cannot be read.
    """
    if keep is None and keep_runs is None:
        raise StoreError("say what to keep: an age (90d), a number of runs of each target, or both")
    now = now or datetime.now(UTC)
    kept: dict[str, str] = {}
    old: list[Old] = []
    asked = 0
    seen: dict[str, int] = {}
    whole: set[str] = set()
    green: set[str] = set()
    for run_id in reversed(list_runs(store)):
        try:
            run = open_run(store, run_id)
            target, created_at = target_of(run), run.created_at
            last = not seen.get(target) or (is_whole(run) and target not in whole)
            last_green = target not in green and is_whole(run) and is_green(run, expectations)
        except StoreError as error:
            kept[run_id] = f"it cannot be read ({error})"
            continue
        seen[target] = seen.get(target, 0) + 1
        whole |= {target} if is_whole(run) else set()
        green |= {target} if last_green else set()
        young = keep is not None and _age(created_at, now) < keep
        if young or (keep_runs is not None and seen[target] <= keep_runs):
            asked += 1
        elif last:
            kept[run_id] = f"it is the last on {target}"
        elif last_green:
            kept[run_id] = f"it is the last green one on {target}"
        elif being_written(run, now):
            kept[run_id] = "it is being written"
        else:
            old.append(Old(run, created_at, _size(run.path)))
    return Sorted(tuple(reversed(old)), asked, kept)


def remove(run: Run) -> bool:
    """Remove a run, whole at once for every reader; False where a process began to write it meanwhile.

    A process that is killed in the middle leaves a hidden folder, which `sweep` finds. Raises StoreError.
    """
    gone = run.path.with_name(_REMOVED + run.id)
    try:
        with _journals_held(run) as held:
            if not held:
                return False
            os.rename(run.path, gone)
    except OSError as error:
        raise StoreError(f"cannot remove {run.path}: {error.strerror}") from error
    delete(gone)
    return True


def old_surveys(
    store: Path, *, keep: timedelta | None = None, keep_runs: int | None = None, now: datetime | None = None
) -> dict[Path, int]:
    """Files of surveys that may go, and their bytes: the rules are those for runs, each kind being a target."""
    found: dict[Path, int] = {}
    for kind in KINDS:
        for place, path in enumerate(reversed(list_surveys(store, kind)), start=1):
            young = keep is not None and _untouched(path, now) < keep
            if place > max(keep_runs or 1, 1) and not young:
                found[path] = _size(path)
    return found


def with_journals(store: Path, age: timedelta, now: datetime | None = None) -> dict[str, int]:
    """Sealed runs that began `age` ago or earlier and still have journals, oldest first, and the bytes of these.

    Raises StoreError.
    """
    now = now or datetime.now(UTC)
    found: dict[str, int] = {}
    for run_id in list_runs(store):
        try:
            run = open_run(store, run_id)
            if _age(run.created_at, now) >= age and is_sealed(run) and not being_written(run, now):
                found[run_id] = sum(path.stat().st_size for path in run.path.glob("journal/*.jsonl"))
        except StoreError as error:
            _log.warning("left as it is: %s", error)
    return {run_id: size for run_id, size in found.items() if size}


def drop_journals(run: Run) -> int:
    """Remove the journals of a sealed run and return the bytes this frees; 0 where a process began to write it.

    Raises StoreError, having removed nothing, where the Parquet file, read back, has not every row.
    """
    with _journals_held(run) as held:
        return let_go_of_journals(run) if held else 0


def leftovers(store: Path, now: datetime | None = None) -> dict[Path, int]:
    """What processes that were killed left behind, and its bytes: removals, and drafts that nothing touched lately."""
    folder = Path(store)
    drafts = [path for pattern in _DRAFTS for path in folder.glob(pattern) if _untouched(path, now) >= IDLE]
    return {path: _size(path) for path in sorted({*drafts, *folder.glob(f"runs/{_REMOVED}*")})}


def sweep(store: Path) -> int:
    """Delete the leftovers, and return the bytes that this freed. Raises StoreError."""
    found = leftovers(store)
    for path in found:
        delete(path)
    return sum(found.values())


def being_written(run: Run, now: datetime | None = None) -> bool:
    """Whether a process writes to a run, or may yet, as it lacks cases and was touched lately. Raises StoreError."""
    touched = max(path.stat().st_mtime for path in (run.path, *run.path.glob("journal/*"), *run.path.glob("live/*")))
    lately = (now or datetime.now(UTC)).timestamp() - touched < IDLE.total_seconds()
    if lately and missing(run):
        return True  # and its journals are left alone: a worker could not open one that is held here
    with _journals_held(run) as held:
        return not held


@contextmanager
def _journals_held(run: Run) -> Iterator[bool]:
    """Keep writers out of a run meanwhile; False where one is at work."""
    with ExitStack() as stack:
        for path in sorted(run.path.glob("journal/*.jsonl")):
            file = stack.enter_context(path.open("rb"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
        yield True


def _age(created_at: str, now: datetime) -> timedelta:
    """A run that does not say when it began is new: it is not removed for its age."""
    try:
        began = datetime.fromisoformat(created_at)
    except ValueError:
        return timedelta(0)
    return now - (began if began.tzinfo else began.replace(tzinfo=UTC))


def delete(path: Path) -> None:
    """Delete a file or a folder with all that is in it. Raises StoreError."""
    try:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    except OSError as error:
        raise StoreError(f"cannot remove {path}: {error.strerror}") from error


def _untouched(path: Path, now: datetime | None) -> timedelta:
    """How long nothing has been written to a file or to a folder."""
    touched = path.lstat().st_mtime
    for inside in path.rglob("*"):
        with suppress(FileNotFoundError):
            touched = max(touched, inside.lstat().st_mtime)
    return (now or datetime.now(UTC)) - datetime.fromtimestamp(touched, UTC)


def _size(path: Path) -> int:
    total = 0 if path.is_dir() else path.lstat().st_size
    for inside in path.rglob("*"):
        with suppress(FileNotFoundError):
            total += inside.lstat().st_size
    return total
