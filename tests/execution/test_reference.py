"""What the truth of a reference is computed in."""

import pytest
import torch
from torch import nn

from harness.cases import Dtype, Phase
from harness.execution import reference
from harness.execution.reference import Reference
from harness.execution.second_look import look

OPTIONS = {"phase": Phase.FORWARD, "seed": 0}


class Narrow(nn.Module):
    """A model with a kernel that was written for no type wider than float32."""

    def __init__(self, refuse=RuntimeError) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.refuse = nn.Parameter(torch.randn(8, 8)), refuse

    def forward(self, x):
        if x.dtype is torch.float64:
            raise self.refuse("\"kernel\" not implemented for 'Double'")
        return {"y": x @ self.weight}


def given():
    return {"x": torch.randn(4, 8, generator=torch.Generator().manual_seed(1))}


def rounded(dtype):
    """The model at a dtype, and a float64 one of the same, rounded weights."""
    model = Narrow().to(dtype)
    truth = Narrow().double()
    truth.load_state_dict(model.state_dict())
    return model, truth


@pytest.mark.parametrize("dtype", [Dtype.BFLOAT16, Dtype.FLOAT16])
@pytest.mark.parametrize("refuse", [RuntimeError, NotImplementedError, TypeError, ValueError])
def test_half_precision_takes_float32_for_the_truth_where_float64_cannot_run(dtype, refuse, tmp_path):
    model, truth = rounded(getattr(torch, dtype))
    truth.refuse = refuse
    known, sick = reference.compute(model, truth, given(), dtype=dtype, **OPTIONS)
    assert sick is None
    assert known.computed_in == "float32"
    wide = given()["x"].to(model.weight.dtype).double() @ model.weight.double()
    torch.testing.assert_close(known.truth["y"], wide, rtol=1e-5, atol=1e-6)
    assert (known.cpu["y"].double() - wide).abs().max() > 1e-4
    known.save(tmp_path / "known.pt")
    assert Reference.read(tmp_path / "known.pt").computed_in == "float32"
    twice = look(model, truth, given(), known, {"y": 2 * known.cpu["y"]}, [], dtype=dtype, **OPTIONS)
    assert twice.judged.worst.expected == pytest.approx(known.truth["y"][twice.judged.worst.index].item())


def test_float32_has_no_truth_then():
    model, truth = rounded(torch.float32)
    with pytest.raises(RuntimeError, match="not implemented"):
        reference.compute(model, truth, given(), dtype=Dtype.FLOAT32, **OPTIONS)


def test_what_runs_in_float64_has_its_truth_there():
    model, truth = nn.Linear(8, 8).to(torch.bfloat16), nn.Linear(8, 8).double()
    truth.load_state_dict(model.state_dict())
    x = {"input": given()["x"]}
    known, _ = reference.compute(model, truth, x, dtype=Dtype.BFLOAT16, **OPTIONS)
    assert known.computed_in == "float64"


def test_operators_are_those_that_the_model_calls_by_name():
    class Model(nn.Module):
        def forward(self, x):
            return nn.functional.gelu(x[..., :4] / 3) + x.sum().tanh()

    known, _ = reference.compute(Model(), Model().double(), given(), dtype=Dtype.FLOAT32, **OPTIONS)
    assert {"add", "div", "gelu", "sum", "tanh"} <= set(known.operators)
    assert not {"relu", "Model", "__getitem__", ""} & set(known.operators)
    assert known.operators == sorted(known.operators)
