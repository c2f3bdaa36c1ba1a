"""The processes that tell what a failing call or model is given, and whether a smaller one fails in the same way."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from harness import models
from harness.cases import Mode, Stage
from harness.execution import phases, randomness
from harness.execution.first_bad import Checking, Findings, checked
from harness.execution.on_cpu import ON_CPU, TIED
from harness.inputs import cast
from harness.jobs import preload, zygote
from harness.jobs.cache import INPUTS
from harness.jobs.channel import Channel
from harness.jobs.payload import ASKED, DESCRIBED, case_of
from harness.jobs.report import Report
from harness.jobs.subject import Subject

LITERAL = 512
"""Elements of a tensor up to which they are described one by one."""


def call(payload: dict[str, Any], channel: Channel) -> None:
    """Run a case until a call of an `operator` fails, and describe what that was given; payload as of `target_job.run`.

    Where `wrong` is asked for too, that is the first call whose result is wrong, else the last that was begun.
    """
    report = Report(channel)
    try:
        report.enter(Stage.IMPORT)
        subject, asked = Subject(preload.loaded(), payload), _asked(payload)
        target, case = subject.target, subject.case
        keep = functools.partial(_keep, Path(payload["watch"]))
        findings = _Kept(asked["operator"], keep)
        with target.entered(case.mode):
            report.enter(Stage.TO_DEVICE)
            runner, on_device = subject.load(), subject.inputs()
            report.enter(Stage.RUN)
            watching: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
            if case.mode is Mode.COMPILED:
                around = functools.partial(_around, findings=findings)
                runner = phases.compiled(case.phase, runner, functools.partial(target.compile, around=around))
            elif asked["wrong"]:
                watching = Checking(findings, lambda: "", lambda *_: None, target.on_cpu())
            else:
                watching = _Beginning(asked["operator"], keep)
            with watching:
                subject.run(runner, on_device)
        report.deliver(ran=True)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def model(payload: dict[str, Any], channel: Channel) -> None:
    """Describe what a case's model is made of and given, without the device; payload as of `target_job.run`."""
    report = Report(channel)
    try:
        report.enter(Stage.INPUTS)
        case = case_of(payload["case"])
        given = cast(torch.load(Path(payload["folder"]) / INPUTS, weights_only=True), case.dtype)
        config = models.model_class(case.entry).config_class.from_pretrained(payload["checkpoint"]).to_diff_dict()
        _keep(Path(payload["watch"]), "", (), given, config={k: v for k, v in config.items() if k not in _NO_MATTER})
        report.deliver(described=True)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


_NO_MATTER = ("transformers_version", "architectures", "dtype", "torch_dtype", "model_type", "_name_or_path")
"""Fields of a config that say where it comes from, or what its class says too."""


def attempt(payload: dict[str, Any], channel: Channel) -> None:
    """Execute a `source`, a repro but for how it finds the device, in a `mode`. Delivers what it `said` in the end."""
    report = Report(channel)
    try:
        report.enter(Stage.RUN)
        if payload["fault"]:
            zygote.call(payload["fault"])()
        asked = _asked(payload)
        with preload.loaded().entered(Mode(asked["mode"])):
            exec(compile(asked["source"], "<repro>", "exec"), {"__name__": "__main__", "torch": torch})
        report.deliver(said="")
    except SystemExit as end:
        report.deliver(said=str(end.code or ""))
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def _asked(payload: dict[str, Any]) -> dict[str, Any]:
    return json.loads((Path(payload["watch"]) / ASKED).read_text())


class _Kept(Findings):
    """Keeps what the first wrong call of an operator was given."""

    def __init__(self, operator: str, keep: Callable[[str, Any, Any], None]) -> None:
        super().__init__()
        self._operator, self._keep = operator, keep

    @property
    def enough(self) -> bool:
        return any(one.operator == self._operator for one in self.bad)

    def check(self, operator: str, where: str, repeat: Any, given: Any, own: Any, place: str = "") -> None:
        if operator != self._operator:
            return
        before = len(self.bad)
        super().check(operator, where, repeat, given, own, place)
        if len(self.bad) > before:
            self._keep(operator, *given)


class _Beginning(TorchDispatchMode):
    """Keeps what an operator is given, before each of its calls."""

    def __init__(self, operator: str, keep: Callable[[str, Any, Any], None]) -> None:
        super().__init__()
        self._operator, self._keep = operator, keep

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(function) == self._operator:
            copied = tree_map(lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x, (args, kwargs or {}))
            self._keep(str(function), *copied)
        return function(*args, **(kwargs or {}))


def _keep(folder: Path, operator: str, args: Any, kwargs: Any, **more: Any) -> None:
    (folder / DESCRIBED).write_text(json.dumps(_described(operator, args, kwargs) | more))


def _around(backend: Callable[..., Any], findings: Findings) -> Callable[..., Any]:
    return checked(randomness.drawn_outside(backend), findings)


def _described(operator: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """What `harness.triage.calls.Call.of` takes."""
    tensors: list[dict[str, Any]] = []

    def value(x: Any) -> Any:
        match x:
            case torch.Tensor():
                tensors.append(_given(x))
                return {"tensor": len(tensors) - 1}
            case torch.Size() | tuple():
                return {"tuple": [value(part) for part in x]}
            case list():
                return {"list": [value(part) for part in x]}
            case dict():
                return {"dict": {str(name): value(part) for name, part in x.items()}}
            case torch.dtype():
                return {"dtype": str(x).removeprefix("torch.")}
            case torch.device():
                return {"device": 0}
            case bool() | int() | float() | str() | None:
                return x
        return {"code": str(x)}

    function, on_cpu = _overload(operator), ON_CPU | preload.loaded().on_cpu()
    described = {
        "function": f"torch.ops.{operator}" if function else operator,
        "args": [value(x) for x in args],
        "kwargs": {name: value(x) for name, x in kwargs.items()},
        "written": _written(function, len(args)),
        "tied": function in TIED,
        "on_cpu": _source_of(on_cpu[function]) if function in on_cpu else "",
    }
    return described | {"tensors": tensors}


def _overload(operator: str) -> Any:
    """The operator of a name such as `aten.gelu.default`, None of a function of PyTorch that a graph calls."""
    parts = operator.split(".")
    if len(parts) != 3:
        return None
    return getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])


def _written(function: Any, by_position: int) -> list[int | str]:
    if function is None:
        return []
    into = [a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments]
    names = [argument.name for argument in function._schema.arguments]
    return [n if n < by_position else names[n] for n, writes in enumerate(into) if writes]


def _source_of(function: Callable[..., Any]) -> str:
    """What defines a function by which the CPU repeats an operator: without types and documentation."""
    if isinstance(function, torch._ops.OpOverload):
        return f"instead = torch.ops.{function}"
    tree = ast.parse(inspect.getsource(function))
    (defined,) = tree.body
    defined.body, defined.returns = defined.body[1:], None
    arguments = defined.args
    for one in (*arguments.args, *arguments.kwonlyargs, arguments.vararg):
        if one is not None:
            one.annotation = None
    text = ast.unparse(tree).replace("_aten.", "torch.ops.aten.")
    return "import math\n\n" * ("math." in text) + text


def _given(x: torch.Tensor) -> dict[str, Any]:
    """What `harness.triage.calls.Given` takes."""
    x = x.detach()
    order = sorted(range(x.dim()), key=lambda n: (-x.stride(n), n))
    flat = x.flatten()
    few = flat.unique() if flat.numel() and not flat.is_complex() else flat[:0]
    finite = flat[flat.isfinite()] if not flat.is_complex() else flat.abs()
    known = flat.tolist() if flat.numel() <= LITERAL and not flat.is_complex() else None
    return {
        "shape": list(x.shape),
        "dtype": str(x.dtype).removeprefix("torch."),
        "low": finite.min().item() + 0 if finite.numel() else 0,
        "high": finite.max().item() + 0 if finite.numel() else 0,
        "order": None if order == list(range(x.dim())) or x.is_contiguous() else order,
        "few": few.tolist() if few.numel() <= 2 else [],
        "share": (flat == few[-1]).double().mean().item() if few.numel() else 0.0,
        "zeros": (flat == 0).double().mean().item() if flat.numel() else 0.0,
        "values": known,
    }
