"""The process that seeks the first wrong operator of a case on the target."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.cases import Mode, Phase, Stage
from harness.execution import phases, randomness
from harness.execution.first_bad import BadOperator, Checking, Findings, checked, running_module
from harness.execution.first_bad_module import first_bad_module
from harness.jobs import preload
from harness.jobs.channel import Channel
from harness.jobs.report import Report
from harness.jobs.subject import Subject
from harness.jobs.trail import kept

MODULE_SECONDS = 60.0
"""For how long modules are looked into; what is known then is told."""


def run(payload: dict[str, Any], channel: Channel) -> None:
    """Run a case with every operator repeated by the CPU; payload as of `target_job.run`, `watch` for the trail.

    Where none is wrong by itself, modules are repeated as a whole.

    Delivers `bad` (the fields of each BadOperator, in order), `checked` (calls) and `unchecked` (calls by operator).
    """
    report = Report(channel)
    try:
        report.enter(Stage.IMPORT)
        subject, findings = Subject(preload.loaded(), payload), Findings()
        target, case = subject.target, subject.case
        with target.entered(case.mode):
            report.enter(Stage.TO_DEVICE)
            model, on_device = subject.load(), subject.inputs()
            with contextlib.ExitStack() as stack:
                runner = model
                if case.mode is Mode.COMPILED:
                    report.enter(Stage.COMPILE)
                    compiler = functools.partial(target.compile, around=functools.partial(_around, findings=findings))
                    runner = phases.compiled(case.phase, model, compiler)
                else:
                    report.enter(Stage.RUN)
                    where = stack.enter_context(running_module(model))
                    enter = stack.enter_context(kept(Path(payload["watch"])))
                    stack.enter_context(Checking(findings, where, enter, target.on_cpu()))
                subject.run(runner, on_device)
            bad = [dataclasses.asdict(one) for one in findings.bad or _modules(report, subject, model)]
        report.deliver(bad=bad, checked=findings.checked, unchecked=dict(findings.unchecked))
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def _modules(report: Report, subject: Subject, model: torch.nn.Module) -> list[BadOperator]:
    """The first module that is wrong as a whole, where a mode makes one program of it."""
    target, case = subject.target, subject.case
    if case.phase is not Phase.FORWARD or case.mode is target.modes[0]:
        return []
    report.enter(Stage.RUN)
    program: Callable[..., Any] = lambda forward: forward  # noqa: E731
    if case.mode is Mode.COMPILED:
        torch._dynamo.reset()
        program = functools.partial(target.compile, around=randomness.drawn_outside)
    run = lambda: subject.run(model, subject.inputs())  # noqa: E731
    found = first_bad_module(model, *subject.on_cpu(), run, program, MODULE_SECONDS)
    return [found] if found else []


def _around(backend: Callable[..., Any], findings: Findings) -> Callable[..., Any]:
    return checked(randomness.drawn_outside(backend), findings)
