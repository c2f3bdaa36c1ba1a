"""Decisions: episodes of an agent, what it saw, did and got; and prompts with questions to decide."""

from __future__ import annotations

from typing import Any

import torch

from harness.inputs.request import Request
from harness.inputs.text import LENGTH, SINGLE_LENGTH, ordinary_tokens

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


def questions(request: Request) -> dict[str, Any]:
    """One prompt with a question of each type, int64: `input_ids` (1, length), and (1, questions) of each question.

    `marks` are the places after which it is decided, `num_options` is how many there are to choose from.
    """
    length = LENGTH if request.padded else SINGLE_LENGTH
    types = len(request.find("offsets"))
    return {
        "input_ids": ordinary_tokens(request, "input_ids", 1, length),
        "marks": torch.tensor([[(index + 1) * length // types - 1 for index in range(types)]]),
        "num_options": torch.full((1, types), 2),
        "question_type_ids": torch.arange(types)[None],
    }
