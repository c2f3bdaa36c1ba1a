"""What memory a case is predicted to need."""

from dataclasses import replace

import pytest

from harness.cases import Case, Dtype, Mode, Phase, Profile, Weights
from harness.plan.peaks import GUESS, predicted
from model_lists import load_list

ENTRY = next(entry for entry in load_list("smoke") if entry.model_type == "bert")
REAL = replace(ENTRY, weights=Weights.HUB, params=7 * 10**9)


def case(entry, dtype=Dtype.FLOAT32, phase=Phase.FORWARD):
    return Case(entry, phase, Mode.EAGER, dtype, Profile.PADDED)


def test_what_was_seen_counts_with_a_margin_and_is_the_least():
    peak = predicted(case(ENTRY), seen=1000)
    assert (peak.bytes, peak.least) == (1250, 1000)


def test_a_reference_of_real_weights_may_need_more_than_was_seen_on_the_target():
    seen = 28 * 10**9
    peak = predicted(case(REAL), seen)
    assert (peak.bytes, peak.least) == (84 * 10**9, seen)


def test_a_reduced_model_is_guessed_and_never_refused_for_that():
    assert (predicted(case(ENTRY)).bytes, predicted(case(ENTRY)).least) == (GUESS, None)
    assert predicted(case(replace(REAL, params=None))).least is None
    assert predicted(case(ENTRY), 1000).device is None


@pytest.mark.parametrize(
    ("dtype", "phase", "each", "on_device"),
    [
        (Dtype.FLOAT32, Phase.FORWARD, 12, 4),
        (Dtype.BFLOAT16, Phase.GENERATE, 10, 2),
        (Dtype.FLOAT32, Phase.TRAIN, 60, 12),
    ],
)
def test_real_weights_need_room_for_the_model_and_its_truth(dtype, phase, each, on_device):
    peak = predicted(case(REAL, dtype, phase))
    assert peak.least == 7 * 10**9 * each
    assert peak.device == 7 * 10**9 * on_device
    assert peak.bytes == peak.least + GUESS
