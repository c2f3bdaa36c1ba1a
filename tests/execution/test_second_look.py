"""What a mismatch is when it is looked at again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from harness.cases import Phase, Verdict
from harness.execution import reference
from harness.execution.choices import Watching
from harness.execution.narrow import Narrow
from harness.execution.second_look import look
from harness.numerics.judge import judge


class Routed(nn.Module):
    """Each row goes to the better of four experts by its score; row 1 likes two of them almost equally."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.experts = nn.Parameter(torch.randn(4, 8, 8))
        self.router = nn.Parameter(torch.randn(4, 8))
        self.nudge = 0.0

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = x @ self.router.T
        scores = torch.cat([scores[:, :3], scores[:, :1] - 1e-8 * (1 - self.nudge)], 1)  # the fourth is as the first
        best = scores.max(-1)
        return {"y": torch.einsum("bi,bij->bj", x, self.experts[best.indices]) * best.values[:, None]}


def setup():
    model, truth = Routed(), Routed().double()
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    options = {"phase": Phase.FORWARD, "dtype": "float32", "seed": 0}
    known, sick = reference.compute(model, truth, {"x": x}, **options)
    assert sick is None
    return model, truth, {"x": x}, known, options


def returned_by(model: nn.Module, x: torch.Tensor):
    with Watching() as watched, torch.no_grad():
        leaves = model(x)
    return leaves, watched.picks


def test_toss_ups_that_fell_otherwise_are_no_mismatch_and_are_counted():
    model, truth, inputs, known, options = setup()
    other = Routed()
    other.nudge = 10.0
    returned, picks = returned_by(other, inputs["x"])
    assert judge(known.truth, known.cpu, returned).verdict is Verdict.NUMERIC_MISMATCH
    found = look(model, truth, inputs, known, returned, picks, **options)
    assert found.judged.verdict is Verdict.PASS
    assert found.flips > 0


@pytest.mark.parametrize("wrong", [lambda router: router.roll(1, 0), lambda router: -router])
def test_a_router_that_chooses_wrongly_stays_a_mismatch(wrong):
    model, truth, inputs, known, options = setup()
    other = Routed()
    other.router.data = wrong(other.router.data)
    found = look(model, truth, inputs, known, *returned_by(other, inputs["x"]), **options)
    assert found.judged.verdict is Verdict.NUMERIC_MISMATCH


def test_a_target_whose_toss_ups_fell_otherwise_has_to_be_right_all_the_same():
    model, truth, inputs, known, options = setup()
    other = Routed()
    other.nudge, other.experts.data = 10.0, other.experts.data * 1.001
    found = look(model, truth, inputs, known, *returned_by(other, inputs["x"]), **options)
    assert found.judged.verdict is Verdict.NUMERIC_MISMATCH


def test_choices_that_cannot_be_paired_leave_the_judgement_as_it_was():
    model, truth, inputs, known, options = setup()
    returned, _ = returned_by(Routed(), inputs["x"] * 1.01)
    found = look(model, truth, inputs, known, returned, [], **options)
    assert (found.judged.verdict, found.flips) == (Verdict.NUMERIC_MISMATCH, None)


@pytest.mark.parametrize("precision", ["tensorfloat32", "bfloat16"])
def test_products_of_a_narrower_type_are_recognised(precision):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    truth = nn.Sequential(*[nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)]).double()
    truth.load_state_dict(model.state_dict())
    inputs = {"input": torch.randn(32, 64, generator=torch.Generator().manual_seed(1))}
    options = {"phase": Phase.FORWARD, "dtype": "float32", "seed": 0}
    known, _ = reference.compute(model, truth, inputs, **options)
    with Narrow(precision):
        returned = reference.run(model, inputs, Phase.FORWARD, 0)
    assert look(model, truth, inputs, known, returned, [], **options).precision == precision
    double = {path: leaf * 2 for path, leaf in known.cpu.items()}
    assert look(model, truth, inputs, known, double, [], **options).precision == ""


class Chaotic(nn.Module):
    """Noise grows a thousandfold on its way: one run of a single number says little about it."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.tensor([0.3]))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.start * x
        for _ in range(12):
            y = 3.9 * y * (1 - y)
        return {"y": y}


def test_noise_that_one_run_does_not_show_is_looked_for_in_more():
    options = {"phase": Phase.FORWARD, "dtype": "float32", "seed": 0}
    near, unlucky = Chaotic(), []
    near.start.data *= 1 + 2**-23
    for x in torch.linspace(1, 2, 40):
        model, inputs = Chaotic(), {"x": x[None]}
        known, _ = reference.compute(model, Chaotic().double(), inputs, **options)
        returned = {"y": near(**inputs)["y"].detach()}
        if judge(known.truth, known.cpu, returned).verdict is Verdict.NUMERIC_MISMATCH:
            unlucky.append(look(model, Chaotic().double(), inputs, known, returned, [], **options))
            assert torch.equal(model.start, Chaotic().start), "the weights are put back"
            wrong = look(model, Chaotic().double(), inputs, known, {"y": known.cpu["y"] + 0.1}, [], **options)
            assert (wrong.judged.verdict, wrong.draws) == (Verdict.NUMERIC_MISMATCH, 1)
    told = [found for found in unlucky if found.draws == 5]
    assert told
    assert {found.judged.verdict for found in told} == {Verdict.PASS}
