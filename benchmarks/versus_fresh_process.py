"""CPU time per case against a fresh Python process per case, the way most harnesses do it.

The same twelve architectures in the same modes. Half of the fresh processes run before the two nights
of `zoo run` (cold caches, then warm ones), half after, so that a busy machine troubles both alike.
CPU time is user + system time of a process and of all its descendants.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import targets
from harness.cases import Dtype, Phase, Profile
from harness.plan import plan
from model_lists import list_path, load_list

_PR_SET_CHILD_SUBREAPER = 36
ARCHITECTURES = (
    "bert", "gpt2", "llama", "qwen3_moe", "mamba", "t5", "vit", "resnet", "whisper", "wav2vec2", "clip", "patchtst",
)  # fmt: skip
"""Spread over families, one small model each."""


def cpu_seconds(command: list[str]) -> tuple[float, int]:
    """Run a command until it and all its descendants have ended: their CPU seconds, and its exit code."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    total, code = 0.0, -1
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            process.returncode = code
            return total, code
        total += usage.ru_utime + usage.ru_stime  # with that of the descendants it has waited for
        if pid == process.pid:
            code = os.waitstatus_to_exitcode(status)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends first, such as servers, so as to count them (Linux)."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("this system does not let a process adopt orphans: CPU seconds would be missing")


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="tpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    adopt_orphans()
    target = targets.resolve(options.target)
    chosen = [entry for entry in load_list("smoke") if entry.model_type in ARCHITECTURES and not entry.package]
    cases = plan(chosen, [Phase.FORWARD], target.modes, [Dtype.FLOAT32], [Profile.PADDED])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        short_list = folder / "twelve.csv"
        with open(list_path("smoke"), newline="") as whole, short_list.open("w", newline="") as part:
            rows = list(csv.reader(whole))
            kept = [row for row in rows[1:] if row[0] in {entry.model_id for entry in chosen}]
            csv.writer(part).writerows([rows[0], *kept])
        fresh = 0.0

        def fresh_processes(some: list) -> float:
            total = 0.0
            for case in some:
                script = Path(__file__).with_name("fresh_process.py")
                command = [sys.executable, str(script), str(short_list), case.id, options.target, str(folder / "fresh")]
                seconds, code = cpu_seconds(command)
                print(f"fresh process  {seconds:7.1f} s  exit {code}  {case.id}", flush=True)
                total += seconds
            return total

        def night(name: str) -> float:
            command = [sys.executable, "-m", "harness.cli", "run", "--list", str(short_list)]
            command += ["--target", options.target, "--workers", str(options.workers), "--store", str(folder / name)]
            seconds, code = cpu_seconds([*command, "--cache", str(folder / "cache")])
            print(f"zoo, {name:10} {seconds:7.1f} s  exit {code}  all {len(cases)} cases", flush=True)
            return seconds

        fresh += fresh_processes(cases[: len(cases) // 2])
        cold, warm = night("cold"), night("warm")
        fresh += fresh_processes(cases[len(cases) // 2 :])
    each = {"fresh": fresh / len(cases), "zoo cold": cold / len(cases), "zoo warm": warm / len(cases)}
    print("CPU seconds per case: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in each.items()))
    print(f"figure: versus_fresh_process_cold {fresh / cold:.2f} ratio")
    print(f"figure: versus_fresh_process_warm {fresh / warm:.2f} ratio")


if __name__ == "__main__":
    main()
