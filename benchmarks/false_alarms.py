"""How often does the harness blame a backend that is right?

The backend is the CPU itself, so every wrong result it is said to have is a false alarm. It runs the whole
architectures tier (forward, one input profile): in eager mode with one thread, as the reference does, and with other
numbers of threads, which add up in another order; and compiled by Inductor, which fuses and reorders for good. To
compile all takes about two hours on two cores: of a run that is ended (SIGTERM to `zoo run`) what was done counts.

Inductor may be wrong itself. Where one call of a program, repeated alone with the very same arguments, is not what the
CPU makes of it, the blame is deserved: such cases are listed and counted apart, as found_wrong.
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
from harness.cases import Verdict
from harness.cli import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNEXPECTED
from harness.jobs.attempts import WRONG
from harness.targets.cpu import THREADS

RUN = ["run", "--tier", "architectures", "--phase", "forward", "--profile", "padded", "--target", "cpu"]
BLAMED = (Verdict.NONDETERMINISTIC, Verdict.HOST_FALLBACK, Verdict.RECOMPILES, *WRONG)
"""What a backend that is right can be blamed for; its errors and crashes are its own."""


def main() -> None:
    """Run, list every false alarm, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2, 3], help="numbers of threads, eager")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="GLOB", help="models, as `zoo run -k` takes them")
    parser.add_argument(
        "--compiled", nargs="*", metavar="GLOB", help="models that Inductor compiles (default: all these)"
    )
    options = parser.parse_args()
    compiled = options.only if options.compiled is None else options.compiled
    runs = {
        "cpu": [(threads, "eager", options.only) for threads in options.threads],
        "inductor": [(1, "compiled", compiled)] if compiled else [],
    }
    with tempfile.TemporaryDirectory(prefix="zoo-alarms-") as folder:
        rows = {name: pd.concat([_rows(Path(folder), *run) for run in own]) for name, own in runs.items() if own}
    found = {name: _told(own, name) for name, own in rows.items()}
    for name, (judged, wrong, alarms) in found.items():
        print(f"figure: cases_judged_{name} {judged} count")
        print(f"figure: found_wrong_{name} {wrong} count")
        print(f"figure: false_alarms_{name} {alarms} count")
        if judged:
            print(f"figure: false_alarm_share_{name} {alarms / judged:.4f} share")


def _rows(store: Path, threads: int, mode: str, words: list[str]) -> pd.DataFrame:
    """The rows of a run on so many threads."""
    chosen = [part for word in words for part in ("-k", word)]
    command = [sys.executable, "-m", "harness.cli", *RUN, "--mode", mode, *chosen, "--store", str(store)]
    code = subprocess.run(command, check=False, env=os.environ | {THREADS: str(threads)}).returncode
    if code == EXIT_INTERRUPTED:
        print("interrupted: what follows is of the cases that had ended by then")
    elif code not in (EXIT_OK, EXIT_UNEXPECTED):
        sys.exit(f"zoo run ended with exit code {code}: nothing to count")
    return results.load(store, runs="latest").assign(threads=threads)


def _told(rows: pd.DataFrame, where: str) -> tuple[int, int, int]:
    """How many cases had outputs that were judged, and how many were blamed, rightly and not; prints what ended how."""
    print(rows.groupby(["threads", "verdict"]).size().to_string())
    wrong = rows[rows.verdict.isin(BLAMED)]
    deserved = wrong.blame_operator.fillna("") != ""
    for row, rightly in zip(wrong.itertuples(), deserved, strict=True):
        word = "found wrong" if rightly else "false alarm"
        print(f"{word}, {where}, {row.threads} threads: {row.case_id}: {row.verdict}: {row.message}")
    judged = len(wrong) + int((rows.verdict == Verdict.PASS).sum())
    return judged, int(deserved.sum()), int((~deserved).sum())


if __name__ == "__main__":
    main()
