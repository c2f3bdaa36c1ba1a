"""Models that draft tokens for another, from its keys and values or from its hidden states."""

from __future__ import annotations

from typing import Any

import torch

from harness.inputs.request import Request
from harness.inputs.text import LENGTH, PADDING, SINGLE_LENGTH


def draft(request: Request) -> dict[str, Any]:
    """One step after a text: `inputs_embeds` float32 (batch, 1, twice the other model's width), and what it reads.

    `shared_kv_states` holds, for each kind of layer, keys and values float32 (batch, key heads, length, head), masked
    by `attention_mask` int64 (batch, length), padded left.
    """
    length = LENGTH if request.padded else SINGLE_LENGTH
    mask = torch.ones(request.batch, length, dtype=torch.long)
    if request.padded:
        mask[1, :PADDING] = 0
    config = request.part("text_config")
    states = {}
    for index, kind in enumerate(config.layer_types):
        layer = config.per_layer_config[index]
        shape = (request.batch, layer.num_key_value_heads, length, layer.head_dim)
        states[kind] = (request.normal(f"{kind}.keys", *shape), request.normal(f"{kind}.values", *shape))
    return {
        "inputs_embeds": request.normal("inputs_embeds", request.batch, 1, 2 * request.find("backbone_hidden_size")),
        "position_ids": mask.sum(dim=1, keepdim=True) - 1,
        "attention_mask": mask,
        "shared_kv_states": states,
    }


def block(request: Request) -> dict[str, Any]:
    """A block of tokens to guess after a text whose hidden states are given, float32 (batch, length, width).

    `noise_embeds` is the block; `context_hidden_states` has the states of several layers beside each other; the
    mask covers both, padded left.
    """
    width, guessed = request.find("hidden_size"), request.find("block_size")
    length = LENGTH if request.padded else SINGLE_LENGTH
    layers = len(request.find("target_layer_ids"))
    mask = torch.ones(request.batch, length + guessed, dtype=torch.long)
    if request.padded:
        mask[1, :PADDING] = 0
    return {
        "noise_embeds": request.normal("noise_embeds", request.batch, guessed, width),
        "context_hidden_states": request.normal("context_hidden_states", request.batch, length, width * layers),
        "attention_mask": mask,
    }
