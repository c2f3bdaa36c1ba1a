"""Classes whose head asks something of the config that the architecture's defaults do not say."""

from __future__ import annotations

import pytest
import torch

from harness.cases import Profile
from harness.inputs import make
from harness.models import build, load, registered

PAIRS = {(pair.model_type, pair.model_class): pair for pair in registered.pairs()}


def loaded(model_type: str, model_class: str, folder):
    entry = registered.entry(PAIRS[model_type, model_class])
    built = build(entry, folder / "checkpoint", 0)
    model = load(entry, built.folder, "float32", "cpu")
    return model, make(entry, model.config, built.folder, Profile.PADDED, 0)


def run(model, inputs):
    with torch.no_grad():
        return model(**inputs)


def test_an_encoder_that_predicts_the_next_word_does_not_see_it(tmp_path):
    model, inputs = loaded("bert", "BertLMHeadModel", tmp_path)
    changed = dict(inputs, input_ids=inputs["input_ids"].clone())
    changed["input_ids"][0, -1] += 1
    before, after = run(model, inputs).logits[0], run(model, changed).logits[0]
    assert torch.equal(before[:-1], after[:-1])
    assert not torch.equal(before[-1], after[-1])


@pytest.mark.parametrize(("model_type", "model_class"), [("llama", "LlamaForSequenceClassification")])
def test_a_row_is_classified_by_its_last_word_not_by_its_padding(model_type, model_class, tmp_path):
    model, inputs = loaded(model_type, model_class, tmp_path)
    last = int(inputs["attention_mask"][1].nonzero().max())
    assert last < inputs["input_ids"].shape[1] - 1
    changed = dict(inputs, input_ids=inputs["input_ids"].clone())
    changed["input_ids"][1, last] += 1
    assert not torch.equal(run(model, inputs).logits[1], run(model, changed).logits[1])


def test_a_head_of_its_own_config_is_put_around_the_architecture(tmp_path):
    model, inputs = loaded("qwen2", "JevForDecision", tmp_path)
    assert model.config.text_config.model_type == "qwen2"
    assert run(model, inputs).shape == (int(inputs["num_options"].sum()),)
    assert inputs["marks"].min() >= 1
    assert inputs["marks"].max() < inputs["input_ids"].shape[1]
