"""`zoo rerun`: run a model or a case again and show the new verdict beside the last one."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli import options


def rerun(
    what: Annotated[list[str], typer.Argument(help="Model type, class, Hub id, case id or glob.")],
    lists: options.Lists = None,
    tier: options.Tier = None,
    target: options.TargetName = "tpu",
    phases: options.Phases = None,
    modes: options.Modes = None,
    dtypes: options.Dtypes = None,
    profiles: options.Profiles = None,
    workers: options.Workers = None,
    store: options.Store = None,
    cache: options.Cache = None,
    expectations: options.Expectations = None,
    fault: options.Fault = "",
    dry_run: options.DryRun = False,
    fail_fast: options.FailFast = False,
    one_attempt: options.OneAttempt = False,
) -> None:
    """Run models or cases again, whatever their tier, and show the last recorded verdict beside the new one.

    Exit codes are those of `zoo run`.
    """
    from harness.cli import drive

    request = drive.Request(
        lists=options.list_paths(lists, tier=tier, words=what, cache=cache),
        target=target,
        phases=phases,
        modes=modes,
        dtypes=dtypes,
        profiles=profiles,
        tier=tier,
        words=what,
        workers=workers,
        store=store,
        cache=cache,
        expectations=expectations,
        fault=fault,
        fail_fast=fail_fast,
        one_attempt=one_attempt,
    )
    plan = drive.planned(request)
    if dry_run:
        drive.print_plan(plan)
        return
    raise typer.Exit(drive.execute(plan, compare=True))
