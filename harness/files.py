"""Small files that readers see whole or not at all, in caches: what a power cut takes is made again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file, and the folders above it; readers see the old content or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as draft:
        try:
            draft.write(content)
            draft.flush()
            os.replace(draft.name, path)
        except OSError:
            os.unlink(draft.name)
            raise
