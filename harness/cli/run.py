"""`zoo run`: run a tier or a list."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli import options


def run(
    tier: options.Tier = None,
    lists: options.Lists = None,
    target: options.TargetName = "tpu",
    phases: options.Phases = None,
    modes: options.Modes = None,
    dtypes: options.Dtypes = None,
    profiles: options.Profiles = None,
    select: options.Select = None,
    workers: options.Workers = None,
    store: options.Store = None,
    cache: options.Cache = None,
    expectations: options.Expectations = None,
    fault: options.Fault = "",
    dry_run: options.DryRun = False,
    fail_fast: options.FailFast = False,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="RUN", help="Run what this run (or `latest`) still lacks.")
    ] = None,
) -> None:
    """Run models and compare them with the CPU. Without --list and --tier: the smoke tier.

    Exit code 0: all as expected. 1: something unexpected, or a case without a result. 2: bad input, or
    nothing could be measured. 130: interrupted; `--resume latest` continues.
    """
    from harness.cli import drive

    request = drive.Request(
        lists=options.list_paths(lists, tier=tier, words=select or (), cache=cache),
        target=target,
        phases=phases,
        modes=modes,
        dtypes=dtypes,
        profiles=profiles,
        tier=tier or (None if lists or resume else "smoke"),
        words=select or [],
        workers=workers,
        store=store,
        cache=cache,
        expectations=expectations,
        fault=fault,
        fail_fast=fail_fast,
    )
    plan = drive.resumed(request, resume) if resume else drive.planned(request)
    if dry_run:
        drive.print_plan(plan)
        return
    raise typer.Exit(drive.execute(plan))
