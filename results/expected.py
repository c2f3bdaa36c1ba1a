"""The one table that says what a verdict means beside what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, auto
from typing import assert_never

from harness.cases import Group, Stage, Verdict
from model_lists.expectations import Expectation


class Outcome(StrEnum):
    """A verdict, seen beside the expectations about its case."""

    EXPECTED = "expected"
    """A pass where nothing else is known, or the known failure."""
    UNEXPECTED = "unexpected"
    """A failure nobody knows about."""
    UNEXPECTED_PASS = "unexpected-pass"
    """A pass where a failure is known: its expectation has to go."""
    CHANGED_FAILURE = "changed-failure"
    """Another failure than the known one."""


class _Known(StrEnum):
    NOTHING = auto()
    THIS = auto()
    ANOTHER = auto()


def outcome(verdict: Verdict, stage: Stage, about: Sequence[Expectation]) -> tuple[Outcome, Expectation | None]:
    """The outcome of a case, and the expectation it rests on, of those `about` the case."""
    same = [e for e in about if e.verdict is verdict and e.stage in (None, stage)]
    known = _Known.THIS if same else _Known.ANOTHER if about else _Known.NOTHING
    return _table(verdict.group, known), next(iter([*same, *about]), None)


def _table(group: Group, known: _Known) -> Outcome:
    match group:
        case Group.PASS:
            match known:
                case _Known.NOTHING:
                    return Outcome.EXPECTED
                case _Known.THIS | _Known.ANOTHER:
                    return Outcome.UNEXPECTED_PASS
                case _:
                    assert_never(known)
        case Group.BACKEND | Group.MODEL | Group.ENVIRONMENT | Group.HARNESS:
            match known:
                case _Known.NOTHING:
                    return Outcome.UNEXPECTED
                case _Known.THIS:
                    return Outcome.EXPECTED
                case _Known.ANOTHER:
                    return Outcome.CHANGED_FAILURE
                case _:
                    assert_never(known)
        case _:
            assert_never(group)
