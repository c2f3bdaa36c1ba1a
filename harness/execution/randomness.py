"""Random numbers of a model's own: drawn on CPU whatever device they are for, so that both sides have the same.

A model that draws inside its forward method (random rotations of hashed attention, masks of masked autoencoders,
noise of decoders) draws on its device, whose generator gives other numbers than the CPU's from the same seed. What
it makes of its numbers is compared; how a device draws them is not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

_IN_PLACE = (
    "normal_", "uniform_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_.float",
    "bernoulli_.Tensor", "random_", "random_.from", "random_.to",
)  # fmt: skip
_INTO = (
    "bernoulli.out", "multinomial.out", "normal.Tensor_Tensor_out", "normal.Tensor_float_out",
    "normal.float_Tensor_out", "randperm.generator_out",
)  # fmt: skip
_RETURNED = (
    "multinomial", "normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor", "native_dropout",
    "_fused_dropout",
)  # fmt: skip
"""ATen operators that draw. All others (`rand`, `randn`, `randint`, `bernoulli`, ...) are made of these."""

_libraries: dict[str, torch.library.Library] = {}
_twins: dict[int, tuple[torch.Generator, torch.Generator]] = {}


def draw_on_cpu(device_type: str) -> None:
    """From now on tensors of `device_type` get their random numbers from the CPU, in this process and uncompiled.

    A generator of the device's own is followed by one on CPU with the seed it began with. Compiled programs, which must
    not hold a tensor of another device, are given theirs by `drawn_outside`.
    """
    if device_type == "cpu" or device_type in _libraries:
        return
    key = "PrivateUse1" if device_type == torch._C._get_privateuse1_backend_name() else device_type.upper()
    library = _libraries[device_type] = torch.library.Library("aten", "IMPL")
    for names, kernel in ((_IN_PLACE, _in_place), (_INTO, _into), (_RETURNED, _returned)):
        for name in names:
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                library.impl(name, kernel(_on_cpu(name)), key, allow_override=True)


def _on_cpu(name: str) -> Callable[..., Any]:
    """The CPU's kernel of an operator, given what belongs to a device moved to the CPU."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def call(*args: Any, **kwargs: Any) -> Any:
        return operator(*map(_moved, args), **{key: _moved(value) for key, value in kwargs.items()})

    return call


def _moved(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return value.cpu()
        case torch.Generator() if value.device.type != "cpu":
            known = _twins.setdefault(id(value), (value, torch.Generator().manual_seed(value.initial_seed())))
            return known[1]
        case _:
            return value


def _in_place(operator: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensor, *args, **kwargs: tensor.copy_(
        operator(torch.empty_like(tensor, device="cpu"), *args, **kwargs)
    )


def _into(operator: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        drawn = operator(*args, **kwargs, out=torch.empty_like(out, device="cpu"))
        return out.resize_(drawn.shape).copy_(drawn)

    return kernel


def _returned(operator: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        device = next(x.device for x in args if isinstance(x, torch.Tensor))
        drawn = operator(*args, **kwargs)
        return drawn.to(device) if isinstance(drawn, torch.Tensor) else tuple(x.to(device) for x in drawn)

    return kernel


_FACTORIES = ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like")


def drawn_outside(backend: Callable[..., Any]) -> Callable[..., Any]:
    """A `torch.compile` backend like `backend` whose programs are given the numbers that they would have drawn.

    Those of a program are drawn on CPU, in its order, whenever it is called. What draws by numbers that the program
    computes itself (`bernoulli`, `multinomial`, `normal` of tensors) stays the backend's.
    """

    def compile(graph: torch.fx.GraphModule, examples: Any, **options: Any) -> Callable[..., Any]:
        draws = [_draw_of(node) for node in _drawing(graph.graph)]
        if not draws:
            return backend(graph, examples, **options)
        # Of a copy, since Dynamo asks its own graph later where each input has come from.
        graph = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1:]
        for number, node in enumerate(_drawing(graph.graph)):
            with graph.graph.inserting_after(*last) if last else graph.graph.inserting_before():
                given = graph.graph.placeholder(f"drawn_{number}")
            given.meta, last = dict(node.meta), [given]
            node.replace_all_uses_with(given)
            graph.graph.erase_node(node)
        graph.recompile()
        program = backend(graph, [*examples, *(draw() for draw in draws)], **options)
        return lambda *args: program(*args, *(draw() for draw in draws))

    return compile


def _drawing(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The nodes of a graph that Dynamo captured whose values are drawn and depend on nothing but their shape."""
    named = [node for node in graph.nodes if getattr(node.target, "__name__", "") in _FACTORIES]
    return [node for node in named if node.op == "call_function" and "generator" not in node.kwargs]


def _draw_of(node: torch.fx.Node) -> Callable[[], torch.Tensor]:
    """Draws the value of such a node on CPU, and moves it to the node's device."""
    value, operator = node.meta["example_value"], node.target
    kept = {key: given for key, given in node.kwargs.items() if key not in ("device", "dtype", "memory_format")}
    if not operator.__name__.endswith("_like"):
        return lambda: operator(*node.args, **kept, dtype=value.dtype).to(value.device)

    def draw() -> torch.Tensor:
        # Numbers are drawn in the order of memory, which of a transposed tensor is not that of its elements.
        model = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        return operator(model, *node.args[1:], **kept).to(value.device)

    return draw
