"""Flattening of whatever a model returns into named tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticLayer, StaticSlidingWindowLayer

_BY_TOKEN = frozenset({"keys", "values", "indexer_keys"})
"""What a layer of attention holds for each token."""
_BOOKKEEPING = frozenset({"cumulative_length", "_sliding_window_tensor"})


class OutputError(TypeError):
    """A model returned something that cannot be judged; the message names its place and type."""


def leaves(output: Any) -> dict[str, torch.Tensor]:
    """Every result in a model output by its path (`logits`, `past_key_values.0.keys`), in order.

    Accepts tensors, mappings (ModelOutput), sequences, sets, dataclasses, caches, numbers and None, nested.
    Numbers become 0-d tensors on CPU: they are results too. Raises OutputError for anything else.
    """
    return {path: x if isinstance(x, torch.Tensor) else torch.tensor(x) for path, x in _results(output)}


def tensors(output: Any) -> dict[str, torch.Tensor]:
    """Those of the `leaves` that a model returned as tensors, and so on some device."""
    return {path: x for path, x in _results(output) if isinstance(x, torch.Tensor)}


def _results(output: Any) -> Iterator[tuple[str, torch.Tensor | float]]:
    return ((path or "output", x) for path, x in _walk("", output))


def _walk(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor | float]]:
    match value:
        case None | str():
            return
        case torch.Tensor() | bool() | int() | float():
            yield path, value
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
        case set() | frozenset():
            yield from _walk(path, sorted(value))
        case _ if "Cache" in type(value).__name__:  # of an architecture's own or a layer of it, with no common base
            yield from _tensors_of(path, value)
        case _ if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                yield from _walk(_join(path, field.name), getattr(value, field.name))
        case _:
            raise OutputError(f"cannot judge an output of type {type(value).__name__} at {path or 'the top'}")


def _tensors_of(path: str, holder: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensor state of a cache or one layer of it: keys and values, or states of some kind; no bookkeeping."""
    for name, item in sorted(vars(holder).items()):
        if name in _BOOKKEEPING or not isinstance(item, torch.Tensor | list | tuple | dict):
            continue
        if name in _BY_TOKEN and isinstance(holder, StaticLayer) and isinstance(item, torch.Tensor):
            item = _used(holder, item)
        yield from ((at, x) for at, x in _walk(_join(path, name), item) if isinstance(x, torch.Tensor))


def _used(layer: StaticLayer, buffer: torch.Tensor) -> torch.Tensor:
    """Of a buffer of fixed size, (..., tokens, width), what a cache that grows would hold."""
    filled = min(int(layer.get_seq_length()), buffer.shape[-2])
    newest = layer.max_cache_len - 1 if isinstance(layer, StaticSlidingWindowLayer) else filled
    return buffer[..., max(0, filled - newest) : filled, :]


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)
