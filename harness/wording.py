"""What of an error text says which fault it is: the rest differs from one occurrence of the fault to the next."""

from __future__ import annotations

import re

# Quantifiers that may meet long texts are possessive: no hostile message makes them try again from every letter.
_CHANGING: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"0x[0-9a-f]+", re.IGNORECASE), "ADDRESS"),
    (re.compile(r"(?<![\w.~/+-])(?:[\w.~+-]*+/)++"), ""),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "UUID"),
    (re.compile(r"\b[0-9a-f]{16,}+\b", re.IGNORECASE), "HASH"),
    (re.compile(r"\b\d++(?:\.\d++)++(?:[+.-]\w++)*+\b"), "N"),
    (re.compile(r"[\[(]\s*+-?\d++(?:\s*+[,x]\s*+-?\d++)*+\s*+,?\s*+[\])]"), "SHAPE"),
    (re.compile(r"\b(?:\d++x)++(?=[a-z])"), "SHAPE of "),
    (re.compile(r"\b\d++(?:x\d++)++\b"), "SHAPE"),
    (re.compile(r"-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b", re.IGNORECASE), "N"),
)
"""Addresses, folders, ids, versions, shapes, counters, and what stands for them."""


def lasting(text: str) -> str:
    """An error text without what changes from occurrence to occurrence, on one line, words apart by one space."""
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return " ".join(text.split())
