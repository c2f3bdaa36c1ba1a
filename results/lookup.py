"""The last results of some cases: of each run no more is read than the rows of these, and of the store no more runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from results.store import Run, list_runs, open_run, read

LOOKED_AT = 200
"""Runs, the newest of a store, in which a result is looked for."""


def last_rows(
    store: Path, is_wanted: Callable[[str], bool], columns: Sequence[str]
) -> Iterator[tuple[Run, list[dict[str, Any]]]]:
    """Of each of the newest `LOOKED_AT` runs that planned a wanted case, newest first: the run and its rows of these.

    `is_wanted` is asked of every case id of a run when the run's turn comes. The caller stops when it has enough.
    Raises StoreError.
    """
    for run_id in reversed(list_runs(store)[-LOOKED_AT:]):
        run = open_run(store, run_id)
        cases = [case_id for case_id in run.planned if is_wanted(case_id)]
        if cases:
            yield run, read(run, columns, cases)[0].to_pylist()
