"""Which module of a forward pass is the first whose result is wrong as a whole, where no operator is by itself.

For what a mode makes of several operators may be wrong: a fused program, a compiled graph. Each module runs as the mode
runs it, and the CPU repeats it with the arguments that the target itself came to. First the modules right below the
model, then those below the first wrong one, and so on: so what has not been looked into yet stays in one piece. One
that draws differs on CPU from itself too, and that is its noise.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from harness.execution import outputs
from harness.execution.first_bad import REFUSALS, BadOperator, copied, double, tensors_in, twin, why_wrong

Forward = Callable[..., Any]
WHOLE = "the module as a whole"


def first_bad_module(
    model: nn.Module,
    cpu: nn.Module,
    truth: nn.Module,
    run: Callable[[], Any],
    program: Callable[[Forward], Forward],
    seconds: float,
) -> BadOperator | None:
    """The first wrong module, the innermost that is known to be after so many `seconds`; None where none is.

    `run` runs `model`, of which `cpu` and `truth` are the same on CPU, at the same dtype and in float64. `program` is
    what the mode makes of a module's forward function. Raises what `run` raises.
    """
    end = time.monotonic() + seconds
    found, inside = None, ""
    while time.monotonic() < end:
        wrong: list[BadOperator] = []
        with contextlib.ExitStack() as stack:
            for path in _below(model, inside):
                module, twins = model.get_submodule(path), (truth.get_submodule(path), cpu.get_submodule(path))
                stack.callback(setattr, module, "forward", module.forward)
                module.forward = _watched(path, program(module.forward), *twins, wrong)
            run()
        if not wrong:
            break
        found, inside = wrong[0], wrong[0].module
    return found


def _below(model: nn.Module, path: str) -> Iterator[str]:
    """Paths of the nearest modules below one that are called themselves, which lists of modules are not."""
    for name, child in model.get_submodule(path).named_children():
        below = f"{path}.{name}" if path else name
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _below(model, below)
        else:
            yield below


def _watched(path: str, forward: Forward, truth: nn.Module, cpu: nn.Module, wrong: list[BadOperator]) -> Forward:
    """A forward function like `forward` that notes the first wrong result in `wrong`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if wrong:
            return forward(*args, **kwargs)
        given = _changed((args, kwargs), copied)  # before it is called, which may write into a cache
        result = forward(*args, **kwargs)
        if why := _why(truth, cpu, given, result):
            wrong.append(BadOperator("", path, WHOLE, tensors_in(given), why))
        return result

    return call


def _why(truth: nn.Module, cpu: nn.Module, given: Any, result: Any) -> str:
    try:
        sides = [_called(truth, given, double), _called(cpu, given, twin), outputs.leaves(result)]
    except REFUSALS:
        return ""
    return why_wrong(*({path: leaf.detach().cpu() for path, leaf in side.items()} for side in sides))


def _called(module: nn.Module, given: Any, change: Callable[[Any], Any]) -> dict[str, torch.Tensor]:
    args, kwargs = _changed(given, change)
    return outputs.leaves(module(*args, **kwargs))


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Arguments with every tensor, dtype and device in them changed, those in caches of keys and values included."""
    match value:
        case dict():
            return {key: _changed(item, change) for key, item in value.items()}
        case list() | tuple() if type(value) in (list, tuple):
            return type(value)(_changed(item, change) for item in value)
        case _ if _is_cache(value):
            changed = copy.copy(value)
            vars(changed).update(_changed(vars(value), change))
            return changed
        case _:
            return change(value)


def _is_cache(value: Any) -> bool:
    """Whether it is a cache or a layer of one, which have no base in common: some are an architecture's own."""
    return any(base.__name__.endswith(("Cache", "CacheLayerMixin")) for base in type(value).__mro__)
