"""The catalogue of faults: each is about something real on the device, and about nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import catalogue
import pytest

from harness.cases import Mode, Phase

HERE = Path(__file__).parent
FAULTS = catalogue.every_fault()
COMPILED_SAMPLE = (
    "activation_faults:gelu_by_tanh",
    "attention_faults:attention_ignores_its_mask",
    "normalisation_faults:softmax_over_the_axis_before",
    "gradient_faults:silu_slope_without_a_term",
)
"""Of the faults that act in every mode, those that are compiled here: a compilation takes a while."""
EAGER_SAMPLE = (
    "activation_faults:gelu_by_tanh",
    "indexing_faults:topk_misses_the_second",
    "memory_faults:write_to_a_view_is_lost",
    "memory_faults:activation_ignores_strides",
    "gradient_faults:embedding_gradient_overwrites",
)


def probed(mode, cache, *names):
    """What `fault_probes.py` says of each fault, by name."""
    paths = os.pathsep.join([str(HERE.parents[1]), str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / "fault_probes.py"), mode, str(cache), *names],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-2000:]
    return {one["fault"]: one for one in told}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def strict(cache):
    return probed(Mode.STRICT_EAGER, cache)


def problems(told):
    """One line for each fault that is not what it says it is."""
    found = []
    for name, one in told.items():
        fault = FAULTS[name]
        if "error" in one:
            found.append(f"{name}: {one['error']}")
            continue
        shows_nothing = fault.behind_the_values or isinstance(fault, catalogue.ProcessFault)
        if not one["shown"] and not shows_nothing:
            found.append(f"{name}: its example is the same with it")
        if not one["spared"]:
            found.append(f"{name}: what it should spare is changed")
        if not one["restored"]:
            found.append(f"{name}: it is not gone when it is taken out")
        if not one["calls"]:
            found.append(f"{name}: it was never called")
    return found


def test_there_are_many_of_many_kinds():
    assert len(FAULTS) >= 80
    assert len({fault.kind for fault in FAULTS.values()}) >= 10
    assert len({fault.name for fault in FAULTS.values()}) == len(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_says_what_it_is(name):
    fault = FAULTS[name]
    assert fault.like
    assert "\n" not in fault.like
    assert fault.modes
    assert fault.modes <= catalogue.EVERYWHERE
    assert fault.phases
    assert set(fault.phases) <= set(Phase)
    for operator in fault.kernels:
        if "::" not in operator:
            assert catalogue.overload(operator), "a misspelt operator would never be executed"


def test_each_is_wrong_where_it_says_and_nowhere_else(strict):
    assert set(strict) == {name for name, fault in FAULTS.items() if Mode.STRICT_EAGER in fault.modes}
    assert problems(strict) == []


def test_fused_and_compiled_programs_have_them_too(cache):
    assert problems(probed(Mode.DEFER_AND_FUSE, cache, *EAGER_SAMPLE)) == []
    compiled = [name for name, fault in FAULTS.items() if fault.modes == catalogue.COMPILED]
    told = probed(Mode.COMPILED, cache, *compiled, *COMPILED_SAMPLE)
    assert set(told) == {*compiled, *COMPILED_SAMPLE}
    assert problems(told) == []


def test_a_silent_fallback_executes_less_and_a_bad_key_compiles_more(strict):
    fallback = strict["control_faults:linear_falls_back_to_the_cpu"]
    assert fallback["executed"] < strict["precision_faults:linear_without_bias"]["executed"]
    assert strict["control_faults:norm_is_compiled_at_every_call"]["compiled"] > 0
    assert "is not implemented for TPU" in strict["control_faults:activation_is_missing"]["said"]
