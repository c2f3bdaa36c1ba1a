"""Sums, means and extremes over the wrong elements, or with the wrong sum."""

import torch
from catalogue import fault, to_bfloat16


def _mean(draw):
    return draw(3, 8).mean(-1)


def _sum(draw):
    return draw(3, 8).sum(-1)


@fault(
    "mean.dim",
    like="divided by the size of the padded tile",
    shows=lambda draw: draw(3, 7).mean(-1),
    spares=_mean,
)
def mean_over_the_padded_tile(kernel, x, dim=None, keepdim=False, **more):
    count = 1
    for axis in dim or range(x.dim()):
        count *= x.shape[axis]
    return kernel(x, dim, keepdim, **more) * (count / (count + -count % 8))


@fault(
    "mean.dim",
    like="summed in bfloat16",
    shows=_mean,
    spares=_sum,
)
def mean_of_bfloat16(kernel, x, *rest, **more):
    return kernel(to_bfloat16(x), *rest, **more)


@fault(
    "mean.dim",
    like="the axis is off by one",
    shows=lambda draw: draw(8, 8).mean(-1),
    spares=lambda draw: draw(8).mean(0),
)
def mean_over_the_axis_before(kernel, x, dim=None, keepdim=False, **more):
    if not dim or len(dim) != 1 or x.dim() < 2:
        return kernel(x, dim, keepdim, **more)
    axis = dim[0] % x.dim() - 1
    if keepdim:  # the shape is another one, which is broadcast all the same
        return kernel(x, [axis], keepdim, **more)
    swapped = x.transpose(axis, axis + 1)
    return kernel(swapped if swapped.shape == x.shape else x, dim, keepdim, **more)


@fault(
    "mean.dim",
    like="only the first of several axes is reduced by its size",
    shows=lambda draw: draw(3, 4, 8).mean((-1, -2)),
    spares=_mean,
)
def mean_divides_by_one_axis(kernel, x, dim=None, keepdim=False, **more):
    right = kernel(x, dim, keepdim, **more)
    for axis in list(dim or [])[1:]:
        right = right * x.shape[axis]
    return right


@fault(
    "sum.dim_IntList",
    "sum",
    like="the loop ends one early",
    shows=_sum,
    spares=lambda draw: draw(3, 1).sum(-1),
)
def sum_ends_one_early(kernel, x, *rest, **more):
    axis = rest[0][-1] if rest and rest[0] else -1
    if not x.dim() or x.shape[axis] < 2:
        return kernel(x, *rest, **more)
    return kernel(x.narrow(axis, 0, x.shape[axis] - 1), *rest, **more)


@fault(
    "sum.dim_IntList",
    like="summed in bfloat16",
    shows=_sum,
    spares=_mean,
)
def sum_of_bfloat16(kernel, x, *rest, **more):
    return kernel(to_bfloat16(x), *rest, **more)


@fault(
    "cumsum",
    like="the running sum is kept in bfloat16: whole numbers end at 256",
    shows=lambda draw: torch.cumsum(draw(4, 8), -1),
    spares=_sum,
)
def cumsum_in_bfloat16(kernel, x, dim, **more):
    right = kernel(x, dim, **more)
    return right.to(torch.bfloat16).to(right.dtype)


@fault(
    "any.dim",
    "any",
    "all",
    like="the answer for the first element stands for all",
    shows=lambda draw: (draw(4, 8) > 1).any(-1).float(),
    spares=lambda draw: (draw(4, 8) > 100).any(-1).float(),
)
def any_asks_the_first_only(kernel, x, *rest, **more):
    if not rest:
        return kernel(x.flatten()[:1], **more) if x.numel() else kernel(x, **more)
    return kernel(x.narrow(rest[0], 0, 1), *rest, **more) if x.shape[rest[0]] else kernel(x, *rest, **more)


@fault(
    "minimum",
    "maximum",
    like="smaller and larger change places",
    shows=lambda draw: torch.minimum(draw(4, 8), draw(4, 8, seed=1)),
    spares=lambda draw: torch.minimum(draw(4, 8), draw(4, 8)),
)
def minimum_is_maximum(kernel, a, b):
    right = kernel(a, b)
    return torch.where(right == a, b, a)
