"""Why a target's outputs differ from the reference: a choice that was a toss-up, or products of a narrower type?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from harness.cases import Dtype, Phase, Verdict
from harness.execution import choices, reference
from harness.execution.choices import Forcing, Watching, same
from harness.execution.double import Double
from harness.execution.generation import Teacher
from harness.execution.narrow import PRECISIONS, Narrow
from harness.execution.reference import Reference
from harness.inputs import cast
from harness.numerics.judge import Judgement, Leaves, judge


@dataclass(frozen=True, slots=True)
class Look:
    """The judgement on outputs by a reference that makes the same choices, where noise can make them.

    `flips` counts those that the CPU by itself makes otherwise, None where the two runs' choices cannot be paired.
    `precision` is the widest type whose products, on CPU, are as far off as the outputs are; empty where none is.
    """

    judged: Judgement
    flips: int | None
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
        with Double():
            return reference.run(truth, cast(given, "float64"), phase, seed, Teacher(known.tokens))

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
            fair = Reference(fair_truth, fair_cpu, known.tokens, known.hidden)
    judged = judge(fair.truth, fair.cpu, returned, fair.hidden)
    return Look(judged, flips, _precision(fair, returned, cpu, judged) if dtype == Dtype.FLOAT32 else "")


def _precision(fair: Reference, returned: Leaves, run: Any, judged: Judgement) -> str:
    if judged.verdict is not Verdict.NUMERIC_MISMATCH:
        return ""
    for name in PRECISIONS:
        with Narrow(name):
            narrow = run()
        if judge(fair.truth, narrow, returned, fair.hidden).verdict is Verdict.PASS:
            return name
    return ""
