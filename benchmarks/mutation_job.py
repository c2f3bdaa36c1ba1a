"""What one model makes of many faults, in a process of the target's: the other half of mutation.py.

A model is loaded and run once without a fault. Each fault is then put in for a run of that model (of one loaded anew,
where loading executes what is faulty), which tells what outputs it changes. Where it changes any, it is put in again
for a job exactly as `zoo run --fault` does it, which gives the verdict. After it has been taken out, the model that
was loaded first must give its first outputs again, to the last bit.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import catalogue
import torch
import torch._dynamo.utils as dynamo

from harness import models
from harness.cases import Case, Mode, Stage, Verdict
from harness.execution import outputs, phases
from harness.execution.generation import Teacher
from harness.execution.reference import Reference
from harness.inputs import cast
from harness.jobs import death, preload, target_job
from harness.jobs.cache import INPUTS, REFERENCE
from harness.jobs.channel import Channel
from harness.jobs.payload import case_of
from harness.jobs.report import Report
from harness.numerics.budget import eps, rms
from harness.targets.base import Target

ROUNDING = 0.5
"""Units in the last place of a leaf's own scale that its noise is never less than: any result is rounded once."""


def measure(payload: dict[str, Any], channel: Channel) -> None:
    """Write a row to `payload["rows"]` for each of `payload["faults"]`, as each is done.

    Without faults: deliver which of the catalogue's operators the case executes.
    """
    report = Report(channel)
    try:
        report.enter(Stage.IMPORT)
        target, case = preload.loaded(), case_of(payload["case"])
        faults = catalogue.every_fault()
        operators = sorted({operator for fault in faults.values() for operator in fault.kernels})
        report.enter(Stage.TO_DEVICE)
        with target.entered(case.mode):
            with catalogue.counting(operators) as loading:
                subject = _Subject(target, case, payload)
            report.enter(Stage.RUN)
            if "faults" not in payload:
                with catalogue.counting(operators) as counts:
                    subject.run()
                report.deliver(operators=dict(counts))
                return
            before = subject.run()
        for name in payload["faults"]:
            report.enter(Stage.RUN)
            fault = faults[name]
            anew = not fault.kernels or any(loading[operator] for operator in fault.kernels)
            row = _row(report, target, case, fault, subject, before, payload, anew=anew)
            with open(payload["rows"], "a") as rows:
                rows.write(json.dumps(row) + "\n")
        report.deliver(done=True)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


class _Subject:
    """A loaded model with its inputs."""

    def __init__(self, target: Target, case: Case, payload: dict[str, Any]) -> None:
        folder = Path(payload["folder"])
        self.target, self.case, self.seed = target, case, payload["seed"]
        self.known = Reference.read(folder / REFERENCE)
        self._given = cast(torch.load(folder / INPUTS, weights_only=True), case.dtype)
        self._checkpoint = Path(payload["checkpoint"])
        self._model = self.load()

    def load(self) -> torch.nn.Module:
        """The model on the target, as a user loads it."""
        options = self.target.load_options()
        return models.load(self.case.entry, self._checkpoint, self.case.dtype, self.target.device_type, **options)

    def run(self, model: torch.nn.Module | None = None) -> dict[str, torch.Tensor]:
        """Output leaves of one run, by default of the model that was loaded first; raises what the backend raises.

        Where the mode compiles, it is compiled anew.
        """
        runner: Any = model or self._model
        if self.case.mode is Mode.COMPILED:
            torch._dynamo.reset()
            runner = phases.compiled(self.case.phase, runner, self.target.compile)
        given = phases.moved(self._given, self.target.device_type)
        returned = phases.run(self.case.phase, runner, given, self.seed, teacher=Teacher(self.known.tokens))
        return {path: leaf.detach().clone() for path, leaf in outputs.leaves(returned).items()}


def _row(
    report: Report,
    target: Target,
    case: Case,
    fault: catalogue.Fault,
    subject: _Subject,
    before: dict[str, torch.Tensor],
    payload: dict[str, Any],
    *,
    anew: bool,
) -> dict[str, Any]:
    calls = fault.calls
    with target.entered(case.mode):
        try:
            with fault.inside():
                after = subject.run(subject.load() if anew else None)
            change, where = _change(before, after, subject.known, target.device_type)
        except Exception as error:  # noqa: BLE001 - what a fault makes the backend raise is what it changes
            change, where = math.inf, f"{type(error).__name__}"
    row = {"fault": fault.id, "calls": fault.calls - calls, "change": change, "where": where}
    if not change and not fault.behind_the_values:
        return row | {"verdict": None, "message": "", "leaf": "", "restored": True}
    report.enter(Stage.RUN)
    if case.mode is Mode.COMPILED:
        torch._dynamo.reset()
        dynamo.counters.clear()  # as in a process of its own: they tell whether anything was captured
    verdict, message, leaf = _verdict(payload | {"fault": fault.id}, target)
    fault.take_out()
    report.enter(Stage.RUN)
    with target.entered(case.mode):
        again = subject.run()
    restored = before.keys() == again.keys() and all(_same(before[path], again[path]) for path in before)
    return row | {"verdict": verdict, "message": message[:300], "leaf": leaf, "restored": restored}


class _Heard:
    """Stands in for the channel of a job that runs in this process."""

    def __init__(self) -> None:
        self.stage = Stage.IMPORT
        self.result: dict[str, Any] = {}

    def send(self, message: dict[str, Any]) -> None:
        self.stage = Stage(message.get("stage", self.stage))
        self.result = message.get("result", self.result)


def _verdict(payload: dict[str, Any], target: Target) -> tuple[Verdict, str, str]:
    """Verdict, message and worst leaf of the job that `zoo run --fault` would have run."""
    heard = _Heard()
    target_job.run(payload, heard)  # type: ignore[arg-type]
    if error := heard.result.get("error"):
        print(error["detail"], file=sys.stderr)
        return death.of_error(error, heard.stage, target), death.one_line(error), ""
    worst = heard.result["worst"] or {}
    return Verdict(heard.result["verdict"]), heard.result["message"], worst.get("path", "")


def _change(
    before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], known: Reference, device: str
) -> tuple[float, str]:
    """By how many times the CPU's noise an output changes at most, and which. Infinite where it is no matter of size.

    The noise of a leaf is the CPU's distance from the truth, in the same two measures by which it is judged, and at
    least the rounding of the leaf itself. Elements of padding do not count.
    """
    if before.keys() != after.keys():
        return math.inf, min(before.keys() ^ after.keys())
    most, where = 0.0, ""
    for path, old in before.items():
        change = _of_leaf(path, old, after[path], known, device)
        if change > most:
            most, where = change, path
    return most, where


def _of_leaf(path: str, old: torch.Tensor, new: torch.Tensor, known: Reference, device: str) -> float:
    if (new.device.type, new.shape, new.dtype) != (old.device.type, old.shape, old.dtype):
        return math.inf
    old, new, cpu, truth = old.cpu(), new.cpu(), known.cpu.get(path), known.truth.get(path)
    shown = torch.ones(old.shape, dtype=torch.bool)
    if path in known.hidden:
        shown = ~known.hidden[path]
    differs = (old != new) & ~(old.isnan() & new.isnan()) & shown if old.is_floating_point() else (old != new) & shown
    if not differs.any():
        return 0.0
    if not old.is_floating_point() or cpu is None or cpu.shape != old.shape:
        return math.inf
    finite = torch.isfinite(old) & torch.isfinite(new) & torch.isfinite(cpu) & torch.isfinite(truth) & shown
    if (torch.isfinite(old) != torch.isfinite(new))[shown].any() or not finite.any():
        return math.inf
    truth = truth.double()[finite]
    off, noise = (new.double() - old.double())[finite], cpu.double()[finite] - truth
    least = ROUNDING * eps(old.dtype)
    spread = rms(off) / (max(rms(noise), least * rms(truth)) or math.inf)
    top = off.abs().max().item() / (max(noise.abs().max().item(), least * truth.abs().max().item()) or math.inf)
    return max(spread, top)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Are two leaves the same to the last bit?"""
    a, b = (x.cpu().clone(memory_format=torch.contiguous_format) for x in (a, b))
    alike = (a.shape, a.dtype) == (b.shape, b.dtype)
    return alike and torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))
