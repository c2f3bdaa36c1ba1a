from __future__ import annotations

import pytest

from harness.wording import lasting
from results.history import Became, Ended, Limits, Quantity, Side, compare, components

HASH = "a" * 64


def side(*ended: Ended, planned: tuple[str, ...] = ()) -> Side:
    return Side({*planned, *(one.case_id for one in ended)}, {one.case_id: one for one in ended})


def became(before: Ended, after: Ended) -> Became:
    (change,) = compare(side(before), side(after)).changes
    return change.became


def passed(**numbers: object) -> Ended:
    return Ended("case", "PASS", "compare", "", **{"structure_sha256": HASH, **numbers})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("PASS", "PASS", Became.STILL_PASSING),
        ("PASS", "NUMERIC_MISMATCH", Became.REGRESSED),
        ("PASS", "BUILD_ERROR", Became.REGRESSED),
        ("CRASH", "PASS", Became.FIXED),
        ("CRASH", "CRASH", Became.STILL_FAILING),
        ("CRASH", "TIMEOUT", Became.CHANGED),
        ("PASS", "DEVICE_BUSY", Became.NO_LONGER_MEASURED),
        ("CRASH", "HARNESS_ERROR", Became.NO_LONGER_MEASURED),
        ("OOM_HOST", "CRASH", Became.MEASURED_AGAIN),
        ("OOM_HOST", "PASS", Became.MEASURED_AGAIN),
        ("OOM_HOST", "DISK_FULL", Became.NOT_MEASURED),
        ("PASS", "A_WORD_OF_LATER", Became.NO_LONGER_MEASURED),
    ],
)
def test_what_becomes_of_a_case_by_its_two_verdicts(before: str, after: str, expected: Became) -> None:
    assert became(Ended("case", before, "run"), Ended("case", after, "run")) is expected


def test_a_failure_is_the_same_where_verdict_stage_and_signature_are() -> None:
    first = Ended("case", "RUN_ERROR", "run", "cannot reshape 2x3 at 0x7f01 in /home/a/torch/ops.py:17")
    assert became(first, first._replace(message="cannot reshape 4x3 at 0x12ff in /c/ops.py:9")) is Became.STILL_FAILING
    assert became(first, first._replace(message="cannot permute 2x3")) is Became.CHANGED
    assert became(first, first._replace(stage="compile")) is Became.CHANGED


def test_what_lasts_of_a_hostile_message_is_found_without_end() -> None:
    assert lasting("a" * 200_000) == "HASH", "minutes if each letter began a search for the next slash"
    assert lasting("g" * 200_000) == "g" * 200_000
    assert lasting("a/" * 100_000 + "b\n") == "b"
    for piece in ("[ ", "(1,", "[1" + " " * 9, "1x", "1.", "1.a-", "0x", "-", "/", "~+-/", "abcdef01-"):
        assert lasting(piece * 50_000 + "!").endswith("!")


def test_a_failure_without_a_message_is_the_same_as_one_that_says_nothing() -> None:
    assert became(Ended("case", "CRASH", "run", None), Ended("case", "CRASH", "run", "")) is Became.STILL_FAILING


def test_only_what_ran_in_both_is_compared_and_the_rest_has_its_own_word() -> None:
    one, two, three = (Ended(name, "PASS", "compare") for name in ("one", "two", "three"))
    result = compare(side(one, two, planned=("four", "five")), side(one, three, planned=("two", "four")))
    assert {change.case_id: change.became for change in result.changes} == {
        "one": Became.STILL_PASSING,
        "two": Became.UNFINISHED,
        "three": Became.NEW,
        "four": Became.UNFINISHED,
        "five": Became.REMOVED,
    }
    assert result.compared == 1
    assert sum(result.counts.values()) == 5
    assert list(result.counts) == list(Became)


@pytest.mark.parametrize(
    ("quantity", "before", "after", "told"),
    [
        (Quantity.ERROR, 0.2, 0.5, True),
        (Quantity.ERROR, 0.5, 0.2, True),
        (Quantity.ERROR, 0.2, 0.3, False),
        (Quantity.ERROR, 0.0, 0.04, False),
        (Quantity.ERROR, 0.0, 0.9, True),
        (Quantity.LATENCY, 0.010, 0.016, True),
        (Quantity.LATENCY, 0.010, 0.014, False),
        (Quantity.LATENCY, 1e-6, 9e-4, False),
        (Quantity.HOST_MEMORY, 2**30, 2**31, True),
        (Quantity.HOST_MEMORY, 2**20, 2**25, False),
        (Quantity.DEVICE_MEMORY, 2**30, 2**29, True),
        (Quantity.DEVICE_MEMORY, None, 2**30, False),
    ],
)
def test_moves_beyond_the_factor_are_told_up_and_down(quantity, before, after, told) -> None:
    moves = compare(side(passed(**{quantity: before})), side(passed(**{quantity: after}))).moves
    assert [(move.quantity, move.before, move.after) for move in moves] == [(quantity, before, after)] * told


def test_limits_are_the_caller_s() -> None:
    before, after = side(passed(latency_seconds=1.0)), side(passed(latency_seconds=1.4))
    assert not compare(before, after).moves
    (move,) = compare(before, after, Limits(speed=1.3)).moves
    assert move.factor == pytest.approx(1.4)


def test_numbers_of_failures_and_of_other_jobs_are_not_compared() -> None:
    failing = passed(worst_ratio=0.1, latency_seconds=1.0)._replace(verdict="NUMERIC_MISMATCH")
    worse = failing._replace(worst_ratio=9.0, latency_seconds=9.0)
    assert not compare(side(failing), side(worse)).moves
    other = compare(side(passed(worst_ratio=0.1)), side(passed(worst_ratio=0.9, structure_sha256="b" * 64)))
    assert (other.rebuilt, other.moves, other.medians) == (1, (), {})
    unknown = compare(side(passed(worst_ratio=0.1)), side(passed(worst_ratio=0.9, structure_sha256=None)))
    assert (unknown.rebuilt, len(unknown.moves)) == (0, 1)


def test_the_median_is_over_all_that_could_be_compared() -> None:
    before = side(*(passed(latency_seconds=1.0)._replace(case_id=str(n)) for n in range(3)))
    after = side(*(passed(latency_seconds=1.0 + n / 10)._replace(case_id=str(n)) for n in range(3)))
    assert compare(before, after).medians == {Quantity.LATENCY: pytest.approx(1.1)}


def test_components_name_what_differs_and_nothing_else() -> None:
    before = {
        "python": "3.11.7",
        "packages": {"torch": "2.13.0", "torch_tpu": "0.2.0", "libtpu": None},
        "machine": {"cores": 2},
        "lists": {"smoke.csv": "aa"},
        "target": {"torch": "2.13.0", "plugin": "p 1"},
        "settings": {"cases": 3},
        "environment": {"XLA_FLAGS": "a"},
    }
    after = before | {
        "packages": {"torch": "2.13.0", "torch_tpu": "0.3.0", "libtpu": "0.0.52"},
        "target": {"torch": "2.14.0", "plugin": "p 2"},
        "settings": {"cases": 4},
        "environment": {},
    }
    assert components(before, after) == [
        ("torch_tpu", "0.2.0", "0.3.0"),
        ("target plugin", "p 1", "p 2"),
        ("environment XLA_FLAGS", "a", None),
        ("libtpu", None, "0.0.52"),
    ]
    assert components({}, {}) == []
