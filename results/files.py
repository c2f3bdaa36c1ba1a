"""Writing files that readers see whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from results.errors import StoreError


def write_atomically(path: Path, content: Any, *, durable: bool = True) -> None:
    """Put text or bytes at `path`: readers see the old file or the whole new one, also after a crash where `durable`.

    `content` may also be a function that writes to the binary file it is given. Raises StoreError.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(draft, "wb") as file:
            data(file) if callable(data) else file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
