"""The emulated target runs real operators; one preloaded process serves all tests of this module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cases import Verdict

TOLERANCE = 5e-6


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    script = Path(__file__).with_name("emulated_probes.py")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path_factory.mktemp("cache"))],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_it_says_what_executes(probes):
    described = probes["description"]
    assert described["target"] == "tpu-emulated"
    assert described["plugin"] == "lammps-jax-pjrt-cpu 0.11.2"
    assert described["pjrt_api"].startswith("0.")
    assert described["torch_tpu"]


def test_executed_and_compiled_programs_are_counted_and_start_at_zero_in_a_child(probes):
    start, proved, worked = probes["counting"]
    assert start[0] == start[2] == 0
    assert proved[0] >= 1
    assert worked[0] - proved[0] == 4
    assert worked[2] - proved[2] == 1


def test_attention_equals_the_cpus(probes):
    assert max(probes["attention"]) < TOLERANCE


def test_cumulative_operators_and_what_is_built_on_them_equal_the_cpus(probes):
    wrong = {name: error for name, error in probes["scans"].items() if isinstance(error, str) or error > TOLERANCE}
    assert not wrong


def test_operators_of_the_backend_alone_are_repeated_by_the_cpu_and_a_wrong_one_is_found(probes):
    *right, wrong = probes["pooling"]
    assert right == [[[], {}, True]] * 3
    assert wrong == [["tpu._max_pool2d.default"], {}, True]


def test_indexing_by_a_tensor_on_the_device_does_not_deadlock(probes):
    assert probes["zero-dimensional index"] == 3.0


def test_every_forked_child_can_compute_gradients(probes):
    assert probes["gradients in children"] == [[[6.0, 4.0], [6.0, 4.0]]] * 20


@pytest.mark.parametrize("model", ["mixture of experts", "no experts"])
def test_a_model_loaded_as_a_user_does_equals_the_cpu_in_every_mode(probes, model):
    results = probes[model]
    for mode in ("strict-eager", "defer-and-fuse", "compiled"):
        assert results[mode] < TOLERANCE
        assert results[mode + " device"] == "tpu"


def test_programs_of_an_earlier_process_are_reused_and_give_the_same_numbers(probes):
    first, second, third = (probes[f"compiled {n}"] for n in ("first", "second", "third"))
    assert max(first[0], second[0], third[0]) < TOLERANCE
    assert first[1] > 0
    assert second[1] == third[1] == 0


def test_a_damaged_cache_costs_a_compile_and_nothing_else(probes):
    error, compiles = probes["damaged cache"]
    assert error < TOLERANCE
    assert compiles == probes["compiled first"][1]


def test_a_mode_sets_execution_precision_and_cache_folder_and_restores_them(probes):
    seen, restored = probes["modes and precision"]
    assert seen == [
        ["highest", "DEFER_NEVER", "strict-eager"],
        ["highest", "DEFER_AND_FUSE", "defer-and-fuse"],
        ["highest", "DEFER_NEVER", "compiled"],
    ]
    assert restored


@pytest.mark.parametrize(
    ("probe", "verdict", "text"),
    [
        ("unsupported operator", Verdict.UNSUPPORTED_OP, "aten::logaddexp.out"),
        ("missing factorisation", Verdict.EMULATION_LIMIT, "LuDecomposition"),
        ("missing grouped matmul", Verdict.EMULATION_LIMIT, "ragged-dot"),
        ("missing fused attention", Verdict.EMULATION_LIMIT, "tpu_custom_call"),
        ("forked after client", Verdict.HARNESS_ERROR, "forked subprocess"),
    ],
)
def test_errors_provoked_on_the_device_have_their_verdicts(probes, probe, verdict, text):
    found, message = probes[probe]
    assert (found, text in message) == (verdict, True), message


def test_a_device_draws_the_cpus_numbers_once_it_is_told_to(probes):
    before, after = probes["draws"]
    assert not any(before.values())
    assert all(after.values()), after
