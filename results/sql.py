"""The store as two views for SQL, read-only: `rows`, a row per case and run, and `runs`, a row per run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from results import schema, sealed
from results.baseline import is_emulated, target_of
from results.errors import StoreError
from results.store import Run, is_sealed, list_runs, open_run, read, sealed_path

if TYPE_CHECKING:
    import duckdb
    import pyarrow


def connect(store: Path) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the views of a store; it can read the store, and no other file, and write nothing.

    `rows` has the columns of `results.columns()`. Of a sealed run a query reads only the columns that it names, and
    nothing of runs that its condition on run_id, recorded_at or the like leaves out; a run that goes on is read as far
    as it is, and one of an older version whole. `runs` has run_id, created_at, target, emulated, rerun, fault, cases
    (as planned), python, packages (a map from name to version) and provenance (JSON). Raises StoreError.
    """
    import duckdb
    import pyarrow

    runs = [open_run(store, run_id) for run_id in list_runs(store)]
    whole = {run.id: sealed_path(run) for run in runs if is_sealed(run) and sealed.is_of_today(sealed_path(run))}
    live = [read(run)[0] for run in runs if run.id not in whole]
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "python_enable_replacements": "false"})
    # Beside what runs hold, it gives the view its columns and their types: files may lack some.
    connection.register("unsealed_rows", pyarrow.concat_tables([schema.arrow_schema().empty_table(), *live]))
    connection.register("run_facts", _runs(runs))
    columns = ", ".join(f'"{column.name}"' for column in schema.COLUMNS)
    files = ", ".join(_quoted(path.absolute()) for path in whole.values())
    union = f"union all by name select * from read_parquet([{files}], union_by_name = true)" if files else ""
    connection.execute(f"create view rows as select {columns} from (select * from unsealed_rows {union})")
    connection.execute("create view runs as select * from run_facts")
    connection.execute(f"set allowed_directories = [{_quoted(Path(store).absolute())}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


def query(store: Path, sql: str) -> pyarrow.Table:
    """What one SELECT over the views of `connect` answers. Raises StoreError, one line, for anything else."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
        readers = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
        if len(statements) != 1 or statements[0].type not in readers:
            raise StoreError("the store is only read here: give one SELECT over the views rows and runs")
        with connect(store) as connection:
            return connection.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise StoreError(f"this query cannot be answered: {' '.join(str(error).split())}") from error


def _runs(runs: list[Run]) -> pyarrow.Table:
    import pyarrow

    columns = pyarrow.schema(
        {
            "run_id": pyarrow.string(),
            "created_at": pyarrow.string(),
            "target": pyarrow.string(),
            "emulated": pyarrow.bool_(),
            "rerun": pyarrow.bool_(),
            "fault": pyarrow.string(),
            "cases": pyarrow.int64(),
            "python": pyarrow.string(),
            "packages": pyarrow.map_(pyarrow.string(), pyarrow.string()),
            "provenance": pyarrow.string(),
        }
    )
    return pyarrow.Table.from_pylist([_facts(run) for run in runs], schema=columns)


def _facts(run: Run) -> dict[str, object]:
    provenance = run.provenance
    settings = provenance.get("settings") or {}
    return {
        "run_id": run.id,
        "created_at": run.created_at,
        "target": target_of(run),
        "emulated": is_emulated(run),
        "rerun": bool(settings.get("rerun")),
        "fault": str(settings.get("fault") or ""),
        "cases": settings.get("cases"),
        "python": provenance.get("python"),
        "packages": list((provenance.get("packages") or {}).items()),
        "provenance": json.dumps(provenance, sort_keys=True),
    }


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
