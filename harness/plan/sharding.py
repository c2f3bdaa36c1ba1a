"""Who runs which cases: parts of a plan that take about equally long, the same on every machine.

The result depends on the cases and their times alone: not on their order, the machine or the seed of Python's hashes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import TypeVar

from harness.cases import Case, Dtype, Mode, Phase, Profile
from harness.plan.selection import PlanError
from harness.plan.twins import structure

_Name = TypeVar("_Name", bound=Hashable)
_PLACES = {word: place for words in (Phase, Dtype, Profile, Mode) for place, word in enumerate(words)}

MAX_SHARDS = 10_000
"""More is a slip of the finger."""
_MAX_EXCHANGES = 2_000
"""Bound on the work of `improved`; sets as long as a night of 5,000 models need a few dozen."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` of `count`, numbered from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def parse_shard(text: str) -> Shard:
    """The shard that `text` names, such as "3/16". Raises PlanError."""
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip(), re.ASCII)
    if not found:
        raise PlanError(f"--shard {text[:40]!r} is not of the form NUMBER/COUNT, such as 3/16")
    number, count = int(found[1]), int(found[2])
    if not 1 <= count <= MAX_SHARDS or not 1 <= number <= count:
        raise PlanError(f"there is no shard {text.strip()}: shards are numbered from 1/COUNT to COUNT/COUNT")
    return Shard(number, count)


def sharded(milliseconds: Mapping[Case, int], count: int) -> list[list[Case]]:
    """The cases of each of `count` shards, in the order to run them: the models that take longest first.

    The cases of a model and of its predicted twins stay together, unless they take longer than a shard's fair share:
    then those of one phase, dtype and profile do, which share a reference; if these are too long as well, those of one
    mode, which are one job.
    """
    units = _units(milliseconds, count)
    weights = {name: sum(milliseconds[case] for case in unit) for name, unit in units.items()}
    return [
        _in_order([case for name in names for case in units[name]], milliseconds) for names in split(weights, count)
    ]


def split(weights: Mapping[_Name, int], count: int) -> list[list[_Name]]:
    """Names in `count` parts whose largest sum of weights is as small as was found.

    It is never larger than that of `longest_first`. Names must be sortable, weights not negative.
    """
    return improved(longest_first(weights, count), weights)


def longest_first(weights: Mapping[_Name, int], count: int) -> list[list[_Name]]:
    """Names in `count` parts: one after the other, the heaviest first, each to the part that is lightest so far."""
    parts: list[list[_Name]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    heapify(loads)
    for name in sorted(weights, key=lambda name: (-weights[name], name)):
        load, number = loads[0]
        parts[number].append(name)
        heapreplace(loads, (load + weights[name], number))
    return parts


def improved(parts: Sequence[Sequence[_Name]], weights: Mapping[_Name, int]) -> list[list[_Name]]:
    """The parts, after moving a name from the heaviest to a lighter part, or exchanging two, as long as it helps.

    Each step makes the heavier of its two parts lighter and leaves neither as heavy as that was, so the largest sum
    never grows.
    """
    sorted_parts = [sorted((weights[name], name) for name in part) for part in parts]
    loads = [sum(weight for weight, _ in part) for part in sorted_parts]
    for _ in range(_MAX_EXCHANGES):
        heavy = max(range(len(loads)), key=loads.__getitem__)
        best: tuple[int, int, tuple[int, _Name], tuple[int, _Name] | None] | None = None
        for light in range(len(loads)):
            gap = loads[heavy] - loads[light]
            for given in sorted_parts[heavy]:
                taken = _closest(sorted_parts[light], given[0] - gap // 2)
                for back in (None, *taken):
                    moved = given[0] - (back[0] if back else 0)
                    larger = max(loads[heavy] - moved, loads[light] + moved)
                    if larger < loads[heavy] and (best is None or larger < best[0]):
                        best = larger, light, given, back
        if best is None:
            break
        _, light, given, back = best
        for source, goal, item in ((heavy, light, given), (light, heavy, back)):
            if item is not None:
                sorted_parts[source].remove(item)
                sorted_parts[goal].insert(bisect_left(sorted_parts[goal], item), item)
                loads[source] -= item[0]
                loads[goal] += item[0]
    return [[name for _, name in part] for part in sorted_parts]


def makespan(parts: Iterable[Iterable[_Name]], weights: Mapping[_Name, int]) -> int:
    """The largest sum of weights of a part."""
    return max((sum(weights[name] for name in part) for part in parts), default=0)


def lower_bound(weights: Mapping[_Name, int], count: int) -> int:
    """No split into `count` parts has a smaller makespan than this: the fair share or the largest weight."""
    return max(fair_share(weights, count), max(weights.values(), default=0))


def fair_share(weights: Mapping[_Name, int], count: int) -> int:
    """The sum of weights over the number of parts, rounded up."""
    return -(-sum(weights.values()) // count)


def _closest(items: Sequence[tuple[int, _Name]], weight: int) -> Sequence[tuple[int, _Name]]:
    """The one or two items on either side of `weight`."""
    place = bisect_left(items, weight, key=lambda item: item[0])
    return items[max(place - 1, 0) : place + 1]


def _units(milliseconds: Mapping[Case, int], count: int) -> dict[tuple[str, ...], list[Case]]:
    """Cases that stay together, by a name of their own."""
    share = fair_share(milliseconds, count)

    def grouped(cases: Iterable[Case], depth: int) -> dict[tuple[str, ...], list[Case]]:
        units: dict[tuple[str, ...], list[Case]] = {}
        for case in cases:
            name = (structure(case.entry), str(case.phase), str(case.dtype), str(case.profile), str(case.mode))
            units.setdefault(name[:depth], []).append(case)
        return units

    def whole(cases: Iterable[Case], depths: Sequence[int]) -> dict[tuple[str, ...], list[Case]]:
        units: dict[tuple[str, ...], list[Case]] = {}
        for name, unit in grouped(cases, depths[0]).items():
            too_long = sum(milliseconds[case] for case in unit) > share
            units |= whole(unit, depths[1:]) if too_long and depths[1:] else {name: unit}
        return units

    return whole(milliseconds, (1, 4, 5))


def _in_order(cases: Sequence[Case], milliseconds: Mapping[Case, int]) -> list[Case]:
    of_entry: dict[str, int] = {}
    for case in cases:
        of_entry[case.entry.id] = of_entry.get(case.entry.id, 0) + milliseconds[case]
    return sorted(cases, key=lambda case: (-of_entry[case.entry.id], case.entry.id, _place(case)))


def _place(case: Case) -> tuple[int, ...]:
    return tuple(_PLACES[word] for word in (case.phase, case.dtype, case.profile, case.mode))
