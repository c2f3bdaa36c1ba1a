"""The processes on the target's side: one per model that imports its code, and under it one per case."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness import models
from harness.cases import Mode, Stage, Verdict
from harness.execution import choices, outputs, phases, randomness
from harness.execution.attribution import Attribution
from harness.execution.choices import Watching
from harness.execution.placement import assert_model_on, assert_on
from harness.jobs import preload, zygote
from harness.jobs.cache import RETURNED
from harness.jobs.channel import Channel
from harness.jobs.payload import case_of
from harness.jobs.report import Report, clipped, said
from harness.jobs.subject import Subject
from harness.numerics.judge import agree, judge
from harness.records import Blame, Counters
from harness.targets.base import Target

_PLAINLY = contextlib.nullcontext()


def serve_model(payload: dict[str, Any], channel: Channel) -> None:
    """Import a model's code, then fork one process for each of its cases. No device client exists here."""
    try:
        models.model_class(case_of(payload["case"]).entry)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: the owner turns it into a verdict
        traceback.print_exc()
        channel.send({"failed": {"type": type(error).__name__, "message": clipped(said(error))}})
        return
    zygote.serve(channel, hello={"told": {}})


def run(payload: dict[str, Any], channel: Channel) -> None:
    """Load a case's model onto the target as a user does, run it, and judge what it returns.

    With `payload["watch"]`, a folder, what it returned and chose is left there.
    """
    report = Report(channel)
    try:
        report.enter(Stage.IMPORT)
        _run(report, Subject(preload.loaded(), payload), payload["watch"])
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def _run(report: Report, subject: Subject, watch: str) -> None:
    target, case, known = subject.target, subject.case, subject.known
    device = target.device_type
    with target.entered(case.mode):
        report.enter(Stage.TO_DEVICE)
        model = subject.load()
        assert_model_on(device, model)
        before = target.counters()

        def once(runner: Any, mode: contextlib.AbstractContextManager[Any] = _PLAINLY) -> _Call:
            on_device = subject.inputs()
            target.synchronize()
            early, started = target.counters(), time.monotonic()
            with mode:
                returned = subject.run(runner, on_device)
                target.synchronize()
            seconds, did = time.monotonic() - started, _difference(target.counters(), early)
            assert_on(device, outputs.tensors(returned), "outputs")
            return _Call({path: leaf.detach().cpu() for path, leaf in outputs.leaves(returned).items()}, seconds, did)

        runner, watched = model, Watching()
        if case.mode is Mode.COMPILED:
            report.enter(Stage.COMPILE)
            around = functools.partial(_around, picks=watched.picks if watch else None)
            runner = phases.compiled(case.phase, model, functools.partial(target.compile, around=around))
            once(runner)
            watched.picks.clear()
        report.enter(Stage.RUN)
        watching = watch and case.mode is not Mode.COMPILED
        first = once(runner, watched if watching else _PLAINLY)
        returned, picks = first.leaves, [picked.cpu() for picked in watched.picks]
        executed = dataclasses.replace(_difference(target.counters(), before), host_reads=first.did.host_reads)
        again = once(runner)
        executed = dataclasses.replace(executed, programs_recompiled=again.did.programs_compiled)
        conduct = _conduct(target, case.mode, again.did, lambda mode: once(runner, mode))

    report.enter(Stage.COMPARE)
    if watch:
        torch.save({"returned": returned, "picks": picks}, Path(watch) / RETURNED)
    known_leaves = (known.truth, known.cpu)
    judged, second = (judge(*known_leaves, leaves, known.hidden) for leaves in (returned, again.leaves))
    repeats = agree(*known_leaves, returned, again.leaves, known.hidden)
    verdict, message = judged.verdict, judged.message
    if verdict is Verdict.PASS:
        verdict, message = conduct
    if not repeats and {judged.verdict, second.verdict} != {Verdict.PASS}:
        verdict = Verdict.NONDETERMINISTIC
        message = "; ".join(f"{turn} run: {x.message or 'passes'}" for turn, x in (("one", judged), ("next", second)))
    if executed.programs_executed == 0:
        verdict, message = Verdict.NOT_EXECUTED, f"{target.name} executed no program after the model was loaded"
    if case.mode is Mode.COMPILED and executed.graph_breaks is None:
        verdict, message = Verdict.NOT_EXECUTED, "torch.compile captured nothing: what ran was the uncompiled model"
    report.deliver(
        verdict=verdict,
        message=message,
        leaves=judged.leaves,
        worst=dataclasses.asdict(judged.worst) if judged.worst else None,
        blame=dataclasses.asdict(Blame(repeats=repeats, first=judged.first or second.first)),
        counters=dataclasses.asdict(executed),
        latency=again.seconds,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """What one call of a model returned, on CPU, how long it took, and what the target did meanwhile."""

    leaves: dict[str, torch.Tensor]
    seconds: float
    did: Counters


def _conduct(
    target: Target, mode: Mode, did: Counters, repeat: Callable[[contextlib.AbstractContextManager[Any]], _Call]
) -> tuple[Verdict, str]:
    """Verdict and message on how a result that may be right was come by, from what a repeated call `did`.

    A call that compiled is made once more, since the first repetition of some still compiles (what they wrote in place
    lies elsewhere then). One that copied to the host, or compiled again, is made with its operators watched, to tell
    which it was and whether the model asks for that.
    """
    compiled = did.programs_compiled and repeat(_PLAINLY).did.programs_compiled
    plain, eager = mode is target.modes[0], mode is not Mode.COMPILED
    attribution = Attribution(target.counters, target.synchronize if plain and compiled else None)
    if eager and (compiled or did.host_reads):
        repeat(attribution)
    if reads := attribution.reads:
        return Verdict.HOST_FALLBACK, f"copied to the host without need: {_counts(reads)}"
    if compiled:
        by = f": {_counts(attribution.compiled)}" if attribution.compiled else ""
        return Verdict.RECOMPILES, f"{compiled} programs compiled in the third identical call{by}"
    return Verdict.PASS, ""


def _counts(operators: Counter[str]) -> str:
    """The operators of most calls, and how many: `aten.linear.default (12)`."""
    shown = ", ".join(f"{name} ({times})" for name, times in operators.most_common(3))
    return shown + (f" and {len(operators) - 3} more" if len(operators) > 3 else "")


def _around(backend: Callable[..., Any], picks: list[torch.Tensor] | None) -> Callable[..., Any]:
    """What a `torch.compile` backend is made into: one whose programs draw like the CPU, and show their `picks`."""
    drawn = randomness.drawn_outside(backend)
    return drawn if picks is None else choices.exposed(drawn, picks)


def _difference(after: Counters, before: Counters) -> Counters:
    """What happened between two readings; unknown stays unknown, and a peak is no sum."""

    def minus(name: str) -> int | None:
        late, early = getattr(after, name), getattr(before, name)
        if late is None or early is None or name.startswith("peak"):
            return late
        return late - early

    return Counters(**{field.name: minus(field.name) for field in dataclasses.fields(Counters)})


def prove(payload: dict[str, Any], channel: Channel) -> None:
    """Prove that the target executes one operation."""
    report = Report(channel)
    report.enter(Stage.RUN)
    try:
        preload.loaded().prove()
        report.deliver(proved=True)
    except Exception as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)
