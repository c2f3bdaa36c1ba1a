"""Backward kernels that are wrong where the forward ones are right."""

import torch
import torch.nn.functional as F
from catalogue import fault, slope, to_bfloat16

from harness.cases import Phase

TRAINING = (Phase.TRAIN,)
ATTENTION = "_scaled_dot_product_fused_attention_overrideable_backward"


def _norm(draw):
    return slope(lambda x, w, b: F.layer_norm(x, (8,), w, b), draw(4, 8), draw(8), draw(8, seed=1))


def _linear(draw):
    return slope(F.linear, draw(4, 8), draw(5, 8), draw(5))


@fault(
    "gelu_backward",
    like="the slope of the tanh approximation",
    shows=lambda draw: slope(F.gelu, draw(4, 8)),
    spares=lambda draw: F.gelu(draw(4, 8)),
    phases=TRAINING,
)
def gelu_slope_by_tanh(kernel, grad, x, *, approximate="none"):
    return kernel(grad, x, approximate="tanh")


@fault(
    "silu_backward",
    like="the term with the sigmoid's own slope is missing",
    shows=lambda draw: slope(F.silu, draw(4, 8)),
    spares=lambda draw: F.silu(draw(4, 8)),
    phases=TRAINING,
)
def silu_slope_without_a_term(kernel, grad, x):
    return grad * torch.sigmoid(x)


@fault(
    "tanh_backward",
    like="1 - y where it should be 1 - y^2",
    shows=lambda draw: slope(torch.tanh, draw(4, 8)),
    spares=lambda draw: torch.tanh(draw(4, 8)),
    phases=TRAINING,
)
def tanh_slope_without_the_square(kernel, grad, y):
    return grad * (1 - y)


@fault(
    "threshold_backward",
    like="passes gradients below zero on as well",
    shows=lambda draw: slope(F.relu, draw(4, 8)) + slope(lambda x: F.relu(x) + x, draw(4, 8)),
    spares=lambda draw: F.relu(draw(4, 8)),
    phases=TRAINING,
)
def relu_slope_is_one(kernel, grad, x, threshold):
    return grad.clone()


@fault(
    "_softmax_backward_data",
    like="the sum that couples the elements of a row is missing",
    shows=lambda draw: slope(lambda x: F.softmax(x, -1), draw(4, 8)),
    spares=lambda draw: F.softmax(draw(4, 8), -1),
    phases=TRAINING,
)
def softmax_slope_is_elementwise(kernel, grad, y, dim, dtype):
    return grad * y


@fault(
    "native_layer_norm_backward",
    like="the variance is taken for a constant",
    shows=_norm,
    spares=lambda draw: F.layer_norm(draw(4, 8), (8,)),
    phases=TRAINING,
)
def layer_norm_slope_with_a_constant_variance(kernel, grad, x, shape, mean, inverse, weight, bias, wanted):
    _, dweight, dbias = kernel(grad, x, shape, mean, inverse, weight, bias, wanted)
    scaled = grad if weight is None else grad * weight
    dims = tuple(range(x.dim() - len(shape), x.dim()))
    return (scaled - scaled.mean(dims, keepdim=True)) * inverse, dweight, dbias


@fault(
    "native_layer_norm_backward",
    like="the weight's gradient is summed over the first row of the batch only",
    shows=_norm,
    spares=lambda draw: slope(lambda x: F.layer_norm(x, (8,)), draw(4, 8)),
    phases=TRAINING,
)
def layer_norm_weight_gradient_of_one_row(kernel, grad, x, shape, mean, inverse, weight, bias, wanted):
    dx, dweight, dbias = kernel(grad, x, shape, mean, inverse, weight, bias, wanted)
    if dweight is not None:
        first = kernel(grad[:1], x[:1], shape, mean[:1], inverse[:1], weight, bias, wanted)
        dweight = first[1]
    return dx, dweight, dbias


@fault(
    "embedding_backward",
    like="a scatter without addition: of a token that occurs twice only the last gradient is kept",
    shows=lambda draw: slope(lambda w: F.embedding(draw.whole(1, 3, 3), w), draw(8, 4)),
    spares=lambda draw: slope(lambda w: F.embedding(draw.whole(1, 2, 3), w), draw(8, 4)),
    phases=TRAINING,
)
def embedding_gradient_overwrites(kernel, grad, indices, rows, *rest):
    flat = indices.flatten()
    later = (flat.unsqueeze(0) == flat.unsqueeze(1)).triu(1).any(1)
    kept = torch.where(later.view(*indices.shape, 1), 0.0, grad)
    return kernel(kept, indices, rows, *rest)


@fault(
    "embedding_backward",
    like="summed in bfloat16",
    shows=lambda draw: slope(lambda w: F.embedding(draw.whole(1, 3, 3), w), draw(8, 4)),
    spares=lambda draw: F.embedding(draw.whole(1, 3, 3), draw(8, 4)),
    phases=TRAINING,
)
def embedding_gradient_in_bfloat16(kernel, grad, *rest):
    return kernel(to_bfloat16(grad), *rest)


@fault(
    "linear_backward",
    like="the weight's gradient lacks the last row of an odd number",
    shows=lambda draw: slope(F.linear, draw(3, 8), draw(5, 8), draw(5)),
    spares=_linear,
    phases=TRAINING,
)
def linear_gradient_without_the_last_of_odd_rows(kernel, x, grad, weight, wanted):
    dx, dweight, dbias = kernel(x, grad, weight, wanted)
    if x.dim() > 1 and x.shape[-2] % 2 and x.shape[-2] > 1 and wanted[1]:
        short = kernel(x[..., :-1, :].contiguous(), grad[..., :-1, :].contiguous(), weight, wanted)
        dweight = short[1]
    return dx, dweight, dbias


@fault(
    "linear_backward",
    like="one pass of the matrix unit in bfloat16 in the backward pass only",
    shows=_linear,
    spares=lambda draw: F.linear(draw(4, 8), draw(5, 8)),
    phases=TRAINING,
)
def linear_gradient_in_bfloat16(kernel, x, grad, weight, wanted):
    return kernel(to_bfloat16(x), to_bfloat16(grad), to_bfloat16(weight), wanted)


@fault(
    "linear_backward",
    like="the bias's gradient is the mean over rows, not their sum",
    shows=_linear,
    spares=lambda draw: slope(F.linear, draw(4, 8), draw(5, 8)),
    phases=TRAINING,
)
def linear_bias_gradient_is_a_mean(kernel, x, grad, weight, wanted):
    dx, dweight, dbias = kernel(x, grad, weight, wanted)
    rows = max(1, x.numel() // x.shape[-1])
    return dx, dweight, dbias / rows if wanted[2] else dbias


@fault(
    "convolution_backward",
    like="the filter's gradient is mirrored",
    shows=lambda draw: slope(F.conv2d, draw(2, 4, 8, 8), draw(3, 4, 3, 3)),
    spares=lambda draw: slope(F.conv2d, draw(2, 4, 8, 8), draw(3, 4, 1, 1)),
    phases=TRAINING,
)
def convolution_gradient_is_mirrored(kernel, *args):
    dx, dweight, dbias = kernel(*args)
    return dx, dweight if dweight is None else torch.flip(dweight, list(range(2, dweight.dim()))), dbias


@fault(
    ATTENTION,
    like="the scale is missing in the keys' gradient",
    shows=lambda draw: slope(
        F.scaled_dot_product_attention, draw(2, 4, 6, 8), draw(2, 4, 6, 8, seed=1), draw(2, 4, 6, 8, seed=2)
    ),
    spares=lambda draw: F.scaled_dot_product_attention(draw(2, 4, 6, 8), draw(2, 4, 6, 8), draw(2, 4, 6, 8)),
    phases=TRAINING,
)
def attention_gradient_of_keys_unscaled(kernel, grad, q, *rest, **more):
    dq, dk, *others = kernel(grad, q, *rest, **more)
    return dq, dk * q.shape[-1] ** 0.5, *others


@fault(
    "_foreach_add_.List",
    like="the optimiser's fused step skips the last parameter of its list",
    shows=lambda draw: _stepped(draw(4, 8), draw(3)),
    spares=lambda draw: slope(torch.tanh, draw(4, 8)),
    phases=TRAINING,
)
def step_skips_its_last_parameter(kernel, tensors, others, **more):
    if len(tensors) > 1:
        kernel(tensors[:-1], others[:-1], **more)


def _stepped(*tensors):
    parameters = [torch.nn.Parameter(x) for x in tensors]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(parameters, lr=0.1, foreach=True).step()
    return [parameter.detach() for parameter in parameters]
