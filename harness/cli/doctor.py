"""`zoo doctor`: is everything in place?"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from harness.cli import EXIT_NOTHING, options

_TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
Check = tuple[str, Callable[[], str]]


def doctor(target: options.TargetName = "tpu", store: options.Store = None, cache: options.Cache = None) -> None:
    """Check versions, lists, target, cache, store and disk. Exit code 2 where something would stop a run."""
    from rich.console import Console
    from rich.table import Table

    from harness.cli.style import plain
    from harness.pytest_plugin.settings import default_cache
    from results import default_store

    console = Console()
    table = Table.grid(padding=(0, 2))
    healthy = True
    folders = (Path(store or default_store()).absolute(), Path(cache or default_cache()).absolute())
    for name, check in _checks(target, *folders):
        ok, said = _outcome(check)
        healthy = healthy and ok
        table.add_row(plain("ok" if ok else "FAIL", "green" if ok else "bold red"), plain(name), plain(said))
    console.print(table)
    if not healthy:
        raise typer.Exit(EXIT_NOTHING)


def _checks(target: str, store: Path, cache: Path) -> Iterator[Check]:
    from harness.versions import PACKAGES

    yield "python", platform.python_version
    for package in PACKAGES:
        yield package, lambda package=package: _version(package)
    yield "model lists", _lists
    yield "target", lambda: _target(target, cache)
    yield "expectations", lambda: _expectations(target)
    yield "cache", lambda: _folder(cache)
    yield "results store", lambda: _folder(store)
    yield "Hub token", _token


def _outcome(check: Callable[[], str]) -> tuple[bool, str]:
    """Whether a check found things in place, and what it said."""
    from harness.targets import UnknownTarget
    from harness.targets.base import TargetUnavailable
    from model_lists import ListError
    from model_lists.expectations import ExpectationError

    try:
        return True, check()
    except (OSError, UnknownTarget, TargetUnavailable, ListError, ExpectationError) as error:
        return False, str(error)


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _lists() -> str:
    from model_lists import list_names, load_list

    return ", ".join(f"{name} ({len(load_list(name))} models)" for name in list_names())


def _target(name: str, cache: Path) -> str:
    from harness.jobs import probe
    from harness.targets import resolve

    target = resolve(name)
    facts: dict[str, Any] = probe(target, cache)
    how = "by a stand-in" if target.emulated else "on its own hardware"
    return f"{target.name}: ran an operation {how} ({', '.join(f'{k} {v}' for k, v in sorted(facts.items()))})"


def _expectations(name: str) -> str:
    from harness.targets import resolve
    from model_lists.expectations import load_expectations

    return f"{len(load_expectations(resolve(name).name))} for {resolve(name).name}"


def _folder(path: Path) -> str:
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path):
        pass
    from harness.cli.style import size

    return f"{path} is writable, {size(shutil.disk_usage(path).free)} free"


def _token() -> str:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    present = any(os.environ.get(name) for name in _TOKEN_VARIABLES) or (home / "token").is_file()
    return "present" if present else "none (public models only)"
