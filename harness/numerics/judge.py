"""From three sets of output leaves (truth, CPU, target) to one verdict and the worst leaf."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from harness.cases import Verdict
from harness.numerics.budget import GRADIENT, ORDINARY, Lenience, allowance, of_gradients, rms
from harness.records import Leaf

Leaves = dict[str, torch.Tensor]

OUTLIER_FACTOR = 1e4
"""Elements this many times the median magnitude are judged among themselves: they are masks (-1e9,
`finfo.min`), and their rounding would otherwise allow any error in the rest of the leaf."""

MASK_GAP = 100.0
MASK_SPREAD = 0.99
MASK_SAMPLES = 32
"""So are elements within a hundredth of the largest where all others are a hundred times smaller: a mask of -1e4 added
to however many scores of order one. The others must be as many as it takes for their own noise to be an estimate."""

_SEVERITY = (
    Verdict.NONFINITE_DEVICE_ONLY,
    Verdict.NONFINITE_REFERENCE_ONLY,
    Verdict.WRONG_STRUCTURE,
    Verdict.WRONG_SHAPE,
    Verdict.WRONG_DTYPE,
    Verdict.NUMERIC_MISMATCH,
    Verdict.NONFINITE_REFERENCE,
    Verdict.PASS,
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a case's outputs, the leaf that decided it, and how many leaves were judged.

    `first` is the path of the first leaf, in the order of the outputs, that is no pass; empty where all are.
    """

    verdict: Verdict
    worst: Leaf | None
    leaves: int
    message: str
    first: str = ""


def judge(truth: Leaves, cpu: Leaves, target: Leaves, hidden: Leaves | None = None) -> Judgement:
    """Judge a target's output leaves, all on CPU.

    `truth` holds float64 values of the same leaves that `cpu` holds at the case's dtype;
    `target` is what the backend returned. `hidden` tells, for some leaves, which elements are of
    padding (bool, of the leaf's shape): their values are not judged. Every leaf is judged; the most
    severe verdict wins, and among leaves of that verdict the one with the largest error for its allowance.
    """
    hidden = hidden or {}
    missing = [path for path in cpu if path not in target]
    extra = [path for path in target if path not in cpu]
    gradients = of_gradients(truth)
    judged = [
        _leaf(
            *(path, truth[path], cpu[path], target[path], hidden.get(path)),
            gradients if path.startswith(GRADIENT) else ORDINARY,
        )
        for path in cpu
        if path in target
    ]
    judged += [Leaf(path, Verdict.WRONG_STRUCTURE, (), "", 0, note="missing on the target") for path in missing]
    judged += [Leaf(path, Verdict.WRONG_STRUCTURE, (), "", 0, note="only on the target") for path in extra]
    if not judged:
        return Judgement(Verdict.WEAK_REFERENCE, None, 0, "the model returned no tensors")
    worst = min(judged, key=lambda leaf: (_SEVERITY.index(leaf.verdict), -(leaf.ratio or 0.0)))
    if worst.verdict is Verdict.PASS and not any(leaf.elements for leaf in judged):
        return Judgement(Verdict.WEAK_REFERENCE, worst, len(judged), "every tensor that was returned is empty")
    told = _describe(worst) or next((f"{leaf.path}: {leaf.note}" for leaf in judged if leaf.note), "")
    first = next((leaf.path for leaf in judged if leaf.verdict is not Verdict.PASS), "")
    return Judgement(worst.verdict, worst, len(judged), told, first)


def agree(truth: Leaves, cpu: Leaves, one: Leaves, other: Leaves, hidden: Leaves | None = None) -> bool:
    """Do two runs of a target differ by no more than noise allows? Arguments as of `judge`, the target's twice.

    What is between them is judged as if it were between the target and the truth.
    """
    if one.keys() != other.keys() or any(_kind(one[path]) != _kind(other[path]) for path in one):
        return False
    moved = {}
    for path, leaf in one.items():
        differs = ~((leaf == other[path]) | ((leaf != leaf) & (other[path] != other[path])))
        if hidden and path in hidden and hidden[path].shape == leaf.shape:
            differs &= ~hidden[path]
        continuous = leaf.is_floating_point() or leaf.is_complex()
        if path in cpu and _kind(cpu[path]) == _kind(leaf) and continuous:
            apart = truth[path] + (other[path].to(truth[path].dtype) - leaf.to(truth[path].dtype))
            moved[path] = torch.where(differs, apart.to(leaf.dtype), cpu[path])
        elif differs.any():
            return False
    known = ({path: leaves[path] for path in moved} for leaves in (truth, cpu))
    return not moved or judge(*known, moved).verdict is Verdict.PASS


def _kind(leaf: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return leaf.shape, leaf.dtype


def _describe(leaf: Leaf) -> str:
    if leaf.verdict is Verdict.PASS:
        return ""
    if leaf.verdict is Verdict.NUMERIC_MISMATCH and leaf.ratio is not None:
        return f"{leaf.path}: error is {leaf.ratio:.3g} times what is allowed{leaf.note and f' ({leaf.note})'}"
    return f"{leaf.path}: {leaf.note}"


def _leaf(
    path: str, truth: torch.Tensor, cpu: torch.Tensor, target: torch.Tensor, hide: torch.Tensor | None, by: Lenience
) -> Leaf:
    leaf = Leaf(path, Verdict.PASS, tuple(cpu.shape), str(cpu.dtype).removeprefix("torch."), cpu.numel())
    if target.shape != cpu.shape:
        return replace(leaf, verdict=Verdict.WRONG_SHAPE, note=f"shape {tuple(target.shape)}, not {tuple(cpu.shape)}")
    shown = torch.ones((), dtype=torch.bool).expand(cpu.shape) if hide is None else ~hide
    if target.is_floating_point() and (count := int((~torch.isfinite(target) & torch.isfinite(cpu) & ~shown).sum())):
        leaf = replace(leaf, note=f"{count} elements are NaN or infinite on the target, all of padding")
    nonfinite = _nonfinite(leaf, cpu, target, shown)
    if nonfinite is not None:
        return nonfinite
    if target.dtype != cpu.dtype:
        return replace(leaf, verdict=Verdict.WRONG_DTYPE, note=f"dtype {target.dtype}, not {cpu.dtype}")
    if cpu.is_complex():
        both = shown.unsqueeze(-1).expand(*shown.shape, 2)
        real = _floats(leaf, *(torch.view_as_real(side) for side in (truth, cpu, target)), both, by)
        return replace(real, index=real.index[:-1] if real.index else real.index)
    if cpu.is_floating_point():
        return _floats(leaf, truth, cpu, target, shown, by)
    return _exact(leaf, cpu, target, shown)


def _nonfinite(leaf: Leaf, cpu: torch.Tensor, target: torch.Tensor, shown: torch.Tensor) -> Leaf | None:
    """A verdict where one side is NaN or infinite and the other is not, or infinite with another sign, or both NaN."""
    if not (cpu.is_floating_point() or cpu.is_complex()):
        return None
    for verdict, culprit, other, where in (
        (Verdict.NONFINITE_DEVICE_ONLY, target, cpu, "on the target only"),
        (Verdict.NONFINITE_REFERENCE_ONLY, cpu, target, "on the CPU only"),
    ):
        bad = ~torch.isfinite(culprit) & torch.isfinite(other) & shown
        if bad.any():
            count = int(bad.sum())
            note = f"{count} of {cpu.numel()} elements are NaN or infinite {where}"
            return _at(replace(leaf, verdict=verdict, note=note), _first(bad), cpu, target)
    both = ~torch.isfinite(cpu) & shown
    differs = both & (cpu != target) & ~(torch.isnan(cpu) & torch.isnan(target))
    if differs.any():
        kind = Verdict.NONFINITE_DEVICE_ONLY
        note = f"{int(differs.sum())} of {cpu.numel()} elements are NaN or infinite in another way"
        return _at(replace(leaf, verdict=kind, note=note), _first(differs), cpu, target)
    unknown = torch.isnan(cpu) & shown
    if unknown.any():
        note = f"{int(unknown.sum())} of {cpu.numel()} elements are NaN on both sides, which tells nothing"
        return _at(replace(leaf, verdict=Verdict.NONFINITE_REFERENCE, note=note), _first(unknown), cpu, target)
    return None


def _floats(
    leaf: Leaf, truth: torch.Tensor, cpu: torch.Tensor, target: torch.Tensor, shown: torch.Tensor, by: Lenience
) -> Leaf:
    """Judge ordinary elements and outliers apart, so that a mask of -1e9 does not hide all that is near 1."""
    unrepresentable = ~torch.isfinite(truth.to(cpu.dtype))  # for instance float64's own `finfo.min`
    t = torch.where(unrepresentable, cpu.double(), truth.double())
    usable = torch.isfinite(cpu) & shown
    outlier = outliers(t, usable)
    groups = [members for members in (usable & ~outlier, usable & outlier) if members.any()]
    if not groups:
        return replace(leaf, note="no finite element to compare")
    measured = [_measure(leaf, members, t, cpu, target, by) for members in groups]
    return max(measured, key=lambda m: (m.verdict is not Verdict.PASS, m.ratio or 0.0))


def outliers(t: torch.Tensor, usable: torch.Tensor) -> torch.Tensor:
    """Which of the `usable` elements of the float64 truth `t` are judged among themselves, bool of its shape."""
    sizes = t.abs()
    told = sizes[usable & (t != 0)]
    if not told.numel():
        return torch.zeros_like(usable)
    outlier = sizes > OUTLIER_FACTOR * told.median()
    like_a_mask = MASK_SPREAD * told.max()
    others = told[told < like_a_mask]
    if others.numel() >= MASK_SAMPLES and others.max() * MASK_GAP <= like_a_mask:
        outlier |= sizes >= like_a_mask
    return outlier


def _measure(
    leaf: Leaf, members: torch.Tensor, t: torch.Tensor, cpu: torch.Tensor, target: torch.Tensor, by: Lenience
) -> Leaf:
    truth = t[members]
    off, cpu_off = (target.double()[members] - truth).abs(), (cpu.double()[members] - truth).abs()
    scale, top = rms(truth), truth.abs().max().item()
    error, cpu_error = rms(off), rms(cpu_off)
    max_error, max_cpu_error = off.max().item(), cpu_off.max().item()
    measured = replace(
        leaf,
        scale=scale,
        error=error,
        cpu_error=cpu_error,
        allowed=allowance(cpu_error, max(scale, by.rms), cpu.dtype, by.multiplier),
        max_error=max_error,
        max_cpu_error=max_cpu_error,
        max_allowed=allowance(max_cpu_error, max(top, by.top), cpu.dtype, by.multiplier),
    )
    within = error <= measured.allowed and max_error <= measured.max_allowed
    verdict = Verdict.PASS if within else Verdict.NUMERIC_MISMATCH
    worst = int(members.flatten().nonzero()[off.argmax()])
    return _at(replace(measured, verdict=verdict), worst, cpu, target, t)


def _exact(leaf: Leaf, cpu: torch.Tensor, target: torch.Tensor, shown: torch.Tensor) -> Leaf:
    differs = (cpu != target) & shown
    if not differs.any():
        return leaf
    note = f"{int(differs.sum())} of {cpu.numel()} discrete values differ"
    return _at(replace(leaf, verdict=Verdict.NUMERIC_MISMATCH, note=note), _first(differs), cpu, target)


def _first(mask: torch.Tensor) -> int:
    return int(mask.flatten().int().argmax())


def _at(leaf: Leaf, flat: int, cpu: torch.Tensor, target: torch.Tensor, truth: torch.Tensor | None = None) -> Leaf:
    """The leaf with the element at flat index `flat` as its evidence (real parts, for complex tensors)."""

    def value(x: torch.Tensor | None) -> float | None:
        if x is None or x.numel() == 0:
            return None
        element = x.flatten()[flat]
        return (element.real if element.is_complex() else element).double().item()

    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), cpu.shape)) if cpu.dim() else ()
    expected = value(truth if truth is not None else cpu)
    return replace(leaf, index=index, actual=value(target), cpu=value(cpu), expected=expected)
