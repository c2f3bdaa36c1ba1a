"""Mistakes of a compiler: eager execution of the same operators is right."""

import torch
import torch.nn.functional as F
from catalogue import COMPILED, fault, graph_fault, slope, to_bfloat16

from harness.cases import Phase

aten = torch.ops.aten
FUSED = "_scaled_dot_product_fused_attention_overrideable"


def _attention(draw, **more):
    return F.scaled_dot_product_attention(draw(2, 4, 6, 8), draw(2, 4, 6, 8, seed=1), draw(2, 4, 6, 8, seed=2), **more)


@fault(
    "gelu",
    like="fast mathematics in a fused loop: erf by tanh",
    shows=lambda draw: F.gelu(draw(4, 8)),
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=COMPILED,
)
def fused_gelu_by_tanh(kernel, x, *, approximate="none"):
    return kernel(x, approximate="tanh")


@fault(
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    like="the precision that was asked for does not reach the compiler: one pass in bfloat16",
    shows=lambda draw: F.linear(draw(4, 8), draw(5, 8)),
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=COMPILED,
)
def compiled_products_in_bfloat16(kernel, *args, **more):
    *first, a, b = args
    return kernel(*first, to_bfloat16(a), to_bfloat16(b), **more)


@fault(
    "native_layer_norm",
    like="epsilon is folded away as too small to matter",
    shows=lambda draw: F.layer_norm(0.01 * draw(4, 8), (8,)),
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=COMPILED,
)
def compiled_norm_without_epsilon(kernel, x, shape, weight, bias, eps):
    return kernel(x, shape, weight, bias, 0.0)


@fault(
    "_softmax",
    like="the fused softmax keeps its exponentials in bfloat16",
    shows=lambda draw: F.softmax(draw(4, 8), -1),
    spares=lambda draw: torch.tanh(draw(4, 8)),
    modes=COMPILED,
)
def fused_softmax_in_bfloat16(kernel, x, dim, *rest):
    e = to_bfloat16(torch.exp(x - x.amax(dim, keepdim=True)))
    return e / e.sum(dim, keepdim=True)


@fault(
    FUSED,
    like="the pass that recognises causal masks recognises too many",
    shows=lambda draw: _attention(draw, attn_mask=draw(2, 1, 6, 6)),
    spares=_attention,
    modes=COMPILED,
)
def compiled_attention_takes_any_square_mask_for_causal(kernel, q, k, v, bias=None, dropout=0.0, causal=False, *rest, **more):  # fmt: skip  # noqa: E501
    if bias is not None and bias.shape[-1] == bias.shape[-2] > 1:
        bias, causal = None, True
    return kernel(q, k, v, bias, dropout, causal, *rest, **more)


@fault(
    "clone",
    like="the pass that folds repeated heads into grouped attention maps them in turns",
    shows=lambda draw: draw(2, 2, 1, 6, 8).expand(2, 2, 3, 6, 8).reshape(2, 6, 6, 8).square(),
    spares=lambda draw: draw(2, 1, 1, 6, 8).expand(2, 1, 3, 6, 8).reshape(2, 3, 6, 8).square(),
    modes=COMPILED,
)
def folded_heads_in_turns(kernel, x, **more):
    if x.dim() != 5 or x.shape[2] == 1 or x.shape[1] == 1:
        return kernel(x, **more)
    return x.transpose(1, 2).contiguous().view(x.shape)


@graph_fault(
    "mul.Tensor",
    "add.Tensor",
    like="constants of the graph are stored in bfloat16",
    shows=lambda draw: draw(4, 8) * 0.7071067811865476,
    spares=lambda draw: draw(4, 8) * 0.5,
)
def constants_in_bfloat16(module):
    changed = 0
    for node in module.graph.nodes:
        if node.target in (aten.mul.Tensor, aten.add.Tensor, aten.div.Tensor) and isinstance(node.args[1], float):
            rounded = float(torch.tensor(node.args[1]).to(torch.bfloat16))
            changed += rounded != node.args[1]
            node.args = (node.args[0], rounded)
    return changed


@graph_fault(
    "mul.Tensor",
    "slice.Tensor",
    like="common subexpressions are found by their tensors, not by their numbers",
    shows=lambda draw: _twice(draw(4, 8)),
    spares=lambda draw: draw(4, 8) * 2.0 + 3.0,
)
def one_program_for_two_numbers(module):
    first: dict = {}
    changed = 0
    for node in list(module.graph.nodes):
        numbers = node.args[1:]
        if node.op != "call_function" or not numbers or not all(isinstance(n, int | float) for n in numbers):
            continue
        known = first.setdefault((node.target, node.args[0]), node)
        if known is not node and known.args != node.args and _alike(known, node):
            node.replace_all_uses_with(known)
            module.graph.erase_node(node)
            changed += 1
    return changed


def _twice(x):
    return x * 2.0 - x * 3.0


def _alike(a, b):
    """Do two nodes give tensors of one shape and dtype?"""
    left, right = a.meta.get("val"), b.meta.get("val")
    return left is not None and right is not None and (left.shape, left.dtype) == (right.shape, right.dtype)


@graph_fault(
    "transpose.int",
    "permute",
    like="two transpositions in a row are taken for inverse to each other, and the tensor is read as it lies",
    shows=lambda draw: _turned(draw(2, 3, 4)),
    spares=lambda draw: draw(4, 4, 4).transpose(0, 1).exp(),
)
def transpositions_cancel(module):
    changed = 0
    for node in list(module.graph.nodes):
        if node.target not in (aten.transpose.int, aten.permute.default):
            continue
        inner = node.args[0]
        if inner.target is node.target and inner.args[1:] != node.args[1:]:
            with module.graph.inserting_before(node):
                read = module.graph.call_function(aten.reshape.default, (inner.args[0], list(node.meta["val"].shape)))
            node.replace_all_uses_with(read)
            module.graph.erase_node(node)
            changed += 1
    return changed


def _turned(x):
    return x.transpose(0, 1).transpose(1, 2).exp()


@graph_fault(
    "sub.Tensor",
    "rsub.Scalar",
    like="operands of a subtraction are sorted as if it commuted",
    shows=lambda draw: draw(4, 8) - draw(4, 8, seed=1),
    spares=lambda draw: draw(4, 8) + draw(4, 8, seed=1),
)
def subtraction_commutes(module):
    changed = 0
    for node in module.graph.nodes:
        if node.target is aten.sub.Tensor and all(isinstance(arg, torch.fx.Node) for arg in node.args):
            node.args = node.args[::-1]
            changed += 1
    return changed


@graph_fault(
    "add.Tensor",
    like="an addition whose operand has another use is fused into both, and one of them is dropped: a residual is lost",
    shows=lambda draw: _residual(draw(4, 8), draw(8)),
    spares=lambda draw: draw(4, 8) + 1.0,
)
def residual_is_lost(module):
    sums = [node for node in module.graph.nodes if node.target is aten.add.Tensor]
    sums = [node for node in sums if isinstance(node.args[1], torch.fx.Node) and _alike(*node.args)]
    for node in sums[-1:]:
        node.replace_all_uses_with(node.args[1])
        module.graph.erase_node(node)
    return len(sums[-1:])


def _residual(x, bias):
    y = torch.tanh(x)
    return torch.exp(y + torch.sin(y)) * bias


@fault(
    "expand",
    like="a fused loop reads a broadcast operand from the first row of the batch",
    shows=lambda draw: draw(2, 1, 8).expand(2, 4, 8).exp(),
    spares=lambda draw: draw(1, 4, 8).expand(2, 4, 8).exp(),
    modes=COMPILED,
)
def fused_broadcast_of_the_first_row(kernel, x, size, **more):
    if x.dim() == len(size) and x.dim() > 1 and x.shape[0] > 1:
        x = x[:1]
        size = [n if n != -1 else x.shape[d] for d, n in enumerate(size)]
    return kernel(x, size, **more)


@fault(
    "index_put",
    "index_copy",
    "scatter.src",
    "slice_scatter",
    like="the write into a buffer of the caller's is dropped: a cache of fixed size stays as it was",
    shows=lambda draw: _cached(draw(2, 4, 6, 8), draw.whole(3), draw(2, 4, 1, 8)),
    spares=lambda draw: torch.cat([draw(2, 4, 6, 8), draw(2, 4, 1, 8)], -2).exp(),
    phases=(Phase.GENERATE,),
    modes=COMPILED,
)
def compiled_write_is_dropped(kernel, x, *args, **more):
    return x.clone()


def _cached(cache, place, new):
    return cache.clone().index_copy_(2, place, new)


@fault(
    "gelu_backward",
    like="fast mathematics in the fused backward pass: erf by tanh",
    shows=lambda draw: slope(F.gelu, draw(4, 8)),
    spares=lambda draw: F.gelu(draw(4, 8)),
    phases=(Phase.TRAIN,),
    modes=COMPILED,
)
def fused_gelu_slope_by_tanh(kernel, grad, x, *, approximate="none"):
    return kernel(grad, x, approximate="tanh")


@graph_fault(
    "tanh_backward",
    "gelu_backward",
    "silu_backward",
    "native_layer_norm_backward",
    like="activations kept for the backward pass are kept in bfloat16",
    shows=lambda draw: slope(lambda x: torch.tanh(x).exp(), draw(4, 8)),
    spares=lambda draw: torch.tanh(draw(4, 8)),
    phases=(Phase.TRAIN,),
)
def saved_activations_in_bfloat16(module):
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    if not any("tangents" in node.name for node in placeholders):
        return 0
    saved = [node for node in placeholders if "tangents" not in node.name and "primals" not in node.name]
    floats = [node for node in saved if getattr(node.meta.get("val"), "dtype", None) is torch.float32]
    for node in floats:
        with module.graph.inserting_after(placeholders[-1]):
            rounded = module.graph.call_function(to_bfloat16, (node,))
        node.replace_all_uses_with(rounded, delete_user_cb=lambda user, own=rounded: user is not own)
    return len(floats)
