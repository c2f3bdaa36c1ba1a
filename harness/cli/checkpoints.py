"""Checkpoints that a command names: in a folder, in each folder of a folder, or wherever fsspec has a URL for."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness import checkpoints
from harness.cases import Verdict, Weights
from harness.hub import index, space, unpickled
from harness.hub.choice import chosen, is_pickle
from harness.hub.index import Fetched, Unfetched
from harness.pytest_plugin.settings import default_cache
from harness.redaction import redacted
from model_lists import ListError
from results.remote import is_url, reaching, shown

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_CONFIG = "config.json"


@contextmanager
def at_hand(places: Iterable[str], cache: Path | None, allow_pickle: bool = False) -> Iterator[list[str]]:
    """The folders of the checkpoints at `places`, on this machine's disk and kept from eviction in here.

    A checkpoint at a URL is copied once, and again when it changes there; the copy counts against the quota as what
    `zoo prefetch` fetches does. With `allow_pickle` weights that were pickled are taken where there are no others, and
    safetensors made of them, in a copy of folders too. Raises ListError, and StoreError where a URL cannot be reached.
    """
    room = Path(cache or default_cache()).absolute()
    with ExitStack() as kept:
        folders = []
        for place in places:
            for found in _found(place, room, allow_pickle):
                if isinstance(found, Fetched):
                    kept.enter_context(space.in_use(room, found.model_id))
                    found = _called_by_its_name(found, room)
                folders.append(str(found))
        yield folders


def _found(place: str, room: Path, allow_pickle: bool) -> Iterator[Path | Fetched]:
    """Each checkpoint of a place: where it lies, or the copy that was made of it."""
    if is_url(place):
        yield from _copies(place, room, allow_pickle)
        return
    for folder in _inside(Path(place)):
        if allow_pickle and any(folder.glob(checkpoints.PICKLES)) and not checkpoints.weights_of(folder):
            yield from _copies(f"file://{folder.absolute()}", room, allow_pickle)
        else:
            yield folder


def _inside(place: Path) -> list[Path]:
    """The place itself, or the checkpoints in a folder that is none."""
    inner = [] if (place / _CONFIG).is_file() else sorted(place.glob(f"*/{_CONFIG}"))
    return [path.parent for path in inner] or [place]


def _copies(url: str, room: Path, allow_pickle: bool) -> list[Fetched]:
    """The checkpoint at a URL, or those one level below it, each copied."""
    with reaching(url, "checkpoint") as (files, root):
        top = root.rstrip("/")
        inner = [] if files.isfile(f"{root}{_CONFIG}") else sorted(map(str, files.glob(f"{root}*/{_CONFIG}")))
        folders = [path.removesuffix(f"/{_CONFIG}") for path in inner] or [top]
        name = redacted(shown(url)).rstrip("/")
        return [_copied(files, folder, name + folder.removeprefix(top), room, allow_pickle) for folder in folders]


def _copied(files: AbstractFileSystem, folder: str, name: str, room: Path, allow_pickle: bool) -> Fetched:
    """The checkpoint in a folder of a file system, copied as the model `name`."""
    listed = {
        str(one["name"]).rpartition("/")[2]: one for one in files.ls(folder, detail=True) if one["type"] == "file"
    }
    try:
        names = chosen(sorted(listed), allow_pickle)
        pickles = [one for one in names if is_pickle(one)]
        sizes = {one: int(listed[one]["size"]) for one in names}
        state = repr([(one, sizes[one], files.ukey(listed[one]["name"])) for one in names])
        wanted = Fetched(
            Weights.HUB,
            name,
            "",
            revision=hashlib.sha256(state.encode()).hexdigest()[:40],
            weights=tuple(one for one in [*names, *[unpickled.NAME] * bool(pickles)] if one != _CONFIG),
            bytes=sum(sizes.values()) + sum(sizes[one] for one in pickles),
        )
        with space.alone(room, name):
            goal = space.snapshot(room, wanted)
            copied = dataclasses.replace(wanted, config=str(goal / _CONFIG))
            if index.read(room, Weights.HUB, name, "") == copied and copied.complete:
                index.touch(room, copied)
                return copied
            unfinished = "it was not copied to the end; the same command does it again"
            marked = dataclasses.replace(wanted, verdict=Verdict.CHECKPOINT_MISSING, message=unfinished)
            space.reserve(room, marked, space.QUOTA)
            print(f"copying {name}: {wanted.bytes:,} bytes", file=sys.stderr)
            goal.mkdir(parents=True, exist_ok=True)
            for one in names:
                _copy(files, listed[one]["name"], goal / one, sizes[one])
            if pickles:
                unpickled.beside(goal, pickles)
            index.write(room, copied)
    except Unfetched as error:
        raise ListError(f"{name}: {error.verdict}: {error}") from error
    return copied


def _copy(files: AbstractFileSystem, source: str, goal: Path, size: int) -> None:
    draft = goal.with_name(f".{goal.name}.copying")
    files.get_file(source, str(draft))
    if (found := draft.stat().st_size) != size:
        draft.unlink()
        raise Unfetched(Verdict.TRUNCATED, f"{goal.name}: {found:,} bytes came of {size:,}")
    os.replace(draft, goal)


def _called_by_its_name(copy: Fetched, room: Path) -> Path:
    """A link to the copy that ends in the checkpoint's name, by which rows will call the model."""
    link = index.root(room) / "copies" / copy.revision / copy.model_id.rpartition("/")[2]
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(Path(copy.config).parent)
    return link
