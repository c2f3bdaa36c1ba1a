"""What regressed in each of the nights, for feed readers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dashboards import words
from dashboards.nights import FAILS, WORKS, Nights, status

LINES = 50
"""Cases named in one entry."""

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to hold, not even escaped (its production `Char`)."""


def regressions(nights: Nights) -> list[dict[str, Any]]:
    """The nights in which cases of the last one regressed, newest first: passed the night before, failed then."""
    standing = np.array([status(verdict) for verdict in nights.verdicts])
    told = []
    for night in range(len(nights.nights) - 1, 0, -1):
        before, after = nights.codes[night - 1], nights.codes[night]
        broke = (before > 0) & (after > 0) & (standing[before] == WORKS) & (standing[after] == FAILS)
        cases = np.flatnonzero(broke).tolist()
        if cases:
            lines = [f"{nights.cases[case]}: {nights.verdicts[after[case]]}" for case in cases[:LINES]]
            lines += [f"and {len(cases) - LINES} more"] if len(cases) > LINES else []
            run = nights.nights[night]
            told.append(
                {"run": run.run.id, "created": run.created, "count": len(cases), "lines": list(map(_line, lines))}
            )
    return told


def _line(text: str) -> str:
    return _FORBIDDEN.sub("�", words.clean(text))
