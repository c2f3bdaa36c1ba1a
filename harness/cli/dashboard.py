"""`zoo dashboard`: build the static site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options


def dashboard(
    store: options.Store = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the site.")] = Path("site"),
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Run to show (default: the latest).")] = None,
) -> None:
    """Build the dashboard: a folder of static files to open in a browser or to serve."""
    from dashboards import build
    from results import default_store

    print(build(Path(store or default_store()), out, run))
