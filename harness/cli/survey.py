"""What the verbs that survey all architectures have in common: their result is kept in the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def keep(
    kind: str, store: Path | None, rows: Iterable[Mapping[str, Any]], settings: Mapping[str, Any], console: Console
) -> None:
    """Keep a whole survey in the store and say where. Raises StoreError."""
    from harness.cli.style import plain
    from results import default_store, keep_survey
    from results.provenance import collect

    path = keep_survey(Path(store or default_store()), kind, rows, collect([], {"survey": kind, **settings}))
    console.print(plain(f"kept in {path}"), soft_wrap=True)
