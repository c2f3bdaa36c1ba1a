"""`zoo plan`: what a run would do, how long it would take, and how it is dealt out to machines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from harness.cases import Case
    from harness.cli.asked import Plan
    from harness.cli.planning import Dealt
    from harness.records import Peak


def plan(
    tier: options.Tier = None,
    lists: options.Lists = None,
    target: options.TargetName = options.DEFAULT_TARGET,
    phases: options.Phases = None,
    modes: options.Modes = None,
    dtypes: options.Dtypes = None,
    profiles: options.Profiles = None,
    select: options.Select = None,
    weights: options.OfWeights = None,
    store: options.StoreAnywhere = None,
    cache: options.Cache = None,
    shards: Annotated[int, typer.Option("--shards", min=1, max=10_000, help="Number of machines.")] = 1,
    workers: Annotated[int, typer.Option("--workers", "-n", min=1, help="Side by side on each machine.")] = 1,
    budget: options.Budget = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the plan for `zoo run --plan FILE --shard`.")
    ] = None,
    matrix: Annotated[bool, typer.Option("--matrix", help="Print only the job matrix for GitHub Actions.")] = False,
) -> None:
    """Show what would be run, and deal it out to machines by the times that the store has seen.

    Without --list and --tier: the smoke tier.
    """
    from harness.cli import asked, made_lists, planning
    from harness.plan.document import dumps
    from results.files import write_atomically
    from results.learned import RECENT_RUNS
    from results.remote import pull

    folder, url = options.here(store, cache)
    if url:
        pull(url, folder, newest=RECENT_RUNS)
    tier = tier or (None if lists else "smoke")
    request = asked.Request(
        lists=made_lists.with_weights(
            options.list_paths(lists, tier=tier, words=select or (), cache=cache), weights, cache
        ),
        target=target,
        phases=phases,
        modes=modes,
        dtypes=dtypes,
        profiles=profiles,
        tier=tier,
        words=select or [],
        workers=workers,
        store=folder,
        cache=cache,
        expectations=None,
        fault="",
        fail_fast=False,
    )
    planned = asked.planned(request)
    dealt = planning.deal(planned, shards, budget, workers, datetime.now(UTC).isoformat(timespec="seconds"))
    if out is not None:
        write_atomically(out, dumps(dealt.document))
    if matrix:
        print(json.dumps({"shard": [f"{number}/{shards}" for number in range(1, shards + 1)]}))
        return
    asked.say_what_lacks(planned)
    _print(dealt, planned, workers)


def _print(dealt: Dealt, planned: Plan, workers: int) -> None:
    from rich.console import Console

    from harness.cli.planning import shard_seconds
    from harness.cli.style import plain
    from harness.plan import FIELDS_AFTER_ENTRY
    from harness.plan.durations import totals

    document, cases = dealt.document, dealt.milliseconds
    console = Console()
    listed = sum(planned.not_attempted.values())
    entries = len({case.entry.id for case in cases})
    also = f", and {listed} not attempted" if listed else ""
    console.print(plain(f"{entries} models{also}, {len(cases)} cases on {planned.target.name}"), highlight=False)
    twins = len(cases) - len(dealt.jobs)
    known = f"{twins} are built just like another" if twins else "none is built just like another"
    console.print(plain(f"{len(dealt.jobs)} unique jobs predicted: of the cases {known}"), soft_wrap=True)
    table = _table("mode", "phase", "cases", "unique", "predicted")
    for (mode, phase), total in totals(cases, dealt.milliseconds, dealt.jobs, dealt.unknown).items():
        predicted = _time(total.milliseconds / 1000, total.unknown, total.jobs)
        table.add_row(mode, phase, str(total.cases), str(total.jobs), predicted)
    console.print(table)
    console.print(plain(_memory(dealt.peaks, planned.target.device_bytes)), soft_wrap=True)
    jobs, guessed = ({case.id for case in some} for some in (dealt.jobs, dealt.unknown))
    table = _table("shard", "models", "cases", "work", f"wall, {workers} worker{'s' * (workers > 1)}")
    for number in range(1, document.shards + 1):
        own = [case for case in document.cases if case.shard == number]
        models = {case.case_id.rsplit("/", FIELDS_AFTER_ENTRY)[0] for case in own}
        counts = tuple(sum(case.case_id in some for case in own) for some in (guessed, jobs))
        work, wall = shard_seconds(document, number, workers)
        times = [_time(seconds, *counts, "guessed") for seconds in (work, wall)]
        table.add_row(f"{number}/{document.shards}", str(len(models)), str(len(own)), *times)
    console.print(table)
    console.print(plain(f"plan {document.id}"))


def _memory(peaks: Mapping[Case, Peak], device: int | None) -> str:
    """One line on the memory that cases are predicted to need, where a device has `device` bytes."""
    from harness.jobs.memory import most

    there = most()
    known = [peak.least for peak in peaks.values() if peak.least is not None]
    if not known:
        return "memory: unknown, no case has run yet"
    large = sum((peak.least or 0) > there or (peak.device or 0) > (device or inf) for peak in peaks.values())
    lacking = f", and unknown of {len(peaks) - len(known)}" if len(known) < len(peaks) else ""
    here = f"{large} cases are TOO_LARGE for this machine" if large else "every case of which it is known fits here"
    return f"memory: at most {max(known) / 2**20:,.0f} MiB in one process{lacking}; {here}"


def _time(seconds: float, unknown: int, of: int, word: str = "unknown") -> str:
    """Predicted time of so many jobs, and of how many of them it is unknown."""
    from harness.cli.style import duration

    if unknown and unknown >= of:
        return "unknown"
    return f"{duration(seconds)} and {unknown} {word}" if unknown else duration(seconds)


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table()
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place > 1 or column in ("models", "cases") else "left")
    return table
