"""Reads what is known to end otherwise than in PASS: `expectations/<target>.toml`, one file per target.

Each `[[expect]]` table has

- `case`: a glob over case ids (`bert/*/compiled/float32/*`);
- `verdict`: the verdict these cases are known to end in;
- `stage` (optional): the stage they are known to end in;
- `reason`: why, in one line;
- `link` (optional): where it is tracked;
- `added`: the date of the entry, as a TOML date.

An expected failure still runs; nothing is skipped.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path
from typing import Any

from harness.cases import Stage, Verdict

FOLDER = Path(__file__).parent / "expectations"

_REQUIRED = ("case", "verdict", "reason", "added")
_OPTIONAL = ("stage", "link")
_TABLE = re.compile(r"\s*\[\[\s*expect\s*\]\]")


class ExpectationError(ValueError):
    """An expectations file cannot be read; the message is one line that begins with file and line."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A statement that the cases matching `case` end in `verdict`, in `stage` where that is given.

    `where` is the file and line it was read from.
    """

    case: str
    verdict: Verdict
    reason: str
    added: datetime.date
    stage: Stage | None = None
    link: str = ""
    where: str = ""
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", re.compile(translate(self.case)))

    def covers(self, case_id: str) -> bool:
        """Whether this speaks about the case with that id."""
        return self.pattern.match(case_id) is not None


@dataclass(frozen=True, slots=True)
class Expectations:
    """Everything known about one target."""

    entries: tuple[Expectation, ...] = ()

    def __iter__(self) -> Iterator[Expectation]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def about(self, case_id: str) -> tuple[Expectation, ...]:
        """The expectations that cover a case, in the order of the file."""
        return tuple(entry for entry in self.entries if entry.covers(case_id))


def load_expectations(target: str, folder: Path = FOLDER) -> Expectations:
    """What is known about a target; nothing where it has no file.

    Raises ExpectationError for a file that cannot be read, is no TOML, or has an unknown or
    missing key, verdict or stage.
    """
    if not folder.is_dir():
        raise ExpectationError(f"{folder}: no such folder of expectations")
    path = folder / f"{target}.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Expectations()
    except (OSError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path}: cannot be read: {error}") from error
    return Expectations(tuple(_parse(text, path)))


def _parse(text: str, path: Path) -> Iterator[Expectation]:
    lines = text.splitlines()
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else len(lines)
        raise ExpectationError(f"{path}:{line}: not valid TOML: {error}") from error
    for key in document:
        if key != "expect":
            raise ExpectationError(f"{path}:{_line_of(key, lines)}: unknown key {key!r} (valid: [[expect]] tables)")
    tables = document.get("expect", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ExpectationError(f"{path}:{_line_of('expect', lines)}: expectations are [[expect]] tables")
    starts = [number for number, line in enumerate(lines) if _TABLE.match(line)]
    if len(starts) != len(tables):
        raise ExpectationError(f"{path}:1: write each expectation as its own [[expect]] table")
    for start, end, table in zip(starts, [*starts[1:], len(lines)], tables, strict=True):
        yield _expectation(table, path, lines[:end], start)


def _expectation(table: dict[str, Any], path: Path, lines: Sequence[str], start: int) -> Expectation:
    def fail(key: str, problem: str) -> ExpectationError:
        return ExpectationError(f"{path}:{_line_of(key, lines, start)}: {problem}")

    for key in table:
        if key not in _REQUIRED + _OPTIONAL:
            raise fail(key, f"unknown key {key!r} (valid: {_listing(_REQUIRED + _OPTIONAL)})")
    for key in _REQUIRED:
        if key not in table:
            raise fail("", f"key {key!r} is missing (required: {_listing(_REQUIRED)})")
    for key in ("case", "verdict", "reason", "stage", "link"):
        if not isinstance(table.get(key, ""), str) or (key in _REQUIRED and not table[key].strip()):
            raise fail(key, f"{key} must be a non-empty string")
    added = table["added"]
    if not isinstance(added, datetime.date) or isinstance(added, datetime.datetime):
        raise fail("added", "added must be a date such as 2026-01-31, without quotes")
    failing = [verdict for verdict in Verdict if verdict is not Verdict.PASS]
    if table["verdict"] not in failing:
        why = "every case is expected to PASS" if table["verdict"] == Verdict.PASS else "unknown verdict"
        raise fail("verdict", f"{why}: {table['verdict']!r} (valid: {_listing(failing)})")
    if "stage" in table and table["stage"] not in set(Stage):
        raise fail("stage", f"unknown stage {table['stage']!r} (valid: {_listing(Stage)})")
    return Expectation(
        case=table["case"],
        verdict=Verdict(table["verdict"]),
        reason=table["reason"],
        added=added,
        stage=Stage(table["stage"]) if "stage" in table else None,
        link=table.get("link", ""),
        where=f"{path.name}:{start + 1}",
    )


def _line_of(key: str, lines: Sequence[str], start: int = 0) -> int:
    """Number (from 1) of the line at or after index `start` that sets `key`; of `start` itself where none does."""
    setting = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    for number in range(start, len(lines)):
        if key and setting.match(lines[number]):
            return number + 1
    return start + 1


def _listing(words: Iterable[str]) -> str:
    return ", ".join(words)
