"""Whatever a model returns, each result is found once, under a readable path."""

from dataclasses import dataclass

import pytest
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, LinearAttentionLayer
from transformers.modeling_outputs import BaseModelOutputWithPast

from harness.execution.outputs import OutputError, leaves, tensors
from harness.execution.placement import WrongDevice, assert_model_on, assert_on

X = torch.ones(2, 3)


@dataclass
class Plain:
    scores: torch.Tensor
    name: str = "a name is no result"


def cache() -> DynamicCache:
    filled = DynamicCache(config=LlamaConfig(num_hidden_layers=2))
    for layer in range(2):
        filled.update(torch.ones(1, 1, 4, 2), torch.zeros(1, 1, 4, 2), layer)
    return filled


@pytest.mark.parametrize(
    ("output", "paths"),
    [
        (X, ["output"]),
        ((X, None, [X, (X,)]), ["0", "2.0", "2.1.0"]),
        ({"a": X, "b": {"c": X}}, ["a", "b.c"]),
        (BaseModelOutputWithPast(last_hidden_state=X, hidden_states=(X,)), ["last_hidden_state", "hidden_states.0"]),
        (Plain(X), ["scores"]),
        ({"loss": 0.5, "count": 3, "done": True, "note": "text"}, ["loss", "count", "done"]),
        ({"ids": {7, 3}}, ["ids.0", "ids.1"]),
        (None, []),
        ([], []),
    ],
)
def test_paths(output, paths):
    assert list(leaves(output)) == paths


def test_caches_are_their_tensors_and_no_bookkeeping():
    assert list(leaves({"past": cache()})) == [f"past.{n}.{what}" for n in range(2) for what in ("keys", "values")]
    both = EncoderDecoderCache(cache(), cache())
    assert len(leaves(both)) == 8
    layer = LinearAttentionLayer()
    layer.update_conv_state(torch.ones(1, 4, 3))
    layer.update_recurrent_state(torch.ones(1, 4, 3))
    held = DynamicCache(config=LlamaConfig(num_hidden_layers=1))
    held.layers = [layer]
    assert list(leaves(held)) == ["0.conv_states.0", "0.recurrent_states.0"]


def test_a_cache_of_its_own_kind_is_its_tensors():
    class BucketsCache:
        def __init__(self) -> None:
            self.seen = 4
            self.buckets_cache = [torch.ones(1, 4), torch.tensor([])]
            self.states_cache = [X, X]

    paths = ["past.buckets_cache.0", "past.buckets_cache.1", "past.states_cache.0", "past.states_cache.1"]
    assert list(leaves({"past": BucketsCache()})) == paths


def test_numbers_are_results_but_on_no_device():
    output = {"loss": 0.5, "y": X}
    assert leaves(output)["loss"].item() == 0.5
    assert list(tensors(output)) == ["y"]


def test_what_cannot_be_judged_is_named():
    with pytest.raises(OutputError, match=r"type object at a\.1"):
        leaves({"a": [X, object()]})


def test_strays_are_named_and_counted():
    model = torch.nn.Linear(2, 2)
    assert_model_on("cpu", model)
    model.register_buffer("stray", torch.ones(1, device="meta"))
    with pytest.raises(WrongDevice, match="1 of 1 buffers are not on cpu: stray on meta"):
        assert_model_on("cpu", model)
    with pytest.raises(WrongDevice, match="2 of 2 outputs are not on tpu: a on cpu, b on cpu"):
        assert_on("tpu", {"a": X, "b": X}, "outputs")
