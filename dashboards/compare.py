"""What can be compared with what: each night of the site, and the last run of every other target, cell by cell.

What becomes of a case between two of them is told by the page, in the words of `results.history`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dashboards import words
from dashboards.grid import Column, Grid, in_order
from dashboards.nights import UNPLANNED, Night, Nights, read_nights
from results import store as results_store
from results.baseline import is_emulated, is_whole, target_of
from results.errors import StoreError
from results.history import Became, components


@dataclass(frozen=True)
class Side:
    """One run to compare: how its cases ended, as `Nights` has it for one night, and how many cases it has besides.

    `columns` and `at` lay the cases out: the number of the case for each model of the grid and column, or -1.
    """

    night: Night
    columns: Sequence[Column]
    at: np.ndarray
    codes: np.ndarray
    failure: np.ndarray
    ratio: np.ndarray
    latency: np.ndarray
    elsewhere: int


def sides(store: Path, grid: Grid, read: Nights) -> list[Side]:
    """The nights, newest first, and then the last whole run of each other target; damaged ones become `problems`.

    Verdicts and failures that only those other runs have are added to those of `read`.
    """
    columns, at = _lay_out(read.cases, grid)
    found = []
    for number in reversed(range(len(read.nights))):
        night, codes = read.nights[number], read.codes[number]
        elsewhere = sum(night.verdicts.values()) - int((codes != UNPLANNED).sum())
        found.append(
            Side(night, columns, at, codes, read.failure[number], read.ratio[number], read.latency[number], elsewhere)
        )
    for other in _others(store, read):
        columns, at = _lay_out(other.cases, grid)
        codes = _renumbered(read.verdicts, other.verdicts)[other.codes[-1]]
        failure = _renumbered(read.failures, other.failures)[other.failure[-1]]
        elsewhere = len(other.cases) - int((at >= 0).sum())
        found.append(Side(other.nights[-1], columns, at, codes, failure, other.ratio[-1], other.latency[-1], elsewhere))
    return found


def _others(store: Path, read: Nights) -> Iterator[Nights]:
    """The last whole run of each target that is not the one of these nights."""
    shown = read.nights[-1].run
    seen = {(target_of(shown), is_emulated(shown))}
    for run_id in reversed(results_store.list_runs(store)):
        try:
            run = results_store.open_run(store, run_id)
            kind = target_of(run), is_emulated(run)
            if kind not in seen and is_whole(run):
                seen.add(kind)
                yield read_nights(store, run, 1)
        except StoreError as error:
            if str(error) not in read.problems:
                read.problems.append(str(error))


def _lay_out(cases: Sequence[str], grid: Grid) -> tuple[list[Column], np.ndarray]:
    models = {entry.entry_id: number for number, entry in enumerate(grid.entries)}
    placed = []
    for case, case_id in enumerate(cases):
        entry, *column = case_id.rsplit("/", 4)
        if entry in models and len(column) == len(Column._fields):
            placed.append((case, models[entry], Column(*column)))
    columns = in_order({column for _, _, column in placed})
    place = {column: number for number, column in enumerate(columns)}
    at = np.full((len(grid.entries), len(columns)), -1, np.int64)
    for case, model, column in placed:
        at[model, place[column]] = case
    return columns, at


def _renumbered(ours: list[Any], theirs: Sequence[Any]) -> np.ndarray:
    """For each of their numbers ours, what is new being added; the last, which -1 finds, is what -1 stays."""
    known = {value: number for number, value in enumerate(ours)}
    numbers = [known.setdefault(value, len(known)) for value in theirs]
    ours[:] = known
    return np.array([*numbers, UNPLANNED])


def runs(found: Sequence[Side]) -> dict[str, Any]:
    """What the page offers: the runs by the number of their file, with the facts that differ among them, and words."""
    facts = [dict(_facts(side)) for side in found]
    values = Counter((name, value) for known in facts for name, value in known.items())
    return {
        "runs": [
            {
                "run": words.clean(side.night.run.id),
                "when": words.moment(side.night.created),
                "target": words.clean(target_of(side.night.run)),
                "emulated": is_emulated(side.night.run),
                "tier": words.clean(side.night.tier),
                "facts": {name: value for name, value in known.items() if values[name, value] < len(found)},
            }
            for side, known in zip(found, facts, strict=True)
        ],
        "became": [{"word": became.value, "meaning": became.meaning} for became in Became],
    }


def _facts(side: Side) -> Iterator[tuple[str, str]]:
    nothing: Mapping[str, Any] = {}
    for name, _, value in components(nothing, side.night.run.provenance):
        yield words.clean(name), words.clean(value)[:200]


def cells(side: Side) -> dict[str, Any]:
    """How a run's cells ended, in flat lists of a number for each model of the matrix and column here, in that order.

    `verdict` is its number in the vocabulary, -1 where no case was planned. `failure` is 0 for what did not fail, and
    alike for failures that are the same; `ratio` is the error over what is allowed, `latency` seconds.
    """
    at = side.at.ravel()
    here = at >= 0
    return {
        "columns": [{name: words.clean(part) for name, part in column._asdict().items()} for column in side.columns],
        "verdict": np.where(here, side.codes[at], UNPLANNED).tolist(),
        "failure": np.where(here, side.failure[at], 0).tolist(),
        "ratio": [words.rounded(_known(value), 3) for value in np.where(here, side.ratio[at], np.nan).tolist()],
        "latency": [words.rounded(_known(value), 3) for value in np.where(here, side.latency[at], np.nan).tolist()],
        "elsewhere": side.elsewhere,
    }


def _known(value: float) -> float | None:
    return None if value != value else value
