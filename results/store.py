"""Where runs live on disk: one folder each, journals while it runs, Parquet once sealed, read alike at any time."""

from __future__ import annotations

import fcntl
import hashlib
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

from results import journal, schema, sealed
from results.columnar import picked, small_pages
from results.errors import StoreError
from results.files import write_atomically
from results.journal import Journal

if TYPE_CHECKING:
    import numpy
    import pyarrow

_log = logging.getLogger(__name__)

PLAN_DOCUMENT = "plan.json"
"""File of a run that is a shard: the plan that it is a shard of."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


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
    import pyarrow
    from pyarrow import compute

    wanted = list(columns) if columns is not None else schema.arrow_schema().names
    if is_sealed(run):
        return sealed.read(sealed_path(run), wanted, cases), []
    parts, problems = _gathered(run)
    for problem in problems:
        _log.warning("%s", problem)
    table = pyarrow.concat_tables(parts)
    if cases is not None:
        chosen = pyarrow.array(list(cases), pyarrow.string())
        table = table.filter(compute.is_in(table.column("case_id"), value_set=chosen))
    return table.select(wanted), problems


def _gathered(run: Run) -> tuple[Iterator[pyarrow.Table], list[str]]:
    """What the journals and the Parquet file of a run hold together, one table at least; and the damaged lines."""
    import pyarrow

    tables: list[pyarrow.Table] = []
    problems: list[str] = []
    for path in _journals(run):
        try:
            table, damaged = journal.read(path)
        except StoreError:
            if path.exists():
                raise
            continue  # let go of meanwhile, since the sealed file, which is read after it, has its rows
        tables.append(table)
        problems += damaged
    if sealed_path(run).exists():
        tables.insert(0, sealed.read(sealed_path(run)))
    together = pyarrow.concat_tables([schema.arrow_schema().empty_table(), *tables])
    numbers = _final(together, [len(table) for table in tables], run.planned)
    return picked(together, numbers, sealed.ROWS_IN_GROUP), problems


def _final(table: pyarrow.Table, sizes: Sequence[int], planned: Sequence[str]) -> numpy.ndarray:
    """Numbers of the rows that count, int64 (cases): one for each case, those of `planned` first, in that order, then
    the others by name. `sizes` are the rows of each source of the table: of one source the last row of a case counts,
    of several the one that was made last.
    """
    import numpy
    import pyarrow
    from pyarrow import compute

    cases, known = table.column("case_id"), pyarrow.array(planned, pyarrow.string())
    others = compute.unique(cases.filter(compute.invert(compute.is_in(cases, value_set=known))))
    known = pyarrow.concat_arrays([known, others.take(compute.sort_indices(others))])
    places = compute.index_in(cases, value_set=known).to_numpy()
    sources = numpy.repeat(numpy.arange(len(sizes)), sizes)
    backwards = numpy.unique((places.astype(numpy.int64) * len(sizes) + sources)[::-1], return_index=True)[1]
    last = numpy.sort(len(places) - 1 - backwards)  # of each case in each source
    rows = {"place": places[last], "made": table.column("recorded_at").fill_null("").take(last), "number": last}
    order = compute.sort_indices(pyarrow.table(rows), [(name, "ascending") for name in rows])
    ordered = last[order.to_numpy()]
    return ordered[numpy.append(numpy.diff(places[ordered]) > 0, True)] if len(ordered) else ordered


def sealed_path(run: Run) -> Path:
    """Where the run's Parquet file is once it is sealed."""
    return run.path / sealed.FILE


def repro_path(run_folder: Path, case_id: str) -> Path:
    """Where the run in this folder has the file that shows a case's failure without the harness, if it has one."""
    name = hashlib.sha256(case_id.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return run_folder / "repros" / f"{name}.py"


def is_sealed(run: Run) -> bool:
    """Whether the run's Parquet file holds all that its journals do. Raises StoreError."""
    path = sealed_path(run)
    if not path.exists():
        return False
    sizes = sealed.journal_sizes(path)
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
    sizes = (sealed.journal_sizes(path) if path.exists() else {}) | journals
    with small_pages():
        parts, problems = _gathered(run)
        for problem in problems:
            _log.warning("%s", problem)
        sealed.write(path, parts, sizes)
    return path


def let_go_of_journals(run: Run) -> int:
    """Remove the journals of a run after its Parquet file has been read back with every row; the bytes this frees.

    No process may be writing to the run. Raises StoreError, having removed nothing, where a journal has a line that
    cannot be read and is kept nowhere else, or the file does not hold the same rows.
    """
    journals = _journals(run)
    if not journals:
        return 0
    parts, problems = _gathered(run)
    if problems:
        raise StoreError(f"the journals of {run.id} stay: {problems[0]}")
    rows = list(parts)
    path = sealed_path(run)
    # Without sizes: a journal begun later must not be taken for one that is in the file because it is as long.
    sealed.write(path, rows, {})
    if not sealed.holds(path, rows):
        raise StoreError(f"the journals of {run.id} stay: {path} does not hold the same rows")
    for journal_path in journals:
        try:
            journal_path.unlink()
        except OSError as error:
            raise StoreError(f"cannot remove {journal_path}: {error.strerror}") from error
    return sum(journals.values())


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
