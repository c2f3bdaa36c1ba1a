"""Where runs live on disk: one folder each, journals while it runs, Parquet once sealed, read alike at any time."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import journal, migration, schema
from results.errors import StoreError
from results.files import write_atomically
from results.journal import Journal

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet

_log = logging.getLogger(__name__)

PLAN_DOCUMENT = "plan.json"
"""File of a run that is a shard: the plan that it is a shard of."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SEALED = "rows.parquet"
_SEALED_FROM = b"zoo.journal_sizes"
_SEALED_SCHEMA = b"zoo.schema_version"
_ROWS_IN_GROUP = 8192
"""Who looks for a few cases of a sealed run reads this many rows for each, and not all."""


@dataclass(frozen=True)
class Run:
    """One run of a store: its id and its folder."""

    id: str
    path: Path

    @cached_property
    def planned(self) -> list[str]:
        """Ids of all cases the run set out to do, in order. Raises StoreError."""
        return _read_text(self.path / "plan.txt").splitlines()

    @property
    def provenance(self) -> dict[str, Any]:
        """What ran where: the facts given to `create_run` and `amend`. Raises StoreError."""
        return _read_json(self.path / "run.json")["provenance"]

    @property
    def created_at(self) -> str:
        """UTC time the run was created, ISO 8601. Raises StoreError."""
        return str(_read_json(self.path / "run.json").get("created_at") or "")

    def amend(self, facts: Mapping[str, Any]) -> None:
        """Add facts to the provenance, as they become known while the run goes on. Raises StoreError."""
        with locked(self.path):
            document = _read_json(self.path / "run.json")
            document["provenance"] |= facts
            write_atomically(self.path / "run.json", _pretty(document))

    def journal(self, worker: str) -> Journal:
        """The journal of one worker, opened for writing."""
        return Journal(self.path / "journal" / f"{_checked(worker, 'worker')}.jsonl")

    def announce(self, worker: str, state: Mapping[str, Any]) -> None:
        """Tell readers what a worker is doing now, replacing what it said before."""
        path = self.path / "live" / f"{_checked(worker, 'worker')}.json"
        write_atomically(path, json.dumps(dict(state)), durable=False)

    def live(self) -> dict[str, dict[str, Any]]:
        """What each worker announced last."""
        return {path.stem: _read_json(path) for path in sorted((self.path / "live").glob("*.json"))}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of the same section for the same folder. Raises StoreError."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"cannot open {folder}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def create_run(
    store: Path, provenance: Mapping[str, Any], planned: Iterable[str], plan_document: str | None = None
) -> Run:
    """Begin a run: its folder appears complete, with provenance and plan, or not at all.

    `provenance` is a JSON-ready mapping as `provenance.collect` makes it; the target's name in its settings
    becomes part of the run id. A run that is a shard keeps the whole plan, as `plan_document`. Raises StoreError where
    the store cannot be written or the plan is not a list of distinct single-line ids.
    """
    planned = list(planned)
    for case_id in planned:
        if not case_id or case_id.splitlines() != [case_id]:
            raise StoreError(f"a case id must be one line of text, not {case_id[:80]!r}")
    if len(set(planned)) != len(planned):
        repeated = next(case_id for case_id in planned if planned.count(case_id) > 1)
        raise StoreError(f"case {repeated} is planned twice")
    target = _checked(str(provenance.get("settings", {}).get("target") or "run"), "target")
    draft, final = _claim(Path(store), target)
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    write_atomically(draft / "plan.txt", "".join(f"{case_id}\n" for case_id in planned))
    write_atomically(draft / "run.json", describe(final.name, created_at, provenance))
    if plan_document is not None:
        write_atomically(draft / PLAN_DOCUMENT, plan_document)
    try:
        draft.rename(final)
    except OSError as error:
        raise StoreError(f"cannot write the results store {store}: {error.strerror}") from error
    return Run(final.name, final)


def describe(run_id: str, created_at: str, provenance: Mapping[str, Any]) -> str:
    """Text of a run's `run.json`. Raises StoreError where the provenance is not plain JSON."""
    return _pretty(
        {
            "schema_version": schema.SCHEMA_VERSION,
            "run_id": run_id,
            "created_at": created_at,
            "provenance": dict(provenance),
        }
    )


def _claim(store: Path, target: str) -> tuple[Path, Path]:
    """The folder of a new run while it is drafted, and its final one; the name is this caller's alone."""
    while True:
        now = time.time_ns()
        # A fraction of the second in 24 bits: short, and runs of one second still sort by time.
        fraction = (now % 10**9 << 24) // 10**9
        run_id = f"{datetime.fromtimestamp(now // 10**9, UTC):%Y%m%dT%H%M%SZ}-{target}-{fraction:06x}"
        final = store / "runs" / run_id
        draft = final.with_name(f".{run_id}")
        try:
            draft.mkdir(parents=True)
            if final.exists():
                draft.rmdir()
                continue
            for folder in ("journal", "live"):
                (draft / folder).mkdir()
        except FileExistsError:
            if draft.is_dir():
                continue
            raise StoreError(f"cannot write the results store {store}: a file is in its place") from None
        except OSError as error:
            raise StoreError(f"cannot write the results store {store}: {error.strerror}") from error
        return draft, final


def list_runs(store: Path) -> list[str]:
    """Ids of all runs, oldest first; none where the store does not exist. Raises StoreError."""
    try:
        with os.scandir(Path(store) / "runs") as found:
            names = [item.name for item in found if item.is_dir() and not item.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read the results store {store}: {error.strerror}") from error
    return by_time(names)


def by_time(run_ids: Iterable[str]) -> list[str]:
    """Ids of runs, oldest first."""
    # Second and fraction first: the target between them says nothing about time.
    return sorted(run_ids, key=lambda name: (name[:16], name[-6:], name))


def open_run(store: Path, run_id: str) -> Run:
    """The run of that id, or the newest for "latest".

    Raises StoreError where there is none, it is damaged, or it was written by a newer version.
    """
    if run_id == "latest":
        return latest(store)
    path = Path(store) / "runs" / run_id
    if not RUN_NAME.fullmatch(run_id) or not path.is_dir():
        known = list_runs(store)
        hint = f"it has {len(known)}, the latest is {known[-1]}" if known else "it has no runs yet"
        raise StoreError(f"no run {run_id!r} in {store}: {hint}")
    document = _read_json(path / "run.json")
    journal.check_version(document.get("schema_version"), path / "run.json")
    if document.get("run_id") != run_id or not isinstance(document.get("provenance"), dict):
        raise StoreError(f"{path / 'run.json'} is damaged: not the description of run {run_id}")
    return Run(run_id, path)


def latest(store: Path) -> Run:
    """The newest run. Raises StoreError where there is none."""
    runs = list_runs(store)
    if not runs:
        raise StoreError(f"the results store {store} has no runs yet: `zoo run` makes one")
    return open_run(store, runs[-1])


def read(
    run: Run, columns: Sequence[str] | None = None, cases: Collection[str] | None = None
) -> tuple[pyarrow.Table, list[str]]:
    """Rows of a run, one per case, in plan order, and one line per damaged journal line.

    `columns` names those that are wanted, in that order (default: all), and `cases` the cases whose rows are: of a
    sealed run not much else is read. Sealed and still running runs read alike, and rows of an older version as rows
    of today. Where a case was recorded more than once its last line counts; between the journals of two workers, the
    row made later. Raises StoreError.
    """
    from pyarrow import compute

    wanted = list(columns) if columns is not None else schema.arrow_schema().names
    if is_sealed(run):
        return _read_sealed(run, wanted, cases), []
    table, problems = _read_all(run)
    for problem in problems:
        _log.warning("%s", problem)
    if cases is not None:
        table = table.filter(compute.is_in(table.column("case_id"), value_set=_texts(cases)))
    return table.select(wanted), problems


def _read_all(run: Run) -> tuple[pyarrow.Table, list[str]]:
    """What the journals and the Parquet file of a run hold together."""
    import pyarrow

    rows: dict[str, Any] = {}
    problems: list[str] = []
    for path in _journals(run):
        try:
            lines, damaged = journal.read(path)
        except StoreError:
            if path.exists():
                raise
            continue  # let go of meanwhile, since the sealed file, which is read after it, has its rows
        problems += damaged
        for row in {line.case_id: line for line in lines}.values():
            known = rows.setdefault(row.case_id, row)
            if (row.recorded_at or "") >= (known.recorded_at or ""):
                rows[row.case_id] = row
    place = {case_id: number for number, case_id in enumerate(run.planned)}

    def order(case_id: str) -> tuple[int, str]:
        return place.get(case_id, len(place)), case_id

    table = schema.as_table([rows[case_id] for case_id in sorted(rows, key=order)])
    if sealed_path(run).exists():
        sealed = _read_sealed(run)
        made = dict(zip(*(sealed.column(name).to_pylist() for name in ("case_id", "recorded_at")), strict=True))
        newer = {case_id for case_id, row in rows.items() if (row.recorded_at or "") >= (made.get(case_id) or "")}
        table = pyarrow.concat_tables([sealed, table])
        ids = table.column("case_id").to_pylist()
        chosen = [number for number, case_id in enumerate(ids) if (case_id in newer) == (number >= len(sealed))]
        table = table.take(sorted(chosen, key=lambda number: order(ids[number])))
    return table, problems


def sealed_path(run: Run) -> Path:
    """Where the run's Parquet file is once it is sealed."""
    return run.path / SEALED


def is_sealed(run: Run) -> bool:
    """Whether the run's Parquet file holds all that its journals do. Raises StoreError."""
    path = sealed_path(run)
    if not path.exists():
        return False
    sizes = _sealed_sizes(run)
    return all(sizes.get(file.name) == size for file, size in _journals(run).items())


def seal(run: Run) -> Path:
    """Write all rows so far to the run's Parquet file, atomically, and return its path.

    Journals stay. Sealing again without new journal lines changes nothing. Raises StoreError.
    """

    path = sealed_path(run)
    if is_sealed(run):
        return path
    # Sizes taken before reading: a line written meanwhile makes the sealed file older than its journal, never newer.
    journals = {file.name: size for file, size in _journals(run).items()}
    sizes = (_sealed_sizes(run) if path.exists() else {}) | journals
    write_rows(path, read(run)[0], sizes)
    return path


def write_rows(path: Path, table: pyarrow.Table, sizes: Mapping[str, int]) -> None:
    """Write a run's Parquet file, atomically; `sizes` are those of the journals it was made from. Raises StoreError."""
    import pyarrow
    from pyarrow import parquet

    table = table.replace_schema_metadata({_SEALED_FROM: json.dumps(sizes), _SEALED_SCHEMA: str(schema.SCHEMA_VERSION)})
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(
        table, sink, compression="zstd", row_group_size=_ROWS_IN_GROUP, use_dictionary=schema.repetitive()
    )
    write_atomically(path, sink.getvalue())


def is_of_today(run: Run) -> bool:
    """Whether the Parquet file of a run can be read as it is, being of no older version. Raises StoreError."""
    with _sealed_file(run) as file:
        return not migration.is_outdated(_version(file))


def migrate(run: Run) -> bool:
    """Write the Parquet file of a run anew, atomically, where it is of an older version; says whether it was.

    Raises StoreError.
    """
    path = sealed_path(run)
    if not path.exists() or is_of_today(run):
        return False
    write_rows(path, _read_sealed(run), _sealed_sizes(run))
    return True


def let_go_of_journals(run: Run) -> int:
    """Remove the journals of a run after its Parquet file has been read back with every row; the bytes this frees.

    No process may be writing to the run. Raises StoreError, having removed nothing, where a journal has a line that
    cannot be read and is kept nowhere else, or the file does not hold the same rows.
    """
    journals = _journals(run)
    if not journals:
        return 0
    rows, problems = _read_all(run)
    if problems:
        raise StoreError(f"the journals of {run.id} stay: {problems[0]}")
    # Without sizes: a journal begun later must not be taken for one that is in the file because it is as long.
    write_rows(sealed_path(run), rows, {})
    if not _same(_read_sealed(run), rows):
        raise StoreError(f"the journals of {run.id} stay: {sealed_path(run)} does not hold the same rows")
    for path in journals:
        try:
            path.unlink()
        except OSError as error:
            raise StoreError(f"cannot remove {path}: {error.strerror}") from error
    return sum(journals.values())


def _same(one: pyarrow.Table, other: pyarrow.Table) -> bool:
    """Whether two tables are the same bit by bit, NaN too, which equals nothing."""
    import pyarrow

    def bits(column: pyarrow.ChunkedArray) -> pyarrow.Array:
        array = column.combine_chunks()
        return array.view(pyarrow.int64()) if pyarrow.types.is_float64(array.type) else array

    return one.column_names == other.column_names and all(
        bits(column).equals(bits(other.column(name)))
        for name, column in zip(one.column_names, one.columns, strict=True)
    )


def missing(run: Run) -> list[str]:
    """Planned cases that have no row yet, in plan order. Raises StoreError."""
    reported = set(read(run, ["case_id"])[0].column("case_id").to_pylist())
    return [case_id for case_id in run.planned if case_id not in reported]


def _journals(run: Run) -> dict[Path, int]:
    sizes = {}
    for path in sorted((run.path / "journal").glob("*.jsonl")):
        with suppress(FileNotFoundError):  # let go of meanwhile
            sizes[path] = path.stat().st_size
    return sizes


def _read_sealed(run: Run, columns: Sequence[str] | None = None, cases: Collection[str] | None = None) -> pyarrow.Table:
    """The run's Parquet file, as rows of today: columns that it lacks are unknown."""
    with _sealed_file(run) as file:
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


def _rows(file: parquet.ParquetFile, columns: Sequence[str], cases: Collection[str] | None) -> pyarrow.Table:
    """These columns of the file; where `cases` are named, only of the parts of it that have one of them."""
    import pyarrow
    from pyarrow import compute

    if cases is None:
        return file.read(columns)
    wanted = _texts(cases)
    tables = [file.schema_arrow.empty_table().select(columns)]
    for group in range(file.num_row_groups):
        here = compute.is_in(file.read_row_group(group, ["case_id"]).column("case_id"), value_set=wanted)
        if compute.any(here).as_py():
            tables.append(file.read_row_group(group, columns).filter(here))
    return pyarrow.concat_tables(tables)


def _texts(values: Collection[str]) -> pyarrow.Array:
    import pyarrow

    return pyarrow.array(list(values), pyarrow.string())


def _sealed_sizes(run: Run) -> dict[str, int]:
    """Bytes of each journal that the run's Parquet file was made from."""
    with _sealed_file(run) as file:
        return json.loads((file.schema_arrow.metadata or {}).get(_SEALED_FROM, b"{}"))


def _version(file: parquet.ParquetFile) -> int:
    return int((file.schema_arrow.metadata or {}).get(_SEALED_SCHEMA, schema.SCHEMA_VERSION))


@contextmanager
def _sealed_file(run: Run) -> Iterator[parquet.ParquetFile]:
    """The run's Parquet file, opened; what is wrong with it is a StoreError."""
    import pyarrow
    from pyarrow import parquet

    path = sealed_path(run)
    try:
        with parquet.ParquetFile(path) as file:
            journal.check_version(_version(file), path)
            yield file
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        rescue = "; its journals are still there: delete the file and seal again" if _journals(run) else ""
        raise StoreError(f"{path} is damaged ({cause}){rescue}") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} is damaged: not UTF-8 text") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: not JSON ({error})") from error
    if not isinstance(document, dict):
        raise StoreError(f"{path} is damaged: not a JSON object")
    return document


def _pretty(document: Mapping[str, Any]) -> str:
    try:
        return json.dumps(document, indent=2, sort_keys=True) + "\n"
    except (TypeError, ValueError) as error:
        raise StoreError(f"provenance must be plain JSON values: {error}") from error


def _checked(name: str, what: str) -> str:
    if not RUN_NAME.fullmatch(name):
        raise StoreError(f"{what} {name[:80]!r} cannot name a file: use letters, digits, dot, dash and underscore")
    return name
