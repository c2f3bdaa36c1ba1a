"""Append-only journal of finished cases: one JSON line each, on disk before the next case starts."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import columnar, migration, schema
from results.errors import DiskFull, StoreError

if TYPE_CHECKING:
    import pyarrow

_BUFFER = 1 << 18
"""Bytes read at once: lines have thousands, and a reader copies those that end in another piece once more."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Journal:
    """The writer of one journal file; a second writer of the same file is refused with StoreError.

    A file that ends in a half line, left by a writer that was killed, is continued on a fresh line.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise StoreError(f"{self.path} is being written by another process") from error
        end = os.fstat(self._file).st_size
        if end and os.pread(self._file, 1, end - 1) != b"\n":
            self._write(b"\n")

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row and wait until it is on disk.

        Raises DiskFull where it does not fit and StoreError where it cannot be written; the file is then
        what it was before. Raises ValueError for a row that readers would refuse.
        """
        values = schema.encode(row)
        schema.decode(values)
        self._write(line_of(values))

    def close(self) -> None:
        """Let go of the file; what was appended is already on disk."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        before = os.fstat(self._file).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            self._restore(before)
            if error.errno in _NO_SPACE:
                raise DiskFull(f"no space left to write {self.path}: free some and resume the run") from error
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error

    def _restore(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        except OSError:
            return  # The half line stays; readers report it and the next writer starts on a fresh line.


def line_of(values: Mapping[str, Any]) -> bytes:
    """The line of a row that `schema.encode` made. What is unknown is not written: readers take it for unknown."""
    known = {name: value for name, value in values.items() if value is not None}
    return json.dumps(known, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def read(path: Path) -> tuple[pyarrow.Table, list[str]]:
    """All intact rows of a journal as rows of today, in the order they were written, and one line per damaged one.

    A journal that is being written may end in a half line: it is reported, everything before it is kept. Raises
    StoreError where the file cannot be read or was written by a newer version.
    """
    import pyarrow

    problems: list[str] = []
    tables = [schema.arrow_schema().empty_table()]
    try:
        with open(path, "rb", _BUFFER) as file, _no_search_for_cycles():
            for version, rows in _rows(file, path, problems):
                if migration.is_outdated(version):
                    tables.append(migration.table_of_today(rows, version))
                else:
                    tables.append(pyarrow.Table.from_batches([columnar.as_batch(rows)]))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    return pyarrow.concat_tables(tables), problems


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Rows hold no cycles: to look for some whenever a thousand were made takes a tenth of the time of reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _rows(file: Iterable[bytes], path: Path, problems: list[str]) -> Iterator[tuple[int, list[Any]]]:
    """The rows of these lines in order, a few at a time: the version that wrote them, and each as `columnar.row_type`
    or, if that version is older, as `read_line` has it. What is wrong with the other lines goes to `problems`.
    """
    import msgspec

    today = schema.SCHEMA_VERSION
    row_type, decode = columnar.row_type(), _decoder().decode
    some: list[Any] = []
    written_by = today
    for number, line in enumerate(file, start=1):
        version = today
        try:
            row = decode(line)
        except (msgspec.MsgspecError, RecursionError):
            row = None  # the slower reader says what is wrong, or reads it all the same
        if row is None or row.schema_version != today or not row.case_id:
            if not line.strip():
                continue
            try:
                values = read_line(line.removesuffix(b"\n"), path)
            except (ValueError, RecursionError) as error:
                problems.append(f"{path} line {number}: unreadable row skipped ({error})")
                continue
            version = version_of(values)
            row = values if migration.is_outdated(version) else row_type(**values)
        if version != written_by or len(some) == columnar.ROWS_AT_ONCE:
            if some:
                yield written_by, some
            some, written_by = [], version
        some.append(row)
    if some:
        yield written_by, some


def read_line(line: bytes, path: Path) -> dict[str, Any]:
    """The row of one line of the journal at `path`, with the columns of the version that wrote it.

    Raises ValueError, or RecursionError, saying why it is none, and StoreError where a newer version wrote it.
    """
    values = json.loads(line)
    if not isinstance(values, dict):
        raise ValueError("not a row")
    check_version(values.get("schema_version"), path)
    row = schema.decode(values, migration.columns_of(version_of(values)))
    if not row["case_id"]:
        raise ValueError("no case_id")
    return row


@cache
def _decoder() -> Any:
    """What makes a row of a line as `Journal` writes it many times faster than `read_line`.

    It takes no line that `read_line` does not, and none otherwise; those with a float that JSON has not it leaves.
    """
    import msgspec

    return msgspec.json.Decoder(columnar.row_type())


def version_of(values: Mapping[str, Any]) -> int:
    """The version of the schema that a row names; one that names none is read as one of today."""
    version = values.get("schema_version")
    return version if isinstance(version, int) else schema.SCHEMA_VERSION


def check_version(version: object, path: Path) -> None:
    """Raise StoreError if `version`, read from `path`, is newer than what this code can read."""
    if isinstance(version, int) and version > schema.SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer version of the harness (schema {version}; this one reads up to "
            f"{schema.SCHEMA_VERSION}): upgrade to read it"
        )
