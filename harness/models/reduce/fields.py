"""The reduced value of one field, whatever its type."""

from __future__ import annotations

import math
from typing import Any

from harness.models.reduce import names
from harness.models.reduce.layers import distinct, every_layer, is_pattern, original_layers, picked_layers
from harness.models.reduce.numbers import NUMBERS, patch_side, picture_side, stage_widths
from harness.models.reduce.rotary import reduced_rotary
from harness.models.reduce.sizes import LAYERS, NARROW, WINDOW


def reduced_field(key: str, value: Any, own: dict[str, Any], layers: int) -> Any:
    """The reduced value of one field; fields no rule speaks of keep their value."""
    if value is None or isinstance(value, bool | str):
        return value
    if is_pattern(key, value, own):
        single = key.removesuffix("_per_layer")
        kinds = distinct(
            [reduced_field(single, kind, own, layers) if isinstance(kind, int) else kind for kind in value]
        )
        return [kinds[index % len(kinds)] for index in range(layers)]
    if key == "per_layer_config" and isinstance(value, dict):
        return _deviations(value, own, layers)
    if isinstance(value, dict):
        if key == "compress_rates":
            return {kind: min(rate, WINDOW) for kind, rate in value.items()}
        return reduced_rotary(value, own) if "rope" in key else value
    if isinstance(value, list | tuple):
        return _list_rule(key, list(value), own, layers)
    for pattern, reduce in NUMBERS:
        if pattern.fullmatch(key):
            # Shares and limits that look like sizes by their name stay what they are.
            return (
                value
                if isinstance(value, float) and not key.endswith("_coefficient")
                else reduce(key, value, own, layers)
            )
    return value


def _deviations(value: dict[str, Any], own: dict[str, Any], layers: int) -> dict[str, Any]:
    """What single layers do differently, moved from the first original layer of a kind to the layer that shows it."""
    patterns = [own[key] for key in ("layer_types", "mlp_layer_types") if own.get(key)]
    originals = list(zip(*patterns, strict=True)) or list(map(int, value))
    result = {}
    for index in range(layers):
        if patterns:
            kind = tuple(kinds[index % len(kinds)] for kinds in map(distinct, patterns))
            chosen = originals.index(kind) if kind in originals else patterns[0].index(kind[0])
        else:
            chosen = originals[index % len(originals)]
        changes = value.get(f"{chosen:02d}") or value.get(str(chosen))
        if changes:
            result[f"{index:02d}"] = {
                key: _deviation(key, item, own, own | changes, layers) for key, item in changes.items()
            }
    return result


def _deviation(key: str, value: Any, own: dict[str, Any], layer: dict[str, Any], layers: int) -> Any:
    """A layer's own value, reduced; one that was larger or smaller than the others' stays so."""
    usual = reduced_field(key, own.get(key), own, layers)
    reduced = reduced_field(key, value, layer, layers)
    if type(value) is int and type(usual) is int and value > own[key] and reduced <= usual:
        return 2 * usual
    if type(value) is int and type(usual) is int and value < own[key] and reduced >= usual:
        return 3 * usual // 4 if names.EXPERTS.fullmatch(key) else usual // 2
    return reduced


def _list_rule(key: str, value: list[Any], own: dict[str, Any], layers: int) -> Any:
    numbers = all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    if not value or not numbers:
        return value
    if every_layer(value, own):
        return list(range(layers))
    if key in ("blocks_per_stage", "depths", "num_block_repeats", "stage_num_blocks"):
        return [min(item, LAYERS) for item in value]
    if names.STAGE_HEADS.fullmatch(key):
        return [item // math.gcd(*value) for item in value]
    if names.STAGE_WIDTHS.fullmatch(key):
        if any(name.startswith("stage_") and name.endswith("_channels") for name in own):
            return value  # bound to other widths of each stage
        return stage_widths(value, own)
    if key in ("conv_dim", "tdnn_dim"):
        return [NARROW] * len(value)
    if key in ("image_size", "crop_size"):
        return [picture_side(key, item, own, layers) for item in value]
    if key == "patch_size":
        return [patch_side(key, item, own, layers) for item in value]
    if key == "tubelet_size":
        return [value[0], *(patch_side(key, item, own, layers) for item in value[1:])]
    if key.endswith("out_indices") and ("depths" in own or original_layers(own) is None):
        return value  # of stages, which all stay
    if key.endswith("out_indices"):
        first = layers - len(value) + (key == "out_indices")  # a backbone counts its embeddings as the first
        return list(range(first, first + len(value)))
    if names.LAYER_INDICES.fullmatch(key) and (max(value) >= layers or names.KINDS_BY_INDEX.fullmatch(key)):
        return picked_layers(value, own, layers, names.KINDS_BY_INDEX.fullmatch(key) is not None)
    if names.TOKENS.fullmatch(key):
        return value
    for pattern in (names.WINDOWS, names.LAYERS, names.INNERS, names.WIDTHS):
        if pattern.fullmatch(key):
            return [reduced_field(key, item, own, layers) for item in value]
    return value
