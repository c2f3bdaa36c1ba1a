"""The noise budget: how much error a leaf of outputs may have.

The truth is a float64 CPU run of the same weights and inputs. A correct backend at a lower
dtype rounds about as often as the CPU does at that dtype, only in another order, so the CPU's
own distance from the truth says how noisy the model is; the target gets a multiple of it. (The
same idea decides accuracy in PyTorch's Dynamo benchmarks, which compare root-mean-square
errors against float64 with a multiplier.) The CPU can be exact by luck, for instance where a
model only gathers rows, so a floor of a few units in the last place is added:

    rms(target - truth) <= NOISE_MULTIPLIER * rms(cpu - truth) + FLOOR_ULPS[dtype] * eps(dtype) * rms(truth)
    max|target - truth| <= NOISE_MULTIPLIER * max|cpu - truth| + FLOOR_ULPS[dtype] * eps(dtype) * max|truth|

The first line sees an error spread over the leaf, the second one wrong element among millions.
Both scale with the leaf, so multiplying a model's outputs by a constant changes nothing.

Gradients need two things more. Some are sums of terms that cancel: a key's bias moves all scores of a
row alike, so its gradient is zero, and what is computed is the rounding of the terms. Such a leaf has
no scale of its own, and one run's rounding does not bound another's. The terms are made of the same
activations as the gradients that do not cancel, so these give the scale: where a gradient is smaller
than the model's typical one, the floor is taken from the typical one,

    rms(truth) -> max(rms(truth), median over gradients of rms)
    max|truth| -> max(max|truth|, median over gradients of max)

The median, since a single huge gradient must not excuse the others. What this leaves unseen is an
error of FLOOR_ULPS units in the last place of a typical gradient: at float32, 2e-6 of one.

And some of the CPU's kernels for the backward pass (batch normalisation's among them) sum in a wider
type than they return, so that the CPU's own error is several times smaller than that of arithmetic in
the dtype itself: gradients get twice the multiple.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

import torch

from harness.numerics.multipliers import GRADIENT_NOISE_MULTIPLIER, NOISE_MULTIPLIER

GRADIENT = "grad."
"""Beginning of the names of leaves that are gradients."""

FLOOR_ULPS = {torch.float64: 16.0, torch.float32: 16.0, torch.bfloat16: 2.0, torch.float16: 2.0}
"""A transcendental function may be off by 4 ulp on one side alone (XLA's and SLEEF's documented
bounds are 1 to 4), and a few of them follow each other in an activation or a normalisation. Kernels
for the half types compute in float32 and round at the end, so that two of them differ by one ulp of
the result where the rounding falls on the other side, and by two after one more operation."""


def eps(dtype: torch.dtype) -> float:
    """Distance from 1 to the next number of `dtype`."""
    return torch.finfo(dtype).eps


def rms(x: torch.Tensor) -> float:
    """Root mean square of a float64 tensor; 0 for an empty one.

    Divided by the largest magnitude first, so that squares neither overflow nor vanish.
    """
    if x.numel() == 0:
        return 0.0
    top = x.abs().max().item()
    if top == 0.0:
        return 0.0
    return top * (x / top).square().mean().sqrt().item()


class Lenience(NamedTuple):
    """How a kind of leaf is judged: the multiple of the CPU's error, and the least scales its floor is taken from."""

    multiplier: float
    rms: float
    top: float


ORDINARY = Lenience(NOISE_MULTIPLIER, 0.0, 0.0)


def of_gradients(truth: Mapping[str, torch.Tensor]) -> Lenience:
    """How the gradients among some leaves are judged."""
    gradients = [leaf for name, leaf in truth.items() if name.startswith(GRADIENT) and leaf.any()]
    if not gradients:
        return ORDINARY
    tops = [leaf.abs().max().item() for leaf in gradients]
    typical = statistics.median(rms(leaf) for leaf in gradients)
    return Lenience(GRADIENT_NOISE_MULTIPLIER, typical, statistics.median(tops))


def allowance(cpu_error: float, scale: float, dtype: torch.dtype, multiplier: float = NOISE_MULTIPLIER) -> float:
    """Allowed error, in the leaf's units, from the CPU's own error and the leaf's scale (both same measure)."""
    real = dtype.to_real()
    return multiplier * cpu_error + FLOOR_ULPS[real] * eps(real) * scale
