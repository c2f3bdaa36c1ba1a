"""Which cases are predicted to be the same job, so that one of them runs and the others are told its result.

Only running shows it for sure: `harness.jobs.twins` compares weights, inputs and configs byte for byte.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping

from harness.cases import Case, Entry, Weights
from harness.likeness import relevant

TWIN_MILLISECONDS = 200
"""Taken for looking up what another case's job came to: its files are read and their checksums compared."""


def structure(entry: Entry) -> str:
    """The same for entries whose seeded models are built alike: of one type and class, and configs that say the same.

    Reduction makes more of them alike, which shows when they run, and then in what is known of past runs.
    """
    if entry.weights is Weights.HUB:
        return entry.id
    return "/".join((entry.model_type, entry.model_class, _said(entry.config) if entry.config else ""))


@functools.cache
def _said(config: str) -> str:
    """sha256 hex of what a config says, or its path where it cannot be read."""
    try:
        with open(config, "rb") as file:
            said = relevant(json.load(file))
    except (OSError, ValueError, RecursionError):
        return config
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def originals(cases: Iterable[Case]) -> dict[Case, Case]:
    """For each case the first by id that is the same job, itself where there is no other."""
    first: dict[tuple[str, ...], Case] = {}
    jobs = {case: (structure(case.entry), case.phase, case.mode, case.dtype, case.profile) for case in cases}
    for case, job in jobs.items():
        if job not in first or case.id < first[job].id:
            first[job] = case
    return {case: first[job] for case, job in jobs.items()}


def collapsed(milliseconds: Mapping[Case, int]) -> dict[Case, int]:
    """The time of each case when the others of its job only look its result up."""
    return {
        case: milliseconds[case] if case is original else min(milliseconds[case], TWIN_MILLISECONDS)
        for case, original in originals(milliseconds).items()
    }
