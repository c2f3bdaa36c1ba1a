"""Sounds: their masks, what goes beside them, and texts that have places for them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import CONFIG_MAPPING

from harness.cases import Phase, Profile
from harness.inputs import InputError, cast, digest, make
from harness.models import registered
from harness.models.reduce import reduced_config
from model_lists.recipes import load_recipe


def made(model_type: str, profile: Profile = Profile.PADDED, phase: Phase = Phase.FORWARD):
    config = reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type))
    entry = registered.entry(registered.base_pairs()[model_type])
    return make(entry, config, Path("absent"), profile, 0, phase), config


@pytest.mark.parametrize(("model_type", "counts"), [("qwen3_asr", [26, 20]), ("musicflamingo", [64, 48])])
def test_a_row_has_as_many_places_as_its_own_sound_makes_features(model_type, counts):
    inputs, config = made(model_type)
    assert (inputs["input_ids"] == config.audio_token_id).sum(dim=1).tolist() == counts
    assert inputs["input_features_mask"][0].all()
    assert not inputs["input_features_mask"][1].all()
    assert inputs["attention_mask"][1, 0] == 0
    assert inputs["attention_mask"][:, -1].all()
    single, _ = made(model_type, Profile.SINGLE)
    assert (single["input_ids"] == config.audio_token_id).sum().item() == counts[0]


def test_a_mask_that_the_encoder_does_not_take_is_of_the_features():
    inputs, config = made("granite_speech")
    mask = inputs["input_features_mask"]
    assert mask.dtype is torch.bool
    assert mask.shape[1] < inputs["input_features"].shape[1]
    assert torch.equal(mask.sum(dim=1), (inputs["input_ids"] == config.audio_token_id).sum(dim=1))


def test_sounds_that_become_codes_end_at_a_sample():
    inputs, config = made("csm")
    ends = inputs["input_values_cutoffs"]
    assert ends[1] < ends[0] == inputs["input_values"].shape[-1]
    samples = 1920  # of one code: 8 * 6 * 5 * 4 * 2
    places = (inputs["input_ids"] == config.audio_token_id).sum(dim=1)
    assert places.tolist() == [-(-end // samples) for end in ends[:, 0].tolist()]
    assert (inputs["input_ids"] == config.audio_eos_token_id).sum(dim=1).tolist() == [1, 1]


@pytest.mark.parametrize("profile", list(Profile))
def test_each_token_has_its_stretch_of_the_sound(profile):
    inputs, config = made("voxtral_realtime", profile)
    assert inputs["input_features"].shape[-1] == config.audio_length_per_tok * inputs["input_ids"].shape[1]


def test_a_model_of_either_gets_sounds_and_then_a_text():
    padded, _ = made("seamless_m4t")
    single, _ = made("seamless_m4t", Profile.SINGLE)
    assert "input_features" in padded
    assert "input_ids" not in padded
    assert padded["attention_mask"].shape == padded["input_features"].shape[:2]
    assert "input_ids" in single
    assert "input_features" not in single


def test_a_mask_of_padding_is_true_where_the_padding_is():
    mask = made("gemma3n_audio")[0]["audio_mel_mask"]
    assert not mask[0].any()
    assert mask[1, -1]
    assert not mask[1, 0]
    assert not made("gemma3n_audio", Profile.SINGLE)[0]["audio_mel_mask"].any()


def test_a_codec_hears_the_wave_and_reads_as_many_frames_as_it_makes_codes():
    inputs, config = made("xcodec2")
    samples = inputs["input_values"].shape[-1]
    assert inputs["input_features"].shape[1] == samples // config.hop_length
    for row in range(2):
        whole = inputs["padding_mask"][row].sum() // config.hop_length
        assert inputs["input_features_mask"][row].sum() == whole
        assert not inputs["input_values"][row, 0, inputs["padding_mask"][row].sum() :].any()


def test_a_vocoder_is_given_the_noise_that_it_would_draw():
    inputs, config = made("univnet")
    batch, frames, _ = inputs["input_features"].shape
    assert inputs["noise_sequence"].shape == (batch, frames, config.model_in_channels)
    assert inputs["noise_sequence"].std() > 0.5


def test_halves_of_a_codec_get_a_wave_and_latents():
    encoder = made("vibevoice_acoustic_tokenizer_encoder")[0]["hidden_states"]
    decoder, config = made("vibevoice_acoustic_tokenizer_decoder")
    assert encoder.shape[:2] == (2, 1)
    assert decoder["hidden_states"].shape[:2] == (2, config.hidden_size)


def test_an_encoder_and_decoder_without_first_layers_get_hidden_states():
    inputs, config = made("speecht5")
    assert inputs["input_values"].shape == (2, inputs["attention_mask"].shape[1], config.hidden_size)
    assert inputs["decoder_input_values"].shape[-1] == config.hidden_size
    assert inputs["decoder_attention_mask"][1, -1] == 0


def test_a_composed_model_gets_what_its_encoder_takes():
    inputs, _ = made("speech-encoder-decoder")
    assert inputs["input_values"].dim() == 2
    assert inputs["attention_mask"].shape == inputs["input_values"].shape
    assert "decoder_input_ids" in inputs


def test_a_draft_model_gets_keys_and_values_of_every_kind_of_layer():
    inputs, config = made("gemma4_unified_assistant")
    states = inputs["shared_kv_states"]
    assert set(states) == set(config.text_config.layer_types)
    assert inputs["inputs_embeds"].shape == (2, 1, 2 * config.backbone_hidden_size)
    assert len({keys.shape[-1] for keys, _ in states.values()}) == 2  # heads are of two sizes
    assert {keys.shape[2] for keys, _ in states.values()} == {inputs["attention_mask"].shape[1]}
    assert {value.dtype for pair in cast(inputs, "float64")["shared_kv_states"].values() for value in pair} == {
        torch.float64
    }
    before = digest(inputs)
    states["full_attention"][1][0, 0, 0, 0] += 1
    assert digest(inputs) != before


def test_a_decision_is_one_prompt_with_questions():
    inputs, config = made("jev")
    assert len(inputs["input_ids"]) == 1
    assert inputs["marks"].max() < inputs["input_ids"].shape[1]
    assert inputs["marks"].shape == inputs["num_options"].shape == inputs["question_type_ids"].shape
    assert sorted(set(inputs["question_type_ids"][0].tolist())) == list(range(len(config.offsets)))


def test_a_class_that_cannot_be_called_is_said_to_be():
    with pytest.raises(InputError, match="BarkModel has no forward method"):
        made("bark")


@pytest.mark.parametrize("model_type", ["qwen2_5_omni_thinker", "gemma4"])
def test_a_model_that_sees_hears_too(model_type):
    inputs, config = made(model_type)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    sounds, pictures = ((ids == token).sum(dim=1) for token in (config.audio_token_id, config.image_token_id))
    assert sounds[0] > sounds[1] > 0
    assert (pictures > 0).all()
    assert mask[:, -1].all()
    assert mask[1, 0] == 0
    assert not (ids[mask == 0] == config.audio_token_id).any()
    if "mm_token_type_ids" in inputs:
        kinds = inputs["mm_token_type_ids"]
        assert torch.equal(kinds == 3, ids == config.audio_token_id)
        assert torch.equal(kinds == 1, ids == config.image_token_id)


def test_a_model_that_speaks_is_told_how_noise_becomes_sound_and_what_is_padding():
    inputs, _ = made("vibevoice", phase=Phase.GENERATE)
    assert inputs["noise_scheduler"] == {"train_steps": 1000}
    assert inputs["attention_mask"].sum(dim=1).tolist() == [20, 13]
    assert made("vibevoice")[0].keys() == {"input_ids", "input_values", "padding_mask"}


def test_codes_of_a_sound_have_their_places_in_the_text():
    inputs, config = made("higgs_audio_v2")
    assert inputs["audio_input_ids"].shape == (2, 8, config.num_codebooks)
    assert inputs["audio_input_ids_mask"].sum(dim=1).tolist() == [8, 6]
    assert (inputs["input_ids"] == config.audio_token_id).sum(dim=1).tolist() == [8, 6]


def test_a_voice_comes_before_the_text_and_what_was_said_after_it():
    inputs, config = made("gradium_phonon_tts")
    voice, said = config.audio_prompt_token_id, config.audio_latent_token_id
    for token, name in ((voice, "audio_prompt_latents"), (said, "audio_latents")):
        assert (inputs["input_ids"] == token).sum(dim=1).tolist() == [8, 6]
        assert inputs[f"{name}_mask"].sum(dim=1).tolist() == [8, 6]
    assert (inputs["input_ids"][0] == voice).nonzero().max() < (inputs["input_ids"][0] == said).nonzero().min()
    assert (inputs["input_ids"] == config.audio_bos_token_id).sum(dim=1).tolist() == [1, 1]
    before, _ = made("gradium_phonon_tts", phase=Phase.GENERATE)
    assert "audio_latents" not in before
    assert (before["input_ids"][:, -1] == config.audio_bos_token_id).all()
