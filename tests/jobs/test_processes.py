"""Whatever a job's process does, the supervisor returns, says what happened, and leaves nothing behind."""

import os
import re
import time

import pytest

from harness.cases import Group, Stage, Verdict
from harness.jobs import death, supervisor
from harness.jobs.supervisor import Limits, Outcome, Server, ServerFailed, kills_since, oom_kills, supervise
from harness.targets import resolve

LIMITS = Limits(run=1.0)


def environment():
    here = os.path.dirname(__file__)
    return os.environ | {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}


def launched(preload, folder):
    return Server.join("test", preload, "x", environment, folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = launched("hostile:nothing", tmp_path_factory.mktemp("servers"))
    assert server.ready() == {"argument": "x"}
    yield server
    server.close()


def outcome_of(server, name, limits=LIMITS, **payload):
    stages = []
    child = server.fork(f"hostile:{name}", payload)
    outcome = supervise(server, child, limits, Stage.IMPORT, stages.append)
    assert gone(child.pid), "the process or its group is still there"
    return outcome, stages


def gone(pid):
    """No live process of the group is left (a zombie that init has not reaped yet counts as gone)."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        members = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    state, _, group = stat.read().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(group) == pid and state not in "ZX":
                members.append(entry)
        if not members:
            return True
        time.sleep(0.02)
    return False


def test_a_good_child_delivers_and_its_stages_are_timed(server):
    outcome, stages = outcome_of(server, "good", value=[1, 2])
    assert outcome.result == {"value": [1, 2]}
    assert stages == [Stage.BUILD, Stage.RUN]
    assert set(outcome.seconds) == {Stage.IMPORT, Stage.BUILD, Stage.RUN}
    assert "all is well" in outcome.log
    assert outcome.peak_bytes > 0
    assert (outcome.signal, outcome.exit_code) == ("", 0)


def test_the_log_of_a_child_that_prints_without_end_takes_no_more_disk_than_it_may(server, monkeypatch):
    most = 2_000_000
    monkeypatch.setattr(supervisor, "LOG_MOST_BYTES", most)
    monkeypatch.setattr(supervisor, "LOG_LOOK_SECONDS", 0.05)
    child = server.fork("hostile:prints_without_end", {})
    taken = []
    look = supervisor.forget_middle

    def weigh(log):
        look(log)
        taken.append(os.fstat(log.fileno()))

    monkeypatch.setattr(supervisor, "forget_middle", weigh)
    outcome = supervise(server, child, LIMITS, Stage.IMPORT, lambda stage: None)
    assert outcome.overdue == LIMITS.run
    assert max(found.st_size for found in taken) > 2 * most
    assert max(found.st_blocks * 512 for found in taken) < 2 * most
    assert outcome.log.startswith("the cause\nxxx")
    assert "\0" not in outcome.log, "a hole is in the middle, which is left out"


def test_what_the_kernel_does_not_say_is_unknown(monkeypatch):
    assert kills_since(None) is None
    monkeypatch.setattr(supervisor, "_OOM_KILLS", re.compile("not in this kernel"))
    assert oom_kills() is None
    assert kills_since(3) is None


def test_an_exception_is_a_result_with_its_text_clipped(server):
    error = outcome_of(server, "raises")[0].result["error"]
    assert error["type"] == "ValueError"
    assert error["message"].startswith("\x1b[31mno such")
    assert "left out" in error["message"]


@pytest.mark.parametrize(
    ("counts", "verdict", "said"),
    [
        ((3, 4), Verdict.OOM_HOST, "the kernel kills where memory ran out"),
        ((None, None), Verdict.OOM_HOST, "for lack of memory, perhaps"),
        ((3, 3), Verdict.HARNESS_ERROR, "stopped from outside by SIGKILL"),
    ],
)
def test_who_kills_for_memory_is_told_from_who_kills(server, monkeypatch, counts, verdict, said):
    counted = iter(counts)
    monkeypatch.setattr("harness.jobs.supervisor.oom_kills", lambda: next(counted))
    found, message = death.of_death(outcome_of(server, "killed")[0], resolve("cpu"))
    assert found is verdict
    assert said in message


@pytest.mark.parametrize(
    ("stage", "verdict"),
    [
        (Stage.IMPORT, Verdict.BUILD_ERROR),
        (Stage.BUILD, Verdict.BUILD_ERROR),
        (Stage.INPUTS, Verdict.INPUT_ERROR),
        (Stage.REFERENCE, Verdict.REFERENCE_ERROR),
    ],
)
def test_a_death_on_the_cpu_side_is_never_the_backends(stage, verdict):
    found, message = death.of_death(Outcome(stage, status=11), None)
    assert found is verdict
    assert found.group is Group.MODEL
    assert "reference process" in message
    assert "SIGSEGV" in message


def test_a_result_counts_even_if_its_process_does_not_leave(server, monkeypatch):
    monkeypatch.setattr("harness.jobs.supervisor.LEAVE_SECONDS", 0.3)
    outcome, _ = outcome_of(server, "lingers_after_its_result", value=5)
    assert outcome.result == {"value": 5}


def test_a_child_may_serve_and_dies_with_its_server(server):
    child = server.fork("hostile:serves", {})
    model = Server.adopt(child, "model")
    assert model.ready() == {"pid": child.pid}
    outcome, _ = outcome_of(model, "good", value=3)
    assert outcome.result == {"value": 3}
    sleeper = model.fork("hostile:hangs", {})
    model.channel.close()
    assert server.ended(child, 5)["ended"] == child.pid
    assert gone(sleeper.pid)


@pytest.mark.parametrize("ending", ["left by its owner", "killed"])
def test_a_server_takes_along_even_what_it_has_only_just_forked(tmp_path, ending):
    """A child that leads no group yet, and has not yet asked to die with its parent, is the one to be left behind."""
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        server = launched("hostile:nothing", folder)
        server.ready()
        child = server.fork("hostile:hangs", {})
        if ending == "killed":
            server.process.kill()
        server.close()
        assert gone(child.pid), number


@pytest.mark.parametrize(
    ("preload", "kind", "text"),
    [("hostile:refuses", "ImportError", "cannot preload x"), ("hostile:dies_at_start", "", "ended while starting")],
)
def test_a_server_that_cannot_start_says_why(tmp_path, preload, kind, text):
    server = launched(preload, tmp_path)
    with pytest.raises(ServerFailed, match=text) as failure:
        server.ready()
    assert failure.value.kind == kind
    server.close()


def test_a_server_killed_under_a_job_ends_the_job_and_is_noticed(tmp_path):
    server = launched("hostile:nothing", tmp_path)
    server.ready()
    child = server.fork("hostile:hangs", {})
    server.process.kill()
    outcome = supervise(server, child, Limits(), Stage.IMPORT, lambda stage: None)
    assert outcome.result is None
    assert outcome.status is None
    assert gone(child.pid)
    with pytest.raises(ServerFailed, match="has died"):
        server.fork("hostile:good", {})
    server.close()
    again = launched("hostile:nothing", tmp_path)
    assert again.ready() == {"argument": "x"}, "a dead server's socket is no obstacle"
    again.close()


def test_owners_share_a_server_that_outlives_the_one_who_launched_it(tmp_path):
    first, second = launched("hostile:nothing", tmp_path), launched("hostile:nothing", tmp_path)
    assert first.ready() == second.ready() == {"argument": "x"}
    assert second.process is None, "only one was launched"
    abandoned = first.fork("hostile:hangs", {})
    first.close()
    assert gone(abandoned.pid)
    outcome, _ = outcome_of(second, "good", value=8)
    assert outcome.result == {"value": 8}
    second.close()
    assert first.process.wait(5) == 0, "it ends with its last owner"


@pytest.mark.parametrize("preload", ["hostile:reference_watched", "hostile:target_watched"])
def test_the_main_thread_of_every_child_sets_up_pytorchs_threads(tmp_path, preload):
    """Where several threads are first after a fork, as in loading a checkpoint, PyTorch may lose its thread pool."""
    server = Server.join("test", preload, "cpu", environment, tmp_path)
    server.ready()
    outcome, _ = outcome_of(server, "who_set_up_threads", Limits(run=30))
    server.close()
    assert outcome.result["by_main"] == [True]
