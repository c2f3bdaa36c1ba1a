"""What can go wrong with a results store, as one-line messages for people."""

from __future__ import annotations


class StoreError(RuntimeError):
    """The store cannot be read or written; the message is one line that names the file and what would help."""


class DiskFull(StoreError):
    """No space is left to write; nothing of the row that did not fit is visible to readers."""
