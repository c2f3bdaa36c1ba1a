"""Why a target's outputs differ from the reference: a toss-up, more noise than one run shows, narrower products?"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.cases import Dtype, Phase, Verdict
from harness.execution import choices, reference
from harness.execution.choices import Forcing, Watching, same
from harness.execution.generation import Teacher
from harness.execution.narrow import PRECISIONS, Narrow
from harness.execution.reference import Reference
from harness.inputs import cast
from harness.models.weights import generator
from harness.numerics.budget import rms
from harness.numerics.judge import Judgement, Leaves, judge

NEAR_WEIGHTS = 3
"""Models with weights a rounding away that are run: with the first run and other kernels', five draws of noise."""


@dataclass(frozen=True, slots=True)
class Look:
    """The judgement on outputs by a reference that makes the same choices, where noise can make them.

    `flips` counts those that the CPU by itself makes otherwise, None where the two runs' choices cannot be paired.
    `draws` is how many CPU runs the noise was taken from. `precision` is the widest type whose products, on CPU, are as
    far off as the outputs are; empty where none is.
    """

    judged: Judgement
    flips: int | None
    draws: int
    precision: str


def look(
    model: nn.Module,
    truth: nn.Module,
    inputs: dict[str, Any],
    known: Reference,
    returned: Leaves,
    picks: list[torch.Tensor],
    *,
    phase: Phase,
    dtype: Dtype,
    seed: int,
) -> Look:
    """Look again at the leaves that a target `returned`, in a run that chose `picks` (int64, one tensor a call).

    Other arguments as of `reference.compute`, and `known` is what that returned.
    """
    given = cast(inputs, dtype)

    def cpu() -> Leaves:
        return reference.run(model, given, phase, seed, Teacher(known.tokens))

    def exact() -> Leaves:
        return reference.exact(truth, given, phase, seed, known.tokens, known.computed_in)

    flips, fair = None, known
    with Watching(scores=True) as own:
        cpu()
    with Watching(scores=True) as right:
        exact()
    noises = choices.noises(own.scores, right.scores)
    if noises is not None and [x.shape for x in picks] == [x.shape for x in own.picks]:
        with Forcing(picks, noises), Watching() as right:
            fair_truth = exact()
        with Forcing(right.picks, noises, ties=True), Watching() as chosen:
            fair_cpu = cpu()
        if same(right.picks, chosen.picks):
            flips = sum(int((a != b).any(1).sum()) for a, b in zip(own.picks, chosen.picks, strict=True))
            fair = replace(known, truth=fair_truth, cpu=fair_cpu)

    def chosen_cpu() -> Leaves:
        with contextlib.nullcontext() if flips is None else Forcing(right.picks, noises, ties=True):
            return cpu()

    judged, draws = judge(fair.truth, fair.cpu, returned, fair.hidden), 1
    if judged.verdict is Verdict.NUMERIC_MISMATCH:
        runs = [fair.cpu, *_other_draws(model, chosen_cpu, seed)]
        noisiest = {path: _noisiest(fair.truth[path], [run[path] for run in runs]) for path in fair.cpu}
        again = judge(fair.truth, noisiest, returned, fair.hidden)
        if again.verdict is Verdict.PASS:
            judged, draws = again, len(runs)
    return Look(judged, flips, draws, _precision(fair, returned, chosen_cpu, judged) if dtype == Dtype.FLOAT32 else "")


def _other_draws(model: nn.Module, run: Callable[[], Leaves], seed: int) -> Iterator[Leaves]:
    """More correct CPU runs, whose roundings are others: by other kernels, and from weights as near as rounding is.

    A backward stable computation returns what is exact for inputs within a few units of rounding (Higham, Accuracy and
    Stability of Numerical Algorithms, 1.5), so how far such weights move the outputs is noise that nobody can avoid.
    """
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.filterwarnings("ignore", "TF32 acceleration on top of oneDNN")
        with torch.backends.mkldnn.flags(enabled=False):
            yield run()
    kept = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for number in range(NEAR_WEIGHTS):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                share = torch.rand(parameter.shape, generator=generator(seed, f"near {number} {name}")) - 0.5
                unit = torch.finfo(parameter.dtype).eps if parameter.is_floating_point() else 0.0
                parameter.copy_(kept[name] * (1 + unit * share).to(parameter.dtype))
        try:
            yield run()
        finally:
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(kept[name])


def _noisiest(truth: torch.Tensor, runs: list[torch.Tensor]) -> torch.Tensor:
    """Of some runs' values of a leaf those furthest from the truth by root mean square; the first's if discrete."""
    if not truth.is_floating_point() or any(run.shape != truth.shape for run in runs):
        return runs[0]
    return max(runs, key=lambda run: rms(torch.nan_to_num(run.double() - truth, posinf=0.0, neginf=0.0)))


def _precision(fair: Reference, returned: Leaves, run: Callable[[], Leaves], judged: Judgement) -> str:
    if judged.verdict is not Verdict.NUMERIC_MISMATCH:
        return ""
    for name in PRECISIONS:
        with Narrow(name):
            narrow = run()
        if judge(fair.truth, narrow, returned, fair.hidden).verdict is Verdict.PASS:
            return name
    return ""
