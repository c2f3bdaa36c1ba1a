"""How many features a model makes of pictures or sounds: the model itself knows best."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from harness.inputs.request import InputError, Request


def takes(request: Request, method: str, name: str) -> bool:
    """Does the model's own `method` take an argument of this name?"""
    return name in inspect.signature(getattr(request.model_class, method, lambda: None)).parameters


def call(request: Request, method: str, *values: torch.Tensor) -> Any:
    """What the model's `method` says of sizes; None where no module of it has such. Weights play no part."""
    owner = _owner(request, method)
    return None if owner is None else getattr(owner, method)(*values)


def counts(request: Request, method: str, inputs: dict[str, Any], rows: int) -> list[int] | None:
    """Like `count`, for each of `rows` rows alone: padding is left out of some."""
    whole = count(request, method, inputs)
    if whole is None or rows == 1:
        return None if whole is None else [whole]
    parts = [
        {name: value[row : row + 1] for name, value in inputs.items() if len(value) == rows} for row in range(rows)
    ]
    single = [count(request, method, part) for part in parts]
    if sum(single) == whole:
        return single
    if whole % rows:
        raise InputError(f"{request.model}: {method} makes {whole} features of {rows} rows, {single} of each alone")
    return [whole // rows] * rows


def count(request: Request, method: str, inputs: dict[str, Any]) -> int | None:
    """Features that the model's `method` (as `get_image_features`) makes of `inputs`; None where it has no such.

    Runs an untrained model of the same config on CPU: the number depends on sizes alone. Raises InputError.
    """
    owner = _owner(request, method)
    if owner is None:
        return None
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        function = getattr(owner, method)
        taken = inspect.signature(function).parameters
        try:
            made = function(**{name: value for name, value in inputs.items() if name in taken})
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError) as error:
            line = " ".join(str(error).split())[:200]
            raise InputError(f"{request.model}: {method} refuses {', '.join(inputs)}: {line}") from error
    for name in ("pooler_output", "last_hidden_state"):
        if getattr(made, name, None) is not None:
            return _rows(getattr(made, name))
    if stacked := getattr(made, "deepstack_features", None):  # for several layers, each with its number
        return _rows(stacked[0][1])
    return _rows(made)


def _owner(request: Request, method: str) -> torch.nn.Module | None:
    """The first module of an untrained model of the request's config that has the method."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = request.model_class(request.config).eval()
    return next((module for module in model.modules() if hasattr(module, method)), None)


def _rows(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() // value.shape[-1]
    if not isinstance(value, list | tuple):
        raise TypeError(f"features of type {type(value).__name__}")
    return sum(_rows(item) for item in value if item is not None)
