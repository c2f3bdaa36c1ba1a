"""How steady a case has been: what became of it each time it ran with the same versions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from harness.cases import Group, Verdict
from results.lookup import last_rows

_SAYS_NOTHING = (Group.ENVIRONMENT, Group.HARNESS)


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Of one case on one target: in how many runs it was judged, in how many of these it was `FLAKY`, and how often
    its verdict was another than the time before although all versions were the same."""

    runs: int
    flaky: int
    changes: int

    @property
    def rate(self) -> float:
        """The share of runs that were flaky, or ended otherwise than the run before them with the same versions."""
        return (self.flaky + self.changes) / self.runs


def steadiness(store: Path, case_ids: Collection[str], runs: int = 100) -> dict[tuple[str, str], Steadiness]:
    """By target and case id, how steady each of these cases was in the newest `runs` runs that planned any of them.

    A verdict on the machine or the harness counts as no run. Versions are those of the packages, of the harness and
    of what the target said of itself. Raises StoreError.
    """
    wanted = frozenset(case_ids)
    verdicts: dict[tuple[str, str], dict[str, list[Verdict]]] = defaultdict(lambda: defaultdict(list))
    found = last_rows(store, wanted.__contains__, ("case_id", "target", "verdict", "group"))
    for run, rows in islice(found, runs):
        facts = run.provenance
        names = ("packages", "harness_revision", "python", "target")
        versions = json.dumps([facts.get(name) for name in names], sort_keys=True)
        for row in rows:
            if row["group"] not in _SAYS_NOTHING:
                verdicts[row["target"], row["case_id"]][versions].append(Verdict(row["verdict"]))
    return {
        key: Steadiness(
            runs=sum(map(len, by_versions.values())),
            flaky=sum(seen.count(Verdict.FLAKY) for seen in by_versions.values()),
            changes=sum(
                one is not other and Verdict.FLAKY not in (one, other)
                for seen in by_versions.values()
                for one, other in pairwise(seen)
            ),
        )
        for key, by_versions in verdicts.items()
    }
