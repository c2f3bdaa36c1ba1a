"""Flattening of whatever a model returns into named tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers.cache_utils import Cache, EncoderDecoderCache


class OutputError(TypeError):
    """A model returned something that cannot be judged; the message names its place and type."""


def leaves(output: Any) -> dict[str, torch.Tensor]:
    """Every tensor of a model output by its path (`logits`, `past_key_values.0.keys`), in order.

    Accepts tensors, mappings (ModelOutput), sequences, dataclasses, caches, numbers and None, nested.
    Numbers become 0-d tensors: they are results too. Raises OutputError for anything else.
    """
    return {path or "output": leaf for path, leaf in _walk("", output)}


def _walk(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    match value:
        case None | str():
            return
        case torch.Tensor():
            yield path, value
        case bool() | int() | float():
            yield path, torch.tensor(value)
        case EncoderDecoderCache():
            yield from _walk(_join(path, "self"), value.self_attention_cache)
            yield from _walk(_join(path, "cross"), value.cross_attention_cache)
        case Cache():
            for number, layer in enumerate(value.layers):
                yield from _tensors_of(_join(path, number), layer)
        case Mapping():
            for key, item in value.items():
                yield from _walk(_join(path, key), item)
        case list() | tuple():
            for number, item in enumerate(value):
                yield from _walk(_join(path, number), item)
        case _ if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                yield from _walk(_join(path, field.name), getattr(value, field.name))
        case _:
            raise OutputError(f"cannot judge an output of type {type(value).__name__} at {path or 'the top'}")


def _tensors_of(path: str, layer: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensor state of one cache layer: keys and values, or convolution and recurrent states."""
    for name, item in sorted(vars(layer).items()):
        if isinstance(item, torch.Tensor | list | tuple | dict):
            yield from _walk(_join(path, name), item)


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)
