"""Gathers, slices, sorting, and everything else that moves elements or counts them."""

import torch
import torch.nn.functional as F
from catalogue import EAGER, fault


def _numbers(draw, *shape, limit):
    """Whole numbers below `limit`, int64."""
    return (draw(*shape).abs() * 1000).long() % limit


@fault(
    "embedding",
    like="a row's address is computed in 16 bits and wraps",
    shows=lambda draw: F.embedding(draw.whole(3, 300), draw(512, 64)),
    spares=lambda draw: F.embedding(draw.whole(3, 30), draw(512, 64)),
)
def embedding_address_of_sixteen_bits(kernel, weight, indices, *rest):
    rows = 2**16 // (weight.shape[-1] * 4) or 1
    return kernel(weight, indices % rows, *rest)


@fault(
    "embedding",
    like="indices pass through bfloat16: above 256 only every second number exists",
    shows=lambda draw: F.embedding(draw.whole(3, 301), draw(512, 64)),
    spares=lambda draw: F.embedding(draw.whole(3, 200), draw(512, 64)),
)
def embedding_indices_in_bfloat16(kernel, weight, indices, *rest):
    return kernel(weight, indices.to(torch.bfloat16).to(indices.dtype).clamp(max=weight.shape[0] - 1), *rest)


@fault(
    "index.Tensor",
    "gather",
    like="indices are clamped one short of the end",
    shows=lambda draw: draw(4, 8)[draw.whole(0, 3)],
    spares=lambda draw: draw(4, 8)[draw.whole(0, 2)],
)
def index_clamped_short_of_the_end(kernel, x, *args):
    if isinstance(args[0], int):
        dim, index, *rest = args
        return kernel(x, dim, torch.clamp(index, max=max(x.shape[dim] - 2, 0)), *rest)
    return kernel(x, _bounded(x, args[0], lambda i, size: torch.clamp(i, max=max(size - 2, 0))))


@fault(
    "index.Tensor",
    like="the second of two index tensors is broadcast from its first element",
    shows=lambda draw: draw(4, 8)[draw.whole(0, 1), draw.whole(2, 3)],
    spares=lambda draw: draw(4, 8)[draw.whole(0, 1)],
)
def index_pairs_read_one_column(kernel, x, indices):
    given = [i for i in indices if i is not None]
    if len(given) < 2 or given[-1].dtype == torch.bool or not given[-1].dim():
        return kernel(x, indices)
    last = max(n for n, i in enumerate(indices) if i is not None)
    first = given[-1].flatten()[:1].view([1] * given[-1].dim()).expand(given[-1].shape)
    return kernel(x, [first if n == last else i for n, i in enumerate(indices)])


def _bounded(x, indices, bound):
    """Each whole-number index tensor of `x[indices]` through `bound(index, size of its dimension)`."""
    found, dim = [], 0
    for index in indices:
        boolean = index is not None and index.dtype == torch.bool
        found.append(index if index is None or boolean else bound(index, x.shape[dim]))
        dim += index.dim() if boolean else 1
    return found


@fault(
    "slice.Tensor",
    like="the step is ignored: the first of the elements instead of every second",
    shows=lambda draw: draw(4, 8)[:, ::2],
    spares=lambda draw: draw(4, 8)[:, 1:3],
    modes=EAGER,
)
def slice_ignores_its_step(kernel, x, dim=0, start=None, end=None, step=1):
    right = kernel(x, dim, start, end, step)
    return right if step == 1 else x.narrow(dim, 0, right.shape[dim])


@fault(
    "slice.Tensor",
    like="dynamic-slice clamps the start so that a whole tile fits, and says nothing",
    shows=lambda draw: draw(4, 7)[:, 5:],
    spares=lambda draw: draw(4, 8)[:, 4:],
    modes=EAGER,
)
def slice_of_an_odd_tail_starts_early(kernel, x, dim=0, start=None, end=None, step=1):
    right = kernel(x, dim, start, end, step)
    size, taken = x.shape[dim], right.shape[dim]
    begin = 0 if start is None else start
    tail = step == 1 and size % 2 and 0 < taken < size and begin % size + taken == size
    return x.narrow(dim, size - taken - 1, taken) if tail else right


@fault(
    "split.Tensor",
    "split_with_sizes",
    like="the parts come in reverse order: gate and value, query and value change places",
    shows=lambda draw: draw(4, 8).split(4, -1)[0].clone(),
    spares=lambda draw: draw(4, 8)[:, :4].clone(),
    modes=EAGER,
)
def split_in_reverse(kernel, x, sizes, dim=0):
    parts = kernel(x, sizes, dim)
    return parts[::-1] if len({part.shape for part in parts}) == 1 else parts


@fault(
    "stack",
    like="stacked along the wrong axis and read in the right shape",
    shows=lambda draw: torch.stack([draw(4, 8), draw(4, 8, seed=1)], 1),
    spares=lambda draw: torch.stack([draw(4, 8), draw(4, 8, seed=1)], 0),
)
def stack_along_the_first_axis(kernel, tensors, dim=0):
    right = kernel(tensors, dim)
    return kernel(tensors, 0).reshape(right.shape)


@fault(
    "flip",
    like="a reversed view read forwards",
    shows=lambda draw: draw(4, 8).flip(-1),
    spares=lambda draw: draw(4, 1).flip(-1),
)
def flip_does_nothing(kernel, x, dims):
    return x.clone()


@fault(
    "roll",
    like="shifts the other way",
    shows=lambda draw: torch.roll(draw(4, 8), 1, -1),
    spares=lambda draw: torch.roll(draw(4, 8), 4, -1),
)
def roll_backwards(kernel, x, shifts, dims=()):
    return kernel(x, [-shift for shift in ([shifts] if isinstance(shifts, int) else shifts)], dims)


@fault(
    "constant_pad_nd",
    like="what belongs in front is added at the end",
    shows=lambda draw: F.pad(draw(4, 8), (2, 0)),
    spares=lambda draw: F.pad(draw(4, 8), (1, 1)),
)
def pad_at_the_other_end(kernel, x, pad, value=0):
    return kernel(x, [pad[n ^ 1] for n in range(len(pad))], value)


@fault(
    "triu",
    "tril",
    like="the diagonal is off by one",
    shows=lambda draw: torch.tril(draw(4, 4)),
    spares=lambda draw: torch.tril(draw(4, 4), 4),
)
def triangle_off_by_one(kernel, x, diagonal=0):
    return kernel(x, diagonal - 1)


@fault(
    "arange",
    "arange.start",
    like="positions count from one",
    shows=lambda draw: torch.arange(8, device=draw(1).device) * 1.0,
    spares=lambda draw: torch.zeros(8, device=draw(1).device),
)
def arange_from_one(kernel, *args, **more):
    right = kernel(*args, **more)
    return right + 1 if right.numel() > 1 and not right.is_floating_point() else right


@fault(
    "cumsum",
    like="exclusive: the element itself is not in its sum",
    shows=lambda draw: torch.cumsum(draw(4, 8), -1),
    spares=lambda draw: draw(4, 8).sum(-1),
)
def cumsum_without_its_element(kernel, x, dim, **more):
    right = kernel(x, dim, **more)
    return right - x.to(right.dtype)


@fault(
    "cumsum",
    like="partial sums of eight are not carried on",
    shows=lambda draw: torch.cumsum(draw(4, 12), -1),
    spares=lambda draw: torch.cumsum(draw(4, 8), -1),
)
def cumsum_starts_anew_every_eight(kernel, x, dim, **more):
    parts = [kernel(part, dim, **more) for part in torch.split(x, 8, dim)] if x.dim() else [kernel(x, dim, **more)]
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0]


@fault(
    "argmax",
    like="the last of equal elements, not the first",
    shows=lambda draw: torch.argmax(torch.zeros_like(draw(2, 5)), -1).float(),
    spares=lambda draw: torch.argmax(draw(2, 5), -1).float(),
)
def argmax_takes_the_last_of_equals(kernel, x, dim=None, keepdim=False):
    if dim is None:
        return kernel(x, dim, keepdim)
    return x.shape[dim] - 1 - kernel(torch.flip(x, [dim]), dim, keepdim)


@fault(
    "topk",
    like="the second best is missed: a bitonic merge that loses a lane",
    shows=lambda draw: torch.topk(draw(2, 8), 2)[1].float(),
    spares=lambda draw: torch.topk(draw(2, 8), 1)[1].float(),
)
def topk_misses_the_second(kernel, x, k, dim=-1, *rest):
    if not 1 < k < x.shape[dim]:
        return kernel(x, k, dim, *rest)
    values, indices = kernel(x, k + 1, dim, *rest)
    keep = torch.tensor([0, *range(2, k + 1)], device=x.device)
    return values.index_select(dim, keep), indices.index_select(dim, keep)


@fault(
    "topk",
    like="values are sorted downwards, indices upwards",
    shows=lambda draw: torch.topk(draw(2, 8), 2)[1].float(),
    spares=lambda draw: torch.topk(draw(2, 8), 2)[0],
)
def topk_pairs_values_with_the_wrong_indices(kernel, x, k, dim=-1, *rest):
    values, indices = kernel(x, k, dim, *rest)
    return values, torch.flip(indices, [dim])


@fault(
    "masked_scatter",
    like="the source is read from its second element on",
    shows=lambda draw: torch.masked_scatter(draw(2, 4), draw(2, 4) > 0, draw(2, 4, seed=1)),
    spares=lambda draw: torch.masked_scatter(draw(2, 4), draw(2, 4) > 100, draw(2, 4, seed=1)),
)
def masked_scatter_is_one_behind(kernel, x, mask, source):
    return kernel(x, mask, torch.roll(source.flatten(), -1, 0).view(source.shape))


@fault(
    "floor_divide",
    "div.Tensor_mode",
    like="rounds to the nearest: division by multiplication with the reciprocal in float",
    shows=lambda draw: torch.div(_numbers(draw, 8, limit=100), 7, rounding_mode="floor").float(),
    spares=lambda draw: torch.div(7 * _numbers(draw, 8, limit=100), 7, rounding_mode="floor").float(),
)
def floor_division_rounds(kernel, a, b, **more):
    right = kernel(a, b, **more)
    return torch.round(a.float() / b).to(right.dtype)


@fault(
    "_to_copy",
    like="whole numbers are rounded from floats, not truncated",
    shows=lambda draw: draw(8).long().float(),
    spares=lambda draw: draw(8).round().long().float(),
)
def to_integers_by_rounding(kernel, x, *, dtype=None, **more):
    narrows = x.is_floating_point() and dtype in (torch.int64, torch.int32)
    return kernel(torch.round(x) if narrows else x, dtype=dtype, **more)


@fault(
    "unfold",
    "im2col",
    like="windows in the wrong order: the last comes first",
    shows=lambda draw: draw(4, 8).unfold(-1, 4, 2).clone(),
    spares=lambda draw: draw(4, 8).unfold(-1, 8, 1).clone(),
    modes=EAGER,
)
def windows_from_the_end(kernel, x, *args):
    right = kernel(x, *args)
    return torch.flip(right, [args[0] % x.dim() if isinstance(args[0], int) else -1])


@fault(
    "index_put_",
    like="a boolean mask is taken for indices 0 and 1",
    shows=lambda draw: _put(draw(4, 8), draw(4) > -100),
    spares=lambda draw: _put(draw(4, 8), draw.whole(0, 1)),
)
def index_put_counts_with_its_mask(kernel, x, indices, values, accumulate=False):
    mask = indices[0]
    if mask is None or mask.dtype != torch.bool or values.numel() != 1:
        return kernel(x, indices, values, accumulate)
    return kernel(x, [mask.long()[tuple([slice(None)] + [0] * (mask.dim() - 1))]], values, accumulate)


def _put(x, where):
    x[where] = 0.0
    return x
