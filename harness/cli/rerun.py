"""`zoo rerun`: run models or cases again and show the new verdict beside the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options

if TYPE_CHECKING:
    from results.store import Run


def rerun(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WHAT]...",
            parser=options.renamed,
            help="Model type, class, Hub id, case id or glob; of the cases of a run where one is looked at.",
        ),
    ] = None,
    failed_in: Annotated[
        str | None,
        typer.Option("--failed-in", metavar="RUN", help="What did not pass in this run: an id, last, a date, ..."),
    ] = None,
    verdicts: Annotated[
        list[str] | None,
        typer.Option("--verdict", metavar="V", help="What ended so, in the run or in the last one. Repeatable."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ID", help="What failed of this cause, in the run or in the last one."),
    ] = None,
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
    from harness.cli import asked, drive
    from harness.records import recorded_target
    from results.baseline import find_run

    seen = failed_in is not None or bool(verdicts) or cluster is not None
    if not what and not seen:
        raise typer.BadParameter("name a model, or say --failed-in, --verdict or --cluster", param_hint="WHAT")
    request = asked.Request(
        lists=options.list_paths(lists, tier=tier, words=what or (), cache=cache),
        target=target,
        phases=phases,
        modes=modes,
        dtypes=dtypes,
        profiles=profiles,
        tier=tier,
        words=what or (),
        workers=workers,
        store=store,
        cache=cache,
        expectations=expectations,
        fault=fault,
        fail_fast=fail_fast,
        one_attempt=one_attempt,
    )
    if seen:
        empty = asked.without_cases(request)
        run = find_run(empty.store, failed_in or "last", target=recorded_target(empty.target.name, fault))
        plan = asked.again(request, _ended_so(run, verdicts or [], cluster), run)
    else:
        plan = asked.planned(request)
    if dry_run:
        asked.print_plan(plan)
        return
    raise typer.Exit(drive.execute(plan, compare=True))


def _ended_so(run: Run, verdicts: list[str], cluster: str | None) -> list[str]:
    """Ids of a run's cases that did not pass; of these verdicts, and of this cause, where such are given."""
    from harness.cases import Verdict
    from harness.plan import PlanError, words_of
    from harness.triage import signatures
    from results.store import read

    wanted = words_of("verdict", verdicts, [verdict for verdict in Verdict if verdict is not Verdict.PASS])
    rows = [row for row in read(run, signatures.COLUMNS)[0].to_pylist() if row["verdict"] in wanted]
    if cluster is None:
        ids = [row["case_id"] for row in rows]
    else:
        if not cluster.startswith(f"{signatures.VERSION}-"):
            raise PlanError(
                f"{cluster!r} is no cluster of algorithm {signatures.VERSION}: `zoo clusters {run.id}` lists them"
            )
        ids = [row["case_id"] for row in rows if signatures.signature(row).cluster == cluster]
    if not ids:
        of = f" as {', '.join(verdicts)}" * bool(verdicts) + f" of cluster {cluster}" * bool(cluster)
        raise PlanError(f"no case of run {run.id} failed{of}")
    return ids
