"""A case as every job on the target's side has it: its model, inputs and reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from harness import models
from harness.cases import Mode
from harness.execution import phases, randomness
from harness.execution.generation import Teacher
from harness.execution.reference import Reference
from harness.inputs import cast
from harness.jobs import zygote
from harness.jobs.cache import INPUTS, REFERENCE
from harness.jobs.payload import case_of
from harness.targets.base import Target


class Subject:
    """The case of a job's payload on `target`; `known` is its reference.

    What the payload names as a fault is put into the backend first. Raises OSError.
    """

    def __init__(self, target: Target, payload: dict[str, Any]) -> None:
        if payload["fault"]:
            zygote.call(payload["fault"])()
        folder = Path(payload["folder"])
        self.target, self.case = target, case_of(payload["case"])
        self.known = Reference.read(folder / REFERENCE)
        self._given = cast(torch.load(folder / INPUTS, weights_only=True), self.case.dtype)
        self._checkpoint, self._seed = Path(payload["checkpoint"]), payload["seed"]
        if self.case.mode is not Mode.COMPILED:
            randomness.draw_on_cpu(target.device_type)

    def load(self) -> torch.nn.Module:
        """The model on the target, as a user loads it. Raises what loading raises."""
        options = self.target.load_options()
        return models.load(self.case.entry, self._checkpoint, self.case.dtype, self.target.device_type, **options)

    def on_cpu(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """The same model on CPU, at the case's dtype and in float64. Raises what loading raises."""
        where = self.case.entry, self._checkpoint, self.case.dtype
        return models.load(*where, "cpu"), models.load_truth(*where)

    def inputs(self) -> dict[str, Any]:
        """The inputs of one run, on the target."""
        return phases.moved(self._given, self.target.device_type)

    def run(self, runner: Any, inputs: dict[str, Any]) -> Any:
        """What the case's phase returns of `runner`, the model or what it was compiled to. Raises what that raises."""
        return phases.run(self.case.phase, runner, inputs, self._seed, teacher=Teacher(self.known.tokens))
