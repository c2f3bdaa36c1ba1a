"""Changes entries of an expectations file; comments, order and all other entries stay as they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import tomlkit

from model_lists.expectations import Expectation, starts_of


@dataclass(frozen=True)
class Changes:
    """What becomes of entries, by their number from 0.

    `narrowed` gives each the globs that take its own one's place, none of which removes it; `added` what is written
    before it, or behind all for the number of entries.
    """

    narrowed: Mapping[int, Sequence[str]] = field(default_factory=dict)
    added: Mapping[int, Sequence[Expectation]] = field(default_factory=dict)


def rewritten(text: str, changes: Changes) -> str:
    """The text of a file, valid for `load_expectations`, after `changes`.

    Comment lines right above an entry belong to it.
    """
    lines = text.splitlines(keepends=True)
    starts = [_with_comments(lines, start) for start in starts_of(lines)]
    out = "".join(lines[: starts[0]] if starts else lines)
    for number, (start, end) in enumerate(pairwise([*starts, len(lines)])):
        block = "".join(lines[start:end])
        new = [rendered(entry) for entry in changes.added.get(number, ())]
        if number in changes.narrowed:
            for place, glob in enumerate(changes.narrowed[number]):
                new.append(_renamed(block if place == 0 else _without_comments(block), glob))
            block = ""
        out = _put(out, new) + block
    out = _put(out, [rendered(entry) for entry in changes.added.get(len(starts), ())])
    return out.rstrip("\n") + "\n"


def _put(text: str, new: Sequence[str]) -> str:
    """`text` and then each of `new`, with an empty line before and after each."""
    for one in new:
        text = f"{text.rstrip(chr(10))}\n\n" if text.strip() else ""
        text += one.rstrip("\n") + "\n\n"
    return text


def rendered(entry: Expectation) -> str:
    """An entry as its own table."""
    table = tomlkit.table()
    table["case"] = entry.case
    table["verdict"] = str(entry.verdict)
    if entry.stage:
        table["stage"] = str(entry.stage)
    table["reason"] = entry.reason
    if entry.link:
        table["link"] = entry.link
    if entry.versions:
        table["versions"] = entry.versions[0] if len(entry.versions) == 1 else list(entry.versions)
    table["added"] = entry.added
    if entry.expires:
        table["expires"] = entry.expires
    return f"[[expect]]\n{table.as_string()}"


def _with_comments(lines: Sequence[str], start: int) -> int:
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return start


def _without_comments(block: str) -> str:
    lines = block.splitlines(keepends=True)
    return "".join(lines[starts_of(lines)[0] :])


def _renamed(block: str, glob: str) -> str:
    document = tomlkit.parse(block)
    document["expect"][0]["case"] = glob
    return tomlkit.dumps(document)
