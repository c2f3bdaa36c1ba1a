"""Checkpoints and references kept across processes and nights, keyed by everything that can change them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import checkpoints
from harness.cases import Case, Entry, Weights

INPUTS, REFERENCE, META, RETURNED = "inputs.pt", "reference.pt", "meta.json", "returned.pt"
_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "accelerate")
_MADE = {"inputs", "operators", "sick", "structure_sha256", "truth"}
"""What a reference that was made to the end says, beside its seals."""
SHARED = ("locks", "memory")
"""Folders of a cache by which its jobs take turns; nothing else in it may be lost by anybody's removing it."""
_SOURCES = ("models", "inputs", "execution", "numerics")


def checkpoint_folder(cache: Path, entry: Entry, seed: int) -> Path:
    """Where the synthetic checkpoint of `entry` lies, whether or not it exists yet."""
    return cache / "checkpoints" / _key(entry=_facts(entry), seed=seed)


def reference_folder(cache: Path, case: Case, seed: int) -> Path:
    """Where the reference of `case` lies, whether or not it exists yet. The mode does not matter to it."""
    key = _key(entry=_facts(case.entry), seed=seed, phase=case.phase, dtype=case.dtype, profile=case.profile)
    return cache / "references" / key


def read_meta(folder: Path) -> dict[str, Any] | None:
    """What a reference job published in `folder`, or None where any of its files is absent or was changed since."""
    try:
        meta = json.loads((folder / META).read_text())
        known = seals([folder / INPUTS, folder / REFERENCE], Path(meta["checkpoint"]))
        return meta if meta["seals"] == known and meta.keys() >= _MADE else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def seals(files: list[Path], checkpoint: Path) -> dict[str, str]:
    """sha256 of some files, and of those that a checkpoint is made of, by name. Raises OSError."""
    found = {}
    for file in [*files, *checkpoints.files_of(checkpoint)]:
        with file.open("rb") as content:
            found[file.name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def beside(cache: Path, folder: Path) -> Path:
    """A new and empty cache in `folder`, whose jobs take turns at device and memory with those of `cache`.

    For what the keys do not tell apart: a package that they do not know, or two builds of one version.
    """
    folder.mkdir()
    for shared in SHARED:
        (cache / shared).mkdir(parents=True, exist_ok=True)
        (folder / shared).symlink_to(cache / shared)
    return folder


@contextmanager
def published(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder` at once on success, replacing what was there, and vanishes on error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as scratch:
        making = Path(scratch, "new")
        making.mkdir()
        yield making
        try:
            os.rename(making, folder)
        except OSError:  # a damaged one is in the way, or another worker was first: its content is the same
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(making, folder)


def _facts(entry: Entry) -> dict[str, Any]:
    """What of an entry its model and inputs are made of: with seeded weights not its name, so that twins share them.

    Its config counts by what that says and not by where it lies; an absent one fails when it is built. A real
    checkpoint is known by where it lies: its weights are told apart by the seals of what was made from them.
    """
    if entry.weights is Weights.HUB:
        return asdict(entry)
    made_of = {"model_type": entry.model_type, "model_class": entry.model_class}
    if not entry.config:
        return made_of
    try:
        with open(entry.config, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        digest = "absent"
    return made_of | {"config": digest}


def _key(**parts: Any) -> str:
    text = json.dumps(parts | _everything_else(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@functools.cache
def _everything_else() -> dict[str, Any]:
    """Versions, processor and the harness's own source: a reference made by other code is another reference."""
    versions = {name: metadata.version(name) for name in _PACKAGES}
    return {"versions": versions, "processor": _processor(), "source": _source_hash()}


def _processor() -> str:
    """CPU model and instruction sets, since they choose the kernels that round."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _source_hash() -> str:
    harness = Path(__file__).parent.parent
    files = [f for room in _SOURCES for f in (harness / room).rglob("*.py")]
    files += (harness.parent / "model_lists" / "recipes").glob("*.toml")
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(str(file.relative_to(harness.parent)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
