"""`zoo prefetch`: fetch from the Hub what a run needs, before it."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_UNEXPECTED, options, survey

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cases import Entry
    from harness.hub.fetch import Ended

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def prefetch(
    tier: options.Tier = None,
    lists: options.Lists = None,
    select: options.Select = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="KIND",
            help="config: only configs; hub: all weights (default: configs, and the weights of the list's hub models).",
        ),
    ] = None,
    quota: Annotated[
        str | None, typer.Option("--quota", metavar="SIZE", help="Disk for checkpoints, such as 200G (default: 100G).")
    ] = None,
    allow_pickle: options.AllowPickle = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Take the newest revision again where the list pins none.")
    ] = False,
    workers: Annotated[int | None, typer.Option("--workers", "-n", min=1, help="Side by side (default: 8).")] = None,
    cache: options.Cache = None,
) -> None:
    """Fetch what `zoo run --weights config` and `--weights hub` run from the Hub, ahead of them: runs are offline.

    Without --list, --tier and --select: the smoke tier. Each model is fetched at the revision that its list pins, else
    the newest. What is there is not fetched again, so the same command goes on where it was stopped.

    HF_TOKEN opens gated models, HF_ENDPOINT names a mirror, HF_HUB_CACHE a folder of files that others use too.

    Exit code 0: all is there. 1: some could not be had, each told with its verdict. 2: none could, or bad input.
    130: interrupted.
    """
    from harness.cases import Weights
    from harness.cli import made_lists
    from harness.hub.index import wanted
    from harness.plan import PlanError, attempted
    from harness.plan import select as chosen
    from harness.pytest_plugin.settings import default_cache
    from model_lists import load_list

    size = _bytes(quota) if quota is not None else None
    if weights == Weights.SYNTHETIC:
        raise PlanError("--weights synthetic needs nothing of the Hub; valid: config, hub")
    folder = Path(cache or default_cache()).absolute()
    tier = tier or (None if lists or select else "smoke")
    paths = options.list_paths(lists, tier=tier, words=select or (), cache=folder)
    paths = made_lists.with_weights(paths, weights, folder)
    listed = chosen((entry for path in paths for entry in load_list(path)), tier=tier, words=select or ())
    named = attempted(listed, select or ())
    wants = [
        made_lists.weighed(entry, Weights.CONFIG, folder) if entry.weights is Weights.SYNTHETIC else entry
        for entry in named
    ]
    entries = [entry for entry in wants if wanted(entry)]
    if len(entries) < len(listed):
        print(f"{len(listed) - len(entries)} of {len(listed)} models have nothing to fetch", file=sys.stderr)
    if entries:
        _fetch(entries, folder, size, allow_pickle=allow_pickle, refresh=refresh, workers=workers)


def _fetch(
    entries: list[Entry],
    folder: Path,
    quota: int | None,
    *,
    allow_pickle: bool,
    refresh: bool,
    workers: int | None,
) -> None:
    from huggingface_hub import constants
    from rich.console import Console

    from harness.hub import space
    from harness.hub.fetch import WORKERS, Settings, fetch_all
    from harness.plan import PlanError

    if constants.is_offline_mode():
        raise PlanError("HF_HUB_OFFLINE is set: unset it to fetch from the Hub")
    settings = Settings(folder, quota=quota or space.QUOTA, allow_pickle=allow_pickle, refresh=refresh)
    console = Console()
    ended: list[Ended] = []
    try:
        with (
            survey.progress(len(entries), console) as advance,
            closing(fetch_all(entries, settings, workers or WORKERS)) as each,
        ):
            for one in each:
                ended.append(one)
                _tell(one, console)
                advance(one.entry.model_id)
    except OSError as error:
        raise PlanError(
            f"cannot write the cache {folder}: {error.strerror or error}; choose one with --cache"
        ) from error
    except KeyboardInterrupt:
        _summarise(ended, console)
        console.print(f"stopped: {len(ended)} of {len(entries)} ended; the same command goes on")
        sys.stdout.flush()
        # A thread may be waiting for an answer, and files and records are whole or not there.
        os._exit(EXIT_INTERRUPTED)
    _summarise(ended, console)
    failed = sum(one.fetched.failed is not None for one in ended)
    if failed:
        raise typer.Exit(EXIT_NOTHING if failed == len(ended) else EXIT_UNEXPECTED)


def _tell(one: Ended, console: Console) -> None:
    """Lines for what could not be had, for a model of another name by now, and for code that is not the trusted one."""
    from harness.cases import Weights
    from harness.cli.style import plain, verdict_style

    verdict = one.fetched.failed
    if verdict is not None:
        line = plain(verdict, verdict_style(verdict))
        console.print(line.append_text(plain(f"  {one.entry.id}: {one.fetched.message}")), soft_wrap=True)
        return
    if one.fetched.moved_to:
        console.print(plain(f"moved  {one.entry.id}: now {one.fetched.moved_to}", "dim"), soft_wrap=True)
    if one.fetched.kind is Weights.HUB and one.entry.trusted not in ("", one.fetched.revision):
        line = plain(f"code not fetched  {one.entry.id}: ", "yellow")
        why = f"it is at commit {one.fetched.revision}, and its list trusts the code of {one.entry.trusted}"
        console.print(line.append_text(plain(f"{why}; read that of this one, or pin the trusted one")), soft_wrap=True)


def _summarise(ended: list[Ended], console: Console) -> None:
    from rich.table import Table

    from harness.cli.style import plain, verdict_style

    groups: dict[str, Counter[str]] = {}
    for one in ended:
        counts = groups.setdefault(one.fetched.verdict or "fetched", Counter())
        counts += Counter(models=1, requests=one.requests, received=one.received)
    table = Table("", "models", "requests", "bytes received", box=None)
    for word, counts in sorted(groups.items(), key=lambda item: (item[0] != "fetched", -item[1]["models"])):
        numbers = (f"{counts[name]:,}" for name in ("models", "requests", "received"))
        table.add_row(plain(word, verdict_style(word)), *numbers)
    console.print(table)


def _bytes(text: str) -> int:
    from harness.plan import PlanError

    found = re.fullmatch(r"(\d{1,15})([KMGT]?)(i?B)?", text)
    if found is None or not int(found[1]):
        raise PlanError(f"--quota {text!r} is no size: write 200G, 500M or a number of bytes")
    return int(found[1]) * _UNITS[found[2]]
