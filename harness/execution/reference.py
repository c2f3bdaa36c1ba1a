"""The CPU reference of a case: the truth, in float64, and the CPU's own answer at the case's dtype."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from harness.cases import Dtype, Phase, Verdict
from harness.execution import choices, outputs, padding, phases
from harness.execution.choices import Forcing, Watching, same
from harness.execution.double import Double
from harness.execution.generation import Teacher
from harness.inputs import cast
from harness.numerics import reference_health
from harness.numerics.judge import Leaves

WIDEST = "float64"


@dataclass(frozen=True, slots=True)
class Reference:
    """Output leaves of the truth (float64) and of the CPU at the case's dtype, on CPU.

    `computed_in` is the dtype that the truth was computed in: float64, or float32 where the model cannot run in that.
    `tokens` are what the CPU chose at each step of generation (see `Teacher`), none in other phases.
    `hidden` tells of the leaves that have elements of padding which these are, bool, of the leaf's shape.
    `operators` are the operators of PyTorch that the model's code calls by name, `gelu`, in alphabetical order; those
    that they call in turn, and Python's own signs such as `~x` and `x[0]`, are not among them, and those few are that
    the harness calls to copy outputs and to train.
    """

    truth: Leaves
    cpu: Leaves
    tokens: list[torch.Tensor] = field(default_factory=list)
    hidden: Leaves = field(default_factory=dict)
    computed_in: str = WIDEST
    operators: list[str] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write with `torch.save`."""
        torch.save({field.name: getattr(self, field.name) for field in fields(self)}, path)

    @classmethod
    def read(cls, path: Path) -> Reference:
        """Read what `save` wrote (tensors only, no code is run)."""
        return cls(**torch.load(path, weights_only=True))


def compute(
    model: torch.nn.Module, truth: torch.nn.Module, inputs: dict[str, Any], *, phase: Phase, dtype: Dtype, seed: int
) -> tuple[Reference, tuple[Verdict, str] | None]:
    """Run the reference twice at `dtype`, then once in float64 from the same (rounded) weights and inputs.

    In training the second run draws from another seed, since nothing may be left to chance there. What is a toss-up at
    `dtype` the truth chooses as the CPU did, so that the distance between them is rounding alone. A model that cannot
    run in float64 has its truth in float32 where `dtype` is narrower than that.

    `model` is on CPU at `dtype`, `truth` the same model computing in float64. Returns the reference and,
    where it is not fit to judge by, the verdict that says so with one line of why.
    """
    given = cast(inputs, dtype)
    free = Teacher()
    with Watching() as seen:  # as in the second run: under a mode some modules compute otherwise
        first = run(model, given, phase, seed, free)
    with Watching(scores=True) as own:
        second = run(model, given, phase, seed + (phase is Phase.TRAIN), Teacher(free.tokens))
    computed_in = WIDEST

    def exact_run() -> Leaves:
        return exact(truth, given, phase, seed, free.tokens, computed_in)

    try:
        with Watching(scores=True) as right:
            leaves = exact_run()
    except (RuntimeError, TypeError, ValueError):  # as kernels and models say that they lack a type
        if dtype == Dtype.FLOAT32:
            raise
        computed_in = "float32"
        with Watching(scores=True) as right:
            leaves = exact_run()
    noises = None if same(own.picks, right.picks) else choices.noises(own.scores, right.scores)
    if noises is not None:
        with Forcing(own.picks, noises, ties=True):
            leaves = exact_run()
    hidden = padding.hidden(given, first, phase)
    sick = reference_health.diagnose(leaves, first, second, hidden, _rows(given))
    return Reference(leaves, first, free.tokens, hidden, computed_in, _operators(seen.called)), sick


def _operators(called: set[str]) -> list[str]:
    return sorted(name for name in called if name and not name.startswith("__") and hasattr(torch.ops.aten, name))


def exact(
    truth: torch.nn.Module,
    given: dict[str, Any],
    phase: Phase,
    seed: int,
    tokens: list[torch.Tensor],
    computed_in: str = WIDEST,
) -> Leaves:
    """Output leaves of one run of `truth` in the dtype `computed_in`, as float64."""
    model = truth if computed_in == WIDEST else truth.float()
    with Double() if computed_in == WIDEST else contextlib.nullcontext():
        leaves = run(model, cast(given, computed_in), phase, seed, Teacher(tokens))
    return {path: leaf.double() if leaf.is_floating_point() else leaf for path, leaf in leaves.items()}


def _rows(inputs: dict[str, Any]) -> int:
    """Samples that inputs are of: the size that all their tensors begin with, one where they differ."""
    sizes = {value.shape[0] for value in inputs.values() if isinstance(value, torch.Tensor) and value.dim()}
    return sizes.pop() if len(sizes) == 1 else 1


def run(
    model: torch.nn.Module, inputs: dict[str, Any], phase: Phase, seed: int, teacher: Teacher | None = None
) -> Leaves:
    """Output leaves of one phase on CPU, as contiguous copies that share nothing with the model or with each other."""
    returned = outputs.leaves(phases.run(phase, model, phases.moved(inputs, "cpu"), seed, teacher=teacher))
    return {path: leaf.detach().clone(memory_format=torch.contiguous_format) for path, leaf in returned.items()}
