"""Options that several verbs share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Lists = Annotated[
    list[str] | None,
    typer.Option("--list", metavar="NAME|FILE", help="Model list: a shipped one's name or a CSV file. Repeatable."),
]
Tier = Annotated[str | None, typer.Option("--tier", metavar="TIER", help="Only the models of this tier.")]
TargetName = Annotated[str, typer.Option("--target", metavar="NAME", help="Backend under test.")]
Phases = Annotated[
    list[str] | None,
    typer.Option("--phase", help="What to exercise: forward, generate, train (default: all a model has). Repeatable."),
]
Modes = Annotated[list[str] | None, typer.Option("--mode", help="How to execute (default: every way). Repeatable.")]
Dtypes = Annotated[
    list[str] | None, typer.Option("--dtype", help="Floating-point type (default: float32). Repeatable.")
]
Profiles = Annotated[list[str] | None, typer.Option("--profile", help="Input shapes (default: padded). Repeatable.")]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", "-k", metavar="WORD", help="Model type, class, Hub id, case id or glob. Repeatable."),
]
Workers = Annotated[int | None, typer.Option("--workers", "-n", min=1, help="Side by side (default: cores).")]
Store = Annotated[
    Path | None, typer.Option("--store", metavar="DIR", help="Results store (default: $ZOO_STORE or ./zoo-results).")
]
Cache = Annotated[
    Path | None, typer.Option("--cache", metavar="DIR", help="Cache (default: $ZOO_CACHE or the user's cache folder).")
]
Expectations = Annotated[
    Path | None,
    typer.Option("--expectations", metavar="DIR", help="Folder of <target>.toml files (default: the shipped one)."),
]
Fault = Annotated[
    str,
    typer.Option("--fault", metavar="MODULE:FUNCTION", help="Call this in each case's process to break the backend."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the ids of the planned cases and stop.")]
FailFast = Annotated[bool, typer.Option("--fail-fast", "-x", help="Stop at the first unexpected result.")]


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def list_paths(lists: list[str] | None) -> tuple[Path, ...]:
    """Files of the named lists, of all shipped ones where none is named. Raises ListError."""
    from model_lists import ListError, list_names, list_path

    paths: dict[Path, None] = {}
    for name in lists or list_names():
        if not name.endswith(".csv") and "/" not in name:
            path = list_path(name)
        else:
            path = Path(name).absolute()
            if not path.is_file():
                raise ListError(f"{name}: no such file; give a model list in CSV, or one of: {', '.join(list_names())}")
        paths[path] = None
    return tuple(paths)
