"""One run from the shards of a plan that ran apart: every case once, whatever the order they come in and how often."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import sealed
from results.errors import StoreError
from results.files import write_atomically
from results.store import PLAN_DOCUMENT, Run, describe, list_runs, locked, open_run, read

if TYPE_CHECKING:
    import pyarrow

_VERSIONS = ("packages", "python", "harness_revision", "emulated")
"""Facts in which shards of one run should not differ."""
_IDENTITY = ("case_id", "recorded_at", "worker")
"""Columns that tell every row from every other."""
_UNITED = ("tiers", "phases", "modes", "dtypes", "profiles")
"""Settings that name what a run has, so that the whole has what any shard has."""
_OF_THE_WHOLE = ("ended",)
"""Facts that are found out once the run is merged: those of a shard say nothing about it."""


@dataclass(frozen=True)
class ShardRun:
    """A run that is a shard of a plan; `source` is what the user calls the store it lies in."""

    run: Run
    source: str
    provenance: Mapping[str, Any]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Of the run."""
        return self.provenance["settings"]

    @property
    def shard(self) -> str:
        """Such as "3/16"."""
        return str(self.settings["shard"])

    @property
    def plan(self) -> tuple[str, str]:
        """Id of the plan, and when it was made."""
        return str(self.settings["plan_id"]), str(self.settings.get("planned_at") or "")

    @property
    def document(self) -> Path:
        """File that holds the whole plan."""
        return self.run.path / PLAN_DOCUMENT


@dataclass(frozen=True)
class Merged:
    """What a merge came to: the run, whether it had to be written, what it still lacks, and what is odd, in lines."""

    run: Run
    changed: bool
    missing: Sequence[str]
    shards: Sequence[str]
    problems: Sequence[str]


def shard_runs(store: Path, source: str) -> list[ShardRun]:
    """The runs of a store that are shards. Raises StoreError."""
    found = []
    for run_id in list_runs(store):
        run = open_run(store, run_id)
        provenance = run.provenance
        settings = provenance.get("settings")
        if isinstance(settings, dict) and settings.get("shard") and settings.get("plan_id"):
            found.append(ShardRun(run, source, provenance))
    return found


def the_plan(found: Sequence[ShardRun]) -> tuple[str, str]:
    """The plan all of them are shards of, and when it was made.

    Raises StoreError where they are of different ones, or ran on different targets.
    """
    first = found[0]
    for other in found[1:]:
        if other.plan != first.plan:
            raise StoreError(f"shards of different plans cannot be merged: {_named(first)}, {_named(other)}")
        targets = [one.settings.get("target") for one in (first, other)]
        if targets[0] != targets[1]:
            raise StoreError(
                f"shards that ran on different targets cannot be merged: {first.shard} in {first.source} on "
                f"{targets[0]}, {other.shard} in {other.source} on {targets[1]}"
            )
    return first.plan


def merge(into: Path, found: Sequence[ShardRun], planned: Sequence[str]) -> Merged:
    """Put the rows of shards, all of one plan whose cases are `planned`, into its run in the store `into`.

    The run is made where it is not there. Of a case recorded more than once the later row counts. Shards of a plan that
    was made once belong to one run; where every machine planned for itself, a shard that the run has from another run
    already begins a new one. Nothing is written before everything has been read. Raises StoreError.
    """
    plan_id, planned_at = the_plan(found)
    # Copies of one run may differ in what was known about it when they were made: the fullest comes last and stays.
    found = sorted(found, key=lambda one: (one.run.id, len(text := json.dumps(one.provenance, sort_keys=True)), text))
    tables, problems = [], []
    for one in found:
        table, damaged = read(one.run)
        problems += damaged
        tables.append(_as_of_shard(table, one.shard))
    try:
        (into / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write the results store {into}: {error.strerror}") from error
    with locked(into / "runs"):
        run = _begun(into, plan_id, planned_at, found)
        shards: dict[str, dict[str, Any]] = {}
        if run is not None:
            tables.append(read(run)[0])
            shards = {name: dict(runs) for name, runs in run.provenance.get("shards", {}).items()}
        for one in found:
            shards.setdefault(one.shard, {})[one.run.id] = dict(one.provenance)
        shards = {name: dict(sorted(shards[name].items())) for name in sorted(shards, key=_number)}
        target = str(found[0].settings.get("target") or "run")
        began = planned_at or min(one.run.created_at for one in found)
        name = run.id if run else _free(into, began, target, plan_id)
        rows = _one_row_a_case(tables, name, planned)
        provenance = _provenance(shards, planned)
        changed = run is None or _of_shards(run) != provenance or not _same(read(run, _IDENTITY)[0], rows)
        if changed:
            run = _write(into, name, provenance, planned, rows, found[0].document)
    reported = set(rows.column("case_id").to_pylist())
    return Merged(
        run or open_run(into, name),
        changed,
        [case_id for case_id in planned if case_id not in reported],
        list(shards),
        [*problems, *_repeated(shards), *_differing(shards)],
    )


def _begun(into: Path, plan_id: str, planned_at: str, found: Sequence[ShardRun]) -> Run | None:
    """The run in `into` that these shards belong to."""
    given: dict[str, set[str]] = {}
    for one in found:
        given.setdefault(one.shard, set()).add(one.run.id)
    for run_id in reversed(list_runs(into)):
        if not run_id.endswith(plan_id[:6]):
            continue
        run = open_run(into, run_id)
        settings = run.provenance.get("settings", {})
        if "shards" not in run.provenance or (settings.get("plan_id"), settings.get("planned_at")) != (
            plan_id,
            planned_at,
        ):
            continue
        known = {name: set(runs) for name, runs in run.provenance["shards"].items()}
        shared = any(known.get(shard, set()) & runs for shard, runs in given.items())
        if planned_at or shared or not known.keys() & given.keys():
            return run
    return None


def _of_shards(run: Run) -> dict[str, Any]:
    return {name: value for name, value in run.provenance.items() if name not in _OF_THE_WHOLE}


def _free(into: Path, began: str, target: str, plan_id: str) -> str:
    """Id of a new run, of the same form as any; the plan's id takes the place of the fraction of the second."""
    try:
        moment = datetime.fromisoformat(began).astimezone(UTC)
    except ValueError as error:
        raise StoreError(f"the shards' plan was made at {began[:40]!r}, which is no time") from error
    while True:
        name = f"{moment:%Y%m%dT%H%M%SZ}-{target}-{plan_id[:6]}"
        if not (into / "runs" / name).exists():
            return name
        moment += timedelta(seconds=1)


def _same(one: pyarrow.Table, other: pyarrow.Table) -> bool:
    """Whether these are the same rows. A row is never changed once it is made, and NaN is unequal to itself."""
    return one.equals(other.select(_IDENTITY).combine_chunks())


def _as_of_shard(table: pyarrow.Table, shard: str) -> pyarrow.Table:
    """The rows, with workers named so that those of different machines are told apart."""
    import pyarrow
    from pyarrow import compute

    workers = compute.binary_join_element_wise(pyarrow.scalar(shard), table.column("worker"), " ")
    place = table.schema.get_field_index("worker")
    return table.set_column(place, table.schema.field(place), workers)


def _one_row_a_case(tables: Sequence[pyarrow.Table], run_id: str, planned: Sequence[str]) -> pyarrow.Table:
    import pyarrow
    from pyarrow import compute

    table = pyarrow.concat_tables(tables)
    keys = [("case_id", "ascending"), ("recorded_at", "ascending"), ("worker", "ascending")]
    table = table.take(compute.sort_indices(table, keys))
    ids = table.column("case_id").to_pylist()
    last = [place for place, case_id in enumerate(ids) if ids[place + 1 : place + 2] != [case_id]]
    places = {case_id: place for place, case_id in enumerate(planned)}
    last.sort(key=lambda place: (places.get(ids[place], len(places)), ids[place]))
    table = table.take(pyarrow.array(last, pyarrow.int64()))
    place = table.schema.get_field_index("run_id")
    column = pyarrow.array([run_id] * len(table), pyarrow.string())
    return table.set_column(place, table.schema.field(place), column).combine_chunks()


def _provenance(shards: Mapping[str, Mapping[str, Any]], planned: Sequence[str]) -> dict[str, Any]:
    """Facts about the whole: those of its first shard where they cannot be united, and all of each under `shards`."""
    every = [facts for runs in shards.values() for facts in runs.values()]
    settings = {name: value for name, value in every[0]["settings"].items() if name != "shard"}
    for name in _UNITED:
        settings[name] = list(dict.fromkeys(word for facts in every for word in facts["settings"].get(name) or ()))
    whole = {name: value for name, value in every[0].items() if name not in ("settings", *_OF_THE_WHOLE)}
    return whole | {"settings": settings | {"cases": len(planned)}, "shards": dict(shards)}


def _write(
    into: Path, run_id: str, provenance: Mapping[str, Any], planned: Sequence[str], rows: pyarrow.Table, document: Path
) -> Run:
    final = into / "runs" / run_id
    if final.exists():
        # Rows first: until the description names their shards, a merge that was cut short is simply done again.
        sealed.write(final / sealed.FILE, [rows], {})
        write_atomically(final / "run.json", describe(run_id, open_run(into, run_id).created_at, provenance))
        return open_run(into, run_id)
    draft = final.with_name(f".{run_id}.{secrets.token_hex(4)}")
    try:
        for folder in ("journal", "live"):
            (draft / folder).mkdir(parents=True)
        write_atomically(draft / "plan.txt", "".join(f"{case_id}\n" for case_id in planned))
        write_atomically(draft / PLAN_DOCUMENT, document.read_bytes())
        sealed.write(draft / sealed.FILE, [rows], {})
        created_at = datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).isoformat()
        write_atomically(draft / "run.json", describe(run_id, created_at, provenance))
        draft.rename(final)
    except OSError as error:
        raise StoreError(f"cannot write the results store {into}: {error.strerror}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Run(run_id, final)


def _repeated(shards: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    for shard, runs in shards.items():
        if len(runs) > 1:
            yield f"shard {shard} was run {len(runs)} times ({', '.join(runs)}): of each case the later result counts"


def _differing(shards: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """A line for each version that is not the same in all shards."""
    seen: dict[str, dict[str, list[str]]] = {}
    for shard, runs in shards.items():
        for facts in runs.values():
            for name in _VERSIONS:
                value = facts.get(name)
                items = value.items() if isinstance(value, dict) else [(name, value)]
                for key, version in items:
                    holders = seen.setdefault(key, {}).setdefault(str(version), [])
                    if shard not in holders:
                        holders.append(shard)
    for name, versions in sorted(seen.items()):
        if len(versions) > 1:
            told = "; ".join(f"{version} in {', '.join(holders)}" for version, holders in versions.items())
            yield f"the shards were not made alike: {name} is {told}"


def _named(one: ShardRun) -> str:
    plan_id, planned_at = one.plan
    return f"{one.shard} in {one.source} is of plan {plan_id[:12]}{f' made at {planned_at}' if planned_at else ''}"


def _number(shard: str) -> tuple[int, str]:
    number = shard.partition("/")[0]
    return int(number) if number.isdecimal() else 0, shard
