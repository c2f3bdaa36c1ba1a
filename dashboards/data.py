"""The data files of a site: what its pages draw, and what machines read; pure functions from rows to plain JSON.

docs/dashboard.md says what they hold. Every text in them has been through `words.clean`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dashboards import operators, words
from dashboards.grid import Column, Entry, Grid
from dashboards.nights import Nights
from harness.cases import Stage, Verdict
from harness.records import real_target
from model_lists.expectations import Expectation
from results.history import FLOORS, Became, Comparison

VERSION = 1
"""Of the data files: raised whenever what was there means something else. Added fields do not count."""

Row = Mapping[str, Any]


def _number(count: int | None) -> str | None:
    return None if count is None else f"{count:,}"


def _mebibytes(count: int | None) -> str | None:
    return None if count is None else f"{count / 2**20:,.0f} MiB"


def _yes(flag: bool | None) -> str | None:
    return None if flag is None else "yes" if flag else "no"


FACTS: dict[str, Callable[[Row], Any]] = {
    "model type": lambda row: row["model_type"],
    "class": lambda row: row["model_class"],
    "Hub id": lambda row: row["model_id"],
    "revision": lambda row: row["revision"],
    "task": lambda row: row["task"],
    "weights": lambda row: row["weights"],
    "evidence": lambda row: row["evidence"],
    "parameters, real model": lambda row: _number(row["params"]),
    "parameters, as built": lambda row: _number(row["synthetic_params"]),
    "outputs judged": lambda row: row["leaves"],
    "who disagrees": lambda row: row["blame_pair"],
    "first to fail": lambda row: " in ".join(filter(None, (row["blame_operator"], row["blame_module"]))),
    "it was given": lambda row: row["blame_given"],
    "at": lambda row: row["blame_place"],
    "what came of it": lambda row: row["blame_why"],
    "first wrong output": lambda row: row["blame_first"],
    "a second run agrees": lambda row: _yes(row["blame_repeats"]),
    "as far off as products of": lambda row: row["blame_precision"],
    "toss-ups chosen otherwise": lambda row: row["flips"],
    "time in all": lambda row: words.duration(row["wall_seconds"]),
    "latency of a repeated call": lambda row: words.duration(row["latency_seconds"]),
    "truth computed in": lambda row: row["truth"],
    "reference from cache": lambda row: _yes(row["reference_cached"]),
    "programs executed": lambda row: _number(row["programs_executed"]),
    "programs requested": lambda row: _number(row["programs_requested"]),
    "programs compiled": lambda row: _number(row["programs_compiled"]),
    "programs compiled again": lambda row: _number(row["programs_recompiled"]),
    "copies to the host": lambda row: _number(row["host_reads"]),
    "graph breaks": lambda row: _number(row["graph_breaks"]),
    "peak device memory": lambda row: _mebibytes(row["peak_device_bytes"]),
    "peak host memory": lambda row: _mebibytes(row["peak_host_bytes"]),
    "signal": lambda row: row["signal"],
    "exit code": lambda row: row["exit_code"],
    "weights sha256": lambda row: row["weights_sha256"],
    "inputs sha256": lambda row: row["inputs_sha256"],
    "structural twin, run in its stead": lambda row: row["twin_of"] or None,
}

ENVIRONMENT: dict[str, Callable[[Row], Any]] = {
    "target": lambda row: row["target"],
    "emulated": lambda row: _yes(row["emulated"]),
    "seed": lambda row: row["seed"],
    "worker": lambda row: row["worker"],
    "started": lambda row: words.moment(row["started_at"]) if row["started_at"] else None,
}
"""Where a case ran; the rest of it is the run's provenance."""


_MEASURED: dict[str, tuple[str, int]] = {
    "wall": ("wall_seconds", 3),
    "latency": ("latency_seconds", 3),
    "compile": ("seconds_compile", 3),
    "device": ("peak_device_bytes", 12),
    "host": ("peak_host_bytes", 12),
    "executed": ("programs_executed", 12),
    "compiled": ("programs_compiled", 12),
    "recompiled": ("programs_recompiled", 12),
    "breaks": ("graph_breaks", 12),
    "reads": ("host_reads", 12),
}
"""What an architecture's page tells of a case, with the column it is from and the digits that are kept."""

MEASURED_COLUMNS = ("worst_ratio", *(column for column, _ in _MEASURED.values()))


def vocabulary(nights: Nights) -> dict[str, Any]:
    """What every page needs to know: verdicts by their number, with group, symbol, word and meaning; stages; nights."""
    return {
        "version": VERSION,
        "verdicts": [{"verdict": words.clean(verdict), **words.named(verdict)} for verdict in nights.verdicts],
        "stages": [stage.value for stage in Stage],
        "nights": [
            {"run": words.clean(night.run.id), "created": words.clean(night.created)} for night in nights.nights
        ],
    }


def matrix(grid: Grid, nights: Nights, clustered: Mapping[str, int]) -> dict[str, Any]:
    """All models and their cells, in flat lists of a number for each model and column, in that order.

    A cell's verdict is its number in the vocabulary, -1 where no case is planned; `changed` the night in which it
    became so, -1 if it did not; `ratio` the error over what is allowed; `cluster` the number of its cluster.
    """
    changed = nights.changed()
    width = len(grid.columns)
    verdicts = [-1] * (width * len(grid.entries))
    since = [-1] * len(verdicts)
    ratios: list[Any] = [None] * len(verdicts)
    cluster = [-1] * len(verdicts)
    place = {column: number for number, column in enumerate(grid.columns)}
    for line, entry in enumerate(grid.entries):
        for column, case in entry.cases.items():
            at = line * width + place[column]
            verdicts[at] = int(nights.codes[-1, case])
            since[at] = int(changed[case])
            ratios[at] = words.rounded(_known(nights.ratio[-1, case]), 3)
            cluster[at] = clustered.get(nights.cases[case], -1)
    return {
        "version": VERSION,
        "columns": [_cleaned(column._asdict()) for column in grid.columns],
        "architectures": [{"name": words.clean(name), "file": grid.slugs[name]} for name in grid.architectures],
        "entries": _entries(grid),
        "verdict": verdicts,
        "changed": since,
        "ratio": ratios,
        "cluster": cluster,
    }


def _entries(grid: Grid) -> dict[str, Any]:
    """Facts of the models as columns; those of few values as numbers into a list of them."""
    numbers = {name: number for number, name in enumerate(grid.architectures)}
    told: dict[str, Any] = {
        "architecture": [numbers[entry.model_type] for entry in grid.entries],
        "class": [words.clean(entry.model_class) for entry in grid.entries],
        "model": [words.clean(entry.model_id) for entry in grid.entries],
    }
    for name in ("family", "task", "library", "weights", "evidence"):
        values = [words.clean(getattr(entry, name)) for entry in grid.entries]
        known = sorted(set(values))
        told[name] = {"values": known, "of": [known.index(value) for value in values]}
    return told


def architecture(
    name: str, grid: Grid, nights: Nights, measured: Callable[[int], Row | None], target: str
) -> dict[str, Any]:
    """One architecture: its models, their cases with what was measured tonight and how they ended over the nights."""
    models = []
    for number in grid.architectures[name]:
        entry = grid.entries[number]
        models.append(
            {
                "id": words.clean(entry.entry_id),
                **_cleaned({n: getattr(entry, n) for n in ("model_class", "model_id", "family", "task", "library")}),
                **_cleaned({n: getattr(entry, n) for n in ("weights", "evidence")}),
                "params": entry.params,
                "file": f"models/{number}",
                "cases": [
                    _case(nights, entry, column, measured, target) for column in grid.columns if column in entry.cases
                ],
            }
        )
    return {
        "version": VERSION,
        "name": words.clean(name),
        "file": grid.slugs[name],
        "rerun": _rerun(name, target),
        "models": models,
    }


def _case(
    nights: Nights, entry: Entry, column: Column, measured: Callable[[int], Row | None], target: str
) -> dict[str, Any]:
    case = entry.cases[column]
    row = measured(case) or {}
    told: dict[str, Any] = {
        "id": words.clean(nights.cases[case]),
        "rerun": None if row else _rerun(nights.cases[case], target),  # else it is with the evidence
        **_cleaned(column._asdict()),
        "verdict": int(nights.codes[-1, case]),
        "ratio": words.rounded(row.get("worst_ratio"), 4),
        **{name: words.rounded(row.get(source), digits) for name, (source, digits) in _MEASURED.items()},
        "history": nights.transitions(case),
        "ratios": _series(nights.ratio[:, case]),
        "latencies": _series(nights.latency[:, case]),
    }
    return {name: value for name, value in told.items() if value is not None}


def _series(values: np.ndarray) -> list[Any] | None:
    """A number for each night at three digits; None if there is none in any."""
    if np.isnan(values).all():
        return None
    return [words.rounded(_known(value), 3) for value in values.tolist()]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def model(
    rows: Sequence[Row], about: Callable[[str], Expectation | None], repro: Callable[[str], str]
) -> dict[str, Any]:
    """The evidence of a model's cases: all that their pages show, without what is unknown or empty.

    In a case `seconds` follows the stages of the vocabulary, `facts` the `labels` here, and `environment` its own.
    `about` and `repro` tell of a case what is known to fail, and where in the site the file is that reproduces it.
    """
    return {
        "version": VERSION,
        "labels": list(FACTS),
        "environment": list(ENVIRONMENT),
        "cases": [_details(row, about(row["case_id"]), repro(row["case_id"])) for row in rows],
    }


def _details(row: Row, about: Expectation | None, repro: str) -> dict[str, Any]:
    verdict = row["verdict"] or ""
    told = {
        "id": words.clean(row["case_id"]),
        "verdict": words.clean(verdict),
        "stage": words.clean(row["stage"]),
        "message": words.shortened(row["message"]),
        "detail": words.shortened(row["detail"]),
        # A passing case's chatter is in the store; on the page it would only be weight.
        "log": "" if verdict == Verdict.PASS else words.shortened(row["log"]),
        "attempts": words.shortened(row["attempts"]),
        "rerun": _rerun(row["case_id"], row["target"] or ""),
        "share": words.share(row["worst_ratio"]),
        "worst": {
            name.removeprefix("worst_"): _value(value)
            for name, value in row.items()
            if name.startswith("worst_") and name not in ("worst_ratio", "worst_elements") and value not in (None, "")
        },
        "seconds": _without_tail(
            [words.rounded(row[f"seconds_{stage.value.replace('-', '_')}"], 3) for stage in Stage]
        ),
        "facts": _facts(FACTS, row),
        "environment": _facts(ENVIRONMENT, row),
        "operators": sorted({words.clean(name) for name, _ in operators.named(row)}),
        "repro": repro,
        "expected": _expected(about) if about else None,
    }
    return {name: value for name, value in told.items() if value not in (None, "", {}, [])}


def _facts(labels: Mapping[str, Callable[[Row], Any]], row: Row) -> list[Any]:
    facts = [tell(row) for tell in labels.values()]
    return _without_tail([None if fact in (None, "") else words.clean(str(fact)) for fact in facts])


def _expected(about: Expectation) -> dict[str, str]:
    return _cleaned(
        {
            "verdict": about.verdict.value,
            "stage": about.stage.value if about.stage else "",
            "reason": about.reason,
            "link": about.link,
            "glob": about.case,
            "added": about.added.isoformat(),
            "expires": about.expires.isoformat() if about.expires else "",
            "where": about.where.rsplit("/", 1)[-1],
        }
    )


def _rerun(what: str, target: str) -> str:
    """The command that runs something again; of a hostile name, as it is shown, so that nothing unseen is copied."""
    target = f" --target {shlex.quote(words.clean(real_target(target)))}" if target else ""
    return f"zoo rerun {shlex.quote(words.clean(what).replace(chr(10), ' '))}{target}"


_AS_BEFORE = (Became.STILL_PASSING, Became.STILL_FAILING, Became.NOT_MEASURED)


def changes(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """What became of the cases that do not end as before, and what moved."""
    for became, found in comparison.became.items():
        if became in _AS_BEFORE:
            continue
        for change in found:
            yield {
                "case": words.clean(change.case_id),
                "became": became.value,
                "before": words.clean(change.before.verdict) if change.before else None,
                "after": words.clean(change.after.verdict) if change.after else None,
            }
    for move in comparison.moves:
        yield {
            "case": words.clean(move.case_id),
            "became": "moved",
            "quantity": move.quantity.value,
            "floor": FLOORS[move.quantity],
            "before": words.rounded(move.before, 4),
            "after": words.rounded(move.after, 4),
        }


def _cleaned(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: words.clean(value) for name, value in facts.items()}


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return words.rounded(value, 9)
    return words.clean(value) if isinstance(value, str) else value


def _without_tail(values: list[Any]) -> list[Any]:
    while values and values[-1] is None:
        values.pop()
    return values
