"""Pictures: channels first, normalised values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from harness.inputs.prompts import prompts
from harness.inputs.request import Request
from harness.inputs.text import decoder

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

SIDE = 64
"""Side in pixels where the config names none: models that shrink pictures by strides of 32 keep 2 x 2 of it."""
OTHER_SIDE = 96
GRID = (1, 4, 4)
"""Frames and rows and columns of patches, for models that take pictures as a packed list of patches."""
SINGLE_GRID = (1, 4, 6)
GRIDS = frozenset({"grid_thw", "image_grid_thw", "image_grid_hw"})
"""Arguments that tell the grid of each picture, with or without its frames."""


def vision(request: Request) -> dict[str, Any]:
    """`pixel_values` float32 (batch, channels, height, width)."""
    part = request.vision()
    if "spatial_shapes" in request.names:
        return patches(request, part)
    if request.names & GRIDS:
        return packed_patches(request, "pixel_values" if "pixel_values" in request.names else "hidden_states")[0]
    several = (request.numbers["pictures"],) if "pictures" in request.numbers else ()
    result = {"pixel_values": picture(request, "pixel_values", part, request.batch, *several)}
    if "image_sizes" in request.names:
        result["image_sizes"] = torch.tensor([size(request, part)] * request.batch)
    if "pixel_mask" in request.names and not several:
        result["pixel_mask"] = _mask_of(request, result["pixel_values"])
    if "input_points" in request.names:
        result |= prompts(request, *result["pixel_values"].shape[-2:])
    return result | (decoder(request) if request.config.is_encoder_decoder else {})


def _mask_of(request: Request, pixels: torch.Tensor) -> torch.Tensor:
    """`pixel_mask` int64 (batch, height, width); for `padded` the second picture becomes less wide, and padded."""
    mask = torch.ones(pixels.shape[0], *pixels.shape[-2:], dtype=torch.long)
    if request.padded:
        kept = pixels.shape[-1] * 3 // 4
        mask[1, :, kept:] = 0
        pixels[1, ..., kept:] = 0
    return mask


def packed_patches(request: Request, name: str) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """Patches of all pictures one below the other, float32 (patches, values), and the grid of each, int64."""
    part = request.vision()
    grid = GRID if request.padded else SINGLE_GRID
    grid_name = next(iter(sorted(request.names & GRIDS)))
    patch = side_of_patch(request, part)
    values = (
        channels(request, part)
        * (request.look("temporal_patch_size", "patch_temporal", config=part) or 1)
        * patch
        * patch
    )
    pixels = request.normal(name, request.batch * math.prod(grid), values)
    if form := request.numbers.get("patch_pictures"):
        pixels = pixels.reshape(*[1] * (form - 1), -1, channels(request, part), patch, patch)
    if request.numbers.get("patch_rows") == 3:
        pixels = pixels.reshape(request.batch, math.prod(grid), values)
    described = grid[1:] if grid_name == "image_grid_hw" else grid
    made = {name: pixels, grid_name: torch.tensor([described] * request.batch)}
    if "images_per_sample" in request.names:  # the last of each row's grids is of the picture to be made
        made[grid_name] = made[grid_name].repeat_interleave(2, dim=0)
        made["images_per_sample"] = torch.full((request.batch,), 2)
    for merged in {"merge_sizes", "image_merge_sizes"} & request.names:
        made[merged] = torch.full((request.batch,), request.look("spatial_merge_size", config=part) or 2)
    return made, grid


def flattened(request: Request) -> dict[str, Any]:
    """`flattened_patches` float32 (batch, patches, 2 + values): row, column and values of each, zero where none."""
    part = request.vision()
    rows, columns = GRID[1:]
    count = rows * columns
    width = request.find("patch_embed_hidden_size", config=part)
    values = request.normal("flattened_patches", request.batch, count, width)
    places = torch.cartesian_prod(torch.arange(1, rows + 1), torch.arange(1, columns + 1)).float()
    result = torch.cat([places.expand(request.batch, -1, -1), values], dim=-1)
    mask = torch.ones(request.batch, count)
    if request.padded:
        mask[1, -columns:] = 0
    made = {"flattened_patches": result * mask[..., None], "attention_mask": mask}
    return made | (decoder(request) if request.config.is_encoder_decoder else {})


def patches(request: Request, part: PreTrainedConfig) -> dict[str, Any]:
    """Pictures of any shape as lists of patches, filled up to the longest: float32 (batch, patches, values)."""
    patch = side_of_patch(request, part)
    shapes = [(4, 4), (2, 4)][: request.batch]
    longest = max(rows * columns for rows, columns in shapes)
    mask = torch.stack([(torch.arange(longest) < rows * columns).long() for rows, columns in shapes])
    values = request.normal("pixel_values", request.batch, longest, channels(request, part) * patch * patch)
    return {
        "pixel_values": values * mask[..., None],
        "pixel_attention_mask": mask,
        "spatial_shapes": torch.tensor(shapes),
    }


def picture(request: Request, name: str, config: PreTrainedConfig, *leading: int) -> torch.Tensor:
    """Normal values of the size that `config` asks for; another size for `single` where it asks for none."""
    return request.normal(name, *leading, channels(request, config), *size(request, config))


def side_of_patch(request: Request, config: PreTrainedConfig) -> int:
    patch = request.find("patch_size", config=config)
    return patch if isinstance(patch, int) else patch[0]


def channels(request: Request, config: PreTrainedConfig) -> int:
    return request.look("num_channels", "in_channels", "in_chans", config=config) or 3


def size(request: Request, config: PreTrainedConfig) -> tuple[int, int]:
    """(height, width) in pixels."""
    key = "image_size" if request.padded else "single_image_size"
    chosen = request.numbers.get(key) or request.numbers.get("image_size")
    chosen = chosen or request.look("image_size", "crop_size", config=config)
    if chosen is None:
        return (SIDE, SIDE) if request.padded else (SIDE, OTHER_SIDE)
    return (chosen, chosen) if isinstance(chosen, int) else tuple(chosen)
