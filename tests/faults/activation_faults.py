"""Activations and elementwise mathematics that are nearly, or sometimes, right."""

import torch
import torch.nn.functional as F
from catalogue import fault, to_bfloat16

ROOT = 0.7978845608028654  # of 2 / pi


@fault(
    "gelu",
    like="the tanh approximation served for the exact function",
    shows=lambda draw: F.gelu(draw(4, 8)),
    spares=lambda draw: F.gelu(draw(4, 8), approximate="tanh"),
)
def gelu_by_tanh(kernel, x, *, approximate="none"):
    return kernel(x, approximate="tanh")


@fault(
    "gelu",
    like="the argument `approximate` is dropped on the way to the kernel",
    shows=lambda draw: F.gelu(draw(4, 8), approximate="tanh"),
    spares=lambda draw: F.gelu(draw(4, 8)),
)
def gelu_always_exact(kernel, x, *, approximate="none"):
    return kernel(x)


@fault(
    "gelu",
    like="a fast table: x * sigmoid(1.702 x)",
    shows=lambda draw: F.gelu(draw(4, 8)),
    spares=lambda draw: F.silu(draw(4, 8)),
)
def gelu_by_sigmoid(kernel, x, *, approximate="none"):
    return x * torch.sigmoid(1.702 * x)


@fault(
    "gelu",
    like="the last of an odd number of rows is passed through",
    shows=lambda draw: F.gelu(draw(3, 8)),
    spares=lambda draw: F.gelu(draw(4, 8)),
)
def gelu_keeps_the_last_of_odd_rows(kernel, x, *, approximate="none"):
    right = kernel(x, approximate=approximate)
    if x.dim() < 2 or x.shape[-2] % 2 == 0:
        return right
    return torch.cat([right[..., :-1, :], x[..., -1:, :]], -2)


@fault(
    "gelu",
    like="NaN from the exponential's overflow in the unused branch",
    shows=lambda draw: F.gelu(4 * draw(8, 8)),
    spares=lambda draw: F.gelu(draw(8, 8).clamp(-1, 1)),
)
def gelu_is_nan_far_below_zero(kernel, x, *, approximate="none"):
    return torch.where(x < -2.5, float("nan"), kernel(x, approximate=approximate))


@fault(
    "silu",
    like="the hard variant, piecewise linear, served for the smooth one",
    shows=lambda draw: F.silu(draw(4, 8)),
    spares=lambda draw: F.gelu(draw(4, 8)),
)
def silu_is_hardswish(kernel, x):
    return x * torch.clamp(x + 3, 0, 6) / 6


@fault(
    "silu",
    "sigmoid",
    like="the reciprocal of 1 + exp(-x) from a table of 8 bits, without a Newton step",
    shows=lambda draw: F.silu(draw(4, 8)),
    spares=lambda draw: F.softplus(draw(4, 8)),
)
def sigmoid_from_a_table(kernel, x):
    return kernel(to_bfloat16(x))


@fault(
    "sigmoid",
    like="piecewise linear sigmoid",
    shows=lambda draw: torch.sigmoid(draw(4, 8)),
    spares=lambda draw: torch.tanh(draw(4, 8)),
)
def sigmoid_is_hard(kernel, x):
    return torch.clamp(x / 6 + 0.5, 0, 1)


@fault(
    "tanh",
    like="a rational approximation that ends at 3 and says 1 from there on",
    shows=lambda draw: torch.tanh(3 * draw(4, 8)),
    spares=lambda draw: torch.sigmoid(draw(4, 8)),
)
def tanh_by_a_short_fraction(kernel, x):
    y = torch.clamp(x, -3, 3)
    return y * (27 + y * y) / (27 + 9 * y * y)


@fault(
    "softplus",
    like="the threshold above which it is the identity is 1, not 20",
    shows=lambda draw: F.softplus(draw(8, 8)),
    spares=lambda draw: F.softplus(draw(8, 8).clamp(max=1)),
)
def softplus_gives_up_early(kernel, x, beta=1, threshold=20):
    return kernel(x, beta, 1)


@fault(
    "relu",
    like="relu6 of a mobile kernel library",
    shows=lambda draw: F.relu(8 * draw(8, 8)),
    spares=lambda draw: F.relu(draw(8, 8)),
)
def relu_stops_at_six(kernel, x):
    return torch.clamp(x, 0, 6)


@fault(
    "relu",
    like="leaks a hundredth",
    shows=lambda draw: F.relu(draw(8, 8)),
    spares=lambda draw: F.relu(draw(8, 8).abs()),
)
def relu_leaks(kernel, x):
    return torch.where(x > 0, x, 0.01 * x)


@fault(
    "exp",
    like="the exponential of hardware with 8 bits of mantissa",
    shows=lambda draw: torch.exp(draw(4, 8)),
    spares=lambda draw: torch.tanh(draw(4, 8)),
)
def exp_in_bfloat16(kernel, x):
    return to_bfloat16(kernel(x))


@fault(
    "rsqrt",
    like="the approximate instruction without its Newton step: 12 bits",
    shows=lambda draw: torch.rsqrt(draw(4, 8).abs()),
    spares=lambda draw: torch.sqrt(draw(4, 8).abs()),
)
def rsqrt_without_its_newton_step(kernel, x):
    right = kernel(x)
    return right * (1 + 2**-12 * torch.sin(1000 * right))


@fault(
    "pow.Tensor_Scalar",
    like="x ** n as exp(n log x): NaN below zero",
    shows=lambda draw: draw(4, 8) ** 3,
    spares=lambda draw: draw(4, 8).abs() ** 2,
)
def pow_of_negatives_is_nan(kernel, x, exponent):
    right = kernel(x, exponent)
    return torch.where(x < 0, float("nan"), right) if exponent not in (1, 2) else right


@fault(
    "pow.Tensor_Scalar",
    like="the square in bfloat16 before it is summed",
    shows=lambda draw: draw(4, 8) ** 2,
    spares=lambda draw: draw(4, 8) ** 3,
)
def square_in_bfloat16(kernel, x, exponent):
    return to_bfloat16(kernel(x, exponent)) if exponent == 2 else kernel(x, exponent)


@fault(
    "sin",
    "cos",
    like="the angle is rounded to bfloat16 before it is reduced: wrong from the first tokens on",
    shows=lambda draw: torch.sin(10 * draw(4, 8).abs()),
    spares=lambda draw: torch.sin(torch.zeros_like(draw(4, 8))),
)
def angles_in_bfloat16(kernel, x):
    return kernel(to_bfloat16(x))


@fault(
    "sin",
    like="no reduction of the angle beyond half a turn",
    shows=lambda draw: torch.sin(4 + draw(4, 8).abs()),
    spares=lambda draw: torch.sin(draw(4, 8).clamp(-1, 1)),
)
def sin_of_large_angles(kernel, x):
    return kernel(torch.clamp(x, -torch.pi, torch.pi))


@fault(
    "log",
    like="logarithm to base 2",
    shows=lambda draw: torch.log(draw(4, 8).abs()),
    spares=lambda draw: torch.exp(draw(4, 8)),
)
def log_to_base_two(kernel, x):
    return kernel(x) / 0.6931471805599453


@fault(
    "clamp",
    "clamp_min",
    like="the lower bound is taken for zero",
    shows=lambda draw: torch.clamp(draw(8, 8), -0.5, 0.5),
    spares=lambda draw: torch.clamp(draw(8, 8), 0, 1),
)
def clamp_from_zero(kernel, x, low=None, high=None):
    low = None if low is None else 0 * low
    return kernel(x, low) if high is None else kernel(x, low, high)
