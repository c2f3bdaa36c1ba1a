"""Rows of an older version of the schema, read as rows of today: one step for each version that was left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results import schema
from results.schema import Column

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Step:
    """How rows of one version become rows of the next.

    `had` are the columns that the next version lacks or holds as another type. `change` is given a table with those and
    the columns of the next version, which are unknown where this version has not them; it returns one with the columns
    of the next version at least.
    """

    had: tuple[Column, ...]
    change: Callable[[pyarrow.Table], pyarrow.Table]


STEPS: dict[int, Step] = {}
"""By the version that they start from: one for each below `schema.SCHEMA_VERSION`, from 1 on."""


def is_outdated(version: int) -> bool:
    """Whether rows of that version have to be changed to be rows of today."""
    return any(_steps(version))


def columns_of(version: int) -> tuple[Column, ...]:
    """The columns of that version, beside those that were added later."""
    columns = {column.name: column for column in schema.COLUMNS}
    for step in reversed(list(_steps(version))):
        columns |= {column.name: column for column in step.had}
    return tuple(columns.values())


def fitted(table: pyarrow.Table, columns: Sequence[Column]) -> pyarrow.Table:
    """The table with these columns and no others: those that it lacks are unknown. Raises pyarrow.ArrowException."""
    import pyarrow

    wanted = schema.arrow_schema(columns)
    return pyarrow.Table.from_arrays(
        [
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pyarrow.nulls(len(table), field.type)
            for field in wanted
        ],
        schema=wanted,
    )


def migrated(table: pyarrow.Table, version: int) -> pyarrow.Table:
    """The rows of a table that has `columns_of(version)`, as rows of today, of its version as well."""
    import pyarrow

    for step in _steps(version):
        table = step.change(table)
    today = pyarrow.array([schema.SCHEMA_VERSION] * len(table), pyarrow.int64())
    place = table.column_names.index("schema_version")
    return fitted(table.set_column(place, "schema_version", today), schema.COLUMNS)


def table_of_today(rows: Iterable[Mapping[str, Any]], version: int) -> pyarrow.Table:
    """Rows that have `columns_of(version)` as rows of today, in their order."""
    import pyarrow

    table = pyarrow.Table.from_pylist(list(rows), schema=schema.arrow_schema(columns_of(version)))
    return migrated(table, version)


def _steps(version: int) -> Iterator[Step]:
    return (step for start, step in sorted(STEPS.items()) if version <= start < schema.SCHEMA_VERSION)
