"""Failures that look like one fault, and how many models would pass without it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards import words
from harness.cases import Group
from results.history import signature

COLUMNS = ("case_id", "entry_id", "model_type", "verdict", "stage", "message")
"""What is asked of the rows of a run here."""

_OPERATOR = re.compile(r"\b(aten|prims|torchvision|tpu|xla|stablehlo|chlo)(?:::|\.)([a-z_]\w*(?:\.[A-Za-z_]\w*)?)")
_TITLE = 120


@dataclass(frozen=True)
class Cluster:
    """Non-passes of one verdict and stage that name the same operator, or else give the same message.

    `models` have a case in it; of these, `unlocks` would pass, since none of their other cases fails in another way.
    """

    verdict: str
    stage: str
    what: str
    cases: tuple[str, ...]
    models: frozenset[str]
    architectures: frozenset[str]
    unlocks: int


def clusters(rows: Iterable[Mapping[str, Any]]) -> list[Cluster]:
    """The clusters of all non-passes among `rows`, first those that stand in the way of most models."""
    members: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    in_the_way: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for row in rows:
        if words.verdict_group(row["verdict"] or "") != Group.PASS:
            key = cluster_key(row)
            members[key].append(row)
            in_the_way[row["entry_id"] or ""].add(key)
    found = [
        Cluster(
            *key,
            cases=tuple(row["case_id"] for row in alike),
            models=(models := frozenset(row["entry_id"] or "" for row in alike)),
            architectures=frozenset(row["model_type"] or "" for row in alike),
            unlocks=sum(len(in_the_way[model]) == 1 for model in models),
        )
        for key, alike in members.items()
    ]
    return sorted(found, key=lambda one: (-one.unlocks, -len(one.models), one.verdict, one.stage, one.what))


def cluster_key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """What failures of one cluster share: verdict, stage, and operator or message without what differs between runs."""
    return row["verdict"] or "", row["stage"] or "", operator(row["message"]) or signature(row["message"])[:_TITLE]


def operator(message: str | None) -> str:
    """The first operator that a message names, `aten::foo` and `aten.foo.default` alike; empty where it names none."""
    found = _OPERATOR.search(message or "")
    return "::".join(found.groups()).removesuffix(".default") if found else ""
