"""A device that stops to work is one finding: it is proved again, and what is left is blamed on no model."""

import dataclasses
import os
from pathlib import Path

import pytest

from harness.cases import Case, Dtype, Mode, Phase, Profile, Stage, Verdict
from harness.jobs import JobRunner, lost_device
from harness.jobs.lost_device import Streak
from harness.records import Record
from harness.targets import resolve
from model_lists import load_list

SMOKE = load_list("smoke")
PROVED = """
import os
from harness.targets.base import TargetUnavailable
from harness.targets.cpu import Cpu

def prove(self):
    if os.path.exists(os.environ["HALTED"]):
        raise TargetUnavailable("cpu: it does not answer")

Cpu.prove = prove
"""


def case(model_type, **changes):
    entry = next(entry for entry in SMOKE if entry.model_type == model_type)
    return Case(dataclasses.replace(entry, **changes), Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, Profile.PADDED)


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """Of a target that halts, and whose proof fails, once a fault has halted it."""
    monkeypatch.setattr(lost_device, "SUSPICIOUS", 2)
    (tmp_path / "sitecustomize.py").write_text(PROVED)
    paths = (str(tmp_path), str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("HALTED", str(tmp_path / "halted"))
    with JobRunner(resolve("cpu"), tmp_path / "cache") as runner:
        yield runner


def test_a_device_that_no_longer_works_is_named_once_and_what_is_left_is_not_run(runner):
    assert runner.run(case("vit")).verdict is Verdict.PASS
    runner.processes.fault = "attempt_faults:halts_the_device"
    assert runner.run(case("bert")).verdict is Verdict.RUN_ERROR
    record = runner.run(case("gpt2"))
    assert record.verdict is Verdict.BACKEND_UNAVAILABLE
    assert "the device has halted" in record.message
    left = runner.run(case("llama"))
    assert left.verdict is Verdict.BACKEND_UNAVAILABLE
    assert left.message.startswith("cpu: TargetUnavailable: cpu: it does not answer; it stopped after vit/")
    assert left.seconds == {}, "not even its reference was made"


def ended(number, verdict=Verdict.RUN_ERROR, message="it has halted"):
    return Record(case("vit", model_id=f"a/{number}"), "cpu", False, verdict, Stage.RUN, message=message)


def test_only_several_models_in_a_row_with_the_same_end_raise_doubt():
    streak = Streak()
    assert [streak.doubts(ended(n)) for n in (1, 2, 2, 3, 4, 5, 6)] == [False, False, False, True, False, False, True]
    assert not any(streak.doubts(ended(n, message=f"operator {n}")) for n in range(9))
    assert not any(streak.doubts(ended(n, Verdict.PASS, "within the noise")) for n in range(9))
    assert not any(streak.doubts(one) for n in range(9) for one in (ended(n), ended(n, Verdict.PASS, "")))
    assert streak.after == ended(8).case.id
