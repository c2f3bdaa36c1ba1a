"""What the user asked to run, and the cases that are: new ones, those that an earlier run failed, or those it lacks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cases import Case, Dtype, Mode, Phase, Profile, Shipped
from harness.cli import options
from harness.plan import FIELDS_AFTER_ENTRY, PlanError, dtypes_of, from_ids, names_case, select, words_of
from harness.pytest_plugin.settings import Choice, default_cache
from harness.records import real_target
from model_lists import DERIVED_LIST, load_list
from model_lists.aliases import current
from results import default_store

if TYPE_CHECKING:
    from harness.plan.document import PlanDocument
    from harness.plan.sharding import Shard
    from harness.targets.base import Target
    from results.store import Run


@dataclass(frozen=True)
class Request:
    """What the user asked for. None means the default.

    `url` is where the finished run is copied to, empty where the store lies on this machine.
    """

    lists: tuple[Path, ...]
    target: str
    phases: Sequence[str] | None
    modes: Sequence[str] | None
    dtypes: Sequence[str] | None
    profiles: Sequence[str] | None
    tier: str | None
    words: Sequence[str]
    workers: int | None
    store: Path | None
    cache: Path | None
    expectations: Path | None
    fault: str
    fail_fast: bool
    one_attempt: bool = False
    url: str = ""


@dataclass(frozen=True)
class Plan:
    """What will be run, and where. `resume` is the id of the run that is continued, empty for a new one.

    `lacking` counts the chosen models that do not have an asked phase, `not_attempted` those of each library that
    nothing here runs. Where the cases are a `shard` of a larger plan,
    `document` is that plan.
    """

    request: Request
    target: Target
    cases: tuple[Case, ...]
    store: Path
    cache: Path
    resume: str = ""
    lacking: Mapping[Phase, int] = field(default_factory=dict)
    not_attempted: Mapping[str, int] = field(default_factory=dict)
    document: PlanDocument | None = None
    shard: Shard | None = None


def planned(request: Request) -> Plan:
    """The plan for a new run. Raises ListError, PlanError and UnknownTarget."""
    plan = without_cases(request)
    entries = [entry for path in request.lists for entry in load_list(path)]
    choice = Choice(request.phases, request.modes, request.dtypes, request.profiles, request.tier, tuple(request.words))
    return replace(
        plan,
        cases=choice.cases(entries, plan.target),
        lacking=choice.lacking(entries),
        not_attempted=choice.not_attempted(entries),
    )


def without_cases(request: Request) -> Plan:
    """Where the request will be run, before it is known what. Raises UnknownTarget."""
    from harness.targets import resolve

    return Plan(
        request,
        resolve(request.target),
        (),
        Path(request.store or default_store()).absolute(),
        Path(request.cache or default_cache()).absolute(),
    )


def again(request: Request, cases: Sequence[str], run: Run) -> Plan:
    """The plan for some cases of a run, of those that the request chooses; what it leaves open is as it was in the run.

    Of cases that are in no list any more the number is told. Raises ListError, UnknownTarget, and PlanError where the
    request chooses none of the cases.
    """
    plan = without_cases(request)
    request = replace(request, lists=lists_of(run, request.lists, plan.cache))
    entries = select((entry for path in request.lists for entry in load_list(path)), tier=request.tier)
    known = {entry.id for entry in entries}
    now = map(current, cases)
    here = [case_id for case_id in now if case_id.rsplit("/", FIELDS_AFTER_ENTRY)[0] in known]
    if len(here) < len(cases) and not request.tier:
        print(f"{len(cases) - len(here)} cases of run {run.id} are of models that no list has", file=sys.stderr)
    asked = {
        "phase": words_of("phase", request.phases or (), list(Phase)),
        "mode": words_of("mode", request.modes or (), list(Mode)),
        "profile": words_of("profile", request.profiles or (), list(Profile)),
    }
    dtypes = words_of("dtype", request.dtypes or (), [*Dtype, *Shipped])
    chosen = [
        case
        for case in from_ids(here, entries)
        if all(getattr(case, name) in words for name, words in asked.items())
        and case.dtype in dtypes_of(case.entry, dtypes)
        and (not request.words or any(names_case(word, case) for word in request.words))
    ]
    if not chosen:
        raise PlanError(f"none of the cases found in run {run.id} is among those asked for")
    return replace(plan, request=request, cases=tuple(chosen))


def lists_of(run: Run, lists: tuple[Path, ...], cache: Path) -> tuple[Path, ...]:
    """The lists, and those that the run's cases came from, as far as they ship, are derived, or were made here."""
    from harness.cli import made_lists
    from model_lists import list_names

    found = list(lists)
    for file_name, digest in run.provenance.get("lists", {}).items():
        name = file_name.removesuffix(".csv")
        if made_lists.parted(name)[0] in (*list_names(), DERIVED_LIST):
            found += options.list_paths([name], cache=cache)
        elif made := made_lists.kept(file_name, digest, cache):
            found.append(made)
    return tuple(dict.fromkeys(found))


def resumed(request: Request, run_id: str) -> Plan:
    """The plan for what a run still lacks, on the run's own target.

    Raises what `planned` raises, and StoreError where there is no such run.
    """
    from harness.targets import resolve
    from results import missing, open_run

    store = Path(request.store or default_store()).absolute()
    run = open_run(store, run_id)
    cache = Path(request.cache or default_cache()).absolute()
    lists = lists_of(run, request.lists, cache)
    settings = run.provenance.get("settings", {})
    asked_target = real_target(settings.get("target") or request.target)
    entries = select(entry for path in lists for entry in load_list(path))
    return Plan(
        replace(request, target=asked_target, lists=lists, fault=request.fault or settings.get("fault") or ""),
        resolve(asked_target),
        from_ids(missing(run), entries),
        store,
        cache,
        resume=run.id,
    )


def print_plan(plan: Plan) -> None:
    """Case ids on stdout, one a line, as `--zoo-plan` reads them; their number on stderr."""
    sys.stdout.write("".join(f"{case.id}\n" for case in plan.cases))
    entries = len({case.entry.id for case in plan.cases})
    print(f"{len(plan.cases)} cases of {entries} models on {plan.target.name}", file=sys.stderr)
    say_what_lacks(plan)


def say_what_lacks(plan: Plan) -> None:
    """Lines on stderr about models that lack an asked phase, that nothing here runs, and that were not fetched."""
    from harness.hub import index

    if plan.lacking:
        counts = ", ".join(f"{count} have no {phase}" for phase, count in plan.lacking.items())
        print(f"of the chosen models {counts}: no cases for these", file=sys.stderr)
    if plan.not_attempted:
        counts = ", ".join(f"{count} {library}" for library, count in plan.not_attempted.items())
        print(f"NOT ATTEMPTED: {counts} models of the chosen: nothing here runs these libraries yet", file=sys.stderr)
    entries = {case.entry for case in plan.cases if index.wanted(case.entry)}
    absent = sum(index.known(plan.cache, entry).failed is not None for entry in entries)
    if absent:
        what = f"{absent} of {len(entries)} models that need something of the Hub"
        print(f"NOT FETCHED: {what}; their cases will say why (`zoo prefetch` fetches)", file=sys.stderr)
