"""How much of a night is the harness itself?

Runs the smoke tier (or `--tier`/`--list`) with cold caches and a store of its own and prints the
share of worker time that is not spent in a stage that works on a model:

    overhead = 1 - (seconds in build, inputs, reference, to-device, compile, run, compare) / (wall * workers)

Starting Python, importing libraries, forking, planning, journal and pytest all count as overhead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results

STAGES = ("build", "inputs", "reference", "to_device", "compile", "run", "compare")


def night(arguments: list[str], workers: int, folder: Path) -> tuple[float, float, int]:
    """Run `zoo run` and return wall seconds, seconds in working stages, and the number of cases."""
    store = folder / "store"
    command = [sys.executable, "-m", "harness.cli", "run", *arguments]
    command += ["--workers", str(workers), "--store", str(store), "--cache", str(folder / "cache")]
    started = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    wall = time.monotonic() - started
    if code not in (0, 1):
        sys.exit(f"zoo run ended with exit code {code}: nothing to measure")
    rows = results.load(store, runs="latest")
    return wall, float(rows[[f"seconds_{stage}" for stage in STAGES]].sum().sum()), len(rows)


def main() -> None:
    """Run the night twice, with cold and with warm caches, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "arguments", nargs="*", default=["--tier", "smoke", "--phase", "forward", "--target", "tpu"], help="for zoo run"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for night_name in ("cold", "warm"):
            wall, working, cases = night(options.arguments, options.workers, Path(folder))
            available = wall * options.workers
            print(f"{night_name}: {cases} cases, {wall:.0f} s on {options.workers} workers, {working:.0f} s in stages")
            name = "overhead_percent" if night_name == "cold" else "overhead_percent_warm"
            print(f"figure: {name} {100 * (available - working) / available:.1f} percent", flush=True)


if __name__ == "__main__":
    main()
