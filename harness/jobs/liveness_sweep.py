"""Measures of many models which of their parameter tensors matter, each model in a process of its own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cases import Entry, Stage, Verdict
from harness.jobs.channel import Channel
from harness.jobs.supervisor import Limits
from harness.jobs.sweep import limit_memory, outcomes, verdict_of

if TYPE_CHECKING:
    from harness.execution.liveness import Tensor

LIMITS = Limits(import_=60, build=60, inputs=30, reference=90, run=300)
_FILE = "tensors.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """One entry's tensors; none, and why, where its verdict is not PASS. `cpu_seconds` is all that its process used."""

    entry: Entry
    verdict: Verdict
    stage: Stage
    message: str
    cpu_seconds: float | None
    tensors: tuple[Tensor, ...] = ()


def sweep(entries: Iterable[Entry], *, seed: int = 0, workers: int = 1) -> Iterator[Measured]:
    """Each entry's tensors on inputs of the `padded` profile, as each ends. Raises ServerFailed."""
    job = "harness.jobs.liveness_sweep:run"
    for entry, outcome, found in outcomes(job, entries, LIMITS, seed=seed, workers=workers, read=_tensors):
        if (failed := verdict_of(outcome)) is not None:
            verdict, message, _ = failed
        else:
            verdict, message = outcome.result["sick"] or (Verdict.PASS, "")
        tensors = found if verdict == Verdict.PASS else ()
        yield Measured(entry, Verdict(verdict), outcome.stage, message, outcome.cpu_seconds, tensors)


def run(payload: dict[str, Any], channel: Channel) -> None:
    """Build, feed and run a case on CPU, perturb its tensors, and write them to `payload["folder"]`."""
    from harness import inputs, models
    from harness.execution import liveness, reference
    from harness.jobs.payload import case_of
    from harness.jobs.report import Report

    limit_memory()
    report = Report(channel)
    case, seed, folder = case_of(payload["case"]), payload["seed"], Path(payload["folder"])
    try:
        report.enter(Stage.IMPORT)
        models.model_class(case.entry)
        report.enter(Stage.BUILD)
        built = models.build(case.entry, Path(payload["checkpoint"]), seed)
        model = models.load(case.entry, built.folder, case.dtype, "cpu")
        report.enter(Stage.INPUTS)
        made = inputs.make(case.entry, model.config, built.folder, case.profile, seed)
        report.enter(Stage.REFERENCE)
        truth = models.load_truth(case.entry, built.folder, case.dtype)
        known, sick = reference.compute(model, truth, made, phase=case.phase, dtype=case.dtype, seed=seed)
        if sick is None:
            report.enter(Stage.RUN)
            tensors = liveness.measure(model, truth, made, known, dtype=case.dtype, seed=seed)
            folder.mkdir()
            (folder / _FILE).write_text(json.dumps([dataclasses.astuple(tensor) for tensor in tensors]))
        report.deliver(sick=[*sick] if sick else None)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def _tensors(folder: Path) -> tuple[Tensor, ...]:
    from harness.execution.liveness import Reason, Tensor

    rows = json.loads((folder / _FILE).read_text())
    return tuple(
        Tensor(name, tuple(shape), Reason(reason) if reason else None, used) for name, shape, reason, used in rows
    )
