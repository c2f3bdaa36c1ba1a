"""Pictures that come cut up: as tiles, crops, rows of patches, strips, or one small picture for each token."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from harness.inputs.request import Request
from harness.inputs.vision import GRID, GRIDS, SINGLE_GRID, channels, side_of_patch, size

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

POOLED = 2
"""Patches along each side of what crops pool into one token."""
CROPS = 2
"""Crops of a picture: the whole at low resolution, and a part of it."""


def pictures(request: Request) -> dict[str, Any] | None:
    """The pictures of all rows and what describes their pieces; None where the model takes pictures whole.

    An argument of the forward method tells the form, or a number of the recipe where no argument does.
    """
    form = _form(request)
    return form(request, request.vision()) if form is not None else None


def come(request: Request) -> bool:
    """Do pictures come cut up?"""
    return _form(request) is not None


def _tiles(request: Request, part: PreTrainedConfig) -> dict[str, Any]:
    """One picture a row, float32 (batch, 1, tiles, channels, height, width); int64 shape ids from 1 on, and masks.

    Rows are of different shapes; the tiles that a picture does not fill are zero.
    """
    shapes, tiles = request.find("supported_aspect_ratios", config=part), request.find("max_num_tiles", config=part)
    largest = max(range(len(shapes)), key=lambda index: math.prod(shapes[index]))
    chosen = [largest, 0] if request.padded else [min(1, largest)]
    filled = torch.stack([torch.arange(tiles) < math.prod(shapes[index]) for index in chosen]).long()[:, None]
    values = request.normal("pixel_values", request.batch, 1, tiles, channels(request, part), *size(request, part))
    return {
        "pixel_values": values * filled[..., None, None, None],
        "aspect_ratio_ids": torch.tensor(chosen)[:, None] + 1,
        "aspect_ratio_mask": filled,
    }


def _crops(request: Request, part: PreTrainedConfig) -> dict[str, Any]:
    """Crops of all pictures, float32 (crops, patches, values), and for each token the patches that it pools.

    `image_token_pooling` int64 (tokens, pooled) numbers the patches of all crops; `image_grids` (pictures, 4) has
    rows and columns of tokens of the low and of the high resolution.
    """
    height, width = size(request, part)
    patch = side_of_patch(request, part)
    rows, columns = height // patch, width // patch
    count = request.batch * CROPS
    numbers = torch.arange(count * rows * columns).reshape(count, rows // POOLED, POOLED, columns // POOLED, POOLED)
    grid = [rows // POOLED, columns // POOLED] * CROPS
    return {
        "pixel_values": request.normal("pixel_values", count, rows * columns, _values(request, part)),
        "image_token_pooling": numbers.transpose(2, 3).reshape(-1, POOLED**2).contiguous(),
        "image_grids": torch.tensor([grid] * request.batch),
        "image_num_crops": torch.full((request.batch,), CROPS),
    }


def _placed(request: Request, part: PreTrainedConfig) -> dict[str, Any]:
    """Rows of patches in [0, 1], float32 (batch, patches, values), and the column and row of each, -1 where none."""
    kernel = request.look("pooling_kernel_size", config=part) or 1
    shapes = [(2 * kernel, 2 * kernel), (kernel, 2 * kernel)] if request.padded else [(2 * kernel, 3 * kernel)]
    longest = max(math.prod(shape) for shape in shapes)
    places = torch.full((request.batch, longest, 2), -1)
    for row, (height, width) in enumerate(shapes):
        grid = torch.cartesian_prod(torch.arange(height), torch.arange(width))
        places[row, : len(grid)] = grid.flip(-1)
    shape = (request.batch, longest, _values(request, part))
    values = torch.rand(shape, generator=request.generator("pixel_values"))
    name = "pixel_position_ids" if "pixel_position_ids" in request.names else "image_position_ids"
    return {"pixel_values": values * (places >= 0).all(dim=-1, keepdim=True), name: places}


def _strip(request: Request, part: PreTrainedConfig) -> dict[str, Any]:
    """Patches of all pictures side by side, float32 (1, channels, side, patches x side); rows and columns of each."""
    patch = side_of_patch(request, part)
    grids = [(4, 8), (8, 4)] if request.padded else [(4, 4)]
    count = sum(math.prod(grid) for grid in grids)
    values = request.normal("pixel_values", 1, channels(request, part), patch, count * patch)
    return {"pixel_values": values, "target_sizes": torch.tensor(grids)}


def _rows_of_patches(request: Request, part: PreTrainedConfig) -> dict[str, Any]:
    """Patches of one picture for each row, float32 (batch, patches, values), or all below each other."""
    grid = GRID if request.padded else SINGLE_GRID
    values = request.normal("pixel_values", request.batch, math.prod(grid), _values(request, part))
    return {"pixel_values": values.flatten(0, 1) if request.numbers["patch_rows"] == 2 else values}


def _for_each_token(request: Request, part: PreTrainedConfig) -> dict[str, Any]:
    """A small picture for each token, float32 (tokens, [frames,] side, side, channels); the grid counts tokens."""
    grid = GRID if request.padded else SINGLE_GRID
    side = side_of_patch(request, part) * (request.look("spatial_merge_size", config=part) or 1)
    frames = (request.find("temporal_patch_size", config=part),) if request.numbers["token_pictures"] == 5 else ()
    count = request.batch * math.prod(grid)
    made = {"pixel_values": request.normal("pixel_values", count, *frames, side, side, channels(request, part))}
    if "image_grid_thw" in request.names:
        made["image_grid_thw"] = torch.tensor([grid] * request.batch)
    return made


def _values(request: Request, part: PreTrainedConfig) -> int:
    return channels(request, part) * side_of_patch(request, part) ** 2


Form = Callable[[Request, "PreTrainedConfig"], dict[str, Any]]
_BY_ARGUMENT: dict[str, Form] = {
    "aspect_ratio_ids": _tiles,
    "image_token_pooling": _crops,
    "pixel_position_ids": _placed,
    "image_position_ids": _placed,
    "target_sizes": _strip,
}
# Rows of patches that a grid describes are packed patches, see `vision`.
_BY_NUMBER: dict[str, Form] = {"token_pictures": _for_each_token, "patch_rows": _rows_of_patches}


def _form(request: Request) -> Form | None:
    numbers = request.numbers.keys() - ({"patch_rows"} if request.names & GRIDS else set())
    by_argument = (make for name, make in _BY_ARGUMENT.items() if name in request.names)
    by_number = (make for name, make in _BY_NUMBER.items() if name in numbers)
    return next(by_argument, None) or next(by_number, None)
