"""`zoo coverage`: how many of the architectures that transformers registers can be built, fed and run on CPU."""

from __future__ import annotations

import csv
import math
import os
import re
import statistics
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from harness.cli import options, survey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from harness.jobs.reference_sweep import Swept
    from harness.models.registered import Pair

COVERED, MISSING, PART, NOT_YET = "covered", "dependency missing", "part of another", "not yet"
_STATES = (COVERED, MISSING, PART, NOT_YET)
_COLUMNS = (
    "model_type",
    "model_class",
    "stands_for_type",
    "mapping_rows",
    "state",
    "verdict",
    "stage",
    "message",
    "seconds",
    "cpu_seconds",
    "peak_bytes",
    "parameters",
)
_PACKAGE = re.compile(r"requires the (.+?) library")


def coverage(
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Every class of the auto mappings, not one for each type.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="GLOB", help="Only these model types or classes. Repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write a CSV, one row each.")] = None,
    workers: options.Workers = None,
    store: options.Store = None,
) -> None:
    """Build, feed and run every architecture that transformers registers on CPU. No list and no backend is used.

    What a sweep without --only finds is kept in the results store.
    """
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # before torch: a sweep on CPU needs no backend
    os.environ["HF_HUB_OFFLINE"] = "1"
    from rich.console import Console

    from harness.models import registered

    only = only or []
    everything = registered.pairs() if pairs else tuple(registered.base_pairs().values())
    survey.check(only, [*registered.model_types(), *(pair.model_class for pair in everything)])
    chosen = tuple(pair for pair in everything if survey.asked(only, pair.model_type, pair.model_class))
    parts = set(registered.model_types()) - set(registered.base_pairs())
    parts = [name for name in registered.model_types() if name in parts and survey.asked(only, name)]
    console = Console()
    rows = [_of_part(name, registered.wholes().get(name, ())) for name in parts]
    for row in rows:
        _tell(row, console)
    measured: dict[Pair, dict[str, object]] = {}
    with ExitStack() as files:
        file = files.enter_context(survey.opened(out)) if out is not None else None
        try:
            with closing(_measured(chosen, workers or options.cores(), console)) as ended:
                for pair, row in ended:
                    measured[pair] = row
        except KeyboardInterrupt:
            console.print(f"stopped: {len(measured)} of {len(chosen)} were measured; this is what is known so far")
            raise
        finally:
            rows += [measured[pair] for pair in chosen if pair in measured]
            if file is not None:
                _write(file, rows)
            _show(rows, console, pairs)
    if not only:
        survey.keep("coverage", store, rows, {"pairs": pairs}, console)


def _measured(chosen: tuple[Pair, ...], workers: int, console: Console) -> Iterator[tuple[Pair, dict[str, object]]]:
    """A row for each of the chosen, shown as it ends."""
    from harness.jobs.reference_sweep import sweep
    from harness.models import registered

    entries = {registered.entry(pair): pair for pair in chosen}
    with survey.progress(len(chosen), console) as advance, closing(sweep(entries, workers=workers)) as ended:
        for number, swept in enumerate(ended, 1):
            pair = entries[swept.entry]
            row = _of_swept(swept, pair, registered.base_pairs().get(pair.model_type) == pair)
            yield pair, row  # before it is shown, so that what was shown is known after Ctrl-C too
            advance(pair.model_type)
            if row["state"] != COVERED or not console.is_terminal:
                _tell(row, console, f"[{number}/{len(chosen)}] ")


def _tell(row: dict[str, object], console: Console, lead: str = "") -> None:
    from harness.cli.style import plain

    told = f": {row['message']}" if row["message"] else ""
    console.print(plain(f"{lead}{_name(row)}  {row['state']}{told}"), soft_wrap=True)


def _name(row: dict[str, object]) -> str:
    return f"{row['model_type']}/{row['model_class']}" if row["model_class"] else str(row["model_type"])


def _of_swept(swept: Swept, pair: Pair, stands_for_type: bool) -> dict[str, object]:
    from harness.cases import Verdict

    states = {Verdict.PASS: COVERED, Verdict.DEPENDENCY_MISSING: MISSING}
    message = swept.message.replace(f"{swept.entry.id}: ", "")
    if swept.verdict is Verdict.DEPENDENCY_MISSING:
        message = ", ".join(dict.fromkeys(_PACKAGE.findall(message))) or message
    return dict(
        zip(
            _COLUMNS,
            (
                pair.model_type,
                pair.model_class,
                stands_for_type,
                len(pair.tasks),
                states.get(swept.verdict, NOT_YET),
                swept.verdict,
                swept.stage,
                message,
                round(swept.seconds, 3),
                swept.cpu_seconds,
                swept.peak_bytes,
                swept.parameters,
            ),
            strict=True,
        )
    )


def _of_part(model_type: str, wholes: tuple[str, ...]) -> dict[str, object]:
    state, message = (PART, ", ".join(wholes)) if wholes else (NOT_YET, "no auto mapping names a class for it")
    known = {"model_type": model_type, "stands_for_type": True, "mapping_rows": 0, "state": state, "message": message}
    return dict.fromkeys(_COLUMNS, None) | known


def _write(file: TextIO, rows: list[dict[str, object]]) -> None:
    writer = csv.DictWriter(file, _COLUMNS)
    writer.writeheader()
    writer.writerows(rows)


def _show(rows: list[dict[str, object]], console: Console, pairs: bool) -> None:
    """Totals, the reasons behind them, and the figures."""
    from rich.table import Table

    from harness.cli.style import plain

    types = [row for row in rows if row["stands_for_type"]]
    classes = [row for row in rows if row["model_class"] is not None]
    table = Table("", *_STATES, "all", box=None)
    for what, counted in [("model types", types), *[("classes", classes)] * pairs]:
        states = Counter(row["state"] for row in counted)
        table.add_row(what, *(str(states[state]) for state in _STATES), str(states.total()))
    if pairs:
        states = Counter(
            {state: sum(row["mapping_rows"] for row in rows if row["state"] == state) for state in _STATES}
        )
        table.add_row("mapping rows", *(str(states[state]) for state in _STATES), str(states.total()))
    console.print(table)
    for package, number in Counter(row["message"] for row in rows if row["state"] == MISSING).most_common():
        console.print(plain(f"{MISSING}  {number}  {package}"), soft_wrap=True)
    for row in rows:
        if row["state"] == NOT_YET:
            console.print(plain(f"{NOT_YET}  {_name(row)}: {row['verdict'] or ''} {row['message']}"), soft_wrap=True)
    _shares("base_types", types)
    if pairs:
        _shares("pairs", classes)
    _usage([row for row in classes if row["state"] == COVERED])


def _shares(what: str, rows: list[dict[str, object]]) -> None:
    """Covered among those that can be measured here, and among all there are."""
    states = Counter(row["state"] for row in rows)
    possible = states[COVERED] + states[NOT_YET]
    for name, total in ((f"{what}_covered_share", possible), (f"{what}_covered_share_of_all", len(rows))):
        if total:
            _figure(name, f"{states[COVERED] / total:.4f} ratio")


def _usage(rows: list[dict[str, object]]) -> None:
    """What building, feeding and running a covered model takes."""
    seconds = sorted(row["cpu_seconds"] for row in rows if row["cpu_seconds"] is not None)
    peaks = sorted(row["peak_bytes"] / 2**20 for row in rows if row["peak_bytes"] is not None)
    if seconds:
        _figure("median_build_reference_cpu_seconds", f"{statistics.median(seconds):.2f} s")
        _figure("p95_build_reference_cpu_seconds", f"{_percentile(seconds, 95):.2f} s")
    if peaks:
        _figure("median_peak_memory", f"{statistics.median(peaks):.0f} MiB")
        _figure("p95_peak_memory", f"{_percentile(peaks, 95):.0f} MiB")
        _figure("largest_peak_memory", f"{peaks[-1]:.0f} MiB")
    if rows:
        _figure("largest_model", f"{max(row['parameters'] for row in rows)} parameters")


def _percentile(ordered: list[float], percent: int) -> float:
    """The smallest value that `percent` of the values do not exceed."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def _figure(name: str, value: str) -> None:
    print(f"figure: {name} {value}")
