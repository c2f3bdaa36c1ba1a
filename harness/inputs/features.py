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
        owners = [module for module in model.modules() if hasattr(module, method)]
        if not owners:
            return None
        function = getattr(owners[0], method)
        taken = _taken(owners, method)
        try:
            made = function(**{name: value for name, value in inputs.items() if name in taken})
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError) as error:
            line = " ".join(str(error).split())[:200]
            raise InputError(f"{request.model}: {method} refuses {', '.join(inputs)}: {line}") from error
    for name in ("pooler_output", "last_hidden_state"):
        if getattr(made, name, None) is not None:
            return _rows(getattr(made, name))
    return _rows(made)


def _taken(owners: list[torch.nn.Module], method: str) -> set[str]:
    """Arguments of the first owner's method and, as far as each passes on what it does not know, of the next one's."""
    names: set[str] = set()
    for owner in owners:
        parameters = inspect.signature(getattr(owner, method)).parameters
        names |= parameters.keys()
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            break
    return names


def _rows(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() // value.shape[-1]
    if not isinstance(value, list | tuple):
        raise TypeError(f"features of type {type(value).__name__}")
    return sum(_rows(item) for item in value if item is not None)
