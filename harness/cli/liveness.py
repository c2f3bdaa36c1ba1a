"""`zoo liveness`: would the judge see it if a backend had one parameter tensor wrong by 1 %?"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import os
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console

    from harness.cases import Entry
    from harness.execution.liveness import Tensor
    from harness.jobs.liveness_sweep import Measured

LIVE = "live"
_COLUMNS = ("model_type", "model_class", "tensor", "shape", "state", "of_allowance", "seen_in", "verdict", "message")


def liveness(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="Entries of lists: model type, class, Hub id or glob."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="GLOB", help="Only these types or classes, of all registered. Repeatable."),
    ] = None,
    lists: options.Lists = None,
    tier: options.Tier = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write a CSV, one row for each tensor.")
    ] = None,
    workers: options.Workers = None,
    store: options.Store = None,
) -> None:
    """Perturb every parameter tensor by 1 % on CPU and count those whose change the judge would fail.

    Takes one class of every registered model type, whose result is kept in the results store, or the entries of
    lists that words, --list or --tier name. What that forward pass does not show is sought in the class's other
    phases, on its inputs of the other profile and, of a registered type, in its other classes. The share is of those
    that can matter; biases that a softmax or a norm cancels are listed, and count in the share of all.
    """
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # before torch: a sweep on CPU needs no backend
    os.environ["HF_HUB_OFFLINE"] = "1"
    from rich.console import Console

    from harness.cli import EXIT_NOTHING
    from harness.plan import PlanError

    if only and (words or lists or tier):
        raise PlanError("--only chooses of what is registered; give it alone, or words, --list and --tier")
    console = Console()
    listed, workers = bool(words or lists or tier), workers or options.cores()
    entries = _of_lists(words, lists, tier, console) if listed else _registered(only or [])
    measured: list[Measured] = []
    with contextlib.ExitStack() as closing:
        file = closing.enter_context(survey.opened(out)) if out is not None else None
        closing.callback(_show, measured, console)
        if file:
            csv.writer(file).writerow(_COLUMNS)
        try:
            with contextlib.closing(_measured(entries, workers, console)) as ended:
                for one in ended:
                    measured.append(one)
                    if file:
                        csv.writer(file).writerows(_rows(one))
            _seek(measured, _itself if listed else _classes, workers, console)
        except KeyboardInterrupt:
            console.print(f"stopped: {len(measured)} of {len(entries)} were measured; this is what is known so far")
            raise
        finally:  # the rows so far are there whatever happens; now also what was found elsewhere
            if file:
                file.seek(0)
                file.truncate()
                csv.writer(file).writerows([_COLUMNS, *(row for one in measured for row in _rows(one))])
    if not any(one.tensors for one in measured):
        raise typer.Exit(EXIT_NOTHING)
    if not (only or listed):
        rows = [dict(zip(_COLUMNS, row, strict=True)) for one in measured for row in _rows(one)]
        survey.keep("liveness", store, rows, {}, console)


def _registered(only: list[str]) -> tuple[Entry, ...]:
    from harness.models import registered

    pairs = registered.base_pairs().values()
    survey.check(only, [name for pair in pairs for name in (pair.model_type, pair.model_class)])
    return tuple(registered.entry(pair) for pair in pairs if survey.asked(only, pair.model_type, pair.model_class))


def _of_lists(
    words: list[str] | None, lists: list[str] | None, tier: str | None, console: Console
) -> tuple[Entry, ...]:
    from harness.cases import Weights
    from harness.plan import PlanError, select
    from model_lists import load_list

    paths = options.list_paths(lists, tier=tier, words=words or ())
    entries = select((entry for path in paths for entry in load_list(path)), tier=tier, words=words or ())
    chosen = tuple(entry for entry in entries if entry.weights is Weights.SYNTHETIC)
    if not chosen:
        raise PlanError("only entries with real weights are chosen; liveness is about synthetic ones")
    if len(chosen) < len(entries):
        console.print(f"left out: {len(entries) - len(chosen)} with real weights")
    return chosen


def _measured(entries: tuple[Entry, ...], workers: int, console: Console) -> Iterator[Measured]:
    """What was measured of each entry, shown as it ends."""
    from harness.cli.style import plain
    from harness.jobs.liveness_sweep import sweep

    swept = sweep(entries, workers=min(workers, len(entries)))
    with survey.progress(len(entries), console) as advance, contextlib.closing(swept) as ended:
        for number, one in enumerate(ended, 1):
            advance(one.entry.model_type)
            live = sum(tensor.reason is None for tensor in one.tensors)
            told = f"{live} of {len(one.tensors)} live" if one.tensors else f"{one.verdict} {_message(one)}"
            name = f"{one.entry.model_type}/{one.entry.model_class}"
            console.print(plain(f"[{number}/{len(entries)}] {name}  {told}"), soft_wrap=True)
            yield one


def _seek(measured: list[Measured], others: Callable[[Entry], Iterable[Entry]], workers: int, console: Console) -> None:
    """Look for the dead tensors elsewhere in `others`, the entries of the same type, and mark what is live.

    In every phase, and in the forward pass on inputs of the other profile, which may ask for something else.
    """
    from harness.cases import Phase, Profile
    from harness.cli.style import plain
    from harness.jobs.liveness_sweep import seek

    known = (Phase.FORWARD, Profile.PADDED)
    for phase, profile in (*((phase, Profile.PADDED) for phase in Phase), (Phase.FORWARD, Profile.SINGLE)):
        places = {
            entry: at
            for at, one in enumerate(measured)
            if _sought(one)
            for entry in others(one.entry)
            if (entry, phase, profile) != (one.entry, *known)
        }
        names = {entry: _sought(measured[at]) for entry, at in places.items()}
        with (
            survey.progress(len(places), console) as advance,
            contextlib.closing(seek(names, phase, profile, workers=min(workers, len(places) or 1))) as ended,
        ):
            for sought in ended:
                entry, at = sought.entry, places[sought.entry]
                advance(entry.model_type)
                place = f"{entry.model_class} {phase}" + (f" {profile}" if profile is not Profile.PADDED else "")
                measured[at] = _marked(measured[at], sought.live, place)
                if sought.live or sought.message:
                    told = sought.message or f"{len(sought.live)} of {len(names[entry])} dead tensors are live here"
                    console.print(plain(f"{entry.model_type}: {place}: {told}"), soft_wrap=True)


def _sought(one: Measured) -> list[str]:
    """The dead tensors that another phase or class may show; what cancels here cancels there."""
    from harness.execution.liveness import Reason

    return [tensor.name for tensor in one.tensors if tensor.reason not in (None, Reason.CANCELLED)]


def _marked(one: Measured, live: Iterable[str], place: str) -> Measured:
    found = set(live)
    tensors = (
        dataclasses.replace(tensor, reason=None, seen_in=place) if tensor.reason and tensor.name in found else tensor
        for tensor in one.tensors
    )
    return dataclasses.replace(one, tensors=tuple(tensors))


def _itself(entry: Entry) -> tuple[Entry, ...]:
    return (entry,)


def _classes(entry: Entry) -> tuple[Entry, ...]:
    """Every class of a registered type."""
    from harness.models import registered

    return tuple(registered.entry(pair) for pair in registered.pairs() if pair.model_type == entry.model_type)


def _message(one: Measured) -> str:
    return one.message.replace(f"{one.entry.id}: ", "")


def _rows(one: Measured) -> Iterator[tuple[object, ...]]:
    """A row for each tensor, or one for a model without."""
    model, why = (one.entry.model_type, one.entry.model_class), (one.verdict, _message(one))
    for tensor in one.tensors:
        shape = "x".join(map(str, tensor.shape))
        yield *model, tensor.name, shape, tensor.reason or LIVE, tensor.used, tensor.seen_in or None, *why
    if not one.tensors:
        yield *model, None, None, None, None, None, *why


def _show(measured: list[Measured], console: Console) -> None:
    """Totals, the dead tensors by reason and model, and the figures."""
    from harness.cli.style import plain
    from harness.execution.liveness import Reason

    tensors = [tensor for one in measured for tensor in one.tensors]
    counts = Counter(tensor.reason for tensor in tensors)

    def line(text: str) -> None:
        console.print(plain(text), soft_wrap=True)  # names are to be found by grep, so never cut

    elsewhere = sum(bool(tensor.seen_in) for tensor in tensors)
    line(f"{LIVE}: {counts[None]}" + (f", {elsewhere} of them in another phase or class" if elsewhere else ""))
    for reason in Reason:
        if not counts[reason]:
            continue
        line(f"{reason}: {counts[reason]}")
        for one in measured:
            if dead := [tensor for tensor in one.tensors if tensor.reason is reason]:
                line(f"  {one.entry.model_type}/{one.entry.model_class}: {', '.join(map(_dead, dead))}")
    unmeasured = [one for one in measured if not one.tensors]
    if unmeasured:
        line(f"not measured: {len(unmeasured)} models")
    for one in unmeasured:
        line(f"  {one.entry.model_type}/{one.entry.model_class}: {one.verdict} {_message(one)}")
    if not tensors:
        return
    matter = len(tensors) - counts[Reason.CANCELLED]  # what cancels can be wrong without anything being wrong
    print(f"figure: liveness_models {len(measured) - len(unmeasured)} count")
    print(f"figure: liveness_tensors {len(tensors)} count")
    if matter:
        print(f"figure: liveness_share {counts[None] / matter:.4f} ratio")
    print(f"figure: liveness_share_of_all {counts[None] / len(tensors):.4f} ratio")
    seconds = [one.cpu_seconds for one in measured if one.tensors and one.cpu_seconds is not None]
    if seconds:
        print(f"figure: liveness_median_cpu_seconds {statistics.median(seconds):.2f} s")


def _dead(tensor: Tensor) -> str:
    """A dead tensor's name, with the share of its allowance that it moved some output by."""
    return f"{tensor.name} ({tensor.used:.2g})" if tensor.used is not None else tensor.name
