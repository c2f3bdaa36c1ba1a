"""What one way of executing gains over another, over all models that pass both ways, as distributions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dashboards import words
from harness.cases import Mode, Verdict

COLUMNS = ("entry_id", "phase", "mode", "dtype", "profile", "verdict", "twin_of", "latency_seconds",
           "peak_device_bytes", "peak_host_bytes")  # fmt: skip
"""What is asked of the rows of a run here."""

_PAIRS = (
    (Mode.DEFER_AND_FUSE, Mode.STRICT_EAGER),
    (Mode.COMPILED, Mode.STRICT_EAGER),
    (Mode.COMPILED, Mode.EAGER),
)
_QUANTITIES = (
    ("speed", "latency_seconds", "how many times as fast a repeated call is, all compiled before"),
    ("device memory", "peak_device_bytes", "how many times less device memory is in use at the peak"),
    ("host memory", "peak_host_bytes", "how many times less memory the process has at the peak"),
)
_EDGES = 2.0 ** np.arange(-3, 3.25, 0.25)
"""Of the bars: an eighth to eight times, four to each doubling; what lies beyond is in the outermost."""

CLAIMED = 1.5
"""Fused execution is said to be at least 50 % faster than strict."""


def claims(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each pair of modes and quantity, the gains over all cases that pass in both; structural twins count once."""
    measured: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in rows:
        if row["verdict"] == Verdict.PASS and not row["twin_of"]:
            measured[row["mode"], row["entry_id"], row["phase"], row["dtype"], row["profile"]] = row
    told = []
    for mode, base in _PAIRS:
        for title, column, meaning in _QUANTITIES:
            pairs = (
                (measured[base, *key][column], row[column])
                for (of, *key), row in measured.items()
                if of == mode and (base, *key) in measured
            )
            gains = np.array([old / new for old, new in pairs if old and new])
            if len(gains):
                told.append(
                    {"mode": mode.value, "base": base.value, "title": title, "meaning": meaning, **_told(gains)}
                )
    return told


def _told(gains: np.ndarray) -> dict[str, Any]:
    counts, _ = np.histogram(np.clip(gains, _EDGES[0], _EDGES[-1]), _EDGES)
    low, middle, high = np.percentile(gains, (25, 50, 75))
    faster = int((gains >= CLAIMED).sum())
    return {
        "cases": len(gains),
        "median": f"{middle:.2f}×",
        "quartiles": f"{low:.2f}× to {high:.2f}×",
        "claimed": f"{words.percent(faster, len(gains))} %",
        "worse": f"{words.percent(int((gains < 1).sum()), len(gains))} %",
        "bars": [
            {
                "x": 10 * n,
                "height": round(100 * count / counts.max(), 1),
                "says": f"{count} at {low:.2f}× to {high:.2f}×",
            }
            for n, (count, low, high) in enumerate(zip(counts.tolist(), _EDGES, _EDGES[1:], strict=False))
        ],
        "one": round(10 * float(np.log2(1 / _EDGES[0]) * 4), 1),
        "width": 10 * len(counts),
    }
