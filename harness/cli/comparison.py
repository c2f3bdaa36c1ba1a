"""A comparison of two runs as it is told to machines (JSON) and in pull requests (Markdown)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from harness.cases import Group
from results import schema
from results.baseline import is_emulated, target_of
from results.history import Became, Comparison, Ended, Limits, Move, Quantity, compare, components, side
from results.store import Run

TOLD = (Became.REGRESSED, Became.CHANGED, Became.FIXED, Became.NO_LONGER_MEASURED, Became.MEASURED_AGAIN)
"""What cases are named of, the worst news first; of the rest only the number is told."""

LABELS = {
    Quantity.ERROR: "error over allowed, while passing,",
    Quantity.LATENCY: "latency",
    Quantity.HOST_MEMORY: "peak host memory",
    Quantity.DEVICE_MEMORY: "peak device memory",
}

MAX_MESSAGE = 300
"""Characters told of a message: a summary of many cases has to fit a comment, which GitHub limits to 65,536."""


@dataclass(frozen=True)
class Compared:
    """Two runs, named, and what came of comparing them."""

    before: str
    after: str
    target: str
    emulated: bool
    components: list[tuple[str, str | None, str | None]]
    result: Comparison

    @property
    def title(self) -> str:
        """One line that says what is compared."""
        return f"{self.before} -> {self.after} on {self.target}: {self.result.compared} cases ran in both"

    @property
    def remarks(self) -> list[str]:
        """What has to be known to read the numbers, a line each."""
        lines = []
        for became in (Became.NEW, Became.REMOVED):
            sides = [change.after or change.before for change in self.result.that(became)]
            failing = sum(ended is not None and ended.group is not Group.PASS for ended in sides)
            if failing:
                lines.append(f"of the {became} cases {failing} do not pass")
        if self.result.rebuilt:
            lines.append(
                f"{self.result.rebuilt} cases have other weights, inputs or another class than before: "
                "their verdicts are compared, their numbers are not"
            )
        lines += [
            f"{LABELS[quantity].split(',')[0]}: median factor {median:.3g}"
            for quantity, median in self.result.medians.items()
        ]
        if any(name.startswith("machine ") for name, _, _ in self.components):
            lines.append("the machines differ: what is said of speed and host memory may be theirs")
        return lines


def compared(before: Run, after: Run, limits: Limits) -> Compared:
    """Compare two runs of one target. Raises StoreError."""
    return Compared(
        before.id,
        after.id,
        target_of(after),
        is_emulated(after),
        components(before.provenance, after.provenance),
        compare(side(before), side(after), limits),
    )


def told(move: Move) -> str:
    """The two amounts of a move with their unit, for people."""
    match move.quantity:
        case Quantity.ERROR:
            unit, scale = "", 1.0
        case Quantity.LATENCY:
            unit, scale = " ms", 1000.0
        case Quantity.HOST_MEMORY | Quantity.DEVICE_MEMORY:
            unit, scale = " MiB", 1 / 2**20
    return f"{move.before * scale:.4g}{unit} → {move.after * scale:.4g}{unit}"


def as_json(found: Compared) -> str:
    """All of it, every changed case included; cases that still pass or fail as before are only counted.

    Numbers that JSON has not are spelled "NaN", "Infinity" and "-Infinity".
    """
    result = found.result
    counted_only = (Became.STILL_PASSING, Became.STILL_FAILING, Became.NOT_MEASURED)
    document = {
        "before": found.before,
        "after": found.after,
        "target": found.target,
        "emulated": found.emulated,
        "components": [{"name": name, "before": old, "after": new} for name, old, new in found.components],
        "compared": result.compared,
        "rebuilt": result.rebuilt,
        "counts": {became.value: count for became, count in result.counts.items()},
        "limits": {quantity.value: result.limits.of(quantity) for quantity in Quantity},
        "medians": schema.encode({quantity.value: median for quantity, median in result.medians.items()}),
        "changes": [
            {
                "case_id": change.case_id,
                "became": change.became.value,
                "before": _ended(change.before),
                "after": _ended(change.after),
            }
            for change in result.changes
            if change.became not in counted_only
        ],
        "moves": [
            schema.encode(
                {
                    "case_id": move.case_id,
                    "quantity": move.quantity.value,
                    "before": move.before,
                    "after": move.after,
                    "factor": move.factor,
                }
            )
            for move in result.moves
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def as_markdown(found: Compared, limit: int) -> str:
    """A summary for a pull request: counts, versions, and up to `limit` cases of each kind.

    Text of unknown origin stands in code spans, in which neither Markdown nor HTML nor mentions mean anything.
    """
    result = found.result
    regressed = len(result.that(Became.REGRESSED))
    lines = [
        f"### {regressed} regression{'' if regressed == 1 else 's'} on {code(found.target)}",
        "",
        f"{code(found.before)} → {code(found.after)}, {result.compared} cases ran in both.",
    ]
    if found.emulated:
        lines += ["", "**Emulated**: a stand-in executed both, not the backend's own hardware."]
    lines += ["", "| cases | | meaning |", "| ---: | :--- | :--- |"]
    lines += [f"| {count} | {became} | {became.meaning} |" for became, count in result.counts.items() if count]
    if found.remarks:
        lines += ["", *(f"- {line}" for line in found.remarks)]
    if found.components:
        lines += ["", "**What changed between the two**", ""]
        lines += [f"- {code(name)}: {code(old)} → {code(new)}" for name, old, new in found.components]
    for became in TOLD:
        changes = result.that(became)
        items = [
            f"- {code(change.case_id)}: {_verdict(change.before)} → {_verdict(change.after)}{_why(change.after)}"
            for change in changes[:limit]
        ]
        lines += _section(f"{became} ({len(changes)})", items, len(changes), opened=became is Became.REGRESSED)
    for quantity in Quantity:
        moves = result.moved(quantity)
        items = [f"- × {move.factor:.3g}: {told(move)}, {code(move.case_id)}" for move in moves[:limit]]
        title = f"{LABELS[quantity]} moved by {result.limits.of(quantity):g} or more ({len(moves)})"
        lines += _section(title, items, len(moves), opened=False)
    return "\n".join(lines) + "\n"


def code(text: str | None) -> str:
    """Text of unknown origin as a Markdown code span of one line, in which nothing of it means anything."""
    if text is None:
        return "unknown"
    shown = "".join(c if c.isprintable() else " " for c in text[:MAX_MESSAGE]) + "…" * (len(text) > MAX_MESSAGE)
    shown = " ".join(shown.split()) or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    edge = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{edge}{shown}{edge}{fence}"


def _section(title: str, items: list[str], count: int, *, opened: bool) -> list[str]:
    if not count:
        return []
    rest = [f"- and {count - len(items)} more"] if count > len(items) else []
    opening = "<details open>" if opened else "<details>"
    return ["", f"{opening}<summary>{title}</summary>", "", *items, *rest, "", "</details>"]


def _verdict(ended: Ended | None) -> str:
    return code(ended.verdict) if ended is not None else "nothing"


def _why(ended: Ended | None) -> str:
    return f", {code(ended.stage)}: {code(ended.message)}" if ended is not None and ended.message else ""


def _ended(ended: Ended | None) -> dict[str, Any] | None:
    return schema.encode(ended._asdict()) if ended is not None else None
