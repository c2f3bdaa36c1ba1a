"""Episodes of an agent: what it saw, did and got."""

from __future__ import annotations

from typing import Any

import torch

from harness.inputs.request import Request

STEPS = 6
SINGLE_STEPS = 4
HIDDEN = 2
"""First steps of the second row that are padding in the `padded` profile."""


def episode(request: Request) -> dict[str, Any]:
    """States, actions and rewards, float32 (batch, steps, sizes), numbered and masked by int64 (batch, steps)."""
    steps = STEPS if request.padded else SINGLE_STEPS
    mask = torch.ones(request.batch, steps, dtype=torch.long)
    if request.padded:
        mask[1, :HIDDEN] = 0
    return {
        "states": request.normal("states", request.batch, steps, request.find("state_dim")),
        "actions": request.normal("actions", request.batch, steps, request.find("act_dim")),
        "rewards": request.normal("rewards", request.batch, steps, 1),
        "returns_to_go": request.normal("returns_to_go", request.batch, steps, 1),
        "timesteps": torch.arange(steps).repeat(request.batch, 1),
        "attention_mask": mask,
    }
