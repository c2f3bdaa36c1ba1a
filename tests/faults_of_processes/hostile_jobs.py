"""What the job processes run in place of models and a backend: nothing, but for the strike of a scenario.

The servers, the processes they fork, the stages and the messages are the real ones; only what costs time (importing
torch, building a model, running it) is left out.
"""

import hashlib

import strikes
from scenarios import BY_NAME, CASE, MODEL, REFERENCE

from harness import targets
from harness.cases import Evidence, Profile, Stage, Verdict
from harness.jobs import zygote
from harness.jobs.payload import case_of
from harness.jobs.report import Report

OURS = {
    "harness.jobs.preload:reference": "hostile_jobs:preload_reference",
    "harness.jobs.preload:target": "hostile_jobs:preload_target",
    "harness.jobs.reference_job:run": "hostile_jobs:run_reference",
    "harness.jobs.target_job:prove": "hostile_jobs:prove",
    "harness.jobs.target_job:run": "hostile_jobs:run_case",
    "harness.jobs.first_bad_job:run": "hostile_jobs:run_case",
    "harness.jobs.target_job:serve_model": "hostile_jobs:serve_model",
}
"""What stands in for which job."""


def preload_reference(_):
    return {}


def preload_target(name):
    return targets.resolve(name).describe()


def prove(payload, channel):
    Report(channel).deliver(proved=True)


def serve_model(payload, channel):
    strike(case_of(payload["case"]), MODEL, Stage.IMPORT, channel)
    zygote.serve(channel, hello={"told": {}})


def run_reference(payload, channel):
    case = case_of(payload["case"])
    meta = {
        "checkpoint": "",
        "evidence": Evidence.ARCHITECTURE_DEFAULT,
        "parameters": 1,
        "truth": "float64",
        "inputs": "drawn",
        "operators": [],
    }
    meta |= dict.fromkeys(("weights_sha256", "inputs_sha256", "structure_sha256"), _digest(case.id))
    stages = (Stage.IMPORT, Stage.BUILD, Stage.INPUTS, Stage.REFERENCE)
    _passes(case, REFERENCE, stages, channel, {"meta": meta | {"sick": None}})


def run_case(payload, channel):
    stages = (Stage.IMPORT, Stage.TO_DEVICE, Stage.COMPILE, Stage.RUN, Stage.COMPARE)
    result = {"verdict": Verdict.PASS, "message": "", "leaves": 1}
    _passes(case_of(payload["case"]), CASE, stages, channel, result)


def _passes(case, process, stages, channel, result):
    report = Report(channel)
    try:
        for stage in stages:
            report.enter(stage)
            strike(case, process, stage, channel)
        report.deliver(**result)
    except BaseException as error:  # noqa: BLE001 - as the real jobs do
        report.fail(error)


def strike(case, process, stage, channel):
    """Do what the case's scenario does at this place, if anything; the other profile of its model is a neighbour."""
    scenario = BY_NAME.get(case.entry.model_id.partition("/")[2])
    if scenario and case.profile is Profile.PADDED and scenario.happens(process, stage):
        getattr(strikes, scenario.strike)(channel)


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()
