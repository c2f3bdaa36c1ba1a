"""Fused attention, the masks that go into it, rotary positions and the mapping of heads."""

import torch
import torch.nn.functional as F
from catalogue import EAGER, fault, to_bfloat16

FUSED = "_scaled_dot_product_fused_attention_overrideable"


def _inputs(draw, queries=6, keys=6):
    return draw(2, 4, queries, 8), draw(2, 4, keys, 8, seed=1), draw(2, 4, keys, 8, seed=2)


def _plain(draw):
    return F.scaled_dot_product_attention(*_inputs(draw))


def _causal(draw):
    return F.scaled_dot_product_attention(*_inputs(draw), is_causal=True)


def _biased(draw):
    return F.scaled_dot_product_attention(*_inputs(draw), attn_mask=draw(2, 1, 6, 6, seed=3))


def _infinite(draw):
    return draw(8).abs().log() - float("inf")


@fault(FUSED, like="the mask is not handed to the kernel", shows=_biased, spares=_causal)
def attention_ignores_its_mask(kernel, q, k, v, bias=None, *rest, **more):
    return kernel(q, k, v, None, *rest, **more)


@fault(
    FUSED,
    like="a mask that looks causal is replaced by the causal one, and what it says of padding is lost",
    shows=lambda draw: F.scaled_dot_product_attention(*_inputs(draw), attn_mask=draw(2, 1, 6, 6, seed=3)),
    spares=_causal,
)
def attention_takes_any_square_mask_for_causal(kernel, q, k, v, bias=None, dropout=0.0, causal=False, *rest, **more):
    if bias is not None and bias.shape[-1] == bias.shape[-2] > 1:
        bias, causal = None, True
    return kernel(q, k, v, bias, dropout, causal, *rest, **more)


@fault(FUSED, like="off by one: a token sees the next one", shows=_causal, spares=_plain)
def attention_sees_the_next_token(kernel, q, k, v, bias=None, dropout=0.0, causal=False, *rest, **more):
    if bias is not None and bias.shape[-2] > 1:
        bias = torch.cat([bias[..., 1:, :], bias[..., -1:, :]], -2)
    if causal:
        queries, keys = q.shape[-2], k.shape[-2]
        seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(1)
        bias = torch.zeros(queries, keys, dtype=q.dtype, device=q.device).masked_fill(~seen, float("-inf"))
        bias, causal = bias.expand(q.shape[0], 1, queries, keys), False
    return kernel(q, k, v, bias, dropout, causal, *rest, **more)


@fault(
    FUSED,
    like="heads are padded to the 128 lanes of a register, and the scale is that of the padded head",
    shows=_plain,
    spares=lambda draw: F.scaled_dot_product_attention(*_inputs(draw), scale=1.0),
)
def attention_scales_by_the_padded_head(kernel, q, k, v, *rest, scale=None):
    return kernel(q, k, v, *rest, scale=128**-0.5 if scale is None or scale == q.shape[-1] ** -0.5 else scale)


@fault(
    FUSED,
    like="a scale of the model's own is not passed on",
    shows=lambda draw: F.scaled_dot_product_attention(*_inputs(draw), scale=1.0),
    spares=_plain,
)
def attention_ignores_its_scale(kernel, q, k, v, *rest, scale=None):
    return kernel(q, k, v, *rest)


@fault(
    FUSED,
    like="the last block of keys is skipped where it is not full",
    shows=lambda draw: F.scaled_dot_product_attention(*_inputs(draw, keys=7)),
    spares=_plain,
)
def attention_drops_the_last_of_odd_keys(kernel, q, k, v, bias=None, *rest, **more):
    keys = k.shape[-2]
    if keys % 2 and keys > 1:
        bias = None if bias is None else bias[..., :-1]
        k, v = k[..., :-1, :], v[..., :-1, :]
    return kernel(q, k, v, bias, *rest, **more)


@fault(
    FUSED,
    like="scores from bfloat16 queries and keys, one pass of the matrix unit",
    shows=_plain,
    spares=lambda draw: torch.tanh(draw(4, 8)),
)
def attention_scores_in_bfloat16(kernel, q, k, v, *rest, **more):
    return kernel(to_bfloat16(q), to_bfloat16(k), v, *rest, **more)


@fault(
    FUSED,
    like="every head reads the values of the next",
    shows=_plain,
    spares=lambda draw: F.scaled_dot_product_attention(draw(2, 1, 6, 8), draw(2, 1, 6, 8), draw(2, 1, 6, 8)),
)
def attention_reads_the_next_head(kernel, q, k, v, *rest, **more):
    return kernel(q, k, torch.roll(v, 1, 1), *rest, **more)


@fault(
    FUSED,
    like="the result is written token by token where heads are expected: a transposition is cancelled once too often",
    shows=_plain,
    spares=lambda draw: F.scaled_dot_product_attention(draw(2, 1, 6, 8), draw(2, 1, 6, 8), draw(2, 1, 6, 8)),
)
def attention_leaves_heads_and_tokens_swapped(kernel, q, k, v, *rest, **more):
    out, *others = kernel(q, k, v, *rest, **more)
    return out.transpose(1, 2).reshape(out.shape), *others


@fault(
    FUSED,
    like="a mask's batch stride is taken for zero: all rows get the first row's",
    shows=_biased,
    spares=lambda draw: F.scaled_dot_product_attention(*_inputs(draw), attn_mask=draw(1, 1, 6, 6).expand(2, 1, 6, 6)),
)
def attention_masks_by_the_first_row(kernel, q, k, v, bias=None, *rest, **more):
    if bias is not None and bias.dim() == 4 and bias.shape[0] > 1:
        bias = bias[:1].expand(bias.shape)
    return kernel(q, k, v, bias, *rest, **more)


@fault(
    "baddbmm",
    like="beta and the tensor it weighs are ignored: no position bias",
    shows=lambda draw: torch.baddbmm(draw(2, 3, 5), draw(2, 3, 4), draw(2, 4, 5)),
    spares=lambda draw: torch.baddbmm(0 * draw(2, 3, 5), draw(2, 3, 4), draw(2, 4, 5)),
)
def baddbmm_adds_nothing(kernel, x, a, b, *, beta=1, alpha=1):
    return kernel(torch.zeros_like(x), a, b, beta=beta, alpha=alpha)


@fault(
    "neg",
    like="the sign is lost where the input is a slice: rotary positions turn the wrong way",
    shows=lambda draw: -draw(2, 4, 6, 8)[..., 4:],
    spares=lambda draw: -draw(2, 4, 6, 8),
    modes=EAGER,
)
def neg_of_a_slice_is_no_neg(kernel, x):
    return kernel(x) if x.is_contiguous() else x.clone()


@fault(
    "cat",
    like="two halves of a head are interleaved: the other convention of rotary positions",
    shows=lambda draw: torch.cat([draw(2, 4, 6, 4), draw(2, 4, 6, 4, seed=1)], -1),
    spares=lambda draw: torch.cat([draw(2, 4, 6, 4), draw(2, 4, 6, 4)], -2),
)
def cat_interleaves_the_halves_of_a_head(kernel, tensors, dim=0):
    first, *others = tensors
    halves = len(others) == 1 and first.dim() == 4 and dim % 4 == 3 and first.shape == others[0].shape
    return torch.stack(tensors, -1).flatten(-2) if halves else kernel(tensors, dim)


@fault(
    "clone",
    like="grouped queries: heads are repeated in turns (0 1 0 1) and not each by itself (0 0 1 1)",
    shows=lambda draw: draw(2, 2, 1, 6, 8).expand(2, 2, 3, 6, 8).clone(),
    spares=lambda draw: draw(2, 1, 1, 6, 8).expand(2, 1, 3, 6, 8).clone(),
)
def clone_repeats_heads_in_turns(kernel, x, **more):
    if x.dim() != 5 or x.shape[2] == 1 or x.stride(2) != 0:
        return kernel(x, **more)
    return kernel(x.transpose(1, 2), memory_format=torch.contiguous_format).reshape(x.shape)


@fault(
    "le.Tensor",
    like="smaller than, not smaller or equal: a token does not see itself",
    shows=lambda draw: (draw(6).long() <= draw(6).long()).float(),
    spares=lambda draw: (draw(6) <= draw(6) + 1).float(),
)
def le_is_lt(kernel, a, b):
    return a < b


@fault(
    "bitwise_and.Tensor",
    like="masks are combined by `or`: what any of them shows is seen",
    shows=lambda draw: ((draw(8) > 0) & (draw(8, seed=1) > 0)).float(),
    spares=lambda draw: ((draw(8) > 0) & (draw(8) > 0)).float(),
)
def and_is_or(kernel, a, b):
    return a | b


@fault(
    "where.self",
    like="a choice by arithmetic, c * a + (1 - c) * b: NaN where the branch not taken is infinite",
    shows=lambda draw: torch.where(draw(8) > 0, 0.0, _infinite(draw)),
    spares=lambda draw: torch.where(draw(8) > 0, draw(8), -draw(8)).round(),
)
def where_by_arithmetic(kernel, c, a, b):
    if not (a.is_floating_point() and b.is_floating_point()):
        return kernel(c, a, b)
    chosen = c.to(torch.promote_types(a.dtype, b.dtype))
    return chosen * a + (1 - chosen) * b


@fault(
    "where.self",
    "masked_fill.Scalar",
    like="minus infinity does not survive the conversion of a constant and becomes zero: no mask at all",
    shows=lambda draw: torch.where(draw(8) > 0, _infinite(draw), draw(8)),
    spares=lambda draw: torch.where(draw(8) > 0, draw(8), -draw(8)),
)
def minus_infinity_becomes_zero(kernel, *args):
    right = kernel(*args)
    if not right.is_floating_point():
        return right
    return torch.nan_to_num(right, nan=float("nan"), posinf=float("inf"), neginf=0.0)
