"""What became of each case between two runs: a pure comparison of how they ended, case by case.

Only what ran in both is compared; everything else is counted, in its own word.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from harness import wording
from harness.cases import Group, Verdict
from model_lists.aliases import current
from results.store import Run, read

_MEASURED = (Group.PASS, Group.BACKEND, Group.MODEL)


class Ended(NamedTuple):
    """How a case ended, of a row only what is compared; names, units and meanings are those of the columns."""

    case_id: str
    verdict: str
    stage: str | None = None
    message: str | None = None
    structure_sha256: str | None = None
    worst_ratio: float | None = None
    latency_seconds: float | None = None
    peak_host_bytes: int | None = None
    peak_device_bytes: int | None = None

    @property
    def group(self) -> Group:
        """Whom the verdict speaks about; a verdict of a later version, unknown here, says nothing about a model."""
        return _GROUPS.get(self.verdict, Group.HARNESS)


_GROUPS = {verdict.value: verdict.group for verdict in Verdict}


@dataclass(frozen=True)
class Side:
    """One of the two runs: the ids it set out to run, and how those ended that did."""

    planned: Collection[str]
    ended: Mapping[str, Ended]


class Became(StrEnum):
    """What became of a case. Closed: every case of either run is exactly one of these.

    Each member carries its meaning in one line.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Became:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    REGRESSED = "regressed", "passed before, fails now"
    CHANGED = "changed failure", "failed before and fails now, with another verdict, stage or message"
    FIXED = "fixed", "failed before, passes now"
    STILL_FAILING = "still failing", "fails as before"
    STILL_PASSING = "still passing", "passed before and passes now"
    NO_LONGER_MEASURED = "no longer measured", "measured before; now the environment or the harness was in the way"
    MEASURED_AGAIN = "measured again", "the environment or the harness was in the way before; measured now"
    NOT_MEASURED = "not measured", "the environment or the harness was in the way both times"
    UNFINISHED = "without a result", "planned in both, but one of them has no result"
    NEW = "new", "not in the plan of the earlier run"
    REMOVED = "removed", "not in the plan of the later run"


class Quantity(StrEnum):
    """What is measured of a passing case, by the column that holds it."""

    ERROR = "worst_ratio"
    LATENCY = "latency_seconds"
    HOST_MEMORY = "peak_host_bytes"
    DEVICE_MEMORY = "peak_device_bytes"


@dataclass(frozen=True)
class Limits:
    """By what factor a quantity has to move, up or down, to be told."""

    drift: float = 2.0
    speed: float = 1.5
    memory: float = 1.25

    def of(self, quantity: Quantity) -> float:
        """The factor for a quantity."""
        match quantity:
            case Quantity.ERROR:
                return self.drift
            case Quantity.LATENCY:
                return self.speed
            case Quantity.HOST_MEMORY | Quantity.DEVICE_MEMORY:
                return self.memory


FLOORS = {
    Quantity.ERROR: 0.05,
    Quantity.LATENCY: 0.001,
    Quantity.HOST_MEMORY: 64 * 2**20,
    Quantity.DEVICE_MEMORY: 1 * 2**20,
}
"""What is smaller counts as this much: a twentieth of the error allowed, a millisecond, and what an allocator keeps
back. So nothing is divided by zero, and no move within the floor is one."""


@dataclass(frozen=True)
class Change:
    """What became of a case, with how it ended on either side; None where it has no result there."""

    became: Became
    case_id: str
    before: Ended | None
    after: Ended | None


@dataclass(frozen=True)
class Move:
    """A quantity of a case that passed both times, in the units of its column. `factor` is above 1 where it grew."""

    quantity: Quantity
    case_id: str
    before: float
    after: float

    @property
    def factor(self) -> float:
        """How many times the value before the value is now, neither being less than its floor."""
        return _factor(FLOORS[self.quantity], self.before, self.after)


@dataclass(frozen=True)
class Comparison:
    """Two runs compared.

    `became` has every case of either run, by what became of it and then ordered by id; `moves` those quantities that
    moved by more than the limits, ordered by quantity and by how far. `medians` is the median factor of each quantity
    over all cases in which it could be compared, also where nothing moved. `rebuilt` counts the cases that
    are another job than before (other weights, inputs or class): their verdicts are compared, their numbers are not.
    """

    became: Mapping[Became, tuple[Change, ...]]
    moves: tuple[Move, ...]
    medians: Mapping[Quantity, float]
    rebuilt: int
    limits: Limits

    @property
    def changes(self) -> tuple[Change, ...]:
        """Every case of either run, ordered by what became of it and then by id."""
        return tuple(change for became in Became for change in self.that(became))

    def that(self, became: Became) -> tuple[Change, ...]:
        """The cases that this became of."""
        return self.became.get(became, ())

    def moved(self, quantity: Quantity) -> tuple[Move, ...]:
        """The moves of a quantity, the farthest first."""
        return tuple(move for move in self.moves if move.quantity is quantity)

    @property
    def counts(self) -> dict[Became, int]:
        """Number of cases for everything that can become of one."""
        return {became: len(self.that(became)) for became in Became}

    @property
    def compared(self) -> int:
        """Number of cases that have a result in both."""
        apart = (Became.UNFINISHED, Became.NEW, Became.REMOVED)
        return sum(count for became, count in self.counts.items() if became not in apart)


def side(run: Run) -> Side:
    """What is compared of a run, cases by the ids they have now. Raises StoreError."""
    table = read(run, Ended._fields)[0]
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return Side(frozenset(map(current, run.planned)), {current(row[0]): Ended._make(row) for row in rows})


def compare(before: Side, after: Side, limits: Limits = Limits()) -> Comparison:
    """What became of every case of either run, and what moved in those that passed both times."""
    became: dict[Became, list[Change]] = {}
    for case_id in sorted({*before.planned, *before.ended, *after.planned, *after.ended}):
        change = _change(case_id, before, after)
        became.setdefault(change.became, []).append(change)
    rebuilt = sum(_another_job(change) for changes in became.values() for change in changes)
    passing = [change for change in became.get(Became.STILL_PASSING, ()) if not _another_job(change)]
    moves: list[Move] = []
    medians: dict[Quantity, float] = {}
    for quantity in Quantity:
        measured = [
            (change.case_id, old, new)
            for change in passing
            if (old := getattr(change.before, quantity)) is not None
            and (new := getattr(change.after, quantity)) is not None
        ]
        floor, limit = FLOORS[quantity], limits.of(quantity)
        factors = [_factor(floor, old, new) for _, old, new in measured]
        if factors:
            medians[quantity] = statistics.median(factors)
        far = [
            (-max(factor, 1 / factor), Move(quantity, *one))
            for factor, one in zip(factors, measured, strict=True)
            if factor >= limit or factor <= 1 / limit
        ]
        moves += [move for _, move in sorted(far, key=lambda item: (item[0], item[1].case_id))]
    return Comparison(
        {kind: tuple(changes) for kind, changes in became.items()}, tuple(moves), medians, rebuilt, limits
    )


def components(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str | None, str | None]]:
    """What differs between what two runs were made with: name, value before, value after; None where it is not known.

    Takes the provenance of either. What was asked for (settings) and what came of it are left out, as is what the
    target says about a package that is in the list of packages anyway.
    """
    old, new = dict(_facts(before)), dict(_facts(after))
    return [(name, old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)]


def _facts(provenance: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    packages = provenance.get("packages") or {}
    for part, value in (
        ("", packages),
        ("", {name: provenance.get(name) for name in ("python", "harness_revision")}),
        ("list ", provenance.get("lists")),
        ("target ", {n: v for n, v in (provenance.get("target") or {}).items() if n not in packages}),
        ("machine ", provenance.get("machine")),
        ("environment ", provenance.get("environment")),
    ):
        for name, fact in (value or {}).items():
            if fact is not None:
                yield part + name, str(fact)


def _change(case_id: str, before: Side, after: Side) -> Change:
    old, new = before.ended.get(case_id), after.ended.get(case_id)
    if old is not None and new is not None:
        became = _became(old, new)
    elif old is None and case_id not in before.planned:
        became = Became.NEW
    elif new is None and case_id not in after.planned:
        became = Became.REMOVED
    else:
        became = Became.UNFINISHED
    return Change(became, case_id, old, new)


def _became(before: Ended, after: Ended) -> Became:
    match before.group in _MEASURED, after.group in _MEASURED:
        case True, False:
            return Became.NO_LONGER_MEASURED
        case False, True:
            return Became.MEASURED_AGAIN
        case False, False:
            return Became.NOT_MEASURED
    match before.group is Group.PASS, after.group is Group.PASS:
        case True, True:
            return Became.STILL_PASSING
        case True, False:
            return Became.REGRESSED
        case False, True:
            return Became.FIXED
    return Became.STILL_FAILING if _failure(before) == _failure(after) else Became.CHANGED


def _failure(ended: Ended) -> tuple[str | None, ...]:
    return ended.verdict, ended.stage, wording.lasting(ended.message or "")


def _another_job(change: Change) -> bool:
    if change.before is None or change.after is None:
        return False
    before, after = change.before.structure_sha256, change.after.structure_sha256
    return bool(before and after and before != after)


def _factor(floor: float, before: float, after: float) -> float:
    return max(after, floor) / max(before, floor)
