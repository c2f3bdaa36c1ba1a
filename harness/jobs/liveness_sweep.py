"""Measures of many models which of their parameter tensors matter, each model in a process of its own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cases import Entry, Phase, Profile, Stage, Verdict
from harness.jobs.channel import Channel
from harness.jobs.payload import case_of
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


@dataclasses.dataclass(frozen=True, slots=True)
class Sought:
    """Which of the tensors that were sought in a phase of an entry are live there; where its verdict is not PASS,
    none is known to be, and `message` says why. A phase that the entry's class does not have shows none either."""

    entry: Entry
    verdict: Verdict
    message: str
    live: tuple[str, ...]


def sweep(entries: Iterable[Entry], *, seed: int = 0, workers: int = 1) -> Iterator[Measured]:
    """Each entry's tensors on inputs of the `padded` profile, as each ends. Raises ServerFailed."""
    job = "harness.jobs.liveness_sweep:run"
    with closing(outcomes(job, entries, LIMITS, seed=seed, workers=workers, read=_tensors)) as ended:
        for entry, outcome, found in ended:
            if (failed := verdict_of(outcome)) is not None:
                verdict, message, _ = failed
            else:
                verdict, message = outcome.result["sick"] or (Verdict.PASS, "")
            tensors = found if verdict == Verdict.PASS else ()
            yield Measured(entry, Verdict(verdict), outcome.stage, message, outcome.cpu_seconds, tensors)


def seek(
    names: Mapping[Entry, Sequence[str]],
    phase: Phase,
    profile: Profile = Profile.PADDED,
    *,
    seed: int = 0,
    workers: int = 1,
) -> Iterator[Sought]:
    """Which of a base model's tensors, by name, are live in a phase of each entry, on inputs of a profile, as it ends.

    Raises ServerFailed.
    """
    job = "harness.jobs.liveness_sweep:run_seeking"

    def among(entry: Entry) -> dict[str, Any]:
        return {"among": [*names[entry]]}

    swept = outcomes(job, names, LIMITS, phase=phase, profile=profile, seed=seed, workers=workers, more=among)
    with closing(swept) as ended:
        for entry, outcome, _ in ended:
            if (failed := verdict_of(outcome)) is not None:
                yield Sought(entry, *failed[:2], ())
            else:
                verdict, message = outcome.result["sick"] or (Verdict.PASS, "")
                yield Sought(entry, Verdict(verdict), message, tuple(outcome.result["live"]))


def run(payload: dict[str, Any], channel: Channel) -> None:
    """Build, feed and run a case on CPU, perturb its tensors, and write them to `payload["folder"]`."""
    from harness.execution import liveness
    from harness.jobs import reference_job
    from harness.jobs.report import Report

    limit_memory()
    report, folder = Report(channel), Path(payload["folder"])
    try:
        known = reference_job.compute(report, payload)
        if known.sick is None:
            report.enter(Stage.RUN)
            tensors = liveness.measure(
                known.model,
                known.truth,
                known.inputs,
                known.reference,
                dtype=known.case.dtype,
                seed=payload["seed"],
            )
            folder.mkdir()
            (folder / _FILE).write_text(json.dumps([dataclasses.astuple(tensor) for tensor in tensors]))
        report.deliver(sick=[*known.sick] if known.sick else None)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def run_seeking(payload: dict[str, Any], channel: Channel) -> None:
    """Perturb the tensors `payload["among"]` in a case whose class has its phase, and deliver those that are live."""
    from harness import models
    from harness.execution import liveness
    from harness.jobs import reference_job
    from harness.jobs.report import Report
    from harness.models.abilities import phases_of

    limit_memory()
    report, case = Report(channel), case_of(payload["case"])
    try:
        if case.phase not in phases_of(models.model_class(case.entry)):
            report.deliver(sick=None, live=[])
            return
        known = reference_job.compute(report, payload)
        live: list[str] = []
        if known.sick is None:
            report.enter(Stage.RUN)
            live = liveness.live(
                known.model,
                known.inputs,
                known.reference,
                payload["among"],
                phase=case.phase,
                dtype=case.dtype,
                seed=payload["seed"],
            )
        report.deliver(sick=[*known.sick] if known.sick else None, live=live)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def _tensors(folder: Path) -> tuple[Tensor, ...]:
    from harness.execution.liveness import Reason, Tensor

    rows = json.loads((folder / _FILE).read_text())
    return tuple(
        Tensor(name, tuple(shape), Reason(reason) if reason else None, *rest) for name, shape, reason, *rest in rows
    )
