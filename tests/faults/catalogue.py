"""What a fault is, and how one is put into the real backend of this process and taken out again.

A fault stands in for the kernels of some operators of the `tpu` device. In eager modes it overrides what the
dispatcher calls for them; in compiled programs it takes their place in the graph that TorchTPU's compiler is given,
after autograd and decompositions (a private seam of torch_tpu 0.2: `TpuBackend._compile_graph_module`). Either way
it gets what lies beneath as its first argument, so that it is written once.

`zoo run --fault activation_faults:gelu_by_tanh`, with this folder on PYTHONPATH, calls a fault by its name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from harness.cases import Mode, Phase

Kernel = Callable[..., Any]

EAGER = frozenset({Mode.STRICT_EAGER, Mode.DEFER_AND_FUSE})
STRICT = frozenset({Mode.STRICT_EAGER})
COMPILED = frozenset({Mode.COMPILED})
EVERYWHERE = EAGER | COMPILED

KINDS = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*_faults.py")))
"""The modules of the catalogue."""


class Draw:
    """Tensors on the device, the same at every use, made outside of whatever uses them."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._made: dict[Any, torch.Tensor] = {}

    def __call__(self, *shape: int, seed: int = 0) -> torch.Tensor:
        """Normal float32 of a shape."""
        key = (shape, seed)
        if key not in self._made:
            generator = torch.Generator().manual_seed(seed)
            self._made[key] = torch.randn(shape, generator=generator).to(self._device)
        return self._made[key].clone()

    def whole(self, *numbers: int) -> torch.Tensor:
        """These numbers, int64."""
        if numbers not in self._made:
            self._made[numbers] = torch.tensor(numbers).to(self._device)
        return self._made[numbers].clone()


Example = Callable[[Draw], Any]


class Fault:
    """Wrong kernels for some operators, by their names (`gelu`, `add.Tensor`, `tpu::_max_pool2d`).

    `like` is the real bug it resembles. It acts in `modes`, and shows in `phases`, those of a model in which its
    operators are executed. `shows` computes something that it changes, on the device, and `spares` something that it
    must leave right. One that is `behind_the_values` changes no value: only what the backend does to compute it, or
    when. `calls` counts how often a faulty kernel has run in this process, or been put into a graph.
    """

    def __init__(
        self,
        kernel: Kernel,
        *operators: str,
        like: str,
        shows: Example,
        spares: Example,
        modes: frozenset[Mode] = EVERYWHERE,
        phases: tuple[Phase, ...] = (Phase.FORWARD,),
        behind_the_values: bool = False,
    ) -> None:
        self.name, self.kind = kernel.__name__, kernel.__module__
        self.like, self.modes, self.phases = like, modes, phases
        self.shows, self.spares = shows, spares
        self.behind_the_values = behind_the_values
        self.kernels = dict.fromkeys(operators, kernel)
        self.calls = 0
        self._undo: contextlib.ExitStack | None = None

    @property
    def id(self) -> str:
        """As `--fault` takes it."""
        return f"{self.kind}:{self.name}"

    def __call__(self) -> None:
        """Put it into this process, until `take_out`."""
        with contextlib.ExitStack() as stack:
            self._put_in(stack)
            self._undo = stack.pop_all()

    def take_out(self) -> None:
        """Restore what was there before; nothing where it is not in."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo.close()

    @contextlib.contextmanager
    def inside(self) -> Iterator[Fault]:
        """While it is entered, the backend has this fault."""
        self()
        try:
            yield self
        finally:
            self.take_out()

    def _put_in(self, stack: contextlib.ExitStack) -> None:
        if self.modes & EAGER:
            for operator, kernel in self.kernels.items():
                stack.enter_context(overridden(operator, self._counted(kernel)))
        if self.modes & COMPILED:
            targets = {overload(operator): self._counted(kernel) for operator, kernel in self.kernels.items()}
            stack.enter_context(compiling_with(functools.partial(_put_into_graph, targets)))

    def _counted(self, kernel: Kernel) -> Kernel:
        @functools.wraps(kernel)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return kernel(*args, **kwargs)

        return counted


class GraphFault(Fault):
    """A compiler's mistake about the graph as a whole: `edit` changes it in place and says how many nodes it changed.

    `operators` are those whose presence makes it possible.
    """

    def __init__(self, edit: Callable[[torch.fx.GraphModule], int], *operators: str, **facts: Any) -> None:
        super().__init__(edit, *operators, modes=COMPILED, **facts)
        self._edit = edit

    def _put_in(self, stack: contextlib.ExitStack) -> None:
        def edit(module: torch.fx.GraphModule) -> None:
            self.calls += self._edit(module)

        stack.enter_context(compiling_with(edit))


class ProcessFault(Fault):
    """Something wrong with the backend that is no kernel: `act` does it, with an ExitStack that undoes it."""

    def __init__(self, act: Callable[[contextlib.ExitStack], None], **facts: Any) -> None:
        super().__init__(act, **facts)
        self._act = act

    def _put_in(self, stack: contextlib.ExitStack) -> None:
        self.calls += 1
        self._act(stack)


def fault(*operators: str, **facts: Any) -> Callable[[Kernel], Fault]:
    """Make a `Fault` of a function `(kernel, *arguments)`, where `kernel` is what lies beneath."""
    return lambda kernel: Fault(kernel, *operators, **facts)


def graph_fault(*operators: str, **facts: Any) -> Callable[[Callable[[torch.fx.GraphModule], int]], GraphFault]:
    """Make a `GraphFault` of a function that edits a graph."""
    return lambda edit: GraphFault(edit, *operators, **facts)


def process_fault(**facts: Any) -> Callable[[Callable[[contextlib.ExitStack], None]], ProcessFault]:
    """Make a `ProcessFault` of a function that is given an ExitStack to undo itself with."""
    return lambda act: ProcessFault(act, **facts)


def every_fault() -> dict[str, Fault]:
    """The catalogue by `id`, in the order of its modules. Imports torch, no backend."""
    found = {}
    for kind in KINDS:
        for one in vars(importlib.import_module(kind)).values():
            if isinstance(one, Fault) and one.kind == kind:
                found[one.id] = one
    return found


def overload(operator: str) -> torch._ops.OpOverload:
    """The operator of a name such as `gelu`, `add.Tensor` or `tpu::_max_pool2d`."""
    namespace, _, name = operator.rpartition("::")
    packet, _, variant = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace or "aten"), packet), variant or "default")


@contextlib.contextmanager
def counting(operators: Iterable[str]) -> Iterator[Counter[str]]:
    """Counts, while it is entered, how often each operator is executed on the device or put into a graph."""
    counts: Counter[str] = Counter()
    by_target = {overload(operator): operator for operator in operators}

    def count_nodes(module: torch.fx.GraphModule) -> None:
        counts.update(by_target[node.target] for node in module.graph.nodes if node.target in by_target)

    def counted(operator: str) -> Kernel:
        def kernel(original: Kernel, *args: Any, **kwargs: Any) -> Any:
            counts[operator] += 1
            return original(*args, **kwargs)

        return kernel

    with contextlib.ExitStack() as stack:
        for operator in operators:
            stack.enter_context(overridden(operator, counted(operator)))
        stack.enter_context(compiling_with(count_nodes))
        yield counts


class _Inside(threading.local):
    """Which faulty kernel this thread is running: what that does itself is done right. Several load weights."""

    operator = ""


_inside = _Inside()


@contextlib.contextmanager
def overridden(operator: str, faulty: Kernel) -> Iterator[None]:
    """While it is entered, the dispatcher calls `faulty` for an operator on the device, outside of compilation."""
    from torch_tpu._internal import execution_mode

    namespace, _, name = operator.rpartition("::")
    beneath = torch.library.get_kernel(f"{namespace or 'aten'}::{name}", "PrivateUse1")
    tensors = [isinstance(argument.type, torch.TensorType) for argument in overload(operator)._schema.arguments]
    compiling = execution_mode.EagerMode._INTERNAL_COMPILE_FX_GRAPH

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        def original(*args: Any, **kwargs: Any) -> Any:
            # A Python number in a tensor's place arrives as a number, which the kernel does not take.
            given = (
                torch.tensor(x) if tensor and isinstance(x, int | float) else x
                for x, tensor in zip(args, tensors, strict=False)
            )
            return beneath.call_boxed(keys, *given, **kwargs)

        if _inside.operator or execution_mode.eager_mode == compiling:
            return original(*args, **kwargs)
        _inside.operator = operator
        try:
            return faulty(original, *args, **kwargs)
        finally:
            _inside.operator = ""

    library = torch.library.Library(namespace or "aten", "IMPL")
    try:
        library.impl(name, kernel, "PrivateUse1", with_keyset=True, allow_override=True)
        yield
    finally:
        library._destroy()


@contextlib.contextmanager
def compiling_with(edit: Callable[[torch.fx.GraphModule], None]) -> Iterator[None]:
    """While it is entered, every graph is handed to `edit` before the device's compiler gets it."""
    from torch_tpu._internal.compile._backend import TpuBackend

    real = TpuBackend._compile_graph_module

    def compile_graph(self: Any, *args: Any) -> Any:
        module = next(arg for arg in args if isinstance(arg, torch.fx.GraphModule))
        edit(module)
        module.recompile()
        return real(self, *args)

    TpuBackend._compile_graph_module = compile_graph
    try:
        yield
    finally:
        TpuBackend._compile_graph_module = real


def _put_into_graph(targets: dict[Any, Kernel], module: torch.fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in targets:
            node.target = _in_graph(node.target, targets[node.target])


def _in_graph(original: torch._ops.OpOverload, faulty: Kernel) -> Kernel:
    def call(*args: Any, **kwargs: Any) -> Any:
        return faulty(original, *args, **kwargs)

    call.__name__ = f"faulty_{original.__name__.replace('.', '_')}"
    return call


def form(function: Callable[..., Any]) -> Callable[..., Any]:
    """How `slope` runs a function; whoever compiles examples replaces it."""
    return function


def slope(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Gradients of the sum of squares of what `function` returns, for each floating-point input."""
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    form(function)(*leaves).square().sum().backward()
    return tuple(leaf.grad for leaf in leaves if leaf.grad is not None)


def to_bfloat16(x: torch.Tensor) -> torch.Tensor:
    """`x` rounded to bfloat16, in its own dtype; integers as they are."""
    return x.to(torch.bfloat16).to(x.dtype) if x.is_floating_point() else x


def read_as_contiguous(x: torch.Tensor) -> torch.Tensor:
    """What a kernel sees that reads the elements of a permuted tensor in the order they lie in; others as they are."""
    if x.is_contiguous() or x.dim() < 2 or 0 in x.stride():
        return x
    reach = 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    if reach != x.numel():  # it has gaps: what lies between is another tensor's
        return x
    steps = [1]
    for size in reversed(x.shape[1:]):
        steps.insert(0, steps[0] * size)
    return torch.as_strided(x, x.shape, steps, x.storage_offset())
