"""A reference that cannot judge is said to be so."""

import pytest
import torch

from harness.cases import Verdict
from harness.numerics.reference_health import diagnose

VALUES = torch.linspace(-1, 1, 12)
NAN = VALUES.clone().index_fill_(0, torch.tensor([3]), float("nan"))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"y": VALUES}, {"y": VALUES.clone()}, None),
        ({"y": VALUES}, {"y": VALUES + 1e-6}, Verdict.NONDETERMINISTIC_REFERENCE),
        ({"y": VALUES}, {"y": VALUES[:6]}, Verdict.NONDETERMINISTIC_REFERENCE),
        ({"y": VALUES}, {"z": VALUES}, Verdict.NONDETERMINISTIC_REFERENCE),
        ({"y": NAN}, {"y": NAN.clone()}, Verdict.NONFINITE_REFERENCE),
        ({"y": torch.full((12,), 0.5)}, {"y": torch.full((12,), 0.5)}, Verdict.WEAK_REFERENCE),
        ({"y": torch.zeros(12)}, {"y": torch.zeros(12)}, Verdict.WEAK_REFERENCE),
        ({"y": torch.zeros(0)}, {"y": torch.zeros(0)}, Verdict.WEAK_REFERENCE),
        ({"y": torch.full((12,), float("inf"))}, {"y": torch.full((12,), float("inf"))}, Verdict.WEAK_REFERENCE),
        ({"y": torch.tensor(0.25)}, {"y": torch.tensor(0.25)}, None),
        ({"y": torch.arange(12)}, {"y": torch.arange(12)}, None),
        ({}, {}, Verdict.WEAK_REFERENCE),
    ],
)
def test_health(first, second, expected):
    truth = {path: leaf.double() if leaf.is_floating_point() else leaf for path, leaf in first.items()}
    found = diagnose(truth, first, second)
    assert (found[0] if found else None) is expected


def test_other_leaves_in_float64_are_an_error_of_the_reference():
    assert diagnose({}, {"y": VALUES}, {"y": VALUES})[0] is Verdict.REFERENCE_ERROR


@pytest.mark.parametrize(
    ("truth", "cpu", "expected"),
    [
        (VALUES.double(), VALUES + 0.3 * VALUES.roll(1), Verdict.WEAK_REFERENCE),
        (NAN.double(), VALUES, Verdict.NONFINITE_REFERENCE),
        (VALUES.double() * 1e6, torch.full((12,), float("inf"), dtype=torch.float16), Verdict.NONFINITE_REFERENCE),
        (VALUES.double(), VALUES.bfloat16(), None),
    ],
)
def test_a_truth_and_a_cpu_that_disagree_judge_nothing(truth, cpu, expected):
    found = diagnose({"y": truth}, {"y": cpu}, {"y": cpu.clone()})
    assert (found[0] if found else None) is expected


@pytest.mark.parametrize("second", [VALUES, VALUES + 1e-6])
def test_padding_makes_no_reference_sick(second):
    hidden = {"y": torch.tensor([[False] * 8 + [True] * 4] * 2)}
    first = {"y": torch.stack([VALUES, torch.where(hidden["y"][0], torch.nan, VALUES)])}
    again = {"y": torch.stack([VALUES, torch.where(hidden["y"][0], second, VALUES)])}
    truth = {"y": first["y"].double()}
    assert diagnose(truth, first, again, hidden) is None
    assert diagnose(truth, first, again) is not None


@pytest.mark.parametrize("apart", [0.0, 1e-9, 0.5])
@pytest.mark.parametrize("discrete", [False, True])
def test_samples_that_all_come_out_alike_show_nothing_of_the_inputs(apart, discrete):
    alike, own = torch.stack([VALUES, VALUES]), torch.stack([VALUES, VALUES + apart])
    first = {"y": (own > 0.3).int() if discrete else own, "z": alike, "of all": VALUES}
    truth = {path: leaf.double() if leaf.is_floating_point() else leaf for path, leaf in first.items()}
    found = diagnose(truth, first, first, rows=2)
    assert (found is None) is (apart == 0.5)
    assert diagnose(truth, first, first) is None, "of one sample nothing can be told"


def test_samples_that_differ_in_padding_alone_are_alike():
    first = {"y": torch.stack([VALUES, torch.cat([VALUES[:8], VALUES[8:] + 1])])}
    truth, hidden = {"y": first["y"].double()}, {"y": torch.tensor([[False] * 12, [False] * 8 + [True] * 4])}
    assert diagnose(truth, first, first, hidden, rows=2)[0] is Verdict.WEAK_REFERENCE
    assert diagnose(truth, first, first, rows=2) is None


@pytest.mark.parametrize(("scale", "expected"), [(1e3, Verdict.WEAK_REFERENCE), (1.0, None)])
def test_saturated_outputs_cannot_tell_an_error(scale, expected):
    truth = torch.tanh(scale * torch.linspace(-1, 1, 1000, dtype=torch.float64))
    found = diagnose({"y": truth}, {"y": truth.float()}, {"y": truth.float()})
    assert (found[0] if found else None) is expected
