"""Between which two of several versions a case turned, found with as few of them tried as a binary search needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.cases import Verdict


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to, by the places of the versions in their order.

    `tried` has the verdict of each that was tried, None where it could not be judged. `before` is the last that is as
    the first one, `after` the first that is not: where they are no neighbours, none between them could be judged. Both
    are the outermost judged ones where these are alike, and None where fewer than two could be judged.
    """

    tried: Mapping[int, Verdict | None]
    before: int | None = None
    after: int | None = None

    @property
    def judged(self) -> bool:
        """Whether there are two versions to tell apart."""
        return self.before is not None

    @property
    def turned(self) -> bool:
        """Whether the two verdicts differ."""
        return self.judged and self.tried[self.before] is not self.tried[self.after]

    @property
    def between(self) -> range:
        """Places of those that may have turned the case as well as `after`, but could not be judged."""
        return range(self.before + 1, self.after)


def search(count: int, judge: Callable[[int], Verdict | None]) -> Found:
    """Find where the verdict turns among `count` versions, the oldest first.

    `judge` says how the version at a place ends, or None where it says nothing about the case; it is asked once at
    most about each. Both ends come first, and one that cannot be judged gives way to its neighbour. Where an end
    passes, every other verdict is taken for the contrary of that; else every verdict that the first end has not.
    """
    tried: dict[int, Verdict | None] = {}

    def is_judged(place: int) -> bool:
        tried[place] = judge(place)
        return tried[place] is not None

    before = next(filter(is_judged, range(count)), None)
    after = next(filter(is_judged, range(count - 1, before, -1)), None) if before is not None else None
    if after is None:
        return Found(tried)
    if tried[before] is tried[after]:
        return Found(tried, before, after)
    good = Verdict.PASS if Verdict.PASS in (tried[before], tried[after]) else tried[before]
    first = tried[before] is good
    while untried := [place for place in range(before + 1, after) if place not in tried]:
        middle = min(untried, key=lambda place: abs(2 * place - before - after))
        if not is_judged(middle):
            continue
        if (tried[middle] is good) == first:
            before = middle
        else:
            after = middle
    return Found(tried, before, after)
