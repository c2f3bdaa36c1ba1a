"""What is wrong only in one program of several operators is found by the modules that are wrong as a whole."""

import copy

import pytest
import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaModel

from harness.execution.first_bad_module import WHOLE, first_bad_module

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


@pytest.fixture(scope="module")
def llama():
    """Passes a cache of keys and values on to its layers, which they write into."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaModel(LlamaConfig(vocab_size=32, **sizes)).eval()


def wrong_where_programmed(faulty):
    """A compiler that gets one module wrong by a thousandth, whatever the program that this is a part of."""

    def program(forward):
        module = forward.__self__

        def call(*args, **kwargs):
            if faulty is module:
                return forward(*args, **kwargs) * 1.001
            if faulty not in module.modules():
                return forward(*args, **kwargs)
            hook = faulty.register_forward_hook(lambda module, args, result: result * 1.001)
            try:
                return forward(*args, **kwargs)
            finally:
                hook.remove()

        return call

    return program


def searched(model, run, faulty=None, seconds=60.0):
    twins = copy.deepcopy(model), copy.deepcopy(model).double()
    with torch.no_grad():
        return first_bad_module(model, *twins, run, wrong_where_programmed(faulty), seconds)


@pytest.mark.parametrize("path", ["layers.0.self_attn.o_proj", "layers.1.mlp.act_fn", "embed_tokens", "norm"])
def test_the_innermost_module_that_is_wrong_is_found(llama, path):
    faulty = llama.get_submodule(path)
    found = searched(llama, lambda: llama(IDS), faulty)
    assert (found.module, found.operator, found.place) == (path, "", WHOLE)
    assert found.why.startswith("NUMERIC_MISMATCH: output: error is ")
    assert found.given == ("int64[2, 4]" if path == "embed_tokens" else f"float32[2, 4, {24 if 'act' in path else 16}]")
    assert not any(
        "forward" in vars(module) and vars(module)["forward"].__name__ != "forward" for module in llama.modules()
    )


def test_of_a_model_that_is_right_no_module_is_blamed(llama):
    def run():
        cache = DynamicCache()
        llama(IDS, cache=cache)
        llama(IDS[:, :1], cache=cache)

    assert searched(llama, run) is None


def test_without_time_nothing_is_looked_into(llama):
    assert searched(llama, lambda: llama(IDS), llama.norm, seconds=0.0) is None


def test_a_module_that_draws_or_that_the_cpu_cannot_repeat_is_not_blamed():
    class Drawing(nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    class Once(nn.Module):
        """Its twins are never called before, and refuse to be."""

        def __init__(self):
            super().__init__()
            self.own = False

        def forward(self, x):
            if not self.own:
                raise NotImplementedError("no kernel")
            return x

    model = nn.Sequential(Drawing(), Once(), nn.Linear(4, 4))
    twins = copy.deepcopy(model), copy.deepcopy(model).double()
    model[1].own = True
    with torch.no_grad():
        assert first_bad_module(model, *twins, lambda: model(torch.ones(2, 4)), lambda forward: forward, 60.0) is None
