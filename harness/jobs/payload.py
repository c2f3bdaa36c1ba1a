"""Cases as plain JSON data and back, for the way between a worker and its processes."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Weights

ASKED, DESCRIBED = "asked.json", "described.json"
"""Files in a job's `watch` folder: what is asked for beside the payload, and what is too long to be delivered."""


def of_case(case: Case) -> dict[str, Any]:
    """`case` as JSON data."""
    return dataclasses.asdict(case)


def case_of(data: dict[str, Any]) -> Case:
    """The case that `of_case` made `data` from."""
    given = data["entry"]
    typed = {"weights": Weights(given["weights"]), "phases": tuple(Phase(phase) for phase in given["phases"])}
    entry = Entry(**given | typed)
    return Case(entry, Phase(data["phase"]), Mode(data["mode"]), Dtype(data["dtype"]), Profile(data["profile"]))
