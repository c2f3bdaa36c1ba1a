"""`zoo lint`: is anything wrong with the model lists and what belongs to them?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import EXIT_NOTHING, EXIT_OK, EXIT_UNEXPECTED, options

if TYPE_CHECKING:
    from harness.lint import Linter


def lint(
    lists: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LIST]...", help="A shipped list's name or a CSV file (default: all that ships with the harness)."
        ),
    ] = None,
) -> None:
    """Check model lists without running anything: ids, revisions, types and classes, tiers, duplicates.

    Without LIST also the renamed ids, the recipes, and whether what is known to fail names what there is. A line for
    each finding. Exit codes: 0 nothing found, 1 something found, 2 a file that cannot be read.
    """
    from harness.lint import Linter
    from harness.registry import diffusers_names, transformers_registry
    from model_lists import ListError
    from model_lists.expectations import ExpectationError

    linter = Linter(transformers_registry(), diffusers_names())
    unread = found = 0
    paths = options.list_paths(lists or None)
    checks = [linter.of_list(path) for path in paths] + ([] if lists else _beside_the_lists(linter))
    for check in checks:
        try:
            for finding in check:
                print(finding)
                found += 1
        except (ListError, ExpectationError) as error:
            print(f"ERROR: {error}", file=sys.stderr)
            unread += 1
    if linter.unchecked:
        print(f"{linter.unchecked} classes of diffusers are not checked: it is not installed", file=sys.stderr)
    if linter.of_own_code:
        print(f"{linter.of_own_code} classes of models' own code are not checked", file=sys.stderr)
    counts = f"{linter.entries} models of {linter.architectures} architectures in {len(paths)} lists"
    damaged = f", {unread} of the files cannot be read" if unread else ""
    print(f"{counts}: {found or 'no'} finding{'s' * (found != 1)}{damaged}", file=sys.stderr)
    raise typer.Exit(EXIT_NOTHING if unread else EXIT_UNEXPECTED if found else EXIT_OK)


def _beside_the_lists(linter: Linter) -> list[Iterator[str]]:
    """Checks of what ships beside the lists, to be run after those of the lists."""
    from model_lists import ALIASES, recipes

    return [linter.of_aliases(ALIASES), linter.of_recipes(Path(recipes.__file__).parent / "recipes"), _known(linter)]


def _known(linter: Linter) -> Iterator[str]:
    from harness.cli.expect import files_of, read_file

    for path in files_of(None):
        yield from linter.of_expectations(path, read_file(path)[1])
