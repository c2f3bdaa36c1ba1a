"""Text and pictures together: beside each other, or with placeholder tokens where picture features go."""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.inputs import cut, features
from harness.inputs.request import Request
from harness.inputs.text import PADDING, decoder, ordinary_tokens, pad_token, text
from harness.inputs.video import video
from harness.inputs.vision import GRIDS, packed_patches, patches, picture, size, vision

BEFORE = 3
"""Words before the picture."""
AFTER = 12
"""Words after it; eight for `single`."""
FRAMES = 6
"""Features of a sound beside a picture."""


def text_and_picture(request: Request) -> dict[str, Any]:
    """A text and a picture for each row, or a video where the part for pictures counts frames."""
    if request.look("num_frames", config=request.vision()) is not None:
        return text_and_video(request)
    made = text(request) | (cut.pictures(request) or vision(request))
    return made | _seen(request, made)


def text_and_video(request: Request) -> dict[str, Any]:
    """A text and a video for each row."""
    return text(request) | video(request)


def placeholders(request: Request) -> dict[str, Any]:
    """`input_ids` with one placeholder for each feature of the row's picture, padded left, and the pictures."""
    pictures, count = _pictures(request)
    given = request.numbers.get("image_tokens")
    told = given is not None or "images_per_sample" in request.names
    made = None if told else features.count(request, "get_image_features", pictures)
    count = given or (count if made is None else made // request.batch)
    result = _marked(request, placeholder(request), count) | pictures
    return result | _seen(request, result)


def placeholder(request: Request) -> int | None:
    """The token in whose places the features of pictures go, those of a video where pictures are its frames."""
    image = request.anywhere("image_token_id", "image_token_index")
    if image is None and "pixel_values_videos" not in request.names:
        return request.anywhere("video_token_id", "video_token_index")
    return image


def text_picture_and_sound(request: Request) -> dict[str, Any]:
    """A text with placeholders for a picture, whole and as one crop, and for a sound, and these by their own names.

    Each row of features of the picture ends in a separator, and one more stands between the whole and the crop.
    """
    seen, heard = request.find("vision_config"), request.find("audio_config")
    side, patch = (request.find(name, config=seen) for name in ("crop_size", "patch_size"))
    patches_a_side, frames = side // patch, FRAMES * request.find("time_reduction", config=heard)
    features_a_side = patches_a_side // 2
    pictures = 2 * features_a_side * (features_a_side + 1) + 1
    ids = torch.cat(
        [
            ordinary_tokens(request, "before", request.batch, BEFORE),
            torch.full((request.batch, pictures), request.find("image_token_id", config=seen)),
            torch.full((request.batch, FRAMES), request.find("audio_token_id", config=heard)),
            ordinary_tokens(request, "after", request.batch, AFTER if request.padded else AFTER - 4),
        ],
        dim=1,
    )
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "image_pixel_values": request.normal("image_pixel_values", request.batch, 2, 3, side, side),
        "image_sizes": torch.tensor([[side, side]] * request.batch),
        "image_attention_mask": torch.ones(request.batch, 2, patches_a_side, patches_a_side),
        "audio_input_features": request.normal(
            "audio_input_features", request.batch, frames, request.find("input_size", config=heard)
        ),
        "audio_embed_sizes": torch.full((request.batch,), FRAMES),
    }


def _marked(request: Request, token: int, count: int) -> dict[str, Any]:
    """Text with `count` placeholders in each row, between a start and an end where the config has them."""
    marked = torch.full((count,), token)
    if (start := request.look("vision_start_token_id", "image_start_token_id")) is not None:
        end = request.find("vision_end_token_id", "image_end_token_id")
        marked = torch.cat([torch.tensor([start]), marked, torch.tensor([end])])
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
    if request.config.is_encoder_decoder or "decoder_text" in request.numbers:
        result |= decoder(request)
    return result


def _pictures(request: Request) -> tuple[dict[str, Any], int]:
    """The pictures of all rows, and the number of features of each as far as sizes tell, else 0."""
    if (pieces := cut.pictures(request)) is not None:
        return pieces, 0
    return _packed(request) if request.names & GRIDS else _whole(request)


def _seen(request: Request, made: dict[str, Any]) -> dict[str, Any]:
    """Which pictures each token sees where texts attend to pictures: from the first word on, more further on."""
    length = made["input_ids"].shape[1]
    if "cross_attention_mask" in request.names and "aspect_ratio_mask" in made:
        after = (torch.arange(length) >= 1).long()
        return {"cross_attention_mask": after[None, :, None, None] * made["aspect_ratio_mask"][:, None]}
    if "image_attention_mask" in request.names and (count := request.numbers.get("pictures")):
        first = 1 + torch.arange(count) * (length // count)
        seen = torch.arange(length)[:, None] >= first
        return {"image_attention_mask": seen.long().expand(request.batch, -1, -1).contiguous()}
    return {}


def _whole(request: Request) -> tuple[dict[str, Any], int]:
    """Pictures of one size, and the number of features of each as far as sizes tell."""
    part = request.vision()
    if "spatial_shapes" in request.names:
        return patches(request, part), 0
    leading: tuple[int, ...] = (request.batch,)
    grids = request.anywhere("image_grid_pinpoints")
    height, width = size(request, part)
    extra: dict[str, Any] = {}
    if "image_sizes" in request.names and (grids or features.asks(request, "get_image_features", "image_sizes")):
        whole = tuple(grids[0]) if grids else (height, width)
        extra["image_sizes"] = torch.tensor([whole] * request.batch)
    if grids:
        # The picture itself, and the tiles it is cut into at a resolution of exactly its size.
        leading = (request.batch, 1 + (grids[0][0] // height) * (grids[0][1] // width))
    elif request.names & {"pixel_attention_mask", "image_num_crops"} or "pictures" in request.numbers:
        # Models that split a picture into tiles take a list of pictures for each row.
        leading = (request.batch, request.numbers.get("pictures", 1))
        if "pixel_attention_mask" in request.names:
            masked = leading if request.numbers.get("mask_pictures") else (*leading, height, width)
            extra["pixel_attention_mask"] = torch.ones(masked, dtype=torch.bool)
        if request.numbers.get("fine_tiles"):
            extra["tile_fine_mask"] = torch.ones(request.batch, dtype=torch.bool)
    if "high_res_pixel_values" in request.names:
        sharp = request.find("high_res_vision_config")
        extra["high_res_pixel_values"] = picture(request, "high_res_pixel_values", sharp, request.batch)
    if "pixel_values_local" in request.names:
        # The whole at low resolution comes with its halves, left and right, at a high one.
        extra["pixel_values_local"] = picture(request, "pixel_values_local", part, 2 * request.batch)
        extra["num_local_patches"] = [2] * request.batch
        extra |= {"patches_grid": [[2, 1]] * request.batch} if "patches_grid" in request.names else {}
    pixels = picture(request, "pixel_values", part, *leading)
    patch = request.look("patch_size", config=part)
    if patch is None:
        return {"pixel_values": pixels} | extra, 0
    patch = patch if isinstance(patch, int) else patch[0]
    count = math.prod(side // patch for side in (height, width))
    count = round(count * (request.look("downsample_ratio") or 1) ** 2 / (request.look("scale_factor") or 1) ** 2)
    return {"pixel_values": pixels} | extra, count


def _packed(request: Request) -> tuple[dict[str, Any], int]:
    """Patches of all pictures one below the other, the grid of each, and the number of features of one picture."""
    packed, grid = packed_patches(request, "pixel_values")
    merge = request.look("spatial_merge_size", "merge_size", config=request.vision()) or 1
    return packed, math.prod(grid) // (merge if isinstance(merge, int) else merge[0]) ** 2
