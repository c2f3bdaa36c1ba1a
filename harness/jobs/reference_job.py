"""The process that builds a model, makes its inputs and computes its CPU reference. It never loads a backend."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness import inputs, models
from harness.cases import Case, Given, Stage, Verdict
from harness.execution import reference
from harness.execution.reference import Reference
from harness.execution.second_look import look
from harness.jobs.cache import INPUTS, META, REFERENCE, RETURNED, published, seals
from harness.jobs.channel import Channel
from harness.jobs.payload import case_of
from harness.jobs.report import Report
from harness.jobs.twins import structure
from harness.models import Built


@dataclass(frozen=True, slots=True)
class Computed:
    """A case's reference and all it was computed from; `sick` is why it is not fit to judge by, None where it is."""

    case: Case
    built: Built
    model: nn.Module
    truth: nn.Module
    given: Given
    inputs: dict[str, Any]
    reference: Reference
    sick: tuple[Verdict, str] | None


def compute(report: Report, payload: dict[str, Any]) -> Computed:
    """Build, feed and run the payload's case on CPU, announcing each stage. Raises what a model raises."""
    case, seed = case_of(payload["case"]), payload["seed"]
    report.enter(Stage.IMPORT)
    models.model_class(case.entry)
    report.enter(Stage.BUILD)
    built = models.build(case.entry, Path(payload["checkpoint"]), seed)
    model = models.load(case.entry, built.folder, case.dtype, "cpu")
    report.enter(Stage.INPUTS)
    where = case.entry, model.config, built.folder, case.profile, seed, case.phase
    given, made = inputs.made(*where, model_class=type(model))
    report.enter(Stage.REFERENCE)
    truth = models.load_truth(case.entry, built.folder, case.dtype)
    known, sick = reference.compute(model, truth, made, phase=case.phase, dtype=case.dtype, seed=seed)
    return Computed(case, built, model, truth, given, made, known, sick)


def run(payload: dict[str, Any], channel: Channel) -> None:
    """Compute a case's reference, and publish the folder `payload["folder"]`."""
    report = Report(channel)
    try:
        computed = compute(report, payload)
        built, digest = computed.built, inputs.digest(computed.inputs)
        meta = {
            "checkpoint": str(built.folder),
            "evidence": built.evidence,
            "parameters": built.parameters,
            "weights_sha256": built.weights_sha256,
            "inputs": computed.given,
            "inputs_sha256": digest,
            "structure_sha256": structure(_class_name(computed), built.folder, built.weights_sha256, digest),
            "truth": computed.reference.computed_in,
            "operators": computed.reference.operators,
            "sick": [*computed.sick] if computed.sick else None,
        }
        with published(Path(payload["folder"])) as folder:
            torch.save(computed.inputs, folder / INPUTS)
            computed.reference.save(folder / REFERENCE)
            sealed = seals([folder / INPUTS, folder / REFERENCE], built.folder)
            (folder / META).write_text(json.dumps(meta | {"seals": sealed}))
        report.deliver(meta=meta)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)


def _class_name(computed: Computed) -> str:
    """What tells the model's class from others: of code of its own, the library names the module by its hash."""
    entry = computed.case.entry
    return f"{type(computed.model).__module__}." * entry.trusts_its_code + entry.model_class


def look_again(payload: dict[str, Any], channel: Channel) -> None:
    """Look again at what a target returned and chose, as `target_job.run` left it in the folder `payload["watch"]`."""
    report = Report(channel)
    try:
        case, seed, folder = case_of(payload["case"]), payload["seed"], Path(payload["folder"])
        report.enter(Stage.IMPORT)
        models.model_class(case.entry)
        report.enter(Stage.REFERENCE)
        checkpoint = Path(payload["checkpoint"])
        model = models.load(case.entry, checkpoint, case.dtype, "cpu")
        truth = models.load_truth(case.entry, checkpoint, case.dtype)
        left = torch.load(Path(payload["watch"]) / RETURNED, weights_only=True)
        known, given = Reference.read(folder / REFERENCE), torch.load(folder / INPUTS, weights_only=True)
        options = {"phase": case.phase, "dtype": case.dtype, "seed": seed}
        looked = look(model, truth, given, known, left["returned"], left["picks"], **options)
        report.deliver(**asdict(looked))
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)
