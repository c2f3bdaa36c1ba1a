"""Which pairs of a fault and an architecture count: what a fault changes, as a multiple of the CPU's noise."""

import importlib
import math
from pathlib import Path

import pytest
import torch

from harness.execution.reference import Reference

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def change(monkeypatch):
    """How much one leaf changes from `old` to `new`, where the CPU is off the truth by 1e-6 everywhere."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    job = importlib.import_module("mutation_job")

    def measured(old, new, hidden=None):
        truth = old.double() if old.is_floating_point() else old
        cpu = (truth + 1e-6).to(old.dtype) if old.is_floating_point() else old
        known = Reference({"x": truth}, {"x": cpu}, hidden={} if hidden is None else {"x": hidden})
        return job._change({"x": old}, {"x": new}, known)[0]

    return measured


def ones(*shape):
    return torch.linspace(0.5, 1.5, math.prod(shape)).reshape(shape)


def test_a_change_is_told_in_units_of_the_noise(change):
    x = ones(4, 8)
    assert change(x, x) == 0
    assert change(x, x + 1e-4) == pytest.approx(100, rel=0.1)
    assert change(x, x + 2e-6) == pytest.approx(2, rel=0.2)


def test_one_wrong_element_of_many_counts(change):
    x = ones(100, 100)
    wrong = x.clone()
    wrong[3, 4] += 1e-3
    assert change(x, wrong) > 100


def test_what_has_no_size_counts_whatever_the_noise(change):
    x = ones(4, 8)
    assert change(x, x.double()) == math.inf
    assert change(x, x[:2]) == math.inf
    assert change(x, torch.where(x > 1, float("nan"), x)) == math.inf
    whole = torch.arange(8)
    assert change(whole, whole.flip(0)) == math.inf


def test_what_is_of_padding_does_not(change):
    x, hidden = ones(4, 8), torch.zeros(4, 8, dtype=torch.bool)
    hidden[:, :2] = True
    assert change(x, torch.where(hidden, 7.0, x), hidden) == 0
    assert change(x, torch.where(~hidden, 7.0, x), hidden) > 100
