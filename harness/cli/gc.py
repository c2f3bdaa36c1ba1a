"""`zoo gc`: let go of old runs."""

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
    store: options.Store = None,
    expectations: options.Expectations = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
) -> None:
    """Remove old runs from the store. What either option keeps stays; both given, a run needs to be kept by one only.

    The last run of a target, its last green one, and a run that is being written are never removed.
    """
    from model_lists.expectations import FOLDER
    from results import default_store
    from results.retention import remove, sort_out, sweep

    folder = Path(store or default_store())
    found = sort_out(folder, keep=_age(keep), keep_runs=keep_runs, expectations=Path(expectations or FOLDER))
    freed = removed = 0
    for old in found.old:
        if dry_run or remove(old.run):
            freed += old.bytes
            removed += 1
            print(f"{'would remove' if dry_run else 'removed'} {old.run.id} of {old.created_at}, {_amount(old.bytes)}")
        else:
            print(f"kept {old.run.id}: a process began to write it")
    for run_id, why in found.kept.items():
        print(f"kept {run_id}: {why}")
    if not dry_run:
        freed += sweep(folder)
    word = "would free" if dry_run else "freed"
    print(f"{removed} of {len(found.old) + found.asked + len(found.kept)} runs, {word} {_amount(freed)}")


def _age(text: str | None) -> timedelta | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age: write 90d, 12w or 36h", param_hint="--keep")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _amount(count: int) -> str:
    return f"{count / 10**6:.1f} MB"
