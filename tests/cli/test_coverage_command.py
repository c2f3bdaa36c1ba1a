"""`zoo coverage` from the outside: what it counts, prints and writes, and that it leaves nothing behind."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import time

import psutil

from harness.models import registered


def _start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness.cli", "coverage", *map(str, arguments)]
    # A shell's background jobs, and so their children, have Ctrl-C ignored.
    attended = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=attended)


def test_one_sweep_gives_both_shares_and_accounts_for_every_class_in_the_librarys_order(tmp_path):
    out = tmp_path / "rows.csv"
    process = _start("--pairs", "--only", "gpt2", "--only", "esmfold2", "--workers", 2, "--out", out)
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 0, printed
    with out.open() as file:
        rows = list(csv.DictReader(file))
    pairs = [pair for pair in registered.pairs() if pair.model_type == "gpt2"]
    assert [row["model_class"] for row in rows] == ["", *(pair.model_class for pair in pairs)]
    assert [row["model_type"] for row in rows if row["stands_for_type"] == "True"] == ["esmfold2", "gpt2"]
    assert sum(int(row["mapping_rows"]) for row in rows) == sum(len(pair.tasks) for pair in pairs)
    covered = [row for row in rows if row["state"] == "covered"]
    assert all(float(row["cpu_seconds"]) > 0 and int(row["parameters"]) > 0 for row in covered)
    figures = dict(re.findall(r"^figure: (\w+) (\S+)", printed, re.MULTILINE))
    assert float(figures["base_types_covered_share_of_all"]) == 0.5
    assert float(figures["pairs_covered_share"]) == round(len(covered) / len(pairs), 4)
    assert float(figures["median_build_reference_cpu_seconds"]) > 0


def test_ctrl_c_tells_what_is_known_and_leaves_no_process(tmp_path):
    out = tmp_path / "rows.csv"
    process = _start("--only", "b*", "--workers", 2, "--out", out)
    for line in process.stdout:
        if re.match(r"\[\d+/\d+\]", line):
            break
    below = psutil.Process(process.pid).children(recursive=True)
    assert below
    os.kill(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130, printed
    assert "this is what is known so far" in printed
    assert "covered" in out.read_text()
    until = time.monotonic() + 60
    while time.monotonic() < until and any(child.is_running() for child in below):
        time.sleep(0.1)
    assert not any(child.is_running() for child in below)
