"""One short Python file that shows a failure: it needs the libraries and the backend, and nothing of the harness."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cases import Mode, Phase
from harness.numerics.multipliers import GRADIENT_NOISE_MULTIPLIER, NOISE_MULTIPLIER
from harness.triage.calls import Call, written

if TYPE_CHECKING:
    import jinja2

    from harness.targets.base import Standalone, Target

LINES = 60
"""A repro has fewer lines than that."""
PATIENCE = 60
"""Seconds after which what does not return is dead, in a file that shows a death."""
COLUMNS = 118

_DEFINED = re.compile(r"^(?:def )?(\w+)(?: =|\()", re.MULTILINE)

WRONG, RAISES, DIES = "wrong", "raises", "dies"
"""What a repro says first of what it sees, and how it looks for it."""


@dataclass(frozen=True, slots=True)
class Repro:
    """A file: two lines that say what it shows, how it uses the backend, and what it does."""

    title: str
    fact: str
    standalone: Standalone
    body: str

    @property
    def text(self) -> str:
        """The whole file, without empty lines where it would be too long with them."""
        text = _template("repro.py.j2").render(
            title=_quotable(self.title)[:COLUMNS],
            fact=_quotable(self.fact),
            attach=self.standalone.attach,
            enter=self.standalone.enter,
            body=self.body,
        )
        lines = text.splitlines()
        if len(lines) >= LINES:
            lines = [line for line in lines if line.strip()]
        return "".join(f"{line}\n" for line in lines)


def of_call(call: Call, kind: str, target: Target, mode: Mode, *, literal: str = "", seed: int = 0) -> str:
    """The body of a file that makes one call on the device, and compares it with the CPU's unless it ends it.

    `literal` says which tensors are written down instead of drawn, see `Call.inputs`.
    """
    names = [f"x{number}" for number in range(len(call.tensors))]
    arguments = dict(enumerate(call.args)) | call.kwargs
    results = ", ".join(["result", *(_names(arguments[name]) for name in call.written if name in arguments)])
    compiled = mode is Mode.COMPILED
    on_device, instead = call.function, _DEFINED.search(call.on_cpu)
    return _template("operator.py.j2").render(
        call=call,
        seed=seed,
        kind=kind,
        names=", ".join(names),
        function=f'({instead[1]} if device == "cpu" else {on_device})' if instead else on_device,
        arguments=call.source(),
        inputs=_packed(call.inputs(literal), "[]"),
        results=f"({results})" if results != "result" else "result",
        picks=_picks(call),
        compiled=compiled,
        times=NOISE_MULTIPLIER,
        device=target.device_type,
        patience=PATIENCE,
    )


@dataclass(frozen=True, slots=True)
class Subject:
    """A model as a repro has it: its class of transformers, what of its config is not the default, and its inputs.

    `inputs` are a call's keyword arguments. `spread` is the standard deviation of all its weights, 0 for those that the
    class itself draws.
    """

    model_class: str
    config: Mapping[str, Any]
    inputs: Call
    spread: float = 0.0


def of_model(
    subject: Subject,
    kind: str,
    target: Target,
    mode: Mode,
    phase: Phase,
    dtype: str,
    *,
    literal: str = "",
    seed: int = 0,
) -> str:
    """The body of a file that runs a model on the device, and compares it with the CPU unless that ends it."""
    tensor = subject.inputs.inputs(literal).__getitem__
    return _template("model.py.j2").render(
        model_class=subject.model_class,
        config=_packed(f"{name!r}: {_literal(value)}" for name, value in subject.config.items()),
        inputs=_packed(f"{name!r}: {written(value, tensor)}" for name, value in subject.inputs.kwargs.items()),
        options="".join(f", {name}={value!r}" for name, value in target.load_options().items()),
        spread=subject.spread,
        seed=seed,
        kind=kind,
        dtype=dtype,
        phase=str(phase),
        compiled=mode is Mode.COMPILED,
        times=GRADIENT_NOISE_MULTIPLIER if phase is Phase.TRAIN else NOISE_MULTIPLIER,
        device=target.device_type,
        patience=PATIENCE,
    )


def _packed(items: Iterable[str], brackets: str = "{}") -> str:
    """A dict or list of such items as source text, in few lines: as wide as two or three of them take, or `COLUMNS`."""
    items = list(items)
    width = max(COLUMNS, sum(map(len, items)) // 2)
    lines = [brackets[0]]
    for item in items:
        if len(lines[-1]) + len(item) > width and lines[-1] != brackets[0]:
            lines.append("    ")
        lines[-1] += f"{item}, "
    return "\n".join(line.rstrip() for line in lines).removesuffix(",") + brackets[1]


def _literal(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{name!r}: {_literal(part)}" for name, part in value.items()) + "}"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
    return written(value, str)


def _names(value: Any) -> str:
    return written(value, "x{}".format)


def _picks(call: Call) -> str:
    """Of an operator that returns only where something is: what is there, since of equal values it may take any."""
    name = call.function.removeprefix("torch.ops.aten.").partition(".")[0]
    if name not in ("argmax", "argmin", "argsort"):
        return ""
    named = dict(zip(("self", "dim", "keepdim"), call.args, strict=False)) | call.kwargs
    dim = named.get("dim", -1 if name == "argsort" else None)
    if name == "argsort" or named.get("keepdim"):
        return f"x0.cpu().take_along_dim(result.cpu(), {dim})"
    if dim is None:
        return "x0.cpu().flatten()[result.cpu()]"
    return f"x0.cpu().take_along_dim(result.cpu().unsqueeze({dim}), {dim})"


def _quotable(text: str) -> str:
    """Text from anywhere as one line that ends no docstring."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return plain.replace("\\", "/").replace('"', "'")


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)
