"""Which elements of outputs are of padding: no model promises what they are, and no user reads them.

A query that padding makes sees nothing, or ties: what a softmax over equal scores, or a choice among equal ones, makes
of it is decided by rounding. So a fault that shows there alone is none that anybody would meet.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from harness.cases import Phase
from harness.numerics.judge import Leaves

_OF_ENCODER = re.compile(r"^encoder_|(^|\.)cross\.")
_BY_TOKEN = re.compile(r"(^|\.)(keys|values)$")
_BY_FLAT_TOKEN = re.compile(r"router_logits")


def hidden(inputs: dict[str, Any], leaves: Leaves, phase: Phase) -> Leaves:
    """For each of the output `leaves` that has elements of padding, which they are: bool, of the leaf's shape.

    The masks are `attention_mask` and `decoder_attention_mask` of a model's inputs, (batch, tokens), zero where there
    is padding. Leaves that go by token are (batch, tokens, ...); keys and values (batch, heads, tokens, width), in
    generation with the new tokens at their end; logits of routers (batch * tokens, experts).
    """
    twofold = any(_OF_ENCODER.search(path) for path in leaves)
    own, decoder = _padding(inputs.get("attention_mask")), _padding(inputs.get("decoder_attention_mask"))
    found = {}
    for path, leaf in leaves.items():
        mask = decoder if twofold and not _OF_ENCODER.search(path) else own
        placed = None if mask is None else _placed(mask, path, leaf.shape, grows=phase is Phase.GENERATE)
        if placed is not None:
            found[path] = placed.expand(leaf.shape)
    return found


def _padding(mask: Any) -> torch.Tensor | None:
    """True where a mask of tokens hides one, on CPU; None where it hides none, or is of something else."""
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2 or mask.is_floating_point():
        return None
    padding = (mask == 0).cpu()
    return padding if padding.any() else None


def _placed(padding: torch.Tensor, path: str, shape: torch.Size, *, grows: bool) -> torch.Tensor | None:
    """`padding` (batch, tokens) as it lies in a leaf of this shape, to be expanded; None where that has no tokens."""
    batch, tokens = padding.shape
    if _BY_TOKEN.search(path):
        if len(shape) != 4 or shape[0] != batch or shape[2] < tokens or (shape[2] > tokens and not grows):
            return None
        return torch.nn.functional.pad(padding, (0, shape[2] - tokens))[:, None, :, None]
    if shape[:2] == padding.shape:
        return padding.view(batch, tokens, *[1] * (len(shape) - 2))
    if _BY_FLAT_TOKEN.search(path) and len(shape) == 2 and shape[0] == batch * tokens:
        return padding.view(-1, 1)
    return None
