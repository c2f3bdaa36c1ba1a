"""The configs inside a config, and which of their values are their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from transformers import CONFIG_MAPPING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def together(raw: dict[str, Any], small: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each config of the tree before and after its reduction."""
    yield raw, small
    for key, value in small.items():
        if isinstance(value, dict) and "model_type" in value:
            yield from together(raw[key], value)


def class_of(key: str, raw: dict[str, Any], parent: type[PreTrainedConfig] | None) -> type[PreTrainedConfig] | None:
    """The config class of a part: that of its type, else what `parent` declares, None where neither is known."""
    if raw["model_type"] in CONFIG_MAPPING:
        return CONFIG_MAPPING[raw["model_type"]]
    declared = getattr(parent, "sub_configs", {}).get(key)
    return declared if declared is not None and hasattr(declared, "model_type") else None


def settable(config_class: type[PreTrainedConfig] | None, key: str) -> bool:
    """Is it a property of the class that can be set, as a size that several parts share?"""
    found = getattr(config_class, key, None)
    return isinstance(found, property) and found.fset is not None


def flags_of(key: str, parent: type[PreTrainedConfig] | None) -> frozenset[str]:
    """Flags that `parent` sets in its part `key` by default, fields of the part's class or not."""
    spec = getattr(parent, "sub_configs_defaults", {}).get(key)
    return frozenset(name for name, value in getattr(spec, "init_kwargs", {}).items() if isinstance(value, bool))
