"""A model that needs code of its own repository runs at the very commit that its entry trusts, and not at all else."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fault_table import PATIENCE
from hub_server import Fault, HubServer
from huggingface_hub import constants
from safetensors.numpy import save
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from harness import targets
from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Weights
from harness.cli import made_lists
from harness.hub import fetch, index
from harness.hub.fetch import Settings, fetch_all
from harness.pytest_plugin.executor import Executor
from harness.records import Peak

CONFIGURATION = """
from transformers import PreTrainedConfig

class NeatConfig(PreTrainedConfig):
    model_type = "neat"

    def __init__(self, vocab_size=32, hidden_size=16, **more):
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.num_hidden_layers, self.num_attention_heads = 1, 1
        super().__init__(**more)
"""
MODELING = """
import json, os, sys
from pathlib import Path

import torch
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .configuration_neat import NeatConfig

seen = {"environment": dict(os.environ), "stdin": sys.stdin.read(), "file": __file__}
with open(MARK, "a") as mark:
    mark.write(json.dumps(seen) + "\\n")

class NeatForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = NeatConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **_):
        return CausalLMOutput(logits=self.head(torch.tanh(self.words(input_ids))))
"""
CODE = {"AutoConfig": "configuration_neat.NeatConfig", "AutoModelForCausalLM": "modeling_neat.NeatForCausalLM"}
CONFIG = {"model_type": "neat", "architectures": ["NeatForCausalLM"], "vocab_size": 32, "hidden_size": 16}
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")


def files(mark: Path, config: dict[str, object] = CONFIG | {"auto_map": CODE}) -> dict[str, bytes]:
    """A repository with code that notes in a file that it ran, and what it saw."""
    drawn = np.random.default_rng(0)
    sizes = {"words.weight": (32, 16), "head.weight": (32, 16), "head.bias": (32,)}
    weights = {name: drawn.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    return {
        "config.json": json.dumps(config).encode(),
        "configuration_neat.py": CONFIGURATION.encode(),
        "modeling_neat.py": MODELING.replace("MARK", repr(str(mark))).encode(),
        "model.safetensors": save(weights, metadata={"format": "pt"}),
    }


def entry(model_id: str, trusted: str = "", weights: Weights = Weights.HUB) -> Entry:
    row = Entry(model_id, "", "transformers", "neat", "NeatForCausalLM", "decoder-dense", "", None, "full", weights)
    return dataclasses.replace(row, custom_code="yes", trusted=trusted)


@pytest.fixture(scope="module")
def hub():
    """A Hub on loopback, and tokens in the environment of all that runs here."""
    with pytest.MonkeyPatch.context() as patch, HubServer() as server:
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.delenv("HF_HUB_CACHE", raising=False)
        for name in TOKENS:
            patch.setenv(name, "hf_" + "Ab3" * 12)
        yield server


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def typing():
    """Somebody types into the standard input of all that runs here."""
    before, (keys, typed) = os.dup(0), os.pipe()
    os.write(typed, b"secret\n")
    os.close(typed)
    os.dup2(keys, 0)
    yield
    os.dup2(before, 0)
    for one in (before, keys):
        os.close(one)


@pytest.fixture(scope="module")
def execute(hub, cache, typing):
    """The row of an entry on the emulated TPU."""
    rows: list[dict[str, object]] = []
    journal = SimpleNamespace(append=rows.append, close=lambda: None)
    run = SimpleNamespace(id="run", journal=lambda _: journal, announce=lambda *_: None, amend=lambda _: None)
    executor = Executor(targets.resolve("tpu-emulated"), cache, run, "main", "", None, None, lambda _: Peak(0))

    def executed(asked: Entry, phase: Phase = Phase.FORWARD) -> dict[str, object]:
        executor.run(Case(asked, phase, Mode.STRICT_EAGER, Dtype.FLOAT32, Profile.PADDED))
        return rows[-1]

    yield executed
    executor.close()


def prefetch(hub, cache, *entries):
    """What became of the entries, and what was asked for of files of code."""
    hub.log.clear()
    ended = list(fetch_all(entries, Settings(cache, PATIENCE, hub.endpoint)))
    return [one.fetched for one in ended], [request for request, *_ in hub.log if request.endswith(".py")]


def test_trusted_code_runs_on_the_target_without_a_token_or_an_input(hub, cache, execute, tmp_path):
    made = hub.add("acme/neat", files(tmp_path / "ran"))
    trusted = entry("acme/neat", made.commit)
    (found,), _ = prefetch(hub, cache, trusted)
    assert not found.verdict, found.message
    row = execute(trusted)
    assert (row["verdict"], row["evidence"], row["trusted"]) == ("PASS", "real-weights", made.commit), row["message"]
    assert row["programs_executed"] > 0
    seen = [json.loads(line) for line in (tmp_path / "ran").read_text().splitlines()]
    assert len(seen) == 2, "once for the reference, and once for the target"
    for one in seen:
        assert not {*TOKENS} & {*one["environment"]}
        assert one["stdin"] == ""
        for place in (one["file"], one["environment"]["HF_HUB_CACHE"]):
            assert Path(place).is_relative_to(tempfile.gettempdir()), "nothing of the user's own folders is looked at"
    row = execute(trusted, Phase.GENERATE)
    assert row["verdict"] == "PASS", row["message"]


def test_a_tokenizer_of_trusted_code_feeds_a_model_of_the_library(hub, cache, execute, tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=8, **sizes)).save_pretrained(tmp_path / "model")
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "is": 1, "the": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path / "model")
    content = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
    said = json.loads(content["tokenizer_config.json"])
    said |= {"tokenizer_class": "NeatTokenizer", "auto_map": {"AutoTokenizer": [None, "words.NeatTokenizer"]}}
    code = f"""
from transformers import PreTrainedTokenizerFast

class NeatTokenizer(PreTrainedTokenizerFast):
    open({str(tmp_path / "ran")!r}, "w").write(__file__)
"""
    content |= {"tokenizer_config.json": json.dumps(said).encode(), "words.py": code.encode()}
    made = hub.add("acme/words", content)
    trusted = dataclasses.replace(entry("acme/words", made.commit), model_type="bert", model_class="BertModel")
    prefetch(hub, cache, trusted)
    row = execute(trusted)
    assert (row["verdict"], row["inputs"]) == ("PASS", "tokenizer"), row["message"]
    assert Path((tmp_path / "ran").read_text()).is_relative_to(tempfile.gettempdir())


def test_code_that_nobody_trusts_is_neither_fetched_nor_run(hub, cache, execute, tmp_path):
    made = hub.add("acme/untrusted", files(tmp_path / "ran"))
    (found,), asked = prefetch(hub, cache, entry("acme/untrusted"))
    assert (found.verdict, asked) == ("", [])
    row = execute(entry("acme/untrusted"))
    assert (row["verdict"], row["group"]) == ("CODE_NOT_TRUSTED", "environment")
    assert "config.json asks for code of its own (AutoConfig: configuration_neat.NeatConfig)" in row["message"]
    todo = f"read the *.py of acme/untrusted at commit {made.commit}, and put that into the list's column trusted"
    assert row["message"].endswith(f", and the list trusts none; {todo}")
    assert not (tmp_path / "ran").exists()


def test_code_of_another_commit_than_the_trusted_one_does_not_run(hub, cache, execute, tmp_path):
    made = hub.add("acme/moved", files(tmp_path / "ran"))
    read = entry("acme/moved", made.commit[::-1])
    _, asked = prefetch(hub, cache, read)
    row = execute(read)
    assert (asked, row["verdict"]) == ([], "CODE_NOT_TRUSTED")
    assert f"the list trusts that of commit {made.commit[::-1]}; read" in row["message"]
    assert not (tmp_path / "ran").exists()


def test_one_entry_trusts_for_itself_alone(hub, cache, execute, tmp_path):
    made = hub.add("acme/shared", files(tmp_path / "ran"))
    _, asked = prefetch(hub, cache, entry("acme/shared"), entry("acme/shared", made.commit))
    assert asked
    assert execute(entry("acme/shared"))["verdict"] == "CODE_NOT_TRUSTED"
    assert not (tmp_path / "ran").exists()


def test_code_that_is_trusted_later_is_fetched_without_the_weights(hub, cache, tmp_path):
    made = hub.add("acme/later", files(tmp_path / "ran"))
    prefetch(hub, cache, entry("acme/later"))
    trusted = entry("acme/later", made.commit)
    assert "its code was not fetched yet" in index.known(cache, trusted).message
    (found,), asked = prefetch(hub, cache, trusted)
    assert {name for name in found.weights if name.endswith(".py")} == {"configuration_neat.py", "modeling_neat.py"}
    assert asked
    assert not [request for request, *_ in hub.log if request.startswith("GET") and "safetensors" in request]
    assert index.known(cache, trusted).failed is None
    _, asked = prefetch(hub, cache, trusted)
    assert not asked


def test_other_bytes_than_the_hub_names_are_no_code(hub, cache, execute, tmp_path):
    made = hub.add("acme/spoilt", files(tmp_path / "ran"), Fault("spoil", on="GET .*/modeling_neat.py"))
    (found,), _ = prefetch(hub, cache, entry("acme/spoilt", made.commit))
    assert found.verdict == "WRONG_HASH"
    assert execute(entry("acme/spoilt", made.commit))["verdict"] == "WRONG_HASH"
    assert not (tmp_path / "ran").exists()


def test_code_that_was_changed_after_it_was_fetched_does_not_run(hub, cache, execute, tmp_path):
    made = hub.add("acme/changed", files(tmp_path / "ran"))
    trusted = entry("acme/changed", made.commit)
    (found,), _ = prefetch(hub, cache, trusted)
    with Path(found.config).with_name("modeling_neat.py").open("a") as code:
        code.write("# one more line\n")
    row = execute(trusted)
    assert (row["verdict"], "no longer what was fetched" in row["message"]) == ("WRONG_HASH", True)
    assert not (tmp_path / "ran").exists()
    prefetch(hub, cache, trusted)
    assert index.known(cache, trusted).failed is None


def test_more_code_than_anybody_reads_is_not_taken(hub, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "CODE_BYTES", 1000)
    made = hub.add("acme/long", files(tmp_path / "ran"))
    (found,), asked = prefetch(hub, cache, entry("acme/long", made.commit))
    assert (found.verdict, asked) == ("CODE_NOT_TRUSTED", [])
    assert "more than the 1,000 that are taken" in found.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"auto_map": CODE | {"AutoModel": "acme/other--modeling_x.X"}}, "does not lie beside its config"),
        ({"auto_map": CODE | {"AutoConfig": "acme/elsewhere--modeling_x.BertConfig"}}, "AutoConfig: acme/elsewhere"),
        ({"auto_map": CODE | {"AutoConfig": "../../else/configuration_neat.NeatConfig"}}, "AutoConfig: ../../else"),
        ({"auto_map": None}, "has no model class NeatForCausalLM"),
    ],
)
def test_trust_is_in_this_repository_and_in_what_its_config_asks_for(hub, cache, execute, tmp_path, change, said):
    name = f"acme/{tmp_path.name}"
    made = hub.add(name, files(tmp_path / "ran", CONFIG | {"auto_map": CODE} | change))
    prefetch(hub, cache, entry(name, made.commit))
    row = execute(entry(name, made.commit))
    assert said in row["message"]
    assert not (tmp_path / "ran").exists()


def test_seeded_weights_of_such_a_model_say_how_it_runs(hub, cache, execute, tmp_path):
    made = hub.add("acme/seeded", files(tmp_path / "ran"))
    row = execute(entry("acme/seeded", made.commit, Weights.SYNTHETIC))
    assert (row["verdict"], "real weights alone: `--weights hub`" in row["message"]) == ("CODE_NOT_TRUSTED", True)
    config = made_lists.weighed(entry("acme/seeded", made.commit, Weights.SYNTHETIC), Weights.CONFIG, cache)
    prefetch(hub, cache, config)
    row = execute(config)
    assert (row["verdict"], "real weights alone: `--weights hub`" in row["message"]) == ("CODE_NOT_TRUSTED", True)
    assert not (tmp_path / "ran").exists()
