"""How long cases will take, from how long they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.cases import Case
from harness.plan.selection import FIELDS_AFTER_ENTRY
from harness.records import PastCase

DEFAULT_SECONDS = 10.0
"""Taken for a case where nothing at all is known; where that is so for all of them, they count as equally long."""

HISTORY = "its own runs"
SAME_MODEL = "the same model in that phase and mode"
SAME_MODE = "other models in that mode"
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Forecast:
    """`milliseconds` of each case, in the order of the cases, and what each rests on: one of the constants above.

    Whole milliseconds, so that sums do not depend on the order of addition.
    """

    milliseconds: Mapping[Case, int]
    basis: Mapping[Case, str]

    @property
    def guessed(self) -> int:
        """How many cases never ran, so that their time is a guess."""
        return sum(basis != HISTORY for basis in self.basis.values())

    def warning(self, target: str) -> str:
        """One line that says how many times are guesses, and from what; empty where none is."""
        if not self.guessed:
            return ""
        counts = Counter(basis for basis in self.basis.values() if basis != HISTORY)
        sources = []
        if counts[SAME_MODEL]:
            sources.append(f"{counts[SAME_MODEL]} from {SAME_MODEL}")
        if counts[SAME_MODE]:
            sources.append(f"{counts[SAME_MODE]} from {SAME_MODE}")
        if counts[NOTHING]:
            sources.append(f"{counts[NOTHING]} from nothing, at {DEFAULT_SECONDS:g} s each")
        return (
            f"WARNING: the times of {self.guessed} of {len(self.basis)} cases are guessed, no result of theirs on "
            f"{target} is known: {', '.join(sources)}"
        )


def forecast(cases: Sequence[Case], past: Mapping[str, PastCase]) -> Forecast:
    """The time of each case: its own past one; else the median over the same model in its phase and mode; else over
    all that ran in its mode; else `DEFAULT_SECONDS`.

    `past` is by case id, of one target.
    """
    of_model: dict[tuple[str, str, str], list[float]] = {}
    of_mode: dict[str, list[float]] = {}
    for case_id, known in past.items():
        if known.seconds is None:
            continue
        entry, phase, mode, _dtype, _profile = case_id.rsplit("/", FIELDS_AFTER_ENTRY)
        of_model.setdefault((entry, phase, mode), []).append(known.seconds)
        of_mode.setdefault(mode, []).append(known.seconds)
    milliseconds: dict[Case, int] = {}
    basis: dict[Case, str] = {}
    for case in cases:
        own = past.get(case.id)
        if own is not None and own.seconds is not None:
            seconds, basis[case] = own.seconds, HISTORY
        elif alike := of_model.get((case.entry.id, str(case.phase), str(case.mode))):
            seconds, basis[case] = median(alike), SAME_MODEL
        elif alike := of_mode.get(str(case.mode)):
            seconds, basis[case] = median(alike), SAME_MODE
        else:
            seconds, basis[case] = DEFAULT_SECONDS, NOTHING
        milliseconds[case] = max(round(seconds * 1000), 1)  # of cases that took nothing any number would fit one shard
    return Forecast(milliseconds, basis)


@dataclass(slots=True)
class Total:
    """Number of cases, of them those that are jobs of their own and those whose time is unknown, and milliseconds."""

    cases: int = 0
    jobs: int = 0
    unknown: int = 0
    milliseconds: int = 0


def totals(
    cases: Iterable[Case], milliseconds: Mapping[Case, int], jobs: Collection[Case], unknown: Collection[Case]
) -> dict[tuple[str, str], Total]:
    """The totals of cases by (mode, phase), in the order of first occurrence, without the time of those `unknown`."""
    found: dict[tuple[str, str], Total] = {}
    for case in cases:
        total = found.setdefault((str(case.mode), str(case.phase)), Total())
        total.cases += 1
        if case in jobs:
            total.jobs += 1
        if case in unknown:
            total.unknown += 1
        else:
            total.milliseconds += milliseconds[case]
    return found
