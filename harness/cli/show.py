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
    ("inputs", "inputs made by"),
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
        str,
        typer.Argument(
            metavar="WHAT",
            parser=options.renamed,
            help="Model type, class, Hub id, case id or glob; or the folder or GGUF file of a checkpoint.",
        ),
    ],
    lists: options.Lists = None,
    store: options.Store = None,
    expectations: options.Expectations = None,
    cache: options.Cache = None,
) -> None:
    """Show a model's facts, what is here of it, what it is known to fail in, its last results and how to run it again.

    For a case id, the evidence too.
    """
    from rich.console import Console

    from harness.cli.drafting import local
    from harness.cli.made_lists import of_checkpoints
    from harness.plan import select
    from harness.pytest_plugin.report import rerun_command
    from harness.pytest_plugin.settings import default_cache
    from model_lists import load_list
    from results import default_store

    if local(what):
        paths, words = of_checkpoints([what], cache), []
    else:
        paths, words = options.list_paths(lists, words=[what], cache=cache), [what]
    sources: dict[str, Path] = {}
    for path in paths:
        for entry in load_list(path):
            sources.setdefault(entry.id, path)
    entries = select((entry for path in paths for entry in load_list(path)), words=words)
    folder = Path(store or default_store())
    console = Console()
    results = _last_results(folder, {entry.id for entry in entries})
    for entry in entries:
        _print_entry(console, entry, sources[entry.id])
        _print_fetched(console, entry, Path(cache or default_cache()).absolute())
        rows = [row for row in results if row["entry_id"] == entry.id]
        exact = [row for row in rows if row["case_id"] == what]
        _print_expectations(console, entry, what, expectations)
        _print_results(console, exact or rows, folder)
        _print_steadiness(console, exact or rows, folder)
        if exact:
            _print_evidence(console, exact[0])
        word = what if what.startswith(f"{entry.id}/") else f"{entry.id}/*"
        console.print(
            f"run again: {rerun_command(word, rows[0]['target'] if rows else 'tpu', sources[entry.id])}",
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


def _print_entry(console: Console, entry: Entry, source: Path) -> None:
    from dataclasses import fields

    from rich.table import Table

    from harness.cli.style import plain

    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")  # a path is to be copied
    table.add_row(plain("entry", "dim"), plain(entry.id, "bold"))
    for field in fields(entry):
        value = getattr(entry, field.name)
        shown = " ".join(value) if isinstance(value, tuple) else value
        absent = "no commit" if field.name == "trusted" else "unknown"
        table.add_row(plain(field.name, "dim"), plain(absent if value in (None, "") else shown))
    table.add_row(plain("list", "dim"), plain(options.list_name(source)))
    console.print(table)


def _print_fetched(console: Console, entry: Entry, cache: Path) -> None:
    """What `zoo prefetch` has brought of a model of the Hub, or why it could not."""
    from harness.cases import Weights
    from harness.cli.style import plain
    from harness.hub import index

    for kind, what in ((Weights.CONFIG, "its own config"), (Weights.HUB, "its real weights")):
        known = index.read(cache, kind, entry.model_id, entry.revision)
        if known is None:
            continue
        if known.failed is not None:
            text = f"{what} could not be fetched: {known.failed}: {known.message}"
        else:
            state = "here" if known.complete else "no longer here"
            size = f", {known.bytes:,} bytes" if known.bytes else ""
            text = f"{what}: {state}{size}, at {known.revision} (`--weights {kind}`)"
        console.print(plain(text, "dim"), soft_wrap=True)


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
