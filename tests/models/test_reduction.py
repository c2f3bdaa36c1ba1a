"""Reduction keeps kinds: what an architecture's original config has, its small one has too."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import CONFIG_MAPPING

from harness.inputs.text import LENGTH, PADDING
from harness.models.reduce import UnreducibleConfig, reduced_config
from model_lists import load_list
from model_lists.recipes import Recipe, load_recipe

TYPES = sorted({entry.model_type for entry in load_list("smoke")})
SHORTEST = LENGTH - PADDING


def pairs(original, small):
    """(original, reduced) configs, nested ones too."""
    yield original, small
    for name in getattr(original, "sub_configs", {}):
        if getattr(original, name, None) is not None:
            yield from pairs(getattr(original, name), getattr(small, name))


def both(model_type):
    config_class = CONFIG_MAPPING[model_type]
    recipe = load_recipe(model_type)
    small = reduced_config(config_class, recipe)
    facts = {key: value for key, value in recipe.config.items() if not isinstance(value, dict)}
    return list(pairs(config_class(**facts), small))


@pytest.mark.parametrize("model_type", TYPES)
def test_kinds_survive(model_type):
    for original, small in both(model_type):
        for key, value in vars(original).items():
            reduced = getattr(small, key, None)
            if isinstance(value, bool | str) and not key.startswith("_"):
                assert reduced == value, key
            if key in ("layer_types", "layers_block_type", "block_types") and value:
                assert set(reduced) == set(value), key
            if value is None and key in ("q_lora_rank", "sliding_window", "num_local_experts"):
                assert reduced is None, key


@pytest.mark.parametrize("model_type", TYPES)
def test_grouped_attention_stays_grouped(model_type):
    for original, small in both(model_type):
        heads, keys = getattr(original, "num_attention_heads", None), getattr(original, "num_key_value_heads", None)
        if isinstance(heads, int) and isinstance(keys, int):
            grouped = small.num_attention_heads // small.num_key_value_heads
            assert small.num_attention_heads % small.num_key_value_heads == 0
            assert (grouped > 1) == (heads > keys)
            assert (small.num_key_value_heads == 1) == (keys == 1)


@pytest.mark.parametrize("model_type", TYPES)
def test_experts_windows_and_tokens_stay_meaningful(model_type):
    for original, small in both(model_type):
        experts = getattr(small, "num_local_experts", None) or getattr(small, "num_experts", None)
        if experts and getattr(small, "num_experts_per_tok", None):
            assert experts > small.num_experts_per_tok
            assert (small.num_experts_per_tok > 1) == (original.num_experts_per_tok > 1)
        for key in ("sliding_window", "attention_window_size", "local_attention"):
            window = getattr(small, key, None)
            assert window is None or window < SHORTEST
        vocabulary = getattr(small, "vocab_size", None)
        for key, value in vars(small).items():
            if vocabulary and key.endswith(("_token_id", "_token_index")) and isinstance(value, int):
                assert value < vocabulary, key


def test_low_rank_attention_keeps_its_ranks():
    config = reduced_config(CONFIG_MAPPING["deepseek_v3"], load_recipe("deepseek_v3"))
    assert 0 < config.kv_lora_rank < config.hidden_size
    assert 0 < config.q_lora_rank < config.hidden_size
    assert config.head_dim == config.qk_rope_head_dim
    assert config.qk_head_dim == config.qk_rope_head_dim + config.qk_nope_head_dim
    assert config.first_k_dense_replace < config.num_hidden_layers


def test_rotary_parts_keep_their_proportions():
    config = reduced_config(CONFIG_MAPPING["qwen2_vl"], load_recipe("qwen2_vl")).text_config
    head = config.hidden_size // config.num_attention_heads
    assert sum(config.rope_parameters["mrope_section"]) == head // 2
    assert config.rope_parameters["mrope_section"] == [2, 3, 3]


def test_special_tokens_stay_distinct_and_the_same_in_nested_configs():
    config = reduced_config(CONFIG_MAPPING["qwen2_vl"], load_recipe("qwen2_vl"))
    tokens = [config.image_token_id, config.video_token_id, config.vision_start_token_id, config.vision_end_token_id]
    assert len(set(tokens)) == 4
    assert max(tokens) < config.text_config.vocab_size


@pytest.mark.parametrize(
    ("model_type", "names"),
    [
        ("qwen2_5_vl_vision", ("fullatt_block_indexes", "depth")),
        ("sam_vision_model", ("global_attn_indexes", "num_hidden_layers")),
        ("mllama_text_model", ("cross_attention_layers", "num_hidden_layers")),
        ("lw_detr_vit", ("window_block_indices", "num_hidden_layers")),
    ],
)
def test_layers_that_are_listed_stay_some_of_all(model_type, names):
    listed, count = names
    facts = {"window_block_indices": [0, 1, 3, 6, 7, 9, 10]} if model_type == "lw_detr_vit" else {}
    config = reduced_config(CONFIG_MAPPING[model_type], Recipe(config=facts))
    assert 0 < len(getattr(config, listed)) < getattr(config, count)


def test_flags_that_a_whole_gives_its_part_stay():
    config = reduced_config(CONFIG_MAPPING["chmv2"], load_recipe("chmv2"))
    assert config.backbone_config.return_class_token is True


def test_stages_whose_features_are_taken_stay():
    backbone = reduced_config(CONFIG_MAPPING["grounding-dino"], Recipe()).backbone_config
    assert list(backbone.out_features) == ["stage2", "stage3", "stage4"]


def test_a_tower_pools_only_for_its_own_models():
    def pools(model_type, facts=None):
        recipe = Recipe(reduced=facts or {})
        return reduced_config(CONFIG_MAPPING[model_type], recipe).vision_config.vision_use_head

    assert pools("siglip") is pools("siglip2") is True
    assert pools("gemma3") is pools("lfm2_vl") is False
    assert pools("gemma3", {"vision_config": {"vision_use_head": True}}) is True
    given = CONFIG_MAPPING["gemma3"](vision_config={"vision_use_head": True})
    assert reduced_config(type(given), Recipe(), given).vision_config.vision_use_head is True


def test_a_size_that_parts_share_is_reduced_in_all_of_them():
    config = reduced_config(CONFIG_MAPPING["sam3_tracker_video"], load_recipe("sam3_tracker_video"))
    sizes = (config.image_size, config.vision_config.image_size, config.prompt_encoder_config.image_size)
    assert len(set(sizes)) == 1
    assert sizes[0] <= 64


def test_what_selects_has_less_room_than_there_is_to_select_from():
    assert reduced_config(CONFIG_MAPPING["deepseek_v32"], load_recipe("deepseek_v32")).index_topk < SHORTEST
    rates = reduced_config(CONFIG_MAPPING["deepseek_v4"], load_recipe("deepseek_v4")).compress_rates
    assert len(set(rates.values())) == 2
    assert max(rates.values()) < SHORTEST


def test_blocks_are_layers_only_where_nothing_else_counts_layers():
    audio = reduced_config(CONFIG_MAPPING["phi4_multimodal"], load_recipe("phi4_multimodal")).audio_config
    assert audio.num_blocks == 2
    assert audio.ext_pw_out_channel == audio.depthwise_separable_out_channel == audio.hidden_size
    assert reduced_config(CONFIG_MAPPING["eomt"], Recipe()).num_blocks == CONFIG_MAPPING["eomt"]().num_blocks


def test_values_the_class_refuses_are_one_line():
    with pytest.raises(UnreducibleConfig) as caught:
        reduced_config(CONFIG_MAPPING["bert"], Recipe(reduced={"hidden_size": "wide"}))
    assert "BertConfig" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_architecture_is_named_in_code():
    folder = Path(__file__).parents[2] / "harness"
    for path in [*(folder / "models").rglob("*.py"), *(folder / "inputs").rglob("*.py")]:
        assert "model_type ==" not in path.read_text(), path.name


@pytest.mark.parametrize(
    "model_type",
    ["sam_vision_model", "got_ocr2_vision", "qwen2_5_vl_vision", "mllama_text_model", "deepseek_vl_hybrid"],
)
def test_layers_that_attend_in_another_way_are_some_of_the_layers(model_type):
    original = CONFIG_MAPPING[model_type].from_dict(CONFIG_MAPPING[model_type]().to_dict())
    found = 0
    for before, after in pairs(original, reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type))):
        for key, value in vars(before).items():
            if "att" in key and isinstance(value, list | tuple) and value and len(value) < before.num_hidden_layers:
                found += 1
                assert 0 < len(getattr(after, key)) < after.num_hidden_layers, key
                assert max(getattr(after, key)) < after.num_hidden_layers, key
    assert found


@pytest.mark.parametrize("model_type", ["muse_glimmer", "muse_spark"])
def test_projectors_read_merged_patches(model_type):
    config = reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type))
    assert config.out_hidden_size == config.vision_config.hidden_size * config.vision_config.merge_size**2


@pytest.mark.parametrize("model_type", ["seamless_m4t", "seamless_m4t_v2", "bart", "whisper"])
def test_every_stack_of_layers_shrinks_whatever_its_part_is_called(model_type):
    ((original, small),) = both(model_type)
    stacks = [key for key in vars(original) if key.endswith(("encoder_layers", "decoder_layers"))]
    assert len(stacks) >= 2
    assert all(getattr(small, key) <= 2 for key in stacks), stacks
