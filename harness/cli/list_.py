"""`zoo list`: which models there are."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.cli import options

_FIELDS = ("model_type", "model_class", "model_id", "family", "task", "tier", "weights")


def list_models(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Model type, class, Hub id or glob.")
    ] = None,
    lists: options.Lists = None,
    tier: options.Tier = None,
    family: Annotated[str | None, typer.Option("--family", help="Only this family.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="Only this task.")] = None,
) -> None:
    """List models: a table on a terminal, tab-separated lines without a header into a pipe."""
    from harness.plan import PlanError, select, unknown
    from model_lists import load_list

    paths = options.list_paths(lists, tier=tier, words=words or ())
    entries = select((entry for path in paths for entry in load_list(path)), tier=tier, words=words or ())
    for kind, word in (("family", family), ("task", task)):
        if word is not None:
            valid = sorted({getattr(entry, kind) for entry in entries})
            if word not in valid:
                raise PlanError(unknown(kind, word, valid))
            entries = tuple(entry for entry in entries if getattr(entry, kind) == word)
    if not sys.stdout.isatty():
        for entry in entries:
            print("\t".join(str(getattr(entry, field)) for field in _FIELDS))
        return
    from rich.console import Console
    from rich.table import Table

    from harness.cli.style import plain

    table = Table(*_FIELDS)
    for entry in entries:
        table.add_row(*(plain(getattr(entry, field)) for field in _FIELDS))
    console = Console()
    console.print(table)
    console.print(f"{len(entries)} models")
