"""What is worth a limited time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Verdict
from harness.plan import PlanError
from harness.plan.budget import by_priority, parse_budget, wall, within
from harness.plan.durations import DEFAULT_SECONDS, HISTORY, NOTHING, SAME_MODE, SAME_MODEL, forecast
from harness.records import PastCase


def case(model: str, mode: Mode = Mode.COMPILED, model_type: str = "", dtype: Dtype = Dtype.FLOAT32) -> Case:
    entry = Entry(f"acme/{model}", "", "transformers", model_type or model, "Model", "", "", None, "smoke")
    return Case(entry, Phase.FORWARD, mode, dtype, Profile.PADDED)


def ran(day: int, verdict: Verdict = Verdict.PASS, seconds: float | None = 1.0) -> PastCase:
    return PastCase(seconds, verdict, f"2026-11-{day:02}T01:02:03+00:00")


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("90m", 5_400_000), ("1h30m", 5_400_000), ("45s", 45_000), ("2h", 7_200_000)]
)
def test_budgets(text, milliseconds):
    assert parse_budget(text) == milliseconds


@pytest.mark.parametrize("text", ["", "90", "0m", "m", "-5m", "1.5h", "90 minutes"])
def test_what_is_no_budget(text):
    with pytest.raises(PlanError, match="90m"):
        parse_budget(text)


def test_red_first_then_the_stalest_and_every_architecture_once_before_any_twice():
    red, old, recent, never = case("red"), case("old"), case("recent"), case("never")
    again = case("red-again", model_type="red")
    past = {
        red.id: ran(30, Verdict.NUMERIC_MISMATCH),
        again.id: ran(30, Verdict.CRASH),
        old.id: ran(1),
        recent.id: ran(29),
    }
    order = by_priority(dict.fromkeys((recent, never, again, old, red), 1000), past)
    assert [chosen.entry.model_type for chosen in order] == ["red", "never", "old", "recent", "red"]


def test_a_failure_of_the_machine_is_not_red():
    lacking, old = case("lacking"), case("old")
    past = {lacking.id: ran(30, Verdict.DEPENDENCY_MISSING), old.id: ran(1)}
    assert by_priority({lacking: 1, old: 1}, past) == [old, lacking]


def test_of_what_never_ran_new_architectures_come_first():
    other = case("known-2", model_type="known")
    new = case("new")
    past = {case("known").id: ran(30)}
    order = by_priority({case("known"): 1, other: 1, new: 1}, past)
    assert order == [new, other, case("known")]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60_000)), max_size=25),
    st.integers(1, 120_000),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_what_is_chosen_fits(drawn, budget, shards, workers):
    milliseconds = {case(f"m{number}", model_type=f"t{kind}"): time for number, (kind, time) in enumerate(drawn)}
    chosen = within(budget, milliseconds, {}, shards, workers)
    assert len(set(chosen)) == len(chosen)
    assert wall({one: milliseconds[one] for one in chosen}, shards, workers) <= budget
    if shards == workers == 1:
        smallest_left = min((time for one, time in milliseconds.items() if one not in chosen), default=None)
        spare = budget - sum(milliseconds[one] for one in chosen)
        assert smallest_left is None or smallest_left > spare


def test_a_budget_for_everything_leaves_nothing_out():
    milliseconds = {case(f"m{number}"): 1000 for number in range(20)}
    assert set(within(10_000, milliseconds, {}, 2, 1)) == set(milliseconds)


def test_a_time_is_the_cases_own_else_the_models_else_the_modes_else_a_guess():
    known, sibling, other, alone = (
        case("a"),
        case("a", dtype=Dtype.BFLOAT16),
        case("b"),
        case("c", mode=Mode.STRICT_EAGER),
    )
    past = {known.id: ran(1, seconds=4.0), case("z").id: ran(1, seconds=10.0)}
    expected = forecast((known, sibling, other, alone), past)
    assert list(expected.milliseconds.values()) == [4000, 4000, 7000, round(DEFAULT_SECONDS * 1000)]
    assert list(expected.basis.values()) == [HISTORY, SAME_MODEL, SAME_MODE, NOTHING]
    assert expected.guessed == 3
    assert "3 of 4 cases" in expected.warning("cpu")
    assert forecast((known,), past).warning("cpu") == ""
