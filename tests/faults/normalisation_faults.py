"""Softmax and the norms."""

import torch
import torch.nn.functional as F
from catalogue import fault, to_bfloat16


def _norm(draw):
    return F.layer_norm(draw(4, 8), (8,), draw(8), draw(8, seed=1), 1e-3)


@fault(
    "native_layer_norm",
    like="epsilon dropped",
    shows=lambda draw: F.layer_norm(0.01 * draw(4, 8), (8,)),
    spares=lambda draw: F.layer_norm(draw(4, 8), (8,), eps=0.0),
)
def layer_norm_without_epsilon(kernel, x, shape, weight, bias, eps):
    return kernel(x, shape, weight, bias, 0.0)


@fault(
    "native_layer_norm",
    like="epsilon added to the deviation, outside of the root",
    shows=_norm,
    spares=lambda draw: F.layer_norm(draw(4, 8), (8,), eps=0.0),
)
def layer_norm_with_epsilon_outside_the_root(kernel, x, shape, weight, bias, eps):
    if eps == 0:
        return kernel(x, shape, weight, bias, eps)
    dims = tuple(range(x.dim() - len(shape), x.dim()))
    mean = x.mean(dims, keepdim=True)
    inverse = 1 / ((x - mean).square().mean(dims, keepdim=True).sqrt() + eps)
    y = (x - mean) * inverse
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, inverse


@fault(
    "native_layer_norm",
    like="Bessel's correction: divided by n - 1",
    shows=_norm,
    spares=lambda draw: F.group_norm(draw(2, 4, 8), 2),
)
def layer_norm_with_unbiased_variance(kernel, x, shape, weight, bias, eps):
    count = 1
    for size in shape:
        count *= size
    shrink = ((count - 1) / count) ** 0.5
    y, mean, inverse = kernel(x, shape, None, None, eps * shrink**2)
    y, inverse = y * shrink, inverse * shrink
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, inverse


@fault(
    "native_layer_norm",
    like="the variance in one pass, E[x^2] - E[x]^2, from bfloat16 squares",
    shows=lambda draw: F.layer_norm(3 + draw(4, 8), (8,)),
    spares=lambda draw: F.softmax(draw(4, 8), -1),
)
def layer_norm_in_one_pass(kernel, x, shape, weight, bias, eps):
    dims = tuple(range(x.dim() - len(shape), x.dim()))
    mean = x.mean(dims, keepdim=True)
    variance = to_bfloat16(x * x).mean(dims, keepdim=True) - mean * mean
    inverse = torch.rsqrt(torch.clamp(variance, min=0) + eps)
    y = (x - mean) * inverse
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, inverse


@fault(
    "native_layer_norm",
    like="the bias is fused away",
    shows=_norm,
    spares=lambda draw: F.layer_norm(draw(4, 8), (8,), draw(8)),
)
def layer_norm_without_bias(kernel, x, shape, weight, bias, eps):
    return kernel(x, shape, weight, None, eps)


@fault(
    "native_layer_norm",
    like="the last row of an odd number of rows is left unnormalised",
    shows=lambda draw: F.layer_norm(draw(3, 8), (8,)),
    spares=lambda draw: F.layer_norm(draw(4, 8), (8,)),
)
def layer_norm_leaves_the_last_of_odd_rows(kernel, x, shape, weight, bias, eps):
    y, mean, inverse = kernel(x, shape, weight, bias, eps)
    if x.dim() - len(shape) < 1 or x.shape[-len(shape) - 1] % 2 == 0:
        return y, mean, inverse
    axis = x.dim() - len(shape) - 1
    rows = x.shape[axis]
    return torch.cat([y.narrow(axis, 0, rows - 1), x.narrow(axis, rows - 1, 1)], axis), mean, inverse


@fault(
    "native_batch_norm",
    "_native_batch_norm_legit_no_training",
    like="the statistics of the batch are taken in inference too",
    shows=lambda draw: F.batch_norm(draw(4, 8), draw(8), draw(8).abs() + 1),
    spares=lambda draw: F.layer_norm(draw(4, 8), (8,)),
)
def batch_norm_by_the_batch(kernel, x, weight, bias, mean, variance, *rest):
    dims = [d for d in range(x.dim()) if d != 1]
    spread, middle = torch.var_mean(x, dims, correction=0)
    return kernel(x, weight, bias, middle.reshape(mean.shape), spread.reshape(variance.shape), *rest)


@fault(
    "native_batch_norm",
    "_native_batch_norm_legit_no_training",
    like="folded into a scale with the variance where its root belongs",
    shows=lambda draw: F.batch_norm(draw(4, 8), draw(8), draw(8).abs() + 1),
    spares=lambda draw: F.batch_norm(draw(4, 8), draw(8), torch.ones_like(draw(8)), eps=0.0),
)
def batch_norm_divides_by_the_variance(kernel, x, weight, bias, mean, variance, *rest):
    return kernel(x, weight, bias, mean, variance * variance, *rest)


@fault(
    "native_batch_norm",
    "_native_batch_norm_legit_no_training",
    like="the epsilon of another library, 1e-3",
    shows=lambda draw: F.batch_norm(draw(4, 8), draw(8), draw(8).abs()),
    spares=lambda draw: F.batch_norm(draw(4, 8), draw(8), draw(8).abs(), eps=1e-3),
)
def batch_norm_with_another_epsilon(kernel, x, *rest):
    return kernel(x, *rest[:-1], 1e-3)


@fault(
    "native_group_norm",
    like="groups are ignored: all channels together",
    shows=lambda draw: F.group_norm(draw(2, 4, 8), 2),
    spares=lambda draw: F.group_norm(draw(2, 4, 8), 1),
)
def group_norm_of_one_group(kernel, x, weight, bias, n, c, hw, groups, eps):
    y, mean, inverse = kernel(x, weight, bias, n, c, hw, 1, eps)
    return y, mean.expand(n, groups), inverse.expand(n, groups)


@fault(
    "_softmax",
    "_safe_softmax",
    like="no maximum is subtracted: infinite over infinite for large scores, 0 over 0 for a row of `finfo.min`",
    shows=lambda draw: F.softmax(100 + 10 * draw(4, 8), -1),
    spares=lambda draw: F.softmax(torch.zeros_like(draw(4, 8)), -1),
)
def softmax_without_its_maximum(kernel, x, dim, *rest):
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True)


@fault(
    "_softmax",
    "_safe_softmax",
    like="the wrong axis, one before",
    shows=lambda draw: F.softmax(draw(3, 4, 8), -1),
    spares=lambda draw: F.softmax(draw(8), 0),
)
def softmax_over_the_axis_before(kernel, x, dim, *rest):
    return kernel(x, (dim % x.dim()) - 1 if dim % x.dim() else dim, *rest)


@fault(
    "_softmax",
    "_safe_softmax",
    like="exponentials are kept in bfloat16 between the two passes",
    shows=lambda draw: F.softmax(draw(4, 8), -1),
    spares=lambda draw: F.layer_norm(draw(4, 8), (8,)),
)
def softmax_in_bfloat16(kernel, x, dim, *rest):
    e = to_bfloat16(torch.exp(x - x.amax(dim, keepdim=True)))
    return e / e.sum(dim, keepdim=True)


@fault(
    "_softmax",
    "_safe_softmax",
    like="the sum runs over the padded tile: its zeros count as exp(-max)",
    shows=lambda draw: F.softmax(draw(4, 7), -1),
    spares=lambda draw: F.softmax(draw(4, 8), -1),
)
def softmax_counts_its_padding(kernel, x, dim, *rest):
    missing = -x.shape[dim] % 8
    if not missing:
        return kernel(x, dim, *rest)
    top = x.amax(dim, keepdim=True)
    e = torch.exp(x - top)
    return e / (e.sum(dim, keepdim=True) + missing * torch.exp(-top))
