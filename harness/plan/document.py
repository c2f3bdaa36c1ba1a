"""A plan as a text that machines which share nothing else can follow: every case, its time and its shard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.cases import Case, Entry
from harness.plan.selection import PlanError
from harness.plan.sharding import MAX_SHARDS, Shard, sharded

FORMAT = 1
"""Raised whenever an older reader would misread a plan."""


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """A case by its id, the shard that runs it (from 1) and how long it will take."""

    case_id: str
    shard: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """A plan for `shards` machines.

    `cases` are in the order of shards and, within each, of running. `entries_sha256` is `entries_digest` of their
    models, `lists` the model lists they were taken from, as the user named them, `target` likewise. `left_out` are ids
    of cases that a time budget had no room for. `planned_at` (UTC, ISO 8601; empty where machines plan for themselves)
    tells the nights of one plan apart and is no part of its id.
    """

    target: str
    lists: tuple[str, ...]
    entries_sha256: str
    shards: int
    cases: tuple[PlannedCase, ...]
    left_out: tuple[str, ...] = ()
    planned_at: str = ""

    @property
    def id(self) -> str:
        """Content hash, sha256 hex: the same wherever the same cases take the same time and are dealt out alike."""
        cases = [[case.case_id, case.shard, case.milliseconds] for case in self.cases]
        content = [FORMAT, self.entries_sha256, self.shards, cases, list(self.left_out)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def of(self, shard: Shard) -> tuple[PlannedCase, ...]:
        """What one shard runs. Raises PlanError where the plan is for another number of shards."""
        if shard.count != self.shards:
            raise PlanError(f"the plan has {self.shards} shards: there is no {shard} in it")
        return tuple(case for case in self.cases if case.shard == shard.number)


def made(
    milliseconds: Mapping[Case, int],
    shards: int,
    *,
    target: str,
    lists: Sequence[str],
    left_out: Iterable[Case] = (),
    planned_at: str = "",
) -> PlanDocument:
    """Deal the cases of `milliseconds` out to so many shards."""
    return PlanDocument(
        target,
        tuple(lists),
        entries_digest({case.entry for case in milliseconds}),
        shards,
        tuple(
            PlannedCase(case.id, number, milliseconds[case])
            for number, cases in enumerate(sharded(milliseconds, shards), start=1)
            for case in cases
        ),
        tuple(sorted(case.id for case in left_out)),
        planned_at,
    )


def entries_digest(entries: Iterable[Entry]) -> str:
    """Content hash of models, whatever their order: sha256 hex. Where a config lies does not count, its name does."""
    lines = sorted(
        json.dumps([entry.id, entry.revision, entry.library, entry.phases, entry.package, entry.config.split("/")[-1]])
        for entry in entries
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def dumps(plan: PlanDocument) -> str:
    """The plan as JSON text, one case a line."""
    head = {
        "format": FORMAT,
        "plan_id": plan.id,
        "planned_at": plan.planned_at,
        "target": plan.target,
        "lists": list(plan.lists),
        "entries_sha256": plan.entries_sha256,
        "shards": plan.shards,
        "left_out": list(plan.left_out),
    }
    cases = ",\n".join(
        json.dumps({"shard": case.shard, "seconds": case.milliseconds / 1000, "case": case.case_id})
        for case in plan.cases
    )
    return f'{json.dumps(head, indent=1)[:-2]},\n "cases": [\n{cases}\n]}}\n'


def loads(text: str, where: str) -> PlanDocument:
    """The plan in a text that `dumps` made; `where` it comes from is named in messages.

    Raises PlanError for any other text, one of a newer version, and one that was changed since.
    """
    try:
        document = json.loads(text)
        if not isinstance(document, dict):
            raise TypeError
    except (ValueError, TypeError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise PlanError(f"{where}{line}: not a plan that `zoo plan --out` wrote") from error
    version = document.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise PlanError(f"{where}: a plan of a newer version of the harness (format {version}): upgrade to follow it")
    try:
        plan = _read(document)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"{where}: not a plan that `zoo plan --out` wrote ({type(error).__name__}: {error})") from error
    if plan.id != document["plan_id"]:
        raise PlanError(f"{where}: its content does not match its plan id: it is damaged or was edited; plan again")
    return plan


def _read(document: Mapping[str, Any]) -> PlanDocument:
    shards = document["shards"]
    cases = tuple(
        PlannedCase(str(case["case"]), int(case["shard"]), round(case["seconds"] * 1000)) for case in document["cases"]
    )
    if type(shards) is not int or not 1 <= shards <= MAX_SHARDS:
        raise ValueError(f"{shards!r} shards")
    if stranger := next((case for case in cases if not 1 <= case.shard <= shards), None):
        raise ValueError(f"shard {stranger.shard} of {shards}")
    return PlanDocument(
        str(document["target"]),
        tuple(str(name) for name in document["lists"]),
        str(document["entries_sha256"]),
        shards,
        cases,
        tuple(str(case_id) for case_id in document["left_out"]),
        str(document["planned_at"]),
    )
