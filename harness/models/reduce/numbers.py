"""What each kind of number becomes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from harness.models.reduce import names
from harness.models.reduce.layers import original_layers
from harness.models.reduce.sizes import (
    CODEC_WIDTH,
    EXPERTS,
    FRAMES,
    HEAD,
    HEADS,
    INDEX_HEADS,
    INNER,
    LAYERS,
    MELS,
    NARROW,
    PATCHES,
    POSITIONS,
    RANK,
    ROTARY,
    SHIFTED_WINDOW,
    STAGE_PICTURE,
    STATE,
    VOCABULARY,
    WIDTH,
    WINDOW,
)


def _selected(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Keys that sparse attention selects: fewer than there are, which is few where it selects among compressed ones."""
    return min(value, 2 if "compress_rates" in own else WINDOW)


def _width(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    if key == "hidden_size" and value == (own.get("embed_dim_per_stage") or [0])[0]:
        return stage_widths(own["embed_dim_per_stage"], own)[0]
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
    queries = [own[name] for name in own if names.HEADS.fullmatch(name) and isinstance(own[name], int)]
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


def head_size(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    if "qk_rope_head_dim" in own:
        rotary = rotary_part(own)
        return {own["qk_rope_head_dim"]: rotary, own.get("qk_head_dim"): HEAD + rotary}.get(value, HEAD)
    stream, heads = own.get("hidden_size") or own.get("d_model"), own.get("num_attention_heads")
    wider = isinstance(heads, int) and isinstance(stream, int) and heads * value != stream
    return 2 * HEAD if wider and "state_size" not in own else HEAD


def rotary_part(own: dict[str, Any]) -> int:
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
    return layers if value == original_layers(own) else min(value, layers // 2)


def _positions(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Rotary positions have no table to shrink, and their scaling depends on the original length."""
    rotary = own.get("rope_parameters") is not None or own.get("rope_theta") is not None
    return value if rotary and key == "max_position_embeddings" else min(value, POSITIONS)


def _offset(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    return min(value, 1)


def picture_side(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    patch = own.get("patch_size")
    patch = patch[0] if isinstance(patch, list | tuple) else patch
    staged = _staged(own)
    if "tubelet_size" in own and isinstance(own["tubelet_size"], list | tuple):
        patch = own["tubelet_size"][-1]
    if staged and patch and "window_size" in own:
        return min(value, patch * 2 ** (len(own["depths"]) - 1) * SHIFTED_WINDOW)
    if (staged and "backbone_out_indices" not in own) or not patch:
        return min(value, STAGE_PICTURE)
    side = patch_side("patch_size", patch, own, layers) * PATCHES
    if windows := own.get("num_windows"):  # they tile the picture, their number's root along each side
        multiple = windows * math.isqrt(windows)
        side = -(-side // multiple) * multiple
    return min(value, side)


def _staged(own: dict[str, Any]) -> bool:
    """Do several stages shrink the picture?"""
    return any(names.STAGE_WIDTHS.fullmatch(name) or name in ("depths", "embed_dims") for name in own)


def _window(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Side of a window over patches, or, where patches are merged, over pixels: two patches, merged or not."""
    if own.get("spatial_merge_size") and own.get("patch_size"):
        return min(value, 2 * own["spatial_merge_size"] * patch_side("patch_size", own["patch_size"], own, layers))
    return min(value, SHIFTED_WINDOW if _staged(own) or not own.get("patch_size") else PATCHES // 2)


def _stride_back(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    """Pixels that a patch is turned back into."""
    return patch_side("patch_size", value, own, layers) if value == own.get("patch_size") else value


def patch_side(key: str, value: int, own: dict[str, Any], layers: int) -> int:
    return min(value, 8)


NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str, Any, dict[str, Any], int], Any]], ...] = tuple(
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
        ("(swa_|cross_)?head_dim|kv_channels|attention_head_dim|d_head", head_size),
        ("d_kv|mamba_d_head|mamba_head_dim|linear_key_head_dim|qk_nope_head_dim", _to(HEAD)),
        ("v_head_dim|linear_value_head_dim", _value_dim),
        ("qk_rope_head_dim", lambda key, value, own, layers: rotary_part(own) if value else value),
        ("qk_head_dim", lambda key, value, own, layers: HEAD + rotary_part(own)),
        ("q_lora_rank|kv_lora_rank|o_lora_rank", _at_most(RANK)),
        ("query_pre_attn_scalar", lambda key, value, own, layers: 2 * HEAD),
        ("num_hidden_groups", _at_most(1)),
        ("mamba_d_ssm", lambda key, value, own, layers: _expand(own) * WIDTH),
        ("linear_num_value_heads", _at_most(HEADS)),
        ("index_n_heads", _at_most(INDEX_HEADS)),
        (names.KEY_HEADS, _key_heads),
        (names.HEADS, _heads),
        (names.EXPERTS, _experts),
        (names.TOP_K, _at_most(2)),
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
        (names.LAYERS, _layer_rule),
        ("num_blocks", lambda key, value, own, layers: value if original_layers(own) else min(value, LAYERS)),
        (names.WINDOWS, _at_most(WINDOW)),
        (names.POSITIONS, _positions),
        (r"state_size|ssm_state_size|mamba_d_state", _at_most(STATE)),
        ("time_step_rank|mamba_dt_rank", lambda key, value, own, layers: math.ceil(WIDTH / 16)),
        ("num_mel_bins", _at_most(MELS)),
        ("max_length", lambda key, value, own, layers: min(value, 3 * HEAD) if "num_mel_bins" in own else value),
        ("num_frames|frames_per_clip", _at_most(FRAMES)),
        ("window_size", _window),
        (r"\w+_group_vocab", _at_most(VOCABULARY)),
        ("image_size|crop_size", picture_side),
        ("patch_size", patch_side),
        ("encoder_stride", _stride_back),
        ("num_conv_pos_embeddings", _at_most(16)),
        ("num_conv_pos_embedding_groups", _at_most(4)),
        ("num_detection_tokens|num_queries", _at_most(8)),
        ("group_detr", _at_most(2)),  # groups of queries beyond the first are for training
        ("context_length", _at_most(POSITIONS)),
        (names.INNERS, _inner),
        (names.WIDTHS, _width),
    )
)


def stage_widths(value: list[Any], own: dict[str, Any]) -> list[int]:
    """Stage widths in their own proportions: a head's width per head, else the first stage 16 wide."""
    heads = next((own[name] for name in own if names.STAGE_HEADS.fullmatch(name) and isinstance(own[name], list)), None)
    if heads is not None and len(heads) == len(value):
        return [HEAD * (item // math.gcd(*heads)) for item in heads]
    return [max(HEAD, HEAD * round(item / min(value))) for item in value]
