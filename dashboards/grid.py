"""The cases of a run laid out: a line for each model, a column for each phase, mode, dtype and profile that it has."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlencode

from dashboards import words
from harness.cases import Dtype, Mode, Phase, Profile

ENTRY_COLUMNS = (
    *("entry_id", "model_type", "model_class", "model_id", "family", "task", "library", "weights", "evidence"),
    "params",
)
CASE_COLUMNS = ("case_id", *ENTRY_COLUMNS, "phase", "mode", "dtype", "profile")
"""What is asked of the rows of a run here."""

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


class Column(NamedTuple):
    """What the cases of a column have in common."""

    phase: str
    mode: str
    dtype: str
    profile: str


@dataclass
class Entry:
    """A model, with the number of its case in each column that it has one in."""

    entry_id: str
    model_type: str
    model_class: str = ""
    model_id: str = ""
    family: str = ""
    task: str = ""
    library: str = ""
    weights: str = ""
    evidence: str = ""
    params: int | None = None
    cases: dict[Column, int] = field(default_factory=dict)


@dataclass
class Grid:
    """Models by architecture and name, and columns in the order of their vocabularies.

    `unplaced` are planned ids that have not the form of a case's. Every architecture has a name that a file can have.
    """

    entries: list[Entry]
    columns: list[Column]
    slugs: dict[str, str]
    unplaced: list[str]

    @cached_property
    def architectures(self) -> dict[str, list[int]]:
        """For each architecture, by name, the numbers of its models."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, entry in enumerate(self.entries):
            found[entry.model_type].append(number)
        return dict(found)

    def cells(self, cases: Sequence[str]) -> dict[str, int]:
        """For the id of each case the number of its cell: lines from the top, in each the columns from the left."""
        place = {column: number for number, column in enumerate(self.columns)}
        return {
            cases[case]: line * len(place) + place[column]
            for line, entry in enumerate(self.entries)
            for column, case in entry.cases.items()
        }

    def told(self, case_id: str) -> dict[str, str]:
        """A case for a list on a page: its model, its column and where its page is."""
        entry, *column = case_id.rsplit("/", 4)
        parts = entry.split("/")
        return {
            "model": words.clean(parts[0]),
            "of": words.clean("/".join(parts[1:])),
            "column": words.clean(" · ".join(column)),
            "href": self.case_href(case_id),
        }

    def case_href(self, case_id: str) -> str:
        """Where the page of a case is, from the site's folder."""
        slug = self.slugs.get(case_id.split("/", 1)[0])
        return "case.html#" + urlencode({"a": slug or "", "c": words.clean(case_id)})


def lay_out(rows: Iterable[Mapping[str, Any]], unreported: Sequence[str]) -> Grid:
    """A grid of the rows of a run, numbered as they come, followed by planned cases without a row.

    Of these the id is all that is known.
    """
    entries: dict[str, Entry] = {}
    unplaced = []
    rows = list(rows)
    for number, row in enumerate(rows):
        facts = {name: row[name] if name == "params" else row[name] or "" for name in ENTRY_COLUMNS}
        entry = entries.setdefault(facts["entry_id"], Entry(**facts))
        entry.evidence = entry.evidence or facts["evidence"]
        entry.cases[Column(*(row[name] or "" for name in Column._fields))] = number
    for case, case_id in enumerate(unreported, len(rows)):
        parts = case_id.split("/")
        if len(parts) < 8:
            unplaced.append(case_id)
            continue
        entry_id = "/".join(parts[:-4])
        named = Entry(entry_id, parts[0], parts[1], "/".join(parts[2:-5]), weights=parts[-5])
        entries.setdefault(entry_id, named).cases[Column(*parts[-4:])] = case
    ordered = sorted(entries.values(), key=lambda entry: (entry.model_type, entry.entry_id))
    columns = in_order({column for entry in ordered for column in entry.cases})
    return Grid(ordered, columns, _slugs(entry.model_type for entry in ordered), unplaced)


def _slugs(names: Iterable[str]) -> dict[str, str]:
    """For each name one that a file can have anywhere, also where upper and lower case are one."""
    slugs: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        if name in slugs:
            continue
        slug = name.replace(".", "_")
        if not _FILE_NAME.fullmatch(slug) or slug.lower() in taken:
            slug = "x-" + hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:16]
        taken.add(slug.lower())
        slugs[name] = slug
    return slugs


def in_order(columns: Iterable[Column]) -> list[Column]:
    """Columns as their vocabularies have them, phases first."""

    def places(column: Column) -> tuple[Any, ...]:
        return tuple(words.place(kind, part) for kind, part in zip((Phase, Mode, Dtype, Profile), column, strict=True))

    return sorted(columns, key=places)
