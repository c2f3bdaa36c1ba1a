"""Decisions: episodes of an agent, and prompts with questions that have options."""

from __future__ import annotations

from typing import Any

import torch

from harness.inputs.request import Request
from harness.inputs.text import LENGTH, SINGLE_LENGTH, ordinary_tokens

STEPS = 6
SINGLE_STEPS = 4
HIDDEN = 2
"""First steps of the second row that are padding in the `padded` profile."""
OPTIONS = 2
"""Answers that a question has at least, whatever its type."""


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
    """One prompt, `input_ids` int64 (1, length), and of each question its place, number of options and type.

    Such models take one prompt at a time, so `single` differs in its length and has a question less.
    """
    length = LENGTH if request.padded else SINGLE_LENGTH
    types = torch.arange(len(request.find("offsets")))[: None if request.padded else -1]
    marks = (torch.arange(len(types)) + 1) * length // len(types) - 1
    return {
        "input_ids": ordinary_tokens(request, "input_ids", 1, length),
        "marks": marks[None],
        "num_options": torch.full((1, len(types)), OPTIONS),
        "question_type_ids": types[None],
    }
