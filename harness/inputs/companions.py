"""Inputs that few models take beside their main ones, each made by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.inputs.request import Request, configs
from harness.inputs.vision import picture

QUESTION = 8
"""Tokens of a second, short text."""
REGIONS = 4
"""Regions of a picture whose features are given."""
ACTIONS = 6
"""Steps that a robot plans ahead."""
SPECIAL = 16
"""Ids at either end of a vocabulary that are left alone, since they may be special."""


def companions(request: Request, inputs: dict[str, Any]) -> dict[str, Any]:
    """What the signature names beside `inputs` and is known here."""
    return {
        name: make(request, inputs)
        for name, (beside, make) in _MAKERS.items()
        if name in request.names and name not in inputs and beside in inputs
    }


def _question(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    sizes = [size for config in configs(request.config) if isinstance(size := getattr(config, "vocab_size", None), int)]
    return request.integers("question", SPECIAL, min(sizes) - SPECIAL, request.batch, QUESTION)


def _question_mask(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.ones(request.batch, QUESTION, dtype=torch.long)


def _task(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    length, vocabulary = request.find("task_seq_len"), request.find("text_encoder_vocab_size")
    return request.integers("task_inputs", 1, vocabulary, request.batch, length)


def _regions(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return request.normal("visual_feats", request.batch, REGIONS, request.find("visual_feat_dim"))


def _region_boxes(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    width = request.find("visual_pos_dim")
    return torch.rand(request.batch, REGIONS, width, generator=request.generator("visual_pos"))


def _prompt_picture(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return picture(request, "prompt_pixel_values", request.vision(), request.batch)


def _prompt_mask(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return picture(request, "prompt_masks", request.vision(), request.batch)


def _features_here(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Where in the text the features of the picture go: right after the first token."""
    positions = torch.arange(inputs["input_ids"].shape[1])
    here = (positions > 0) & (positions <= request.find("latent_query_num"))
    return here.expand(request.batch, -1).contiguous()


def _read(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """What queries attend to."""
    return request.normal("encoder_hidden_states", request.batch, REGIONS, request.find("encoder_hidden_size"))


def _actions(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """The state of a robot, and the actions that follow."""
    width = request.find("hidden_size", config=request.part("dit_config"))
    return request.normal("action_embeds", request.batch, 1 + ACTIONS, width)


def _not_padding(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.zeros_like(inputs["past_values"], dtype=torch.long)


def _frequency(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.zeros(request.batch, 1, dtype=torch.long)


_MAKERS: dict[str, tuple[str, Callable[[Request, dict[str, Any]], torch.Tensor]]] = {
    "encoder_hidden_states": ("query_embeds", _read),
    "action_embeds": ("pixel_values", _actions),
    "qformer_input_ids": ("input_ids", _question),
    "qformer_attention_mask": ("input_ids", _question_mask),
    "task_inputs": ("pixel_values", _task),
    "visual_feats": ("input_ids", _regions),
    "visual_pos": ("input_ids", _region_boxes),
    "prompt_pixel_values": ("pixel_values", _prompt_picture),
    "prompt_masks": ("pixel_values", _prompt_mask),
    "image_embeds_position_mask": ("pixel_values", _features_here),
    "past_values_padding": ("past_values", _not_padding),
    "freq": ("past_values", _frequency),
}
"""Each with the input that it goes beside."""
