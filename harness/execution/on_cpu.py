"""What computes on CPU the operators of PyTorch that only backends outside of it have kernels for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_aten = torch.ops.aten


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    *causal: bool,
    scale: float | None = None,
) -> torch.Tensor:
    """The first result of `_scaled_dot_product_fused_attention_overrideable`: (batch, heads, queries, width)."""
    return _aten._scaled_dot_product_attention_math(q, k, v, bias, dropout, *causal[:1], scale=scale)[0]


def attention_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    wanted: Sequence[bool],
    out: torch.Tensor,
    *rest: Any,
    scale: float | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """Gradients for q, k and v where they are wanted, each of its input's shape.

    With P = softmax(S), S = q kᵀ scale + bias and O = P v: dV = Pᵀ dO, dS = P (dO vᵀ - rowsum(dO O)), dQ = dS k scale,
    dK = dSᵀ q scale (Dao et al., FlashAttention, 2022, appendix B.2).
    """
    causal = rest[6]  # after logsumexp, two cumulated lengths, two largest lengths, and dropout
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.mT * scale
    if bias is not None:
        scores = scores + bias
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    weights = _aten._safe_softmax(scores, -1)  # of a query that may see nothing all weights are zero
    slopes = weights * (grad @ v.mT - (grad * out).sum(-1, keepdim=True))
    found = (slopes @ k * scale, slopes.mT @ q * scale, weights.mT @ grad)
    return tuple(one if asked else None for one, asked in zip(found, wanted, strict=False))


def linear_backward(
    x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, wanted: Sequence[bool]
) -> tuple[torch.Tensor | None, ...]:
    """Gradients for input, weight and bias of a linear layer where they are wanted: dX = dY W, dW = dYᵀ X, db = ΣdY."""
    rows = grad.reshape(-1, grad.shape[-1])
    found = (grad @ weight, rows.mT @ x.reshape(-1, x.shape[-1]), rows.sum(0))
    return tuple(one if asked else None for one, asked in zip(found, wanted, strict=True))


ON_CPU: dict[Any, Callable[..., Any]] = {
    _aten._scaled_dot_product_fused_attention_overrideable.default: attention,
    _aten._scaled_dot_product_fused_attention_overrideable_backward.default: attention_backward,
    _aten.linear_backward.default: linear_backward,
}
"""By operator; each takes its arguments and returns its first results, those that are a matter of values."""

TIED = frozenset({_aten._scaled_dot_product_fused_attention_overrideable_backward.default})
"""Operators that are given what a forward pass came to, beside what it was given: drawn arguments do not fit."""
