"""Which operator of a run is the first whose result is wrong though what it was given is not.

The CPU repeats each with the target's own arguments. Its result at their dtypes and that in float64 are to the target's
result what reference and truth are to a model's outputs, so the noise budget is the same. As the arguments are those
that the target itself came to, an error made earlier is not found again.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

from harness.cases import Verdict
from harness.execution.choices import choice_of
from harness.execution.on_cpu import ON_CPU
from harness.numerics.judge import Leaves, judge

ENOUGH = 3
"""Different operators that are found wrong before the rest of a run is no longer checked."""

_UNKNOWABLE = ("empty", "as_strided", "resize", "set_")
"""In the names of operators whose result is not a matter of the values they are given: memory nobody wrote, and
other views of a storage of which only the values are copied to the CPU."""

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class BadOperator:
    """A call of an operator with a wrong result.

    `module` is the path of the model's module that called it, empty for the model itself or where unknown; `place` says
    which call it was, `given` the dtypes and shapes of the tensors among its arguments, and `why` what is wrong with
    the result.
    """

    operator: str
    module: str
    place: str
    given: str
    why: str


@dataclass
class Findings:
    """The first wrong call of each operator, in order; `unchecked` counts calls that the CPU could not repeat."""

    bad: list[BadOperator] = field(default_factory=list)
    checked: int = 0
    unchecked: Counter[str] = field(default_factory=Counter)
    graphs: int = 0
    """How many graphs have been compiled; they are numbered from 1 on."""

    @property
    def enough(self) -> bool:
        """Whether so many are known that there is no need to look for more."""
        return len(self.bad) >= ENOUGH

    def check(
        self,
        operator: str,
        where: str,
        repeat: Callable[[Any, Any], Tensors],
        given: Any,
        own: Tensors,
        place: str = "",
    ) -> None:
        """Compare what the target came to with what `repeat(args, kwargs)` does on CPU; `given` are its arguments.

        `where` is the module that called it; `place` the number of the call, that among those checked if empty.
        """
        repeated = _tried(repeat, tree_map(twin, given))
        if repeated is None:
            self.unchecked[operator] += 1
            return
        exact = _tried(repeat, tree_map(double, given)) or tuple(x.to(_widest(x.dtype)) for x in repeated)
        why = _wrong(exact, repeated, own)
        if why and operator not in {one.operator for one in self.bad}:
            place = place or f"call {self.checked + 1}"
            self.bad.append(BadOperator(operator, where, place, tensors_in(given), why))
        self.checked += 1


class Checking(TorchDispatchMode):
    """Checks, while it is entered, every operator that is called, into `findings`.

    `where` says which module is running; `enter` is told each operator, that, and its `tensors_in`, before it is
    called, and empty words when it has returned; `on_cpu` are functions to repeat some operators by instead. Every
    operator is waited for, so what is wrong only in a program of several is not seen.
    """

    def __init__(
        self,
        findings: Findings,
        where: Callable[[], str],
        enter: Callable[[str, str, str], None],
        on_cpu: Mapping[Any, Callable[..., Any]],
    ) -> None:
        super().__init__()
        self._findings, self._where, self._enter = findings, where, enter
        self._on_cpu = ON_CPU | dict(on_cpu)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        repeats = _knowable(function, _named(function, args, kwargs)) and not self._findings.enough
        given = tree_map(copied, (args, kwargs)) if repeats else None
        self._enter(str(function), self._where(), tensors_in((args, kwargs)))
        result = function(*args, **kwargs)
        own = _results(function, args, kwargs, result) if repeats else ()
        self._enter("", "", "")
        if not repeats:
            return result

        on_cpu = self._on_cpu.get(function, function)

        def repeat(args: Any, kwargs: Any) -> Tensors:
            return _results(function, args, kwargs, on_cpu(*args, **kwargs))

        self._findings.check(str(function), self._where(), repeat, given, own)
        return result


@contextlib.contextmanager
def running_module(model: nn.Module) -> Iterator[Callable[[], str]]:
    """While it is entered, the function it gives tells the path of the innermost module of `model` that is running."""
    running: list[str] = []

    def leave(*_: Any) -> None:
        running.pop()

    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            entered = module.register_forward_pre_hook(lambda *_, name=name: running.append(name))
            left = module.register_forward_hook(leave, always_call=True)
            stack.callback(entered.remove)
            stack.callback(left.remove)
        yield lambda: running[-1] if running else ""


def checked(backend: Callable[..., Any], findings: Findings) -> Callable[..., Any]:
    """A `torch.compile` backend like `backend` whose programs are checked call by call of their graph.

    A program also returns what each call in it came to, so it is not the program that the backend would make of the
    graph otherwise: what is wrong only there is not seen. Calls are those that Dynamo captured, of PyTorch's functions.
    """

    def compile(graph: fx.GraphModule, examples: Any, **options: Any) -> Callable[..., Any]:
        nodes = list(graph.graph.nodes)
        output = nodes[-1]
        returned = tuple(output.args[0])
        shown = [node for node in nodes if _shows(node)]
        copies = []
        for node in shown:
            with graph.graph.inserting_after(node):  # what is written into it later is no result of this call
                copies.append(graph.graph.call_method("clone", (node,)))
        output.args = ((*returned, *copies),)
        graph.recompile()
        program = backend(graph, examples, **options)
        findings.graphs += 1
        name = f"graph {findings.graphs}"

        def call(*args: Any) -> Any:
            given = [copied(arg) for arg in args]
            results = program(*args)
            own = dict(zip(shown, map(copied, results[len(returned) :]), strict=True))
            _replay(graph, name, nodes, given, own, findings)
            return results[: len(returned)]

        return call

    return compile


def _shows(node: fx.Node) -> bool:
    return node.op in ("call_function", "call_method") and isinstance(node.meta.get("example_value"), torch.Tensor)


def _replay(
    graph: fx.GraphModule,
    name: str,
    nodes: Sequence[fx.Node],
    given: Sequence[Any],
    own: dict[fx.Node, Any],
    findings: Findings,
) -> None:
    """Check each call of a graph; `own` are the results that the target came to, of calls that return a tensor."""
    values: dict[fx.Node, Any] = {}
    calls = [node for node in nodes if node.op.startswith("call_")]
    inputs = iter(given)
    for node in nodes[:-1]:
        if node.op == "placeholder":
            values[node] = next(inputs)
            continue
        if node.op == "get_attr":
            values[node] = tree_map(copied, _attribute(graph, node.target))
            continue
        arguments = fx.map_arg((node.args, node.kwargs), values.get)

        def repeat(args: Any, kwargs: Any, node: fx.Node = node) -> Tensors:
            return tuple(x for x in tree_iter(_called(node, args, kwargs)) if isinstance(x, torch.Tensor))

        if node in own and not findings.enough and _repeatable(node):
            place = f"call {calls.index(node) + 1} of {len(calls)} in {name}"
            findings.check(_name(node), _module_of(node), repeat, arguments, (own[node],), place)
        if node in own:
            values[node] = own[node]
        else:  # of several results, or none that is a tensor: later calls are given the CPU's
            with contextlib.suppress(*REFUSALS):
                values[node] = _called(node, *tree_map(twin, arguments))


def tensors_in(given: Any) -> str:
    """The dtypes and shapes of the tensors in a tree of arguments: `float32[2, 8], int64[2]`."""
    tensors = (x for x in tree_iter(given) if isinstance(x, torch.Tensor))
    return ", ".join(f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" for x in tensors)


def _called(node: fx.Node, args: Any, kwargs: Any) -> Any:
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)


def _attribute(graph: fx.GraphModule, path: str) -> Any:
    value: Any = graph
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _name(node: fx.Node) -> str:
    return node.target if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))


def _repeatable(node: fx.Node) -> bool:
    return not any(word in _name(node) for word in _UNKNOWABLE)


def _module_of(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    return path.removeprefix("L['self']").strip(".")


REFUSALS = (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError, AttributeError, KeyError)
"""What the CPU raises for want of a kernel, or over arguments it does not take."""


def _tried(repeat: Callable[[Any, Any], Tensors], given: Any) -> Tensors | None:
    try:
        return repeat(*given)
    except REFUSALS:
        return None


def _knowable(function: torch._ops.OpOverload, given: dict[str, Any]) -> bool:
    """Whether an operator's result is a matter of the values that it is `given`, by name."""
    draws = torch.Tag.nondeterministic_seeded in function.tags and given.get("dropout_p") != 0
    return not draws and not any(word in function.__name__ for word in _UNKNOWABLE)


def _named(function: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, those left out with their default."""
    arguments = function._schema.arguments
    defaults = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    return defaults | dict(zip((argument.name for argument in arguments), args, strict=False)) | kwargs


def copied(x: Any) -> Any:
    return x.detach().cpu().clone() if isinstance(x, torch.Tensor) else x


def twin(x: Any) -> Any:
    """An argument for the CPU: a tensor that a call may write into, and no other device."""
    if isinstance(x, torch.Tensor):
        return x.clone()
    return torch.device("cpu") if isinstance(x, torch.device) else x


def double(x: Any) -> Any:
    """An argument for the CPU in float64, dtypes that are asked for included."""
    if isinstance(x, torch.Tensor):
        return x.to(_widest(x.dtype), copy=True)
    return _widest(x) if isinstance(x, torch.dtype) else twin(x)


def _widest(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _results(function: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Tensors:
    """Tensors on CPU that tell whether an operator did what it should.

    Those that it returned, and those that it wrote into. Of an operator that chooses, the values that it chose: which
    of equal ones is its own business.
    """
    choice = choice_of(function.__name__.partition(".")[0], *tree_map(copied, (args, kwargs, result)))
    if choice is not None:
        return (choice.scores.gather(1, choice.picked),)
    named = _named(function, args, kwargs)
    written = [
        named.get(argument.name)
        for argument in function._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    tensors = [x for x in tree_iter((result, written)) if isinstance(x, torch.Tensor)]
    if any(x.is_floating_point() for x in tensors):  # indices beside values, as of a pooling, are a choice too
        tensors = [x for x in tensors if x.is_floating_point() or x.is_complex()]
    return tuple(map(copied, tensors))


def _wrong(exact: Tensors, repeated: Tensors, own: Tensors) -> str:
    """Why what the target came to is wrong, empty where it is right.

    Of several results all but the first count only where the CPU has them, of the same shape: kernels keep for the
    backward pass what suits them.
    """
    kept = [n for n, (a, b) in enumerate(zip(repeated, own, strict=False)) if n == 0 or a.shape == b.shape]
    if not kept:
        return ""
    return why_wrong(*({f"result {n}": side[n] for n in kept} for side in (exact, repeated, own)))


def why_wrong(exact: Leaves, repeated: Leaves, own: Leaves) -> str:
    """Why the `own` results are not what the CPU came to, at their dtypes and in float64; empty where they are."""
    judged = judge(exact, repeated, own)
    right = (Verdict.PASS, Verdict.WEAK_REFERENCE, Verdict.NONFINITE_REFERENCE)
    return "" if judged.verdict in right else f"{judged.verdict}: {judged.message}"
