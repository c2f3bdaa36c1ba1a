from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from harness.cases import Phase, Profile
from harness.execution import outputs
from harness.inputs import InputError, cast, digest, make
from harness.models import build, load, registered
from harness.models.reduce import reduced_config
from model_lists import load_list
from model_lists.recipes import load_recipe

ENTRIES = {entry.model_type: entry for entry in load_list("smoke") if entry.weights == "synthetic"}


def made(model_type: str, profile: Profile = Profile.PADDED, seed: int = 0):
    from transformers import CONFIG_MAPPING

    config = reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type))
    return make(ENTRIES[model_type], config, Path("absent"), profile, seed), config


def test_inputs_repeat_for_a_seed_and_change_with_it():
    first, again, other = made("llava"), made("llava"), made("llava", seed=1)
    assert digest(first[0]) == digest(again[0])
    assert digest(first[0]) != digest(other[0])


def test_what_a_recipe_asks_for_is_asked_of_generate_alone(monkeypatch):
    recipe = dataclasses.replace(load_recipe("llama"), generate={"output_audio": True})
    monkeypatch.setattr("harness.inputs.load_recipe", lambda *_: recipe)
    config = made("llama")[1]
    asked = {
        phase: make(ENTRIES["llama"], config, Path("absent"), Profile.PADDED, 0, phase).get("output_audio")
        for phase in (Phase.FORWARD, Phase.GENERATE, Phase.TRAIN)
    }
    assert asked == {Phase.FORWARD: None, Phase.GENERATE: True, Phase.TRAIN: None}


@pytest.mark.parametrize(("numbers", "shape"), [({}, None), ({"encoder_width": 48}, (2, 4, 48))])
def test_a_decoder_alone_is_given_an_encoder_where_a_recipe_says_how_wide(monkeypatch, numbers, shape):
    recipe = dataclasses.replace(load_recipe("bert"), inputs=numbers)
    monkeypatch.setattr("harness.inputs.load_recipe", lambda *_: recipe)
    states = made("bert")[0].get("encoder_hidden_states")
    assert (None if states is None else tuple(states.shape)) == shape


@pytest.mark.parametrize("model_type", ["llava", "paligemma", "idefics3", "internvl", "qwen2_vl", "llama"])
def test_inputs_are_the_same_for_a_model_in_whatever_dtype_it_was_loaded(model_type, tmp_path):
    entry = ENTRIES[model_type]
    folder = build(entry, tmp_path / "model", 0).folder
    configs = [load(entry, folder, dtype, "cpu").config for dtype in ("float32", "bfloat16")]
    inputs = [digest(make(entry, config, folder, Profile.PADDED, 0)) for config in configs]
    assert inputs[0] == inputs[1]


def test_drawing_inputs_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    made("qwen2_vl")
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("model_type", sorted(ENTRIES))
def test_profiles_differ_and_lie_on_cpu(model_type):
    padded, config = made(model_type)
    single, _ = made(model_type, Profile.SINGLE)
    for inputs in (padded, single):
        assert all(tensor.device.type == "cpu" and tensor.is_contiguous() for tensor in inputs.values())
        assert {tensor.dtype for tensor in inputs.values()} <= {torch.float32, torch.int64, torch.bool}
        for name, tensor in inputs.items():
            assert tensor.is_floating_point() is False or torch.isfinite(tensor).all(), name
    assert digest(padded) != digest(single)
    for name in ("input_ids", "decoder_input_ids"):
        if name in padded:
            assert len(padded[name]) == 2
            assert len(single[name]) == 1
            assert padded[name].min() >= 0
            assert padded[name].max() < config.get_text_config().vocab_size


@pytest.mark.parametrize(("model_type", "column"), [("bert", -1), ("t5", -1), ("llama", 0), ("mamba", 0), ("llava", 0)])
def test_one_row_is_padded_on_the_side_the_model_expects(model_type, column):
    mask = made(model_type)[0]["attention_mask"]
    assert mask[0].all()
    assert mask[1, column] == 0
    assert mask[1, -1 - column] == 1 if column == 0 else mask[1, 0] == 1
    assert made(model_type, Profile.SINGLE)[0]["attention_mask"].all()


@pytest.mark.parametrize("model_type", ["llava", "qwen2_vl", "paligemma", "idefics3", "internvl"])
def test_placeholders_match_the_picture(model_type):
    inputs, config = made(model_type)
    image = getattr(config, "image_token_id", None) or config.image_token_index
    counts = (inputs["input_ids"] == image).sum(dim=1)
    assert (counts == counts[0]).all()
    expected = {"llava": 16, "qwen2_vl": 4, "paligemma": 16, "idefics3": 4, "internvl": 4}
    assert counts[0] == expected[model_type]


def test_words_are_never_special_tokens():
    inputs, config = made("roberta")
    words = inputs["input_ids"][0]
    assert not set(words.tolist()) & {config.pad_token_id, config.bos_token_id, config.eos_token_id}


def test_digest_sees_names_shapes_types_and_bytes_but_not_order():
    a, b = torch.arange(6), torch.zeros(2)
    base = digest({"a": a, "b": b})
    assert base == digest({"b": b, "a": a})
    changed = [
        {"a": a, "c": b},
        {"a": a.reshape(2, 3), "b": b},
        {"a": a.to(torch.int32), "b": b},
        {"a": a, "b": torch.tensor([0.0, -0.0])},
        {"a": a, "b": b, "flag": True},
    ]
    assert len({base, *map(digest, changed)}) == 6


def test_digest_takes_scalars_empty_and_bfloat16():
    assert digest({"a": torch.tensor(1.0), "b": torch.empty(0), "c": torch.ones(2, dtype=torch.bfloat16)})


def test_cast_touches_floating_tensors_only():
    inputs = {"x": torch.ones(2), "ids": torch.ones(2, dtype=torch.long), "mask": torch.ones(2, dtype=torch.bool)}
    types = {name: tensor.dtype for name, tensor in cast({**inputs}, "float64").items()}
    assert types == {"x": torch.float64, "ids": torch.int64, "mask": torch.bool}
    assert inputs["x"].dtype is torch.float32


def test_a_config_without_the_needed_field_is_one_line():
    from transformers import BertConfig

    with pytest.raises(InputError) as caught:
        make(ENTRIES["timesfm"], BertConfig(), Path("absent"), Profile.PADDED, 0)
    assert "context_length" in str(caught.value)
    assert "\n" not in str(caught.value)


def of_class(name: str, profile: Profile = Profile.PADDED):
    """Inputs of any registered class, and the config of the reduced architecture."""
    from transformers import CONFIG_MAPPING

    pair = next(pair for pair in registered.pairs() if pair.model_class == name)
    config = reduced_config(CONFIG_MAPPING[pair.model_type], load_recipe(pair.model_type, name))
    return make(registered.entry(pair), config, Path("absent"), profile, 0), config


def test_choices_are_several_texts_of_one_row_that_differ():
    inputs, _ = of_class("RoFormerForMultipleChoice")
    assert inputs["input_ids"].shape == inputs["attention_mask"].shape
    rows, count, _ = inputs["input_ids"].shape
    assert (rows, count) == (2, 3)
    assert not torch.equal(inputs["input_ids"][:, 0], inputs["input_ids"][:, 1])
    assert len(of_class("RoFormerForMultipleChoice", Profile.SINGLE)[0]["input_ids"]) == 1


def test_a_text_that_is_classified_by_its_end_has_one_end():
    inputs, config = of_class("BartForSequenceClassification")
    ends = inputs["input_ids"] == config.eos_token_id
    assert ends.sum(dim=1).tolist() == [1, 1]
    assert ends[0, -1]
    assert ends[1, inputs["attention_mask"][1].sum() - 1]
    assert "decoder_input_ids" not in inputs


def test_as_many_patches_are_hidden_in_each_row_but_others():
    hidden = of_class("VideoMAEForPreTraining")[0]["bool_masked_pos"]
    assert hidden.sum(dim=1).tolist() == [hidden.shape[1] // 2] * 2
    assert not torch.equal(hidden[0], hidden[1])


def test_patches_are_hidden_where_the_model_has_something_in_their_place():
    for name in ("Dinov2Model", "DINOv3ViTModel"):
        hidden = of_class(name)[0]["bool_masked_pos"]
        assert hidden.dtype is torch.bool
        assert hidden.sum(dim=1).tolist() == [hidden.shape[1] // 4] * 2
        assert not torch.equal(hidden[0], hidden[1])
        assert "bool_masked_pos" not in of_class(name, Profile.SINGLE)[0]
    for name in ("ViTModel", "BeitModel", "Dinov2ForImageClassification"):
        assert "bool_masked_pos" not in of_class(name)[0]


@pytest.mark.parametrize("name", ["Wav2Vec2Model", "SEWModel", "Wav2Vec2BertModel"])
def test_frames_of_a_sound_are_hidden(name, tmp_path):
    inputs, _ = of_class(name)
    hidden = inputs["mask_time_indices"]
    assert hidden.sum(dim=1).tolist() == [hidden.shape[1] // 4] * 2
    entry = registered.entry(next(pair for pair in registered.pairs() if pair.model_class == name))
    model = load(entry, build(entry, tmp_path / "model", 0).folder, "float32", "cpu")
    with torch.no_grad():
        shown = model(**{key: value for key, value in inputs.items() if key != "mask_time_indices"}).last_hidden_state
        assert not torch.equal(model(**inputs).last_hidden_state, shown)


def test_entities_are_named_by_words_of_the_text():
    inputs, config = of_class("LukeModel")
    places = inputs["entity_position_ids"]
    assert places.shape[:2] == inputs["entity_ids"].shape == inputs["entity_attention_mask"].shape
    assert inputs["entity_ids"].max() < config.entity_vocab_size
    assert places.max() < inputs["attention_mask"].sum(dim=1).min()
    assert inputs["entity_attention_mask"].sum(dim=1).tolist() == [2, 1]
    assert "entity_ids" not in of_class("RobertaModel")[0]


def test_one_word_is_seen_from_afar():
    assert of_class("LongformerModel")[0]["global_attention_mask"].sum(dim=1).tolist() == [1, 1]


def test_phrases_of_a_text_end():
    ends = of_class("GroundingDinoModel")[0]["input_ids"] == 102
    assert (ends.sum(dim=1) >= 2).all()
    assert not ends.all()


def test_pictures_that_only_a_part_names_are_made():
    inputs, config = of_class("DiffusionGemmaModel")
    assert {"pixel_values", "image_position_ids"} <= inputs.keys()
    assert (inputs["input_ids"] == config.image_token_id).any()
    guess = (*inputs["decoder_input_ids"].shape, config.text_config.vocab_size)
    assert inputs["self_conditioning_logits"].shape == guess


def test_a_sensor_measures_less_finely_than_a_picture_shows():
    inputs, _ = of_class("PromptDepthAnythingForDepthEstimation")
    rows, _, height, width = inputs["pixel_values"].shape
    assert inputs["prompt_depth"].shape == (rows, 1, height // 2, width // 2)
    assert (inputs["prompt_depth"] > 0).all()
    assert "prompt_depth" not in of_class("PromptDepthAnythingForDepthEstimation", Profile.SINGLE)[0]


def test_objects_to_find_in_a_picture_are_pointed_at():
    padded, single = (of_class("SamModel", profile)[0] for profile in Profile)
    height, width = padded["pixel_values"].shape[-2:]
    assert padded["input_points"].shape == (*padded["input_labels"].shape, 2)
    assert set(padded["input_labels"][0].unique().tolist()) == {0, 1}
    assert (padded["input_labels"][1, :, -1] == -10).all()
    left, top, right, bottom = padded["input_boxes"].unbind(-1)
    assert ((left >= 0) & (left < right) & (right <= width)).all()
    assert ((top >= 0) & (top < bottom) & (bottom <= height)).all()
    assert not {"input_boxes", "input_masks"} & single.keys()
    assert single["multimask_output"] is False
    assert "multimask_output" not in padded, "several masks are what models of this kind make by themselves"


def test_a_smaller_picture_is_padded_and_masked():
    inputs = of_class("Mask2FormerModel")[0]
    hidden = inputs["pixel_mask"] == 0
    assert not hidden[0].any()
    assert hidden[1].any()
    assert (inputs["pixel_values"].movedim(1, -1)[hidden] == 0).all()
    assert of_class("Mask2FormerModel", Profile.SINGLE)[0]["pixel_mask"].all()


def test_patches_that_are_not_there_have_no_place():
    inputs = of_class("Gemma4VisionModel")[0]
    absent = (inputs["pixel_position_ids"] == -1).all(dim=-1)
    assert not absent[0].any()
    assert absent[1].any()
    assert (inputs["pixel_values"][absent] == 0).all()


def test_what_only_the_model_inside_asks_for_is_made_too():
    inputs, _ = of_class("Emu3ForConditionalGeneration")
    assert inputs["image_sizes"].tolist() == [list(inputs["pixel_values"].shape[-2:])] * 2


@pytest.mark.parametrize(
    ("model_type", "names"),
    [
        ("sam", ("input_points", "input_labels", "input_boxes", "input_masks")),
        ("prompt_depth_anything", ("prompt_depth",)),
        ("evolla", ("protein_input_ids", "protein_attention_mask")),
        ("phi4_multimodal", ("image_pixel_values", "audio_input_features")),
    ],
)
def test_what_goes_beside_the_main_input_takes_part(model_type, names, tmp_path):
    entry = registered.entry(registered.base_pairs()[model_type])
    folder = build(entry, tmp_path / "model", 0).folder
    model = load(entry, folder, "float32", "cpu")
    inputs = make(entry, model.config, folder, Profile.PADDED, 0)

    def results(changed):
        with torch.no_grad():
            return outputs.leaves(model(**inputs | changed))

    plain = results({})
    for name in names:
        value = inputs[name]
        other = value.flip(-1) if value.is_floating_point() or value.dim() > 2 else value.roll(1, 0)
        moved = results({name: other})
        assert any(not torch.equal(leaf, moved[path]) for path, leaf in plain.items()), name


def test_a_video_that_comes_as_pictures_has_its_features_placed_in_the_text():
    made, config = of_class("InstructBlipVideoModel")
    places = (made["input_ids"] == config.video_token_index).sum(dim=1).tolist()
    assert places == [config.num_query_tokens * made["pixel_values"].shape[1]] * 2


@pytest.mark.parametrize("model_class", ["VideoLlavaModel", "LlavaNextVideoModel", "LlavaOnevisionModel"])
def test_a_model_that_sees_pictures_watches_videos_too(model_class):
    made, config = of_class(model_class)
    images, videos = (
        (made["input_ids"] == getattr(config, f"{kind}_token_id")).sum(dim=1).tolist() for kind in ("image", "video")
    )
    assert images[0] == images[1] > 0
    assert videos[0] == videos[1] > 0
    assert made["pixel_values_videos"].dim() == 5
    assert made["attention_mask"][:, -1].all()
    assert not made["attention_mask"][1].all()


def test_where_a_picture_begins_and_ends_experts_for_pictures_are_asked():
    made, config = of_class("Ernie4_5_VLMoeModel")
    ids, kinds = made["input_ids"], made["moe_mm_token_type_ids"]
    pictures = [config.image_token_id, config.image_start_token_id, config.image_end_token_id]
    assert kinds.bool().equal(torch.isin(ids, torch.tensor(pictures)))
    assert kinds.sum() == made["mm_token_type_ids"].sum() + 4


def test_segments_regions_and_fine_tiles_come_where_a_model_takes_them():
    from transformers import CONFIG_MAPPING

    def of(model_type: str, model_class: str):
        config = reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type, model_class))
        entry = dataclasses.replace(ENTRIES["llava"], model_type=model_type, model_class=model_class)
        return make(entry, config, Path("absent"), Profile.PADDED, 0), config

    assert of("xlnet", "XLNetModel")[0]["token_type_ids"].unique().tolist() == [0, 1]
    inputs, config = of("visual_bert", "VisualBertModel")
    assert inputs["visual_embeds"].shape[-1] == config.visual_embedding_dim
    coarse, config = of("granite_docling", "GraniteDoclingModel")
    fine, _ = of("granite_docling", "GraniteDoclingForConditionalGeneration")
    placeholders = [(each["input_ids"] == config.image_token_id).sum() for each in (coarse, fine)]
    assert placeholders[1] == 4 * placeholders[0] > 0
    assert "tile_fine_mask" not in coarse
