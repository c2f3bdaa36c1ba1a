"""How many features a model makes of pictures or sounds: the model itself knows best."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from harness.inputs.request import InputError, Request


def takes(request: Request, method: str, name: str) -> bool:
    """Does the model's own `method` take an argument of this name?"""
    return name in inspect.signature(getattr(request.model_class, method, lambda: None)).parameters


def asks(request: Request, method: str, name: str) -> bool:
    """Does the model's `method`, wherever it is, take the argument and have no default for it?"""
    owners = _owners(request, method)
    taken = inspect.signature(getattr(owners[0], method)).parameters if owners else {}
    return name in taken and taken[name].default is inspect.Parameter.empty


def needs(request: Request, method: str) -> frozenset[str]:
    """What the `method`, wherever in the model it is, cannot be called without; nothing where there is no such."""
    owners = _owners(request, method)
    taken = inspect.signature(getattr(owners[0], method)).parameters.values() if owners else ()
    given = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return frozenset(each.name for each in taken if each.default is each.empty and each.kind not in given)


def call(request: Request, method: str, *values: torch.Tensor) -> Any:
    """What the model's `method` says of sizes; None where no module of it has such. Weights play no part."""
    owners = _owners(request, method)
    return getattr(owners[0], method)(*values) if owners else None


def arguments(request: Request, method: str) -> frozenset[str]:
    """What the `method` takes, wherever in the model it is."""
    owners = _owners(request, method)
    return frozenset(inspect.signature(getattr(owners[0], method)).parameters) if owners else frozenset()


def counts(request: Request, method: str, inputs: dict[str, Any], rows: int) -> list[int] | None:
    """Like `count`, for each of `rows` rows alone: padding is left out of some."""
    owners = _owners(request, method)
    whole = _made_of(request, owners, method, inputs)
    if whole is None or rows == 1:
        return None if whole is None else [whole]
    parts = [
        {name: value[row : row + 1] for name, value in inputs.items() if len(value) == rows} for row in range(rows)
    ]
    single = [_made_of(request, owners, method, part) for part in parts]
    if sum(single) == whole:
        return single
    if whole % rows:
        raise InputError(f"{request.model}: {method} makes {whole} features of {rows} rows, {single} of each alone")
    return [whole // rows] * rows


def count(request: Request, method: str, inputs: dict[str, Any]) -> int | None:
    """Features that the model's `method` (as `get_image_features`) makes of `inputs`; None where it has no such.

    Runs an untrained model of the same config on CPU: the number depends on sizes alone. Raises InputError.
    """
    return _made_of(request, _owners(request, method), method, inputs)


def _made_of(request: Request, owners: list[torch.nn.Module], method: str, inputs: dict[str, Any]) -> int | None:
    if not owners:
        return None
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        function = getattr(owners[0], method)
        taken = _taken(owners, method)
        try:
            made = function(**{name: value for name, value in inputs.items() if name in taken})
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError) as error:
            line = " ".join(str(error).split())[:200]
            raise InputError(f"{request.model}: {method} refuses {', '.join(inputs)}: {line}") from error
    for name in ("pooler_output", "last_hidden_state"):
        if (value := getattr(made, name, None)) is not None:
            kept = getattr(made, "attention_mask", None)
            chosen = kept is not None and isinstance(value, torch.Tensor) and kept.shape == value.shape[:-1]
            return int(kept.sum()) if chosen else _rows(value)
    if stacked := getattr(made, "deepstack_features", None):  # for several layers, each with its number
        return _rows(stacked[0][1])
    return _rows(made)


def untrained(request: Request) -> torch.nn.Module:
    """A model of the request's config, in float32 as inputs are: that of a loaded one would make parts in its dtype."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return request.model_class(request.config).eval().float()


def _owners(request: Request, method: str) -> list[torch.nn.Module]:
    """The modules of an untrained model of the request's config that have the method, outermost first."""
    return [module for module in untrained(request).modules() if hasattr(module, method)]


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
