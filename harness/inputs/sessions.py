"""Videos that a model follows frame by frame, with a session for its memory and for what it is asked about."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers

from harness.inputs.request import InputError, Request
from harness.inputs.text import ordinary_tokens
from harness.inputs.vision import channels, size

FRAMES = 3
"""The prompts belong to the first; the others are what a memory is for."""
SINGLE_FRAMES = 2
WORDS = 6
CLICK, NOT_HERE, CORNER, OPPOSITE = 1, 0, 2, 3
"""Labels of points in prompts, as the models of this kind number them: of the object or not, corners of its box."""


def session(request: Request) -> dict[str, Any]:
    """`inference_session` as plain data, which `harness.execution.sessions` opens; all floats are float32.

    `class` is the session's class in transformers, `video` (frames, channels, height, width), and `prompts` those of
    the first frame: either an object with `points` (1, 1, points, 2) in pixels and their int32 `labels`
    (1, 1, points), an object with a `mask` (1, 1, height, width) of zeros and ones, or a text with int64 `input_ids`
    and `attention_mask` (1, words). `single` has one text, or masks where `padded` has points: objects of both kinds
    in one session are more than EdgeTAM takes.
    """
    name = _class_name(request)
    height, width = side(request)
    frames = FRAMES if request.padded else SINGLE_FRAMES
    video = request.normal("video", frames, channels(request, request.vision()), height, width)
    if hasattr(getattr(transformers, name), "add_prompt"):
        prompts = _texts(request)
    else:
        prompts = (_places if request.padded else _masks)(height, width)
    return {"inference_session": {"class": name, "video": video, "prompts": prompts}}


def side(request: Request) -> tuple[int, int]:
    """Height and width of the frames, pixels: the outermost size that the configs name."""
    named = request.anywhere("image_size")
    if named is None:
        return size(request, request.vision())
    return (named, named) if isinstance(named, int) else tuple(named)


def _class_name(request: Request) -> str:
    declared = inspect.signature(request.model_class.forward).parameters["inference_session"].annotation
    name = declared if isinstance(declared, str) else declared.__name__
    if not hasattr(transformers, name):
        raise InputError(f"{request.model}: transformers has no class {name}, which its sessions are of")
    return name


def _places(height: int, width: int) -> list[dict[str, Any]]:
    """An object with a box around it and clicks on and beside it, and one with a click."""
    boxed = [(0.2, 0.3, CORNER), (0.7, 0.8, OPPOSITE), (0.5, 0.5, CLICK), (0.1, 0.9, NOT_HERE)]
    return [_points(1, boxed, height, width), _points(2, [(0.8, 0.2, CLICK)], height, width)]


def _masks(height: int, width: int) -> list[dict[str, Any]]:
    """An object in the left half of the lower half of the frame, and one that is not there yet."""
    mask, absent = torch.zeros(2, 1, 1, height, width)
    mask[..., height // 2 :, : width // 2] = 1
    return [{"object": 1, "mask": mask}, {"object": 2, "mask": absent}]


def _points(number: int, points: list[tuple[float, float, int]], height: int, width: int) -> dict[str, Any]:
    places = torch.tensor([[[[across * width, down * height] for across, down, _ in points]]])
    labels = torch.tensor([[[label for _, _, label in points]]], dtype=torch.int32)
    return {"object": number, "points": places, "labels": labels}


def _texts(request: Request) -> list[dict[str, Any]]:
    """A text for each row, the second padded as the first is longer."""
    words = [ordinary_tokens(request, f"prompt.{row}", WORDS)[None] for row in range(request.batch)]
    masks = [torch.ones(1, WORDS, dtype=torch.long) for _ in words]
    for mask in masks[1:]:
        mask[:, WORDS // 2 :] = 0
    return [{"input_ids": ids, "attention_mask": mask} for ids, mask in zip(words, masks, strict=True)]
