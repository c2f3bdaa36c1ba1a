"""One step of training: the loss, the gradient of every parameter, and every parameter after a step of descent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from harness.numerics.budget import GRADIENT

RATE = 0.1
"""Learning rate: a step moves parameters by far more than they are rounded, and by less than they are large."""

STEPPED = "stepped."
"""Beginning of the names of parameters after the step."""

_CHANCE = re.compile(r"\w*(dropout|drop_path|drop_prob|layerdrop|jitter|mask_\w+_prob)\w*")
"""Attributes that are probabilities, or amounts, of what a model does at random while it trains."""
_AT_RANDOM = frozenset({"apply_spec_augment", "num_denoising"})
"""Attributes that turn such a thing on, or say how often it happens."""


class NoLoss(RuntimeError):
    """The model returns no loss for the labels it is given."""


def step(model: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """`loss`, `grad.<parameter>` where there is one, and `stepped.<parameter>`, for a module or its compiled form.

    The model is in training mode with nothing left to chance, and has its parameters back afterwards. Raises NoLoss.
    """
    module: nn.Module = getattr(model, "_orig_mod", model)
    statistics = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.train()
    _leave_nothing_to_chance(module)
    parameters = {name: parameter for name, parameter in module.named_parameters() if parameter.is_floating_point()}
    for parameter in parameters.values():
        parameter.grad = None
    try:
        returned = model(**inputs)
        loss = getattr(returned, "loss", None)
        if loss is None:
            raise NoLoss(f"{type(module).__name__} returns no loss for {', '.join(sorted(inputs))}")
        loss.sum().backward()
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        torch.optim.SGD(parameters.values(), lr=RATE).step()
        result = {"loss": loss.detach()}
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                result[GRADIENT + name] = parameter.grad
                result[STEPPED + name] = parameter.detach().clone()
                parameter.data.copy_(before[name])
                parameter.grad = None
        return result
    finally:
        module.eval()
        for name, buffer in module.named_buffers():
            buffer.copy_(statistics[name])


def _leave_nothing_to_chance(module: nn.Module) -> None:
    """Dropout and its kin at zero, in modules and in the configs they read: two devices never draw alike."""
    for owner in _owners(module):
        for name, value in vars(owner).items():
            if name in _AT_RANDOM and value:
                setattr(owner, name, type(value)(0))
            elif isinstance(value, float) and value and (_CHANCE.fullmatch(name) or isinstance(owner, _Dropout)):
                setattr(owner, name, 0.0)


_Dropout = nn.modules.dropout._DropoutNd


def _owners(module: nn.Module) -> Iterator[Any]:
    """Every module, and every config that one of them has."""
    seen: set[int] = set()
    for part in module.modules():
        yield part
        config = getattr(part, "config", None)
        if config is not None and id(config) not in seen:
            seen.add(id(config))
            yield config
