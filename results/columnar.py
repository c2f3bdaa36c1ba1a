"""Rows as columns: from what a line of a journal holds to Arrow tables, and these put in another order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from results import schema

if TYPE_CHECKING:
    import numpy
    import pyarrow

ROWS_AT_ONCE = 512
"""Rows that are turned into columns at once: few enough that a processor's cache holds them."""


@cache
def row_type() -> type:
    """The type of a row of today: a msgspec struct with an attribute for each column, in order, None where unknown."""
    import msgspec

    integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    types: dict[str, Any] = {
        "string": str,
        "int64": integer,
        "double": float,
        "bool": bool,
        "list<int64>": list[integer],
    }
    return msgspec.defstruct(
        "Row", [(column.name, types[column.type] | None, None) for column in schema.COLUMNS], gc=False
    )


def as_batch(rows: Sequence[Any]) -> pyarrow.RecordBatch:
    """Rows of `row_type`, one or more, as columns with the schema of today."""
    import msgspec
    import pyarrow

    known = _arrow_schema()
    columns = zip(*map(msgspec.structs.astuple, rows), strict=True)
    arrays = [_array(values, field_type) for values, field_type in zip(columns, known.types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=known)


def picked(table: pyarrow.Table, numbers: numpy.ndarray, at_once: int) -> Iterator[pyarrow.Table]:
    """The rows of these numbers in that order, as tables of `at_once` rows, the last of which may have fewer.

    A table is gathered from the batches that have its rows, column by column, so that little is copied at a time.
    """
    import numpy
    import pyarrow

    if not len(numbers):
        yield table.slice(0, 0)
    batches = table.to_batches()
    begins = numpy.cumsum([0, *(len(batch) for batch in batches)])
    for start in range(0, len(numbers), at_once):
        some = numbers[start : start + at_once]
        holders = numpy.searchsorted(begins, some, side="right") - 1
        used = numpy.unique(holders)
        begins_here = numpy.cumsum([0, *(len(batches[holder]) for holder in used[:-1])])
        places = pyarrow.array(some - begins[holders] + begins_here[numpy.searchsorted(used, holders)])
        yield pyarrow.Table.from_batches([batches[holder] for holder in used]).combine_chunks().take(places)


@contextmanager
def small_pages() -> Iterator[None]:
    """Arrow memory comes from the system meanwhile: pyarrow's own asks for huge pages, of which a table that is made of
    many small pieces uses little, and the kernel clears all (a third of the time of sealing on a busy machine).
    """
    import pyarrow

    before = pyarrow.default_memory_pool()
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    try:
        yield
    finally:
        pyarrow.set_memory_pool(before)


@cache
def _arrow_schema() -> pyarrow.Schema:
    return schema.arrow_schema()


def _array(values: tuple[Any, ...], field_type: pyarrow.DataType) -> pyarrow.Array:
    """One column. Most hold one text over and over, or nothing: these have a faster way."""
    import pyarrow

    first, count = values[0], len(values)
    if first is None and values.count(None) == count:
        return pyarrow.nulls(count, field_type)
    if isinstance(first, str) and values[-1] == first and values.count(first) == count:
        return pyarrow.repeat(first, count)
    return pyarrow.array(values, field_type)
