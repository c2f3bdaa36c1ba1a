"""Reduction: an architecture's config made small, its structure kept.

Rules go by what a config field means, never by which architecture it belongs to; what they cannot
know is recipe data. They change sizes, never kinds: layer patterns keep one layer of every kind,
grouped attention stays grouped, experts outnumber the experts per token, windows and chunks are
shorter than the inputs, low-rank attention keeps its ranks.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from huggingface_hub.errors import StrictDataclassError

from harness.models.reduce.fields import reduced_field
from harness.models.reduce.layers import layer_count
from harness.models.reduce.parts import class_of, flags_of, settable
from harness.models.reduce.ties import follow_merged, follow_widths, scale_grids
from harness.models.reduce.tokens import remap_tokens
from model_lists.recipes import overlaid

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from model_lists.recipes import Recipe


class UnreducibleConfig(ValueError):
    """The config cannot be made small; the message is one line."""


def reduced_config(
    config_class: type[PreTrainedConfig], recipe: Recipe, given: PreTrainedConfig | None = None
) -> PreTrainedConfig:
    """A small config of the architecture's own defaults, the recipe's facts and its reduced values.

    A `given` config, of a real model, takes the place of the defaults and the facts. Raises UnreducibleConfig where
    the config class refuses the values.
    """
    try:
        raw = (original_config(config_class, recipe) if given is None else _begin_decoding(given)).to_dict()
        small = _reduce(raw, config_class)
        follow_widths(raw, small)
        follow_merged(raw, small)
        scale_grids(raw, small)
        remap_tokens(raw, small)
        return _begin_decoding(config_class.from_dict(overlaid(small, recipe.reduced)))
    except (TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError, StrictDataclassError) as error:
        raise UnreducibleConfig(f"{config_class.__name__} refuses its reduced values: {_line(error)}") from error


def original_config(config_class: type[PreTrainedConfig], recipe: Recipe) -> PreTrainedConfig:
    """The architecture's own defaults with the recipe's facts, unreduced. Raises what the config class raises."""
    return _begin_decoding(_headless(_with_facts(config_class, recipe.config)))


def _headless(config: PreTrainedConfig) -> PreTrainedConfig:
    """Without the pooling heads of towers of another architecture, which only that one's own models read.

    The checkpoints say so, though some config classes leave it out (google/gemma-3, deepseek-community/deepseek-vl).
    """
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None:
            if getattr(part, "vision_use_head", False) and not part.model_type.startswith(config.model_type):
                part.vision_use_head = False
            _headless(part)
    return config


def _with_facts(config_class: type[PreTrainedConfig], facts: dict[str, Any]) -> PreTrainedConfig:
    if not _nested(facts):
        return config_class(**facts)
    try:
        defaults = config_class().to_dict()
    except (ValueError, StrictDataclassError):
        return config_class(**facts)  # the facts mend defaults that the class itself refuses
    return config_class.from_dict(overlaid(defaults, facts))


def _begin_decoding(config: PreTrainedConfig) -> PreTrainedConfig:
    """Where nothing says how a decoder begins, it begins with padding, as the checkpoints of such classes say."""
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        begin = getattr(config, "bos_token_id", None)
        config.decoder_start_token_id = begin if begin is not None else getattr(config, "pad_token_id", None)
    return config


def _nested(facts: dict[str, Any]) -> bool:
    return any(isinstance(value, dict) for value in facts.values())


def _reduce(
    raw: dict[str, Any], config_class: type[PreTrainedConfig] | None, flags: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The reduced form of one config and, recursively, of the configs inside it.

    `flags` are names that the config around it knows of this one, beside those that its class does.
    """
    known = {field.name for field in dataclasses.fields(config_class)} if config_class else set(raw)
    known |= {
        "model_type",
        *getattr(config_class, "sub_configs", {}),
        *getattr(config_class, "attribute_map", {}).values(),
    }
    known |= {key for key, value in raw.items() if type(value) is int and settable(config_class, key)}
    if "stage_names" in raw:
        known.add("out_indices")  # of a backbone; the names of these stages follow from it
    known |= {"per_layer_config", *flags}
    # A config class computes some values from others; those it shall compute again.
    own = {key: value for key, value in raw.items() if key in known}
    layers = layer_count(own)
    result = {}
    for key, value in own.items():
        if isinstance(value, dict) and "model_type" in value:
            result[key] = _reduce(value, class_of(key, value, config_class), flags_of(key, config_class))
        else:
            result[key] = reduced_field(key, value, own, layers)
    return result


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
