"""How often does the harness blame a backend that is right?

The backend is the CPU itself, so every wrong result it is said to have is a false alarm. In eager mode it runs the
whole architectures tier (forward, one input profile) with one thread, as the reference does, and with other numbers
of threads, which add up in another order. Compiled by Inductor, which fuses and reorders for good, it runs those
models that `--compiled` names (globs, as `zoo run -k` takes them; hours for all of them).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

import results
from harness.cases import Group, Verdict
from harness.jobs.runner import WRONG
from harness.targets.cpu import THREADS

RUN = ["run", "--tier", "architectures", "--phase", "forward", "--profile", "padded", "--target", "cpu"]
JUDGED = [Verdict.PASS, *(verdict for verdict in Verdict if verdict.group is Group.BACKEND)]
BLAMED = (Verdict.NONDETERMINISTIC, *WRONG)
"""What a backend that is right can be blamed for; its errors and crashes are its own."""


def main() -> None:
    """Run, list every false alarm, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 3], help="numbers of threads, eager")
    parser.add_argument("--only", nargs="+", default=[], metavar="GLOB", help="of these models alone")
    parser.add_argument("--compiled", nargs="+", default=[], metavar="GLOB", help="models that Inductor compiles too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zoo-alarms-") as folder:
        eager = pd.concat([_judged(Path(folder), n, "eager", options.only) for n in options.threads])
        compiled = _judged(Path(folder), 1, "compiled", options.compiled) if options.compiled else None
    alarms = _told(eager, "eager")
    print(f"figure: cases_judged_cpu {len(eager)} count")
    print(f"figure: false_alarms_cpu {alarms} count")
    if compiled is not None:
        alarms = _told(compiled, "compiled by Inductor")
        print(f"figure: cases_judged_inductor {len(compiled)} count")
        print(
            f"figure: false_alarm_share_inductor {alarms / len(compiled) if len(compiled) else float('nan'):.4f} share"
        )


def _judged(store: Path, threads: int, mode: str, words: list[str]) -> pd.DataFrame:
    """The cases of a run on so many threads that ended in a verdict about the CPU as a backend."""
    chosen = [part for word in words for part in ("-k", word)]
    command = [sys.executable, "-m", "harness.cli", *RUN, "--mode", mode, *chosen, "--store", str(store)]
    code = subprocess.run(command, check=False, env=os.environ | {THREADS: str(threads)}).returncode
    if code not in (0, 1):
        sys.exit(f"zoo run ended with exit code {code}: nothing to count")
    rows = results.load(store, runs="latest")
    return rows[rows.verdict.isin(JUDGED)].assign(threads=threads)


def _told(rows: pd.DataFrame, where: str) -> int:
    print(rows.groupby(["threads", "verdict"]).size().to_string())
    wrong = rows[rows.verdict.isin(BLAMED)]
    for row in wrong.itertuples():
        print(f"false alarm, {where}, {row.threads} threads: {row.case_id}: {row.verdict}: {row.message}")
    return len(wrong)


if __name__ == "__main__":
    main()
