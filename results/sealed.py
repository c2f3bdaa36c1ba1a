"""The Parquet file of a run: its rows in one piece, with the version that wrote them and the journals they are from."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from results import journal, migration, schema
from results.errors import StoreError
from results.files import write_atomically

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet

FILE = "rows.parquet"
ROWS_IN_GROUP = 8192
"""Who looks for a few cases of a sealed run reads this many rows for each, and not all."""

_MADE_FROM = b"zoo.journal_sizes"
_VERSION = b"zoo.schema_version"


def write(path: Path, tables: Iterable[pyarrow.Table], sizes: Mapping[str, int]) -> None:
    """Write the rows of these tables, one at least, atomically; `sizes` are those of the journals they are from.

    Raises StoreError.
    """
    from pyarrow import parquet

    facts = {_MADE_FROM: json.dumps(sizes), _VERSION: str(schema.SCHEMA_VERSION)}
    parts = (table.replace_schema_metadata(facts) for table in tables)
    first = next(parts)

    def fill(file: BinaryIO) -> None:
        with parquet.ParquetWriter(
            file, first.schema, compression="zstd", use_dictionary=schema.repetitive()
        ) as writer:
            for part in chain([first], parts):
                writer.write_table(part, ROWS_IN_GROUP)

    write_atomically(path, fill)


def read(path: Path, columns: Sequence[str] | None = None, cases: Collection[str] | None = None) -> pyarrow.Table:
    """The rows of a file as rows of today, columns that it lacks unknown; of `columns` and `cases` only, where given.

    Raises StoreError.
    """
    with opened(path) as file:
        version = _version(file)
        outdated = migration.is_outdated(version)
        known = [
            column for column in migration.columns_of(version) if outdated or columns is None or column.name in columns
        ]
        present = [column.name for column in known if column.name in file.schema_arrow.names]
        table = migration.fitted(_rows(file, present, cases), known)
        if outdated:
            table = migration.migrated(table, version)
    return table if columns is None else table.select(list(columns))


def holds(path: Path, tables: Sequence[pyarrow.Table]) -> bool:
    """Whether the file has these rows and no others, bit by bit, NaN too, which equals nothing. Raises StoreError."""
    import pyarrow

    def bits(column: pyarrow.ChunkedArray) -> pyarrow.Array:
        array = column.combine_chunks()
        return array.view(pyarrow.int64()) if pyarrow.types.is_float64(array.type) else array

    mine, other = read(path), pyarrow.concat_tables(tables)
    return mine.column_names == other.column_names and all(
        bits(mine.column(name)).equals(bits(other.column(name))) for name in mine.column_names
    )


def journal_sizes(path: Path) -> dict[str, int]:
    """Bytes of each journal that the file was made from, by name. Raises StoreError."""
    with opened(path) as file:
        return json.loads((file.schema_arrow.metadata or {}).get(_MADE_FROM, b"{}"))


def is_of_today(path: Path) -> bool:
    """Whether the file can be read as it is, being of no older version. Raises StoreError."""
    with opened(path) as file:
        return not migration.is_outdated(_version(file))


def migrate(path: Path) -> bool:
    """Write the file anew, atomically, where there is one of an older version; says whether there was.

    Raises StoreError.
    """
    if not path.exists() or is_of_today(path):
        return False
    write(path, [read(path)], journal_sizes(path))
    return True


@contextmanager
def opened(path: Path) -> Iterator[parquet.ParquetFile]:
    """The file, opened; what is wrong with it, there or while it is read, is a StoreError."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            journal.check_version(_version(file), path)
            yield file
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        has_journals = any((path.parent / "journal").glob("*.jsonl"))
        rescue = "; its journals are still there: delete the file and seal again" if has_journals else ""
        raise StoreError(f"{path} is damaged ({cause}){rescue}") from error


def _rows(file: parquet.ParquetFile, columns: Sequence[str], cases: Collection[str] | None) -> pyarrow.Table:
    """These columns of the file; where `cases` are named, only of the parts of it that have one of them."""
    import pyarrow
    from pyarrow import compute

    if cases is None:
        return file.read(columns)
    wanted = pyarrow.array(list(cases), pyarrow.string())
    tables = [file.schema_arrow.empty_table().select(columns)]
    for group in range(file.num_row_groups):
        here = compute.is_in(file.read_row_group(group, ["case_id"]).column("case_id"), value_set=wanted)
        if compute.any(here).as_py():
            tables.append(file.read_row_group(group, columns).filter(here))
    return pyarrow.concat_tables(tables)


def _version(file: parquet.ParquetFile) -> int:
    return int((file.schema_arrow.metadata or {}).get(_VERSION, schema.SCHEMA_VERSION))
