"""The one table that says what a verdict means beside what was expected."""

from __future__ import annotations

from enum import StrEnum, auto
from typing import assert_never

from harness.cases import Group, Stage, Verdict
from model_lists.expectations import Expectation


class Outcome(StrEnum):
    """A verdict, seen beside the expectation about its case. All but the first are red."""

    EXPECTED = "expected"
    """A pass where nothing else is known, or the known failure."""
    UNEXPECTED = "unexpected"
    """A failure nobody knows about."""
    UNEXPECTED_PASS = "unexpected-pass"
    """A pass where a failure is known: its expectation has to go."""
    CHANGED_FAILURE = "changed-failure"
    """Another failure than the known one."""
    EXPIRED = "expired"
    """The known failure, but for longer than its expectation holds."""
    NEVER_MATCHING = "never-matching"
    """No case at all: an expectation that speaks of none, in a run that had all it could speak of (`harness.scope`)."""


class _Known(StrEnum):
    NOTHING = auto()
    THIS = auto()
    THIS_EXPIRED = auto()
    FLAKY = auto()
    ANOTHER = auto()


def outcome(
    verdict: Verdict | None, stage: Stage | None, about: Expectation | None
) -> tuple[Outcome, Expectation | None]:
    """The outcome of a case, and the expectation about it, unchanged; `verdict` is None where there is no case."""
    return _table(verdict.group if verdict else None, _known(verdict, stage, about)), about


def _known(verdict: Verdict | None, stage: Stage | None, about: Expectation | None) -> _Known:
    if about is None:
        return _Known.NOTHING
    if verdict is not None and about.verdict is verdict and about.stage in (None, stage):
        return _Known.THIS_EXPIRED if about.expired else _Known.THIS
    return _Known.FLAKY if about.verdict is Verdict.FLAKY and not about.expired else _Known.ANOTHER


def _table(group: Group | None, known: _Known) -> Outcome:
    match group:
        case None:
            match known:
                case _Known.NOTHING:
                    return Outcome.EXPECTED
                case _Known.THIS | _Known.THIS_EXPIRED | _Known.FLAKY | _Known.ANOTHER:
                    return Outcome.NEVER_MATCHING
                case _:
                    assert_never(known)
        case Group.PASS:
            match known:
                case _Known.NOTHING | _Known.FLAKY:
                    return Outcome.EXPECTED
                case _Known.THIS | _Known.THIS_EXPIRED | _Known.ANOTHER:
                    return Outcome.UNEXPECTED_PASS
                case _:
                    assert_never(known)
        case Group.BACKEND | Group.MODEL | Group.ENVIRONMENT | Group.HARNESS:
            match known:
                case _Known.NOTHING:
                    return Outcome.UNEXPECTED
                case _Known.THIS:
                    return Outcome.EXPECTED
                case _Known.THIS_EXPIRED:
                    return Outcome.EXPIRED
                case _Known.FLAKY | _Known.ANOTHER:
                    return Outcome.CHANGED_FAILURE
                case _:
                    assert_never(known)
        case _:
            assert_never(group)
