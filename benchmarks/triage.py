"""Of the failures there are, how many get a file that shows them, and how many the operator that causes them?

Faults of the catalogue (`tests/faults`) that replace kernels are put into the real target, each under an architecture
that fails with it, as `benchmarks/mutation.py` has found (`--notes`, else it is asked). A repro file counts that is run
twice in processes of its own: with the fault it exits with 1, without it with 0. Failures that the target has by itself
(`--real`) are tried too; of their files only the first can be seen.

    first_bad_op_share = wrong results of which the faulty operator is blamed / wrong results
    repro_share        = failures whose file counts / failures

Failures that are no more when they are tried, or that come and go, are left out.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import targets
from harness.cases import Case, Dtype, Entry, Group, Profile, Verdict
from harness.cli.reproducing import SECONDS, NoRepro, Reproducer, run_alone
from harness.derived import derived_list
from harness.jobs.attempts import WRONG
from harness.plan import from_ids
from harness.pytest_plugin.settings import default_cache
from harness.targets.base import Target
from model_lists import load_list
from results.schema import row as row_of
from results.store import repro_path

if TYPE_CHECKING:
    from catalogue import Fault

HERE = Path(__file__).parent
FAULTS = HERE.parent / "tests" / "faults"
_NOT_EVERY_TIME = (Verdict.NONDETERMINISTIC, Verdict.FLAKY)
REAL = (
    "wav2vec2/*/train/strict-eager/*",
    "minicpmv4_6/*/forward/strict-eager/*",
    "mamba2/*/train/compiled/*",
)  # fmt: skip
"""Failures of the emulated target that are no faults of ours: an operator it lacks, one that dies, a wrong gradient."""


def main() -> None:
    """Measure, and print a line for each failure and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="tpu")
    parser.add_argument("--notes", type=Path, help="what benchmarks/mutation.py --out has written")
    parser.add_argument("--fault", action="append", help="only faults whose name fits this glob")
    parser.add_argument("--each", type=int, default=1, help="architectures per fault (default: 1)")
    parser.add_argument("--real", action="append", help="ids or globs of cases that fail by themselves")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time to make each file smaller in")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--keep", type=Path, help="a folder for the files")
    options = parser.parse_args()
    sys.path.insert(0, str(FAULTS))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(FAULTS), os.getcwd(), os.environ.get("PYTHONPATH", "")])
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    from catalogue import every_fault

    faults = every_fault()
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        notes = options.notes or _asked(Path(scratch) / "notes.jsonl", options)
        pairs = list(_pairs(notes, faults, options))
        entries = [entry for name in ("smoke", derived_list(options.cache)) for entry in load_list(name)]
        trials = [(case, faults[name]) for case_id, name in pairs for case in from_ids([case_id], entries)]
        trials += [(case, None) for case in _real(options.real or REAL, entries, options)]
        laboratory = Laboratory(targets.resolve(options.target), options, options.keep or Path(scratch))
        try:
            with ThreadPoolExecutor(options.workers) as pool:
                told = list(pool.map(lambda pair: laboratory.shown(*pair), trials))
        finally:
            laboratory.close()
    _print([one for one in told if one])


def _asked(notes: Path, options: argparse.Namespace) -> Path:
    command = [sys.executable, str(HERE / "mutation.py"), "--target", options.target, "--each", str(options.each)]
    command += ["--out", str(notes), "--cache", str(options.cache), "--workers", str(options.workers)]
    for glob in options.fault or ():
        command += ["--fault", glob]
    subprocess.run(command, check=True)
    return notes


def _pairs(notes: Path, faults: dict[str, Fault], options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Cases and the faults that they fail with, as many for each fault as are asked for."""
    found: dict[str, int] = {}
    for row in map(json.loads, notes.read_text().splitlines()):
        name = row.get("fault")
        if name is None or row["verdict"] is None or Verdict(row["verdict"]).group is not Group.BACKEND:
            continue
        wanted = any(fnmatch.fnmatch(name, glob) for glob in options.fault or ["*"])
        known = name in faults and faults[name].kernels and not faults[name].behind_the_values
        if wanted and known and found.get(name, 0) < options.each:
            found[name] = found.get(name, 0) + 1
            yield row["case"], name


def _real(globs: Iterable[str], entries: Iterable[Entry], options: argparse.Namespace) -> list[Case]:
    """Of each glob the first case that fits."""
    target, found = targets.resolve(options.target), []
    cases = [
        Case(entry, phase, mode, Dtype.FLOAT32, Profile.PADDED)
        for entry in entries
        for phase in entry.phases
        for mode in target.modes
        if not entry.package
    ]
    for glob in globs:
        found += [case for case in cases if fnmatch.fnmatchcase(case.id, glob)][:1]
    return found


class Laboratory:
    """Makes failures and shows them, for several threads at once."""

    def __init__(self, target: Target, options: argparse.Namespace, folder: Path) -> None:
        self._target, self._cache, self._seconds = target, options.cache.absolute(), options.seconds
        self._folder, self._own = folder, threading.local()
        self._reproducers: list[Reproducer] = []

    def close(self) -> None:
        """End its processes."""
        for one in self._reproducers:
            one.__exit__()

    def _reproducer(self) -> Reproducer:
        """This thread's own."""
        if not hasattr(self._own, "reproducer"):
            self._own.reproducer = Reproducer(self._target, self._cache, seconds=self._seconds)
            self._reproducers.append(self._own.reproducer)
        return self._own.reproducer

    def shown(self, case: Case, fault: Fault | None) -> dict[str, Any] | None:
        """What became of one failure; None where the case does not fail, or not every time."""
        name, started = fault.id if fault else "", time.monotonic()
        reproducer = self._reproducer()
        reproducer.fault = name
        record = reproducer.run(case)
        row = row_of(record, "")
        told = {"case": case.id, "fault": name, "verdict": row["verdict"], "operator": row["blame_operator"] or ""}
        told |= {"named": fault and _named(told["operator"], fault), "lines": None, "shown": False, "why": ""}
        if record.verdict.group is not Group.BACKEND or record.verdict in _NOT_EVERY_TIME:
            print(f"not a failure every time: {row['verdict']} {name} {case.id}", flush=True)
            return None
        try:
            made = reproducer.make(case, row)
        except NoRepro as no:
            told["why"] = str(no)
        else:
            path = repro_path(self._folder / (name.replace(":", "-") or "real"), case.id)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made.text)
            gone = run_alone(made) if name else ""
            told |= {"lines": len(made.text.splitlines()), "shown": not gone}
            told["why"] = f"without the fault: {gone}" if gone else record.message
        end = "shown" if told["shown"] else "NOT SHOWN"
        seconds = time.monotonic() - started
        lines = f"{told['lines']} lines" if told["lines"] else ""
        blamed = f"{told['verdict']} {told['operator']}"
        print(f"{end:9} {seconds:5.0f} s {lines:8} {name} {case.id}: {blamed}; {told['why'][:160]}", flush=True)
        return told


def _named(operator: str, fault: Fault) -> bool:
    return _plain(operator) in map(_plain, fault.kernels)


def _plain(operator: str) -> str:
    """`add` of `aten.add_.Tensor`, `add.Tensor` and `add_`."""
    return operator.rpartition("::")[2].removeprefix("aten.").split(".")[0].strip("_")


def _print(told: Iterable[dict[str, Any]]) -> None:
    told = list(told)
    wrong = [one for one in told if one["fault"] and one["verdict"] in WRONG]
    print(f"figure: failures {len(told)} count")
    if wrong:
        print(f"figure: first_bad_op_share {sum(bool(one['named']) for one in wrong) / len(wrong):.4f} share")
    if told:
        print(f"figure: repro_share {sum(one['shown'] for one in told) / len(told):.4f} share")
    if lines := [one["lines"] for one in told if one["lines"]]:
        print(f"figure: repro_lines_most {max(lines)} lines")


if __name__ == "__main__":
    main()
