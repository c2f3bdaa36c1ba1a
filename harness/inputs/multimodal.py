"""Text and pictures together: beside each other, or with placeholder tokens where picture features go."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch

from harness.inputs import audio, features
from harness.inputs.request import InputError, Request
from harness.inputs.text import PADDING, decoder, ordinary_tokens, pad_token, text
from harness.inputs.video import video
from harness.inputs.vision import packed_patches, patches, picture, size, vision

BEFORE = 3
"""Words before the picture."""
AFTER = 12
"""Words after it; eight for `single`."""


def text_and_picture(request: Request) -> dict[str, Any]:
    """A text and a picture for each row, or a video where the part for pictures counts frames."""
    if request.look("num_frames", config=request.vision()) is not None:
        return text_and_video(request)
    return text(request) | vision(request)


def text_and_video(request: Request) -> dict[str, Any]:
    """A text and a video for each row."""
    return text(request) | video(request)


def text_and_sound(request: Request) -> dict[str, Any]:
    """A text and a sound for each row."""
    maker = audio.features if "input_features" in request.names else audio.wave
    return text(request) | {name: value for name, value in maker(request).items() if name != "attention_mask"}


def placeholders(request: Request) -> dict[str, Any]:
    """`input_ids` with one placeholder for each feature of the row's picture, padded left, and the pictures."""
    pictures, count = _packed(request) if "image_grid_thw" in request.names else _whole(request)
    if "image_tokens" in request.numbers:
        count = request.numbers["image_tokens"]
    elif (made := features.count(request, "get_image_features", pictures)) is not None:
        count = made // request.batch
    image = request.anywhere("image_token_id", "image_token_index")
    return _marked(request, image, count, "image") | pictures


def sound_placeholders(request: Request) -> dict[str, Any]:
    """`input_ids` with one placeholder for each feature of the row's sound, padded left, and the sounds."""
    maker = audio.features if "input_features" in request.names else audio.wave
    sounds = {name: value for name, value in maker(request).items() if name != "attention_mask"}
    made = features.count(request, "get_audio_features", sounds)
    if made is None:
        raise InputError(f"{request.model}: it has no get_audio_features to tell how many placeholders a sound needs")
    token = request.find("audio_token_id", "audio_token_index")
    return _marked(request, token, made // request.batch, "audio") | sounds


def _marked(request: Request, token: int, count: int, kind: str) -> dict[str, Any]:
    """Text with `count` placeholders in each row."""
    before, after = [token] * 0, [token] * 0
    if kind == "image" and (start := request.look("vision_start_token_id")) is not None:
        before, after = [start], [request.find("vision_end_token_id")]
    marked = torch.tensor([*before, *[token] * count, *after])
    words = AFTER if request.padded else AFTER - 4
    padding = PADDING if request.padded else 0
    rows, masks = [], []
    for row in range(request.batch):
        hidden = padding if row == 1 else 0
        lead = ordinary_tokens(request, f"before.{row}", BEFORE)
        tail = ordinary_tokens(request, f"after.{row}", words - hidden)
        rows.append(torch.cat([torch.full((hidden,), pad_token(request)), lead, marked, tail]))
        masks.append((torch.arange(len(rows[0])) >= hidden).long())
    result = {"input_ids": torch.stack(rows)}
    if "attention_mask" in request.names:
        result["attention_mask"] = torch.stack(masks)
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in request.names:
            result[name] = (result["input_ids"] == token).long()
    if request.config.is_encoder_decoder:
        result |= decoder(request)
    return result


def _whole(request: Request) -> tuple[dict[str, Any], int]:
    """Pictures of one size, and the number of features of each as far as sizes tell."""
    part = request.vision()
    if "spatial_shapes" in request.names:
        return patches(request, part), 0
    leading: tuple[int, ...] = (request.batch,)
    grids = request.anywhere("image_grid_pinpoints")
    height, width = size(request, part)
    extra: dict[str, Any] = {}
    if "image_sizes" in request.names and (grids or _asks_for(request, "get_image_features", "image_sizes")):
        whole = tuple(grids[0]) if grids else (height, width)
        extra["image_sizes"] = torch.tensor([whole] * request.batch)
    if grids:
        # The picture itself, and the tiles it is cut into at a resolution of exactly its size.
        leading = (request.batch, 1 + (grids[0][0] // height) * (grids[0][1] // width))
    elif request.names & {"pixel_attention_mask", "image_num_crops"} or "pictures" in request.numbers:
        # Models that split a picture into tiles take a list of pictures for each row.
        leading = (request.batch, request.numbers.get("pictures", 1))
        if "pixel_attention_mask" in request.names:
            extra["pixel_attention_mask"] = torch.ones(*leading, height, width, dtype=torch.bool)
    pixels = picture(request, "pixel_values", part, *leading)
    patch = request.look("patch_size", config=part)
    if patch is None:
        return {"pixel_values": pixels} | extra, 0
    patch = patch if isinstance(patch, int) else patch[0]
    count = math.prod(side // patch for side in (height, width))
    count = round(count * (request.look("downsample_ratio") or 1) ** 2 / (request.look("scale_factor") or 1) ** 2)
    return {"pixel_values": pixels} | extra, count


def _asks_for(request: Request, method: str, name: str) -> bool:
    """Does the model's method take the argument and have no default for it?"""
    taken = inspect.signature(getattr(request.model_class, method, lambda: None)).parameters
    return name in taken and taken[name].default is inspect.Parameter.empty


def _packed(request: Request) -> tuple[dict[str, Any], int]:
    """Patches of all pictures one below the other, the grid of each, and the number of features of one picture."""
    packed, grid = packed_patches(request, "pixel_values", "image_grid_thw")
    merge = request.look("spatial_merge_size", "merge_size", config=request.vision()) or 1
    return packed, math.prod(grid) // (merge if isinstance(merge, int) else merge[0]) ** 2
