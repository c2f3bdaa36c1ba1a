"""Lists that a command makes and keeps in the cache: of checkpoints in folders, and with other weights.

They are called by what they say, so that equal ones are one file and a run is found its lists again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.cases import Entry, Weights
from harness.cli.drafting import of_checkpoint
from harness.files import write_whole
from harness.hub.index import config_path
from harness.pytest_plugin.settings import default_cache
from model_lists import ListError, load_list, write_list

_MADE = "made-"


def of_checkpoints(places: Iterable[str], cache: Path | None) -> tuple[Path, ...]:
    """A list with the checkpoint in each folder or GGUF file, under its name. Raises ListError."""
    room = _room(cache)
    entries: dict[str, Entry] = {}
    for place in places:
        entry = of_checkpoint(Path(place), room)
        if (other := entries.setdefault(entry.id, entry)) is not entry:
            raise ListError(f"{place}: another model of that type has the same name, {other.config}; rename a folder")
    return tuple(_written([entry], entry.model_id, room) for entry in entries.values())


def with_weights(paths: Sequence[Path], weights: str | None, cache: Path | None) -> tuple[Path, ...]:
    """The lists with every model's weights as asked for, as they are where that changes nothing. Raises ListError.

    A model whose checkpoint a package or a folder has keeps it, and one that has no owner on the Hub stays as it is.
    """
    if weights is None:
        return tuple(paths)
    if weights not in set(Weights):
        raise ListError(f"--weights {weights!r}; valid: {', '.join(Weights)}")
    room = _room(cache)
    kind = Weights(weights)
    made = []
    for path in paths:
        before = load_list(path)
        after = [weighed(entry, kind, room) for entry in before]
        made.append(_written(after, f"{path.stem}+{kind}", room) if after != list(before) else path)
    return tuple(made)


def weighed(entry: Entry, weights: Weights, cache: Path) -> Entry:
    """The entry with other weights, itself where it can have no others."""
    if entry.weights is weights or entry.package or "/" not in entry.model_id:
        return entry
    if entry.config and entry.weights is not Weights.CONFIG:
        return entry
    config = str(config_path(cache, entry.model_id, entry.revision)) if weights is Weights.CONFIG else ""
    return replace(entry, weights=weights, config=config)


def parted(name: str) -> tuple[str, str]:
    """The name of a list and the weights that were asked for with it: `smoke+hub` is smoke and hub."""
    base, _, kind = name.rpartition("+")
    return (base, kind) if base and kind in set(Weights) else (name, "")


def is_made(path: Path) -> bool:
    """Whether a list is one of these."""
    return path.parent.name.startswith(_MADE)


def kept(file_name: str, digest: str, cache: Path) -> Path | None:
    """A list that was made in this cache, by its name and the sha256 of its content."""
    path = _place(file_name, digest, _room(cache))
    return path if path.is_file() else None


def _written(entries: list[Entry], name: str, room: Path) -> Path:
    """Made beside its place, from which paths lead as they do there."""
    lists = room / "lists"
    try:
        lists.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=lists, prefix=".making-") as scratch:
            draft = Path(scratch, f"{name}.csv")
            write_list(draft, [_from(Path(scratch), entry) for entry in entries])
            content = draft.read_bytes()
        path = _place(draft.name, hashlib.sha256(content).hexdigest(), room)
        if not path.is_file():
            write_whole(path, content)
    except OSError as error:
        raise ListError(f"{lists}: cannot be written: {error.strerror}; choose a cache with --cache") from error
    return path


def _from(folder: Path, entry: Entry) -> Entry:
    """The entry with the way from a folder to where its config is put: the same in every cache."""
    if entry.weights is not Weights.CONFIG:
        return entry
    return replace(entry, config=os.path.relpath(entry.config, folder))


def _place(file_name: str, digest: str, room: Path) -> Path:
    return room / "lists" / f"{_MADE}{digest[:12]}" / file_name


def _room(cache: Path | None) -> Path:
    return Path(cache or default_cache()).absolute()
