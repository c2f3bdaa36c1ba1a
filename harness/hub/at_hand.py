"""An entry with what was fetched for it, which stays on the disk as long as somebody uses it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.cases import Entry, Verdict
from harness.hub import index, space
from harness.hub.index import Unfetched


@contextmanager
def at_hand(entry: Entry, cache: Path) -> Iterator[Entry]:
    """The entry at the commit, and with the config, that `zoo prefetch` fetched; as it is where it wants nothing.

    Raises Unfetched where that is not there.
    """
    if not index.wanted(entry):
        yield entry
        return
    with space.in_use(cache, entry.model_id):
        fetched = index.known(cache, entry)
        if fetched.failed is not None:
            tries = "fetches it" if fetched.failed is Verdict.CHECKPOINT_MISSING else "tries again"
            raise Unfetched(fetched.failed, f"{fetched.message}; `zoo prefetch --weights {entry.weights}` {tries}")
        index.touch(cache, fetched)
        yield dataclasses.replace(entry, revision=fetched.revision, config=fetched.config)
