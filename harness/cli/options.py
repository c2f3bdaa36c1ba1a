"""Options that several verbs share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from model_lists.aliases import current
from results.remote import is_url, local_folder, mirror

DEFAULT_TARGET = "tpu"


def renamed(word: str) -> str:
    """The word with a model's new id in place of an old one. A registered type stays, though a model was called so."""
    from harness.derived import registered_word

    now = current(word)
    return word if now != word and registered_word(word) else now


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
    list[str] | None,
    typer.Option("--dtype", help="Floating-point type (default: float32), or shipped: each model's own. Repeatable."),
]
Profiles = Annotated[list[str] | None, typer.Option("--profile", help="Input shapes (default: padded). Repeatable.")]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select", "-k", metavar="WORD", parser=renamed, help="Model type, class, Hub id, case id or glob. Repeatable."
    ),
]
OfWeights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="KIND",
        help="synthetic; config: seeded, on each model's own config; hub: the real ones (default: the list's).",
    ),
]
Workers = Annotated[int | None, typer.Option("--workers", "-n", min=1, help="Side by side (default: cores).")]
Store = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="DIR",
        parser=local_folder,
        help="Results store (default: $ZOO_STORE or ./zoo-results).",
    ),
]
StoreAnywhere = Annotated[
    str | None,
    typer.Option("--store", metavar="DIR|URL", help="Results store (default: $ZOO_STORE or ./zoo-results)."),
]
Cache = Annotated[
    Path | None, typer.Option("--cache", metavar="DIR", help="Cache (default: $ZOO_CACHE or the user's cache folder).")
]
Expectations = Annotated[
    Path | None,
    typer.Option(
        "--expectations",
        metavar="DIR|FILE",
        help="What is known to fail: a folder of <target>.toml files (default: the shipped one), or one file.",
    ),
]
Budget = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help="Only the best coverage that fits into this time, such as 90m."),
]
Fault = Annotated[
    str,
    typer.Option("--fault", metavar="MODULE:NAME", help="Call this in each case's process to break the backend."),
]
OneAttempt = Annotated[
    bool, typer.Option("--one-attempt", help="Do not run an unexpected failure again to see whether it is flaky.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the ids of the planned cases and stop.")]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Take weights that can carry code where there are no others.")
]
FailFast = Annotated[bool, typer.Option("--fail-fast", "-x", help="Stop at the first unexpected result.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write here (default: standard output).")]


def write(content: str | bytes, path: Path | None) -> None:
    """Put text or bytes into a file, whole or not at all, or on standard output. Raises StoreError."""
    from results.files import write_atomically

    if path is not None:
        write_atomically(path.absolute(), content)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)
    sys.stdout.buffer.flush()


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def here(store: str | None, cache: Path | None) -> tuple[Path | None, str]:
    """The folder in which a store's runs are made on this machine, and its URL; None for the default, "" for no URL."""
    from harness.pytest_plugin.settings import default_cache

    named = store or os.environ.get("ZOO_STORE") or ""
    if is_url(named):
        return mirror(named, Path(cache or default_cache()).absolute()), named
    return Path(store) if store else None, ""


def list_paths(
    lists: list[str] | None, *, tier: str | None = None, words: Sequence[str] = (), cache: Path | None = None
) -> tuple[Path, ...]:
    """Files of the named lists. Where none is named: the shipped ones that may have models of `tier`.

    Without a tier, `words` mean models of the first of these that has them all: the smoke list, so that an architecture
    is one model; that and what transformers registers, for a type or class alone; all shipped lists; and these with
    what transformers registers. An id of a model with other weights than listed means it with these. Raises ListError.
    """
    from harness.cli import made_lists
    from harness.derived import derived_list, registered_word
    from harness.pytest_plugin.settings import default_cache
    from model_lists import DERIVED_LIST, DERIVED_TIERS, NESTED_TIERS, ListError, list_names, list_path, lists_for

    folder = Path(cache or default_cache()).absolute()
    if lists is None:
        if tier in DERIVED_TIERS:
            return (derived_list(folder),)
        shipped = lists_for(tier)
        if not words:
            return shipped
        if tier is None:
            smoke = _weighed_as_named(lists_for(NESTED_TIERS[0]), words, folder)
            missing = _unknown_to(smoke, words)
            if all(map(registered_word, missing)):
                return (*smoke, derived_list(folder)) if missing else smoke
        shipped = _weighed_as_named(shipped, words, folder)
        if _unknown_but_registered(shipped, words):
            return (*shipped, derived_list(folder))
        return shipped
    paths: dict[Path, None] = {}
    for name in lists:
        if not name.endswith(".csv") and "/" not in name:
            base, weights = made_lists.parted(name)
            named = (derived_list(folder) if base == DERIVED_LIST else list_path(base),)
            (path,) = made_lists.with_weights(named, weights or None, folder)
        else:
            path = Path(name).absolute()
            if not path.is_file():
                raise ListError(f"{name}: no such file; give a model list in CSV, or one of: {', '.join(list_names())}")
        paths[path] = None
    return tuple(paths)


def list_name(path: Path) -> str:
    """What `--list` calls a list, on any machine that has it: the inverse of `list_paths`."""
    from harness.cli import made_lists
    from model_lists import DERIVED_LIST, list_names, list_path

    if path.stem in list_names() and path == list_path(path.stem):
        return path.stem
    if path.name == f"{DERIVED_LIST}.csv":
        return DERIVED_LIST
    base, weights = made_lists.parted(path.stem)
    if weights and base in (*list_names(), DERIVED_LIST) and made_lists.is_made(path):
        return path.stem
    return os.path.relpath(path)


def _weighed_as_named(lists: tuple[Path, ...], words: Sequence[str], cache: Path) -> tuple[Path, ...]:
    """The lists, and what they are with the weights that ids among the words name, where they lack these ids."""
    from harness.cases import Weights
    from harness.cli import made_lists

    named = [word for word in words if set(word.split("/")[3:]) & set(Weights)]
    missing = _unknown_to(lists, named) if named else []
    kinds = [kind for kind in Weights if any(kind in word.split("/")[3:] for word in missing)]
    return (*lists, *(path for kind in kinds for path in made_lists.with_weights(lists, kind, cache)))


def _unknown_but_registered(shipped: Sequence[Path], words: Sequence[str]) -> bool:
    """Does any of `words` name an architecture of transformers that the shipped lists lack?"""
    from harness.derived import registered_word

    # A case or entry id begins with a type and a class.
    return any(registered_word(part) for word in _unknown_to(shipped, words) for part in word.split("/")[:2])


def _unknown_to(lists: Sequence[Path], words: Sequence[str]) -> list[str]:
    """Those of `words` that name no model of these lists. Raises ListError."""
    from harness.plan import PlanError, select
    from model_lists import load_list

    entries = [entry for path in lists for entry in load_list(path)]
    missing = []
    for word in words:
        try:
            select(entries, words=[word])
        except PlanError:
            missing.append(word)
    return missing
