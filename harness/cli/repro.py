"""`zoo repro`: a short Python file that shows a failure."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import EXIT_OK, EXIT_UNEXPECTED, options

if TYPE_CHECKING:
    from harness.cases import Case
    from results.store import Run


def repro(
    what: Annotated[
        str | None, typer.Argument(metavar="[CASE]", parser=options.renamed, help="Id of a case that failed.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="The run it failed in: an id, last, a date (default: its last)."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Every failure of the run (default: the last) that the run before it lacks.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Write here (default: the run's folder in the store).")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, help="Time to make each file's sizes smaller in.")
    ] = 60.0,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="With --new: begin no other file after this time.")
    ] = None,
    lists: options.Lists = None,
    store: options.Store = None,
    cache: options.Cache = None,
) -> None:
    """Write a short Python file that shows a failure with torch, the model's library and the backend alone.

    It exits with 1 while the bug exists and with 0 once it is gone. Exit code 0: written. 1: a failure could not be
    shown; the line says why. 2: bad input, or the target cannot be used here.
    """
    from harness.plan import PlanError
    from harness.plan.budget import parse_budget
    from results import default_store
    from results.baseline import find_run

    if (what is None) != new:
        raise typer.BadParameter("name a case, or say --new", param_hint="CASE")
    if new and to:
        raise PlanError("--new writes several files, into the run's folder: give it without --to")
    folder = Path(store or default_store()).absolute()
    if what is not None:
        found, row = _failure(folder, what, run)
        made = _make(found, [row], lists, cache, seconds, to, None)
        raise typer.Exit(EXIT_OK if made else EXIT_UNEXPECTED)
    found = find_run(folder, run or "last")
    rows = _new(folder, found)
    made = _make(found, rows, lists, cache, seconds, None, parse_budget(budget) / 1000 if budget else None)
    print(f"{made} of {len(rows)} new failures of run {found.id} are shown by a file of their own", file=sys.stderr)
    raise typer.Exit(EXIT_OK if made == len(rows) else EXIT_UNEXPECTED)


def _failure(store: Path, case_id: str, word: str | None) -> tuple[Run, Mapping[str, Any]]:
    """The row of a failure, in a run or else in the last that has the case. Raises PlanError and StoreError."""
    from harness.cases import Verdict
    from harness.cli.reproducing import COLUMNS
    from harness.plan import PlanError
    from model_lists.aliases import current
    from results.baseline import find_run
    from results.lookup import last_rows
    from results.store import read

    if word is None:
        runs = last_rows(store, lambda one: current(one) == case_id, COLUMNS)
    else:
        run = find_run(store, word)
        runs = [(run, read(run, COLUMNS, [one for one in run.planned if current(one) == case_id])[0].to_pylist())]
    for run, rows in runs:
        if not rows:
            continue
        if rows[0]["verdict"] == Verdict.PASS:
            raise PlanError(f"{case_id} passed in run {run.id}: there is nothing to show; --run names another")
        return run, rows[0]
    raise PlanError(f"no result of {case_id} in {f'run {word}' if word else store}: `zoo rerun` makes one")


def _new(store: Path, run: Run) -> list[Mapping[str, Any]]:
    """Rows of the failures that a run has and the one before it has not: first one of each cause, no twins."""
    from harness.cases import Group, Verdict
    from harness.cli.reproducing import COLUMNS
    from harness.triage import signatures
    from results import StoreError
    from results.baseline import find_run
    from results.history import Became, compare, side
    from results.store import read

    rows = [row for row in read(run, COLUMNS)[0].to_pylist() if not row["twin_of"]]
    rows = [row for row in rows if Verdict(row["verdict"]).group is Group.BACKEND]
    try:
        before = find_run(store, "previous", other=run)
    except StoreError:  # the first of its target: all are new
        old = frozenset()
    else:
        old = {change.case_id for change in compare(side(before), side(run)).that(Became.STILL_FAILING)}
    causes: dict[str, int] = {}
    placed = []
    for row in rows:
        if row["case_id"] in old:
            continue
        cause = signatures.signature(row).cause
        causes[cause] = causes.get(cause, -1) + 1
        placed.append((causes[cause], row))
    return [row for _, row in sorted(placed, key=lambda one: one[0])]


def _make(
    run: Run,
    rows: Sequence[Mapping[str, Any]],
    lists: list[str] | None,
    cache: Path | None,
    seconds: float,
    to: Path | None,
    budget: float | None,
) -> int:
    """Make the files of some failures of a run, say what became of each, and return how many were made."""
    from harness.cli.reproducing import NoRepro, Reproducer
    from harness.jobs.device_lock import DeviceBusy
    from harness.jobs.supervisor import ServerFailed
    from harness.plan import PlanError
    from harness.pytest_plugin.settings import default_cache
    from harness.records import real_target
    from harness.targets import resolve
    from results.baseline import target_of
    from results.store import repro_path

    if not rows:
        return 0
    settings, cases = run.provenance.get("settings", {}), _cases(run, rows, lists, cache)
    target, until = resolve(real_target(target_of(run))), None if budget is None else time.monotonic() + budget
    place, made, fault = Path(cache or default_cache()).absolute(), 0, settings.get("fault") or ""
    seed = next((row["seed"] for row in rows if row["seed"] is not None), 0)
    with Reproducer(target, place, fault=fault, seed=seed, seconds=seconds) as maker:
        for number, row in enumerate(rows):
            if until is not None and time.monotonic() > until:
                print(f"out of time: {len(rows) - number} failures are left without a file", file=sys.stderr)
                break
            case = cases.get(row["case_id"])
            try:
                if case is None:
                    raise NoRepro("its model is in no list any more; --list names another")
                text = maker.make(case, row).text
            except (NoRepro, ServerFailed) as no:
                print(f"no file for {row['case_id']}: {no}", file=sys.stderr)
                continue
            except DeviceBusy as busy:
                raise PlanError(str(busy)) from busy
            path = to or repro_path(run.path, row["case_id"])
            path.parent.mkdir(parents=True, exist_ok=True)
            options.write(text, path)
            made += 1
            print(path)
    return made


def _cases(run: Run, rows: Sequence[Mapping[str, Any]], lists: list[str] | None, cache: Path | None) -> dict[str, Case]:
    """The cases of a run's rows by the ids that they have there, as far as their models are in a list."""
    from harness.cli.asked import lists_of
    from harness.plan import FIELDS_AFTER_ENTRY, from_ids
    from harness.pytest_plugin.settings import default_cache
    from model_lists import load_list
    from model_lists.aliases import current

    place = Path(cache or default_cache()).absolute()
    paths = lists_of(run, options.list_paths(lists, cache=cache) if lists else (), place)
    entries = [entry for path in paths for entry in load_list(path)]
    known = {entry.id for entry in entries}
    now = {row["case_id"]: current(row["case_id"]) for row in rows}
    here = {old: new for old, new in now.items() if new.rsplit("/", FIELDS_AFTER_ENTRY)[0] in known}
    return dict(zip(here, from_ids(list(here.values()), entries), strict=True))
