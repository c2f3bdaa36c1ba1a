"""What is lost when a run is killed? Runs of two workers, each struck by SIGKILL at a random moment, then resumed.

A reference run says how each case ends. Every other run begins alike, in a store of its own, and at a random moment of
the reference run's duration one of its processes (the one that the user started, a worker, a server, a job) or all of
them at once (the machine) is killed. It is resumed until it says that nothing is missing, and compared with the
reference: a case without a row is lost, one with two rows is duplicated, one that ended otherwise is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

import results
from harness.cli import EXIT_NOTHING
from harness.pytest_plugin.settings import default_cache

PLAN = ["-k", "bert/*", "-k", "vit/*", "-k", "resnet/*", "-k", "gpt2/*", "--phase", "forward", "--profile", "padded"]
RESUMES = 3
"""Times that a killed run may have to be resumed; it is killed once, so one should do."""
VICTIMS = ("user's process", "a worker", "a server", "a job", "the machine")


def main() -> None:
    """Kill, resume, compare, and print what was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="tpu-emulated")
    parser.add_argument("--cache", type=Path, default=default_cache())
    options = parser.parse_args()
    os.environ["ZOO_CACHE"] = str(options.cache.absolute())
    run = ["run", *PLAN, "--target", options.target, "--workers", "2"]
    draw = random.Random(options.seed)
    counts: Counter[str] = Counter(lost=0, duplicated=0, wrong=0, left_running=0)
    with tempfile.TemporaryDirectory(prefix="zoo-kills-") as folder:
        _finished(run, Path(folder) / "warm")
        started = time.monotonic()
        _finished(run, Path(folder) / "reference")
        duration = time.monotonic() - started
        expected = _verdicts(Path(folder) / "reference")
        for number in range(options.kills):
            victim = VICTIMS[number % len(VICTIMS)]
            found = _killed(run, Path(folder) / str(number), victim, draw.uniform(0.0, duration), draw, expected)
            counts.update(found)
            told = ", ".join(f"{what} {count}" for what, count in found.items() if count) or "nothing lost"
            print(f"{number + 1}/{options.kills} {victim}: {told}", flush=True)
    print(f"figure: kills {options.kills} count")
    print(f"figure: cases_per_run {len(expected)} count")
    for what, count in counts.items():
        print(f"figure: {what} {count} count")


def _killed(
    run: list[str], store: Path, victim: str, moment: float, draw: random.Random, expected: dict[str, str]
) -> dict[str, int]:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            _command(run, store), stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        family = _family(process.pid)
        for one in _chosen(family, victim, draw):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()
    alive = psutil.wait_procs(family, timeout=30)[1]
    if not results.list_runs(store):  # killed before there was a run
        _finished(run, store)
    for _ in range(RESUMES):
        if not results.missing(results.latest(store)):
            break
        _finished(["run", "--resume", "latest"], store)
    rows, left = _verdicts(store), Counter(_case_ids(store))
    return {
        "lost": len(expected.keys() - rows.keys()),
        "duplicated": sum(count > 1 for count in left.values()),
        "wrong": sum(rows[case] != verdict for case, verdict in expected.items() if case in rows),
        "left_running": len(alive),
    }


def _family(pid: int) -> list[psutil.Process]:
    """A process and all that it has started, itself first; none where it has ended."""
    try:
        return [root := psutil.Process(pid), *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _chosen(family: list[psutil.Process], victim: str, draw: random.Random) -> list[psutil.Process]:
    """Those that are killed; the nearest kind there is where there is none of the asked one at the moment."""
    if not family or victim == "the machine":
        return family
    root, *others = family
    kinds: dict[str, list[psutil.Process]] = {"user's process": [root], "a worker": [], "a server": [], "a job": []}
    for one in others:
        with contextlib.suppress(psutil.NoSuchProcess):
            serves = "harness.jobs.zygote" in " ".join(one.cmdline())
            parent = one.parent()
            forked = parent is not None and "harness.jobs.zygote" in " ".join(parent.cmdline())
            kinds["a job" if serves and forked else "a server" if serves else "a worker"].append(one)
    order = [victim, "a server", "a worker", "user's process"]
    candidates = next(kinds[kind] for kind in order if kinds[kind])
    return [draw.choice(candidates)]


def _command(arguments: list[str], store: Path) -> list[str]:
    return [sys.executable, "-m", "harness.cli", *arguments, "--store", str(store)]


def _finished(arguments: list[str], store: Path) -> None:
    done = subprocess.run(_command(arguments, store), capture_output=True, text=True, check=False)
    if done.returncode >= EXIT_NOTHING:
        sys.exit(f"zoo {' '.join(arguments)} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")


def _verdicts(store: Path) -> dict[str, str]:
    rows = results.load(store, runs="latest")
    return dict(zip(rows.case_id, rows.verdict, strict=True))


def _case_ids(store: Path) -> list[str]:
    return list(results.load(store, runs="latest").case_id)


if __name__ == "__main__":
    main()
