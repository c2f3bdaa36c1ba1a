"""`zoo add`: draft an entry for a model of the Hub or a checkpoint on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options

if TYPE_CHECKING:
    from harness.cases import Entry
    from harness.hub.facts import Facts


def add(
    what: Annotated[
        str, typer.Argument(metavar="ID|DIR|FILE", help="A Hub id, a folder with a checkpoint, or a GGUF.")
    ],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE.csv", help="Append the entry to this list of your own.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="REV", help="Branch, tag or commit (default: the newest).")
    ] = None,
    tier: Annotated[str | None, typer.Option("--tier", metavar="TIER", help="Its tier (default: full).")] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights", metavar="KIND", help="synthetic or hub (default: hub where only own code has the class)."
        ),
    ] = None,
    cache: options.Cache = None,
) -> None:
    """Draft the entry of a model and print it as a line of a list, without a header.

    It is checked as `zoo lint` does. With --to it is appended; a list that is not there yet is begun, and what it has
    stays as it is. Exit code 0: drafted. 2: it could not be, or the list has it already.
    """
    from harness.cases import Weights
    from harness.cli import drafting
    from harness.plan import PlanError
    from harness.pytest_plugin.settings import default_cache
    from model_lists import COLUMNS, line_of

    kinds = (Weights.SYNTHETIC, Weights.HUB)  # configs of their own are asked for when a list is run
    if weights is not None and weights not in kinds:
        raise PlanError(f"--weights {weights!r}; valid: {', '.join(kinds)}")
    room = Path(cache or default_cache()).absolute()
    if drafting.local(what) or Path(what).exists():
        if revision or weights:
            raise PlanError(f"{what} is on this machine: give it without --revision and --weights")
        entry = drafting.of_checkpoint(Path(what), room)
    else:
        facts = _asked(what, revision or "", room)
        entry = drafting.of_hub(facts, Weights(weights) if weights else None, room)
        if entry.model_id != what:
            print(f"{what} is {entry.model_id} today", file=sys.stderr)
    entry = replace(entry, tier=tier or entry.tier)
    if to is None:
        _check(entry)
        print(line_of(entry, COLUMNS), end="")
        return
    line = _append(entry, to.absolute())
    print(line, end="")


def _asked(model_id: str, revision: str, cache: Path) -> Facts:
    """What the Hub says. Raises PlanError with the verdict where it refuses."""
    from huggingface_hub import constants

    from harness.hub.facts import facts
    from harness.hub.fetch import Settings
    from harness.hub.index import Unfetched
    from harness.plan import PlanError

    if constants.is_offline_mode():
        raise PlanError("HF_HUB_OFFLINE is set: unset it to ask the Hub")
    try:
        return facts(model_id, revision, Settings(cache))
    except Unfetched as why:
        raise PlanError(f"{why.verdict}: {why}") from why
    except OSError as error:
        raise PlanError(
            f"cannot write the cache {cache}: {error.strerror or error}; choose one with --cache"
        ) from error


def _check(entry: Entry) -> None:
    """Raise ListError where the entry alone would be refused as a row of a list."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        _append(entry, Path(folder) / "draft.csv")


def _append(entry: Entry, path: Path) -> str:
    """Append an entry to a list, which is begun where it is not there, and return its line. Raises ListError.

    The line is checked in a copy of the list before the list is touched.
    """
    from harness.lint import Linter
    from harness.registry import diffusers_names, transformers_registry
    from model_lists import COLUMNS, ListError, columns_of, line_of, read_list

    if path.suffix != ".csv":
        raise ListError(f"{path}: the name of a list ends with .csv")
    if entry.config:
        entry = replace(entry, config=os.path.relpath(entry.config, path.parent))
    try:
        before = path.read_bytes() if path.exists() else b""
        columns = columns_of(path) if before.strip() else COLUMNS
        if entry.config and "config" not in columns:
            raise ListError(f"{path}:1: the list has no column config, which {entry.model_id} needs; add it at the end")
        line = line_of(entry, columns)
        begun = before if before.strip() else (",".join(COLUMNS) + "\n").encode()
        addition = (b"" if begun.endswith(b"\n") else b"\n") + line.encode()
        for row in read_list(path) if before.strip() else ():
            if row.entry is not None and row.entry.id == entry.id:
                raise ListError(f"{path}:{row.line}: it has {entry.id} already; nothing was added")
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".draft-", suffix=".csv") as draft:
            draft.write(begun + addition)
            draft.flush()
            number = begun.count(b"\n") + addition.count(b"\n")
            mine = f"{draft.name}:{number}: "
            found = list(Linter(transformers_registry(), diffusers_names()).of_list(Path(draft.name)))
            if wrong := next((one.removeprefix(mine) for one in found if one.startswith(mine)), None):
                raise ListError(f"{entry.model_id}: {wrong}; nothing was added")
        with path.open("ab") as file:
            file.write(addition if before.strip() else begun + addition)
    except OSError as error:
        raise ListError(f"{path}: {error.strerror or error}") from error
    return line
