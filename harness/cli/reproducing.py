"""From a recorded failure to a file that shows it, as small as it gets in the time there is."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from harness.cases import Case, Group, Stage, Verdict
from harness.hub.at_hand import at_hand
from harness.hub.index import Unfetched
from harness.jobs import JobRunner, Limits, death
from harness.jobs.attempts import WRONG
from harness.jobs.payload import ASKED, DESCRIBED
from harness.jobs.processes import environment
from harness.records import Record
from harness.scratch import scratch
from harness.targets.base import Target
from harness.triage import minimise, repro, signatures
from harness.triage.calls import Call
from harness.triage.repro import DIES, RAISES, Repro, Subject

COLUMNS = tuple(dict.fromkeys((*signatures.COLUMNS, "twin_of", "seed")))
"""Columns that a row must have to be reproduced."""
SECONDS = 60.0
"""How long a failure is made smaller for."""
CHECK_SECONDS = 300.0
"""How long a file may take that is run to see whether it shows the failure: a minute, on a machine that is not busy."""
MARGIN = 2.0
"""By how many times an error must exceed what is allowed: noise is estimated from one draw, and at the edge a backend
that is right would be blamed."""
LIMITS = Limits(run=90)
"""A try is a call or a small model: longer than a file waits for what it does not get."""
_ERROR = re.compile(r"error (\S+), allowed (\S+)$")
_HARD = (Verdict.CRASH, Verdict.EXITED, Verdict.TIMEOUT)
_BEHIND = (
    Verdict.NONDETERMINISTIC,
    Verdict.HOST_FALLBACK,
    Verdict.RECOMPILES,
    Verdict.NOT_EXECUTED,
    Verdict.WRONG_DEVICE,
    Verdict.FLAKY,
)
"""Verdicts on how a result was come by, or that only some attempts come to: no file of its own shows these."""
_LITERAL = ("", "whole", "all")
_SPREADS = (0.0, 0.1)
_FUNCTIONS = ("torch.{}", "torch.nn.functional.{}", "torch.Tensor.{}")
"""What a compiled graph may mean by a name."""

T = TypeVar("T", Call, Subject)


class NoRepro(RuntimeError):
    """No file shows the failure; the message says why, in one line."""


class Reproducer:
    """Makes repros on one target; `seconds` is the time to make each smaller in. Use as a context manager."""

    def __init__(
        self, target: Target, cache: Path, *, fault: str = "", seed: int = 0, seconds: float = SECONDS
    ) -> None:
        self._target, self._cache, self._seconds = target, cache, seconds
        self._runner = JobRunner(target, cache, limits=LIMITS, seed=seed, fault=fault)

    def __enter__(self) -> Reproducer:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.__exit__(*error)

    @property
    def fault(self) -> str:
        """The `module:function` that the failures are due to, empty where nothing was put into the backend."""
        return self._runner.processes.fault

    @fault.setter
    def fault(self, name: str) -> None:
        self._runner.processes.fault = name

    def run(self, case: Case) -> Record:
        """Run a case, as a run does, and seek the operator that fails first. Raises what `JobRunner.run` raises."""
        return self._runner.run(case)

    def make(self, case: Case, row: Mapping[str, Any]) -> Repro:
        """The repro of a failed case from its row; it has been run in a process of its own, and showed the failure.

        Raises NoRepro, and TargetUnavailable, DeviceBusy and ServerFailed as a run does.
        """
        verdict = Verdict(row["verdict"])
        if verdict.group is not Group.BACKEND or verdict in _BEHIND:
            raise NoRepro(f"{verdict} is {verdict.meaning}: no file of its own shows that")
        try:
            with at_hand(case.entry, self._cache) as entry:
                return self._made(dataclasses.replace(case, entry=entry), row, verdict)
        except Unfetched as no:
            raise NoRepro(f"{no.verdict}: {no}") from no

    def _made(self, case: Case, row: Mapping[str, Any], verdict: Verdict) -> Repro:
        self._runner.processes.start()
        self._runner.describe()
        prepared = self._runner.references.of(case)
        if prepared.verdict is not None:
            raise NoRepro(f"its reference cannot be made again: {prepared.verdict}")
        if not row["blame_operator"] and row["stage"] in (Stage.RUN, Stage.COMPARE):  # of a known failure nobody asked
            record = self.run(case)
            if record.verdict != verdict:
                raise NoRepro(f"run again, it ends as {record.verdict}")
            row = {**row, "message": record.message, "blame_operator": record.blame.operator}
            row |= {"blame_pair": record.blame.pair}
        attempt = Attempt(self._runner, self._target, case, row, prepared.checkpoint, self._seconds)
        why = ""
        for found in attempt.candidates():
            if (lines := len(found.text.splitlines())) >= repro.LINES:
                why = f"what fails takes {lines} lines"
            elif attempt.is_it(said := run_alone(found, self.fault)):
                return found
            else:
                why = f"in a process of its own it ends otherwise: {said or 'without an error'}"
        last = attempt.last or "it is right"
        raise NoRepro(why or f"the model, made anew, does not fail in the same way: {last}")


def run_alone(made: Repro, fault: str = "") -> str:
    """What a repro says at its end in a fresh process, empty where it sees no bug. `fault` is put in before it."""
    text = made.text
    if fault:
        text = with_fault(text, made.standalone.attach, fault)
    with scratch() as folder:
        path = folder / "repro.py"
        path.write_text(text, encoding="utf-8")
        return run_file(path)


def with_fault(text: str, attach: str, fault: str) -> str:
    """A repro's text with a call of `fault`, a `module:function`, once the device is there."""
    module, function = fault.split(":")
    return text.replace(attach, f"{attach}import {module}\n{module}.{function}()\n", 1)


def run_file(path: Path) -> str:
    """What a repro says at its end: its last line that is not a backend's, empty where it exits with 0."""
    command = [sys.executable, str(path)]
    try:
        done = subprocess.run(
            command, env=environment(), cwd=path.parent, capture_output=True, text=True, errors="replace",
            timeout=CHECK_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end within {CHECK_SECONDS:g} s"
    if not done.returncode:
        return ""
    if done.returncode < 0:
        return f"dies: exit status {done.returncode}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    own = [at for at, line in enumerate(lines) if line.startswith((f"{repro.WRONG}:", f"{RAISES} ", f"{DIES}:"))]
    return _in_one_line("\n".join(lines[own[-1] :])) if own else (lines or [f"exit code {done.returncode}"])[-1]


def _in_one_line(said: str) -> str:
    """What a repro says of an exception, in as much of its lines as a row has; of all else the first line."""
    if not said.startswith(f"{RAISES} "):
        return said.partition("\n")[0]
    kind, _, message = said.removeprefix(f"{RAISES} ").partition(": ")
    return f"{RAISES} {death.one_line({'type': kind, 'message': message})}"


class Attempt:
    """The search for one repro."""

    def __init__(
        self,
        runner: JobRunner,
        target: Target,
        case: Case,
        row: Mapping[str, Any],
        checkpoint: str,
        seconds: float,
    ) -> None:
        self._runner, self._target, self._row, self._checkpoint = runner, target, row, checkpoint
        self._seconds = seconds
        self.last = ""
        first = target.modes[0]
        plain = row["blame_pair"] == f"{first} vs cpu"
        self.case = dataclasses.replace(case, mode=first) if plain else case
        verdict = Verdict(row["verdict"])
        self._kind = repro.WRONG if verdict in WRONG else DIES if verdict in _HARD else RAISES
        ended = "SIGALRM" if verdict is Verdict.TIMEOUT else row["signal"]
        self._status = str(-signal.Signals[ended]) if ended in signal.Signals.__members__ else ""

    def is_it(self, said: str) -> bool:
        """Whether what a candidate said at its end tells of the failure in the row."""
        if self._kind == repro.WRONG:
            error = _ERROR.search(said)
            plain = error is None or float(error[1]) > MARGIN * float(error[2])
            return said.startswith(f"{repro.WRONG}:") and plain
        if self._kind == DIES:
            status = said.removeprefix(f"{DIES}: exit status ")
            return status == self._status if self._status else status.isdecimal()
        if not said.startswith(f"{RAISES} "):
            return False
        return self._cause(said.removeprefix(f"{RAISES} ")) == self._cause(self._row["message"])

    def _cause(self, message: str) -> str:
        plain = message.partition("; first to fail:")[0].partition("; none of ")[0].partition("; seeking the ")[0]
        found = signatures.signature({**self._row, "message": plain, "blame_operator": "", "log": ""})
        return found.cause if found else ""

    def candidates(self) -> Iterator[Repro]:
        """What fails in the same way on this process's server: calls of the operator to blame, then the model."""
        if self._row["blame_operator"]:
            yield from self._of_operator(self._row["blame_operator"])
        yield from self._of_model()

    def _of_operator(self, operator: str) -> Iterator[Repro]:
        data = self._asked("call", operator=operator, wrong=self._kind == repro.WRONG)
        if data is None or data.pop("tied"):  # what it is given fits together, and nothing drawn does
            return
        known = Call.of(data)
        overload = known.function.startswith("torch.ops.")
        for name in [known.function] if overload else [one.format(known.function) for one in _FUNCTIONS]:
            call = dataclasses.replace(known, function=name)
            for literal in _literals(call):
                make = functools.partial(self._call, literal=literal)
                yield from self._smallest(call, make, minimise.smallest, operator)

    def _of_model(self) -> Iterator[Repro]:
        data = self._asked("model")
        if data is None:
            return
        data.pop("tied")
        config, name = data.pop("config"), self.case.entry.model_class
        subject = Subject(name, config, Call.of(data))
        for literal in _literals(subject.inputs):
            for spread in _SPREADS:
                make = functools.partial(self._model, literal=literal)
                tried = dataclasses.replace(subject, spread=spread)
                yield from self._smallest(tried, make, minimise.model, name)

    def _smallest(self, whole: T, make: Callable[[T], str], shrink: Callable[..., T], name: str) -> Iterator[Repro]:
        """Where `whole` fails, the smallest of it, and then, since that may be at the edge, `whole` itself."""
        if not self._fails(make(whole)):
            return
        small = shrink(whole, minimise.Deadline(lambda one: self._fails(make(one)), self._seconds))
        yield self._file(make(small), name)
        if small != whole:
            yield self._file(make(whole), name)

    def _call(self, call: Call, literal: str) -> str:
        return repro.of_call(call, self._kind, self._target, self.case.mode, literal=literal)

    def _model(self, subject: Subject, literal: str) -> str:
        case = self.case
        return repro.of_model(subject, self._kind, self._target, case.mode, case.phase, case.dtype, literal=literal)

    def _file(self, body: str, subject: str) -> Repro:
        row, case = self._row, self.case
        versions = ", ".join(f"{name} {value}" for name, value in sorted(self._versions().items()))
        title = f"{subject} on {self._target.device_type} ({case.mode}): {row['verdict']}, {row['message'] or ''}"
        fact = f"Seen with {versions} in {row['case_id']}"
        return Repro(title, fact, self._target.standalone(case.mode), body)

    def _versions(self) -> dict[str, str]:
        facts = self._runner.facts or {}
        return {name: facts[name] for name in ("torch", "torch_tpu", "plugin") if facts.get(name)}

    def _fails(self, body: str) -> bool:
        inner = self._target.standalone(self.case.mode).enter + body
        with self._folder(source=inner, mode=self.case.mode) as folder:
            outcome = self._run("attempt", folder)
        result = outcome.result or {}
        error = result.get("error")
        said = _in_one_line(result.get("said", ""))
        self.last = death.one_line(error) if error else said if "said" in result else "the process died"
        return self.is_it(said)

    def _asked(self, job: str, **asked: Any) -> dict[str, Any] | None:
        with self._folder(**asked) as folder:
            self._run(job, folder)
            described = Path(folder) / DESCRIBED
            return json.loads(described.read_text()) if described.exists() else None

    def _folder(self, **asked: Any) -> tempfile.TemporaryDirectory[str]:
        folder = tempfile.TemporaryDirectory(dir=self._runner.processes.folder)
        (Path(folder.name) / ASKED).write_text(json.dumps(asked))
        return folder

    def _run(self, job: str, folder: str) -> Any:
        return self._runner.processes.on_target(
            self.case, self._checkpoint, job=f"harness.jobs.repro_job:{job}", watch=folder
        )


def _literals(call: Call) -> tuple[str, ...]:
    return _LITERAL if any(one.values is not None for one in call.tensors) else _LITERAL[:1]
