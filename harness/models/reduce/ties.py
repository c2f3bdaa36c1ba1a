"""Sizes that are tied to sizes elsewhere in the whole config, and follow them."""

from __future__ import annotations

from typing import Any

from harness.models.reduce import names
from harness.models.reduce.numbers import NUMBERS
from harness.models.reduce.parts import together
from harness.models.reduce.sizes import WIDTH


def follow_widths(raw: dict[str, Any], small: dict[str, Any]) -> None:
    """Sizes that no rule speaks of but that equal a width somewhere in the original equal it in the reduced too."""
    widths: dict[int, set[int]] = {}
    for before, after in together(raw, small):
        for key, value in after.items():
            if type(value) is int and (names.WIDTHS.fullmatch(key) or names.INNERS.fullmatch(key)):
                widths.setdefault(before[key], set()).add(value)
    for before, after in together(raw, small):
        for key, value in after.items():
            untouched = type(value) is int and value > WIDTH and value == before[key] and names.SIZES.fullmatch(key)
            if isinstance(value, list) and key.endswith("_channels") and _uniform(value):
                known = widths.get(value[0], {value[0]}) if value == before[key] else {value[0]}
                after[key] = [min(known)] * len(value)
            ruled = any(pattern.fullmatch(key) for pattern, _ in NUMBERS)
            if untouched and not ruled and len(known := widths.get(value, ())) == 1:
                after[key] = next(iter(known))


def follow_merged(raw: dict[str, Any], small: dict[str, Any]) -> None:
    """The width that pictures come out with, where it is that of merged patches beside each other, stays so."""
    streams, merged = set(), {}
    for before, after in together(raw, small):
        stream, merge = before.get("hidden_size"), before.get("spatial_merge_size") or before.get("merge_size")
        streams.add(stream)
        if type(stream) is int and type(merge) is int and merge > 1:
            merged[stream * merge**2] = after["hidden_size"] * merge**2
    for before, after in together(raw, small):
        for key in after:
            if key == "out_hidden_size" and before[key] in merged and before[key] not in streams:
                after[key] = merged[before[key]]


def scale_grids(raw: dict[str, Any], small: dict[str, Any]) -> None:
    """Resolutions made of whole pictures stay so many pictures high and wide."""
    sides = [
        (before["image_size"], after["image_size"])
        for before, after in together(raw, small)
        if type(after.get("image_size")) is int and before["image_size"]
    ]
    for _, after in together(raw, small):
        for key in ("image_grid_pinpoints", "possible_resolutions"):
            if after.get(key) and sides:
                old, new = sides[0]
                after[key] = [[side * new // old for side in grid] for grid in after[key]]


def _uniform(value: list[Any]) -> bool:
    """Is it one whole number, several times?"""
    return bool(value) and type(value[0]) is int and value.count(value[0]) == len(value)
