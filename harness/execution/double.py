"""Computing in float64 throughout: a model that asks for float32 by name would round the truth, or mix types."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NARROW = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_DRAWS = ("rand", "randn", "rand_like", "randn_like", "normal", "bernoulli")
_DRAWS_INTO = ("normal_", "uniform_", "exponential_", "log_normal_", "cauchy_")
_METHODS = {torch.Tensor.float: torch.Tensor.double, torch.Tensor.cfloat: torch.Tensor.cdouble}


class Double(TorchFunctionMode):
    """While it is entered, float32 means float64 (and complex64 complex128) wherever torch is given it."""

    def __enter__(self) -> Double:
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        torch.set_default_dtype(self._default)

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in _DRAWS or name in _DRAWS_INTO:
            return _drawn(function, name, args, kwargs or {})
        args = tuple(_NARROW.get(x, x) if isinstance(x, torch.dtype) else x for x in args)
        kwargs = {key: _NARROW.get(x, x) if isinstance(x, torch.dtype) else x for key, x in (kwargs or {}).items()}
        return _METHODS.get(function, function)(*args, **kwargs)


def _drawn(function: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """Random numbers as the run at float32 draws them, widened: in float64 a generator gives others."""
    if name in _DRAWS_INTO:
        if not args:  # torch.nn.init hands all on by name
            args, kwargs = (kwargs["tensor"],), {key: value for key, value in kwargs.items() if key != "tensor"}
        single = torch.empty(args[0].shape, dtype=torch.float32)
        function(single, *args[1:], **kwargs)
        return args[0].copy_(single)
    args = tuple(x.float() if isinstance(x, torch.Tensor) and x.dtype is torch.float64 else x for x in args)
    if name in ("rand", "randn") and kwargs.get("dtype") in (None, torch.float64):
        kwargs = kwargs | {"dtype": torch.float32}
    result = function(*args, **kwargs)
    return result.double() if result.dtype is torch.float32 else result
