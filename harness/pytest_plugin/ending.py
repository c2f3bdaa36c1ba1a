"""What is found out about a run as a whole once it has ended, in one session or merged from many.

Imports nothing of pytest: who merges shards ends their run in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from harness.derived import registered_word
from harness.plan import select
from harness.scope import never_matching
from model_lists import DERIVED_TIERS, load_list
from results.baseline import judged, target_of
from results.expected import outcome
from results.failures import COLUMNS, as_file, failures
from results.files import write_atomically
from results.store import Run, read

if TYPE_CHECKING:
    from harness.targets.base import Target
    from model_lists.expectations import Expectation, Expectations


def conclude(run: Run, target: Target, expectations: Expectations) -> None:
    """Record whether the run was green, and leave what did not pass beside its rows, as a file of expectations.

    Raises StoreError.
    """
    # Whether the run was green is judged by what was expected when it ran, not when somebody asks.
    run.amend({"ended": judged(run, expectations)})
    rows = read(run, COLUMNS)[0].to_pylist()
    found = failures(rows, target.modes, date.fromisoformat(run.created_at[:10]))
    write_atomically(run.path / "failures.toml", as_file(found, target_of(run), run.id))


def idle_expectations(
    run: Run, target: Target, expectations: Expectations, lists: Sequence[Path]
) -> tuple[Expectation, ...]:
    """The expectations that speak of nothing, as far as a run of these lists can tell. Raises StoreError, ListError."""
    entries = select(entry for path in lists for entry in load_list(path))
    derived = any(entry.tier in DERIVED_TIERS for entry in entries)
    return never_matching(expectations, run.planned, entries, target.modes, None if derived else registered_word)


def idle_line(idle: Expectation) -> str:
    """What people are told of an expectation that speaks of nothing."""
    word, _ = outcome(None, None, idle)
    return f"{word}: {idle.case} ({idle.where}) is no case of these lists"
