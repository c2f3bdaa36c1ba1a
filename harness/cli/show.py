"""`zoo show`: everything known about a model or a case."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import options
from model_lists.aliases import current

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cases import Entry

_RESULTS_SHOWN = 20
_EVIDENCE = (
    ("message", "why"),
    ("worst_path", "worst output"),
    ("worst_shape", "its shape"),
    ("worst_index", "worst at"),
    ("worst_actual", "got"),
    ("worst_expected", "truth"),
    ("worst_cpu", "CPU at this dtype"),
    ("worst_ratio", "error / allowed"),
    ("blame_pair", "who disagrees"),
    ("blame_repeats", "repeats"),
    ("blame_precision", "as far off as products of"),
    ("blame_first", "first wrong output"),
    ("blame_operator", "first wrong operator"),
    ("blame_module", "called by"),
    ("blame_given", "given"),
    ("blame_place", "which call"),
    ("blame_why", "what came of it"),
    ("flips", "toss-ups chosen otherwise"),
    ("evidence", "evidence"),
    ("twin_of", "ran in its stead"),
    ("attempts", "attempts"),
    ("signal", "signal"),
    ("exit_code", "exit code"),
    ("wall_seconds", "seconds"),
    ("recorded_at", "recorded"),
    ("run_id", "run"),
)
_LISTED = ("entry_id", "case_id", "target", "recorded_at", "phase", "mode", "dtype", "profile", "verdict", "stage")
_COLUMNS = tuple(dict.fromkeys([*_LISTED, *(name for name, _ in _EVIDENCE), "detail", "log"]))


def show(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", parser=options.renamed, help="Model type, class, Hub id, case id or glob.")
    ],
    lists: options.Lists = None,
    store: options.Store = None,
    expectations: options.Expectations = None,
) -> None:
    """Show a model's facts, what it is known to fail in, its last results and how to run it again.

    For a case id, the evidence too.
    """
    from rich.console import Console

    from harness.plan import select
    from harness.pytest_plugin.report import rerun_command
    from model_lists import load_list
    from results import default_store

    entries = select(
        (entry for path in options.list_paths(lists, words=[what]) for entry in load_list(path)), words=[what]
    )
    folder = Path(store or default_store())
    console = Console()
    results = _last_results(folder, {entry.id for entry in entries})
    for entry in entries:
        _print_entry(console, entry)
        rows = [row for row in results if row["entry_id"] == entry.id]
        exact = [row for row in rows if row["case_id"] == what]
        _print_expectations(console, entry, what, expectations)
        _print_results(console, exact or rows, folder)
        _print_steadiness(console, exact or rows, folder)
        if exact:
            _print_evidence(console, exact[0])
        word = what if what.startswith(f"{entry.id}/") else f"{entry.id}/*"
        console.print(
            f"run again: {rerun_command(word, rows[0]['target'] if rows else 'tpu')}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        console.print()


def _last_results(store: Path, entries: set[str]) -> list[dict[str, Any]]:
    """Rows of these entries under the ids they have now, newest run first."""
    from results.lookup import last_rows

    rows: list[dict[str, Any]] = []
    for _, found in last_rows(store, lambda case_id: current(case_id).rsplit("/", 4)[0] in entries, _COLUMNS):
        rows += [row | {name: current(row[name] or "") for name in ("case_id", "entry_id")} for row in found]
        if len(rows) >= _RESULTS_SHOWN * len(entries):
            break
    return rows


def _print_entry(console: Console, entry: Entry) -> None:
    from dataclasses import fields

    from rich.table import Table

    from harness.cli.style import plain

    table = Table.grid(padding=(0, 2))
    table.add_row(plain("entry", "dim"), plain(entry.id, "bold"))
    for field in fields(entry):
        value = getattr(entry, field.name)
        table.add_row(plain(field.name, "dim"), plain("unknown" if value in (None, "") else value))
    console.print(table)


def _print_expectations(console: Console, entry: Entry, what: str, place: Path | None) -> None:
    """What is known about the entry's cases, or about the one that `what` is the id of, on any target."""
    from itertools import product

    from harness.cases import Case, Dtype, Mode, Profile
    from harness.cli.expect import files_of, read_file, state
    from harness.cli.style import plain

    cases = [Case(entry, *rest).id for rest in product(entry.phases, Mode, Dtype, Profile)]
    cases = [what] if what in cases else cases
    for target, known in map(read_file, files_of(place)):
        for one in known:
            if any(map(one.covers, cases)):
                text = f"known on {target}: {one.case}  {one.says}  ({state(one)}; {one.where}): {one.reason}"
                console.print(plain(text, "dim" if one.inert else ""), soft_wrap=True)


def _print_steadiness(console: Console, rows: list[dict[str, Any]], store: Path) -> None:
    from harness.cli.style import plain
    from results.flakes import steadiness

    for (target, case_id), steady in sorted(steadiness(store, {row["case_id"] for row in rows}).items()):
        if steady.rate:
            text = (
                f"not steady on {target}: FLAKY in {steady.flaky} of {steady.runs} runs, and with the same versions "
                f"{steady.changes} times another verdict than the run before  {case_id}"
            )
            console.print(plain(text, "yellow"), soft_wrap=True)


def _print_results(console: Console, rows: list[dict[str, Any]], store: Path) -> None:
    from harness.cli.style import plain, verdict_style

    if not rows:
        console.print(plain(f"no results in {store}", "dim"))
    for row in rows[:_RESULTS_SHOWN]:
        line = plain(f"{row['recorded_at']}  {row['target']}  ", "dim")
        line.append_text(plain(" ".join(str(row[name]) for name in ("phase", "mode", "dtype", "profile"))))
        line.append(f"  {row['verdict']}", verdict_style(row["verdict"]))
        if row["worst_ratio"] is not None:
            line.append(f"  error {row['worst_ratio']:.3g} x allowed")
        if row["message"]:
            line.append_text(plain(f"  {row['stage']}: {row['message']}"))
        console.print(line, soft_wrap=True)


def _print_evidence(console: Console, row: Mapping[str, Any]) -> None:
    from rich.table import Table

    from harness.cli.style import plain

    table = Table.grid(padding=(0, 2))
    for name, label in _EVIDENCE:
        if row[name] not in (None, ""):
            table.add_row(plain(label, "dim"), plain(row[name]))
    console.print(table)
    for name in ("detail", "log"):
        if row[name]:
            console.print(plain(f"{name}:", "dim"))
            console.print(plain(row[name]), soft_wrap=True)
