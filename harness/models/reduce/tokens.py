"""Special tokens: distinct, in the reduced vocabulary, the same in every part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.models.reduce import names
from harness.models.reduce.sizes import VOCABULARY


def remap_tokens(raw: dict[str, Any], small: dict[str, Any]) -> None:
    """Give special tokens that fell out of the vocabulary new, distinct ids at its end, the same everywhere."""
    sizes = [size for size in _found(small, lambda key: key == "vocab_size") if isinstance(size, int)]
    limit = min(sizes, default=VOCABULARY)
    originals = _found(raw, lambda key: bool(names.TOKENS.fullmatch(key)))
    lost = sorted({number for number in originals if isinstance(number, int) and number >= limit - RESERVED})
    new = {old: limit - 1 - index % RESERVED for index, old in enumerate(reversed(lost))}
    _replace_tokens(small, new)


RESERVED = 16
"""Ids at the end of a reduced vocabulary that only special tokens use."""


def _found(tree: dict[str, Any], wanted: Callable[[str], bool]) -> list[Any]:
    result = []
    for key, value in tree.items():
        if isinstance(value, dict):
            result += _found(value, wanted) if "model_type" in value else []
        elif wanted(key):
            result += value if isinstance(value, list | tuple) else [value]
    return result


def _replace_tokens(tree: dict[str, Any], new: dict[int, int]) -> None:
    for key, value in tree.items():
        if isinstance(value, dict):
            if "model_type" in value:
                _replace_tokens(value, new)
        elif names.TOKENS.fullmatch(key) and isinstance(value, list | tuple):
            tree[key] = [new.get(item, item) for item in value]
        elif names.TOKENS.fullmatch(key) and isinstance(value, int):
            tree[key] = new.get(value, value)
