"""`zoo coverage`: how many of the architectures that transformers registers can be built, fed and run on CPU."""

from __future__ import annotations

import csv
import fnmatch
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from harness.jobs.reference_sweep import Swept
    from harness.models.registered import Pair

COVERED, MISSING, PART, NOT_YET = "covered", "dependency missing", "part of another", "not yet"
_COLUMNS = ("model_type", "model_class", "state", "verdict", "stage", "message", "seconds", "peak_bytes", "parameters")
_PACKAGE = re.compile(r"requires the (.+?) library")


def coverage(
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Every class of the auto mappings, not one for each type.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="GLOB", help="Only these model types or classes. Repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write a CSV, one row each.")] = None,
) -> None:
    """Build, feed and run every architecture that transformers registers on CPU. No list and no backend is used."""
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # before torch: a sweep on CPU needs no backend
    os.environ["HF_HUB_OFFLINE"] = "1"
    from rich.console import Console

    from harness.models import registered
    from harness.plan import PlanError, unknown

    chosen = registered.pairs() if pairs else tuple(registered.base_pairs().values())
    parts = [name for name in registered.model_types() if name not in registered.base_pairs()]
    if only:
        _check(only, [*registered.model_types(), *(pair.model_class for pair in chosen)], PlanError, unknown)
        chosen = tuple(pair for pair in chosen if _matches(only, pair.model_type, pair.model_class))
        parts = [name for name in parts if _matches(only, name)]
    console = Console()
    rows = [_of_part(name, registered.wholes().get(name, ())) for name in parts]
    try:
        for row in _measured(chosen, console):
            rows.append(row)
    except KeyboardInterrupt:
        console.print(f"stopped: {len(rows) - len(parts)} of {len(chosen)} were measured; this is what is known so far")
        raise
    finally:
        if out is not None:
            _write(out, rows)
        _show(rows, console, "pairs" if pairs else "base_types")


def _check(only: list[str], valid: list[str], error: type[Exception], unknown) -> None:
    for word in only:
        if not fnmatch.filter(valid, word):
            raise error(unknown("model type", word, valid))


def _matches(globs: list[str], *names: str) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def _measured(chosen: tuple[Pair, ...], console: Console) -> Iterator[dict[str, object]]:
    """A row for each of the chosen, shown as it ends."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from harness.cli.style import plain
    from harness.jobs.reference_sweep import sweep
    from harness.models import registered

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(chosen))
        for number, swept in enumerate(sweep(registered.entry(pair) for pair in chosen), 1):
            row = _of_swept(swept)
            progress.update(task, advance=1, description=swept.entry.model_type)
            if row["state"] != COVERED or not console.is_terminal:
                told = f": {row['message']}" if row["message"] else ""
                name = f"{swept.entry.model_type}/{swept.entry.model_class}"
                console.print(plain(f"[{number}/{len(chosen)}] {name}  {row['state']}{told}"), soft_wrap=True)
            yield row


def _of_swept(swept: Swept) -> dict[str, object]:
    from harness.cases import Verdict

    states = {Verdict.PASS: COVERED, Verdict.DEPENDENCY_MISSING: MISSING}
    message = swept.message.replace(f"{swept.entry.id}: ", "")
    if swept.verdict is Verdict.DEPENDENCY_MISSING:
        message = ", ".join(dict.fromkeys(_PACKAGE.findall(message))) or message
    return dict(
        zip(
            _COLUMNS,
            (
                swept.entry.model_type,
                swept.entry.model_class,
                states.get(swept.verdict, NOT_YET),
                swept.verdict,
                swept.stage,
                message,
                round(swept.seconds, 3),
                swept.peak_bytes,
                swept.parameters,
            ),
            strict=True,
        )
    )


def _of_part(model_type: str, wholes: tuple[str, ...]) -> dict[str, object]:
    state, message = (PART, ", ".join(wholes)) if wholes else (NOT_YET, "no auto mapping names a class for it")
    return dict.fromkeys(_COLUMNS, None) | {"model_type": model_type, "state": state, "message": message}


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def _show(rows: list[dict[str, object]], console: Console, what: str) -> None:
    """Totals, the reasons behind them, and the figures."""
    from rich.table import Table

    from harness.cli.style import plain

    counts = Counter(row["state"] for row in rows)
    measured = [row for row in rows if row["model_class"] is not None]
    table = Table.grid(padding=(0, 2))
    for state in (COVERED, MISSING, PART, NOT_YET):
        table.add_row(state, plain(counts[state]))
        if state == MISSING:
            packages = Counter(row["message"] for row in rows if row["state"] == MISSING)
            for package, number in packages.most_common():
                table.add_row("", plain(f"{number}  {package}"))
        if state == NOT_YET:
            for row in rows:
                if row["state"] == NOT_YET:
                    name = f"{row['model_type']}/{row['model_class']}" if row["model_class"] else row["model_type"]
                    table.add_row("", plain(f"{name}: {row['verdict'] or ''} {row['message']}"))
    console.print(table)
    missing = sum(row["state"] == MISSING for row in measured)
    for name, total in (
        (f"{what}_covered_share", len(measured)),
        (f"{what}_covered_of_installed_share", len(measured) - missing),
    ):
        if total:
            print(f"figure: {name} {counts[COVERED] / total:.4f} ratio")
