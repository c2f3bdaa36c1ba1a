"""What a word may be a misspelling of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(word: str, valid: Iterable[str]) -> str:
    """`; did you mean X?` with the one of `valid` that is closest to `word`, case aside; empty where none is close."""
    names = {name.lower(): str(name) for name in valid}
    close = difflib.get_close_matches(word.lower(), names, n=1)
    return f"; did you mean {names[close[0]]}?" if close and names[close[0]] != word else ""
