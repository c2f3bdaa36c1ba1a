"""Each operator is judged by what the CPU makes of the very same arguments."""

import re

import pytest
import torch
from torch import nn

from harness.execution.first_bad import ENOUGH, Checking, Findings, checked, running_module
from harness.jobs import trail


class Small(nn.Module):
    """Has an operator of many kinds: in place, with several results, choosing, drawing, of integers, of no tensor."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.GELU())
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        hidden = self.norm(self.body(x))
        hidden += torch.arange(8, dtype=x.dtype)
        values, places = hidden.topk(3, dim=-1)
        drawn = torch.rand(3) * 0
        left, right = hidden.split(4, dim=-1)
        ties = torch.ones_like(x).argmax(-1)
        return values.sum() + places.sum() + (left @ right.transpose(-1, -2)).mean() + drawn.sum() + ties.sum()


def seen(model, x, enter=lambda *_: None, on_cpu=None):
    findings = Findings()
    with running_module(model) as where, Checking(findings, where, enter, on_cpu or {}):
        model(x)
    return findings


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_right_is_not_blamed(dtype):
    torch.manual_seed(0)
    findings = seen(Small().to(dtype), torch.randn(5, 8).to(dtype))
    assert (findings.bad, dict(findings.unchecked)) == ([], {})
    assert findings.checked > 10


def test_of_an_operator_that_does_not_return_the_trail_tells(tmp_path):
    class Failing(nn.Module):
        def forward(self, x):
            return x.relu().view(3)

    with trail.kept(tmp_path) as enter:
        seen(nn.Sequential(nn.Linear(8, 8)), torch.randn(5, 8), enter)
        assert trail.last(tmp_path) == {}, "all returned"
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            seen(nn.Sequential(nn.Linear(8, 8), Failing()), torch.randn(5, 8), enter)
    assert trail.last(tmp_path) == {"operator": "aten.view.default", "module": "1", "given": "float32[5, 8]"}
    assert trail.last(tmp_path / "nothing") == {}


def exact(args, kwargs):
    return (args[0] * 2,)


@pytest.mark.parametrize(
    ("own", "wrong"),
    [
        (lambda x: x * 2, ""),
        (lambda x: x * 2.001, "NUMERIC_MISMATCH"),
        (lambda x: x * float("nan"), "NONFINITE_DEVICE_ONLY"),
        (lambda x: (x * 2)[:2], "WRONG_SHAPE"),
        (lambda x: (x * 2).double(), "WRONG_DTYPE"),
        (lambda x: torch.cat([x[:2] * 2, x[2:]]), "NUMERIC_MISMATCH"),
    ],
)
def test_a_result_that_the_noise_does_not_explain_is(own, wrong):
    x, findings = torch.randn(4, 8), Findings()
    findings.check("double", "layer.0", exact, ((x,), {}), (own(x),))
    assert [(bad.operator, bad.module, bad.why.partition(":")[0]) for bad in findings.bad] == (
        [("double", "layer.0", wrong)] if wrong else []
    )


def test_what_the_cpu_cannot_repeat_is_counted_and_not_blamed():
    def refused(args, kwargs):
        raise NotImplementedError("no such kernel")

    findings = Findings()
    findings.check("strange", "", refused, ((torch.ones(2),), {}), (torch.zeros(2),))
    assert (findings.bad, findings.checked, dict(findings.unchecked)) == ([], 0, {"strange": 1})


def test_only_the_first_wrong_call_of_an_operator_is_kept_and_enough_ends_the_search():
    findings, x = Findings(), torch.ones(3)
    for name in ("a", "a", "b", "c"):
        findings.check(name, "", exact, ((x,), {}), (x,))
    assert [bad.operator for bad in findings.bad] == ["a", "b", "c"]
    assert [bad.place for bad in findings.bad] == ["call 1", "call 3", "call 4"]
    assert findings.bad[0].given == "float32[3]"
    assert findings.enough
    assert len(findings.bad) == ENOUGH


def wrong_where_compiled(name):
    """A compiler that gets one function wrong by a thousandth, after the graph has been captured."""

    def backend(graph, examples):
        def call(*args):
            return Wrong(graph).run(*args)

        class Wrong(torch.fx.Interpreter):
            def call_function(self, target, args, kwargs):
                result = super().call_function(target, args, kwargs)
                return result * 1.001 if getattr(target, "__name__", "") == name else result

        return call

    return backend


@pytest.mark.parametrize(("name", "module", "call"), [("gelu", "body.1", 2), ("layer_norm", "norm", 3)])
def test_of_a_compiled_graph_the_call_that_is_wrong_is_found(name, module, call):
    torch.manual_seed(0)
    torch._dynamo.reset()
    findings, model, x = Findings(), Small(), torch.randn(5, 8)
    with torch.no_grad():
        returned = torch.compile(model, backend=checked(wrong_where_compiled(name), findings))(x)
    (bad,) = findings.bad
    assert (bad.operator, bad.module) == (name, module)
    assert bad.given.startswith("float32[5, 8]")
    assert re.fullmatch(rf"call {call} of \d+ in graph 1", bad.place)
    assert returned.shape == ()


def test_of_a_compiled_graph_that_is_right_no_call_is_blamed():
    torch.manual_seed(0)
    torch._dynamo.reset()
    findings, model, x = Findings(), Small(), torch.randn(5, 8)
    with torch.no_grad():
        torch.compile(model, backend=checked(wrong_where_compiled("none"), findings))(x)
    assert findings.bad == []
    assert findings.checked > 10
