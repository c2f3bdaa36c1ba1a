"""Failures of one cause, and how many models would pass without it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.triage import signatures

COLUMNS = signatures.COLUMNS
"""What is asked of the rows of a run here."""


@dataclass(frozen=True)
class Cluster:
    """Non-passes of one cause (`harness/triage/signatures.py`); `id` as `zoo rerun --cluster` takes it.

    `models` have a case in it; of these, `unlocks` would pass, since none of their other cases fails in another way.
    """

    id: str
    verdict: str
    what: str
    cases: tuple[str, ...]
    models: frozenset[str]
    architectures: frozenset[str]
    unlocks: int


def clusters(rows: Iterable[Mapping[str, Any]]) -> list[Cluster]:
    """The clusters of all non-passes among `rows`, first those that stand in the way of most models."""
    found = signatures.clusters(rows)
    in_the_way: dict[str, int] = defaultdict(int)
    for one in found:
        for model in one.entries:
            in_the_way[model] += 1
    told = [
        Cluster(
            one.id,
            one.verdict,
            one.subject,
            tuple(one.cases),
            frozenset(one.entries),
            frozenset(one.types),
            unlocks=sum(in_the_way[model] == 1 for model in one.entries),
        )
        for one in found
    ]
    return sorted(told, key=lambda one: (-one.unlocks, -len(one.models), one.verdict, one.what))
