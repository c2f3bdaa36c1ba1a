"""The process that seeks the first wrong operator of a case on the target."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.cases import Mode, Stage
from harness.execution import phases, randomness
from harness.execution.first_bad import Checking, Findings, checked, running_module
from harness.jobs import preload
from harness.jobs.channel import Channel
from harness.jobs.report import Report
from harness.jobs.subject import Subject
from harness.jobs.trail import kept


def run(payload: dict[str, Any], channel: Channel) -> None:
    """Run a case with every operator repeated by the CPU; payload as of `target_job.run`, `watch` for the trail.

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
        bad = [dataclasses.asdict(one) for one in findings.bad]
        report.deliver(bad=bad, checked=findings.checked, unchecked=dict(findings.unchecked))
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def _around(backend: Callable[..., Any], findings: Findings) -> Callable[..., Any]:
    return checked(randomness.drawn_outside(backend), findings)
