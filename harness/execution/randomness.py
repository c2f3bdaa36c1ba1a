"""Random numbers of a model's own: drawn on CPU whatever device they are for, so that both sides have the same.

A model that draws inside its forward method (random rotations of hashed attention, masks of masked autoencoders,
noise of decoders) draws on its device, whose generator gives other numbers than the CPU's from the same seed. What
it makes of its numbers is compared; how a device draws them is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_IN_PLACE = (
    "normal_", "uniform_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_.float",
    "bernoulli_.Tensor", "random_", "random_.from", "random_.to",
)  # fmt: skip
_INTO = (
    "bernoulli.out", "multinomial.out", "normal.Tensor_Tensor_out", "normal.Tensor_float_out",
    "normal.float_Tensor_out", "randperm.generator_out",
)  # fmt: skip
_RETURNED = (
    "multinomial", "normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor", "native_dropout",
    "_fused_dropout",
)  # fmt: skip
"""ATen operators that draw. All others (`rand`, `randn`, `randint`, `bernoulli`, ...) are made of these."""

_libraries: dict[str, torch.library.Library] = {}
_twins: dict[int, tuple[torch.Generator, torch.Generator]] = {}


def draw_on_cpu(device_type: str) -> None:
    """From now on tensors of `device_type` get their random numbers from the CPU, in this process.

    Not for programs that torch.compile makes: they would have to hold a tensor of another device. A generator of the
    device's own is followed by one on CPU with the seed it began with.
    """
    if device_type == "cpu" or device_type in _libraries:
        return
    key = "PrivateUse1" if device_type == torch._C._get_privateuse1_backend_name() else device_type.upper()
    library = _libraries[device_type] = torch.library.Library("aten", "IMPL")
    for names, kernel in ((_IN_PLACE, _in_place), (_INTO, _into), (_RETURNED, _returned)):
        for name in names:
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                library.impl(name, kernel(_on_cpu(name)), key, allow_override=True)


def _on_cpu(name: str) -> Callable[..., Any]:
    """The CPU's kernel of an operator, given what belongs to a device moved to the CPU."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def call(*args: Any, **kwargs: Any) -> Any:
        return operator(*map(_moved, args), **{key: _moved(value) for key, value in kwargs.items()})

    return call


def _moved(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return value.cpu()
        case torch.Generator() if value.device.type != "cpu":
            known = _twins.setdefault(id(value), (value, torch.Generator().manual_seed(value.initial_seed())))
            return known[1]
        case _:
            return value


def _in_place(operator: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensor, *args, **kwargs: tensor.copy_(
        operator(torch.empty_like(tensor, device="cpu"), *args, **kwargs)
    )


def _into(operator: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        drawn = operator(*args, **kwargs, out=torch.empty_like(out, device="cpu"))
        return out.resize_(drawn.shape).copy_(drawn)

    return kernel


def _returned(operator: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        device = next(x.device for x in args if isinstance(x, torch.Tensor))
        drawn = operator(*args, **kwargs)
        return drawn.to(device) if isinstance(drawn, torch.Tensor) else tuple(x.to(device) for x in drawn)

    return kernel
