"""Which parameter tensors matter: would the judge see it if a backend had one of them slightly wrong?"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from harness.cases import Dtype, Phase, Verdict
from harness.execution import reference
from harness.execution.double import Double
from harness.execution.reference import Reference
from harness.inputs import cast
from harness.models.weights import generator
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
    BELOW = "below tolerance"


UNREACHABLE = (Reason.DROPPED, Reason.CANCELLED)
"""What is read and yet changes nothing, so that no weights would. Whether other inputs would make a model use what it
does not use here is not measured, and so is not presumed."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One parameter tensor. `reason` is None where it is live; `used` is the largest share of a leaf's allowance
    that its perturbation used, None where nothing moved or where the judge saw something else than numbers."""

    name: str
    shape: tuple[int, ...]
    reason: Reason | None
    used: float | None


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
    exact_inputs = cast(given, "float64")
    exact = dict(truth.named_parameters())
    read = _read(model, given, seed)
    result = []
    for name, parameter in model.named_parameters():
        judged = _judged(known.truth, known.cpu, _perturbed(model, parameter, name, given, seed))
        ratio = judged.worst.ratio if judged and judged.worst else None
        reason = None
        if judged is None or judged.verdict is Verdict.PASS:
            reason = _unread(name, read)
            if reason is None:
                reason = _read_in_vain(truth, exact[name], name, exact_inputs, known.truth, seed)
        result.append(Tensor(name, tuple(parameter.shape), reason, ratio))
    return result


def _perturbed(model: nn.Module, parameter: nn.Parameter, name: str, inputs: dict[str, Any], seed: int) -> Leaves:
    """Output leaves of the model with one of its tensors perturbed."""
    signs = torch.randint(0, 2, parameter.shape, generator=generator(seed, f"perturbation of {name}")) * 2 - 1
    return _multiplied(model, parameter, 1 + PERTURBATION * signs.to(parameter.dtype), inputs, seed)


def _multiplied(
    model: nn.Module, parameter: nn.Parameter, factor: torch.Tensor | float, inputs: dict[str, Any], seed: int
) -> Leaves:
    """Output leaves of the model with one of its tensors multiplied by `factor`, and put back."""
    kept = parameter.detach().clone()
    with torch.no_grad():
        parameter.mul_(factor)
    try:
        return reference.run(model, inputs, Phase.FORWARD, seed)
    finally:
        with torch.no_grad():
            parameter.copy_(kept)


def _judged(truth: Leaves, cpu: Leaves, moved: Leaves) -> Judgement | None:
    """The judgement on the leaves that differ from `cpu`, of which those that are equal pass; None where none does."""
    if moved.keys() != cpu.keys():
        return judge(truth, cpu, moved)
    differ = [path for path, leaf in cpu.items() if not torch.equal(leaf, moved[path])]
    return judge(*({path: leaves[path] for path in differ} for leaves in (truth, cpu, moved))) if differ else None


def _read_in_vain(
    truth: nn.Module, parameter: nn.Parameter, name: str, inputs: dict[str, Any], known: Leaves, seed: int
) -> Reason:
    """Why a tensor that is read is dead, from what it does to the float64 truth."""
    with Double():
        judged = _judged(known, known, _perturbed(truth, parameter, name, inputs, seed))
        if judged is None:
            flipped = _judged(known, known, _multiplied(truth, parameter, -1.0, inputs, seed))
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


def _read(model: nn.Module, inputs: dict[str, Any], seed: int) -> dict[str, bool]:
    """Did some operation of the forward pass compute a non-empty result from a tensor's memory? By name."""
    with _Reads(dict(model.named_parameters())) as reads:
        reference.run(model, inputs, Phase.FORWARD, seed)
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
