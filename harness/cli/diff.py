"""`zoo diff`: what became of every case between two runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import EXIT_OK, EXIT_UNEXPECTED, options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.cli.comparison import Compared
    from results.history import Change


class Format(StrEnum):
    """How the comparison is printed."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def diff(
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="[A]",
            help="Earlier run: an id or its beginning, last, previous, last-green, a date (2026-11-28: the last run"
            " up to that day), a version (torch_tpu==0.2.0). Default: the run before B on its target.",
        ),
    ] = None,
    after: Annotated[str | None, typer.Argument(metavar="[B]", help="Later run. Default: the last.")] = None,
    store: options.Store = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="Words mean runs of this target, as recorded.")
    ] = None,
    expectations: options.Expectations = None,
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TEXT,
    out: options.Out = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Cases named of each kind (JSON: all).")] = 20,
    drift: Annotated[float, typer.Option("--drift", min=1.0, help="Factor by which an error has moved.")] = 2.0,
    speed: Annotated[float, typer.Option("--speed", min=1.0, help="Factor by which a latency has moved.")] = 1.5,
    memory: Annotated[float, typer.Option("--memory", min=1.0, help="Factor by which a peak has moved.")] = 1.25,
) -> None:
    """Compare two runs: regressions, fixes, changed failures, drift of what passes, speed, memory, and versions.

    Only cases with a result in both are compared; the others are counted. Exit codes: 0 no regression, 1 regressions,
    2 nothing could be compared.
    """
    from harness.cli.comparison import as_json, as_markdown, compared
    from model_lists.expectations import FOLDER
    from results import StoreError, default_store
    from results.baseline import find_pair
    from results.history import Became, Limits

    pair = find_pair(
        Path(store or default_store()), before, after, target=target, expectations=Path(expectations or FOLDER)
    )
    found = compared(*pair, Limits(drift, speed, memory))
    if not found.result.compared:
        raise StoreError(f"no case has a result in both {found.before} and {found.after}: nothing to compare")
    match form:
        case Format.JSON:
            options.write(as_json(found), out)
        case Format.MARKDOWN:
            options.write(as_markdown(found, limit), out)
        case Format.TEXT if out is not None:
            options.write(_text(found, limit), out)
        case Format.TEXT:
            _print(_parts(found, limit))
    raise typer.Exit(EXIT_UNEXPECTED if found.result.that(Became.REGRESSED) else EXIT_OK)


def _print(parts: Iterable[RenderableType]) -> None:
    from rich.console import Console

    console = Console()
    for part in parts:
        console.print(part, soft_wrap=True)


def _text(found: Compared, limit: int) -> str:
    from rich.console import Console

    console = Console(width=120, force_terminal=False, color_system=None)
    with console.capture() as capture:
        for part in _parts(found, limit):
            console.print(part, soft_wrap=True)
    return capture.get()


def _parts(found: Compared, limit: int) -> Iterator[RenderableType]:
    from rich.table import Table

    from harness.cli.comparison import LABELS, TOLD, told
    from harness.cli.style import plain
    from results.history import Became, Quantity

    result = found.result
    yield plain(found.title, "bold")
    if found.emulated:
        yield plain("Both runs were emulated: a stand-in executed them, not the backend's own hardware.", "yellow")
    if found.components:
        yield plain("what changed between the two:", "bold")
    for name, old, new in found.components:
        yield plain(f"  {name}: {old or 'unknown'} -> {new or 'unknown'}")
    table = Table.grid(padding=(0, 2))
    for became, count in result.counts.items():
        if count or became is Became.REGRESSED:
            table.add_row(plain(f"{count:>7}", "bold"), plain(became), plain(became.meaning, "dim"))
    yield table
    for line in found.remarks:
        yield plain(line)
    for became in TOLD:
        changes = result.that(became)
        if changes:
            yield plain(f"\n{became} ({len(changes)})", "bold")
            yield from (_line(change) for change in changes[:limit])
            if len(changes) > limit:
                yield plain(f"and {len(changes) - limit} more", "dim")
    for quantity in Quantity:
        moves = result.moved(quantity)
        if moves:
            yield plain(f"\n{LABELS[quantity]} moved by {result.limits.of(quantity):g} or more ({len(moves)})", "bold")
            yield from (plain(f"x {move.factor:.3g}  {told(move)}  {move.case_id}") for move in moves[:limit])
            if len(moves) > limit:
                yield plain(f"and {len(moves) - limit} more", "dim")


def _line(change: Change) -> RenderableType:
    from harness.cli.style import plain, verdict_style

    line = plain("")
    for place, ended in enumerate((change.before, change.after)):
        line.append(" -> " if place else "")
        line.append_text(plain(ended.verdict, verdict_style(ended.verdict)) if ended else plain("nothing", "dim"))
    line.append_text(plain(f"  {change.case_id}"))
    if change.after is not None and change.after.message:
        line.append_text(plain(f"  {change.after.stage}: {change.after.message}", "dim"))
    return line
