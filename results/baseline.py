"""Which run a word means: an id, the last, the last green one, the one of a day, the one of a version.

A run of a part (`zoo rerun`, `--shard`) or with a fault put in is never meant by such a word where there is any other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from harness.cases import Stage, Verdict
from harness.records import real_target
from harness.versions import PACKAGES
from model_lists.expectations import FOLDER, Expectations, load_expectations
from results.errors import StoreError
from results.expected import Outcome, outcome
from results.store import Run, latest, list_runs, open_run, read

_log = logging.getLogger(__name__)

WORDS = "a run id or its beginning, latest, last, previous, last-green, a date (2026-11-28), a version (torch==2.13.0)"
"""What a run can be called by, for messages and help texts."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_SPECIFIER = re.compile(r"[<>=!~]")


def find_run(
    store: Path, word: str, *, target: str | None = None, other: Run | None = None, expectations: Path = FOLDER
) -> Run:
    """The run that `word` means, one of `WORDS`.

    A word that is no id means a run of `target`, as runs record it, or of the target of `other`: the run that it is to
    be compared with, which it never means, nor a later one where `other` is the later of the two (`previous` and
    `last-green` always look back from it). Dates are UTC, and mean the last run that started on or before that day.
    `expectations` is the folder that judges a run which has not recorded itself whether it was green.

    Raises StoreError where there is no such run, or more than one id begins like that.
    """
    if word == "latest":
        return open_run(store, word)
    fits = _meaning(word, expectations)
    if fits is None:
        return _by_id(store, word)
    runs = _newest_first(store)
    if other is not None:
        target = target_of(other)
        runs = (run for run in runs if run.id != other.id and is_emulated(run) == is_emulated(other))
        if word in ("previous", "last-green"):
            known = list_runs(store)
            earlier = set(known[: known.index(other.id)])
            runs = (run for run in runs if run.id in earlier)
    whole, parts = 0, []
    for run in runs:
        if target not in (None, target_of(run)):
            continue
        if not is_whole(run):
            parts.append(run)
            continue
        whole += 1
        if fits(run):
            return run
    for run in parts if not whole else ():
        if fits(run):
            return run
    if not whole and not parts and target is None:
        return latest(store)  # raises what says that there is none
    of = f" of target {target}" if target else ""
    if other is not None and not whole and not parts:
        raise StoreError(
            f"nothing to compare with: no run is {word!r} to {other.id}, since {store} has no earlier one{of}"
        )
    beside = f" beside {other.id}" if other is not None else ""
    raise StoreError(f"no run{of} in {store}{beside} is meant by {word!r}, of {whole or len(parts)} that could be")


def find_pair(
    store: Path,
    before: str | None = None,
    after: str | None = None,
    *,
    target: str | None = None,
    expectations: Path = FOLDER,
) -> tuple[Run, Run]:
    """The two runs to compare: by default the last one, with the one before it on the same target.

    Words are looked up beside the other run, see `find_run`; where both are words, the later run is found first.
    Raises StoreError for runs that must not be compared: the same, of different targets, or one of them emulated.
    """
    if before is not None and _is_id(before) and (after is None or not _is_id(after)):
        old = find_run(store, before)
        return _checked(old, find_run(store, after or "last", other=old, expectations=expectations))
    new = find_run(store, after or "last", target=target, expectations=expectations)
    return _checked(find_run(store, before or "previous", other=new, expectations=expectations), new)


def target_of(run: Run) -> str:
    """The target that a run is of, as it recorded it. Raises StoreError."""
    return str(_settings(run).get("target") or "unknown")


def is_emulated(run: Run) -> bool:
    """Whether a stand-in executed the run. Raises StoreError."""
    said = run.provenance.get("emulated")
    return bool(said) if said is not None else "emulated" in target_of(run)


def is_whole(run: Run) -> bool:
    """Whether this is neither a rerun, nor a shard, nor a run with a fault put in. Raises StoreError."""
    return not any(_settings(run).get(name) for name in ("rerun", "shard", "fault"))


def judged(run: Run, expectations: Expectations) -> dict[str, int]:
    """What a run came to, to be recorded with it: how many cases ended otherwise than expected, how many did not end.

    Raises StoreError.
    """
    table = read(run, ("case_id", "verdict", "stage"))[0]
    unexpected = sum(not ended for ended in _as_expected(table.to_pylist(), expectations))
    return {"unexpected": unexpected, "missing": len(set(run.planned) - set(table.column("case_id").to_pylist()))}


def is_green(run: Run, folder: Path = FOLDER) -> bool:
    """Whether every planned case of a run ended as was expected when it ran.

    A run that did not record it is judged by the expectations in `folder`. Raises StoreError and ExpectationError.
    """
    said = run.provenance.get("ended")
    if isinstance(said, Mapping):
        return said.get("unexpected") == 0 and said.get("missing") == 0
    rows = read(run, ("case_id", "verdict", "stage"))[0].to_pylist()
    if set(run.planned) - {row["case_id"] for row in rows}:
        return False
    # Failures first: most runs that are not green are told by one of these.
    rows.sort(key=lambda row: row["verdict"] == Verdict.PASS)
    return all(_as_expected(rows, expectations_of(run, folder)))


def expectations_of(run: Run, folder: Path = FOLDER) -> Expectations:
    """What `folder` says of a run's target, for the versions that it ran with and the day that it began.

    Raises StoreError and ExpectationError.
    """
    packages = dict.fromkeys(PACKAGES) | (run.provenance.get("packages") or {})
    try:
        day = date.fromisoformat(run.created_at[:10])
    except ValueError:
        day = None
    return load_expectations(real_target(target_of(run)), folder, installed=packages, today=day)


def _as_expected(rows: Iterable[Mapping[str, Any]], known: Expectations) -> Iterator[bool]:
    for row in rows:
        try:
            verdict, stage = Verdict(row["verdict"]), Stage(row["stage"])
        except ValueError:  # a word of a later version: nobody expected it
            yield False
        else:
            yield outcome(verdict, stage, known.about(row["case_id"]))[0] is Outcome.EXPECTED


def _checked(before: Run, after: Run) -> tuple[Run, Run]:
    if before.id == after.id:
        raise StoreError(f"both are run {before.id}: name two runs to compare")
    if target_of(before) != target_of(after):
        raise StoreError(
            f"{before.id} is of target {target_of(before)} and {after.id} of {target_of(after)}: "
            "results of different targets are not compared"
        )
    if is_emulated(before) != is_emulated(after):
        stand_in = before if is_emulated(before) else after
        raise StoreError(f"{stand_in.id} was emulated and the other was not: such results are not compared")
    return before, after


def _meaning(word: str, expectations: Path) -> Callable[[Run], bool] | None:
    """Whether a run fits a word, or None where the word has to be an id."""
    if word in ("last", "previous"):
        return lambda run: True
    if word == "last-green":
        return lambda run: is_green(run, expectations)
    if _DATE.fullmatch(word):
        try:
            day = date.fromisoformat(word)
        except ValueError as error:
            raise StoreError(f"{word!r} is no date: {error}") from error
        return lambda run: run.created_at[:10] <= day.isoformat()
    if _SPECIFIER.search(word):
        try:
            wanted = Requirement(word)
        except InvalidRequirement as error:
            raise StoreError(f"{word!r} is no version: write it like torch==2.13.0") from error
        return lambda run: _has(run, wanted)
    return None


def _is_id(word: str) -> bool:
    return word == "latest" or _meaning(word, FOLDER) is None


def _has(run: Run, wanted: Requirement) -> bool:
    versions = {"python": run.provenance.get("python"), **(run.provenance.get("packages") or {})}
    for name, version in versions.items():
        if version and canonicalize_name(name) == canonicalize_name(wanted.name):
            try:
                return wanted.specifier.contains(version, prereleases=True)
            except InvalidVersion:
                return False
    return False


def _by_id(store: Path, word: str) -> Run:
    found = [run_id for run_id in list_runs(store) if word and run_id.startswith(word)]
    if word in found or len(found) == 1:
        return open_run(store, word if word in found else found[0])
    if found:
        raise StoreError(f"{len(found)} runs in {store} begin with {word!r}: {found[0]} to {found[-1]}")
    known = list_runs(store)
    has = f"it has {len(known)}, the latest is {known[-1]}" if known else "it has no runs yet"
    raise StoreError(f"no run {word!r} in {store}: {has}; a run is called by {WORDS}")


def _newest_first(store: Path) -> Iterator[Run]:
    for run_id in reversed(list_runs(store)):
        try:
            run = open_run(store, run_id)
        except StoreError as error:
            _log.warning("left out: %s", error)
        else:
            yield run


def _settings(run: Run) -> Mapping[str, Any]:
    settings = run.provenance.get("settings")
    return settings if isinstance(settings, Mapping) else {}
