"""How many features a model makes of pictures or sounds: the model itself knows best."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from harness.inputs.request import InputError, Request


def count(request: Request, method: str, inputs: dict[str, Any]) -> int | None:
    """Features that the model's `method` (as `get_image_features`) makes of `inputs`; None where it has no such.

    Runs an untrained model of the same config on CPU: the number depends on sizes alone. Raises InputError.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        model = request.model_class(request.config).eval()
        owner = next((module for module in model.modules() if hasattr(module, method)), None)
        if owner is None:
            return None
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


def _rows(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() // value.shape[-1]
    if not isinstance(value, list | tuple):
        raise TypeError(f"features of type {type(value).__name__}")
    return sum(_rows(item) for item in value if item is not None)
