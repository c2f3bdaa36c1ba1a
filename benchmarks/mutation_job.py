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
from typing import Any

import catalogue
import torch
import torch._dynamo.utils as dynamo

from harness.cases import Mode, Stage, Verdict
from harness.execution import outputs, phases
from harness.execution.reference import Reference
from harness.jobs import death, preload, target_job
from harness.jobs.channel import Channel
from harness.jobs.payload import case_of
from harness.jobs.report import Report
from harness.jobs.subject import Subject
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
                subject = Subject(target, payload)
                model = subject.load()
            report.enter(Stage.RUN)
            if "faults" not in payload:
                with catalogue.counting(operators) as counts:
                    _leaves(subject, model)
                report.deliver(operators=dict(counts))
                return
            before = _leaves(subject, model)
        for name in payload["faults"]:
            report.enter(Stage.RUN)
            fault = faults[name]
            anew = not fault.kernels or any(loading[operator] for operator in fault.kernels)
            row = _row(report, subject, fault, model, before, payload, anew=anew)
            with open(payload["rows"], "a") as rows:
                rows.write(json.dumps(row) + "\n")
        report.deliver(done=True)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def _leaves(subject: Subject, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Output leaves of one run, compiled anew where the mode compiles; raises what the backend raises."""
    runner: Any = model
    if subject.case.mode is Mode.COMPILED:
        torch._dynamo.reset()
        runner = phases.compiled(subject.case.phase, model, subject.target.compile)
    returned = subject.run(runner, subject.inputs())
    return {path: leaf.detach().clone() for path, leaf in outputs.leaves(returned).items()}


def _row(
    report: Report,
    subject: Subject,
    fault: catalogue.Fault,
    model: torch.nn.Module,
    before: dict[str, torch.Tensor],
    payload: dict[str, Any],
    *,
    anew: bool,
) -> dict[str, Any]:
    target, case, calls = subject.target, subject.case, fault.calls
    with target.entered(case.mode):
        try:
            with fault.inside():
                after = _leaves(subject, subject.load() if anew else model)
            change, where = _change(before, after, subject.known)
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
        again = _leaves(subject, model)
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


def _change(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], known: Reference) -> tuple[float, str]:
    """By how many times the CPU's noise an output changes at most, and which. Infinite where it is no matter of size.

    The noise of a leaf is the CPU's distance from the truth, in the same two measures by which it is judged, and at
    least the rounding of the leaf itself. Elements of padding do not count.
    """
    if before.keys() != after.keys():
        return math.inf, min(before.keys() ^ after.keys())
    most, where = 0.0, ""
    for path, old in before.items():
        change = _of_leaf(path, old, after[path], known)
        if change > most:
            most, where = change, path
    return most, where


def _of_leaf(path: str, old: torch.Tensor, new: torch.Tensor, known: Reference) -> float:
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
