"""The verdict rule: what it must never pass, and what must not change it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases import Verdict
from harness.numerics.judge import agree, judge

DTYPES = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
seeds = st.integers(0, 2**31 - 1)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def noisy(truth: torch.Tensor, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """A correct implementation: truth with relative errors of the size that `dtype` makes."""
    return (truth * (1 + DTYPES[dtype] * drawn(seed, *truth.shape))).to(dtype)


def verdict(truth: torch.Tensor, cpu: torch.Tensor, target: torch.Tensor) -> Verdict:
    return judge({"y": truth}, {"y": cpu}, {"y": target}).verdict


@given(seed=seeds, dtype=st.sampled_from(list(DTYPES)), size=st.integers(1, 400), scale=st.floats(1e-3, 1e3))
@settings(max_examples=60, deadline=None)
def test_another_correct_implementation_passes_at_any_scale(seed, dtype, size, scale):
    truth = drawn(seed, size) * scale
    assert verdict(truth, truth.to(dtype), truth.to(dtype)) is Verdict.PASS
    if size >= 100:  # the CPU's own error needs samples to be an estimate
        cpu, target = noisy(truth, dtype, seed + 1), noisy(truth, dtype, seed + 2)
        assert verdict(truth, cpu, target) is Verdict.PASS


@given(
    seed=seeds,
    dtype=st.sampled_from(list(DTYPES)),
    size=st.integers(8, 400),
    wrong=st.sampled_from(
        [
            lambda y: y * 2,
            lambda y: -y,
            lambda y: y + y.abs().max(),
            lambda y: torch.zeros_like(y),
            lambda y: y.flip(0),
            lambda y: torch.cat([y[:-1], y[:1] + 2 * y.abs().max()]),
        ]
    ),
)
@settings(max_examples=60, deadline=None)
def test_wrong_values_never_pass(seed, dtype, size, wrong):
    truth = drawn(seed, size) + 0.1
    cpu = noisy(truth, dtype, seed + 1)
    assert verdict(truth, cpu, wrong(cpu)) is Verdict.NUMERIC_MISMATCH


@given(seed=seeds, exponent=st.integers(-60, 60))
@settings(max_examples=40, deadline=None)
def test_the_rule_does_not_depend_on_scale(seed, exponent):
    truth = drawn(seed, 50)
    cpu = noisy(truth, torch.float32, seed + 1)
    target = cpu * (1 + 10 ** float(drawn(seed + 2, 1) - 5))
    factor = 2.0**exponent
    assert verdict(truth, cpu, target) is verdict(truth * factor, cpu * factor, target * factor)


@given(seed=seeds, order=st.permutations(["a", "b", "c"]))
@settings(max_examples=20, deadline=None)
def test_the_order_of_leaves_does_not_matter(seed, order):
    truth = {name: drawn(seed + i, 20) for i, name in enumerate("abc")}
    cpu = {name: leaf.float() for name, leaf in truth.items()}
    target = dict(cpu, b=cpu["b"] * 1.5)
    judged = judge({k: truth[k] for k in order}, {k: cpu[k] for k in order}, {k: target[k] for k in order})
    assert (judged.verdict, judged.worst.path) == (Verdict.NUMERIC_MISMATCH, "b")


def test_one_wrong_element_among_many_is_seen_and_named():
    truth = drawn(0, 100, 1000)
    target = truth.float()
    target[42, 7] += 0.01
    worst = judge({"y": truth}, {"y": truth.float()}, {"y": target}).worst
    assert worst.verdict is Verdict.NUMERIC_MISMATCH
    assert worst.index == (42, 7)
    assert worst.actual - worst.expected == pytest.approx(0.01, rel=1e-3)
    assert worst.ratio > 1


def test_non_finite_comes_before_everything_else():
    truth = {"a": drawn(0, 8), "b": drawn(1, 8)}
    cpu = {name: leaf.float() for name, leaf in truth.items()}
    bad = cpu["b"].clone()
    bad[3] = float("nan")
    assert judge(truth, cpu, {"b": bad}).verdict is Verdict.NONFINITE_DEVICE_ONLY
    assert judge(truth, dict(cpu, b=bad), cpu).verdict is Verdict.NONFINITE_REFERENCE_ONLY


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), torch.finfo(torch.float32).min, -1e9, 65504.0])
def test_masked_elements_must_agree_and_do_not_widen_the_allowance(value):
    truth = drawn(0, 64)
    cpu = truth.float()
    cpu[:8] = value
    truth[:8] = torch.finfo(torch.float64).min if value == torch.finfo(torch.float32).min else value
    target = cpu.clone()
    assert verdict(truth, cpu, target) is Verdict.PASS
    target[20] += 0.01
    assert verdict(truth, cpu, target) is Verdict.NUMERIC_MISMATCH
    flipped = cpu.clone()
    flipped[0] = -value
    assert verdict(truth, cpu, flipped) is not Verdict.PASS


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("mask", [-1e4, 1e3])
def test_a_mask_that_is_added_to_scores_does_not_widen_what_the_rest_may_be_off_by(mask, share):
    hidden = torch.arange(1000) < 1000 * share
    truth = drawn(0, 1000) + mask * hidden
    cpu = truth.float()
    assert verdict(truth, cpu, cpu) is Verdict.PASS
    wrong = torch.where(hidden, cpu, cpu * (1 + 1e-4))
    assert verdict(truth, cpu, wrong) is Verdict.NUMERIC_MISMATCH
    assert verdict(truth, cpu, torch.where(hidden, cpu * 1.001, cpu)) is Verdict.NUMERIC_MISMATCH


@given(seed=seeds, sizes=st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)))
@settings(max_examples=60, deadline=None)
def test_few_elements_are_never_judged_by_the_luck_of_the_smaller_ones(seed, sizes):
    truth = torch.tensor(sizes, dtype=torch.float64)
    noise = 1e-6 * truth.abs().max()
    cpu, target = ((truth + noise * torch.sign(drawn(seed + i, 2))).float() for i in range(2))
    assert verdict(truth, cpu, target) is Verdict.PASS


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({}, Verdict.WRONG_STRUCTURE),
        ({"y": torch.ones(4), "z": torch.ones(1)}, Verdict.WRONG_STRUCTURE),
        ({"y": torch.ones(2, 2)}, Verdict.WRONG_SHAPE),
        ({"y": torch.ones(4, dtype=torch.bfloat16)}, Verdict.WRONG_DTYPE),
        ({"y": torch.ones(4)}, Verdict.PASS),
    ],
)
def test_structure_shape_and_dtype_have_their_own_verdicts(target, expected):
    assert judge({"y": torch.ones(4).double()}, {"y": torch.ones(4)}, target).verdict is expected


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.uint8])
def test_discrete_outputs_are_exact(dtype):
    values = torch.tensor([0, 1, 1, 0]).to(dtype)
    assert verdict(values, values, values.clone()) is Verdict.PASS
    judged = judge({"y": values}, {"y": values}, {"y": values.roll(1)})
    assert judged.verdict is Verdict.NUMERIC_MISMATCH
    assert "discrete" in judged.worst.note


def test_complex_outputs_are_judged_in_both_parts():
    truth = torch.complex(drawn(0, 16), drawn(1, 16))
    cpu = truth.to(torch.complex64)
    assert verdict(truth, cpu, cpu.clone()) is Verdict.PASS
    assert verdict(truth, cpu, cpu.conj().resolve_conj()) is Verdict.NUMERIC_MISMATCH


def test_nothing_to_judge_is_no_pass():
    assert judge({}, {}, {}).verdict is Verdict.WEAK_REFERENCE


def test_an_empty_leaf_needs_no_value_but_its_shape():
    full, empty = torch.ones(2), torch.empty(0, 3)
    for target, expected in ((empty, Verdict.PASS), (torch.empty(3, 0), Verdict.WRONG_SHAPE)):
        judged = judge(*({"x": full.to(kind), "y": empty.to(kind)} for kind in (torch.float64, torch.float32)),
                       {"x": full, "y": target})  # fmt: skip
        assert judged.verdict is expected


@given(shape=st.lists(st.integers(0, 3), min_size=1, max_size=3).filter(lambda sizes: 0 in sizes))
def test_outputs_that_are_empty_are_no_pass(shape):
    empty = torch.empty(shape)
    assert verdict(empty.double(), empty, empty.clone()) is Verdict.WEAK_REFERENCE


@given(seed=seeds, dtype=st.sampled_from(list(DTYPES)), size=st.integers(1, 40), count=st.integers(1, 40))
def test_nan_on_both_sides_is_no_pass(seed, dtype, size, count):
    cpu = drawn(seed, size).to(dtype)
    cpu[:count] = float("nan")
    assert verdict(cpu.double(), cpu, cpu.clone()) is Verdict.NONFINITE_REFERENCE


def test_squares_that_overflow_or_vanish_do_not_blind_the_rule():
    for scale in (1e-30, 1e30):
        truth = drawn(0, 32).float().double() * scale
        cpu = truth.float()
        assert verdict(truth, cpu, cpu) is Verdict.PASS
        assert verdict(truth, cpu, cpu * 1.01) is Verdict.NUMERIC_MISMATCH


@pytest.mark.parametrize("bad", [7.0, float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_what_padding_holds_is_not_judged_and_everything_else_is(bad, dtype):
    cpu = drawn(0, 2, 4, 3).to(dtype)
    truth, hidden = cpu.to(torch.complex128 if dtype.is_complex else torch.float64), torch.zeros(2, 4, 3) == 1
    hidden[1, 2:] = True
    at_padding, before_it = cpu.clone(), cpu.clone()
    at_padding[1, 2:], before_it[1, 1, 0] = bad, bad
    assert judge({"y": truth}, {"y": cpu}, {"y": at_padding}, {"y": hidden}).verdict is Verdict.PASS
    assert judge({"y": truth}, {"y": cpu}, {"y": at_padding}).verdict is not Verdict.PASS
    assert judge({"y": truth}, {"y": cpu}, {"y": before_it}, {"y": hidden}).verdict is not Verdict.PASS


def test_discrete_values_of_padding_are_not_judged_and_its_shape_is():
    cpu, hidden = torch.arange(6).view(2, 3), torch.tensor([[False] * 3, [False, False, True]])
    other = cpu.clone().index_put_((torch.tensor(1), torch.tensor(2)), torch.tensor(9))
    assert judge({"y": cpu}, {"y": cpu}, {"y": other}, {"y": hidden}).verdict is Verdict.PASS
    assert judge({"y": cpu}, {"y": cpu}, {"y": other[:, :2]}, {"y": hidden}).verdict is Verdict.WRONG_SHAPE


def test_a_nan_of_padding_is_told():
    cpu, hidden = drawn(0, 2, 3).float(), torch.tensor([[False] * 3, [False, False, True]])
    target = cpu.clone().index_put_((torch.tensor(1), torch.tensor(2)), torch.tensor(float("nan")))
    judged = judge({"y": cpu.double()}, {"y": cpu}, {"y": target}, {"y": hidden})
    assert judged.message == "y: 1 elements are NaN or infinite on the target, all of padding"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (lambda y: y, True),
        (lambda y: y * (1 + 1e-7), True),
        (lambda y: y * 1.5, False),
        (lambda y: torch.full_like(y, float("nan")), False),
        (lambda y: y[:2], False),
        (lambda y: y.bfloat16(), False),
    ],
)
@pytest.mark.parametrize("wrong", [1.0, 3.0, float("nan")])
def test_two_runs_agree_where_no_more_than_noise_is_between_them(other, expected, wrong):
    truth = drawn(0, 4, 3)
    cpu = truth.float()
    one = cpu * wrong
    expected = expected or bool(one.isnan().all() and other(one).shape == one.shape and other(one).dtype == one.dtype)
    assert agree({"y": truth}, {"y": cpu}, {"y": one}, {"y": other(one)}) is expected


def test_two_runs_that_choose_otherwise_disagree_even_where_one_is_right():
    cpu = torch.arange(6)
    assert agree({"y": cpu}, {"y": cpu}, {"y": cpu.flip(0)}, {"y": cpu}) is False
    assert agree({"y": cpu}, {"y": cpu}, {"y": cpu.flip(0)}, {"y": cpu.flip(0)}) is True
