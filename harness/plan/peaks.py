"""How much memory a case is going to need, from what the store has seen or from what is known of the model."""

from __future__ import annotations

from harness.cases import Case, Dtype, Phase, Weights
from harness.records import Peak

MARGIN = 1.25
"""A case may need this many times what it last needed: by as much `zoo diff` lets a peak move before it tells."""

GUESS = 512 * 2**20
"""Bytes assumed for a reduced model that has not run yet: 95 % of all that transformers registers need at most
405 MiB, and the largest 1,264 MiB (`zoo coverage`, which measures the process of the reference)."""

_BYTES = {Dtype.FLOAT32: 4, Dtype.BFLOAT16: 2, Dtype.FLOAT16: 2}
_TRUTH = 8
"""Bytes of a parameter in the float64 model that the truth is computed with, beside the one at the case's dtype."""
_COPIES = {Phase.FORWARD: 1, Phase.GENERATE: 1, Phase.TRAIN: 5}
"""Values that are kept for each parameter: itself, and of a step of training (plain SGD) its gradient and what it
became, each as returned and copied, in float64 once and in the case's dtype by two runs. Measured on 48 million
parameters of linear layers in float32: 12.4 bytes a parameter forward and 61.8 in training; this says 12 and 60."""
_ON_DEVICE = {Phase.FORWARD: 1, Phase.GENERATE: 1, Phase.TRAIN: 3}
"""The same on the device: in training its gradient, and the value that it has again after the step."""


def predicted(case: Case, seen: int | None = None) -> Peak:
    """The peak of a case whose largest recent one was `seen` bytes, None where none was.

    What was seen is the process on the target; that of the reference, of real weights, may need more.
    """
    weights = device = None
    if case.entry.weights is Weights.HUB and case.entry.params:
        weights = case.entry.params * (_BYTES[case.dtype] + _TRUTH) * _COPIES[case.phase]
        device = case.entry.params * _BYTES[case.dtype] * _ON_DEVICE[case.phase]
    if seen is not None:
        return Peak(max(int(MARGIN * seen), weights or 0), seen, device)
    return Peak(GUESS + (weights or 0), weights, device)
