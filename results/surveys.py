"""What was found out about the models alone, beside the runs: one Parquet file for each survey, never changed.

A survey measures every architecture on CPU: `coverage` (can it be built, fed and run), `liveness` (does each
parameter matter to what is judged).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import StoreError
from results.files import write_atomically

if TYPE_CHECKING:
    import pandas

KINDS = ("coverage", "liveness")
_PROVENANCE = b"zoo.provenance"


def keep_survey(store: Path, kind: str, rows: Iterable[Mapping[str, Any]], provenance: Mapping[str, Any]) -> Path:
    """Write a survey's rows, all with the same keys, and return its file.

    `provenance` is a JSON-ready mapping as `provenance.collect` makes it. Raises StoreError.
    """
    import pyarrow
    from pyarrow import parquet

    folder = _folder(store, kind)
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.parquet"
    try:
        table = pyarrow.Table.from_pylist([dict(row) for row in rows])
        folder.mkdir(parents=True, exist_ok=True)
    except pyarrow.ArrowException as error:
        raise StoreError(f"the rows of this {kind} survey do not fit one table: {error}") from error
    except OSError as error:
        raise StoreError(f"cannot write the results store {store}: {error.strerror}") from error
    table = table.replace_schema_metadata({_PROVENANCE: json.dumps(dict(provenance), sort_keys=True)})
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    write_atomically(path, sink.getvalue())
    return path


def list_surveys(store: Path, kind: str) -> Sequence[Path]:
    """Files of all surveys of a kind, oldest first; none where the store does not exist."""
    return sorted(path for path in _folder(store, kind).glob("*.parquet") if re.match(r"\d{8}T", path.name))


def load_survey(kind: str, store: Path) -> pandas.DataFrame:
    """The last survey of a kind, a row for each thing surveyed; its provenance is in `frame.attrs["provenance"]`.

    Columns are Arrow-backed: unknown is NA. Raises StoreError where there is none, or a damaged one.
    """
    import pandas
    import pyarrow
    from pyarrow import parquet

    files = list_surveys(store, kind)
    if not files:
        raise StoreError(f"no {kind} survey in {store}: `zoo {kind}` makes one")
    try:
        table = parquet.read_table(files[-1])
        provenance = json.loads((table.schema.metadata or {}).get(_PROVENANCE, b"{}"))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise StoreError(f"{files[-1]} is damaged ({str(error).strip().splitlines()[0]}); delete it") from error
    frame = table.to_pandas(types_mapper=pandas.ArrowDtype)
    frame.attrs["provenance"] = provenance
    return frame


def _folder(store: Path, kind: str) -> Path:
    if kind not in KINDS:
        raise StoreError(f"unknown survey {kind!r} (valid: {', '.join(KINDS)})")
    return Path(store) / "surveys" / kind
