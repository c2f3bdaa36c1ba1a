"""`zoo sql`: ask the store in SQL."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options

if TYPE_CHECKING:
    import pyarrow

MAX_ROWS = 200
"""Rows that are printed as a table; a file holds all of them."""


class Format(StrEnum):
    """How the answer is printed."""

    TABLE = "table"
    CSV = "csv"


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT over the views rows (a row per case and run) and runs.")],
    store: options.Store = None,
    form: Annotated[Format, typer.Option("--format", help="How to print the answer.")] = Format.TABLE,
    out: options.Out = None,
) -> None:
    """Ask the store in SQL (DuckDB), read-only: zoo sql "select mode, verdict, count(*) from rows group by all"."""
    from results import default_store
    from results.export import as_csv
    from results.sql import query as ask

    answer = ask(Path(store or default_store()), query)
    if form is Format.CSV or out is not None:
        options.write(as_csv(answer), out)
    else:
        _print(answer)


def _print(answer: pyarrow.Table) -> None:
    from rich.console import Console
    from rich.table import Table

    from harness.cli.style import plain

    table = Table()
    for name in answer.column_names:
        table.add_column(plain(name))
    for row in zip(*(column.to_pylist() for column in answer.slice(0, MAX_ROWS).columns), strict=True):
        table.add_row(*(plain(value) for value in row))
    Console().print(table)
    if len(answer) > MAX_ROWS:
        print(f"{MAX_ROWS} of {len(answer)} rows; --format csv prints all", file=sys.stderr)
