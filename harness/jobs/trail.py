"""The operator that a process has entered last, legible after its death."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "entered"
_BYTES = 1024


@contextmanager
def kept(folder: Path) -> Iterator[Callable[[str, str, str], None]]:
    """A function that leaves in a folder an operator, the path of the module that calls it, and what it is given."""
    # Not flushed to the disk: what a process has written outlives it, if not the machine.
    file = os.open(folder / _NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def enter(operator: str, module: str, given: str) -> None:
        os.pwrite(file, f"{operator}\n{module}\n{given}\n".encode()[:_BYTES].ljust(_BYTES, b"\n"), 0)

    try:
        yield enter
    finally:
        os.close(file)


def last(folder: Path) -> dict[str, str]:
    """The `operator` that was entered last and did not return, its `module`, and what it was `given`; empty if none."""
    try:
        lines = (folder / _NAME).read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return {}
    return dict(zip(("operator", "module", "given"), lines, strict=False)) if lines[0] else {}
