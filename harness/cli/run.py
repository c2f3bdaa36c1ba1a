"""`zoo run`: run a tier or a list."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options


def run(
    context: typer.Context,
    tier: options.Tier = None,
    lists: options.Lists = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="DIR|FILE|URL", help="A checkpoint, a folder of such, or a GGUF file. Repeatable."
        ),
    ] = None,
    allow_pickle: options.AllowPickle = False,
    weights: options.OfWeights = None,
    target: options.TargetName = options.DEFAULT_TARGET,
    phases: options.Phases = None,
    modes: options.Modes = None,
    dtypes: options.Dtypes = None,
    profiles: options.Profiles = None,
    select: options.Select = None,
    workers: options.Workers = None,
    store: options.StoreAnywhere = None,
    cache: options.Cache = None,
    expectations: options.Expectations = None,
    fault: options.Fault = "",
    dry_run: options.DryRun = False,
    fail_fast: options.FailFast = False,
    one_attempt: options.OneAttempt = False,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="RUN", help="Run what this run (or `latest`) still lacks.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="N/COUNT", help="Only this part of the cases, such as 3/16.")
    ] = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="The cases of a plan that `zoo plan --out` wrote.")
    ] = None,
    budget: options.Budget = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="AMOUNT", help="What jobs may use together, such as 16GB (also ZOO_MEMORY)."),
    ] = None,
) -> None:
    """Run models and compare them with the CPU. Without --list, --tier, --model and --plan: the smoke tier.

    Exit code 0: all as expected. 1: something unexpected, or a case without a result. 2: bad input, or
    nothing could be measured. 130: interrupted; `--resume latest` continues.
    """
    from harness.cli import asked, checkpoints, drive, made_lists, planning
    from harness.jobs.memory import SETTING, in_bytes
    from harness.plan import PlanError
    from harness.plan.sharding import Shard, parse_shard
    from results.learned import RECENT_RUNS
    from results.remote import pull

    if memory is not None:
        in_bytes(memory, "--memory ")
        os.environ[SETTING] = memory  # workers inherit it
    asked_shard = parse_shard(shard) if shard is not None else None
    if resume and (asked_shard or plan_file or budget):
        raise PlanError("--resume goes on with the run's own cases: give it without --shard, --plan and --budget")
    document = None
    if plan_file:
        document = planning.load_plan(plan_file)
        if tier or select or phases or modes or dtypes or profiles or budget:
            raise PlanError("--plan says what is run: of the options that choose cases, give it --shard alone")
        lists = lists or list(document.lists)
        target = document.target if target == options.DEFAULT_TARGET else target
    if models:
        if lists or tier or weights or plan_file:
            raise PlanError("--model says what is run: give it without --list, --tier, --weights and --plan")
        # Kept from eviction as long as this runs.
        folders = context.with_resource(checkpoints.at_hand(models, cache, allow_pickle))
        lists = [str(path) for path in made_lists.of_checkpoints(folders, cache)]
    elif allow_pickle:
        raise PlanError("--allow-pickle is for --model; `zoo prefetch --allow-pickle` is for models of the Hub")
    folder, url = options.here(store, cache)
    if url and resume:
        pull(url, folder, newest=1, wanted=lambda run_id: resume in (run_id, "latest"))
    elif url and not document and (asked_shard or budget):
        pull(url, folder, newest=RECENT_RUNS)
    tier = tier or (None if lists or resume else "smoke")
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
        url=url,
        cache=cache,
        expectations=expectations,
        fault=fault,
        fail_fast=fail_fast,
        one_attempt=one_attempt,
    )
    if resume:
        plan = asked.resumed(request, resume)
    elif document:
        plan = planning.followed(request, plan_file, document, asked_shard)
    elif asked_shard or budget:
        # The plan is the same on every machine, so a shard's workers are what was said and not what there is.
        side_by_side = workers or (1 if asked_shard else options.cores())
        part = asked_shard or Shard(1, 1)
        plan = asked.planned(request)
        plan = planning.part(plan, planning.deal(plan, part.count, budget, side_by_side), part)
    else:
        plan = asked.planned(request)
    planning.say_shard(plan)
    if dry_run:
        asked.print_plan(plan)
        return
    raise typer.Exit(drive.execute(plan))
