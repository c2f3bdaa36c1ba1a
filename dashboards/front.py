"""What the front page says: how much of the zoo works tonight, what changed, what stands in the way, how it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dashboards import words
from dashboards.clusters import Cluster
from dashboards.grid import Grid
from dashboards.nights import ENVIRONMENT, FAILS, NOT_ATTEMPTED, STATUSES, WORKS, Nights
from results import load_survey
from results.baseline import find_run, is_emulated, target_of
from results.errors import StoreError
from results.history import Became, Change, Comparison, Move, Quantity, compare, side
from results.store import Run

LISTED = 10
"""Lines of one list on the front page; the rest is a link away."""

_STATUS_WORDS = {WORKS: "pass", FAILS: "fail", ENVIRONMENT: "environment", NOT_ATTEMPTED: "not attempted"}


def zoo(nights: Nights, grid: Grid, store: Path) -> dict[str, Any]:
    """How many models work, of all that the store knows: those of its nights, and those that a survey found besides."""
    counts = Counter(nights.statuses.values())
    surveyed = _surveyed(store) - {entry.model_type for entry in grid.entries}
    counts[NOT_ATTEMPTED] += len(surveyed)
    whole = counts.total()
    order = (WORKS, FAILS, ENVIRONMENT, NOT_ATTEMPTED)
    return {
        "whole": whole,
        "works": counts[WORKS],
        "percent": words.percent(counts[WORKS], whole),
        "surveyed": len(surveyed),
        "groups": [
            {
                "group": STATUSES[status],
                "symbol": words.symbol(STATUSES[status]),
                "word": _STATUS_WORDS[status],
                "count": counts[status],
            }
            for status in order
        ],
        "bar": words.bar([(STATUSES[status], counts[status]) for status in order]),
    }


def _surveyed(store: Path) -> set[str]:
    """Architectures that the last coverage survey found, whether or not anything of them is in a run."""
    try:
        survey = load_survey("coverage", store)
    except StoreError:
        return set()
    return {str(name) for name in survey["model_type"].dropna()} if "model_type" in survey else set()


def since_last_night(store: Path, shown: Run) -> tuple[Run, Comparison] | str:
    """The run before `shown` compared with it, or in a line why there is no such comparison."""
    try:
        before = find_run(store, "previous", other=shown)
        return before, compare(side(before), side(shown))
    except StoreError as error:
        return str(error)


def changes(compared: tuple[Run, Comparison] | str, grid: Grid) -> dict[str, Any]:
    """What changed, in short lists."""
    if isinstance(compared, str):
        return {"nothing": words.clean(compared)}
    before, comparison = compared
    drifting = comparison.moved(Quantity.ERROR)
    slower = [move for move in comparison.moved(Quantity.LATENCY) if move.factor > 1]
    return {
        "before": words.clean(before.id),
        "when": words.moment(before.created_at),
        "lists": [
            {"title": title, "group": group, "symbol": symbol, "count": len(found), "meaning": meaning,
             "items": [_change(one, grid) if isinstance(one, Change) else _move(one, grid) for one in found[:LISTED]]}
            for title, group, symbol, meaning, found in (
                ("regressed", "backend", "▼", Became.REGRESSED.meaning, comparison.that(Became.REGRESSED)),
                ("fixed", "pass", "▲", Became.FIXED.meaning, comparison.that(Became.FIXED)),
                ("drifting", "environment", "≈", "pass, but the error moved by a factor of "
                 f"{comparison.limits.drift:g} or more", drifting),
                ("slower", "environment", "◷",
                 f"a repeated call takes {comparison.limits.speed:g} times as long or longer", slower),
            )
        ],
        "others": [
            {"word": became.value, "meaning": became.meaning, "count": count}
            for became, count in comparison.counts.items()
            if count and became not in (Became.REGRESSED, Became.FIXED, Became.STILL_PASSING, Became.STILL_FAILING)
        ],
    }  # fmt: skip


def _change(change: Change, grid: Grid) -> dict[str, Any]:
    after = change.after
    return {
        **grid.told(change.case_id),
        **words.named(after.verdict if after else words.MISSING),
        "message": words.clean(after.message if after else "")[:200],
    }


def _move(move: Move, grid: Grid) -> dict[str, Any]:
    if move.quantity is Quantity.ERROR:
        says = f"{words.share(move.before)} → {words.share(move.after)} of what is allowed"
    else:
        says = f"{words.duration(move.before)} → {words.duration(move.after)}"
    return {**grid.told(move.case_id), **words.named("PASS"), "message": says}


def blockers(found: Sequence[Cluster], most: int = LISTED) -> list[dict[str, Any]]:
    """The clusters that stand in the way of most models."""
    return [
        {
            **words.named(one.verdict),
            "verdict": words.clean(one.verdict),
            "what": words.clean(one.what),
            "id": one.id,
            "cases": len(one.cases),
            "models": len(one.models),
            "architectures": len(one.architectures),
            "unlocks": one.unlocks,
            "query": quote(f"cluster:{number}"),
        }
        for number, one in enumerate(found[:most])
    ]


def trend(nights: Nights) -> dict[str, Any]:
    """Models by what they came to in each night of the shown run's tier, as bars 100 units high."""
    tier = nights.nights[-1].tier
    told = [night for night in nights.nights if night.tier == tier]
    bars = []
    for number, night in enumerate(told):
        whole, top = sum(night.models) or 1, 0.0
        parts = []
        for status in (WORKS, FAILS, ENVIRONMENT, NOT_ATTEMPTED):
            height = 100 * night.models[status] / whole
            if height:
                parts.append({"group": STATUSES[status], "y": round(100 - top - height, 2), "height": round(height, 2)})
            top += height
        bars.append(
            {
                "x": 10 * number,
                "parts": parts,
                "when": words.moment(night.created),
                "percent": words.percent(night.models[WORKS], sum(night.models)),
                "works": night.models[WORKS],
                "models": sum(night.models),
                "changed": [
                    f"{words.clean(name)}: {words.clean(old) or 'unknown'} → {words.clean(new) or 'unknown'}"
                    for name, old, new in night.changed[:5]
                ],
            }
        )
    return {"width": 10 * len(told), "bars": bars, "first": bars[0], "last": bars[-1]}


def runs(nights: Nights) -> list[dict[str, Any]]:
    """The nights, newest first, each with its cases counted."""
    return [
        {
            "run_id": words.clean(night.run.id),
            "tier": words.clean(night.tier),
            "created": words.moment(night.created),
            "totals": words.totals(Counter(night.verdicts).elements()),
        }
        for night in reversed(nights.nights)
    ]


def header(shown: Run, grid: Grid) -> dict[str, Any]:
    """What every page says of the run that it shows."""
    facts: Mapping[str, Any] = shown.provenance
    settings = facts.get("settings") if isinstance(facts.get("settings"), Mapping) else {}
    return {
        "run_id": words.clean(shown.id),
        "target": words.clean(target_of(shown)),
        "emulated": is_emulated(shown),
        "fault": words.clean(str(settings.get("fault") or "")),
        "tier": words.clean(str(settings.get("tier") or "")),
        "when": words.moment(shown.created_at),
        "models": len(grid.entries),
        "architectures": len(grid.architectures),
    }
