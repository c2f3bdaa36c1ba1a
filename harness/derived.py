"""The list of all that the installed transformers registers: derived, never written by hand.

Deriving imports the library's code, so it happens in a process of its own, once for each version of
transformers and of the rules; what it leaves is a model list like any other.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path

from model_lists import DERIVED_LIST, ListError

_SOURCES = (
    "harness/cases.py",
    "harness/models/registered.py",
    "harness/models/abilities.py",
    "model_lists/__init__.py",
)
_DERIVING = "reading what transformers {} registers (once for each version, under a minute)"


def derived_path(folder: Path) -> Path:
    """Where the derived list lies in the cache `folder`, whether or not it exists yet."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((root / name).read_bytes())
    return folder / "lists" / f"transformers-{_version()}-{digest.hexdigest()[:8]}" / f"{DERIVED_LIST}.csv"


def derived_list(folder: Path) -> Path:
    """The derived list in the cache `folder`, made now where it is not there yet. Raises ListError."""
    path = derived_path(folder)
    if path.is_file():
        return path
    print(_DERIVING.format(_version()), file=sys.stderr)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as scratch:
            made = Path(scratch, path.name)
            failing = "the list of transformers' architectures cannot be derived"
            printed_by("harness.models.registered", str(made), failing=failing)
            made.replace(path)
    except OSError as error:
        raise ListError(f"{path}: cannot be written: {error.strerror}; choose a cache with --cache") from error
    return path


def printed_by(module: str, argument: str, *, failing: str) -> str:
    """What a module that imports the library prints as a command. Raises ListError, which begins with `failing`."""
    # No backend: some patch torch when they are loaded, and none is needed to read names.
    quiet = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", module, argument]
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise ListError(f"{failing}: {last[:300]}")
    return done.stdout


def registered_word(word: str) -> bool:
    """Whether transformers' own tables name `word`, a model type or class. Reads their text only."""
    return bool(word) and re.search(rf"[\"']{re.escape(word)}[\"']", _tables()) is not None


@cache
def _tables() -> str:
    found = importlib.util.find_spec("transformers")
    folder = Path(next(iter(found.submodule_search_locations or []), "")) if found else Path()
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((folder / "models" / "auto").glob("*.py")))


@cache
def _version() -> str:
    return metadata.version("transformers")
