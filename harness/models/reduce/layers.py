"""How many layers hold one of every kind the original has, and which they are."""

from __future__ import annotations

from typing import Any

from harness.models.reduce import names
from harness.models.reduce.sizes import LAYERS


def layer_count(own: dict[str, Any]) -> int:
    """How many layers hold one of every kind the original has."""
    count = LAYERS
    for key, value in own.items():
        if is_pattern(key, value, own):
            count = max(count, len(distinct(value)))
        if key == "num_kv_shared_layers" and value:
            count = max(count, 2 * len(distinct(own.get("layer_types") or [None])))
        if key.endswith("out_indices") and isinstance(value, list) and original_layers(own) is not None:
            count = max(count, len(value))
    return count


def is_pattern(key: str, value: Any, own: dict[str, Any]) -> bool:
    """Does this list say something of each layer, by its name or by being as long as there are layers?"""
    if not isinstance(value, list | tuple) or not value:
        return False
    if names.PATTERNS.fullmatch(key):
        return True
    count = original_layers(own)
    if every_layer(value, own):
        return False
    by_stage = (names.STAGE_WIDTHS, names.STAGE_HEADS, names.LAYER_INDICES)
    staged = len(value) == len(own.get("depths") or ()) or any(sizes.fullmatch(key) for sizes in by_stage)
    return count is not None and count > LAYERS and len(value) == count and not staged


def every_layer(value: list[Any] | tuple[Any, ...], own: dict[str, Any]) -> bool:
    """Does this list number all layers?"""
    return list(value) == list(range(original_layers(own) or 0))


def original_layers(own: dict[str, Any]) -> int | None:
    """Layers of the original, None for configs of several stacks or stages."""
    for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth"):
        if type(own.get(name)) is int:
            return own[name]
    return None


def distinct(pattern: list[Any] | tuple[Any, ...]) -> list[Any]:
    """The distinct members of a layer pattern, in the order of their first occurrence."""
    return list({repr(kind): kind for kind in pattern}.values())


def picked_layers(value: list[int], own: dict[str, Any], layers: int, kinds: bool) -> list[int]:
    """Layers picked by their numbers, at the same height; where they are of a kind of their own, others remain."""
    count = max(original_layers(own) or 0, max(value) + 1)
    picked = sorted({item * layers // count for item in value})
    if kinds and len(picked) == layers and len(set(value)) < count:
        return picked[:-1] if 0 in value else picked[1:]
    return picked
