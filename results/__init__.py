"""Results of all runs, as data: `load()` gives a DataFrame, `columns()` tells what its columns mean."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import schema
from results import store as _store
from results.errors import DiskFull, StoreError
from results.journal import Journal
from results.remote import local_folder
from results.schema import SCHEMA_VERSION, row
from results.store import Run, create_run, latest, list_runs, missing, open_run, seal
from results.surveys import keep_survey, list_surveys, load_survey

if TYPE_CHECKING:
    import pandas

__all__ = [
    "SCHEMA_VERSION",
    "DiskFull",
    "Journal",
    "Run",
    "StoreError",
    "columns",
    "create_run",
    "default_store",
    "keep_survey",
    "latest",
    "list_runs",
    "list_surveys",
    "load",
    "load_survey",
    "missing",
    "open_run",
    "provenance_of",
    "row",
    "seal",
]


def default_store() -> Path:
    """The store folder: environment variable ZOO_STORE, else `zoo-results` in the working folder.

    Raises StoreError where the variable is a URL.
    """
    return local_folder(os.environ.get("ZOO_STORE") or "zoo-results")


def columns() -> dict[str, str]:
    """Meaning of every column of `load()`, in order, with its type."""
    return {column.name: f"{column.meaning} [{column.type}]" for column in schema.COLUMNS}


def load(store: Path | str | None = None, runs: str | Iterable[str] | None = None) -> pandas.DataFrame:
    """Results as a DataFrame, one row per finished case and run, finished and still running runs alike.

    `store` is the store's folder (see `default_store`); `runs` is a run id, several, "latest", or None for all.
    Columns are Arrow-backed: unknown is NA, which a measured NaN is not. Journal lines that could not be read are
    in `frame.attrs["problems"]`, one line of text each.

    Raises StoreError (one line) for an unknown run, a damaged file, or a run of a newer version.

    Columns:
    """
    import pandas
    import pyarrow

    store = Path(store) if store is not None else default_store()
    wanted = list_runs(store) if runs is None else [runs] if isinstance(runs, str) else list(runs)
    tables, problems = [schema.arrow_schema().empty_table()], []
    for run_id in wanted:
        table, damaged = _store.read(open_run(store, run_id))
        tables.append(table)
        problems += damaged
    frame = pyarrow.concat_tables(tables).to_pandas(types_mapper=pandas.ArrowDtype)
    frame.attrs["problems"] = problems
    return frame


load.__doc__ = (load.__doc__ or "").rstrip() + "\n" + "\n".join(f"    {n}: {m}" for n, m in columns().items()) + "\n"


def provenance_of(run: str | Run = "latest", store: Path | str | None = None) -> dict[str, Any]:
    """Versions, machine, environment, settings and lists of a run. Raises StoreError."""
    if isinstance(run, Run):
        return run.provenance
    return open_run(Path(store) if store is not None else default_store(), run).provenance
