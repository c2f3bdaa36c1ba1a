"""`zoo merge`: one run from the shards of a plan, wherever they were run."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import EXIT_OK, EXIT_UNEXPECTED, options

if TYPE_CHECKING:
    from harness.plan.document import PlanDocument
    from model_lists.expectations import Expectation, Expectations
    from results.merge import Merged, ShardRun

_NAMED = 20


def merge(
    stores: Annotated[list[str], typer.Argument(metavar="SHARD_STORE...", help="Store of a shard: folder or URL.")],
    into: Annotated[str, typer.Option("--into", metavar="STORE", help="Store to merge into: folder or URL.")],
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Only shards of this plan (default: all, of one plan)."),
    ] = None,
    expectations: options.Expectations = None,
) -> None:
    """Merge the shards of one plan into one run. Doing it again, or in parts, or in another order comes to the same.

    The run gets what any run gets at its end: whether it was green, and its failures.toml. Exit code 0: every planned
    case has a result. 1: some have none, or an expectation speaks of no case; they are named, and the rest is merged.
    2: nothing was merged: shards of different plans, no shards, or a damaged store.
    """
    from harness.cli.planning import load_plan
    from harness.pytest_plugin.ending import idle_line
    from model_lists.expectations import FOLDER
    from results import StoreError
    from results.baseline import expectations_of
    from results.merge import merge as merge_shards
    from results.merge import the_plan
    from results.remote import is_url, pull, push

    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        wanted = load_plan(plan) if plan else None
        found = _shards(stores, Path(scratch), wanted)
        plan_id, _ = the_plan(found)
        document = wanted or load_plan(found[0].document)
        if document.id != plan_id:
            raise StoreError(f"{found[0].document} is damaged: it is not plan {plan_id[:12]}")
        # Read before anything is written: they may be malformed.
        known = expectations_of(found[0].run, Path(expectations or FOLDER))
        local = Path(into)
        if is_url(into):
            local = Path(scratch) / "into"
            pull(into, local, wanted=lambda run_id: run_id.endswith(plan_id[:6]))
        merged = merge_shards(local, found, [case.case_id for case in document.cases])
        idle, problems = _conclude(merged, document, known)
        if is_url(into) and merged.changed:
            push(merged.run, into)
    _report(merged, document, into)
    for problem in problems:
        print(f"WARNING: {problem}", file=sys.stderr)
    for one in idle:
        print(idle_line(one))
    raise typer.Exit(EXIT_UNEXPECTED if merged.missing or idle else EXIT_OK)


def _conclude(merged: Merged, document: PlanDocument, known: Expectations) -> tuple[tuple[Expectation, ...], list[str]]:
    """End the run as any run is ended: the expectations that speak of nothing, and what could not be looked at."""
    from harness.pytest_plugin.ending import conclude, idle_expectations
    from harness.records import real_target
    from harness.targets import resolve
    from model_lists import ListError
    from results.baseline import target_of

    run = merged.run
    target = resolve(real_target(target_of(run)))
    if merged.changed or "ended" not in run.provenance:
        conclude(run, target, known)
    if all(one.inert for one in known):
        return (), []
    try:
        return idle_expectations(run, target, known, options.list_paths(list(document.lists))), []
    except ListError as error:
        return (), [f"no expectation was looked for that speaks of no case: {error}"]


def _shards(stores: Sequence[str], scratch: Path, wanted: PlanDocument | None) -> list[ShardRun]:
    """The shards in all of the stores. Raises StoreError."""
    from results import StoreError
    from results.merge import shard_runs
    from results.remote import is_url, pull

    found: list[ShardRun] = []
    for number, source in enumerate(dict.fromkeys(stores)):
        local = Path(source)
        if is_url(source):
            local = scratch / str(number)
            pull(source, local)
        elif not local.is_dir():
            raise StoreError(f"{source}: no such store")
        own = shard_runs(local, source)
        if wanted:
            own = [one for one in own if one.plan == (wanted.id, wanted.planned_at)]
        if not own:
            print(f"{source} holds no shard{' of this plan' if wanted else ''}", file=sys.stderr)
        found += own
    if not found:
        raise StoreError("nothing to merge: `zoo run --shard` makes shards")
    return found


def _report(merged: Merged, document: PlanDocument, into: str) -> None:
    filled = sorted({case.shard for case in document.cases})
    lacking = [f"{number}/{document.shards}" for number in filled if f"{number}/{document.shards}" not in merged.shards]
    done = len(document.cases) - len(merged.missing)
    for problem in merged.problems:
        print(f"WARNING: {problem}", file=sys.stderr)
    print(
        f"{len(filled) - len(lacking)} of {len(filled)} shards of plan {document.id[:12]}, {done} of "
        f"{len(document.cases)} cases: run {merged.run.id} in {into}{'' if merged.changed else ', as it was'}"
    )
    if document.left_out:
        print(f"{len(document.left_out)} more cases were left out of the plan for want of time")
    if lacking:
        print(f"missing shards: {', '.join(lacking)}")
    for case_id in merged.missing[:_NAMED]:
        print(f"  missing {case_id}")
    if len(merged.missing) > _NAMED:
        print(f"  and {len(merged.missing) - _NAMED} more")
