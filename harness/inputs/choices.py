"""Multiple choice: each row has several inputs to choose from."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from harness.inputs.request import Maker, Request

CHOICES = 3
"""How many there are to choose from."""


def several(request: Request, make: Maker) -> dict[str, Any]:
    """What `make` makes, CHOICES times with other contents, stacked: (batch, choices, ...)."""
    made = [make(dataclasses.replace(request, choice=index)) for index in range(CHOICES)]
    return {name: torch.stack([one[name] for one in made], dim=1) for name in made[0]}
