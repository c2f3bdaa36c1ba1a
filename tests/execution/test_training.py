"""A step of training, and what it leaves behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.modeling_outputs import CausalLMOutput

from harness.cases import Phase
from harness.execution import phases
from harness.execution.training import RATE, NoLoss

X, Y = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]]), torch.tensor([[1.0], [0.0], [2.0]])


class Small(nn.Module):
    """A line through a batch norm and a dropout, with one parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1)
        self.norm = nn.BatchNorm1d(2)
        self.dropout = nn.Dropout(0.5)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x, labels=None):
        y = self.line(self.dropout(self.norm(x)))
        return CausalLMOutput(loss=None if labels is None else (y - labels).square().mean(), logits=y)


def step(model, inputs, seed=0):
    return phases.run(Phase.TRAIN, model, inputs, seed)


def test_loss_gradients_and_step_are_those_of_plain_descent():
    torch.manual_seed(0)
    model = Small().eval()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    found = step(model, {"x": X, "labels": Y})
    used = ("line.weight", "line.bias", "norm.weight", "norm.bias")
    assert set(found) == {"loss"} | {f"{kind}.{name}" for kind in ("grad", "stepped") for name in used}
    normed = (X - X.mean(0)) / (X.var(0, unbiased=False) + 1e-5).sqrt()
    off = normed @ before["line.weight"].T + before["line.bias"] - Y
    torch.testing.assert_close(found["loss"], off.square().mean())
    torch.testing.assert_close(found["grad.line.weight"], (2 * off * normed).mean(0, keepdim=True))
    torch.testing.assert_close(found["stepped.line.bias"], before["line.bias"] - RATE * (2 * off).mean(0))
    assert not model.training
    for name, x in model.state_dict().items():
        assert torch.equal(x, before[name]), name
    for name, x in step(model, {"x": X, "labels": Y}, seed=1).items():
        assert torch.equal(x, found[name]), name


def test_nothing_is_left_to_chance_in_a_models_own_dropouts():
    torch.manual_seed(0)
    config = GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=32, attn_pdrop=0.5, resid_pdrop=0.5, embd_pdrop=0.5)
    model = GPT2LMHeadModel(config)
    inputs = {"input_ids": torch.arange(8)[None], "labels": torch.arange(8)[None]}
    first, second = step(model, inputs, seed=0), step(model, inputs, seed=1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert first["grad.transformer.h.0.attn.c_attn.weight"].any()


def test_a_model_without_a_loss_says_so():
    with pytest.raises(NoLoss, match="Small returns no loss for x"):
        step(Small(), {"x": X})
