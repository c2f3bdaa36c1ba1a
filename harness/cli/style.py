"""How verdicts, durations and foreign text look on a terminal."""

from __future__ import annotations

from rich.text import Text

from harness.cases import Group, Verdict

_STYLES = {
    Group.PASS: "green",
    Group.BACKEND: "bold red",
    Group.MODEL: "magenta",
    Group.ENVIRONMENT: "yellow",
    Group.HARNESS: "bold white on red",
}


def verdict_style(verdict: str) -> str:
    """Style of a verdict's name, by whom it speaks about."""
    return _STYLES[Verdict(verdict).group] if verdict in set(Verdict) else ""


def plain(value: object, style: str = "") -> Text:
    """Text of unknown origin: markup in it means nothing, control characters are gone, unknown is a dash."""
    text = "-" if value is None else str(value)
    return Text("".join(c if c == "\n" or c.isprintable() else "�" for c in text), style=style)


def duration(seconds: float) -> str:
    """`7s`, `3m20s`, `2h05m`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def size(count: int) -> str:
    """Bytes as `12.3 GiB`."""
    return f"{count / 2**30:.1f} GiB"
