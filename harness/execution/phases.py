"""What each phase does with a loaded model. The same function serves the CPU reference and every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.cases import Phase
from harness.execution import generation, sessions, training
from harness.execution.generation import Teacher
from harness.inputs import nested


def run(
    phase: Phase,
    model: Callable[..., Any],
    inputs: dict[str, Any],
    seed: int,
    *,
    teacher: Teacher | None = None,
) -> Any:
    """Run one phase of `model` (a module, or its compiled form) and return its raw output.

    `inputs` are keyword arguments already on the model's device. The CPU generator is reseeded,
    so that a model that draws on CPU draws the same on both sides. `teacher` chooses the tokens of
    `Phase.GENERATE`.
    """
    torch.manual_seed(seed)
    match phase:
        case Phase.FORWARD:
            with torch.no_grad():
                if sessions.NAME in inputs:
                    return [model(**call) for call in sessions.calls(inputs)]
                return model(**inputs)
        case Phase.GENERATE:
            with torch.no_grad():
                return generation.generate(model, inputs, teacher or Teacher())
        case Phase.TRAIN:
            return training.step(model, inputs)


def compiled(phase: Phase, model: torch.nn.Module, compiler: Callable[..., Any]) -> Callable[..., Any]:
    """`model` in the form whose runs of `phase` execute what `compiler` makes of it."""
    if phase is Phase.GENERATE:
        generation.compile_steps(model, compiler)
        return model
    return compiler(model)


def moved(inputs: dict[str, Any], device: str) -> dict[str, Any]:
    """`inputs` with every tensor copied to `device`, nested lists, tuples and dicts included."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        # a clone, so that an in-place change by the model cannot reach the next run's inputs
        return tensor.to(device) if tensor.device.type != device else tensor.clone()

    return nested.mapped(inputs, move)
