"""`zoo plan`: what a run would do, how long it would take, and how it is dealt out to machines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options

if TYPE_CHECKING:
    from rich.table import Table

    from harness.cli.planning import Dealt


def plan(
    tier: options.Tier = None,
    lists: options.Lists = None,
    target: options.TargetName = options.DEFAULT_TARGET,
    phases: options.Phases = None,
    modes: options.Modes = None,
    dtypes: options.Dtypes = None,
    profiles: options.Profiles = None,
    select: options.Select = None,
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
    from harness.cli import drive, planning
    from harness.plan.document import dumps
    from results.files import write_atomically
    from results.learned import RECENT_RUNS
    from results.remote import pull

    folder, url = options.here(store, cache)
    if url:
        pull(url, folder, newest=RECENT_RUNS)
    request = drive.Request(
        lists=options.list_paths(lists, tier=tier, words=select or (), cache=cache),
        target=target,
        phases=phases,
        modes=modes,
        dtypes=dtypes,
        profiles=profiles,
        tier=tier or (None if lists else "smoke"),
        words=select or [],
        workers=workers,
        store=folder,
        cache=cache,
        expectations=None,
        fault="",
        fail_fast=False,
    )
    planned = drive.planned(request)
    dealt = planning.deal(planned, shards, budget, workers, datetime.now(UTC).isoformat(timespec="seconds"))
    if out is not None:
        write_atomically(out, dumps(dealt.document))
    if matrix:
        print(json.dumps({"shard": [f"{number}/{shards}" for number in range(1, shards + 1)]}))
        return
    drive.say_what_lacks(planned)
    _print(dealt, planned.target.name, workers)


def _print(dealt: Dealt, target: str, workers: int) -> None:
    from rich.console import Console

    from harness.cli.planning import shard_seconds
    from harness.cli.style import duration, plain
    from harness.plan import FIELDS_AFTER_ENTRY
    from harness.plan.durations import totals

    document = dealt.document
    chosen = {case.case_id for case in document.cases}
    cases = [case for case in dealt.milliseconds if case.id in chosen]
    twins = sum(case.id in dealt.past and dealt.past[case.id].twin for case in cases)
    console = Console()
    console.print(plain(f"{len({case.entry.id for case in cases})} models, {len(cases)} cases on {target}"))
    known = f"{twins} were the twin of another case the last time" if twins else "none is known to be another's twin"
    console.print(plain(f"at most {len(cases) - twins} jobs: {known}, others show while running"), soft_wrap=True)
    table = _table("mode", "phase", "cases", "predicted")
    for (mode, phase), (count, milliseconds) in totals(cases, dealt.milliseconds).items():
        table.add_row(mode, phase, str(count), duration(milliseconds / 1000))
    console.print(table)
    table = _table("shard", "models", "cases", "work", f"wall, {workers} worker{'s' * (workers > 1)}")
    for number in range(1, document.shards + 1):
        own = [case for case in document.cases if case.shard == number]
        models = {case.case_id.rsplit("/", FIELDS_AFTER_ENTRY)[0] for case in own}
        work, wall = shard_seconds(document, number, workers)
        table.add_row(f"{number}/{document.shards}", str(len(models)), str(len(own)), duration(work), duration(wall))
    console.print(table)
    console.print(plain(f"plan {document.id}"))


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table()
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place > 1 or column in ("models", "cases") else "left")
    return table
