"""A checkpoint in one GGUF file is found, checked, counted, loaded and fed like any other."""

from __future__ import annotations

import dataclasses
import json

import gguf_file
import pytest
import torch

from harness import checkpoints, inputs
from harness.cases import Case, Dtype, Entry, Evidence, Given, Mode, Phase, Profile, Verdict, Weights
from harness.jobs import JobRunner
from harness.jobs.cache import seals
from harness.jobs.twins import structure
from harness.models import BuildError, CheckpointMissing, DependencyMissing, build, load, load_truth, packed
from harness.targets import resolve


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.Q8_0.gguf"
    return path, gguf_file.write(path)


def entry(path, model_type="llama"):
    known = (model_type, "LlamaForCausalLM", "decoder-dense", "text-generation", None, "full", Weights.HUB)
    return Entry("small", "", "transformers", *known, phases=(Phase.FORWARD, Phase.GENERATE), config=str(path))


def test_it_is_built_loaded_and_computed_with_as_it_was_written(written, tmp_path):
    path, tensors = written
    built = build(entry(path), tmp_path / "absent", seed=0)
    assert (built.folder, built.evidence) == (path, Evidence.REAL_WEIGHTS)
    assert built.parameters == sum(values.size for values in tensors.values())
    model = load(entry(path), built.folder, Dtype.FLOAT32, "cpu")
    embedded = torch.from_numpy(tensors["token_embd.weight"])
    found = model.get_input_embeddings().weight
    assert (found - embedded).abs().max() < 0.01, "eight bits of values around 1/8"
    half = load(entry(path), built.folder, Dtype.BFLOAT16, "cpu")
    assert torch.equal(half.get_input_embeddings().weight, found.bfloat16())
    assert load_truth(entry(path), built.folder, Dtype.FLOAT32).dtype is torch.float64


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.GENERATE])
def test_its_own_tokenizer_makes_its_inputs_from_questions(written, phase):
    path, _ = written
    model = load(entry(path), path, Dtype.FLOAT32, "cpu")
    given, made = inputs.made(entry(path), model.config, path, Profile.PADDED, 0, phase)
    assert given is Given.TOKENIZER
    assert made.get("max_new_tokens") == (17 if phase is Phase.GENERATE else None)
    ids, mask = made["input_ids"], made["attention_mask"]
    assert ids.shape == mask.shape
    assert (mask[0].all(), mask[1, 0].item(), mask[1, -1].item()) == (True, 0, 1), "padded before the text"
    assert (ids[0, 0].item(), ids[0, -1].item(), ids[1, 0].item()) == (0, 0, 1), "begin, begin of the answer, padding"


def test_all_of_it_counts_for_what_is_kept_and_for_twins(written, tmp_path):
    path, _ = written
    assert list(seals([], path)) == [path.name]
    other = tmp_path / "other.gguf"
    other.write_bytes(path.read_bytes()[:-1] + b"\x01")
    first, second = (build(entry(one), tmp_path / "absent", 0).weights_sha256 for one in (path, other))
    assert structure("LlamaForCausalLM", path, first, "") != structure("LlamaForCausalLM", other, second, "")


def test_what_is_wrong_with_it_is_one_line(written, tmp_path, monkeypatch):
    path, _ = written
    half = tmp_path / "half.gguf"
    half.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(CheckpointMissing, match=r"half\.gguf: ends after [\d,]+ of [\d,]+ bytes"):
        build(entry(half), tmp_path, 0)
    none = tmp_path / "none.gguf"
    none.write_bytes(b"<html>" * 100)
    with pytest.raises(CheckpointMissing, match=r"none\.gguf: ValueError: .* not a GGUF file"):
        build(entry(none), tmp_path, 0)
    with pytest.raises(BuildError, match="model_type is 'llama', while the list says 'mistral'"):
        build(entry(path, "mistral"), tmp_path, 0)
    with pytest.raises(CheckpointMissing, match="no such file"):
        build(entry(tmp_path / "absent.gguf"), tmp_path, 0)
    monkeypatch.setattr("transformers.modeling_gguf_pytorch_utils.is_gguf_available", lambda: False)
    with pytest.raises(DependencyMissing, match="gguf"):
        build(entry(path), tmp_path, 0)


def test_a_package_may_hold_one(written, tmp_path, monkeypatch):
    path, _ = written
    package = tmp_path / "small_in_a_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "small.gguf").write_bytes(path.read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    one = dataclasses.replace(entry(path), config="", package=package.name)
    assert build(one, tmp_path / "absent", 0).folder == package / "small.gguf"


def test_a_place_holds_a_folder_of_safetensors_or_one_gguf_file(tmp_path):
    with pytest.raises(checkpoints.NoCheckpoint, match=r"neither config\.json with safetensors nor a GGUF file"):
        checkpoints.located(tmp_path)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(checkpoints.NoCheckpoint, match=r"2 GGUF files; name one of them, such as .*a\.gguf"):
        checkpoints.located(tmp_path)
    assert checkpoints.located(tmp_path / "b.gguf") == tmp_path / "b.gguf"
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    assert checkpoints.located(tmp_path) == tmp_path


def test_it_says_what_model_it_is(written):
    path, tensors = written
    raw = packed.config(path)
    assert (raw["model_type"], packed.model_class(raw)) == ("llama", "LlamaForCausalLM")
    assert packed.model_class({"model_type": "t5", "architectures": ["T5EncoderModel"]}) == "T5EncoderModel"
    assert packed.model_class({"model_type": "bert"}) == "BertLMHeadModel"
    assert packed.model_class({"model_type": "odd"}) == ""
    assert json.dumps(raw), "plain values alone"
    assert packed.header(path) == (sum(values.size for values in tensors.values()), "float32")


def test_it_generates_on_the_real_backend_from_its_own_tokens(written, tmp_path):
    path, _ = written
    with JobRunner(resolve("tpu-emulated"), tmp_path) as runner:
        record = runner.run(Case(entry(path), Phase.GENERATE, Mode.COMPILED, Dtype.FLOAT32, Profile.PADDED))
    assert record.verdict is Verdict.PASS, record.message + record.detail
    assert (record.inputs, record.evidence) == (Given.TOKENIZER, Evidence.REAL_WEIGHTS)
    assert record.counters.programs_executed > 0
