"""What a model chooses by comparing numbers: experts of a router, codes of a quantizer, proposals of a detector.

Where two scores are nearly equal, two correct runs may choose differently, and from there on their numbers differ by
far more than rounding explains. So the CPU can be made to choose what another run chose, wherever its own scores say
that both choices are as good.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.numerics.budget import allowance, rms
from harness.numerics.judge import outliers

_ARGUMENTS = {
    "topk": ("input", "k", "dim", "largest", "sorted"),
    "sort": ("input", "dim", "descending"),
    "argsort": ("input", "dim", "descending"),
    "max": ("input", "dim", "keepdim"),
    "min": ("input", "dim", "keepdim"),
    "argmax": ("input", "dim", "keepdim"),
    "argmin": ("input", "dim", "keepdim"),
}
"""Functions that choose, each also a method of tensors, and the arguments they take by position."""

_FIRST = ("max", "min", "argmax", "argmin")
"""Of equal scores these choose the first, as their documentation says; topk and sort may choose any."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One call of a function that chooses, along `dim` of `of`; `values` and `indices` are what it returned.

    `ordered` says that picks stand in the order of their scores, `first` that the first of equal scores is picked.
    """

    of: torch.Tensor
    dim: int
    values: torch.Tensor | None
    indices: torch.Tensor
    ordered: bool
    first: bool

    @property
    def scores(self) -> torch.Tensor:
        """What was chosen from: (rows, candidates), floating."""
        rows = self.of.movedim(self.dim, -1)
        return rows.reshape(-1, rows.shape[-1])

    @property
    def picked(self) -> torch.Tensor:
        """What was chosen: (rows, picks), int64."""
        return self.rows(self.indices)

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """(rows, picks) of indices that have the shape of the call's own."""
        spread = self._spread(indices)
        return spread.reshape(-1, spread.shape[-1])

    def instead(self, picked: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The values and indices that the call would have returned, had it picked `picked` (rows, picks)."""
        shape, single = self._spread(self.indices).shape, self.indices.dim() < self.of.dim()

        def placed(rows: torch.Tensor) -> torch.Tensor:
            spread = rows.reshape(shape).movedim(-1, self.dim)
            return spread.squeeze(self.dim) if single else spread

        return None if self.values is None else placed(self.scores.gather(1, picked)), placed(picked)

    def _spread(self, indices: torch.Tensor) -> torch.Tensor:
        return (indices.unsqueeze(self.dim) if indices.dim() < self.of.dim() else indices).movedim(self.dim, -1)


class Watching(TorchFunctionMode):
    """Notes what is chosen in a run: `picks`, and, where asked for, the `scores` it was chosen from, in order.

    `called` are the names of PyTorch's functions that were called.
    """

    def __init__(self, *, scores: bool = False) -> None:
        super().__init__()
        self.picks: list[torch.Tensor] = []
        self.scores: list[torch.Tensor] | None = [] if scores else None
        self.called: set[str] = set()

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        self.called.add(name)
        if (choice := choice_of(name, args, kwargs or {}, result)) is not None:
            self.picks.append(choice.picked.detach().clone())
            if self.scores is not None:
                self.scores.append(choice.scores.detach().clone())
        return result


class Forcing(TorchFunctionMode):
    """Has a run choose `picks` where its own choice is as good: no score differs by more than the `noises` allow.

    `flips` counts the rows of scores in which it was made to choose otherwise than it would have. Of scores that are
    equal to the bit another than the first may be chosen only with `ties`.
    """

    def __init__(self, picks: list[torch.Tensor], noises: list[float], *, ties: bool = False) -> None:
        super().__init__()
        self._ties = ties
        self._wanted = list(zip(picks, noises, strict=True))
        self._next = 0
        self.flips = 0

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = function(*args, **(kwargs or {}))
        choice = choice_of(getattr(function, "__name__", ""), args, kwargs or {}, result)
        if choice is not None and self._next < len(self._wanted):
            wanted, noise = self._wanted[self._next]
            self._next += 1
            if wanted.shape == choice.picked.shape:
                as_good = _as_good(choice, wanted, noise, self._ties)
                if as_good.any():
                    self.flips += int(as_good.sum())
                    values, indices = choice.instead(torch.where(as_good[:, None], wanted, choice.picked))
                    return indices if values is None else type(result)((values, indices))
        return result


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Whether two runs chose the same throughout."""
    return len(one) == len(other) and all(map(torch.equal, one, other))


def noises(cpu: list[torch.Tensor], truth: list[torch.Tensor]) -> list[float] | None:
    """How far each call's scores may be off in a correct run at the dtype of `cpu`, from those of two CPU runs.

    The largest error of a score that the noise budget allows, masks left out. None where the runs choose from
    scores of different shapes, and so cannot be compared.
    """
    if [scores.shape for scores in cpu] != [scores.shape for scores in truth]:
        return None
    return [_noise(*pair) for pair in zip(cpu, truth, strict=True)]


def _noise(cpu: torch.Tensor, truth: torch.Tensor) -> float:
    exact = truth.double()
    usable = torch.isfinite(cpu) & torch.isfinite(exact)
    told = usable & ~outliers(exact, usable)
    if not told.any():
        return 0.0
    off = (cpu.double() - exact)[told].abs()
    return allowance(off.max().item(), rms(exact[told]), cpu.dtype)


def _as_good(choice: Choice, wanted: torch.Tensor, noise: float, ties: bool) -> torch.Tensor:
    """In which rows `wanted`, other than what was picked, is a choice that noise can make; bool (rows)."""
    scores = choice.scores
    valid = ((wanted >= 0) & (wanted < scores.shape[1])).all(1)
    valid &= (wanted.sort(1).values.diff(dim=1) != 0).all(1)
    own, other = (scores.gather(1, at) for at in (choice.picked, wanted.clamp(0, scores.shape[1] - 1)))
    if not choice.ordered:
        own, other = (values.sort(1, descending=True).values for values in (own, other))
    apart = torch.where(own == other, 0, (own.double() - other.double()).abs())  # infinite ones are equal too
    if choice.first and not ties:
        valid &= (apart > 0).all(1)
    return valid & (wanted != choice.picked).any(1) & (apart <= 2 * noise).all(1)


def choice_of(name: str, args: tuple, kwargs: dict[str, Any], result: Any) -> Choice | None:
    """What a call of the function `name` chose; None for one that does not choose among floating-point scores."""
    if name not in _ARGUMENTS or len(args) > len(_ARGUMENTS[name]):
        return None
    given = dict(zip(_ARGUMENTS[name], args, strict=False)) | kwargs
    of, dim = given.get("input"), given.get("dim", None if name in ("argmax", "argmin") else -1)
    values, indices = result if isinstance(result, tuple) and len(result) == 2 else (None, result)
    chosen = name.startswith("arg") or values is not None
    if not chosen or not isinstance(of, torch.Tensor) or not isinstance(indices, torch.Tensor):
        return None
    if not of.is_floating_point() or not of.numel() or not indices.numel():
        return None
    if dim is None:
        of, dim = of.reshape(-1), 0
    ordered = name != "topk" or given.get("sorted", True)
    return Choice(of, dim, values, indices, ordered, name in _FIRST) if of.dim() else None


def exposed(backend: Callable[..., Any], picks: list[torch.Tensor]) -> Callable[..., Any]:
    """A `torch.compile` backend like `backend` whose programs also append what they choose to `picks`.

    In the order, and of the shapes, that `Watching` notes.
    """

    def compile(graph: torch.fx.GraphModule, examples: Any, **options: Any) -> Callable[..., Any]:
        output = next(node for node in graph.graph.nodes if node.op == "output")
        returned = tuple(output.args[0])
        choices = dict(_choosing(graph.graph))
        with graph.graph.inserting_before(output):
            taken = [
                graph.graph.call_function(operator.getitem, (node, 1)) if choice.values is not None else node
                for node, choice in choices.items()
            ]
        output.args = ((*returned, *taken),)
        graph.recompile()
        program = backend(graph, examples, **options)

        def call(*args: Any) -> Any:
            results = program(*args)
            extra = zip(choices.values(), results[len(returned) :], strict=True)
            picks.extend(choice.rows(indices).detach() for choice, indices in extra)
            return results[: len(returned)]

        return call

    return compile


def _choosing(graph: torch.fx.Graph) -> Iterator[tuple[torch.fx.Node, Choice]]:
    """The calls of a graph that Dynamo captured which choose, with the choices of its example values."""
    for node in graph.nodes:
        if node.op in ("call_method", "call_function"):
            name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda x: x.meta.get("example_value"))
            if (choice := choice_of(name, args, kwargs, node.meta.get("example_value"))) is not None:
                yield node, choice
