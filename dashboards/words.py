"""Values as people read them on a page: verdicts, shares, times, and text of unknown origin made safe to look at."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from harness.cases import Group, Verdict

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
FILLS = {"pass": "#1d9e74", "missing": "#b4bdc7", "environment": "#d3a423", "backend": "#d9541e"}
"""Colours of groups where no stylesheet reaches: those of `assets/site.css`."""

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
        "pass_percent": percent(counts[Verdict.PASS.value], planned),
        "groups": [
            {"group": group, "symbol": symbol(group), "word": _GROUPS[group][1], "count": by_group[group]}
            for group in order
            if by_group[group]
        ],
        "verdicts": [
            {"verdict": verdict, **named(verdict), "count": count}
            for verdict, count in sorted(
                counts.items(), key=lambda item: (order.index(verdict_group(item[0])), -item[1], item[0])
            )
        ],
        "bar": bar([(group, by_group[group]) for group in order]),
    }


def symbol(group: str) -> str:
    """One character per group, so that colour is never the only sign."""
    return _GROUPS[group][0]


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


def rounded(value: float | None, digits: int) -> float | str | None:
    """A number of so many digits; what JSON has no number for is spelled, and unknown stays None."""
    if value is None:
        return None
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return float(f"{value:.{digits}g}")


def named(verdict: str) -> dict[str, str]:
    """All that a page says of a verdict: group, symbol, word, meaning."""
    group = verdict_group(verdict)
    return {
        "group": group,
        "symbol": symbol(group),
        "word": "not reported" if verdict == MISSING else verdict_word(verdict),
        "meaning": verdict_meaning(verdict),
    }


def place(vocabulary: type, word: str) -> tuple[int, str]:
    """Where a word stands in a closed vocabulary, to sort by; words of later versions come last."""
    words = [member.value for member in vocabulary]
    return (words.index(word), word) if word in words else (len(words), word)


def percent(count: int, whole: int) -> str:
    """Whole per cent; 0 and 100 are said only of none and all."""
    if not whole:
        return "0"
    percent = 100 * count / whole
    if 0 < count < whole:
        percent = min(99, max(1, round(percent)))
    return f"{percent:.0f}"


def bar(counts: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Segments of a stacked bar 1000 units wide."""
    whole = sum(count for _, count in counts)
    segments, start = [], 0.0
    for group, count in counts:
        if count:
            width = 1000 * count / whole
            segments.append({"group": group, "x": round(start, 2), "width": round(width, 2), "count": count})
            start += width
    return segments
