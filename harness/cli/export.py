"""`zoo export`: a run for other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options


class Format(StrEnum):
    """What a run is written as."""

    CSV = "csv"
    JSON = "json"
    JUNIT = "junit"


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run id, its beginning, or a word as in `zoo diff`.")],
    form: Annotated[Format, typer.Option("--format", help="What to write.")],
    out: options.Out = None,
    store: options.Store = None,
    expectations: options.Expectations = None,
) -> None:
    """Write a run's rows as CSV or JSON, or as JUnit XML for GitLab, GitHub and Jenkins; expected failures: skipped."""
    from model_lists.expectations import FOLDER
    from results import default_store
    from results.baseline import expectations_of, find_run
    from results.export import run_as_csv, run_as_json, run_as_junit

    folder = Path(expectations or FOLDER)
    chosen = find_run(Path(store or default_store()), run, expectations=folder)
    match form:
        case Format.CSV:
            content = run_as_csv(chosen)
        case Format.JSON:
            content = run_as_json(chosen)
        case Format.JUNIT:
            content = run_as_junit(chosen, expectations_of(chosen, folder))
    options.write(content, out)
