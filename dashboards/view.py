"""What a page shows of a run, as plain values: pure functions from rows and plan to what the templates print."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from harness.cases import Dtype, Evidence, Group, Mode, Phase, Profile, Stage, Verdict

Row = Mapping[str, Any]

MISSING = "NOT_REPORTED"
"""Shown for planned cases without a row; not a verdict, since nothing was judged."""

MAX_PAGE_TEXT = 20_000
"""Characters of one error text or log on a page: all of an error that a job reports, and most of a log."""

_GROUPS = {
    Group.PASS: ("✓", "pass"),
    Group.BACKEND: ("✕", "backend"),
    Group.MODEL: ("◆", "model"),
    Group.ENVIRONMENT: ("△", "environment"),
    Group.HARNESS: ("!", "harness"),
    "missing": ("·", "not reported"),
}
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {127: "␡"}


def clean(text: str | None) -> str:
    """Text of unknown origin made safe to look at: colours dropped, control and direction characters made visible."""
    plain = _ANSI.sub("", (text or "").replace("\r\n", "\n"))
    return _BIDI.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", plain.translate(_CONTROLS))


def shortened(text: str | None) -> str:
    """`clean` text of at most about MAX_PAGE_TEXT characters: its head and its tail, where errors say most."""
    text = clean(text)
    if len(text) <= MAX_PAGE_TEXT:
        return text
    half = MAX_PAGE_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters not shown here ...]\n{text[-half:]}"


def verdict_word(verdict: str) -> str:
    """A verdict as people read it: `PASS` stays, `NUMERIC_MISMATCH` is "numeric mismatch"."""
    return (
        verdict
        if verdict == Verdict.PASS
        else clean(verdict).replace("_", " ").lower().replace("nonfinite", "non-finite")
    )


def verdict_group(verdict: str) -> str:
    """Group a verdict speaks about; "missing" for an unreported case."""
    if verdict == MISSING:
        return "missing"
    try:
        return Verdict(verdict).group.value
    except ValueError:  # written by a later version that knows more verdicts
        return Group.HARNESS.value


def verdict_meaning(verdict: str) -> str:
    """What a verdict means, in one line."""
    if verdict == MISSING:
        return "planned, but no result has been recorded"
    try:
        return Verdict(verdict).meaning
    except ValueError:
        return "a verdict that this version does not know"


def share(ratio: float | None) -> str:
    """An error as a share of what is allowed: `37 %`, `< 1 %`, `24×`; empty where unmeasured."""
    if ratio is None:
        return ""
    if not math.isfinite(ratio):
        return "NaN" if math.isnan(ratio) else "∞"
    if 0 < ratio < 0.01:
        return "< 1 %"
    if ratio < 10:
        percent = round(100 * ratio)
        return f"{max(percent, 101) if ratio > 1 else percent} %"  # a failing error never rounds to a passing one
    return f"{ratio:,.0f}×" if ratio < 1e6 else f"{ratio:.0e}×"


def duration(seconds: float | None) -> str:
    """Wall time as people read it: `8.1 ms`, `0.24 s`, `12 s`, `3 min 05 s`, `1 h 02 min`; empty where unknown."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 0.1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def moment(iso: str | None) -> str:
    """An ISO 8601 time as `30 Nov 2026, 08:03 UTC`; what cannot be read is shown as it is."""
    if not iso:
        return "unknown"
    try:
        when = datetime.fromisoformat(iso)
    except ValueError:
        return clean(iso)
    zone = "UTC" if not when.utcoffset() else when.strftime("%z")
    return f"{when.day} {when:%b %Y, %H:%M} {zone}"


def totals(verdicts: Iterable[str]) -> dict[str, Any]:
    """Counts by verdict and by group over all cases of a plan, worst news first within the fixed group order."""
    counts = Counter(verdicts)
    planned = sum(counts.values())
    by_group: Counter[str] = Counter()
    for verdict, count in counts.items():
        by_group[verdict_group(verdict)] += count
    order = [str(group) for group in _GROUPS]
    return {
        "planned": planned,
        "reported": planned - counts[MISSING],
        "passed": counts[Verdict.PASS.value],
        "pass_percent": _percent(counts[Verdict.PASS.value], planned),
        "groups": [
            {"group": group, "symbol": symbol(group), "word": _GROUPS[group][1], "count": by_group[group]}
            for group in order
            if by_group[group]
        ],
        "verdicts": [
            {"verdict": verdict, **_named(verdict), "count": count}
            for verdict, count in sorted(
                counts.items(), key=lambda item: (order.index(verdict_group(item[0])), -item[1], item[0])
            )
        ],
        "bar": _bar([(group, by_group[group]) for group in order]),
    }


def symbol(group: str) -> str:
    """One character per group, so that colour is never the only sign."""
    return _GROUPS[group][0]


def matrix(rows: Sequence[Row], missing: Sequence[str]) -> dict[str, Any]:
    """The run as architectures x columns.

    A column is a mode, split further by phase, dtype and profile where the run has more than one of these.
    `missing` are planned case ids without a row. Each cell has the number of its case in `details`.
    """
    cases = [_known(number, row) for number, row in enumerate(rows)]
    families = {case["entry_id"]: case["family"] for case in cases}
    unplaced = []
    for case_id in missing:
        case = _unreported(case_id, families)
        if case is None:
            unplaced.append(clean(case_id))
        else:
            cases.append(case)
    varying = [name for name in ("phase", "dtype", "profile") if len({case[name] for case in cases}) > 1]
    keys = sorted({_column_key(case, varying) for case in cases}, key=_column_order)
    phases = sorted({case["phase"] for case in cases}, key=lambda phase: _place(Phase, phase))
    columns = [
        {
            "mode": clean(key[0]),
            "phase": clean(key[1] if "phase" in varying else next(iter(phases))),
            "parts": [clean(part) for part in key[1:]],
        }
        for key in keys
    ]

    entries: dict[str, dict[str, Any]] = {}
    for case in cases:
        entry = entries.setdefault(case["entry_id"], {"case": case, "cells": [[] for _ in keys]})
        entry["cells"][keys.index(_column_key(case, varying))].append(case)
    grouped: dict[str, list[dict[str, Any]]] = {}
    for entry in sorted(entries.values(), key=lambda entry: entry["case"]["entry_id"]):
        grouped.setdefault(entry["case"]["family"], []).append(_entry(entry))
    return {
        "columns": columns,
        "families": [
            {
                "name": clean(family) or "unknown family",
                "entries": members,
                "totals": totals(case["verdict"] for member in members for cell in member["cells"] for case in cell),
            }
            for family, members in sorted(grouped.items())
        ],
        "modes": _mode_totals(cases),
        "phases": [clean(phase) for phase in phases],
        "entries": len(entries),
        "model_types": len({case["model_type"] for case in cases}),
        "unplaced": unplaced,
        "fixed": [clean(next(iter({case[n] for case in cases}))) for n in ("phase", "dtype", "profile")
                  if cases and n not in varying],
    }  # fmt: skip


def details(rows: Sequence[Row]) -> dict[str, Any]:
    """What the page tells about each case when it is opened, JSON-ready and small.

    `cases` has one mapping per row, without what is unknown or empty. In it `seconds` follows the names in
    `stages` and `facts` those in `labels`; `verdicts` explains the verdicts that occur.
    """
    return {
        "stages": [stage.value for stage in Stage],
        "labels": list(_FACTS),
        "verdicts": {clean(verdict): _named(verdict) for verdict in {row["verdict"] or "" for row in rows} | {MISSING}},
        "cases": [_details(row) for row in rows],
    }


def _details(row: Row) -> dict[str, Any]:
    verdict = row["verdict"] or ""
    command = "zoo rerun " + shlex.quote(clean(row["case_id"]))
    facts = [tell(row) for tell in _FACTS.values()]
    told = {
        "id": clean(row["case_id"]),
        "verdict": clean(verdict),
        "stage": clean(row["stage"]),
        "message": shortened(row["message"]),
        "detail": shortened(row["detail"]),
        # A passing case's chatter is in the store; on the page it would only be weight.
        "log": "" if verdict == Verdict.PASS else shortened(row["log"]),
        "rerun": "" if command == f"zoo rerun {row['case_id']}" else command,
        "share": share(row["worst_ratio"]),
        "worst": {
            name.removeprefix("worst_"): _value(value)
            for name, value in row.items()
            if name.startswith("worst_") and name not in ("worst_ratio", "worst_elements") and value not in (None, "")
        },
        "seconds": _without_tail([_rounded(row[f"seconds_{stage.value.replace('-', '_')}"], 3) for stage in Stage]),
        "facts": _without_tail([None if fact in (None, "") else clean(str(fact)) for fact in facts]),
    }
    return {name: value for name, value in told.items() if value not in (None, "", {}, [])}


def facts_table(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Provenance as titled tables of name and text; scalars at its top level come first, together."""
    single = [(name, value) for name, value in provenance.items() if not isinstance(value, Mapping)]
    nested = [(name, list(value.items())) for name, value in provenance.items() if isinstance(value, Mapping) and value]
    return [
        {
            "title": clean(title.replace("_", " ")),
            "items": [{"name": clean(str(name).replace("_", " ") if title == "run" else str(name)),
                       "value": _fact(name, value)} for name, value in items],
        }
        for title, items in [("run", single), *nested]
        if items
    ]  # fmt: skip


def _fact(name: str, value: Any) -> str:
    if value is None:
        return "not installed or unknown"
    if str(name).endswith("_bytes") and isinstance(value, int):
        return f"{value / 2**30:.1f} GiB"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return clean(", ".join(str(item) for item in value)) or "none"
    return clean(str(value)) or "empty"


def _number(count: int | None) -> str | None:
    return None if count is None else f"{count:,}"


def _mebibytes(count: int | None) -> str | None:
    return None if count is None else f"{count / 2**20:,.0f} MiB"


def _yes(flag: bool | None) -> str | None:
    return None if flag is None else "yes" if flag else "no"


_FACTS: dict[str, Callable[[Row], Any]] = {
    "model type": lambda row: row["model_type"],
    "class": lambda row: row["model_class"],
    "Hub id": lambda row: row["model_id"],
    "revision": lambda row: row["revision"],
    "task": lambda row: row["task"],
    "target": lambda row: row["target"],
    "emulated": lambda row: _yes(row["emulated"]),
    "weights": lambda row: row["weights"],
    "evidence": lambda row: row["evidence"],
    "parameters, real model": lambda row: _number(row["params"]),
    "parameters, as built": lambda row: _number(row["synthetic_params"]),
    "outputs judged": lambda row: row["leaves"],
    "who disagrees": lambda row: row["blame_pair"],
    "first wrong output": lambda row: row["blame_first"],
    "a second run agrees": lambda row: _yes(row["blame_repeats"]),
    "as far off as products of": lambda row: row["blame_precision"],
    "toss-ups chosen otherwise": lambda row: row["flips"],
    "time in all": lambda row: duration(row["wall_seconds"]),
    "latency of a repeated call": lambda row: duration(row["latency_seconds"]),
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
    "seed": lambda row: row["seed"],
    "worker": lambda row: row["worker"],
    "started": lambda row: moment(row["started_at"]) if row["started_at"] else None,
    "weights sha256": lambda row: row["weights_sha256"],
    "inputs sha256": lambda row: row["inputs_sha256"],
    "structural twin, run in its stead": lambda row: row["twin_of"] or None,
}


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return _rounded(value, 9)
    return clean(value) if isinstance(value, str) else value


def _rounded(value: float | None, digits: int) -> float | str | None:
    if value is None:
        return None
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return float(f"{value:.{digits}g}")


def _without_tail(values: list[Any]) -> list[Any]:
    while values and values[-1] is None:
        values.pop()
    return values


def _named(verdict: str) -> dict[str, str]:
    group = verdict_group(verdict)
    return {
        "group": group,
        "symbol": symbol(group),
        "word": "not reported" if verdict == MISSING else verdict_word(verdict),
        "meaning": verdict_meaning(verdict),
    }


def _known(number: int, row: Row) -> dict[str, Any]:
    ratio = row["worst_ratio"]
    return {
        "number": number,
        **{name: row[name] or "" for name in ("entry_id", "family", "model_type", "model_class", "model_id")},
        **{name: row[name] or "" for name in ("phase", "mode", "dtype", "profile", "weights")},
        **_named(row["verdict"] or ""),
        "verdict": row["verdict"] or "",
        "evidence": row["evidence"],
        "share": share(ratio),
        "bar": None if ratio is None else 100 if not ratio < 1 else round(100 * ratio, 1),
        "over": ratio is not None and not ratio <= 1,
        "time": duration(row["wall_seconds"]),
        "seconds": row["wall_seconds"],
        "message": clean(row["message"])[:300],
    }


def _unreported(case_id: str, families: Mapping[str, str]) -> dict[str, Any] | None:
    """A planned case from its id, which is all that is known of it; None where the id has not the usual parts."""
    parts = case_id.split("/")
    if len(parts) < 8:
        return None
    entry_id = "/".join(parts[:-4])
    phase, mode, dtype, profile = parts[-4:]
    return {
        "number": None,
        "entry_id": entry_id,
        "family": families.get(entry_id, "not reported"),
        "model_type": parts[0],
        "model_class": parts[1],
        "model_id": "/".join(parts[2:-5]),
        "weights": parts[-5],
        "phase": phase,
        "mode": mode,
        "dtype": dtype,
        "profile": profile,
        **_named(MISSING),
        "verdict": MISSING,
        "evidence": None,
        "share": "",
        "bar": None,
        "over": False,
        "time": "",
        "seconds": None,
        "message": verdict_meaning(MISSING),
    }


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    case = entry["case"]
    found = {item["evidence"] for cell in entry["cells"] for item in cell} - {None}
    strength = [evidence.value for evidence in Evidence]
    return {
        "id": clean(case["entry_id"]),
        "model_type": clean(case["model_type"]),
        "model_class": clean(case["model_class"]),
        "model_id": clean(case["model_id"]),
        "evidence": sorted(map(clean, found), key=lambda e: strength.index(e) if e in strength else len(strength)),
        "cells": entry["cells"],
    }


def _mode_totals(cases: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    by_mode: dict[str, list[Mapping[str, Any]]] = {}
    for case in cases:
        by_mode.setdefault(case["mode"], []).append(case)
    return [
        {
            "mode": clean(mode),
            **totals(case["verdict"] for case in members),
            "time": duration(sum(case["seconds"] or 0 for case in members)),
        }
        for mode, members in sorted(by_mode.items(), key=lambda item: _place(Mode, item[0]))
    ]


def _column_key(case: Mapping[str, Any], varying: Sequence[str]) -> tuple[str, ...]:
    return (case["mode"], *(case[name] for name in varying))


def _column_order(key: tuple[str, ...]) -> tuple[Any, ...]:
    return (_place(Mode, key[0]), *(min(_place(kind, part) for kind in (Phase, Dtype, Profile)) for part in key[1:]))


def _place(vocabulary: type, word: str) -> tuple[int, str]:
    words = [member.value for member in vocabulary]
    return (words.index(word), word) if word in words else (len(words), word)


def _percent(count: int, whole: int) -> str:
    """Whole per cent; 0 and 100 are said only of none and all."""
    if not whole:
        return "0"
    percent = 100 * count / whole
    if 0 < count < whole:
        percent = min(99, max(1, round(percent)))
    return f"{percent:.0f}"


def _bar(counts: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Segments of a stacked bar 1000 units wide."""
    whole = sum(count for _, count in counts)
    segments, start = [], 0.0
    for group, count in counts:
        if count:
            width = 1000 * count / whole
            segments.append({"group": group, "x": round(start, 2), "width": round(width, 2), "count": count})
            start += width
    return segments
