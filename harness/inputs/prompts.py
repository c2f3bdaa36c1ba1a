"""What a user points at: places in a picture at which a model is to find objects."""

from __future__ import annotations

from typing import Any

import torch

from harness.inputs.request import Request

OBJECTS = 2
POINTS = 3
CLICK, NOT_HERE, NO_POINT = 1, 0, -10
"""Labels of points, as the models of this kind number them: of the object or not, or there to fill up."""


def prompts(request: Request, height: int, width: int) -> dict[str, Any]:
    """Points and, for the `padded` profile, boxes of each object, float32 in pixels, across before down.

    `input_points` (batch, objects, points, 2) with int64 `input_labels`, `input_boxes` (batch, objects, 4) as left,
    top, right, bottom; those of them that the model takes. `padded` asks for several masks of each object, as models
    of this kind answer by default, `single` for the one mask that they make where `multimask_output` is false.
    """
    side = torch.tensor([width, height])
    shares = torch.rand(request.batch, OBJECTS, POINTS, 2, generator=request.generator("input_points"))
    labels = torch.tensor([CLICK, NOT_HERE, CLICK]).expand(request.batch, OBJECTS, POINTS).contiguous()
    made = {"input_points": shares * side, "input_labels": labels}
    if request.padded:
        labels[1, :, -1] = NO_POINT
        corners = torch.rand(request.batch, OBJECTS, 2, 2, generator=request.generator("input_boxes"))
        low, high = corners.sort(dim=2).values.unbind(dim=2)
        made["input_boxes"] = torch.cat([low * side, high * side], dim=-1)
    else:
        made["multimask_output"] = False
    return {name: value for name, value in made.items() if name in request.names}
