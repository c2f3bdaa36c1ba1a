"""Runs of the real backend on two workers, each struck by SIGKILL at a random moment, then resumed.

A run that nothing happens to says how each case ends, and how long a run takes. Every other run begins alike, in a
store of its own, and at a random moment of that time one of its processes (the one that the user started, a worker, a
server, a job) or all of them at once (the machine) is killed. Then it is resumed, once, and compared with the first.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time

import psutil
import pytest
from commands import verdicts

import results
from harness.pytest_plugin.settings import default_cache

TARGET = "tpu-emulated"
CASES = ["-k", "bert/BertForMaskedLM/*", "-k", "vit/*", "-k", "gpt2/*", "--phase", "forward", "--profile", "padded"]
CASES += ["--mode", "strict-eager", "--mode", "defer-and-fuse"]
"""Few and cheap, since every kill runs them: the time goes into starting processes, where most kills shall fall."""
VICTIMS = ("the user's process", "a worker", "a server", "a job", "the machine")


def pytest_generate_tests(metafunc):
    option = metafunc.config.getoption
    draw = random.Random(option("--kills-seed"))
    kills = [(VICTIMS[number % len(VICTIMS)], draw.random(), draw.random()) for number in range(option("--kills"))]
    names = [
        f"{number}: {victim} killed at {moment:.0%} of a run" for number, (victim, moment, _) in enumerate(kills, 1)
    ]
    if "victim" in metafunc.fixturenames:
        metafunc.parametrize(("victim", "moment", "which"), kills, ids=names)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """How the cases end, and the seconds that takes once references and programs are in the cache."""
    folder = tmp_path_factory.mktemp("undisturbed")
    finished(["run", *CASES, "--target", TARGET, "--workers", "2"], folder / "warm")
    started = time.monotonic()
    finished(["run", *CASES, "--target", TARGET, "--workers", "2"], folder / "store")
    seconds = time.monotonic() - started
    return {case: rows[0] for case, rows in verdicts(folder / "store").items()}, seconds


def test_random_kill(undisturbed, tmp_path, account, victim, moment, which):
    expected, seconds = undisturbed
    with (tmp_path / "printed").open("wb") as printed:
        process = subprocess.Popen(
            command(["run", *CASES, "--target", TARGET, "--workers", "2"], tmp_path / "store"),
            env=environment(),
            stdout=printed,
            stderr=printed,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment * seconds)
        family = family_of(process.pid)
        for one in chosen(family, victim, which):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()
    left = psutil.wait_procs(family, timeout=60)[1]
    resumed = results.list_runs(tmp_path / "store")  # none where it was killed before there was a run
    again = ["run", "--resume", "latest"] if resumed else ["run", *CASES, "--target", TARGET, "--workers", "2"]
    finished(again, tmp_path / "store")
    account(expected, verdicts(tmp_path / "store"), "as undisturbed")
    assert results.missing(results.latest(tmp_path / "store")) == []
    assert left == []


def family_of(pid):
    """A process and all that it has started, itself first; none where it has ended."""
    try:
        return [root := psutil.Process(pid), *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def chosen(family, victim, which):
    """Those that are killed; the nearest kind there is where there is none of the asked one at the moment."""
    if not family or victim == "the machine":
        return family
    root, *others = family
    kinds = {"the user's process": [root], "a worker": [], "a server": [], "a job": []}
    for one in others:
        with contextlib.suppress(psutil.NoSuchProcess):
            serves = "harness.jobs.zygote" in " ".join(one.cmdline())
            parent = one.parent()
            forked = parent is not None and "harness.jobs.zygote" in " ".join(parent.cmdline())
            kinds["a job" if serves and forked else "a server" if serves else "a worker"].append(one)
    candidates = next(kinds[kind] for kind in (victim, "a server", "a worker", "the user's process") if kinds[kind])
    return [candidates[int(which * len(candidates))]]


def command(arguments, store):
    places = ["--store", str(store), "--cache", str(default_cache())]
    return [sys.executable, "-m", "harness.cli", *arguments, *places]


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def finished(arguments, store):
    done = subprocess.run(
        command(arguments, store), env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
