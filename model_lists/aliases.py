"""Models that were renamed on the Hub: `aliases.csv` has an old id and the new one on each line.

Lists hold new ids alone, and whatever asks by an old id (a user, a row of an older run) is taken to mean the new one.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from model_lists import ALIASES, ListError

HEADER = ["old_id", "new_id"]
_BEFORE_ID, _AFTER_CASE = 2, 5
"""Parts of a case id before the model's (type and class), and behind it: weights, phase, mode, dtype and profile."""


def read_aliases(path: Path) -> dict[int, tuple[str, str]]:
    """Old and new id by line. Raises ListError where the file cannot be read as such a table."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            found = {line: row for line, row in enumerate(csv.reader(file, strict=True), start=1) if row}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ListError(f"{path}:1: cannot be read as CSV: {getattr(error, 'strerror', None) or error}") from error
    if found.pop(1, None) != HEADER:
        raise ListError(f"{path}:1: the first line must be {','.join(HEADER)}")
    for line, row in found.items():
        if len(row) != len(HEADER):
            raise ListError(f"{path}:{line}: {len(row)} values for the columns {', '.join(HEADER)}")
    return {line: (old, new) for line, (old, new) in found.items()}


@cache
def aliases() -> dict[str, str]:
    """The new id of each old one. Raises ListError."""
    return dict(read_aliases(ALIASES).values())


def current(name: str) -> str:
    """The word, entry id or case id with the model's new id in place of an old one; any other as it is."""
    renamed = aliases()
    if name in renamed:
        return renamed[name]
    parts = name.split("/")
    for after in (_AFTER_CASE, 1):
        old = "/".join(parts[_BEFORE_ID:-after])
        if old in renamed:
            return "/".join((*parts[:_BEFORE_ID], renamed[old], *parts[-after:]))
    return name
