"""`zoo gc`: let go of old runs, of journals that are in Parquet, and of older versions of the schema."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def gc(
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="AGE", help="Keep what is younger: 90d, 12w, 36h.")
    ] = None,
    keep_runs: Annotated[
        int | None, typer.Option("--keep-runs", min=1, metavar="N", help="Keep the newest N of each target.")
    ] = None,
    journals: Annotated[
        str | None,
        typer.Option(
            "--journals", metavar="AGE", help="Drop the journals of sealed runs as old as this, not the runs."
        ),
    ] = None,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Write what an older version has sealed anew, in today's schema.")
    ] = False,
    store: options.Store = None,
    expectations: options.Expectations = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
) -> None:
    """Remove old runs and surveys from the store. What --keep or --keep-runs keeps stays; both given, either is enough.

    The last run of a target, its last green one, the last survey of a kind, and a run that is being written are never
    removed. A journal is dropped only after the run's Parquet file has been read back with every row.
    """
    from model_lists.expectations import FOLDER
    from results import default_store

    folder = Path(store or default_store())
    freed = 0
    if migrate:
        _migrate(folder, dry_run)
    if journals is not None:
        freed += _drop_journals(folder, _age(journals, "--journals"), dry_run)
    if keep is not None or keep_runs is not None or not (migrate or journals):
        freed += _remove(folder, _age(keep, "--keep"), keep_runs, Path(expectations or FOLDER), dry_run)
    freed += _sweep(folder, dry_run)
    print(f"{'would free' if dry_run else 'freed'} {_amount(freed)}")


def _remove(folder: Path, keep: timedelta | None, keep_runs: int | None, expectations: Path, dry_run: bool) -> int:
    from results.retention import delete, old_surveys, remove, sort_out

    found = sort_out(folder, keep=keep, keep_runs=keep_runs, expectations=expectations)
    word = "would remove" if dry_run else "removed"
    freed = removed = 0
    for old in found.old:
        if dry_run or remove(old.run):
            freed += old.bytes
            removed += 1
            print(f"{word} {old.run.id} of {old.created_at}, {_amount(old.bytes)}")
        else:
            print(f"kept {old.run.id}: a process began to write it")
    for run_id, why in found.kept.items():
        print(f"kept {run_id}: {why}")
    for path, size in old_surveys(folder, keep=keep, keep_runs=keep_runs).items():
        if not dry_run:
            delete(path)
        freed += size
        print(f"{word} {path.parent.name} survey {path.stem}, {_amount(size)}")
    print(f"{word} {removed} of {len(found.old) + found.asked + len(found.kept)} runs")
    return freed


def _drop_journals(folder: Path, age: timedelta, dry_run: bool) -> int:
    from results import StoreError, open_run
    from results.retention import drop_journals, with_journals

    freed = 0
    for run_id, size in with_journals(folder, age).items():
        try:
            gone = size if dry_run else drop_journals(open_run(folder, run_id))
        except StoreError as error:
            print(f"kept the journals of {run_id}: {error}")
            continue
        freed += gone
        print(f"{'would drop' if dry_run else 'dropped'} the journals of {run_id}, {_amount(gone)}")
    return freed


def _migrate(folder: Path, dry_run: bool) -> None:
    from results import list_runs, open_run, sealed
    from results.store import sealed_path

    for run_id in list_runs(folder):
        path = sealed_path(open_run(folder, run_id))
        if dry_run and path.exists() and not sealed.is_of_today(path):
            print(f"would write {run_id} in today's schema")
        elif not dry_run and sealed.migrate(path):
            print(f"wrote {run_id} in today's schema")


def _sweep(folder: Path, dry_run: bool) -> int:
    from results.retention import leftovers, sweep

    freed = sum(leftovers(folder).values()) if dry_run else sweep(folder)
    if freed:
        print(f"{'would remove' if dry_run else 'removed'} what killed processes left behind, {_amount(freed)}")
    return freed


def _age(text: str | None, option: str) -> timedelta | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age: write 90d, 12w or 36h", param_hint=option)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _amount(count: int) -> str:
    return f"{count / 10**6:.1f} MB"
