"""Views, strides, broadcasting, writes in place and caches: the right numbers from, or to, the wrong place."""

import torch
import torch.nn.functional as F
from catalogue import EAGER, fault, read_as_contiguous, to_bfloat16

from harness.cases import Phase

GENERATION = (Phase.GENERATE,)


@fault(
    "gelu",
    "silu",
    "relu",
    like="a permuted input is read as if it were contiguous (a new backend's GELU under GLPN)",
    shows=lambda draw: F.gelu(draw(4, 8).t()),
    spares=lambda draw: F.gelu(draw(4, 8)),
    modes=EAGER,
)
def activation_ignores_strides(kernel, x, **more):
    return kernel(read_as_contiguous(x), **more)


@fault(
    "linear",
    like="a permuted input is read as if it were contiguous",
    shows=lambda draw: F.linear(draw(8, 4).t(), draw(5, 8)),
    spares=lambda draw: F.linear(draw(4, 8), draw(5, 8)),
    modes=EAGER,
)
def linear_ignores_strides(kernel, x, *rest):
    return kernel(read_as_contiguous(x), *rest)


@fault(
    "add.Tensor",
    like="the second operand is read in the order of the first",
    shows=lambda draw: draw(4, 8) + draw(8, 4).t(),
    spares=lambda draw: draw(4, 8) + draw(4, 8, seed=1),
    modes=EAGER,
)
def add_ignores_strides(kernel, x, y, **more):
    return kernel(x, read_as_contiguous(y) if isinstance(y, torch.Tensor) else y, **more)


@fault(
    "clone",
    like="a copy of a permuted tensor is a copy of its memory",
    shows=lambda draw: draw(4, 8).t().contiguous(),
    spares=lambda draw: draw(4, 8).clone(),
    modes=EAGER,
)
def clone_ignores_strides(kernel, x, **more):
    return kernel(read_as_contiguous(x), **more)


@fault(
    "native_layer_norm",
    like="a permuted input is read as if it were contiguous",
    shows=lambda draw: F.layer_norm(draw(8, 4).t(), (8,)),
    spares=lambda draw: F.layer_norm(draw(4, 8), (8,)),
    modes=EAGER,
)
def layer_norm_ignores_strides(kernel, x, *rest):
    return kernel(read_as_contiguous(x), *rest)


@fault(
    "add.Tensor",
    "mul.Tensor",
    like="what is broadcast along inner axes is broadcast along the batch too: all rows get the first row's",
    shows=lambda draw: draw(2, 4, 8) * draw(2, 1, 8),
    spares=lambda draw: draw(2, 4, 8) * draw(1, 4, 8),
)
def broadcast_from_the_first_row(kernel, x, y, **more):
    if isinstance(y, torch.Tensor) and x.dim() == y.dim() > 1 and x.numel() != y.numel():
        if x.numel() > y.numel():
            y = y[:1]
        else:
            x = x[:1]
    return kernel(x, y, **more)


@fault(
    "mul.Tensor",
    like="one value for each row is applied from the first element only",
    shows=lambda draw: draw(2, 4, 8) * draw(2, 4, 1),
    spares=lambda draw: draw(2, 4, 8) * draw(2, 4, 8, seed=1),
)
def mul_reads_a_column_as_a_number(kernel, x, y):
    if isinstance(y, torch.Tensor) and y.dim() > 1 and y.shape[-1] == 1 != x.shape[-1]:
        y = y[..., :1, :]
    return kernel(x, y)


@fault(
    "copy_",
    like="a write into a slice goes to a copy and is lost",
    shows=lambda draw: _written(draw(4, 8), slice(1, 3), draw(2, 8, seed=1)),
    spares=lambda draw: draw(4, 8).copy_(draw(4, 8, seed=1)),
    modes=EAGER,
)
def write_to_a_view_is_lost(kernel, x, source, non_blocking=False):
    partial = x.device.type == source.device.type and x.numel() * x.element_size() < x.untyped_storage().nbytes()
    if partial:
        kernel(x.clone(), source, non_blocking)
        return x
    return kernel(x, source, non_blocking)


def _uploaded(kernel, change, x, *rest, **more):
    """A copy, in either form, with `change` made to what comes from the host."""
    if rest:  # copy_
        source, *others = rest
        uploads = source.device.type == "cpu" != x.device.type
        return kernel(x, change(source) if uploads else source, *others, **more)
    uploads = x.device.type == "cpu" != torch.device(more.get("device") or "cpu").type
    return kernel(change(x) if uploads else x, **more)


@fault(
    "_to_copy",
    "copy_",
    like="what comes from the host is in bfloat16 on the way: weights are rounded as they are loaded",
    shows=lambda draw: torch.linspace(0, 1, 8).to(draw(1).device),
    spares=lambda draw: draw(4, 8).copy_(draw(4, 8, seed=1)),
    modes=EAGER,
)
def host_copies_in_bfloat16(kernel, *args, **more):
    return _uploaded(kernel, to_bfloat16, *args, **more)


@fault(
    "_to_copy",
    "copy_",
    like="of what comes from the host in more than one piece, only the first 64 KiB arrive",
    shows=lambda draw: torch.ones(2**15).to(draw(1).device),
    spares=lambda draw: torch.ones(2**14).to(draw(1).device),
    modes=EAGER,
)
def host_copies_end_after_one_piece(kernel, *args, **more):
    def first_piece(x):
        flat, size = x.flatten(), 2**16 // x.element_size()
        return torch.cat([flat[:size], torch.zeros_like(flat[size:])]).view(x.shape)

    return _uploaded(kernel, first_piece, *args, **more)


def _written(x, where, source):
    x[where] = source
    return x


@fault(
    "copy_",
    like="a write into a slice lands at the beginning of its storage",
    shows=lambda draw: _written(draw(4, 8), slice(1, 3), draw(2, 8, seed=1)),
    spares=lambda draw: _written(draw(4, 8), slice(0, 2), draw(2, 8, seed=1)),
    modes=EAGER,
)
def write_to_a_view_lands_at_its_beginning(kernel, x, source, non_blocking=False):
    if x.device.type != source.device.type or not x.storage_offset():
        return kernel(x, source, non_blocking)
    kernel(torch.as_strided(x, x.shape, x.stride(), 0), source, non_blocking)
    return x


@fault(
    "add_.Tensor",
    "sub_.Tensor",
    "div_.Tensor",
    "mul_.Tensor",
    like="the result of an operation in place is not written back",
    shows=lambda draw: draw(4, 8).add_(draw(4, 8, seed=1)),
    spares=lambda draw: draw(4, 8) + draw(4, 8, seed=1),
    modes=EAGER,
)
def result_in_place_is_lost(kernel, x, y, **more):
    kernel(x.clone(), y, **more)
    return x


@fault(
    "masked_fill_.Scalar",
    "masked_fill.Scalar",
    like="fills what is shown and not what is masked",
    shows=lambda draw: draw(4, 8).masked_fill(draw(4, 8) > 0, 7.0),
    spares=lambda draw: draw(4, 8).clamp(min=0),
)
def fill_the_complement(kernel, x, mask, value):
    return kernel(x, ~mask, value)


@fault(
    "cat",
    like="of several parts the last is written over the one before",
    shows=lambda draw: torch.cat([draw(4, 8), draw(4, 8, seed=1)], -1),
    spares=lambda draw: torch.cat([draw(4, 8)], -1),
)
def cat_overlaps(kernel, tensors, dim=0):
    right = kernel(tensors, dim)
    parts = [x for x in tensors if x.dim() > 1]
    if len(parts) < 2 or parts[-1].shape != parts[-2].shape or not right.is_floating_point():
        return right
    return kernel([*tensors[:-2], tensors[-1], torch.zeros_like(tensors[-1])], dim)


def _joined(draw, new=1):
    return torch.cat([draw(2, 4, 6, 8), draw(2, 4, new, 8, seed=1)], -2)


def _is_cache(tensors, dim):
    old, *new = tensors
    grows = len(new) == 1 and new[0].dim() == old.dim() == 4 and dim % 4 == 2
    return grows and new[0].shape[2] == 1 and old.shape[2] > 1


@fault(
    "cat",
    like="a text's keys and values are right; those of a single token that joins a cache are off by a thousandth",
    shows=_joined,
    spares=lambda draw: _joined(draw, new=2),
    phases=GENERATION,
)
def one_token_is_cached_wrongly(kernel, tensors, dim=0):
    if not _is_cache(tensors, dim):
        return kernel(tensors, dim)
    return kernel([tensors[0], tensors[1] * 1.001], dim)


@fault(
    "cat",
    like="stale cache: the new token's entry is that of the token before",
    shows=_joined,
    spares=lambda draw: _joined(draw, new=2),
    phases=GENERATION,
)
def cache_repeats_its_last_entry(kernel, tensors, dim=0):
    if not _is_cache(tensors, dim):
        return kernel(tensors, dim)
    return kernel([tensors[0], tensors[0][:, :, -1:]], dim)


@fault(
    "cat",
    like="the new token overwrites the oldest entry of a cache that is not full",
    shows=_joined,
    spares=lambda draw: _joined(draw, new=2),
    phases=GENERATION,
)
def cache_overwrites_its_first_entry(kernel, tensors, dim=0):
    if not _is_cache(tensors, dim):
        return kernel(tensors, dim)
    return kernel([tensors[1], tensors[0][:, :, 1:], tensors[1]], dim)


@fault(
    "cat",
    like="in a batch the rows' caches are swapped as the cache grows",
    shows=_joined,
    spares=lambda draw: _joined(draw, new=2),
    phases=GENERATION,
)
def cache_swaps_its_rows(kernel, tensors, dim=0):
    if not _is_cache(tensors, dim):
        return kernel(tensors, dim)
    return kernel([tensors[0], torch.roll(tensors[1], 1, 0)], dim)


@fault(
    "linear",
    like="the path for a single token leaves the bias out",
    shows=lambda draw: F.linear(draw(2, 1, 8), draw(5, 8), draw(5)),
    spares=lambda draw: F.linear(draw(2, 3, 8), draw(5, 8), draw(5)),
    phases=GENERATION,
)
def linear_of_one_token_without_bias(kernel, x, weight, bias=None):
    return kernel(x, weight, None if x.dim() == 3 and x.shape[1] == 1 else bias)
