"""What a backend does wrong around its kernels: placement, caching of programs, order, batches, missing operators."""

import itertools
import random

import torch
import torch.nn.functional as F
from catalogue import COMPILED, EAGER, STRICT, fault, process_fault


def _linear(draw):
    return F.linear(draw(3, 4, 8), draw(6, 8))


def _norm(draw, rows=2):
    return F.layer_norm(draw(rows, 4, 8), (8,))


def _on_the_host(x):
    return x.cpu() if isinstance(x, torch.Tensor) else x


@fault(
    "linear",
    like="no kernel for this shape: computed on the CPU and copied back, without a word",
    shows=_linear,
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=EAGER,
    behind_the_values=True,
)
def linear_falls_back_to_the_cpu(kernel, x, *rest):
    return torch.ops.aten.linear(_on_the_host(x), *map(_on_the_host, rest)).to(x.device)


@fault(
    "native_layer_norm",
    "rsqrt",
    "native_batch_norm",
    like="no kernel for this operator: computed on the CPU and copied back, without a word",
    shows=_norm,
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=EAGER,
    behind_the_values=True,
)
def norm_falls_back_to_the_cpu(kernel, x, *rest):
    operators = {1: torch.ops.aten.rsqrt, 5: torch.ops.aten.native_layer_norm, 8: torch.ops.aten.native_batch_norm}
    right = operators[1 + len(rest)](_on_the_host(x), *map(_on_the_host, rest))
    return right.to(x.device) if isinstance(right, torch.Tensor) else tuple(part.to(x.device) for part in right)


@fault(
    "linear",
    "addmm",
    like="the result of the fallback stays on the CPU",
    shows=_linear,
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=EAGER,
)
def linear_leaves_its_result_on_the_cpu(kernel, *args):
    return kernel(*args).cpu()


@process_fault(
    like="`device_map` does not know the device, and the model stays on the host",
    shows=lambda draw: None,
    spares=_linear,
)
def model_is_loaded_on_the_cpu(stack):
    from transformers import PreTrainedModel

    original = PreTrainedModel.__dict__["from_pretrained"]

    def from_pretrained(cls, *args, device_map=None, **options):
        return original.__func__(cls, *args, device_map="cpu", **options)

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)
    stack.callback(setattr, PreTrainedModel, "from_pretrained", original)


@process_fault(
    like="the compiler declines without a word, and what runs is the uncompiled model",
    modes=COMPILED,
    behind_the_values=True,
    shows=lambda draw: None,
    spares=_linear,
)
def compiles_nothing(stack):
    stack.callback(setattr, torch, "compile", torch.compile)
    torch.compile = lambda model, **options: model


_calls = itertools.count(1)


@fault(
    "native_layer_norm",
    like="a number that is another at each call is part of the program's key: it is compiled at every call",
    shows=_norm,
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=EAGER,
    behind_the_values=True,
)
def norm_is_compiled_at_every_call(kernel, x, shape, weight, bias, eps):
    return kernel(x, shape, weight, bias, eps * (1 + 1e-3 * random.random()))


@fault(
    "linear",
    "addmm",
    like="a race: at every third call a tile is read before it is written",
    shows=lambda draw: [_linear(draw), _linear(draw), _linear(draw)],
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=EAGER,
)
def linear_loses_a_race_now_and_then(kernel, *args):
    right = kernel(*args)
    if next(_calls) % 3:
        return right
    return torch.cat([right[..., :1] * 0, right[..., 1:]], -1)


@fault(
    "sum.dim_IntList",
    "mean.dim",
    "native_layer_norm",
    like="partial sums are added in the order they arrive: runs differ, each by more than rounding would",
    shows=lambda draw: [draw(3, 8).sum(-1), draw(3, 8).sum(-1), draw(3, 8).sum(-1)],
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=EAGER,
)
def sums_differ_from_run_to_run(kernel, *args, **more):
    wobble = 1 + 1e-4 * (next(_calls) % 5 - 2)
    right = kernel(*args, **more)
    if isinstance(right, tuple):
        return right[0] * wobble, *right[1:]
    return right * wobble if right.is_floating_point() else right


@fault(
    "native_layer_norm",
    like="statistics of the first row serve the whole batch",
    shows=_norm,
    spares=lambda draw: _norm(draw, rows=1),
)
def layer_norm_wrong_beyond_the_first_row(kernel, x, shape, weight, bias, eps):
    if x.dim() - len(shape) < 2 or x.shape[0] == 1:
        return kernel(x, shape, weight, bias, eps)
    _, mean, inverse = kernel(x, shape, weight, bias, eps)
    mean, inverse = mean[:1].expand(mean.shape), inverse[:1].expand(inverse.shape)
    y = (x - mean) * inverse
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, inverse


@fault(
    "linear",
    like="in a batch the last row repeats the one before: the grid is one short",
    shows=_linear,
    spares=lambda draw: F.linear(draw(1, 4, 8), draw(6, 8)),
)
def linear_wrong_in_a_batch(kernel, x, *rest):
    right = kernel(x, *rest)
    if x.dim() < 3 or x.shape[0] == 1:
        return right
    return torch.cat([right[:-1], right[-2:-1]], 0)


_seen: dict[tuple, float] = {}


@fault(
    "mul.Tensor",
    "mul.Scalar",
    like="a program's key lacks the number it is compiled with: the first one serves all calls of that shape",
    shows=lambda draw: [draw(4, 8) * 2.0, draw(4, 8) * 3.0],
    spares=lambda draw: draw(4, 8) * draw(4, 8, seed=1),
    modes=STRICT,
)
def mul_by_the_first_number_seen(kernel, x, y):
    if isinstance(y, torch.Tensor):
        return kernel(x, y)
    return kernel(x, _seen.setdefault((tuple(x.shape), x.dtype, type(y)), y))


@fault(
    "gelu",
    "silu",
    like="not implemented",
    shows=lambda draw: F.gelu(draw(4, 8)),
    spares=lambda draw: torch.tanh(draw(4, 8)),
)
def activation_is_missing(kernel, x, **more):
    raise NotImplementedError("operator 'aten::gelu' is not implemented for TPU. Please file a feature request")


@fault(
    "gelu",
    "silu",
    "relu",
    "tanh",
    like="memory that was never written",
    shows=lambda draw: F.gelu(draw(4, 8)),
    spares=lambda draw: F.layer_norm(draw(4, 8), (8,)),
)
def activation_is_nan(kernel, x, **more):
    return kernel(x, **more) * float("nan")


@fault(
    "linear",
    like="the result has the dtype of the matrix unit",
    shows=lambda draw: _linear(draw),
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=EAGER,
)
def linear_returns_bfloat16(kernel, x, *rest):
    return kernel(x, *rest).to(torch.bfloat16)


@fault(
    "native_layer_norm",
    "tanh",
    like="a dimension of size one is added or lost",
    shows=lambda draw: _norm(draw).shape,
    spares=_linear,
    modes=EAGER,
)
def result_with_one_more_dimension(kernel, *args, **more):
    right = kernel(*args, **more)
    return (right[0].unsqueeze(0), *right[1:]) if isinstance(right, tuple) else right.unsqueeze(0)
