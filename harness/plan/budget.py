"""Which cases are worth a limited time: the most that is learned in it, and what is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harness.cases import Case, Group
from harness.plan.selection import PlanError
from harness.plan.sharding import makespan, sharded, split
from harness.records import PastCase

_SMALLEST_STEP = 995
"""Thousandths of a capacity in which cases did not fit that are tried next: bounds the number of tries."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


def parse_budget(text: str) -> int:
    """Milliseconds that `text` means, such as "90m", "1h30m" or "45s". Raises PlanError."""
    found = re.fullmatch(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?", text.strip(), re.ASCII)
    seconds = sum(int(n) * _UNITS[unit] for n, unit in zip(found.groups("0"), "hms", strict=True)) if found else 0
    if not seconds:
        raise PlanError(f"--budget {text[:40]!r} is not a time such as 90m, 1h30m or 45s")
    return seconds * 1000


def within(
    budget: int, milliseconds: Mapping[Case, int], past: Mapping[str, PastCase], shards: int, workers: int
) -> tuple[Case, ...]:
    """The cases that fit into `budget` milliseconds on `shards` machines with `workers` each, in order of priority.

    Cases are taken in the order of `by_priority`; one that does not fit gives way to later ones that do.
    """
    order = by_priority(milliseconds, past)
    capacity = budget * shards * workers
    while True:
        left, chosen = capacity, []
        # One worker of each shard runs a model.
        left_for_model = dict.fromkeys((case.entry.id for case in order), budget * shards)
        for case in order:
            if milliseconds[case] <= min(left, left_for_model[case.entry.id], budget):
                chosen.append(case)
                left -= milliseconds[case]
                left_for_model[case.entry.id] -= milliseconds[case]
        needed = wall({case: milliseconds[case] for case in chosen}, shards, workers)
        if needed <= budget:
            return tuple(chosen)
        # What fits in sum need not fit once it is dealt out. Less than the sum that did not, by at least a little.
        capacity = min(capacity - left - 1, capacity * budget // needed, capacity * _SMALLEST_STEP // 1000)


def by_priority(milliseconds: Mapping[Case, int], past: Mapping[str, PastCase]) -> list[Case]:
    """The cases of `milliseconds`, the ones most worth running first.

    Every architecture comes once before any comes twice. Among its cases, and among the architectures in each round,
    first those that are known to fail, then those that ran longest ago by the day, never being longest; of those that
    never ran, the architectures without any result first; then the shorter ones.
    """
    covered = {case.entry.model_type for case in milliseconds if case.id in past}

    def worth(case: Case) -> tuple[bool, str, bool, int, str]:
        known = past.get(case.id)
        red = known is not None and known.verdict.group not in (Group.PASS, Group.ENVIRONMENT)
        day = known.recorded_at[:10] if known else ""
        return not red, day, case.entry.model_type in covered, milliseconds[case], case.id

    return _in_rounds(sorted(milliseconds, key=worth))


def wall(milliseconds: Mapping[Case, int], shards: int, workers: int) -> int:
    """Milliseconds that the longest of the shards takes where each has so many workers, which run whole models."""
    longest = 0
    for shard in sharded(milliseconds, shards):
        models: dict[str, int] = {}
        for case in shard:
            models[case.entry.id] = models.get(case.entry.id, 0) + milliseconds[case]
        longest = max(longest, makespan(split(models, workers), models))
    return longest


def _in_rounds(cases: Sequence[Case]) -> list[Case]:
    """The cases in rounds that have each architecture once; otherwise in their order."""
    turns: dict[str, int] = {}
    rounds: list[tuple[int, int]] = []
    for place, case in enumerate(cases):
        turn = turns[case.entry.model_type] = turns.get(case.entry.model_type, -1) + 1
        rounds.append((turn, place))
    return [cases[place] for _, place in sorted(rounds)]
