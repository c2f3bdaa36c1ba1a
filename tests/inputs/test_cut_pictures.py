"""Pictures that come cut up, and the texts that attend to pictures instead of holding their features."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import CONFIG_MAPPING

from harness.cases import Dtype, Profile
from harness.execution.phases import moved
from harness.inputs import make
from harness.models import build, load, registered
from harness.models.reduce import reduced_config
from model_lists.recipes import load_recipe

FORMS = [
    "deepseek_vl_hybrid",
    "fuyu",
    "gemma4_vision",
    "glm_image",
    "idefics",
    "inkling2",
    "inkling_mm_model",
    "minicpm_ocr",
    "mllama",
    "molmo2",
    "nemotron_h_omni",
    "neomme",
    "pi0",
    "tvp",
    "unlimited_ocr",
]
"""A type for each form, by argument or by recipe."""


pytestmark = pytest.mark.usefixtures("one_thread")


def entry_of(model_type: str):
    return registered.entry(registered.base_pairs()[model_type])


def made(model_type: str, profile: Profile = Profile.PADDED):
    config = reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type))
    return make(entry_of(model_type), config, Path("absent"), profile, 0), config


@pytest.mark.parametrize("model_type", FORMS)
def test_models_take_both_profiles_and_every_picture_matters(model_type, tmp_path):
    entry = entry_of(model_type)
    model = load(entry, build(entry, tmp_path / "checkpoint", 0).folder, Dtype.FLOAT32, "cpu")

    def last(inputs):
        with torch.no_grad():
            return model(**moved(inputs, "cpu"))[0]

    for profile in Profile:
        inputs = make(entry, model.config, tmp_path, profile, 0)
        before = last(inputs)
        pictures = [name for name in inputs if "pixel_values" in name]
        assert pictures
        for name in pictures:
            other = inputs[name] + 0.5 * torch.cos(inputs[name]) * inputs[name].ne(0)
            after = last(inputs | {name: other})
            assert (after - before).norm() > 0.01 * before.norm(), name


def test_tiles_that_a_picture_does_not_fill_are_zero_and_unseen():
    inputs, config = made("mllama")
    filled = inputs["aspect_ratio_mask"].bool()
    assert filled[0].sum() == config.vision_config.max_num_tiles
    assert filled[1].sum() < filled[0].sum()
    assert torch.equal(inputs["pixel_values"].flatten(3).ne(0).any(-1), filled)
    for row, number in enumerate(inputs["aspect_ratio_ids"][:, 0].tolist()):
        height, width = config.vision_config.supported_aspect_ratios[number - 1]
        assert filled[row].sum() == height * width
    seen = inputs["cross_attention_mask"]
    assert seen.shape == (*inputs["input_ids"].shape, *filled.shape[1:])
    assert not seen[:, 0].any()
    assert torch.equal(seen[:, -1].bool(), filled)


def test_crops_pool_every_patch_once():
    inputs, config = made("molmo2")
    crops, patches, _ = inputs["pixel_values"].shape
    assert inputs["image_token_pooling"].flatten().sort().values.tolist() == list(range(crops * patches))
    assert inputs["image_token_pooling"][0].tolist() == [0, 1, 4, 5]  # neighbours, of rows of four patches
    rows = inputs["image_grids"]
    assert (rows[:, 0] * rows[:, 1] + rows[:, 2] * rows[:, 3]).sum() == len(inputs["image_token_pooling"])
    assert (inputs["input_ids"] == config.image_patch_id).sum() == len(inputs["image_token_pooling"])


def test_patches_without_a_place_are_zero():
    inputs, _ = made("gemma4_vision")
    placed = (inputs["pixel_position_ids"] >= 0).all(-1)
    assert placed[0].all()
    assert 0 < placed[1].sum() < placed.shape[1]
    assert torch.equal(inputs["pixel_values"].ne(0).any(-1), placed)
    single, _ = made("gemma4_vision", Profile.SINGLE)
    columns, rows = (single["pixel_position_ids"][0].max(0).values + 1).tolist()
    assert columns != rows


def test_tokens_see_the_pictures_before_them():
    seen = made("idefics")[0]["image_attention_mask"]
    assert not seen[:, 0].any()
    assert seen[:, -1].all()
    assert (seen.diff(dim=1) >= 0).all()
    assert (seen[..., 0] != seen[..., 1]).any()


@pytest.mark.parametrize("profile", list(Profile))
def test_grids_tell_the_patches(profile):
    plain, _ = made("nemotron_h_omni", profile)
    assert plain["image_grid_hw"].prod(-1).sum() == len(plain["pixel_values"])
    strip, config = made("minicpm_ocr", profile)
    width = strip["pixel_values"].shape[-1] // config.vision_config.patch_size
    assert strip["target_sizes"].prod(-1).sum() == width
    wanted, _ = made("glm_image", profile)  # the last grid of each row is of a picture that is yet to be made
    assert wanted["images_per_sample"].sum() == len(wanted["image_grid_thw"])
    assert wanted["image_grid_thw"][::2].prod(-1).sum() == len(wanted["pixel_values"])


def test_a_model_of_one_row_gets_one_with_padding():
    inputs, _ = made("tvp")
    assert len(inputs["input_ids"]) == len(inputs["pixel_values"]) == 1
    assert 0 < inputs["attention_mask"].sum() < inputs["attention_mask"].numel()
    assert made("tvp", Profile.SINGLE)[0]["attention_mask"].all()


def test_a_draft_guesses_a_block_after_the_states_of_a_text():
    inputs, config = made("muse_glimmer_assistant")
    block, text = inputs["noise_embeds"].shape[1], inputs["context_hidden_states"].shape[1]
    assert block == config.block_size
    assert inputs["context_hidden_states"].shape[2] == config.hidden_size * len(config.target_layer_ids)
    assert inputs["attention_mask"].shape == (2, text + block)
    assert inputs["attention_mask"][1, :text].sum() < text
    assert inputs["attention_mask"][:, text:].all()
