"""Reads what is known to end otherwise than in PASS: `expectations/<target>.toml`, one file per target.

A file may say `target = "NAME"` at its top, and is then refused for any other. Each `[[expect]]` table has

- `case`: a glob over case ids (`bert/*/compiled/float32/*`);
- `verdict`: the verdict these cases are known to end in;
- `stage` (optional): the stage they are known to end in;
- `reason`: why, in one line;
- `link` (optional): where it is tracked;
- `versions` (optional): for which versions this is known, `"torch_tpu>=0.2,<0.3"` or a list of such (PEP 440), all of
  which must hold; elsewhere the entry is inert, and its cases are expected to pass;
- `added`: the date of the entry, as a TOML date;
- `expires` (optional): the last day that it holds; afterwards the failure it speaks of is reported again. `FLAKY`,
  which a pass does not contradict, must have it.

Of several entries in force about a case the last one counts: the rule first, then its exceptions. So an entry of which
a later one covers all is a mistake, and so are two that disagree about a case while neither lies within the other.

An expected failure still runs; nothing is skipped.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from harness.cases import Group, Stage, Verdict
from harness.versions import installed as installed_versions
from model_lists.spelling import meant

FOLDER = Path(__file__).parent / "expectations"

REQUIRED = ("case", "verdict", "reason", "added")
OPTIONAL = ("stage", "link", "versions", "expires")
_TABLE = re.compile(r"\s*\[\[\s*expect\s*\]\]")
_GLOB_CHARACTERS = re.compile(r"[*?\[]")


class ExpectationError(ValueError):
    """An expectations file cannot be read; the message is one line that begins with file and line."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A statement that the cases matching `case` end in `verdict`, in `stage` where that is given.

    `where` is the file and line it was read from. `inert` says why it does not hold for the versions it was read for,
    empty where it does; `expired` that its last day was over then.
    """

    case: str
    verdict: Verdict
    reason: str
    added: datetime.date
    stage: Stage | None = None
    link: str = ""
    versions: tuple[str, ...] = ()
    expires: datetime.date | None = None
    where: str = ""
    inert: str = ""
    expired: bool = False
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", re.compile(translate(self.case)))

    @property
    def literal(self) -> str:
        """What every id that the glob matches begins with."""
        return _GLOB_CHARACTERS.split(self.case, maxsplit=1)[0]

    @property
    def says(self) -> str:
        """The verdict, and the stage where one is given, for people."""
        return f"{self.verdict} in {self.stage}" if self.stage else str(self.verdict)

    def covers(self, case_id: str) -> bool:
        """Whether this speaks about the case with that id."""
        return self.pattern.match(case_id) is not None

    def agrees(self, verdict: Verdict, stage: Stage | None) -> bool:
        """Whether this says `verdict`, and no other stage; None is any stage."""
        return self.verdict is verdict and (self.stage is None or stage is None or self.stage is stage)

    def within(self, other: Expectation) -> bool:
        """Whether `other` surely speaks about every case that this one speaks about."""
        # A glob whose only special character is `*` matches the text of another just where it matches all of that one.
        return self.case == other.case or (not set("?[") & set(other.case) and other.covers(self.case))


@dataclass(frozen=True)
class Expectations:
    """Everything known about one target, in the order of its file."""

    entries: tuple[Expectation, ...] = ()
    _by_type: dict[str, list[Expectation]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for entry in self.entries:
            if not entry.inert:
                model_type, slash, _ = entry.literal.partition("/")
                self._by_type.setdefault(model_type if slash else "", []).append(entry)

    def __iter__(self) -> Iterator[Expectation]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def about(self, case_id: str) -> Expectation | None:
        """The expectation that counts for a case: the last in force that covers it, None where there is none."""
        covering = self.covering(case_id)
        return covering[-1] if covering else None

    def covering(self, case_id: str) -> list[Expectation]:
        """Those in force that cover a case, in the order of the file."""
        some, any_type = self._by_type.get(case_id.partition("/")[0], []), self._by_type.get("", [])
        covering = [entry for entry in (*some, *any_type) if entry.covers(case_id)]
        return sorted(covering, key=self.entries.index) if len(covering) > 1 else covering

    def check(self, case_ids: Iterable[str]) -> None:
        """Raise ExpectationError where two in force disagree about one of the cases and neither is within the other."""
        for case_id in case_ids:
            for one, other in combinations(self.covering(case_id), 2):
                if not (one.agrees(other.verdict, other.stage) or other.within(one)):
                    raise ExpectationError(
                        f"{other.where}: {other.says} for {case_id} contradicts {one.says} ({one.where}), and neither"
                        " entry lies within the other: narrow one of them"
                    )


def file_of(target: str, place: Path = FOLDER) -> Path:
    """The expectations file of a target: `place` itself where that is a file, else `<target>.toml` in it.

    Raises ExpectationError where `place` is neither file nor folder.
    """
    if place.is_file():
        return place
    if not place.is_dir():
        raise ExpectationError(f"{place}: no such folder of expectations, nor a file of them")
    return place / f"{target}.toml"


def load_expectations(
    target: str,
    place: Path = FOLDER,
    *,
    installed: Mapping[str, str | None] | None = None,
    today: datetime.date | None = None,
) -> Expectations:
    """What is known about a target, from its file in the folder `place` or from the file `place`; nothing without one.

    `installed` has the version of each package, by default those installed here; `today` is by default today (UTC).
    Raises ExpectationError for a file that cannot be read, is no TOML, is about another target, has an unknown or
    missing key, verdict, stage, package or range, or an entry that a later one makes void.
    """
    path = file_of(target, place)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Expectations()
    except (OSError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path}: cannot be read: {error}") from error
    return parse(text, path, target, installed=installed, today=today)


def parse(
    text: str,
    path: Path,
    target: str | None = None,
    *,
    installed: Mapping[str, str | None] | None = None,
    today: datetime.date | None = None,
) -> Expectations:
    """What the text of the file `path` says; `target` None takes any. Raises as `load_expectations` does."""
    document, lines, starts = _document(text, path)
    if target is not None and document.get("target", target) != target:
        line = _line_of("target", lines)
        raise ExpectationError(f"{path}:{line}: is about the target {document['target']!r}, not {target!r}")
    known = installed_versions() if installed is None else installed
    on = today or datetime.datetime.now(datetime.UTC).date()
    entries = tuple(
        _expectation(table, path, lines[:end], start, known, on)
        for (start, end), table in zip(pairwise([*starts, len(lines)]), document.get("expect", []), strict=True)
    )
    for one, other in combinations(entries, 2):
        if one.within(other) and (not other.versions or other.versions == one.versions):
            raise ExpectationError(
                f"{path}:{one.where.rpartition(':')[2]}: never counts, since {other.where} covers all of {one.case!r};"
                " an exception comes after its rule"
            )
    return Expectations(entries)


def target_of(path: Path) -> str | None:
    """The target that a file of expectations names at its top, None where it names none. Raises ExpectationError."""
    try:
        return _document(path.read_text(encoding="utf-8"), path)[0].get("target")
    except (OSError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path}: cannot be read: {error}") from error


def starts_of(lines: Sequence[str]) -> list[int]:
    """Indices of the lines at which a table begins."""
    return [number for number, line in enumerate(lines) if _TABLE.match(line)]


def _document(text: str, path: Path) -> tuple[dict[str, Any], list[str], list[int]]:
    """The file's content, its lines, and the indices of those at which a table begins."""
    lines = text.splitlines()
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else len(lines)
        raise ExpectationError(f"{path}:{line}: not valid TOML: {error}") from error
    for key in document:
        if key not in ("target", "expect"):
            near = meant(key, ("target", "expect"))
            line = _line_of(key, lines)
            raise ExpectationError(f"{path}:{line}: unknown key {key!r}{near} (valid: target, [[expect]] tables)")
    if not isinstance(document.get("target", ""), str):
        raise ExpectationError(f"{path}:{_line_of('target', lines)}: target must be a string")
    tables = document.get("expect", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ExpectationError(f"{path}:{_line_of('expect', lines)}: expectations are [[expect]] tables")
    starts = starts_of(lines)
    if len(starts) != len(tables):
        raise ExpectationError(f"{path}:1: write each expectation as its own [[expect]] table")
    return document, lines, starts


def _expectation(
    table: dict[str, Any],
    path: Path,
    lines: Sequence[str],
    start: int,
    installed: Mapping[str, str | None],
    today: datetime.date,
) -> Expectation:
    def fail(key: str, problem: str) -> ExpectationError:
        return ExpectationError(f"{path}:{_line_of(key, lines, start)}: {problem}")

    valid = REQUIRED + OPTIONAL
    for key in table:
        if key not in valid:
            raise fail(key, f"unknown key {key!r}{meant(key, valid)} (valid: {_listing(valid)})")
    for key in REQUIRED:
        if key not in table:
            raise fail("", f"key {key!r} is missing (required: {_listing(REQUIRED)})")
    for key in ("case", "verdict", "reason", "stage", "link"):
        if not isinstance(table.get(key, ""), str) or (key in REQUIRED and not table[key].strip()):
            raise fail(key, f"{key} must be a non-empty string")
    for key in ("added", "expires"):
        if key in table and (not isinstance(table[key], datetime.date) or isinstance(table[key], datetime.datetime)):
            raise fail(key, f"{key} must be a date such as 2026-01-31, without quotes")
    added, expires = table["added"], table.get("expires")
    if expires is not None and expires < added:
        raise fail("expires", f"expires on {expires}, before it was added on {added}")
    failing = [verdict for verdict in Verdict if verdict.group is not Group.PASS]
    verdict = table["verdict"]
    if verdict not in failing:
        why = "every case is expected to PASS" if verdict == Verdict.PASS else "unknown verdict"
        raise fail("verdict", f"{why}: {verdict!r}{meant(verdict, failing)} (valid: {_listing(failing)})")
    if verdict == Verdict.FLAKY and expires is None:
        raise fail("", "key 'expires' is missing: no pass ever shows that a case is FLAKY no more")
    if "stage" in table and table["stage"] not in set(Stage):
        near = meant(table["stage"], list(Stage))
        raise fail("stage", f"unknown stage {table['stage']!r}{near} (valid: {_listing(Stage)})")
    try:
        versions, inert = _versions(table.get("versions", []), installed)
    except ValueError as error:
        raise fail("versions", str(error)) from error
    return Expectation(
        case=table["case"],
        verdict=Verdict(verdict),
        reason=table["reason"],
        added=added,
        stage=Stage(table["stage"]) if "stage" in table else None,
        link=table.get("link", ""),
        versions=versions,
        expires=expires,
        where=f"{path.name}:{start + 1}",
        inert=inert,
        expired=expires is not None and expires < today,
    )


def _versions(given: Any, installed: Mapping[str, str | None]) -> tuple[tuple[str, ...], str]:
    """The ranges that an entry gives, and why they do not hold for what is installed, empty where they do.

    Raises ValueError, in one line.
    """
    ranges = [given] if isinstance(given, str) else given
    if not isinstance(ranges, list) or not all(isinstance(text, str) for text in ranges):
        raise ValueError('versions must be a string such as "torch_tpu<0.3", or a list of such')
    known = {canonicalize_name(name): name for name in installed}
    outside = []
    for text in ranges:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            raise ValueError(f'{text!r} is not a version range such as "torch_tpu>=0.2,<0.3"') from None
        if wanted.extras or wanted.marker or wanted.url or not wanted.specifier:
            raise ValueError(f'{text!r} is not a version range such as "torch_tpu>=0.2,<0.3"')
        name = canonicalize_name(wanted.name)
        if name not in known:
            near = meant(wanted.name, list(installed))
            raise ValueError(f"unknown package {wanted.name!r}{near} (valid: {_listing(installed)})")
        version = installed[known[name]]
        try:
            # Nightlies of a backend are pre-releases, and ranges speak of them too.
            holds = version is not None and wanted.specifier.contains(version, prereleases=True)
        except InvalidVersion:
            holds = False
        if not holds:
            outside.append(f"{known[name]} is {version or 'not installed'}, not {wanted.specifier}")
    return tuple(ranges), "; ".join(outside)


def _line_of(key: str, lines: Sequence[str], start: int = 0) -> int:
    """Number (from 1) of the line at or after index `start` that sets `key`; of `start` itself where none does."""
    setting = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    for number in range(start, len(lines)):
        if key and setting.match(lines[number]):
            return number + 1
    return start + 1


def _listing(words: Iterable[str]) -> str:
    return ", ".join(words)
