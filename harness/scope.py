"""What an expectation could speak of, besides the cases of a run: only so can it be said that it speaks of none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product, takewhile

from harness.cases import Case, Dtype, Entry, Mode, Profile
from model_lists.expectations import Expectation, Expectations

_SPECIAL = frozenset("*?[")


def never_matching(
    known: Expectations,
    planned: Collection[str],
    entries: Sequence[Entry],
    modes: Sequence[Mode],
    elsewhere: Callable[[str], bool] | None,
) -> tuple[Expectation, ...]:
    """The expectations in force that speak of nothing: of no `planned` case id, and of none that could have been.

    `entries` are all those of the lists that the run was given, chosen or not. An expectation that one of them could
    meet in another phase, dtype or profile, or in one of the target's `modes` that was not asked, is merely not
    covered by the run; so is one that may speak of a model in a list that was not given, since it names no type and
    class or those that it names are words that `elsewhere` knows (None: there is no such list). A run that left out
    some of its lists' models covered nothing: then there are none.
    """
    if not _whole(planned, entries):
        return ()
    matching = {one.where for case_id in planned for one in known.covering(case_id)}
    return tuple(
        one
        for one in known
        if not one.inert
        and one.where not in matching
        and not _could_meet(one, entries, modes)
        and not (elsewhere and _may_be_elsewhere(one, elsewhere))
    )


def _whole(planned: Collection[str], entries: Sequence[Entry]) -> bool:
    """Were all models of the tiers that the run took from its lists planned?"""
    taken = {case_id.rsplit("/", 4)[0] for case_id in planned}
    tiers = {entry.tier for entry in entries if entry.id in taken}
    return bool(tiers) and all(entry.id in taken for entry in entries if entry.tier in tiers)


def _could_meet(one: Expectation, entries: Sequence[Entry], modes: Sequence[Mode]) -> bool:
    near = (entry for entry in entries if entry.id.startswith(one.literal) or one.literal.startswith(f"{entry.id}/"))
    return any(
        one.covers(Case(entry, *coordinates).id)
        for entry in near
        for coordinates in product(entry.phases, modes, Dtype, Profile)
    )


def _may_be_elsewhere(one: Expectation, elsewhere: Callable[[str], bool]) -> bool:
    named = takewhile(lambda word: not _SPECIAL & set(word), one.case.split("/")[:2])
    return all(elsewhere(word) for word in named)
