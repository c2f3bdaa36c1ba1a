"""The process that builds a model, makes its inputs and computes its CPU reference. It never loads a backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from harness import inputs, models
from harness.cases import Stage
from harness.execution import reference
from harness.jobs.cache import INPUTS, META, REFERENCE, published, seals
from harness.jobs.channel import Channel
from harness.jobs.payload import case_of
from harness.jobs.report import Report
from harness.jobs.twins import structure


def run(payload: dict[str, Any], channel: Channel) -> None:
    """Build, feed and run a case on CPU, and publish the reference folder `payload["folder"]`."""
    report = Report(channel)
    case, seed = case_of(payload["case"]), payload["seed"]
    try:
        report.enter(Stage.IMPORT)
        models.model_class(case.entry)
        report.enter(Stage.BUILD)
        built = models.build(case.entry, Path(payload["checkpoint"]), seed)
        model = models.load(case.entry, built.folder, case.dtype, "cpu")
        report.enter(Stage.INPUTS)
        made = inputs.make(case.entry, model.config, built.folder, case.profile, seed, case.phase)
        digest = inputs.digest(made)
        report.enter(Stage.REFERENCE)
        truth = models.load_truth(case.entry, built.folder, case.dtype)
        computed, sick = reference.compute(model, truth, made, phase=case.phase, dtype=case.dtype, seed=seed)
        meta = {
            "checkpoint": str(built.folder),
            "evidence": built.evidence,
            "parameters": built.parameters,
            "weights_sha256": built.weights_sha256,
            "inputs_sha256": digest,
            "structure_sha256": structure(case.entry.model_class, built.folder, built.weights_sha256, digest),
            "sick": [sick[0], sick[1]] if sick else None,
        }
        with published(Path(payload["folder"])) as folder:
            torch.save(made, folder / INPUTS)
            computed.save(folder / REFERENCE)
            sealed = seals([folder / INPUTS, folder / REFERENCE], built.folder)
            (folder / META).write_text(json.dumps(meta | {"seals": sealed}))
        report.deliver(meta=meta)
    except BaseException as error:  # noqa: BLE001 - the boundary of a process: an error is a result
        report.fail(error)
