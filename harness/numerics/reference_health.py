"""Is a reference fit to judge by? A sick one is never a pass and never the backend's failure."""

from __future__ import annotations

import torch

from harness.cases import Verdict
from harness.numerics.budget import GRADIENT, allowance, of_gradients, rms
from harness.numerics.judge import OUTLIER_FACTOR, Leaves

NOISE_LIMIT = 0.1
"""A CPU whose own error reaches a tenth of the values leaves room for anything; models stay near 1 % in bfloat16."""

SATURATION, SATURATION_SAMPLES = 0.99, 100
"""Share of a leaf's elements that are its least or its greatest where it is saturated: a sigmoid or tanh far out, which
an error in what it is of does not move. Of fewer samples two are always the extremes."""

_MASK = 1e300
"""Magnitudes in float64 above this are `finfo.min` and sums of it, which are infinite at lower dtypes by intent."""


def diagnose(
    truth: Leaves, first: Leaves, second: Leaves, hidden: Leaves | None = None, rows: int = 1
) -> tuple[Verdict, str] | None:
    """The verdict on a reference and one line of why, or None where it is fit.

    `first` and `second` are two CPU runs at the case's dtype, `truth` the float64 run. All three
    come from the same weights and inputs. `hidden` as of `judge`. `rows` is how many samples the
    inputs are of, each with contents of its own.
    """
    if not first:
        return Verdict.WEAK_REFERENCE, "the model returned no tensors"
    if first.keys() != second.keys():
        return Verdict.NONDETERMINISTIC_REFERENCE, "two CPU runs return different leaves"
    if first.keys() != truth.keys():
        return Verdict.REFERENCE_ERROR, "the float64 run returns other leaves than the run at the case's dtype"
    typical = of_gradients(truth).rms
    for path, leaf in first.items():
        if leaf.shape != second[path].shape or leaf.shape != truth[path].shape:
            return Verdict.NONDETERMINISTIC_REFERENCE, f"{path}: CPU runs return different shapes"
    deaf = rows > 1 and _deaf(truth, first, hidden or {}, rows)
    truth, first, second = (_shown(leaves, hidden or {}) for leaves in (truth, first, second))
    for path, leaf in first.items():
        if not torch.equal(torch.nan_to_num(leaf), torch.nan_to_num(second[path])):
            return Verdict.NONDETERMINISTIC_REFERENCE, f"{path}: two CPU runs differ"
        if leaf.is_floating_point() or leaf.is_complex():
            exact = truth[path]
            if torch.isnan(leaf).any() or torch.isnan(exact).any():
                return Verdict.NONFINITE_REFERENCE, f"{path}: NaN on CPU"
            if (torch.isinf(leaf) & (exact.abs() < _MASK)).any():
                return Verdict.NONFINITE_REFERENCE, f"{path}: the CPU overflows at this dtype"
            if _noise(leaf, exact, typical if path.startswith(GRADIENT) else 0.0) > NOISE_LIMIT:
                return Verdict.WEAK_REFERENCE, f"{path}: the CPU's own error is over {NOISE_LIMIT:.0%} of the values"
    gradients = [leaf for path, leaf in first.items() if path.startswith(GRADIENT)]
    if gradients and not any(leaf.any() for leaf in gradients):
        return Verdict.WEAK_REFERENCE, "every gradient is zero"
    if not any(_tells(leaf) for leaf in first.values()):
        return Verdict.WEAK_REFERENCE, "every output is constant or saturated"
    if deaf:
        return Verdict.WEAK_REFERENCE, "every output is the same for all samples: nothing of the inputs is seen in it"
    return None


def _deaf(truth: Leaves, first: Leaves, hidden: Leaves, rows: int) -> bool:
    """Is the first sample's part of every leaf that has one for each the same as all others', up to noise?"""
    told = [path for path, leaf in first.items() if leaf.dim() > 1 and leaf.shape[0] == rows]
    return bool(told) and all(_alike(truth[path], first[path], hidden.get(path)) for path in told)


def _alike(exact: torch.Tensor, leaf: torch.Tensor, hide: torch.Tensor | None) -> bool:
    apart = exact[1:] - exact[:1] if exact.is_floating_point() or exact.is_complex() else exact[1:] != exact[:1]
    if hide is not None:
        apart = apart * ~(hide[1:] | hide[:1])
    if not (leaf.is_floating_point() or leaf.is_complex()):
        return not apart.any()
    usable = torch.isfinite(apart)
    error = torch.nan_to_num(leaf.to(exact.dtype) - exact).abs().max().item()
    scale = torch.nan_to_num(exact).abs().max().item()
    return not bool((apart[usable].abs() > allowance(error, scale, leaf.dtype)).any())


def _shown(leaves: Leaves, hidden: Leaves) -> Leaves:
    """The leaves without what is of padding, those that have any flat."""
    return {path: leaf[~hidden[path]] if path in hidden else leaf for path, leaf in leaves.items()}


def _noise(leaf: torch.Tensor, exact: torch.Tensor, least: float) -> float:
    """The CPU's error at its dtype as a share of the truth (of `least`, if that is more), masks left out."""
    usable = torch.isfinite(leaf) & torch.isfinite(exact.to(leaf.dtype))
    values, errors = exact[usable].abs(), (leaf[usable].to(exact.dtype) - exact[usable]).abs()
    typical = values.median() if values.numel() else values.sum()
    ordinary = values <= OUTLIER_FACTOR * typical
    scale = max(rms(values[ordinary]), least)
    return rms(errors[ordinary]) / scale if scale else 0.0


def _tells(leaf: torch.Tensor) -> bool:
    """Could a wrong result be told from this leaf? Not from a constant or a saturated one, nor from nothing finite."""
    continuous = leaf.is_floating_point() or leaf.is_complex()
    finite = leaf[torch.isfinite(leaf)] if continuous else leaf.flatten()
    if finite.numel() == 0 or not finite.any():
        return False
    if finite.numel() == 1:
        return True
    if leaf.is_floating_point() and finite.numel() >= SATURATION_SAMPLES:
        inside = (finite != finite.min()) & (finite != finite.max())
        return bool(inside.double().mean() > 1 - SATURATION)
    return bool((finite != finite[0]).any())
