"""What a finished case says to people and to pytest's own reports."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from harness.records import Leaf, Record, real_target
from model_lists import is_known

if TYPE_CHECKING:
    from pathlib import Path

    from model_lists.expectations import Expectation
    from results.expected import Outcome

_MESSAGE_CHARACTERS = 400
_CONTROL = dict.fromkeys((*range(32), 127, *range(128, 160)), "�")


def properties(record: Record, outcome: Outcome) -> list[tuple[str, str]]:
    """Facts of a record for `user_properties`, and so for JUnit XML; a fact that is unknown is absent."""
    facts = {
        "verdict": record.verdict.value,
        "stage": record.stage.value,
        "outcome": outcome.value,
        "target": record.target,
        "worst_ratio": _number(record.worst.ratio) if record.worst else "",
        "message": one_line(record.message),
    }
    return [(name, value) for name, value in facts.items() if value]


def failure(record: Record, outcome: Outcome, expectation: Expectation | None, rerun: str) -> str:
    """Why an item failed: outcome and verdict in the first line, then the evidence and how to run it again."""
    lines = [f"{record.verdict} in {record.stage}: {one_line(record.message) or record.verdict.meaning}"]
    if expectation is not None:
        lines[0] = f"[{outcome}] {lines[0]}"
        lines.append(f"expected   {expectation.says} ({expectation.where}): {one_line(expectation.reason)}")
        if outcome == "unexpected-pass":
            lines.append("           it passes now: remove the expectation")
        if outcome == "expired":
            lines.append(f"           until {expectation.expires}: look at it again, then give it a later day")
    if record.signal:
        lines.append(f"signal     {record.signal}")
    if record.exit_code is not None:
        lines.append(f"exit code  {record.exit_code}")
    if record.worst is not None:
        lines.append(f"worst leaf {_leaf(record.worst)}")
    lines += [f"case       {record.case.id}", f"rerun      {rerun}"]
    return "\n".join(lines)


def rerun_command(case_id: str, target: str, source: Path | None = None) -> str:
    """The shell command that runs one case again; it names the list `source` where commands do not look there."""
    own = f" --list {shlex.quote(str(source))}" if source and not is_known(source) else ""
    return f"zoo rerun {shlex.quote(case_id)} --target {shlex.quote(real_target(target))}{own}"


def one_line(text: str) -> str:
    """Text of unknown origin as one line without control characters, shortened."""
    line = " ".join(text.split()).translate(_CONTROL)
    return line if len(line) <= _MESSAGE_CHARACTERS else f"{line[: _MESSAGE_CHARACTERS - 1]}…"


def _leaf(leaf: Leaf) -> str:
    parts = [f"{one_line(leaf.path)} {leaf.verdict}, {leaf.dtype} {list(leaf.shape)}"]
    if leaf.ratio is not None:
        parts.append(f"error {_number(leaf.ratio)} x what noise allows")
    if leaf.index is not None:
        parts.append(f"at {list(leaf.index)} got {_number(leaf.actual)}, truth {_number(leaf.expected)}")
    if leaf.note:
        parts.append(one_line(leaf.note))
    return "; ".join(parts)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
