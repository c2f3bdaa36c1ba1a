"""A run and the nights before it: how every case of the run ended in each, read run by run and only what is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from dashboards import words
from harness.cases import Group, Verdict
from harness.wording import lasting
from results import store as results_store
from results.baseline import is_emulated, is_whole, target_of
from results.errors import StoreError
from results.history import components
from results.store import Run

NIGHTS = 30
"""Runs that history is told over, the one that is shown included."""

UNPLANNED = -1
"""In place of a verdict, where a case was not in a night's plan."""

WORKS, NOT_ATTEMPTED, ENVIRONMENT, FAILS = range(4)
"""What a model comes to in a night, in the order of who outweighs whom: one failing case makes a model fail."""

STATUSES = ("pass", "missing", "environment", "backend")
"""The group that each of these looks like."""

_COLUMNS = ("case_id", "entry_id", "verdict", "stage", "message", "worst_ratio", "latency_seconds")


@dataclass(frozen=True)
class Night:
    """One run, counted: its cases by verdict, its models by what they come to (see WORKS), what changed before it."""

    run: Run
    created: str
    tier: str
    verdicts: Mapping[str, int]
    models: tuple[int, ...]
    changed: tuple[tuple[str, str | None, str | None], ...] = ()


@dataclass
class Nights:
    """The nights up to a run, the earliest first and that run last, and its cases over them.

    `cases` are the ids of all cases of the run, those without a row (`missing`) at the end. `codes` has an index into
    `verdicts` for each night and case, int16 (nights, cases), or UNPLANNED. `failure` is alike for two failures that
    are the same to `results.history`, which compares stage and message: an index into `failures`, int32 of the same
    shape, 0 where nothing failed. `ratio` is the worst output's error over what is allowed and `latency` seconds of a
    repeated call, float32 of the same shape, NaN where unknown. `statuses` has for each model that any of the nights
    knows what it comes to in the last one. `problems` are lines for people.
    """

    nights: list[Night]
    cases: list[str]
    missing: int
    verdicts: list[str]
    codes: np.ndarray
    failures: list[tuple[str, str]]
    failure: np.ndarray
    ratio: np.ndarray
    latency: np.ndarray
    statuses: dict[str, int]
    problems: list[str] = field(default_factory=list)

    def verdict(self, case: int) -> str:
        """Tonight's verdict of a case, by its number."""
        return self.verdicts[self.codes[-1, case]]

    def transitions(self, case: int) -> list[tuple[int, int]]:
        """When a case's verdict became another: night and verdict; the first is where it is first known."""
        told: list[tuple[int, int]] = []
        for night, code in enumerate(self.codes[:, case].tolist()):
            if code not in (UNPLANNED, 0) and (not told or told[-1][1] != code):
                told.append((night, code))
        return told

    def changed(self) -> np.ndarray:
        """For each case the night in which its verdict became what it is now, int16; UNPLANNED where it never did."""
        since = np.full(len(self.cases), UNPLANNED, np.int16)
        settled = np.zeros(len(self.cases), bool)
        later = np.full(len(self.cases), len(self.nights) - 1, np.int16)
        now = self.codes[-1]
        for night in range(len(self.nights) - 2, -1, -1):
            known = (self.codes[night] > 0) & (now > 0) & ~settled
            other = known & (self.codes[night] != now)
            since[other] = later[other]
            settled |= other
            later[known & ~other] = night
        return since


def read_nights(store: Path, shown: Run, limit: int = NIGHTS) -> Nights:
    """The run `shown` with up to `limit` - 1 whole runs of its target before it. Raises StoreError.

    An earlier run that cannot be read is left out, and named in `problems`.
    """
    runs, problems = _earlier(store, shown, limit)
    table, damaged = results_store.read(shown, ["case_id"])
    reported = table.column("case_id").combine_chunks()
    missing = _unreported(shown, reported)
    cases = pa.concat_arrays([reported.cast(pa.string()), missing.cast(pa.string())])
    shape = (len(runs), len(cases))
    made = Nights(
        nights=[],
        cases=cases.to_pylist(),
        missing=len(missing),
        verdicts=[words.MISSING, *(verdict.value for verdict in Verdict)],
        codes=np.full(shape, UNPLANNED, np.int16),
        failures=[("", "")],
        failure=np.zeros(shape, np.int32),
        ratio=np.full(shape, np.nan, np.float32),
        latency=np.full(shape, np.nan, np.float32),
        statuses={},
        problems=problems + damaged,
    )
    before: dict[str, Any] | None = None
    known = {failure: number for number, failure in enumerate(made.failures)}
    for number, run in enumerate(runs):
        facts = run.provenance
        _add(made, known, number, run, facts, cases, () if before is None else tuple(components(before, facts)))
        before = facts
    made.failures = list(known)
    return made


def _earlier(store: Path, shown: Run, limit: int) -> tuple[list[Run], list[str]]:
    ids = results_store.list_runs(store)
    runs, problems = [shown], []
    for run_id in reversed(ids[: ids.index(shown.id)] if shown.id in ids else []):
        if len(runs) == limit:
            break
        try:
            run = results_store.open_run(store, run_id)
            if is_whole(run) and target_of(run) == target_of(shown) and is_emulated(run) == is_emulated(shown):
                results_store.is_sealed(run)
                runs.append(run)
        except StoreError as error:
            problems.append(str(error))
    return runs[::-1], problems


def _add(
    made: Nights,
    failures: dict[tuple[str, str], int],
    number: int,
    run: Run,
    facts: Mapping[str, Any],
    cases: pa.Array,
    changed: tuple[Any, ...],
) -> None:
    """Put a run's rows into line `number` of the arrays, number its failures, and count it."""
    table = results_store.read(run, list(_COLUMNS))[0]
    reported = table.column("case_id").combine_chunks()
    missing = _unreported(run, reported)
    codes = _codes(made.verdicts, table.column("verdict"))
    place = pc.index_in(reported.cast(pa.string()), value_set=cases)
    known = pc.is_valid(place).to_numpy(zero_copy_only=False)
    at = place.drop_null().to_numpy()
    made.codes[number, pc.index_in(missing, value_set=cases).drop_null().to_numpy()] = 0
    made.codes[number, at] = codes[known]
    made.failure[number, at] = _numbered(failures, made.verdicts, codes, table)[known]
    for name, values in (("worst_ratio", made.ratio), ("latency_seconds", made.latency)):
        values[number, at] = table.column(name).to_numpy()[known]

    counted = np.bincount(codes, minlength=len(made.verdicts))
    verdicts = Counter({made.verdicts[code]: int(n) for code, n in enumerate(counted) if n})
    verdicts[words.MISSING] += len(missing)
    standing = np.array([status(verdict) for verdict in made.verdicts], np.int8)[codes]
    encoded = pc.fill_null(table.column("entry_id"), "").combine_chunks().dictionary_encode()
    worst = np.zeros(len(encoded.dictionary), np.int8)
    np.maximum.at(worst, encoded.indices.to_numpy(), standing)
    models = dict(zip(encoded.dictionary.to_pylist(), worst.tolist(), strict=True))
    for case_id in missing.to_pylist():
        entry = case_id.rsplit("/", 4)[0]
        models[entry] = max(models.get(entry, WORKS), NOT_ATTEMPTED)
    made.statuses = dict.fromkeys(made.statuses, NOT_ATTEMPTED) | models
    totals = Counter(models.values())
    made.nights.append(
        Night(
            run,
            run.created_at,
            str((facts.get("settings") or {}).get("tier") or ""),
            +verdicts,
            tuple(totals[status] for status in range(len(STATUSES))),
            changed,
        )
    )


def _unreported(run: Run, reported: pa.Array) -> pa.Array:
    planned = pa.array(run.planned, pa.string())
    return planned.filter(pc.invert(pc.is_in(planned, value_set=reported.cast(pa.string()))))


def _codes(verdicts: list[str], column: pa.ChunkedArray) -> np.ndarray:
    """Indices into `verdicts`, which a verdict of a later version is added to."""
    encoded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    names: Iterable[str] = encoded.dictionary.to_pylist()
    for name in names:
        if name not in verdicts:
            verdicts.append(name)
    codes = np.array([verdicts.index(name) for name in names] or [0], np.int16)
    return codes[encoded.indices.to_numpy()]


def _numbered(
    failures: dict[tuple[str, str], int], verdicts: list[str], codes: np.ndarray, table: pa.Table
) -> np.ndarray:
    """For each row the number of its stage and message in `failures`, which new ones are added to; 0 for a pass."""
    numbers = np.zeros(len(codes), np.int32)
    failed = np.flatnonzero(codes != verdicts.index(Verdict.PASS))
    stages, messages = (c.to_pylist() for c in table.select(["stage", "message"]).take(pa.array(failed)).columns)
    keys = ((stage or "", lasting(message or "")) for stage, message in zip(stages, messages, strict=True))
    numbers[failed] = [failures.setdefault(key, len(failures)) for key in keys]
    return numbers


def status(verdict: str) -> int:
    """What a case of this verdict makes of its model, see WORKS."""
    if verdict == words.MISSING:
        return NOT_ATTEMPTED
    match words.verdict_group(verdict):
        case Group.PASS:
            return WORKS
        case Group.ENVIRONMENT | Group.HARNESS:
            return ENVIRONMENT
    return FAILS
