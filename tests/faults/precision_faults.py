"""Matrix products and constants that are computed in fewer bits than were asked for."""

import torch
import torch.nn.functional as F
from catalogue import fault, to_bfloat16


def _linear(draw):
    return F.linear(draw(4, 8), draw(5, 8), draw(5))


def _bmm(draw):
    return torch.bmm(draw(2, 4, 8), draw(2, 8, 5))


def _addmm(draw):
    return torch.addmm(draw(5), draw(4, 8), draw(8, 5))


def _cut(x, bits):
    """`x` with its mantissa cut to so many bits, toward zero."""
    if x.dtype != torch.float32:
        return x
    scale = torch.exp2(torch.floor(torch.log2(x.abs().clamp(min=1e-30))) - bits)
    return torch.trunc(x / scale) * scale


@fault(
    "linear",
    like="one pass of the matrix unit in bfloat16 where `highest` was asked for",
    shows=_linear,
    spares=_bmm,
)
def linear_in_bfloat16(kernel, x, weight, bias=None):
    return kernel(to_bfloat16(x), to_bfloat16(weight), bias)


@fault(
    "addmm",
    "mm",
    like="one pass of the matrix unit in bfloat16 where `highest` was asked for",
    shows=_addmm,
    spares=_bmm,
)
def mm_in_bfloat16(kernel, *args, **more):
    *first, a, b = args
    return kernel(*first, to_bfloat16(a), to_bfloat16(b), **more)


@fault(
    "bmm",
    "baddbmm",
    like="one pass of the matrix unit in bfloat16 where `highest` was asked for",
    shows=_bmm,
    spares=_linear,
)
def bmm_in_bfloat16(kernel, *args, **more):
    *first, a, b = args
    return kernel(*first, to_bfloat16(a), to_bfloat16(b), **more)


@fault(
    "linear",
    "addmm",
    "mm",
    like="TF32: 10 bits of mantissa in a matrix product",
    shows=_linear,
    spares=_bmm,
)
def linear_in_tf32(kernel, *args, **more):
    return kernel(*(_cut(x, 10) if x is not None and x.dim() > 1 else x for x in args), **more)


@fault(
    "linear",
    like="three passes (`high`) where six were asked for: the product of the low parts is missing",
    shows=_linear,
    spares=_bmm,
)
def linear_without_its_low_parts(kernel, x, weight, bias=None):
    low = kernel(x - to_bfloat16(x), weight - to_bfloat16(weight))
    return kernel(x, weight, bias) - low


@fault(
    "linear",
    like="partial sums are kept in bfloat16",
    shows=lambda draw: F.linear(draw(4, 32), draw(5, 32)),
    spares=_bmm,
)
def linear_accumulates_in_bfloat16(kernel, x, weight, bias=None):
    total = None
    for a, b in zip(x.split(16, -1), weight.split(16, -1), strict=True):
        part = kernel(a, b)
        total = to_bfloat16(part if total is None else total + part)
    return total if bias is None else total + bias


@fault(
    "linear",
    like="the last output of an odd number is left zero: a tile that is not full",
    shows=_linear,
    spares=lambda draw: F.linear(draw(4, 8), draw(6, 8)),
)
def linear_leaves_the_last_of_odd_outputs(kernel, x, weight, bias=None):
    right = kernel(x, weight, bias)
    width = right.shape[-1]
    return F.pad(right[..., : width - 1], (0, 1)) if width % 2 and width > 1 else right


@fault(
    "linear",
    like="the last row of an odd number is left as it was, that of the row before",
    shows=lambda draw: F.linear(draw(2, 5, 8), draw(6, 8)),
    spares=lambda draw: F.linear(draw(2, 4, 8), draw(6, 8)),
)
def linear_repeats_the_row_before_the_last_of_odd_rows(kernel, x, weight, bias=None):
    right = kernel(x, weight, bias)
    if x.dim() < 2 or x.shape[-2] % 2 == 0 or x.shape[-2] == 1:
        return right
    return torch.cat([right[..., :-1, :], right[..., -2:-1, :]], -2)


@fault(
    "linear",
    "addmm",
    like="the epilogue that adds the bias is not fused in, and not run either",
    shows=_linear,
    spares=lambda draw: F.linear(draw(4, 8), draw(5, 8)),
)
def linear_without_bias(kernel, first, *rest):
    if first.dim() == 1:  # addmm's bias comes first
        return kernel(torch.zeros_like(first), *rest)
    return kernel(first, rest[0])


@fault(
    "linear",
    like="a square weight is taken for transposed already",
    shows=lambda draw: F.linear(draw(4, 8), draw(8, 8)),
    spares=_linear,
)
def linear_with_a_square_weight_transposed(kernel, x, weight, bias=None):
    return kernel(x, weight.t() if weight.shape[0] == weight.shape[1] else weight, bias)


@fault(
    "bmm",
    like="a square right operand is taken for transposed already",
    shows=lambda draw: torch.bmm(draw(2, 4, 8), draw(2, 8, 8)),
    spares=_bmm,
)
def bmm_with_a_square_operand_transposed(kernel, a, b):
    return kernel(a, b.transpose(1, 2) if b.shape[1] == b.shape[2] else b)


@fault(
    "mul.Tensor",
    "mul.Scalar",
    like="a Python number becomes a bfloat16 constant",
    shows=lambda draw: torch.mul(draw(4, 8), 0.7071067811865476),
    spares=lambda draw: torch.mul(draw(4, 8), 0.5),
)
def mul_rounds_its_constant(kernel, x, y):
    return kernel(x, float(torch.tensor(y).to(torch.bfloat16)) if isinstance(y, float) else y)


@fault(
    "div.Tensor",
    like="by multiplication with a reciprocal of 12 bits",
    shows=lambda draw: draw(4, 8) / (1 + draw(4, 8, seed=1).abs()),
    spares=lambda draw: draw(4, 8) * draw(4, 8, seed=1),
)
def div_by_a_short_reciprocal(kernel, x, y):
    right = kernel(x, y)
    return _cut(right, 12) if right.is_floating_point() else right


@fault(
    "add.Tensor",
    like="the residual stream is kept in bfloat16",
    shows=lambda draw: draw(4, 8) + draw(4, 8, seed=1),
    spares=lambda draw: draw(4, 8).long() + 1,
)
def add_in_bfloat16(kernel, x, y, **more):
    right = kernel(x, y, **more)
    return to_bfloat16(right) if right.dim() > 2 or right.shape == (4, 8) else right
