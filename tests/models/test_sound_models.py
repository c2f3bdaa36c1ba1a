"""Codecs get codes that differ and waves of the size of what goes in; classes with loaders of their own load."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from harness.cases import Phase, Profile
from harness.execution import outputs, phases
from harness.execution.generation import Teacher
from harness.inputs import make
from harness.models import BuildError, DependencyMissing, build, load, model_class, registered


def entry(model_type: str):
    return registered.entry(registered.base_pairs()[model_type])


pytestmark = pytest.mark.usefixtures("one_thread")


def test_codebooks_are_drawn_and_activations_stay_bounded(tmp_path):
    codec = entry("xcodec")
    folder = build(codec, tmp_path / "m", 0).folder
    model = load(codec, folder, "float32", "cpu")
    books = [buffer for name, buffer in model.named_buffers() if name.endswith("codebook.embed")]
    assert books
    assert all(book.std() > 0.5 for book in books)
    heard = {}
    model.acoustic_encoder.register_forward_hook(lambda module, given, made: heard.update(latents=made))
    with torch.no_grad():
        made = model(**make(codec, model.config, folder, Profile.PADDED, 0))
    assert heard["latents"].std() < 1000
    assert len(made.audio_codes.unique()) > 8


def test_a_loader_of_its_own_is_used_and_what_it_lacks_is_still_seen(tmp_path):
    from safetensors.torch import load_file, save_file

    decision = entry("jev")
    folder = build(decision, tmp_path / "m", 0).folder
    assert load(decision, folder, "float32", "cpu").decision_config is not None
    path = folder / "model.safetensors"
    state = load_file(path)
    del state[next(name for name in state if "embed_tokens" in name)]
    save_file(state, path, {"format": "pt"})
    with pytest.raises(BuildError, match="lacks 1 parameters"):
        load(decision, folder, "float32", "cpu")


@pytest.mark.skipif(importlib.util.find_spec("torchaudio") is not None, reason="the package is there")
def test_a_missing_package_is_found_when_the_class_is(tmp_path):
    with pytest.raises(DependencyMissing, match="torchaudio"):
        model_class(entry("higgs_audio_v2_tokenizer"))


def test_a_class_that_is_not_there_is_said_once():
    with pytest.raises(BuildError) as caught:
        build(entry("voxtral_realtime_text"), None, 0)
    assert str(caught.value).count("no model class") == 1
    assert "recipes" not in str(caught.value)


@pytest.mark.parametrize("name", ["SeamlessM4TForTextToSpeech", "SeamlessM4Tv2ForTextToSpeech"])
def test_what_is_read_is_said_in_the_units_and_the_time_of_the_first_run(name, tmp_path):
    speaker = registered.entry(next(pair for pair in registered.pairs() if pair.model_class == name))
    folder = build(speaker, tmp_path / "m", 0).folder
    model = load(speaker, folder, "float32", "cpu")
    inputs = make(speaker, model.config, folder, Profile.PADDED, 0, Phase.GENERATE)
    free = Teacher()
    first = outputs.leaves(phases.run(Phase.GENERATE, model, inputs, 0, teacher=free))
    assert 0.1 < first["waveform"].square().mean().sqrt() < 0.9
    assert not torch.equal(*first["sequences"])
    assert not torch.equal(*first["unit_sequences"])
    parts = (model.text_encoder, model.text_decoder, model.t2u_model, model.vocoder.dur_predictor)
    for part in parts:
        with torch.no_grad():
            for parameter in part.parameters():
                parameter.mul_(1.5)
    second = outputs.leaves(phases.run(Phase.GENERATE, model, inputs, 0, teacher=Teacher(free.tokens)))
    same = {path for path, leaf in first.items() if torch.equal(leaf, second[path])}
    assert same == {"waveform", "waveform_lengths", "sequences", "unit_sequences"}
