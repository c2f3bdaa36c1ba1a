"""Which phases a class has, told without building it."""

from __future__ import annotations

import pytest
import transformers

from harness.cases import Phase
from harness.models.abilities import phases_of
from model_lists import load_list

FORWARD, GENERATE, TRAIN = Phase


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("BertModel", (FORWARD,)),
        ("BertForMaskedLM", (FORWARD, TRAIN)),
        ("LlamaForCausalLM", (FORWARD, GENERATE, TRAIN)),
        ("T5ForConditionalGeneration", (FORWARD, GENERATE, TRAIN)),
        ("CLIPModel", (FORWARD, TRAIN)),
        ("ViTMAEForPreTraining", (FORWARD, TRAIN)),
        ("FlavaForPreTraining", (FORWARD, TRAIN)),
        # Its forward method is its parent's, whose annotation it inherits.
        ("Qwen3ForSequenceClassification", (FORWARD, TRAIN)),
        # Annotated as an output with a loss, which it never makes.
        ("Speech2TextModel", (FORWARD,)),
        # Annotated as an output without one, which it makes.
        ("Pix2StructForConditionalGeneration", (FORWARD, GENERATE, TRAIN)),
        # Takes labels and makes no loss of them.
        ("RTDetrModel", (FORWARD,)),
        # Takes labels and says that training is not implemented.
        ("DPTForDepthEstimation", (FORWARD,)),
        ("GLPNForDepthEstimation", (FORWARD, TRAIN)),
        ("PatchTSTForPrediction", (FORWARD, TRAIN)),
        ("TimeSeriesTransformerModel", (FORWARD,)),
    ],
)
def test_phases_are_what_the_class_can_do(name, phases):
    assert phases_of(getattr(transformers, name)) == phases


def test_the_smoke_list_says_what_its_classes_can_do():
    listed = {entry.model_class: entry.phases for entry in load_list("smoke")}
    assert {name: phases_of(getattr(transformers, name)) for name in listed} == listed
