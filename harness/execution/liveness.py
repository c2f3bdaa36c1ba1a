"""Which parameter tensors matter: would the judge see it if a backend had one of them slightly wrong?"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from harness.cases import Dtype, Phase, Verdict
from harness.execution import reference
from harness.execution.double import Double
from harness.execution.generation import Teacher
from harness.execution.reference import Reference
from harness.execution.training import STEPPED
from harness.inputs import cast
from harness.models.weights import generator
from harness.numerics.budget import GRADIENT
from harness.numerics.judge import Judgement, Leaves, judge

PERTURBATION = 0.01
"""Every element w of a tensor becomes w (1 + PERTURBATION s), each s drawn from {-1, 1}."""

ROUNDING_RATIO = 1e3
"""Movements in float64 below this many of its own allowances (16 ulp each, so 3.6e-12 of the leaf) are rounding
that grew on its way. The float32 allowance is half a million times wider than that."""

_EXPERT = re.compile(r"(.*\bexperts?\w*\.)\d+(\..*)")


class Reason(StrEnum):
    """Why a tensor is dead, each found out by measurement."""

    UNUSED = "not used by this class's forward"
    UNROUTED = "unrouted expert"
    DROPPED = "used, but not for any output"
    CHOOSES = "only chooses, and chose the same"
    CANCELLED = "cancelled"
    """Such as a bias of keys, which adds to all scores of a row alike: no inputs or weights would make it matter."""
    BELOW = "below tolerance"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One parameter tensor. `reason` is None where it is live; `used` is the largest share of a leaf's allowance
    that its perturbation used, None where nothing moved or where the judge saw something else than numbers.
    `seen_in` names the class and phase of the same model type that show it where the forward pass does not."""

    name: str
    shape: tuple[int, ...]
    reason: Reason | None
    used: float | None
    seen_in: str = ""


def measure(
    model: nn.Module, truth: nn.Module, inputs: dict[str, Any], known: Reference, *, dtype: Dtype, seed: int
) -> list[Tensor]:
    """Every parameter tensor of `model`, tied ones once, each perturbed alone and put back exactly.

    Arguments as of `reference.compute`, and `known` is what that returned. A tensor is live where the judge fails
    the outputs of the perturbed model, as it would a backend's. A dead one that some operation reads is perturbed
    in the float64 truth too, which tells a movement too small to be seen from none; where that moves nothing at all,
    its sign is flipped, which tells what only decides (a choice of experts, a nearest code) from what has no effect.
    """
    given = cast(inputs, dtype)
    run = _Run(Phase.FORWARD, given, known, seed)
    exact_run = _Run(Phase.FORWARD, cast(given, "float64"), known, seed)
    exact = dict(truth.named_parameters())
    read = _read(model, run)
    result = []
    for name, parameter in model.named_parameters():
        judged = run.judged(model, parameter, name)
        ratio = judged.worst.ratio if judged and judged.worst else None
        reason = None
        if not _fails(judged):
            reason = _unread(name, read)
            if reason is None:
                reason = _read_in_vain(truth, exact[name], name, exact_run)
        result.append(Tensor(name, tuple(parameter.shape), reason, ratio))
    return result


def live(
    model: nn.Module,
    inputs: dict[str, Any],
    known: Reference,
    among: Iterable[str],
    *,
    phase: Phase,
    dtype: Dtype,
    seed: int,
) -> list[str]:
    """Those `among` the names of a type's base model that are live in `phase` of `model`, a class of that type.

    Other arguments as of `reference.compute`, and `known` is what that returned. A name that this class has no
    parameter of is not live in it. What a step of training makes of the perturbed tensor itself does not count.
    """
    run = _Run(phase, cast(inputs, dtype), known, seed)
    parameters = dict(model.named_parameters())
    if phase is Phase.TRAIN:  # the step itself reads all
        reached = {name for name in parameters if GRADIENT + name in known.cpu}
    else:
        reached = {name for name, read in _read(model, run).items() if read}
    found = []
    for name in among:
        own = next((x for x in (f"{model.base_model_prefix}.{name}", name) if x in reached), None)
        if own is not None and _fails(run.judged(model, parameters[own], own)):
            found.append(name)
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """A phase with its inputs, at the precision of the model that it will be of, and its reference."""

    phase: Phase
    inputs: dict[str, Any]
    known: Reference
    seed: int

    def judged(self, model: nn.Module, parameter: nn.Parameter, name: str) -> Judgement | None:
        """The judgement on the outputs of `model` with one of its tensors perturbed; None where nothing moved."""
        return _judged(self.known.truth, self.known.cpu, self.perturbed(model, parameter, name), self.known.hidden)

    def perturbed(self, model: nn.Module, parameter: nn.Parameter, name: str) -> Leaves:
        """Output leaves with one tensor perturbed; in training without that tensor after the step."""
        signs = torch.randint(0, 2, parameter.shape, generator=generator(self.seed, f"perturbation of {name}")) * 2 - 1
        leaves = self.multiplied(model, parameter, 1 + PERTURBATION * signs.to(parameter.dtype))
        stepped = STEPPED + name
        return leaves | {stepped: self.known.cpu[stepped]} if stepped in leaves else leaves

    def multiplied(self, model: nn.Module, parameter: nn.Parameter, factor: torch.Tensor | float) -> Leaves:
        """Output leaves with one tensor multiplied by `factor`, and put back."""
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.mul_(factor)
        try:
            return self.leaves(model)
        finally:
            with torch.no_grad():
                parameter.copy_(kept)

    def leaves(self, model: nn.Module) -> Leaves:
        """Output leaves of the model as it is, nothing kept from when it was another."""
        model.train().eval()  # drops what a model keeps of its parameters between calls (LeViT's attention biases)
        return reference.run(model, self.inputs, self.phase, self.seed, Teacher(self.known.tokens))


def _fails(judged: Judgement | None) -> bool:
    return judged is not None and judged.verdict is not Verdict.PASS


def _judged(truth: Leaves, cpu: Leaves, moved: Leaves, hidden: Leaves) -> Judgement | None:
    """The judgement on the leaves that differ from `cpu`, of which those that are equal pass; None where none does."""
    if moved.keys() != cpu.keys():
        return judge(truth, cpu, moved, hidden)
    differ = [path for path, leaf in cpu.items() if not torch.equal(leaf, moved[path])]
    some = ({path: leaves[path] for path in differ if path in leaves} for leaves in (truth, cpu, moved, hidden))
    return judge(*some) if differ else None


def _read_in_vain(truth: nn.Module, parameter: nn.Parameter, name: str, run: _Run) -> Reason:
    """Why a tensor that is read is dead, from what it does to the float64 truth."""
    known, hidden = run.known.truth, run.known.hidden
    with Double():
        judged = _judged(known, known, run.perturbed(truth, parameter, name), hidden)
        if judged is None:
            flipped = _judged(known, known, run.multiplied(truth, parameter, -1.0), hidden)
            return Reason.DROPPED if flipped is None else Reason.CHOOSES
    ratio = judged.worst.ratio if judged.worst else None
    return Reason.CANCELLED if ratio is not None and ratio < ROUNDING_RATIO else Reason.BELOW


def _unread(name: str, read: dict[str, bool]) -> Reason | None:
    """Why no operation read the values of a tensor, None where one did."""
    if read[name]:
        return None
    expert = _EXPERT.fullmatch(name)
    siblings = (other for other in map(_EXPERT.fullmatch, read) if other and expert)
    routed = any(read[other[0]] for other in siblings if other.group(1, 2) == expert.group(1, 2))
    return Reason.UNROUTED if routed else Reason.UNUSED


def _read(model: nn.Module, run: _Run) -> dict[str, bool]:
    """Did some operation of a run compute a non-empty result from a tensor's memory? By name."""
    with _Reads(dict(model.named_parameters())) as reads:
        run.leaves(model)
    return reads.found


class _Reads(TorchDispatchMode):
    """Watches what operations compute from; views only pass memory on, and so are followed by where they point."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        super().__init__()
        self.found = dict.fromkeys(parameters, False)
        self._names: dict[int, list[str]] = defaultdict(list)
        self._ends: dict[int, int] = {}
        for name, parameter in parameters.items():
            start = parameter.data_ptr()
            self._names[start].append(name)
            self._ends[start] = start + parameter.numel() * parameter.element_size()
        self._starts = sorted(self._ends)

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if not function.is_view and any(x.numel() for x in _flat(result)):
            for x in _flat((args, kwargs)):
                if x.numel() and x.device.type == "cpu" and x.layout is torch.strided:
                    self._note(x.data_ptr())
        return result

    def _note(self, address: int) -> None:
        place = bisect.bisect_right(self._starts, address) - 1
        if place >= 0 and address < self._ends[start := self._starts[place]]:
            self.found.update(dict.fromkeys(self._names[start], True))


def _flat(value: Any) -> list[torch.Tensor]:
    """The tensors in an operation's arguments or results."""
    return [x for x in torch.utils._pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
