"""Tensors wherever they lie in a model's inputs: most are arguments of their own, some lie inside plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with every tensor in it changed, dicts, lists and tuples rebuilt; everything else as it is."""
    match value:
        case torch.Tensor():
            return change(value)
        case dict():
            return {key: mapped(item, change) for key, item in value.items()}
        case list() | tuple():
            return type(value)(mapped(item, change) for item in value)
        case _:
            return value


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every tensor and every other value in `value` by its path, keys of dicts sorted, empty containers included."""
    match value:
        case dict() if value:
            for key in sorted(value):
                yield from leaves(f"{name}.{key}", value[key])
        case list() | tuple() if value:
            for number, item in enumerate(value):
                yield from leaves(f"{name}.{number}", item)
        case _:
            yield name, value
