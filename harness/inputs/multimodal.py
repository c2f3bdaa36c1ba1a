"""Text and pictures together: beside each other, or with placeholder tokens where picture features go."""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.inputs.request import Request
from harness.inputs.text import PADDING, ordinary_tokens, pad_token, text
from harness.inputs.vision import channels, picture, size, vision

BEFORE = 3
"""Words before the picture."""
AFTER = 12
"""Words after it; eight for `single`."""
GRID = (1, 4, 4)
"""Frames and rows and columns of patches, for models that take pictures as a packed list of patches."""
SINGLE_GRID = (1, 4, 6)


def text_and_picture(request: Request) -> dict[str, Any]:
    """A text and a picture for each row."""
    return text(request) | vision(request)


def placeholders(request: Request) -> dict[str, Any]:
    """`input_ids` with one placeholder for each feature of the row's picture, padded left, and the pictures."""
    pictures, count = _packed(request) if "image_grid_thw" in request.names else _whole(request)
    image = request.find("image_token_id", "image_token_index")
    before, after = [image] * 0, [image] * 0
    if (start := request.look("vision_start_token_id")) is not None:
        before, after = [start], [request.find("vision_end_token_id")]
    marked = torch.tensor([*before, *[image] * count, *after])
    words = AFTER if request.padded else AFTER - 4
    padding = PADDING if request.padded else 0
    rows, masks = [], []
    for row in range(request.batch):
        hidden = padding if row == 1 else 0
        lead = ordinary_tokens(request, f"before.{row}", BEFORE)
        tail = ordinary_tokens(request, f"after.{row}", words - hidden)
        rows.append(torch.cat([torch.full((hidden,), pad_token(request)), lead, marked, tail]))
        masks.append((torch.arange(len(rows[0])) >= hidden).long())
    result = {"input_ids": torch.stack(rows), "attention_mask": torch.stack(masks)} | pictures
    if "mm_token_type_ids" in request.names:
        result["mm_token_type_ids"] = (result["input_ids"] == image).long()
    return result


def _whole(request: Request) -> tuple[dict[str, Any], int]:
    """Pictures of one size and the number of features of each."""
    part = request.part("vision_config")
    # Models that split a picture into tiles take a list of pictures for each row.
    leading = (request.batch, 1) if "pixel_attention_mask" in request.names else (request.batch,)
    pixels = picture(request, "pixel_values", part, *leading)
    patch = request.find("patch_size", config=part)
    patch = patch if isinstance(patch, int) else patch[0]
    count = math.prod(side // patch for side in size(request, part))
    count = round(count * (request.look("downsample_ratio") or 1) ** 2 / (request.look("scale_factor") or 1) ** 2)
    return {"pixel_values": pixels}, request.numbers.get("image_tokens", count)


def _packed(request: Request) -> tuple[dict[str, Any], int]:
    """Patches of all pictures one below the other, the grid of each, and the number of features of one picture."""
    part = request.part("vision_config")
    grid = GRID if request.padded else SINGLE_GRID
    patch, merge = request.find("patch_size", config=part), request.find("spatial_merge_size", config=part)
    values = channels(request, part) * (request.look("temporal_patch_size", config=part) or 1) * patch * patch
    pixels = request.normal("pixel_values", request.batch * math.prod(grid), values)
    grids = torch.tensor([grid] * request.batch)
    return {"pixel_values": pixels, "image_grid_thw": grids}, math.prod(grid) // merge**2
