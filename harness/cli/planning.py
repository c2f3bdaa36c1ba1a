"""Plans for several machines or a limited time: made from what the store knows, or followed from a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.cases import Case
from harness.cli import asked, options
from harness.cli.style import duration
from harness.plan import FIELDS_AFTER_ENTRY, PlanError, from_ids, select
from harness.plan.budget import parse_budget, within
from harness.plan.document import PlanDocument, entries_digest, made
from harness.plan.durations import NOTHING, forecast
from harness.plan.peaks import predicted
from harness.plan.sharding import Shard, makespan, split
from harness.plan.twins import collapsed, originals
from harness.pytest_plugin.settings import read_plan
from harness.records import Peak
from model_lists import load_list
from results.learned import learned

_NAMED = 20


@dataclass(frozen=True)
class Dealt:
    """A plan for all shards, the time of each of its cases when twins only look each other's result up, the cases that
    are predicted to run as jobs of their own, those whose time nothing is known of, and the memory that each needs."""

    document: PlanDocument
    milliseconds: Mapping[Case, int]
    jobs: frozenset[Case]
    unknown: frozenset[Case]
    peaks: Mapping[Case, Peak]


def deal(plan: asked.Plan, shards: int, budget: str | None, workers: int, planned_at: str = "") -> Dealt:
    """Deal a plan's cases out, and say on stderr whose time is guessed and what a budget leaves out.

    `workers` are each shard's, for the budget. Raises PlanError and StoreError.
    """
    past = learned(plan.store, plan.target.name)
    expected = forecast(plan.cases, past)
    if warning := expected.warning(plan.target.name):
        print(warning, file=sys.stderr)
    chosen = plan.cases
    if budget is not None:
        limit = parse_budget(budget)
        chosen = within(limit, expected.milliseconds, past, shards, workers)
        _say_what_is_left_out(plan.cases, chosen, expected.milliseconds, budget, shards, workers)
        if not chosen:
            shortest = min(expected.milliseconds.values())
            raise PlanError(f"nothing fits into --budget {budget}: the shortest case takes {shortest / 1000:g} s")
    milliseconds = collapsed({case: expected.milliseconds[case] for case in chosen})
    document = made(
        milliseconds,
        shards,
        target=plan.request.target,
        lists=[options.list_name(path) for path in plan.request.lists],
        left_out=set(plan.cases) - set(chosen),
        planned_at=planned_at,
    )
    # A job that only looked another's result up the last time is none of its own.
    looked_up = {case for case in chosen if case.id in past and past[case.id].twin}
    jobs = frozenset(original for case, original in originals(chosen).items() if case not in looked_up)
    unknown = frozenset(case for case in jobs if expected.basis[case] == NOTHING)
    peaks = {case: predicted(case, past[case.id].peak if case.id in past else None) for case in chosen}
    return Dealt(document, milliseconds, jobs, unknown, peaks)


def part(plan: asked.Plan, dealt: Dealt, shard: Shard) -> asked.Plan:
    """The plan reduced to one shard, in the order to run it."""
    by_id = {case.id: case for case in plan.cases}
    cases = tuple(by_id[planned.case_id] for planned in dealt.document.of(shard))
    return replace(plan, cases=cases, document=dealt.document, shard=shard)


def followed(request: asked.Request, path: Path, document: PlanDocument, shard: Shard | None) -> asked.Plan:
    """The plan of one shard (the only one where None) as a file says, which was read from `path`.

    Raises PlanError where the model lists are not those it was made from, ListError, and UnknownTarget.
    """
    if shard is None:
        if document.shards > 1:
            raise PlanError(f"{path} is a plan for {document.shards} shards: say which with --shard")
        shard = Shard(1, 1)
    planned = document.of(shard)
    entry_ids = {case.case_id.rsplit("/", FIELDS_AFTER_ENTRY)[0] for case in document.cases}
    entries = select(entry for listed in request.lists for entry in load_list(listed))
    if entries_digest(entry for entry in entries if entry.id in entry_ids) != document.entries_sha256:
        names = ", ".join(options.list_name(listed) for listed in request.lists)
        raise PlanError(f"{path} was made from other model lists than {names} as found here: plan again, or use --list")
    cases = from_ids([case.case_id for case in planned], entries)
    return replace(asked.without_cases(request), cases=cases, document=document, shard=shard)


def load_plan(path: Path) -> PlanDocument:
    """The plan in a file. Raises PlanError."""
    return read_plan(path)[1]


def shard_seconds(document: PlanDocument, number: int, workers: int) -> tuple[float, float]:
    """Seconds of work in one shard, and seconds until so many workers have done it."""
    models: dict[str, int] = {}
    for case in document.cases:
        if case.shard == number:
            entry = case.case_id.rsplit("/", FIELDS_AFTER_ENTRY)[0]
            models[entry] = models.get(entry, 0) + case.milliseconds
    return sum(models.values()) / 1000, makespan(split(models, workers), models) / 1000


def say_shard(plan: asked.Plan) -> None:
    """One line on stderr about the shard that runs."""
    if plan.document is None or plan.shard is None:
        return
    seconds, _ = shard_seconds(plan.document, plan.shard.number, 1)
    what = f"shard {plan.shard} of plan {plan.document.id[:12]}"
    if plan.cases:
        about = f"{len(plan.cases)} of {len(plan.document.cases)} cases, about {duration(seconds)} of one worker's time"
    else:
        about = "no cases: there is less to run than there are shards"
    print(f"{what}: {about}", file=sys.stderr)


def _say_what_is_left_out(
    cases: tuple[Case, ...],
    chosen: tuple[Case, ...],
    milliseconds: Mapping[Case, int],
    budget: str,
    shards: int,
    workers: int,
) -> None:
    kept = set(chosen)
    left_out = [case for case in cases if case not in kept]
    if not left_out:
        return
    missed = {case.entry.model_type for case in left_out} - {case.entry.model_type for case in chosen}
    seconds = sum(milliseconds[case] for case in left_out) / 1000
    machines = f"{shards} x {budget}" if shards > 1 else budget
    side_by_side = f" with {workers} workers" if workers > 1 else ""
    lines = [
        f"LEFT OUT: {len(left_out)} of {len(cases)} cases ({duration(seconds)} of work) do not fit into {machines}"
        f"{side_by_side}; {len(missed)} architectures are not run at all"
    ]
    lines += [f"  left out {case.id}" for case in left_out[:_NAMED]]
    if len(left_out) > _NAMED:
        lines.append(f"  and {len(left_out) - _NAMED} more; the plan names them all (`zoo plan --out`)")
    print("\n".join(lines), file=sys.stderr)
