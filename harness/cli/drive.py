"""Drives pytest in this process: `zoo run` and `zoo rerun` are a plan, a set of arguments and a reporter."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cases import Case, Dtype, Mode, Phase, Profile, Shipped
from harness.cli import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_OK, EXIT_UNEXPECTED, options
from harness.plan import FIELDS_AFTER_ENTRY, PlanError, dtypes_of, from_ids, names_case, select, words_of
from harness.plan.document import dumps
from harness.pytest_plugin.settings import Choice, default_cache
from harness.records import real_target
from harness.scratch import scratch
from model_lists import DERIVED_LIST, load_list
from model_lists.aliases import current
from results import StoreError, default_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.cli.progress import Reporter
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


def execute(plan: Plan, *, compare: bool = False) -> int:
    """Run the plan under pytest, report as it goes, and return the exit code.

    With `compare` the last recorded verdict of each case is shown beside the new one. However the run ended, what it
    has is then copied to the store that lies elsewhere, if it does. Raises StoreError.
    """
    from harness.cli.progress import Reporter

    reporter = Reporter(total=len(plan.cases))
    code = _execute(plan, reporter, compare)
    made = plan.resume or (reporter.session.run.id if reporter.session and reporter.session.run else "")
    if plan.request.url and made:
        _copy(plan, made)
    return code


def _copy(plan: Plan, run_id: str) -> None:
    from results import open_run
    from results.remote import push, shown

    try:
        push(open_run(plan.store, run_id), plan.request.url)
        print(f"run {run_id} is copied to {shown(plan.request.url)}", file=sys.stderr)
    except StoreError as error:
        again = f"`zoo run --resume {run_id}` with the same --store copies it again"
        raise StoreError(f"{error}; the run is kept in {plan.store}: {again}") from error


def _execute(plan: Plan, reporter: Reporter, compare: bool) -> int:
    import pytest

    from harness.cli.summary import last_verdicts, print_summary

    before = last_verdicts(plan.store, plan.cases, plan.target.name) if compare else None
    if not plan.cases:
        return EXIT_OK if plan.shard else _already_complete(plan)
    require_writable(plan)
    say_what_lacks(plan)
    with scratch() as folder, _isolated():
        plan_file = folder / "plan.txt"
        plan_file.write_text("".join(f"{case.id}\n" for case in plan.cases), encoding="utf-8")
        arguments = _arguments(plan, plan_file) + ["--zoo-rerun"] * compare
        if plan.document:
            document = folder / "plan.json"
            document.write_text(dumps(plan.document), encoding="utf-8")
            arguments += [f"--zoo-plan-document={document}", f"--zoo-shard={plan.shard}"]
        code = pytest.main(arguments, plugins=[reporter])
    if reporter.session is None or reporter.session.run is None:
        # pytest has printed the one line that says why, except where it broke down itself.
        for problem in reporter.problems:
            print(f"ERROR: {problem}", file=sys.stderr)
        return EXIT_INTERRUPTED if reporter.interrupted else EXIT_NOTHING
    if not reporter.done and reporter.problems:
        for problem in dict.fromkeys(reporter.problems):
            print(f"ERROR: {problem}", file=sys.stderr)
        print(f"nothing was measured; `zoo run --resume {reporter.session.run.id}` tries again", file=sys.stderr)
        return EXIT_NOTHING
    summary = print_summary(reporter.owner, plan.target, before, reporter.problems)
    if reporter.interrupted:
        return EXIT_INTERRUPTED
    if not summary.measured:
        return EXIT_NOTHING
    return EXIT_OK if summary.all_expected and code == pytest.ExitCode.OK else EXIT_UNEXPECTED


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


def _arguments(plan: Plan, plan_file: Path) -> list[str]:
    request = plan.request
    entries = len({case.entry.id for case in plan.cases})
    arguments = [
        *(str(path) for path in request.lists),
        f"--zoo-plan={plan_file}",
        f"--zoo-target={request.target}",
        f"--zoo-store={plan.store}",
        f"--zoo-cache={plan.cache}",
        f"-n{min(request.workers or options.cores(), entries)}",
        # The user's own pytest settings belong to the user's own tests.
        f"-c{os.devnull}",
        f"--rootdir={os.path.commonpath([path.parent for path in request.lists])}",
        "--noconftest",
        "-pno:cacheprovider",
        "-pxdist.plugin",
        "-pharness.pytest_plugin",
        "--capture=no",
    ]
    if plan.resume:
        arguments.append(f"--zoo-resume={plan.resume}")
    if request.expectations:
        arguments.append(f"--zoo-expectations={request.expectations.absolute()}")
    if request.fault:
        arguments.append(f"--zoo-fault={request.fault}")
    if request.one_attempt:
        arguments.append("--zoo-one-attempt")
    if request.fail_fast:
        arguments.append("-x")
    return arguments


@contextmanager
def _isolated() -> Iterator[None]:
    """Only our plugins and options; SIGTERM ends a run as Ctrl-C does, workers included."""
    import psutil

    saved = {name: os.environ.pop(name, None) for name in ("PYTEST_ADDOPTS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def terminated(_signal: int, _frame: object) -> None:
        # A terminal sends Ctrl-C to the workers too; nobody does so for SIGTERM.
        for worker in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                worker.terminate()
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
        del os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
        os.environ.update({name: value for name, value in saved.items() if value is not None})


def require_writable(plan: Plan) -> None:
    """Raise StoreError where the plan's store or cache cannot be written."""
    _require_writable(plan.store, "results store", "--store")
    _require_writable(plan.cache, "cache", "--cache")


def _require_writable(folder: Path, what: str, option: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StoreError(f"cannot write the {what} {folder}: {error.strerror}; choose one with {option}") from error


def _already_complete(plan: Plan) -> int:
    from harness.cases import Stage, Verdict
    from harness.cli.summary import rows_of
    from model_lists.expectations import load_expectations
    from results.expected import Outcome, outcome

    folder = plan.request.expectations
    known = load_expectations(plan.target.name, folder) if folder else load_expectations(plan.target.name)
    rows = rows_of(plan.store, plan.resume)
    ended = [outcome(Verdict(row["verdict"]), Stage(row["stage"]), known.about(row["case_id"]))[0] for row in rows]
    unexpected = sum(one is not Outcome.EXPECTED for one in ended)
    print(
        f"nothing to run: run {plan.resume} already has a result for every case it planned, "
        f"{unexpected} of {len(rows)} unexpected"
    )
    return EXIT_UNEXPECTED if unexpected else EXIT_OK
