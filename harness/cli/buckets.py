"""Checkpoints in a bucket, or wherever else fsspec has a URL for: copied into the cache, once for each content."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path, PurePosixPath

from harness.hub.choice import is_companion, is_weights
from model_lists import ListError
from results import StoreError
from results.remote import is_url, reaching, shown


def copied(place: str, cache: Path) -> str:
    """The folder with the checkpoint of a URL, or `place` itself where that is none. Raises ListError.

    Only safetensors, configs and the files of tokenizers and processors are copied. The folder appears whole or not at
    all; it is found again as long as the names and what the file system tells of each file's content are the same.
    """
    if not is_url(place):
        return place
    room = cache / "buckets"
    try:
        with reaching(place, "checkpoint") as (files, root):
            names = {PurePosixPath(path).name: path for path in files.ls(root or "", detail=False)}
            chosen = {name: path for name, path in sorted(names.items()) if is_weights(name) or is_companion(name)}
            if "config.json" not in chosen:
                raise StoreError(f"{shown(place)}: no checkpoint: it has no config.json")
            said = [(name, files.size(path), files.checksum(path)) for name, path in chosen.items()]
            key = hashlib.sha256(repr((place, said)).encode()).hexdigest()[:16]
            folder = room / key / (PurePosixPath(root).name or "checkpoint")
            if folder.is_dir():
                return str(folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=room, prefix=".copying-") as scratch:
                draft = Path(scratch, "new")
                draft.mkdir()
                for name, path in chosen.items():
                    files.get_file(path, str(draft / name))
                draft.rename(folder)
    except StoreError as error:
        raise ListError(str(error)) from error
    return str(folder)
