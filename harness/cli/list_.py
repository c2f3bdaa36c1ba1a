"""`zoo list`: which models there are."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options

if TYPE_CHECKING:
    from harness.cases import Entry

_FIELDS = (
    "model_type",
    "model_class",
    "model_id",
    "family",
    "task",
    "tier",
    "weights",
    "library",
    "params",
    "gated",
    "custom_code",
)
PASSING, FAILING, UNKNOWN = STATES = ("passing", "failing", "unknown")


def list_models(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", parser=options.renamed, help="Model type, class, Hub id or glob."),
    ] = None,
    lists: options.Lists = None,
    tier: options.Tier = None,
    arch: Annotated[str | None, typer.Option("--arch", metavar="TYPE", help="Only this model type.")] = None,
    library: Annotated[str | None, typer.Option("--library", help="Only models of this library.")] = None,
    family: Annotated[str | None, typer.Option("--family", help="Only this family.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="Only this task.")] = None,
    gated: Annotated[
        str | None, typer.Option("--gated", help="Does the Hub ask for a token: yes, no, unknown.")
    ] = None,
    custom_code: Annotated[
        str | None, typer.Option("--custom-code", help="Does it need code of its own repository: yes, no, unknown.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option("--status", help="passing, failing or unknown by the last results on the target."),
    ] = None,
    target: options.TargetName = options.DEFAULT_TARGET,
    store: options.Store = None,
) -> None:
    """List models: a table on a terminal, tab-separated lines without a header into a pipe; their number at the end.

    A model is failing if the last result of any of its cases is, passing if it has a pass and is not failing; what
    speaks of the machine alone, or of a library that nothing here runs, leaves it unknown.
    """
    from harness.plan import PlanError, select, unknown
    from model_lists import ANSWERS, LIBRARIES, load_list

    paths = options.list_paths(lists, tier=tier or "full", words=words or ())
    entries = select((entry for path in paths for entry in load_list(path)), tier=tier, words=words or ())
    filters = (
        ("model_type", arch, None),
        ("library", library, LIBRARIES),
        ("family", family, None),
        ("task", task, None),
        ("gated", gated, ANSWERS),
        ("custom_code", custom_code, ANSWERS),
    )
    for field, word, vocabulary in filters:
        if word is not None:
            valid = vocabulary or sorted({getattr(entry, field) for entry in entries})
            if word not in valid:
                raise PlanError(unknown(field.replace("_", " "), word, valid))
            entries = tuple(entry for entry in entries if getattr(entry, field) == word)
    if status is not None and status not in STATES:
        raise PlanError(unknown("status", status, STATES))
    states = _states(entries, target, store) if status or sys.stdout.isatty() else {}
    if status is not None:
        entries = tuple(entry for entry in entries if states[entry.id] == status)
    _print(entries, states)


def _states(entries: Iterable[Entry], target: str, store: object) -> dict[str, str]:
    """One of `STATES` for each entry id, by what the store knows of the target. Raises StoreError and UnknownTarget."""
    from harness.cases import Group
    from harness.plan import FIELDS_AFTER_ENTRY
    from harness.targets import resolve
    from results import default_store
    from results.learned import learned

    groups: dict[str, set[Group]] = {}
    for case_id, past in learned(store or default_store(), resolve(target).name).items():
        groups.setdefault(case_id.rsplit("/", FIELDS_AFTER_ENTRY)[0], set()).add(past.verdict.group)
    states = {}
    for entry in entries:
        seen = groups.get(entry.id, set())
        bad = seen & {Group.BACKEND, Group.MODEL}
        states[entry.id] = FAILING if bad else PASSING if Group.PASS in seen else UNKNOWN
    return states


def _print(entries: tuple[Entry, ...], states: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from harness.cli.style import plain

    types = len({entry.model_type for entry in entries})
    tiers = Counter(entry.tier for entry in entries)
    counts = f"{len(entries)} models of {types} architectures"
    if entries:
        counts += f" ({', '.join(f'{count} {tier}' for tier, count in tiers.items())})"
    if not sys.stdout.isatty():
        for entry in entries:
            words = [_word(getattr(entry, field)) for field in _FIELDS]
            print("\t".join(words + ([states[entry.id]] if states else [])))
        print(counts, file=sys.stderr)
        return
    table = Table(*_FIELDS, "status")
    for entry in entries:
        table.add_row(*(plain(_word(getattr(entry, field))) for field in _FIELDS), states[entry.id])
    console = Console()
    console.print(table)
    console.print(counts, highlight=False)


def _word(value: object) -> str:
    return "unknown" if value is None or value == "" else str(value)
