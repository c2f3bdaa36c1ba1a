"""What the next run learns from the last ones: how long each case takes, what memory, how it ended, and when."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.cases import UNFETCHED, Verdict
from harness.records import PastCase
from model_lists.aliases import current
from results.store import Run, list_runs, open_run, read

RECENT_RUNS = 20
"""Runs that are learned from; a run in shards counts as one."""
RECENT_RESULTS = 5
"""Results of a case whose median wall time counts, and whose largest peak of memory."""

_LOOKED_AT = 50 * RECENT_RUNS
_COLUMNS = ("case_id", "target", "verdict", "recorded_at", "wall_seconds", "twin_of", "peak_host_bytes")
_ENDED_EARLY = (
    Verdict.BACKEND_UNAVAILABLE,
    Verdict.CODE_NOT_TRUSTED,
    Verdict.DEVICE_BUSY,
    Verdict.DISK_FULL,
    Verdict.OOM_HOST,
    Verdict.TOO_LARGE,
    Verdict.HARNESS_ERROR,
    *sorted(UNFETCHED),
)
"""What befalls a case on a bad day and says nothing about how long it takes on a good one."""

_QUERY = f"""
with one as (
    select r.*, greatest(r.wall_seconds, coalesce(original.wall_seconds, 0)) as seconds
    from recent r left join recent original on original.run = r.run and original.case_id = r.twin_of
), ranked as (
    select *, verdict not in ({", ".join(f"'{verdict}'" for verdict in _ENDED_EARLY)}) and seconds is not null as timed,
        row_number() over (partition by case_id, timed order by recorded_at desc, run desc) as place
    from one
)
select case_id, median(seconds) filter (timed and place <= {RECENT_RESULTS}),
    arg_max(verdict, recorded_at), max(recorded_at), arg_max(coalesce(twin_of, '') <> '', recorded_at),
    max(peak_host_bytes) filter (timed and place <= {RECENT_RESULTS})
from ranked group by case_id order by case_id
"""
# A twin's own wall time is what looking its original up took. In another shard than that it would run itself.


def learned(store: Path, target: str) -> dict[str, PastCase]:
    """What is known about each case that ran on a target lately, by the id it has now; nothing where there is no store.

    A run that is a shard counts once every shard of its plan has run as well: so that the last shard, planned beside
    the results of the first, is a shard of the same plan. Raises StoreError.
    """
    # Between time and fraction, the id of a run names its target.
    names = [name for name in list_runs(store) if name[17:-7] == target][-_LOOKED_AT:]
    runs = _complete(open_run(store, name) for name in names)[-RECENT_RUNS:]
    import pyarrow

    tables = []
    for place, parts in enumerate(runs):
        for run in parts:
            table, _ = read(run, _COLUMNS)
            tables.append(table.append_column("run", pyarrow.array([place] * len(table), pyarrow.int64())))
    if not any(map(len, tables)):
        return {}
    import duckdb

    with duckdb.connect() as connection:
        connection.register("recent", pyarrow.concat_tables(tables))
        rows = connection.execute(_QUERY).fetchall()
    past: dict[str, PastCase] = {}
    for case_id, seconds, verdict, recorded_at, twin, peak in sorted(rows, key=lambda row: row[3] or ""):
        if verdict in set(Verdict):  # of a model that was renamed meanwhile the later result counts
            past[current(case_id)] = PastCase(seconds, Verdict(verdict), recorded_at, bool(twin), peak)
    return past


def _complete(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs, oldest first, each alone or with the other shards of its plan; without those that lack some."""
    found: list[list[Run]] = []
    # The n-th runs of all shards of a plan belong together, if a plan was followed several times.
    plans: dict[tuple[Any, ...], dict[str, list[Run]]] = {}
    for run in runs:
        settings = run.provenance.get("settings", {})
        shard = settings.get("shard")
        if not shard:
            found.append([run])
            continue
        plan = (settings.get("plan_id"), settings.get("planned_at"))
        shards = plans.setdefault(plan, {})
        shards.setdefault(shard, []).append(run)
        turn = len(shards[shard])
        if len(shards) == settings.get("filled_shards") and min(map(len, shards.values())) == turn:
            found.append([parts[turn - 1] for parts in shards.values()])
    return found
