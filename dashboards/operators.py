"""Which operators the models of a run call, and which of them its rows name as being in the way, and as what."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dashboards import words
from dashboards.grid import Grid
from harness.cases import Verdict
from harness.triage import signatures

COLUMNS = ("case_id", "entry_id", "model_type", "verdict", "message", "blame_operator", "operators")
"""What is asked of the rows of a run here."""

ROLES = {
    "fails": "it is the first whose result is wrong, or that does not return, though what it was given is right",
    "missing": "the backend does not implement it",
    "copies": "it copies to the host without need; a case names three such operators at most",
    "compiles": "it has programs compiled in every identical call; a case names three such operators at most",
}
"""As what an operator is named."""

LISTED = 10
"""Cases of an operator that its line on the page links to."""

_COUNTED = re.compile(r"([\w.:]+) \(\d+\)")
"""An operator with the number of its calls, as jobs write it into a message."""


Named = dict[str, dict[str, list[Mapping[str, Any]]]]
"""For each operator and role the rows that name it so."""


def named(row: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The operators that a row names, each with its role; by the name that it has in all modes, `aten::gelu`."""
    message, found = row["message"] or "", set()
    if row["blame_operator"]:
        found.add((signatures.operator_name(row["blame_operator"]), "fails"))
    match row["verdict"]:
        case Verdict.UNSUPPORTED_OP:
            found |= {(name, "missing") for name in signatures.operators_in(message)[:1]}
        case Verdict.HOST_FALLBACK:
            found |= {(signatures.operator_name(name), "copies") for name in _COUNTED.findall(message)}
        case Verdict.RECOMPILES:
            found |= {(signatures.operator_name(name), "compiles") for name in _COUNTED.findall(message)}
    return found


def operators(rows: Iterable[Mapping[str, Any]]) -> Named:
    """The operators that rows name, first those that most models have trouble with."""
    found: Named = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for name, role in named(row):
            found[name][role].append(row)
    return dict(sorted(found.items(), key=lambda item: (-len(_models(item[1])), item[0])))


def _models(roles: Mapping[str, list[Mapping[str, Any]]]) -> set[str]:
    return {row["entry_id"] for rows in roles.values() for row in rows}


def calls(rows: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """For each operator that a model's code calls by name the models, by the ids of their entries."""
    models: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        models[row["operators"] or ""].add(row["entry_id"])
    found: dict[str, set[str]] = defaultdict(set)
    for text, entries in models.items():
        for name in text.split():
            found[signatures.operator_name(name)] |= entries
    return dict(sorted(found.items()))


def page(found: Named, called: Mapping[str, set[str]], rows: Sequence[Mapping[str, Any]], grid: Grid) -> dict[str, Any]:
    """What the page tells: who calls each operator, who names it as what, where these are, and of how many."""
    failing = {row["case_id"] for row in rows if row["verdict"] != Verdict.PASS}
    naming = {row["case_id"] for roles in found.values() for rows in roles.values() for row in rows}
    known = {entry for entries in called.values() for entry in entries}
    failing_models = {row["entry_id"] for row in rows if row["verdict"] != Verdict.PASS}
    return {
        "operators": _lines(found, grid),
        "called": [
            {
                "name": words.clean(name),
                "query": quote(f"calls:={words.clean(name)}"),
                "models": len(entries),
                "failing": len(entries & failing_models),
            }
            for name, entries in sorted(called.items(), key=lambda item: (-len(item[1]), item[0]))
        ],
        "roles": ROLES,
        "failing": len(failing),
        "naming": len(failing & naming),
        "models": len(grid.entries),
        "known": len(known),
    }


def _lines(found: Named, grid: Grid) -> list[dict[str, Any]]:
    lines = []
    for name, roles in found.items():
        rows = {row["case_id"]: row for rows in roles.values() for row in rows}
        lines.append(
            {
                "name": words.clean(name),
                "query": quote(f"op:={words.clean(name)}"),
                "models": len({row["entry_id"] for row in rows.values()}),
                "architectures": len({row["model_type"] for row in rows.values()}),
                "cases": len(rows),
                "roles": {role: len({row["entry_id"] for row in roles.get(role, ())}) for role in ROLES},
                "items": [
                    {**grid.told(case_id), **words.named(row["verdict"])}
                    for case_id, row in sorted(rows.items())[:LISTED]
                ],
            }
        )
    return lines


def cells(found: Named, cell: Mapping[str, int]) -> dict[str, Any]:
    """For machines and the matrix: each operator with the numbers of the cells whose cases name it, by role."""
    return {
        "operators": [
            {
                "name": words.clean(name),
                "cells": {role: sorted(cell[row["case_id"]] for row in rows) for role, rows in roles.items()},
            }
            for name, roles in found.items()
        ]
    }


def callers(called: Mapping[str, set[str]], grid: Grid) -> dict[str, Any]:
    """For machines and the matrix: each operator with the numbers of the models whose code calls it."""
    number = {entry.entry_id: n for n, entry in enumerate(grid.entries)}
    return {
        "operators": [
            {"name": words.clean(name), "models": sorted(number[entry] for entry in entries)}
            for name, entries in called.items()
        ]
    }
