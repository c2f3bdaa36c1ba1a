"""`zoo clusters`: the failures of a run by their cause."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options

if TYPE_CHECKING:
    from harness.triage.signatures import Cluster
    from results.store import Run


class Format(StrEnum):
    """How the clusters are printed."""

    TEXT = "text"
    JSON = "json"


def clusters(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="A run, as `zoo diff` takes it: an id, last, a date, a version.")
    ] = "last",
    store: options.Store = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="Words mean runs of this target, as recorded.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print them.")] = Format.TEXT,
    out: options.Out = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Clusters that are named (JSON: all).")] = 20,
) -> None:
    """List the causes of a run's failures, first those that keep most architectures from passing.

    `zoo rerun --cluster ID` runs the cases of one again.
    """
    from results import default_store
    from results.baseline import find_run

    found = find_run(Path(store or default_store()), run, target=target)
    causes = of_run(found)
    options.write(_json(found, causes) if form is Format.JSON else _text(found, causes, limit), out)


def of_run(run: Run) -> list[Cluster]:
    """The clusters of a run's failures. Raises StoreError."""
    from harness.triage import signatures
    from results.store import read

    return signatures.clusters(read(run, signatures.COLUMNS)[0].to_pylist())


def lines(causes: Sequence[Cluster], limit: int) -> list[str]:
    """A line for each of the first clusters, and one for the rest."""
    told = [
        f"{cluster.id}  {_count(len(cluster.types), 'architecture')}, {_count(len(cluster.cases), 'case')}"
        f" ({', '.join(cluster.modes)}): {cluster.name}"
        for cluster in causes[:limit]
    ]
    return told + [f"and {len(causes) - limit} more"] * (len(causes) > limit)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _text(run: Run, causes: Sequence[Cluster], limit: int) -> str:
    if not causes:
        return f"no failures in run {run.id}\n"
    total = sum(len(cluster.cases) for cluster in causes)
    head = f"{_count(total, 'failure')} of {_count(len(causes), 'cause')} in run {run.id}"
    return "\n".join([head, *lines(causes, limit)]) + "\n"


def _json(run: Run, causes: Sequence[Cluster]) -> str:
    import json

    from harness.triage.signatures import VERSION

    told = [
        {
            "id": cluster.id,
            "name": cluster.name,
            "verdict": cluster.verdict,
            "subject": cluster.subject,
            "architectures": [*cluster.types],
            "models": [*cluster.entries],
            "modes": [*cluster.modes],
            "cases": cluster.cases,
        }
        for cluster in causes
    ]
    return json.dumps({"run": run.id, "algorithm": VERSION, "clusters": told}, indent=1) + "\n"
