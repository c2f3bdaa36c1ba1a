"""The noise schedule of models that draw sounds out of noise, which a user hands to `generate`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

NAME = "noise_scheduler"
"""The argument whose value is not what `harness.inputs` makes but what is opened from it."""


def opened(inputs: dict[str, Any]) -> dict[str, Any]:
    """A copy of `inputs`, a fresh schedule (see `harness.inputs.companions`) in place of its description, if any."""
    return inputs | ({NAME: CosineSchedule(**inputs[NAME])} if NAME in inputs else {})


@dataclass(frozen=True, slots=True)
class Step:
    """What one step leaves: the sample with less noise, of its shape, dtype and device."""

    prev_sample: torch.Tensor


@dataclass(slots=True)
class CosineSchedule:
    """A cosine schedule and its deterministic sampler (DDIM), for networks that predict velocities.

    At a time t of 0 to `train_steps` a sample is a x + b e with x what is sought, e the noise, and a, b the cosine
    and sine of the share that t is of a right angle; the velocity is a e - b x (Salimans and Ho 2022, appendix D).
    It is by time alone that a step is told, as those of `diffusers` are; numbers are Python's, the same everywhere.
    """

    train_steps: int
    timesteps: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def set_timesteps(self, num_inference_steps: int) -> None:
        """So many times from the last down, equally far apart: int64 on CPU."""
        stride = self.train_steps // num_inference_steps
        self.timesteps = torch.arange(num_inference_steps, 0, -1) * stride - 1

    def step(self, velocity: torch.Tensor, timestep: torch.Tensor, sample: torch.Tensor) -> Step:
        """From the time `timestep`, one of `timesteps`, to the next lower one, the last one to no noise at all."""
        time = int(timestep)
        later = [each for each in self.timesteps.tolist() if each < time]
        signal, noise = self._shares(time)
        sought = signal * sample - noise * velocity
        present = noise * sample + signal * velocity
        signal, noise = self._shares(later[0]) if later else (1.0, 0.0)
        return Step(signal * sought + noise * present)

    def _shares(self, time: int) -> tuple[float, float]:
        angle = math.pi / 2 * (time + 1) / (self.train_steps + 1)
        return math.cos(angle), math.sin(angle)
