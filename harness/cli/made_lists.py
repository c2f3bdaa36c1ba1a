"""Lists that a command makes for itself and keeps in the cache: of checkpoints in folders, and of other weights."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.cases import Entry, Weights
from harness.derived import derived_list
from harness.pytest_plugin.settings import default_cache
from model_lists import ListError, load_list, write_list


def of_checkpoints(folders: Iterable[str], cache: Path | None) -> tuple[Path, ...]:
    """A list with the checkpoint in each folder, under the folder's name. Raises ListError."""
    room = Path(cache or default_cache()).absolute()
    known = {(entry.model_type, entry.model_class): entry for entry in load_list(derived_list(room))}
    return tuple(_written([_entry(Path(folder).absolute(), known)], Path(folder).name, room) for folder in folders)


def with_weights(paths: Sequence[Path], weights: str | None, cache: Path | None) -> tuple[Path, ...]:
    """The lists with every model's weights as asked for, as they are where nothing is asked. Raises ListError.

    A model whose checkpoint a package brings keeps it, and one that has no owner on the Hub stays as it is.
    """
    if weights is None:
        return tuple(paths)
    if weights not in set(Weights):
        raise ListError(f"--weights {weights!r}; valid: {', '.join(Weights)}")
    room = Path(cache or default_cache()).absolute()
    return tuple(
        _written([_weighed(one, Weights(weights)) for one in load_list(path)], path.stem, room) for path in paths
    )


def _weighed(entry: Entry, weights: Weights) -> Entry:
    if entry.weights is weights or entry.package or "/" not in entry.model_id:
        return entry
    return replace(entry, weights=weights, config="")


def _entry(folder: Path, known: dict[tuple[str, str], Entry]) -> Entry:
    config = folder / "config.json"
    try:
        said = json.loads(config.read_bytes())
        wanted = said["model_type"], said["architectures"][0]
    except OSError as error:
        raise ListError(f"{folder}: no checkpoint: config.json cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ListError(
            f"{config}:1: it does not say its model_type and architectures; save_pretrained does"
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise ListError(f"{folder}: no weights in safetensors; save them with save_pretrained")
    entry = known.get(wanted) if all(isinstance(word, str) for word in wanted) else None
    if entry is None:
        raise ListError(f"{config}:1: {wanted[0]!r} {wanted[1]!r} is no model class of the installed transformers")
    name = re.sub(r"[^\w.-]|^[^A-Za-z0-9]+", "", folder.name, flags=re.ASCII) or "checkpoint"
    return replace(entry, model_id=name, revision="", weights=Weights.HUB, config=str(config))


def _written(entries: list[Entry], name: str, room: Path) -> Path:
    digest = hashlib.sha256(repr(entries).encode()).hexdigest()[:12]
    path = room / "lists" / f"made-{digest}" / f"{name}.csv"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_list(path, entries)
    except OSError as error:
        raise ListError(f"{path}: cannot be written: {error.strerror}; choose a cache with --cache") from error
    return path
