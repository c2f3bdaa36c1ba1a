"""What the installed library registers, and that reduction keeps kinds beyond the models of the smoke list."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest
from transformers import CONFIG_MAPPING

from harness.cases import Entry
from harness.inputs.request import configs
from harness.models import registered
from harness.models.reduce import reduced_config
from model_lists import FAMILIES
from model_lists.recipes import FOLDER, load_recipe

SHARE = 16
RECIPES = sorted(path.stem for path in FOLDER.glob("*.toml"))
NEED_TIMM = {"edgetam", "edgetam_vision_model", "gemma3n_vision", "timm_wrapper"}
TYPES = sorted(
    model_type
    for model_type in set(registered.base_pairs()) - set(RECIPES) - NEED_TIMM
    if hashlib.sha256(model_type.encode()).digest()[0] < SHARE
)
"""A spread of the types whose defaults the rules reduce unaided; a recipe changes kinds on purpose."""


def test_every_type_stands_for_itself_or_is_part_of_another():
    types, base, wholes = registered.model_types(), registered.base_pairs(), registered.wholes()
    assert len(types) == len(set(types)) == len(CONFIG_MAPPING.keys())
    assert set(base) <= set(types)
    homeless = [name for name in types if name not in base and not wholes.get(name)]
    assert len(homeless) < 10, homeless
    for inner in ("clip_text_model", "sam_mask_decoder"):
        assert inner not in wholes[inner]
    assert "sam" in wholes["sam_mask_decoder"]
    assert wholes["qwen3_omni_moe_talker_text"] == ("qwen3_omni_moe",), "through a config of no registered type"


def test_a_pair_is_counted_once_whatever_it_serves():
    pairs = registered.pairs()
    keys = [(pair.model_type, pair.model_class) for pair in pairs]
    assert len(keys) == len(set(keys))
    assert registered.mapped() > len(pairs)
    assert all(pair.tasks for pair in pairs)


def test_the_base_model_stands_for_a_type_where_there_is_one():
    base = registered.base_pairs()
    assert base["bert"].model_class == "BertModel"
    assert base["depth_anything"].model_class == "DepthAnythingForDepthEstimation"


def test_entries_are_unique_and_name_the_checkpoint_the_defaults_describe():
    entries = [registered.entry(pair) for pair in registered.base_pairs().values()]
    assert len({entry.id for entry in entries}) == len(entries)
    assert {entry.family for entry in entries} <= set(FAMILIES)
    bert = registered.entry(registered.base_pairs()["bert"])
    assert isinstance(bert, Entry)
    assert (bert.model_id, bert.tier) == ("google-bert/bert-base-uncased", "architectures")


@pytest.mark.parametrize("model_type", TYPES)
def test_reduction_keeps_kinds(model_type):
    config_class = CONFIG_MAPPING[model_type]
    # Some classes forget a default on the way through a dict, reduced or not.
    original = config_class.from_dict(config_class().to_dict())
    small = reduced_config(config_class, load_recipe(model_type))
    assert [type(part) for part in configs(small)] == [type(part) for part in configs(original)]
    for before, after in zip(configs(original), configs(small), strict=True):
        known, reduced = before.to_dict(), after.to_dict()
        own = {field.name for field in dataclasses.fields(before)}
        for key, value in known.items():
            if key not in own:
                continue  # what the class computes, or only passes on
            if isinstance(value, bool | str):
                assert reduced[key] == value, key
            if key in ("layer_types", "layers_block_type", "mlp_layer_types") and value:
                assert set(reduced[key]) == set(value), key
                assert len(reduced[key]) == after.num_hidden_layers, key
            if value is None:
                assert reduced[key] is None, key


@pytest.mark.parametrize("model_type", RECIPES)
def test_every_recipe_is_of_a_registered_type_and_its_config_is_accepted(model_type):
    assert model_type in registered.model_types()
    assert reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type)).model_type
