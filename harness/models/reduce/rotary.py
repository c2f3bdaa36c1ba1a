"""Rotary embeddings whose parameters are tied to the size of a head."""

from __future__ import annotations

from typing import Any

from harness.models.reduce.numbers import head_size, rotary_part
from harness.models.reduce.sizes import HEAD


def reduced_rotary(value: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Rotary parameters whose length or sum is tied to the head's size follow it; the rest is kept."""
    result = {}
    for key, item in value.items():
        if isinstance(item, dict):
            result[key] = reduced_rotary(item, own)
        elif key == "mrope_section":
            result[key] = _proportional(item, _rotated(value, own) // 2)
        elif key == "partial_rotary_factor" and _is_rotary_share(item, own):
            result[key] = rotary_part(own) / (HEAD + rotary_part(own))
        elif key in ("short_factor", "long_factor"):
            half = _rotated(value, own) // 2
            result[key] = [item[index * len(item) // half] for index in range(half)]
        else:
            result[key] = item
    return result


def _is_rotary_share(share: float, own: dict[str, Any]) -> bool:
    """In low-rank attention, is this the share of a head that its rotated part makes?"""
    rotated = own.get("qk_rope_head_dim") or 0
    return rotated > 0 and rotated == share * (rotated + (own.get("qk_nope_head_dim") or 0))


def _rotated(rope: dict[str, Any], own: dict[str, Any]) -> int:
    """Elements of a reduced head that are rotated."""
    head = head_size("head_dim", own["head_dim"], own, 0) if own.get("head_dim") else HEAD
    return int(head * (rope.get("partial_rotary_factor") or own.get("partial_rotary_factor") or 1))


def _proportional(parts: list[int], total: int) -> list[int]:
    """`parts` scaled to sum to `total`, none below one."""
    result = [max(1, part * total // sum(parts)) for part in parts]
    result[-1] += total - sum(result)
    return result
