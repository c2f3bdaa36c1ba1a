"""What the verbs that survey all architectures have in common: choosing, showing, and keeping what is found."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console


def check(only: Sequence[str], names: Sequence[str]) -> None:
    """Raise PlanError for a glob in `only` that is none of `names`."""
    from harness.plan import PlanError, unknown

    for glob in only:
        if not fnmatch.filter(names, glob):
            raise PlanError(unknown("model type", glob, names))


def asked(only: Sequence[str], *names: str) -> bool:
    """Does one of the globs mean something of these names? All is asked for where there are none."""
    return not only or any(fnmatch.fnmatchcase(name, glob) for name in names for glob in only)


@contextmanager
def progress(total: int, console: Console) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, which what is yielded moves on by one, saying where it is."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda description: bar.update(task, advance=1, description=description)


def opened(path: Path) -> TextIO:
    """A file for rows. Raises PlanError where there can be none, before anything is measured."""
    from harness.plan import PlanError

    try:
        return path.open("w", newline="", encoding="utf-8", buffering=1)
    except OSError as error:
        raise PlanError(f"cannot write {path}: {error.strerror}") from error


def keep(
    kind: str, store: Path | None, rows: Iterable[Mapping[str, Any]], settings: Mapping[str, Any], console: Console
) -> None:
    """Keep a whole survey in the store and say where. Raises StoreError."""
    from harness.cli.style import plain
    from results import default_store, keep_survey
    from results.provenance import collect

    path = keep_survey(Path(store or default_store()), kind, rows, collect([], {"survey": kind, **settings}))
    console.print(plain(f"kept in {path}"), soft_wrap=True)
