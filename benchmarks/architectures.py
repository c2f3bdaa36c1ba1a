"""Of how many architectures does a night say something about the backend?

Runs one class of every model type that transformers registers (tier `architectures`, forward, one input
profile) in every mode of the target and counts the types whose every case ended in a verdict about the
backend: a pass or a failure of its own, and no error of building, inputs, reference or environment.
Arguments go to `zoo run` instead of these.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import results
from harness.cases import Group

ABOUT_THE_BACKEND = (Group.PASS, Group.BACKEND)
DEFAULT = ["--tier", "architectures", "--phase", "forward", "--profile", "padded", "--target", "tpu"]


def main() -> None:
    """Run and print the totals of each mode, every non-pass, and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=results.default_store())
    parser.add_argument("--count-only", action="store_true", help="count the last run of the store again")
    options, arguments = parser.parse_known_args()
    if not options.count_only:
        command = [sys.executable, "-m", "harness.cli", "run", *(arguments or DEFAULT), "--store", str(options.store)]
        code = subprocess.run(command, check=False, env=os.environ | {"PYTHONUNBUFFERED": "1"}).returncode
        if code not in (0, 1):
            sys.exit(f"zoo run ended with exit code {code}: nothing to count")
    rows = results.load(options.store, runs="latest")
    print(rows.groupby(["mode", "group", "verdict"]).size().to_string())
    for row in rows[rows.verdict != "PASS"].sort_values(["model_type", "mode"]).itertuples():
        print(f"{row.model_type}/{row.model_class} {row.mode}: {row.verdict} at {row.stage}: {row.message}")
    told = rows.assign(told=rows.group.isin([str(group) for group in ABOUT_THE_BACKEND]))
    by_type = told.groupby("model_type").told.all()
    passed = rows.assign(passed=rows.verdict == "PASS").groupby("model_type").passed.all()
    print(f"figure: architectures_planned {len(by_type)} count")
    print(f"figure: architectures_passing_every_mode {int(passed.sum())} count")
    print(f"figure: architectures_with_verdict {int(by_type.sum())} count")


if __name__ == "__main__":
    main()
