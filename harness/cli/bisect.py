"""`zoo bisect`: the first bad place in a case, or the version with which it turned."""

from __future__ import annotations

import hashlib
import math
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import EXIT_NOTHING, EXIT_OK, EXIT_UNEXPECTED, options

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cases import Case, Verdict
    from harness.cli.asked import Plan
    from harness.triage.bisection import Found
    from harness.triage.candidates import Candidate
    from results.store import Run

_JUDGED = ("verdict", "group", "stage", "message")
_PLACE = (
    ("blame_pair", "who disagrees"),
    ("blame_first", "first wrong output"),
    ("blame_module", "first bad module"),
    ("blame_operator", "first bad operator"),
    ("blame_given", "given"),
    ("blame_place", "which call"),
    ("blame_why", "what came of it"),
)


def bisect(
    what: Annotated[
        str,
        typer.Argument(
            metavar="CASE",
            parser=options.renamed,
            help="A case's id, or a model and options that leave one case of it.",
        ),
    ],
    versions: Annotated[
        list[str] | None,
        typer.Option(
            "--versions",
            metavar="RANGE|WHEEL",
            help="Find the version with which the case turned: NAME==1.0..2.0, NAME==1.0,1.5, or wheels. Repeatable.",
        ),
    ] = None,
    dependencies: Annotated[
        bool, typer.Option("--dependencies", help="Of each version also install what it requires and is not here.")
    ] = False,
    lists: options.Lists = None,
    target: options.TargetName = options.DEFAULT_TARGET,
    phases: options.Phases = None,
    modes: options.Modes = None,
    dtypes: options.Dtypes = None,
    profiles: options.Profiles = None,
    store: options.Store = None,
    cache: options.Cache = None,
    expectations: options.Expectations = None,
    fault: options.Fault = "",
) -> None:
    """Run a case and name the first bad place in it; with --versions find the version with which it turned.

    Each version runs in a throw-away environment that is the present one in all else; every run is kept in the store.
    Exit code 0: found, or the case passes. 1: no place found; the same verdict with all versions. 2: bad input, or
    nothing could be judged. 130: interrupted.
    """
    from rich.console import Console

    from harness.cli import asked, drive
    from harness.plan import PlanError

    plan = asked.planned(
        asked.Request(
            lists=options.list_paths(lists, words=[what], cache=cache),
            target=target,
            phases=phases,
            modes=modes,
            dtypes=dtypes,
            profiles=profiles,
            tier=None,
            words=[what],
            workers=1,
            store=store,
            cache=cache,
            expectations=expectations,
            fault=fault,
            fail_fast=False,
        )
    )
    if len(plan.cases) != 1:
        some = ", ".join(case.id for case in plan.cases[:3])
        raise PlanError(f"{what!r} names {len(plan.cases)} cases, and one is bisected at a time: give an id, as {some}")
    drive.require_writable(plan)
    console = Console(highlight=False, soft_wrap=True)
    with _stoppable():
        code = _version(console, plan, versions, dependencies) if versions else _place(console, plan)
    raise typer.Exit(code)


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends this as Ctrl-C does, so that nothing is left behind."""

    def stop(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _place(console: Console, plan: Plan) -> int:
    """Run the case as it is now, and tell what its record says of where it goes wrong first."""
    from harness.cases import Verdict
    from harness.cli.one_case import run_case
    from harness.cli.style import plain

    (case,) = plan.cases
    console.print(plain(f"running {case.id} on {plan.target.name}", "dim"))
    columns = (*_JUDGED, *(name for name, _ in _PLACE))
    ended = run_case(plan, case, columns, Path(sys.executable), plan.cache)
    if ended.run is None:
        print(f"ERROR: {ended.why}", file=sys.stderr)
        return EXIT_NOTHING
    row = ended.row
    console.print(_verdict(row["verdict"], row["stage"], row["message"]))
    for name, label in _PLACE:
        if row[name]:
            console.print(plain(f"  {label:<22} ", "dim") + plain(row[name]))
    console.print(plain(f"run {ended.run.id}", "dim"))
    if row["verdict"] == Verdict.PASS:
        console.print("the case passes: there is nothing to find")
        return EXIT_OK
    if _says_nothing(row):
        return EXIT_NOTHING
    if row["blame_operator"] or row["blame_module"]:
        return EXIT_OK
    console.print("no operator is known that fails by itself: no place found")
    return EXIT_UNEXPECTED


def _version(console: Console, plan: Plan, words: Sequence[str], dependencies: bool) -> int:
    from harness.cli.style import plain
    from harness.plan import PlanError
    from harness.triage.bisection import search
    from harness.triage.candidates import BadVersions, asked
    from harness.triage.environments import EnvironmentFailed, released

    (case,) = plan.cases
    try:
        candidates = asked(words, released)
    except (BadVersions, EnvironmentFailed) as error:
        raise PlanError(str(error)) from error
    most = 2 + math.ceil(math.log2(len(candidates) - 1)) if len(candidates) > 2 else 2
    console.print(plain(f"{case.id} on {plan.target.name}", "dim"))
    console.print(
        f"{len(candidates)} versions, {candidates[0]} to {candidates[-1].version}:"
        f" {most} tried at most where each can be judged"
    )
    runs: dict[int, Run] = {}

    def judge(place: int) -> Verdict | None:
        verdict, run = _tried(console, plan, case, candidates[place], dependencies)
        if run is not None:
            runs[place] = run
        return verdict

    found = search(len(candidates), judge)
    for line in _answer(candidates, found):
        console.print(plain(line, "bold"))
    if not found.judged:
        return EXIT_NOTHING
    console.print(plain(f"`zoo diff {runs[found.before].id} {runs[found.after].id}` compares the two", "dim"))
    return EXIT_OK if found.turned else EXIT_UNEXPECTED


def _tried(
    console: Console, plan: Plan, case: Case, candidate: Candidate, dependencies: bool
) -> tuple[Verdict | None, Run | None]:
    """The verdict with a version, None where that says nothing about the case; and the run, if there is one."""
    from harness.cases import Verdict
    from harness.cli.one_case import run_case
    from harness.cli.style import duration, plain
    from harness.jobs import cache as caches
    from harness.triage.environments import EnvironmentFailed, throw_away
    from harness.versions import UNDER_TEST

    started = time.monotonic()
    console.print(plain(f"{candidate}  "), end="")
    try:
        with throw_away(candidate, dependencies) as environment:
            cache = caches.beside(plan.cache, environment.folder / "cache")
            ended = run_case(plan, case, _JUDGED, environment.python, cache, **{UNDER_TEST: candidate.name})
    except EnvironmentFailed as failed:
        console.print(plain(f"skipped: {failed}", "yellow"))
        return None, None
    if ended.run is None:
        console.print(plain(f"skipped: {ended.why}", "yellow"))
        return None, None
    ended.run.amend({"bisected": _facts(candidate)})
    row = ended.row
    skipped = _says_nothing(row)
    took = f"  ({duration(time.monotonic() - started)}, run {ended.run.id})"
    told = plain("skipped: ", "yellow") if skipped else plain("")
    console.print(told + _verdict(row["verdict"], row["stage"], row["message"]) + plain(took, "dim"))
    for line in environment.conflicts:
        console.print(plain(f"  pip: {line}", "dim"))
    return None if skipped else Verdict(row["verdict"]), ended.run


def _facts(candidate: Candidate) -> dict[str, str | None]:
    """What a run's provenance says of the version that was put in for it."""
    wheel = candidate.wheel
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest() if wheel else None
    named = {"distribution": candidate.name, "version": candidate.version}
    return named | {"wheel": wheel.name if wheel else None, "sha256": digest}


def _answer(candidates: Sequence[Candidate], found: Found) -> Iterator[str]:
    if not found.judged:
        judged = sum(verdict is not None for verdict in found.tried.values())
        yield f"{judged} of {len(candidates)} versions could be judged: two are needed to tell where the case turned"
        return
    before, after = candidates[found.before], candidates[found.after]
    if not found.turned:
        yield f"with {before} as with {after} the case ends as {found.tried[found.after]}: it did not turn between them"
        return
    last = f"{before} is the last with {found.tried[found.before]}"
    yield f"{last}, {after} the first with {found.tried[found.after]}"
    if found.between:
        skipped = ", ".join(str(candidates[place]) for place in found.between)
        yield f"the case may have turned with one that could not be judged: {skipped}"


def _says_nothing(row: Mapping[str, Any]) -> bool:
    from harness.cases import Group

    return row["group"] in (Group.ENVIRONMENT, Group.HARNESS)


def _verdict(verdict: str, stage: str, message: str | None) -> Any:
    from harness.cli.style import plain, verdict_style

    return plain(verdict, verdict_style(verdict)) + plain(f"  {stage}: {message}" if message else "")
