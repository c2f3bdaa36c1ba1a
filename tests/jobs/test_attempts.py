"""A failure that nobody expects is run once more, in a fresh process; both attempts are told, and neither is a pass."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from harness.cases import Case, Dtype, Mode, Phase, Profile, Stage, Verdict
from harness.jobs import JobRunner
from harness.jobs.attempts import AGAIN, settled
from harness.records import Record
from harness.targets import resolve
from model_lists import load_list

VIT = next(entry for entry in load_list("smoke") if entry.model_type == "vit")
CASE = Case(VIT, Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, Profile.PADDED)


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", paths)
        patch.setenv("ATTEMPTS", str(tmp_path_factory.mktemp("attempts")))
        with JobRunner(resolve("cpu"), tmp_path_factory.mktemp("cache")) as runner:
            yield runner


@pytest.fixture
def run(runner):
    """`run(fault, again)` is the record of the case and the number of its processes on the target."""

    def run(fault, again):
        marks = Path(os.environ["ATTEMPTS"])
        for mark in marks.iterdir():
            mark.unlink()
        runner.processes.fault, runner.again = f"attempt_faults:{fault}", again
        return runner.run(CASE), len(list(marks.iterdir()))

    return run


def told(record):
    return [(one["verdict"], one["stage"]) for one in json.loads(record.attempts or "[]")]


def test_pass_after_failure_is_flaky_and_a_twin_is_told_the_same(run, runner):
    record, processes = run("crashes_at_first", lambda record: True)
    assert (record.verdict, record.stage, record.signal) == (Verdict.FLAKY, Stage.IMPORT, "SIGSEGV")
    assert record.message.startswith("CRASH in import: ")
    assert record.message.endswith("run again, it passes")
    assert told(record) == [("CRASH", "import"), ("PASS", "compare")]
    assert processes == 2
    twin = runner.run(dataclasses.replace(CASE, entry=dataclasses.replace(VIT, model_id="someone/fine-tuned-vit")))
    assert (twin.verdict, twin.twin_of) == (Verdict.FLAKY, CASE.id)


def test_failure_after_failure_keeps_the_first_and_notes_what_differs(run):
    record, processes = run("crashes", lambda record: True)
    assert (record.verdict, processes) == (Verdict.CRASH, 2)
    assert told(record) == [("CRASH", "import")] * 2
    assert "run again" not in record.message
    record, _ = run("crashes_then_exits", lambda record: True)
    assert (record.verdict, record.signal) == (Verdict.CRASH, "SIGSEGV")
    assert told(record) == [("CRASH", "import"), ("EXITED", "import")]
    assert "run again, it ended as EXITED in import: " in record.message


def test_what_is_expected_or_not_asked_for_runs_once(run):
    for again in (None, lambda record: record.verdict is not Verdict.CRASH):
        record, processes = run("crashes", again)
        assert (record.verdict, record.attempts, processes) == (Verdict.CRASH, "", 1)


def test_a_wrong_result_that_is_looked_at_again_has_had_its_second_attempt(run):
    record, processes = run("wrong", lambda record: True)
    assert record.verdict is Verdict.NUMERIC_MISMATCH
    assert told(record) == [("NUMERIC_MISMATCH", "compare")] * 2
    assert processes == 3, "the last one checked every operator"


@pytest.mark.parametrize("first", sorted(AGAIN))
@pytest.mark.parametrize("second", list(Verdict))
def test_no_second_attempt_makes_a_pass(first, second):
    one, other = (Record(CASE, "cpu", False, verdict, Stage.RUN, message="why") for verdict in (first, second))
    both = settled(one, other)
    assert both.verdict is (Verdict.FLAKY if second is Verdict.PASS else first)
    assert told(both) == [(first, "run"), (second, "run")]
