"""What is wrong with model lists and what belongs to them: a line for each finding, `file:line: what; did you mean X?`.

Reads text alone: neither torch nor transformers is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

from harness.cases import Entry
from harness.registry import Registry
from model_lists import HUB_ID, NESTED_TIERS, list_path, read_list
from model_lists.aliases import read_aliases
from model_lists.expectations import Expectation
from model_lists.spelling import meant

_SPECIAL = frozenset("*?[")


class Linter:
    """Checks lists one after the other, against what the libraries register and against each other.

    `diffusers` are the names that diffusers exports, None where these are unknown.
    """

    def __init__(self, registry: Registry, diffusers: frozenset[str] | None) -> None:
        self._registry, self._diffusers = registry, diffusers
        self._ids: dict[str, str] = {}
        self._models: dict[str, str] = {}
        self._classes: dict[str, set[str]] = {}
        self.entries = 0
        self.unchecked = 0
        """How many of them are of a class that nothing here knows of, right or wrong."""
        self.of_own_code = 0
        """How many of them are of a class that only their own code has."""

    @property
    def architectures(self) -> int:
        """Model types of the lists so far."""
        return len(self._classes)

    def of_list(self, path: Path) -> Iterator[str]:
        """What is wrong with a list, and what it has that a list before it has too. Raises ListError."""
        spellings: dict[str, tuple[str, int]] = {}
        for row in read_list(path):
            yield from row.problems
            if row.entry is None:
                continue
            entry, where = row.entry, f"{path}:{row.line}"
            self.entries += 1
            self._classes.setdefault(entry.model_type, set()).add(entry.model_class)
            yield from (f"{where}: {problem}" for problem in self._of_entry(entry))
            if entry.id in self._ids:
                yield f"{where}: {entry.id} is in {self._ids[entry.id]} too; keep one of them"
            spelt, line = spellings.setdefault(entry.model_id.lower(), (entry.model_id, row.line))
            if spelt != entry.model_id:
                yield f"{where}: {entry.model_id} is written {spelt} in line {line}: to the Hub they are one"
            smallest = NESTED_TIERS[0]
            if path.parent == list_path(smallest).parent and (path.stem == smallest) != (entry.tier == smallest):
                yield f"{where}: tier is {entry.tier}: {smallest}.csv has all models of tier {smallest}, and no others"
            self._ids.setdefault(entry.id, where)
            self._models.setdefault(entry.model_id, where)

    def of_aliases(self, path: Path) -> Iterator[str]:
        """What is wrong with a table of renamed ids, beside the lists so far. Raises ListError."""
        seen: dict[str, int] = {}
        rows = read_aliases(path)
        olds = {old for old, _ in rows.values()}
        for line, (old, new) in rows.items():
            where = f"{path}:{line}"
            for model_id in (old, new):
                if not HUB_ID.fullmatch(model_id):
                    yield f"{where}: {model_id!r} is no Hub id such as owner/name"
            if old in seen:
                yield f"{where}: {old} is in line {seen[old]} too; keep one of them"
            seen.setdefault(old, line)
            if old in self._models:
                yield f"{where}: {old} is an old id, and {self._models[old]} has it; put {new} there"
            if new in olds:
                yield f"{where}: {new} is an old id itself; name the newest"
            elif new not in self._models:
                yield f"{where}: no list has {new}{meant(new, self._models)}"

    def of_expectations(self, path: Path, expectations: Iterable[Expectation]) -> Iterator[str]:
        """What of a file of expectations names a type or class that neither the lists so far nor transformers have."""
        types = self._registry.classes.keys() | self._classes.keys()
        for one in expectations:
            named = list(takewhile(lambda word: not _SPECIAL & set(word), one.case.split("/")[:2]))
            where = f"{path}:{one.where.rpartition(':')[2]}"
            if named and named[0] not in types:
                yield f"{where}: {one.case} speaks of no model_type that is known{meant(named[0], types)}"
            elif len(named) == 2 and named[1] not in (
                classes := self._registry.classes.get(named[0], frozenset()) | self._classes.get(named[0], set())
            ):
                yield f"{where}: {one.case} speaks of no class that {named[0]} has{meant(named[1], classes)}"

    def of_recipes(self, folder: Path) -> Iterator[str]:
        """Recipes that are of no registered type."""
        for path in sorted(folder.glob("*.toml")):
            if path.stem not in self._registry.classes:
                close = meant(path.stem, self._registry.classes)
                yield f"{path}:1: transformers {self._registry.version} registers no model_type {path.stem}{close}"

    def _of_entry(self, entry: Entry) -> Iterator[str]:
        if entry.library == "diffusers":
            if self._diffusers is None:
                self.unchecked += 1
            elif entry.model_class not in self._diffusers:
                yield f"diffusers exports no {entry.model_class}{meant(entry.model_class, self._diffusers)}"
            return
        version, known = self._registry.version, self._registry.classes
        if entry.custom_code == "yes" and entry.model_class not in known.get(entry.model_type, ()):
            self.of_own_code += 1
            return
        if entry.model_type not in known:
            close = meant(entry.model_type, known)
            yield f"transformers {version} registers no model_type {entry.model_type}{close}"
            return
        name, own = entry.model_class, known[entry.model_type]
        if name in own:
            return
        if name in self._registry.registered:
            yield f"{name} is registered for other types than {entry.model_type}{meant(name, own)}"
        elif name not in self._registry.defined:
            yield f"transformers {version} has no class {name}{meant(name, own or self._registry.registered)}"
