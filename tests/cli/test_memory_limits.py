"""What a run does with cases that the store says are too large, told by the real command line."""

import subprocess
import sys

import results
from model_lists import load_list

ENTRY = next(entry for entry in load_list("smoke") if entry.model_type == "bert" and not entry.package)
CASE = f"{ENTRY.id}/forward/eager/float32/padded"


def zoo(environment, folder, *arguments, **extra):
    command = [sys.executable, "-m", "harness.cli", *arguments, "-k", CASE, "--target", "cpu"]
    env = environment(plugins="", **extra)
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_a_case_that_needed_more_than_there_is_now_is_not_started(tmp_path, environment, night):
    night({CASE: {"peak_host_bytes": 5 * 10**9, "wall_seconds": 1.0}})
    plan = zoo(environment, tmp_path, "plan", ZOO_MEMORY="4GB")
    assert "memory: at most 4,768 MiB in one process; 1 cases are TOO_LARGE for this machine" in plan.stdout
    for workers in ("1", "2"):
        done = zoo(environment, tmp_path, "run", "--workers", workers, "--memory", "4GB", ZOO_MEMORY="64GB")
        assert done.returncode == 2, done.stdout + done.stderr
        assert "TOO_LARGE" in done.stdout
        assert "it needs 5 GB of memory (5000000000 bytes), and jobs may use 4 GB here" in done.stdout
        assert set(results.load(tmp_path / "store", runs="latest").verdict) == {"TOO_LARGE"}


def test_a_limit_that_is_none_is_one_clear_line_before_anything_starts(tmp_path, environment):
    for verb in ("run", "plan"):
        done = zoo(environment, tmp_path, verb, ZOO_MEMORY="lots")
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert "ZOO_MEMORY='lots' is no amount of memory" in done.stderr + done.stdout
    done = zoo(environment, tmp_path, "run", "--memory", "16XB")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--memory '16XB' is no amount of memory: give one such as 16GB" in done.stderr
