"""Drives pytest in this process: `zoo run` and `zoo rerun` are a plan, a set of arguments and a reporter."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_OK, EXIT_UNEXPECTED, options
from harness.cli.asked import Plan, say_what_lacks
from harness.plan.document import dumps
from harness.scratch import scratch
from results import StoreError

if TYPE_CHECKING:
    from harness.cli.progress import Reporter


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
