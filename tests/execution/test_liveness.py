"""A tensor is live where the judge would see it wrong; a dead one is told from the others by why it is dead."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from harness.cases import Dtype, Phase
from harness.execution import reference
from harness.execution.liveness import PERTURBATION, Reason, live, measure


class Block(nn.Module):
    """Two classes out of ten numbers, by way of tensors of every fate."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8, bias=False)
        self.tied.weight = self.used.weight
        self.head_of_another_class = nn.Linear(8, 2)
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.experts = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(3))
        self.table = nn.Embedding(4, 8)
        self.faint = nn.Parameter(torch.randn(8))
        self.masked = nn.Parameter(torch.randn(8))
        self.before_norm = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        x = self.used(x) + self.table(torch.zeros((), dtype=torch.long))
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        x = torch.softmax(scores, dim=-1) @ self.tied(x)
        empty = x[:0]
        x = self.experts[0](x) + self.experts[1](empty).sum()
        x = x * self.before_norm
        x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
        return {"out": x + 1e-5 * self.faint + torch.where(x.isnan(), self.masked, torch.zeros(()))}


@pytest.fixture
def block() -> Block:
    torch.manual_seed(0)
    return Block().eval()


def measured(model, **inputs):
    truth = copy.deepcopy(model).double()
    known, sick = reference.compute(model, truth, inputs, phase=Phase.FORWARD, dtype=Dtype.FLOAT32, seed=0)
    assert sick is None
    return {tensor.name: tensor for tensor in measure(model, truth, inputs, known, dtype=Dtype.FLOAT32, seed=0)}, truth


def test_each_dead_tensor_has_its_reason(block):
    tensors, _ = measured(block, x=torch.randn(5, 8))
    reasons = {name: tensor.reason for name, tensor in tensors.items()}
    assert reasons == {
        "used.weight": None,
        "used.bias": None,
        "query.weight": None,
        "query.bias": None,
        "key.weight": None,
        "key.bias": Reason.CANCELLED,
        "experts.0.weight": None,
        "experts.1.weight": Reason.UNROUTED,
        "experts.2.weight": Reason.UNROUTED,
        "table.weight": None,
        "head_of_another_class.weight": Reason.UNUSED,
        "head_of_another_class.bias": Reason.UNUSED,
        "faint": Reason.BELOW,
        "masked": Reason.DROPPED,
        "before_norm": Reason.CANCELLED,
    }
    assert tensors["used.weight"].used > 1
    assert 0 < tensors["faint"].used < 1
    assert tensors["masked"].used is None
    assert tensors["query.weight"].shape == (8, 8)


def test_both_models_are_left_as_they_were(block):
    before = copy.deepcopy(block.state_dict())
    _, truth = measured(block, x=torch.randn(5, 8))
    for name, tensor in block.state_dict().items():
        assert torch.equal(tensor, before[name]), name
        assert torch.equal(truth.state_dict()[name], before[name].double()), name


def test_what_a_model_keeps_of_a_tensor_while_it_evaluates_hides_nothing():
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias, self.kept = nn.Parameter(torch.randn(8)), None

        def train(self, mode: bool = True) -> Keeps:
            self.kept = None if mode else self.kept
            return super().train(mode)

        def forward(self, x):
            self.kept = self.bias.exp() if self.kept is None else self.kept
            return {"out": x + self.kept}

    tensors, _ = measured(Keeps().eval(), x=torch.ones(8))
    assert tensors["bias"].reason is None


def test_every_element_moves_by_one_percent_either_way_and_the_same_each_time(block):
    seen = []

    class Spied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(1000))

        def forward(self, x):
            seen.append(self.weight.detach().clone())
            return {"out": x * self.weight}

    spied = Spied()
    original = spied.weight.detach().clone()
    for _ in range(2):
        measured(spied, x=torch.ones(1000))
    moved = [weight / original - 1 for weight in seen if not torch.equal(weight, original)]
    assert len(moved) == 2
    assert torch.equal(*moved)
    assert torch.allclose(moved[0].abs(), torch.full((1000,), PERTURBATION), atol=1e-6)
    assert 0.4 < (moved[0] > 0).float().mean() < 0.6


def test_a_choice_that_flips_is_seen_and_one_that_does_not_is_not(block):
    class Chooses(nn.Module):
        def __init__(self, gap: float) -> None:
            super().__init__()
            self.book = nn.Parameter(torch.tensor([1.0, 1.0 + gap, -1.0 - gap]))

        def forward(self, x):
            return {"code": (x[:, None] - self.book).abs().argmin(-1), "x": x}

    cases = (0.001, torch.linspace(-2, 2, 101)), (0.5, torch.linspace(-2, 2, 5))
    near, far = (measured(Chooses(gap), x=x)[0]["book"] for gap, x in cases)
    assert near.reason is None
    assert far.reason is Reason.CHOOSES


class WithHead(nn.Module):
    """Another class of the type that Block is the base of: what it reads of the base, and a loss for it."""

    base_model_prefix = "base"

    def __init__(self, base: Block) -> None:
        super().__init__()
        self.base = base

    def forward(self, x, labels):
        inner = self.base(x)["out"]
        out = self.base.head_of_another_class(inner) if self.training else inner[:, :2]
        return SimpleNamespace(loss=(out - labels).square().mean())


def sought(model, phase, names, **inputs):
    truth = copy.deepcopy(model).double()
    known, sick = reference.compute(model, truth, inputs, phase=phase, dtype=Dtype.FLOAT32, seed=0)
    assert sick is None
    return live(model, inputs, known, names, phase=phase, dtype=Dtype.FLOAT32, seed=0)


def test_what_one_class_never_reads_is_found_where_another_one_trains(block):
    names = ["head_of_another_class.weight", "masked", "key.bias", "experts.2.weight", "used.weight"]
    model, inputs = WithHead(block), {"x": torch.randn(5, 8), "labels": torch.randn(5, 2)}
    found = sought(model, Phase.TRAIN, names, **inputs)
    assert found == ["head_of_another_class.weight", "used.weight"], "a step moves every tensor's own value: no news"


def test_a_tensor_is_sought_under_the_names_that_a_class_has_for_it(block):
    torch.manual_seed(0)
    assert sought(Named(), Phase.FORWARD, ["weight", "bias", "absent"], x=torch.randn(5, 8)) == ["weight"]


class Named(nn.Module):
    base_model_prefix = "base"

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return {"out": x @ self.base.weight}
