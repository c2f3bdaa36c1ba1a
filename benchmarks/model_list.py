"""How large is the shipped list of models, and what do checking and planning all of it cost?

Runs `zoo lint` and `zoo plan --tier full` in processes of their own, several times in turn with a baseline that only
starts Python and reads the same CSV file, and takes the least of each. Seconds of a busy machine mean little, so each
is printed with its CPU time and as a multiple of the baseline's.

    figure: entries, architectures: models and model types of the tier full
    figure: lint_seconds, plan_seconds: wall time, least of the repeats
    figure: plan_peak_megabytes: largest resident memory of the process that plans
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness.plan import select
from model_lists import list_path, lists_for, load_list

READING = f"import csv; list(csv.reader(open({str(list_path('hub'))!r}, encoding='utf-8')))"
COMMANDS = {
    "baseline": [sys.executable, "-c", READING],
    "lint": [sys.executable, "-m", "harness.cli", "lint"],
    "plan": [sys.executable, "-m", "harness.cli", "plan", "--tier", "full"],
    "plan_64_shards": [sys.executable, "-m", "harness.cli", "plan", "--tier", "full", "--shards", "64", "--matrix"],
}


@dataclass(frozen=True)
class Cost:
    """What a process took: wall and CPU seconds, and its largest resident memory in megabytes."""

    wall: float
    cpu: float
    megabytes: float


def cost(command: list[str], folder: Path) -> Cost:
    """Run a command to its end over an empty store; exits with its complaint where it fails."""
    env = os.environ | {"ZOO_STORE": str(folder / "store"), "ZOO_CACHE": str(folder / "cache")}
    with (folder / "out").open("w+") as out:
        started = time.perf_counter()
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            out.seek(0)
            sys.exit(f"{' '.join(command)} ended with exit code {process.returncode}:\n{out.read()[-2000:]}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> None:
    """Count, measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    entries = select((entry for path in lists_for("full") for entry in load_list(path)), tier="full")
    print(f"figure: entries {len(entries)} count")
    print(f"figure: architectures {len({entry.model_type for entry in entries})} count")
    costs: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            for name, command in COMMANDS.items():
                costs[name].append(cost(command, Path(folder)))
    wall = {name: min(one.wall for one in ones) for name, ones in costs.items()}
    cpu = {name: min(one.cpu for one in ones) for name, ones in costs.items()}
    peak = {name: max(one.megabytes for one in ones) for name, ones in costs.items()}
    for name in COMMANDS:
        print(
            f"{name}: {wall[name]:.2f} s, {cpu[name]:.2f} s of CPU, {peak[name]:.0f} MB; "
            f"{cpu[name] / cpu['baseline']:.1f} times the CPU time of starting Python and reading the list"
        )
    print(f"figure: lint_seconds {wall['lint']:.2f} s")
    print(f"figure: lint_cpu_over_baseline {cpu['lint'] / cpu['baseline']:.1f} ratio")
    print(f"figure: plan_seconds {wall['plan']:.2f} s")
    print(f"figure: plan_cpu_over_baseline {cpu['plan'] / cpu['baseline']:.1f} ratio")
    print(f"figure: plan_peak_megabytes {peak['plan']:.0f} MB")


if __name__ == "__main__":
    main()
