"""The CPU as a backend that multiplies in a narrower type: what a mismatch is compared with, to tell why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = frozenset({
    "mm", "bmm", "addmm", "addmv", "mv", "dot", "baddbmm", "convolution", "convolution_backward",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
})  # fmt: skip
"""ATen operators whose work is sums of products, which matrix units do."""


def _to_bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def _to_tensorfloat32(x: torch.Tensor) -> torch.Tensor:
    """To the nearest number of 10 bits after the first one, as NVIDIA's tensor cores read float32 (A100 whitepaper)."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


PRECISIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tensorfloat32": _to_tensorfloat32,
    "bfloat16": _to_bfloat16,
}
"""Types that backends may multiply float32 matrices in, the least narrow first. TPUs do in bfloat16 by default."""


class Narrow(TorchDispatchMode):
    """While it is entered, products of float32 matrices are of operands rounded to the `precision` of that name."""

    def __init__(self, precision: str) -> None:
        super().__init__()
        self._rounded = PRECISIONS[precision]

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if function._overloadpacket.__name__ in _PRODUCTS:
            args = tuple(self._rounded(x) if self._is_operand(x) else x for x in args)
        return function(*args, **(kwargs or {}))

    @staticmethod
    def _is_operand(x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.dtype is torch.float32 and x.dim() > 1
