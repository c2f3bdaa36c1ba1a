"""What a model is trained towards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import CONFIG_MAPPING

from harness.cases import Phase, Profile
from harness.inputs import InputError, cast, digest, make
from harness.models.reduce import reduced_config
from model_lists import load_list
from model_lists.recipes import load_recipe

ENTRIES = {entry.model_type: entry for entry in load_list("smoke") if entry.weights == "synthetic"}


def made(model_type: str, model_class: str = "", phase: Phase = Phase.TRAIN):
    entry = ENTRIES[model_type]
    config = reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type))
    entry = replace(entry, model_class=model_class or entry.model_class)
    return make(entry, config, Path("absent"), Profile.PADDED, 0, phase), config


@pytest.mark.parametrize("model_type", ["bert", "llama", "llava"])
def test_words_are_labelled_and_padding_is_not(model_type):
    inputs, config = made(model_type)
    labels = inputs["labels"]
    assert labels.shape == inputs["input_ids"].shape
    assert (labels[inputs["attention_mask"] == 0] == -100).all()
    assert ((labels >= 0) & (labels < config.get_text_config().vocab_size))[labels != -100].all()
    assert (labels != -100).any(dim=1).all()


def test_pictures_among_words_are_not_labelled():
    inputs, config = made("llava")
    pictures = inputs["input_ids"] == config.image_token_id
    assert pictures.any()
    assert (inputs["labels"][pictures] == -100).all()


def test_a_decoder_gets_its_text_as_labels_and_starts_generation_by_itself():
    train, _ = made("bart")
    assert "decoder_input_ids" not in train
    assert (train["labels"][1] == -100).any()
    generate, _ = made("bart", phase=Phase.GENERATE)
    assert not {"decoder_input_ids", "decoder_attention_mask", "labels"} & set(generate)
    assert "decoder_input_ids" in made("bart", phase=Phase.FORWARD)[0]


@pytest.mark.parametrize(
    ("model_type", "model_class", "names"),
    [
        ("bert", "BertForSequenceClassification", {"labels": (2,)}),
        ("bert", "BertForTokenClassification", {"labels": (2, 20)}),
        ("bert", "BertForQuestionAnswering", {"start_positions": (2,), "end_positions": (2,)}),
        ("bert", "BertForPreTraining", {"labels": (2, 20), "next_sentence_label": (2,)}),
        ("electra", "ElectraForPreTraining", {"labels": (2, 20)}),
        ("vit", "ViTForImageClassification", {"labels": (2,)}),
        ("vit", "ViTForMaskedImageModeling", {}),
        ("wav2vec2", "Wav2Vec2ForCTC", {"labels": (2, 4)}),
        ("patchtst", "PatchTSTForRegression", {"target_values": (2, 1)}),
    ],
)
def test_labels_have_the_shape_of_the_task(model_type, model_class, names):
    without, _ = made(model_type, model_class, Phase.FORWARD)
    inputs, _ = made(model_type, model_class)
    assert {name: tuple(inputs[name].shape) for name in set(inputs) - set(without)} == names


def test_things_in_pictures_are_nested_and_repeat_for_a_seed():
    (inputs, config), (again, _) = made("yolos"), made("yolos")
    assert digest(inputs) == digest(again)
    assert digest(inputs) != digest(inputs | {"labels": list(reversed(inputs["labels"]))})
    for thing in inputs["labels"]:
        assert thing["boxes"].shape == (len(thing["class_labels"]), 4)
        centre, size = thing["boxes"].split(2, dim=1)
        assert ((centre - size / 2 > 0) & (centre + size / 2 < 1)).all()
        assert thing["class_labels"].max() < config.num_labels
    assert cast(inputs, "bfloat16")["labels"][0]["boxes"].dtype is torch.bfloat16
    assert cast(inputs, "bfloat16")["labels"][0]["class_labels"].dtype is torch.int64


def test_a_picture_has_a_class_for_each_pixel_and_a_border_without():
    inputs, config = made("segformer")
    assert inputs["labels"].shape == (2, *inputs["pixel_values"].shape[-2:])
    assert set(inputs["labels"][:, 0].unique().tolist()) == {255}
    assert inputs["labels"][:, 1:].max() < config.num_labels


def test_a_task_without_known_labels_is_named():
    config = reduced_config(CONFIG_MAPPING["swin2sr"], load_recipe("swin2sr"))
    entry = replace(ENTRIES["vit"], model_type="swin2sr", model_class="Swin2SRForImageSuperResolution")
    with pytest.raises(InputError, match="no labels are known for the task of Swin2SRForImageSuperResolution"):
        make(entry, config, Path("absent"), Profile.PADDED, 0, Phase.TRAIN)
