"""Reduction: an architecture's config made small, its structure kept.

Rules go by what a config field means, never by which architecture it belongs to; what they cannot
know is recipe data. They change sizes, never kinds: layer patterns keep one layer of every kind,
grouped attention stays grouped, experts outnumber the experts per token, windows and chunks are
shorter than the inputs, low-rank attention keeps its ranks. All models shrink to the same few sizes,
because backends compile per shape and can then reuse each other's programs.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING

from model_lists.recipes import overlaid

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from model_lists.recipes import Recipe

WIDTH = 64
"""Width of the residual stream; every projection between modalities has it too."""
NARROW = 32
"""Width of an embedding that was narrower than the residual stream."""
INNER = 128
"""Width of a feed-forward layer."""
HEADS = 4
HEAD = 16
"""Elements of an attention head; twice that where the heads together were not as wide as the stream."""
RANK = 32
ROTARY = 8
"""Rotated elements of a head in low-rank attention."""
LAYERS = 2
VOCABULARY = 512
POSITIONS = 128
WINDOW = 8
"""Attention windows, chunks and blocks: shorter than the shortest text of `harness.inputs` (13 tokens)."""
EXPERTS = 4
STATE = 16
CODEC_WIDTH = 8
"""Channels of a codec's first convolutions."""
MELS = 32
FRAMES = 4
PATCHES = 4
"""Patches along each side of a picture."""
SHIFTED_WINDOW = 4
"""Side in patches of the windows that are shifted over a picture; the last stage is one window."""
STAGE_PICTURE = 64
"""Side of a picture for models that shrink it in stages (up to 32 times)."""

_WIDTHS = re.compile(
    r"hidden_size|d_model|dim|n_embd|embed_dim|emb_dim|projection_dim|projection_size|word_embed_proj_dim|pooler_output_size"
    r"|\w+_hidden_size|lru_width|codevector_dim|proj_codevector_dim|classifier_proj_size|xvector_output_dim"
    r"|shared_latent_size|proj_dim|hidden_channels|auxiliary_channels|\w+_embed_dim"
)
_INNERS = re.compile(
    r"intermediate_size|\w*ffn_dim|d_ff|hidden_dim|ffn_hidden_size|n_inner|block_ff_dim|\w+_intermediate_size"
)
_LAYERS = re.compile(
    r"(\w+_)?(num_hidden_layers|num_layers|n_layers?|depth)|layers|(encoder|decoder)_layers|num_\w+_layers"
)
_HEADS = re.compile(r"(\w+_)?(num_attention_heads|attention_heads|num_heads|n_heads?|attn_heads)")
_KEY_HEADS = re.compile(r"(\w+_)?(num_key_value_heads|num_kv_heads|num_key_heads|n_kv_heads?)")
_EXPERTS = re.compile(r"num_experts|num_local_experts|n_routed_experts|moe_num_experts")
_TOP_K = re.compile(r"num_experts_per_tok(en)?|moe_topk|moe_k|top_k_experts|experts_per_token")
_WINDOWS = re.compile(
    r"sliding_window(_size)?|local_attention(_window_len)?|attention_window(_size)?|keep_window_size"
    r"|(mamba_)?chunk_size|attention_chunk_size|block_size|local_transformer_stride"
)
_POSITIONS = re.compile(r"max_position_embeddings|n_positions|max_(source|target)_positions")
_PATTERNS = re.compile(r"(\w+_)?(layer|block)s?_types?|layers_block_type|hybrid_layer_pattern")
_LAYER_INDICES = re.compile(
    r"\w*(layer_(ind(ic|ex)es|idxs?|ids)|layers?_idxs?|_idxs|_(indexes|indices)|attention_layers|mlp_only_layers"
    r"|look_(ahead|backward)_layers)"
)
_KINDS_BY_INDEX = re.compile(r"\w*(att|window|hybrid|mlp_only|look_)\w*")
"""Those lists of layers that are built differently; the others are layers whose outputs are taken."""
_SIZES = re.compile(r"\w*(dim|size|channels|width|features|groups)")
_TOKENS = re.compile(r"\w*_token_(id|index)|\w+_token_ids|(im|codec)_\w+_id|begin_suppress_tokens|suppress_tokens")
_STAGE_WIDTHS = re.compile(
    r"hidden_sizes|embed_dims?|neck_hidden_sizes|encoder_hidden_sizes|decoder_hidden_sizes|fusion_hidden_sizes"
    r"|embed_dim_per_stage|backbone_channel_list"
)
_STAGE_HEADS = re.compile(r"num_heads|num_attention_heads|encoder_num_heads|num_attention_heads_per_stage")


class UnreducibleConfig(ValueError):
    """The config cannot be made small; the message is one line."""


def reduced_config(config_class: type[PreTrainedConfig], recipe: Recipe) -> PreTrainedConfig:
    """A small config of the architecture's own defaults, the recipe's facts and its reduced values.

    Raises UnreducibleConfig where the config class refuses the values.
    """
    try:
        raw = original_config(config_class, recipe).to_dict()
        small = _reduce(raw, config_class)
        _follow(raw, small)
        _follow_merged(raw, small)
        _scale_grids(raw, small)
        _remap_tokens(raw, small)
        return config_class.from_dict(overlaid(small, recipe.reduced))
    except (TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError, StrictDataclassError) as error:
        raise UnreducibleConfig(f"{config_class.__name__} refuses its reduced values: {_line(error)}") from error


def original_config(config_class: type[PreTrainedConfig], recipe: Recipe) -> PreTrainedConfig:
    """The architecture's own defaults with the recipe's facts, unreduced. Raises what the config class raises."""
    return _begin_decoding(_with_facts(config_class, recipe.config))


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
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", 0) is None:
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
    known |= {key for key, value in raw.items() if type(value) is int and _settable(config_class, key)}
    if "stage_names" in raw:
        known.add("out_indices")  # of a backbone; the names of these stages follow from it
    known |= {"per_layer_config", *flags}
    # A config class computes some values from others; those it shall compute again.
    own = {key: value for key, value in raw.items() if key in known}
    layers = _layer_count(own)
    result = {}
    for key, value in own.items():
        if isinstance(value, dict) and "model_type" in value:
            result[key] = _reduce(value, _class_of(key, value, config_class), _flags(key, config_class))
        else:
            result[key] = _rule(key, value, own, layers)
    return result


def _settable(config_class: type[PreTrainedConfig] | None, key: str) -> bool:
    """Is it a property of the class that can be set, as a size that several parts share?"""
    found = getattr(config_class, key, None)
    return isinstance(found, property) and found.fset is not None


def _follow(raw: dict[str, Any], small: dict[str, Any]) -> None:
    """Sizes that no rule speaks of but that equal a width somewhere in the original equal it in the reduced too."""
    widths: dict[int, set[int]] = {}
    for before, after in _together(raw, small):
        for key, value in after.items():
            if type(value) is int and (_WIDTHS.fullmatch(key) or _INNERS.fullmatch(key)):
                widths.setdefault(before[key], set()).add(value)
    for before, after in _together(raw, small):
        for key, value in after.items():
            untouched = type(value) is int and value > WIDTH and value == before[key] and _SIZES.fullmatch(key)
            if isinstance(value, list) and key.endswith("_channels") and _uniform(value):
                known = widths.get(value[0], {value[0]}) if value == before[key] else {value[0]}
                after[key] = [min(known)] * len(value)
            ruled = any(pattern.fullmatch(key) for pattern, _ in _NUMBERS)
            if untouched and not ruled and len(known := widths.get(value, ())) == 1:
                after[key] = next(iter(known))


def _follow_merged(raw: dict[str, Any], small: dict[str, Any]) -> None:
    """The width that pictures come out with, where it is that of merged patches beside each other, stays so."""
    streams, merged = set(), {}
    for before, after in _together(raw, small):
        stream, merge = before.get("hidden_size"), before.get("spatial_merge_size") or before.get("merge_size")
        streams.add(stream)
        if type(stream) is int and type(merge) is int and merge > 1:
            merged[stream * merge**2] = after["hidden_size"] * merge**2
    for before, after in _together(raw, small):
        for key in after:
            if key == "out_hidden_size" and before[key] in merged and before[key] not in streams:
                after[key] = merged[before[key]]


def _scale_grids(raw: dict[str, Any], small: dict[str, Any]) -> None:
    """Resolutions made of whole pictures stay so many pictures high and wide."""
    sides = [
        (before["image_size"], after["image_size"])
        for before, after in _together(raw, small)
        if type(after.get("image_size")) is int and before["image_size"]
    ]
    for _, after in _together(raw, small):
        for key in ("image_grid_pinpoints", "possible_resolutions"):
            if after.get(key) and sides:
                old, new = sides[0]
                after[key] = [[side * new // old for side in grid] for grid in after[key]]


def _uniform(value: list[Any]) -> bool:
    """Is it one whole number, several times?"""
    return bool(value) and type(value[0]) is int and value.count(value[0]) == len(value)


def _together(raw: dict[str, Any], small: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each config of the tree before and after its reduction."""
    yield raw, small
    for key, value in small.items():
        if isinstance(value, dict) and "model_type" in value:
            yield from _together(raw[key], value)


def _class_of(key: str, raw: dict[str, Any], parent: type[PreTrainedConfig] | None) -> type[PreTrainedConfig] | None:
    if raw["model_type"] in CONFIG_MAPPING:
        return CONFIG_MAPPING[raw["model_type"]]
    declared = getattr(parent, "sub_configs", {}).get(key)
    return declared if declared is not None and hasattr(declared, "model_type") else None


def _flags(key: str, parent: type[PreTrainedConfig] | None) -> frozenset[str]:
    """Flags that `parent` sets in its part `key` by default, fields of the part's class or not."""
    spec = getattr(parent, "sub_configs_defaults", {}).get(key)
    return frozenset(name for name, value in getattr(spec, "init_kwargs", {}).items() if isinstance(value, bool))


def _layer_count(own: dict[str, Any]) -> int:
    """How many layers hold one of every kind the original has."""
    count = LAYERS
    for key, value in own.items():
        if _is_pattern(key, value, own):
            count = max(count, len(_kinds(value)))
        if key == "num_kv_shared_layers" and value:
            count = max(count, 2 * len(_kinds(own.get("layer_types") or [None])))
        if key.endswith("out_indices") and isinstance(value, list) and _original_layers(own) is not None:
            count = max(count, len(value))
    return count


def _is_pattern(key: str, value: Any, own: dict[str, Any]) -> bool:
    """Does this list say something of each layer, by its name or by being as long as there are layers?"""
    if not isinstance(value, list | tuple) or not value:
        return False
    if _PATTERNS.fullmatch(key):
        return True
    count = _original_layers(own)
    if _every_layer(value, own):
        return False
    by_stage = (_STAGE_WIDTHS, _STAGE_HEADS, _LAYER_INDICES)
    staged = len(value) == len(own.get("depths") or ()) or any(sizes.fullmatch(key) for sizes in by_stage)
    return count is not None and count > LAYERS and len(value) == count and not staged


def _every_layer(value: list[Any] | tuple[Any, ...], own: dict[str, Any]) -> bool:
    """Does this list number all layers?"""
    return list(value) == list(range(_original_layers(own) or 0))


def _original_layers(own: dict[str, Any]) -> int | None:
    """Layers of the original, None for configs of several stacks or stages."""
    for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth"):
        if type(own.get(name)) is int:
            return own[name]
    return None


def _kinds(pattern: list[Any] | tuple[Any, ...]) -> list[Any]:
    """The distinct members of a layer pattern, in the order of their first occurrence."""
    return list({repr(kind): kind for kind in pattern}.values())


def _rule(key: str, value: Any, own: dict[str, Any], layers: int) -> Any:
    """The reduced value of one field; fields no rule speaks of keep their value."""
    if value is None or isinstance(value, bool | str):
        return value
    if _is_pattern(key, value, own):
        single = key.removesuffix("_per_layer")
        kinds = _kinds([_rule(single, kind, own, layers) if isinstance(kind, int) else kind for kind in value])
        return [kinds[index % len(kinds)] for index in range(layers)]
    if key == "per_layer_config" and isinstance(value, dict):
        return _deviations(value, own, layers)
    if isinstance(value, dict):
        if key == "compress_rates":
            return {kind: min(rate, WINDOW) for kind, rate in value.items()}
        return _rope(value, own) if "rope" in key else value
    if isinstance(value, list | tuple):
        return _list_rule(key, list(value), own, layers)
    for pattern, reduce in _NUMBERS:
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
            kind = tuple(kinds[index % len(kinds)] for kinds in map(_kinds, patterns))
            chosen = originals.index(kind) if kind in originals else patterns[0].index(kind[0])
        else:
            chosen = originals[index % len(originals)]
        changes = value.get(f"{chosen:02d}") or value.get(str(chosen))
        if changes:
            result[f"{index:02d}"] = {
                key: _deviation(key, item, own, own | changes, layers) for key, item in changes.items()
            }
    return result


def _selected(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Keys that sparse attention selects: fewer than there are, which is few where it selects among compressed ones."""
    return min(value, 2 if "compress_rates" in own else WINDOW)


def _deviation(key: str, value: Any, own: dict[str, Any], layer: dict[str, Any], layers: int) -> Any:
    """A layer's own value, reduced; one that was larger or smaller than the others' stays so."""
    usual = _rule(key, own.get(key), own, layers)
    reduced = _rule(key, value, layer, layers)
    if type(value) is int and type(usual) is int and value > own[key] and reduced <= usual:
        return 2 * usual
    if type(value) is int and type(usual) is int and value < own[key] and reduced >= usual:
        return 3 * usual // 4 if _EXPERTS.fullmatch(key) else usual // 2
    return reduced


def _width(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    if key == "hidden_size" and value == (own.get("embed_dim_per_stage") or [0])[0]:
        return _stage_widths(own["embed_dim_per_stage"], own)[0]
    return min(value, WIDTH)


def _embedding(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    stream = own.get("hidden_size")
    return NARROW if stream is not None and value < stream else min(value, WIDTH)


def _stage_base(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Width of the first of several stages: one head's width for each of its heads."""
    heads = own.get("num_heads") or own.get("num_attention_heads")
    if isinstance(heads, list | tuple):
        return HEAD * (heads[0] // math.gcd(*heads))
    return min(value, WIDTH)


def _inner(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    return min(value, WIDTH if "moe" in key or "expert" in key else INNER)


def _heads(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    if _state_space_heads(key, own):
        return _expand(own) * WIDTH // HEAD
    return 2 ** int(math.log2(min(value, HEADS)))


def _codec_width(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """First width of a codec's encoder, doubled wherever it samples down; elsewhere a width like others."""
    return min(value, CODEC_WIDTH) if "downsampling_ratios" in own else _width(key, value, own, layers)


def _key_heads(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    queries = [own[name] for name in own if _HEADS.fullmatch(name) and isinstance(own[name], int)]
    partner = own.get(key.replace("key_heads", "value_heads")) if "key_heads" in key else None
    if partner is not None:
        return 2 if value < partner else HEADS
    if value == 1:
        return 1
    return 2 if queries and value < max(queries) else HEADS if not queries else _heads(key, max(queries), {}, layers)


def _state_space_heads(key: str, own: dict[str, Any]) -> bool:
    """Heads of a selective state space, which tile the expanded stream."""
    return key == "mamba_n_heads" or (key == "num_heads" and "state_size" in own)


def _expand(own: dict[str, Any]) -> int:
    return int(own.get("expand") or own.get("mamba_expand") or 2)


def _head_dim(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    if "qk_rope_head_dim" in own:
        rotary = _rotary_part(own)
        return {own["qk_rope_head_dim"]: rotary, own.get("qk_head_dim"): HEAD + rotary}.get(value, HEAD)
    stream, heads = own.get("hidden_size") or own.get("d_model"), own.get("num_attention_heads")
    wider = isinstance(heads, int) and isinstance(stream, int) and heads * value != stream
    return 2 * HEAD if wider and "state_size" not in own else HEAD


def _rotary_part(own: dict[str, Any]) -> int:
    """Rotated elements of a head in low-rank attention: half as many as the others, or just as many."""
    return HEAD if own["qk_rope_head_dim"] == own.get("qk_nope_head_dim") else ROTARY


def _value_dim(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Elements of a head's values; more than of its keys where it was so."""
    keys = own.get("linear_key_head_dim" if key.startswith("linear") else "qk_nope_head_dim")
    return 2 * HEAD if keys is not None and value > keys else HEAD if value else value


def _experts(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    return min(value, EXPERTS)


def _at_most(limit: int) -> Callable[[str, int, dict[str, Any], int], int]:
    return lambda key, value, own, layers: min(value, limit)


def _to(number: int) -> Callable[[str, int, dict[str, Any], int], int]:
    """A size that is `number` wherever it is there at all."""
    return lambda key, value, own, layers: number if value else value


def _layer_rule(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    stages = own.get("depths")
    return value if isinstance(stages, list | tuple) and value == len(stages) else min(value, layers)


def _sharing(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Last layers that use the keys and values of others: all of them, or half."""
    return layers if value == _original_layers(own) else min(value, layers // 2)


def _positions(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Rotary positions have no table to shrink, and their scaling depends on the original length."""
    rotary = own.get("rope_parameters") is not None or own.get("rope_theta") is not None
    return value if rotary and key == "max_position_embeddings" else min(value, POSITIONS)


def _offset(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    return min(value, 1)


def _picture(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    patch = own.get("patch_size")
    patch = patch[0] if isinstance(patch, list | tuple) else patch
    staged = _staged(own)
    if "tubelet_size" in own and isinstance(own["tubelet_size"], list | tuple):
        patch = own["tubelet_size"][-1]
    if staged and patch and "window_size" in own:
        return min(value, patch * 2 ** (len(own["depths"]) - 1) * SHIFTED_WINDOW)
    if (staged and "backbone_out_indices" not in own) or not patch:
        return min(value, STAGE_PICTURE)
    side = _patch("patch_size", patch, own, layers) * PATCHES
    if windows := own.get("num_windows"):  # they tile the picture, their number's root along each side
        multiple = windows * math.isqrt(windows)
        side = -(-side // multiple) * multiple
    return min(value, side)


def _staged(own: dict[str, Any]) -> bool:
    """Do several stages shrink the picture?"""
    return any(_STAGE_WIDTHS.fullmatch(name) or name in ("depths", "embed_dims") for name in own)


def _window(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Side of a window over patches, or, where patches are merged, over pixels: two patches, merged or not."""
    if own.get("spatial_merge_size") and own.get("patch_size"):
        return min(value, 2 * own["spatial_merge_size"] * _patch("patch_size", own["patch_size"], own, layers))
    return min(value, SHIFTED_WINDOW if _staged(own) or not own.get("patch_size") else PATCHES // 2)


def _stride_back(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Pixels that a patch is turned back into."""
    return _patch("patch_size", value, own, layers) if value == own.get("patch_size") else value


def _patch(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    return min(value, 8)


_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str, Any, dict[str, Any], int], Any]], ...] = tuple(
    (re.compile(pattern) if isinstance(pattern, str) else pattern, reduce)
    for pattern, reduce in (
        (r"(\w+_)?vocab_size(_\w+)?|n_words|n_vocab|num_embeddings", _at_most(VOCABULARY)),
        ("num_pos_feats", _at_most(WIDTH // 2)),
        ("latent_query_num", _at_most(WINDOW)),
        ("rotary_dim", _at_most(ROTARY)),
        ("mm_tokens_per_image", _at_most((PATCHES // 2) ** 2)),
        ("num_groups|group_norm_num_groups", _at_most(4)),
        ("embedding_size", _embedding),
        ("encoder_hidden_size", _codec_width),
        ("embed_dim", _stage_base),
        ("(swa_|cross_)?head_dim|kv_channels|attention_head_dim|d_head", _head_dim),
        ("d_kv|mamba_d_head|mamba_head_dim|linear_key_head_dim|qk_nope_head_dim", _to(HEAD)),
        ("v_head_dim|linear_value_head_dim", _value_dim),
        ("qk_rope_head_dim", lambda key, value, own, layers: _rotary_part(own) if value else value),
        ("qk_head_dim", lambda key, value, own, layers: HEAD + _rotary_part(own)),
        ("q_lora_rank|kv_lora_rank|o_lora_rank", _at_most(RANK)),
        ("query_pre_attn_scalar", lambda key, value, own, layers: 2 * HEAD),
        ("num_hidden_groups", _at_most(1)),
        ("mamba_d_ssm", lambda key, value, own, layers: _expand(own) * WIDTH),
        ("linear_num_value_heads", _at_most(HEADS)),
        (_KEY_HEADS, _key_heads),
        (_HEADS, _heads),
        (_EXPERTS, _experts),
        (_TOP_K, _at_most(2)),
        ("num_first_full_attention_layers|num_last_full_attention_layers", _at_most(1)),
        ("n_group|mamba_n_groups|n_groups|num_expert_group", _at_most(2)),
        ("width_coefficient", lambda key, value, own, layers: min(value, 0.25)),
        ("depth_coefficient", lambda key, value, own, layers: min(value, 1.0)),
        ("num_filters", _at_most(8)),
        ("topk_group", _at_most(1)),
        ("first_k_dense_replace", _at_most(1)),
        (r"\w+_sparse_step|sliding_window_pattern|\w+_layer_period|\w+_interval|n_layers_per_\w+", _at_most(2)),
        ("moe_layer_end_index", lambda key, value, own, layers: min(value, layers - 1)),
        ("index_topk", _selected),
        ("index_topk_blocks", _at_most(2)),
        ("index_block_size|index_kpool", _at_most(WINDOW // 2)),
        ("index_head_dim", _at_most(2 * HEAD)),
        ("local_radius|global_block_size", _at_most(WINDOW // 2)),
        (r"num_sparse_\w+_layers", lambda key, value, own, layers: min(value, layers // 2)),
        (r"\w+_layer_offset", _offset),
        ("num_kv_shared_layers", _sharing),
        ("num_nextn_predict_layers|num_feat_extract_layers|num_adapter_layers", lambda key, value, own, layers: value),
        (_LAYERS, _layer_rule),
        (_WINDOWS, _at_most(WINDOW)),
        (_POSITIONS, _positions),
        (r"state_size|ssm_state_size|mamba_d_state", _at_most(STATE)),
        ("time_step_rank|mamba_dt_rank", lambda key, value, own, layers: math.ceil(WIDTH / 16)),
        ("num_mel_bins", _at_most(MELS)),
        ("max_length", lambda key, value, own, layers: min(value, 3 * HEAD) if "num_mel_bins" in own else value),
        ("num_frames|frames_per_clip", _at_most(FRAMES)),
        ("window_size", _window),
        (r"\w+_group_vocab", _at_most(VOCABULARY)),
        ("image_size|crop_size", _picture),
        ("patch_size", _patch),
        ("encoder_stride", _stride_back),
        ("num_conv_pos_embeddings", _at_most(16)),
        ("num_conv_pos_embedding_groups", _at_most(4)),
        ("num_detection_tokens|num_queries", _at_most(8)),
        ("context_length", _at_most(POSITIONS)),
        (_INNERS, _inner),
        (_WIDTHS, _width),
    )
)


def _list_rule(key: str, value: list[Any], own: dict[str, Any], layers: int) -> Any:
    numbers = all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    if not value or not numbers:
        return value
    if _every_layer(value, own):
        return list(range(layers))
    if key in ("blocks_per_stage", "depths", "num_block_repeats", "stage_num_blocks"):
        return [min(item, LAYERS) for item in value]
    if _STAGE_HEADS.fullmatch(key):
        return [item // math.gcd(*value) for item in value]
    if _STAGE_WIDTHS.fullmatch(key):
        if any(name.startswith("stage_") and name.endswith("_channels") for name in own):
            return value  # bound to other widths of each stage
        return _stage_widths(value, own)
    if key in ("conv_dim", "tdnn_dim"):
        return [NARROW] * len(value)
    if key in ("image_size", "crop_size"):
        return [_picture(key, item, own, layers) for item in value]
    if key == "patch_size":
        return [_patch(key, item, own, layers) for item in value]
    if key == "tubelet_size":
        return [value[0], *(_patch(key, item, own, layers) for item in value[1:])]
    if key.endswith("out_indices") and _original_layers(own) is None:
        return value  # of stages, which all stay
    if key.endswith("out_indices"):
        first = layers - len(value) + (key == "out_indices")  # a backbone counts its embeddings as the first
        return list(range(first, first + len(value)))
    if _LAYER_INDICES.fullmatch(key) and (max(value) >= layers or _KINDS_BY_INDEX.fullmatch(key)):
        return _picked(value, own, layers, _KINDS_BY_INDEX.fullmatch(key) is not None)
    if _TOKENS.fullmatch(key):
        return value
    for pattern in (_WINDOWS, _LAYERS, _INNERS, _WIDTHS):
        if pattern.fullmatch(key):
            return [_rule(key, item, own, layers) for item in value]
    return value


def _picked(value: list[int], own: dict[str, Any], layers: int, kinds: bool) -> list[int]:
    """Layers picked by their numbers, at the same height; where they are of a kind of their own, others remain."""
    count = max(_original_layers(own) or 0, max(value) + 1)
    picked = sorted({item * layers // count for item in value})
    if kinds and len(picked) == layers and len(set(value)) < count:
        return picked[:-1] if 0 in value else picked[1:]
    return picked


def _stage_widths(value: list[Any], own: dict[str, Any]) -> list[int]:
    """Stage widths in their own proportions: a head's width per head, else the first stage 16 wide."""
    heads = next((own[name] for name in own if _STAGE_HEADS.fullmatch(name) and isinstance(own[name], list)), None)
    if heads is not None and len(heads) == len(value):
        return [HEAD * (item // math.gcd(*heads)) for item in heads]
    return [max(HEAD, HEAD * round(item / min(value))) for item in value]


def _rope(value: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Rotary parameters whose length or sum is tied to the head's size follow it; the rest is kept."""
    result = {}
    for key, item in value.items():
        if isinstance(item, dict):
            result[key] = _rope(item, own)
        elif key == "mrope_section":
            result[key] = _proportional(item, _rotated(value, own) // 2)
        elif key == "partial_rotary_factor" and _is_rotary_share(item, own):
            result[key] = _rotary_part(own) / (HEAD + _rotary_part(own))
        elif key in ("short_factor", "long_factor"):
            half = _rotated(value, own) // 2
            result[key] = [item[index * len(item) // half] for index in range(half)]
        else:
            result[key] = item
    return result


def _is_rotary_share(share: float, own: dict[str, Any]) -> bool:
    """In low-rank attention, is this the share of a head that its rotated part makes?"""
    rotated = own.get("qk_rope_head_dim") or 0
    return rotated > 0 and rotated == share * (rotated + (own.get("qk_nope_head_dim") or 0))


def _rotated(rope: dict[str, Any], own: dict[str, Any]) -> int:
    """Elements of a reduced head that are rotated."""
    head = _head_dim("head_dim", own["head_dim"], own, 0) if own.get("head_dim") else HEAD
    return int(head * (rope.get("partial_rotary_factor") or own.get("partial_rotary_factor") or 1))


def _proportional(parts: list[int], total: int) -> list[int]:
    """`parts` scaled to sum to `total`, none below one."""
    result = [max(1, part * total // sum(parts)) for part in parts]
    result[-1] += total - sum(result)
    return result


def _remap_tokens(raw: dict[str, Any], small: dict[str, Any]) -> None:
    """Give special tokens that fell out of the vocabulary new, distinct ids at its end, the same everywhere."""
    sizes = [size for size in _found(small, lambda key: key == "vocab_size") if isinstance(size, int)]
    limit = min(sizes, default=VOCABULARY)
    originals = _found(raw, lambda key: bool(_TOKENS.fullmatch(key)))
    lost = sorted({number for number in originals if isinstance(number, int) and number >= limit - RESERVED})
    new = {old: limit - 1 - index % RESERVED for index, old in enumerate(reversed(lost))}
    _replace_tokens(small, new)


RESERVED = 16
"""Ids at the end of a reduced vocabulary that only special tokens use."""


def _found(tree: dict[str, Any], wanted: Callable[[str], bool]) -> list[Any]:
    result = []
    for key, value in tree.items():
        if isinstance(value, dict):
            result += _found(value, wanted) if "model_type" in value else []
        elif wanted(key):
            result += value if isinstance(value, list | tuple) else [value]
    return result


def _replace_tokens(tree: dict[str, Any], new: dict[int, int]) -> None:
    for key, value in tree.items():
        if isinstance(value, dict):
            if "model_type" in value:
                _replace_tokens(value, new)
        elif _TOKENS.fullmatch(key) and isinstance(value, list | tuple):
            tree[key] = [new.get(item, item) for item in value]
        elif _TOKENS.fullmatch(key) and isinstance(value, int):
            tree[key] = new.get(value, value)


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
