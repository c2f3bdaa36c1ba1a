"""A device that somebody else has is waited for, within a budget; who has it is told by a lock or by the backend."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cases import Case, Dtype, Mode, Phase, Profile, Verdict
from harness.jobs import JobRunner, device_lock, probe
from harness.jobs.device_lock import DeviceBusy, Patience, held
from harness.targets import resolve
from harness.targets.base import TargetUnavailable
from model_lists import load_list

ENTRY = next(entry for entry in load_list("smoke") if entry.model_type == "vit")
CASE = Case(ENTRY, Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, Profile.PADDED)
HOLDER = """
import sys
from pathlib import Path
from harness.jobs.device_lock import Patience, held
from harness.targets import resolve

target = resolve("cpu")
type(target).exclusive = True
with held(target, Path(sys.argv[1]), Patience(sys.argv[2], float(sys.argv[3]))):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def target(monkeypatch):
    """A target that serves one process at a time."""
    target = resolve("cpu")
    monkeypatch.setattr(type(target), "exclusive", True)
    return target


@pytest.fixture
def holder(tmp_path):
    """`holder(run)` is a worker of that run in another process, which has the device until its stdin is closed."""
    started = []

    def start(run, patience=60.0, has_it=True):
        command = [sys.executable, "-c", HOLDER, str(tmp_path), run, str(patience)]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        started.append(process)
        assert not has_it or process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_what_another_run_holds_is_waited_for_in_vain_once_and_not_for_every_case(target, tmp_path, holder):
    mine, other = Patience("mine", 0.5), holder("theirs")
    with pytest.raises(DeviceBusy, match=r"held by another process for 0 s: `zoo"), held(target, tmp_path, mine):
        pass
    assert mine.left == 0
    with pytest.raises(DeviceBusy, match="which an earlier case of this worker waited for"):
        held(target, tmp_path, mine).__enter__()
    other.kill()
    other.wait()
    with held(target, tmp_path, mine):
        mine.renew()
    assert mine.left == 0.5


def test_a_worker_of_the_same_run_is_waited_for_even_without_patience(holder):
    sibling = holder("mine")
    waiting = holder("mine", 0.0, has_it=False)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(2.0)  # far longer than a moment, and than it takes to start
    sibling.kill()
    assert waiting.stdout.readline() == b"held\n"


def test_the_device_is_not_proved_while_another_has_it(target, tmp_path, holder, monkeypatch):
    monkeypatch.setattr("harness.jobs.runner.PROBE_SECONDS", 0.1)
    other = holder("theirs")
    with pytest.raises(TargetUnavailable, match="was held by another process"):
        probe(target, tmp_path)
    with JobRunner(target, tmp_path, patience=0.1) as runner:
        with pytest.raises(DeviceBusy):
            runner.describe()
        other.stdin.close()
        other.wait()
        assert runner.describe()["target"] == "cpu"


def test_a_backend_that_says_the_device_is_in_use_is_tried_again_until_patience_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(device_lock, "RETRY_SECONDS", 0.1)
    busy = r"TPU is already in use"
    target, marks = resolve("cpu"), tmp_path / "marks"
    known = target.diagnose
    says = lambda text, stage: Verdict.DEVICE_BUSY if busy in text else known(text, stage)  # noqa: E731
    monkeypatch.setattr(type(target), "diagnose", lambda self, text, stage: says(text, stage))
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", paths)
    monkeypatch.setenv("ATTEMPTS", str(marks))
    marks.mkdir()
    with JobRunner(target, tmp_path / "cache", patience=0.2) as runner:
        runner.processes.fault = "attempt_faults:finds_its_device_in_use_twice"
        assert runner.run(CASE).verdict is Verdict.PASS
        assert len(list(marks.iterdir())) == 3
        runner.processes.fault = "attempt_faults:finds_its_device_in_use"
        record = runner.run(CASE)
        assert (record.verdict, record.attempts) == (Verdict.DEVICE_BUSY, "")
        assert "the last try failed: RuntimeError: TPU is already in use" in record.message
        assert len(list(marks.iterdir())) == 6
        assert "an earlier case" in runner.run(CASE).message
        assert len(list(marks.iterdir())) == 7, "patience is spent: one try"
