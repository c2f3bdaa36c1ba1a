"""The CPU's stand-ins for operators that it lacks come to what PyTorch's own autograd does."""

import pytest
import torch
from torch.nn import functional

from harness.execution.on_cpu import ON_CPU, attention, attention_backward, linear_backward


def test_every_stand_in_is_for_an_operator_that_the_cpu_lacks():
    for operator in ON_CPU:
        assert not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CPU")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biased", [False, True, "one query sees nothing"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_and_its_gradients(causal, biased, scale):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    bias = torch.randn(2, 1, 5, 5, dtype=torch.float64) if biased and not causal else None
    if bias is not None and biased is not True:
        bias[0, 0, 2] = -torch.inf
    out = functional.scaled_dot_product_attention(q, k, v, bias, is_causal=causal, scale=scale)
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(out, (q, k, v), grad)
    q, k, v = (x.detach() for x in (q, k, v))
    torch.testing.assert_close(attention(q, k, v, bias, 0.0, causal, False, scale=scale), out)
    rest = (torch.empty(0), None, None, 5, 5, 0.0, causal, None, None)
    found = attention_backward(grad, q, k, v, bias, [True, True, True, False], out.detach(), *rest, scale=scale)
    torch.testing.assert_close(found, expected)
    assert attention_backward(grad, q, k, v, bias, [True, False, True, False], out.detach(), *rest)[1] is None


def test_a_linear_layers_gradients():
    torch.manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, 4), (5, 4), (5,))
    )
    out = functional.linear(x, weight, bias)
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(out, (x, weight, bias), grad)
    torch.testing.assert_close(linear_backward(x.detach(), grad, weight.detach(), [True] * 3), expected)
    assert linear_backward(x.detach(), grad, weight.detach(), [True, False, True])[1] is None
