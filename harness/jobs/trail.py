"""The operator that a process has entered last, legible after its death."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "entered"
_BYTES = 1024


@contextmanager
def kept(folder: Path) -> Iterator[Callable[[str, str], None]]:
    """A function that leaves the name of an operator, and the path of the module that calls it, in a folder."""
    # Not flushed to the disk: what a process has written outlives it, if not the machine.
    file = os.open(folder / _NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def enter(operator: str, module: str) -> None:
        os.pwrite(file, f"{operator}\n{module}\n".encode()[:_BYTES].ljust(_BYTES, b"\n"), 0)

    try:
        yield enter
    finally:
        os.close(file)


def last(folder: Path) -> tuple[str, str]:
    """The operator and module that were entered last, empty where none was."""
    try:
        lines = (folder / _NAME).read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return "", ""
    return (lines[0], lines[1]) if len(lines) > 1 else ("", "")
