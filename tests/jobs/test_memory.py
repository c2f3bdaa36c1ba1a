"""Jobs share the machine's memory: who waits, who goes first, what the dead leave behind, and what never fits."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.cases import Case, Dtype, Mode, Phase, Profile, Verdict
from harness.jobs import JobRunner, memory
from harness.jobs import cache as caches
from harness.jobs.memory import BadAmount, Ledger, most, usable
from harness.records import Peak
from harness.targets import resolve
from model_lists import load_list

GB = 10**9

HOLDER = """
import sys, time
from pathlib import Path
from harness.jobs.memory import Ledger

with Ledger(Path(sys.argv[1]), int(sys.argv[2])).reserved(int(sys.argv[3])):
    print("reserved", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """`holder(need)` is another process that has reserved so much of 10 GB, until its stdin is closed."""
    started = []

    def start(need):
        command = [sys.executable, "-c", HOLDER, str(tmp_path / "ledger"), str(10 * GB), str(need)]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        started.append(process)
        assert process.stdout.readline() == b"reserved\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


class Taker(threading.Thread):
    """Reserves, notes when it could, and holds until told."""

    def __init__(self, ledger, need, log, name):
        super().__init__(daemon=True)
        self._ledger, self._need, self._log, self._name = ledger, need, log, name
        self.let_go = threading.Event()
        self.start()

    def run(self):
        with self._ledger.reserved(self._need):
            self._log.append(self._name)
            self.let_go.wait(60)


def until(condition):
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_what_fits_runs_side_by_side_and_the_rest_waits(tmp_path, holder):
    ledger, log = Ledger(tmp_path / "ledger", 10 * GB), []
    other = holder(6 * GB)
    small, large = Taker(ledger, 4 * GB, log, "small"), None
    until(lambda: log == ["small"])
    large = Taker(ledger, 5 * GB, log, "large")
    time.sleep(0.3)
    assert log == ["small"]
    other.stdin.close()
    until(lambda: log == ["small", "large"])
    small.let_go.set()
    large.let_go.set()


def test_a_reservation_ends_with_its_owner_however_that_ends(tmp_path, holder):
    ledger, log = Ledger(tmp_path / "ledger", 10 * GB), []
    other = holder(9 * GB)
    waiting = Taker(ledger, 9 * GB, log, "waiting")
    time.sleep(0.3)
    assert log == []
    other.send_signal(signal.SIGKILL)
    until(lambda: log == ["waiting"])
    waiting.let_go.set()
    waiting.join(60)
    assert not list((tmp_path / "ledger").glob("*-*"))


def test_small_ones_do_not_overtake_a_large_one_for_ever(tmp_path, holder):
    ledger, log = Ledger(tmp_path / "ledger", 10 * GB), []
    other = holder(5 * GB)
    large = Taker(ledger, 8 * GB, log, "large")
    until(lambda: len(list((tmp_path / "ledger").glob("*-*"))) == 2)
    small = Taker(ledger, 3 * GB, log, "small")
    time.sleep(0.3)
    assert log == [], "there would be room for the small one"
    other.stdin.close()
    until(lambda: log == ["large"])
    large.let_go.set()
    until(lambda: log == ["large", "small"])
    small.let_go.set()


def test_one_that_is_alone_may_exceed_the_total(tmp_path):
    with Ledger(tmp_path / "ledger", 10 * GB).reserved(11 * GB):
        pass


@pytest.mark.parametrize(
    ("said", "amount"), [("16GB", 16 * GB), ("1.5 GiB", 3 * 2**29), ("1000", 1000), ("2mb", 2_000_000)]
)
def test_the_limit_can_be_set_by_hand(monkeypatch, said, amount):
    monkeypatch.setenv(memory.SETTING, said)
    assert usable() == amount


@pytest.mark.parametrize("said", ["much", "-1GB", "0", "0.3", "16 GB RAM", "1e9", "GB"])
def test_a_limit_that_is_no_amount_is_one_clear_line(monkeypatch, said):
    monkeypatch.setenv(memory.SETTING, said)
    with pytest.raises(BadAmount, match="is no amount of memory: give one such as 16GB"):
        usable()


def test_without_one_it_is_a_share_of_what_there_is(monkeypatch):
    monkeypatch.delenv(memory.SETTING, raising=False)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < usable() <= memory.SHARE * total
    assert most() <= total
    assert usable() == int(memory.SHARE * most())


def case():
    entry = next(entry for entry in load_list("smoke") if entry.model_type == "bert")
    return Case(entry, Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, Profile.PADDED)


def unbuildable():
    return dataclasses.replace(case(), entry=dataclasses.replace(case().entry, model_class="NoSuchModel"))


def test_what_needs_more_than_there_is_never_starts(tmp_path, monkeypatch):
    monkeypatch.setenv(memory.SETTING, "4GB")
    with JobRunner(resolve("cpu"), tmp_path, peak=lambda _: Peak(7 * GB, 5 * GB)) as runner:
        record = runner.run(case())
        assert record.verdict is Verdict.TOO_LARGE
        assert "needs 5 GB of memory (5000000000 bytes), and jobs may use 4 GB here" in record.message
        assert "(4000000000 bytes, by ZOO_MEMORY or --memory)" in record.message
        assert runner.processes.target_server is None, "nothing was started"


def test_what_a_device_cannot_hold_never_starts(tmp_path, monkeypatch):
    target = resolve("cpu")
    with JobRunner(target, tmp_path, peak=lambda _: Peak(1, None, 18 * GB)) as runner:
        monkeypatch.setattr(type(target), "device_bytes", 16 * GB)
        record = runner.run(case())
        assert record.verdict is Verdict.TOO_LARGE
        assert "18 GB of the device's memory (18000000000 bytes), and cpu has 16 GB (16000000000" in record.message
        assert runner.processes.target_server is None, "nothing was started"


def test_what_has_just_fitted_is_no_more_refused_the_next_night(tmp_path, monkeypatch):
    monkeypatch.delenv(memory.SETTING, raising=False)
    needed = most()  # and what a device must have refuses nothing where its size is unknown
    with JobRunner(resolve("cpu"), tmp_path, peak=lambda _: Peak(needed, needed, 18 * GB)) as runner:
        assert runner.run(unbuildable()).verdict is Verdict.BUILD_ERROR, "more than jobs may share"
        needed += 1
        assert runner.run(unbuildable()).verdict is Verdict.TOO_LARGE


def test_a_cache_beside_another_is_empty_and_takes_turns_with_it(tmp_path):
    cache = tmp_path / "cache"
    (cache / "references").mkdir(parents=True)
    beside = caches.beside(cache, tmp_path / "beside")
    assert sorted(path.name for path in beside.iterdir()) == ["locks", "memory"]
    with Ledger(cache / "memory", 10 * GB).reserved(8 * GB):
        assert [path.name for path in (beside / "memory").glob("*-*")] == [f"1-{8 * GB}"]
    shutil.rmtree(beside)
    assert sorted(path.name for path in cache.iterdir()) == ["locks", "memory", "references"]
