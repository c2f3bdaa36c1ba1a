from __future__ import annotations

import math

import pytest

from dashboards import words
from harness.cases import Verdict


@pytest.mark.parametrize(
    ("ratio", "says"),
    [
        (None, ""),
        (0.0, "0 %"),
        (1e-9, "< 1 %"),
        (0.37, "37 %"),
        (1.0, "100 %"),
        (1.0001, "101 %"),
        (2.5, "250 %"),
        (12345.6, "12,346×"),
        (3e12, "3e+12×"),
        (math.inf, "∞"),
        (math.nan, "NaN"),
    ],
)
def test_share_of_allowance(ratio: float | None, says: str) -> None:
    assert words.share(ratio) == says


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(None, ""), (0.0081, "8.1 ms"), (0.24, "0.24 s"), (12.3, "12 s"), (185.0, "3 min 05 s"), (3720.0, "1 h 02 min")],
)
def test_durations(seconds: float | None, says: str) -> None:
    assert words.duration(seconds) == says


def test_colours_go_and_controls_show() -> None:
    assert (
        words.clean("\x1b[1;31mred\x1b[0m \x1b]0;title\x07 a\x00b\x1b \r\nnext\t\u202e") == "red  a␀b␛ \nnext\t⟨U+202E⟩"
    )


def test_long_text_keeps_head_and_tail() -> None:
    text = words.shortened("HEAD" + "x" * 100_000 + "TAIL")
    assert text.startswith("HEAD")
    assert text.endswith("TAIL")
    assert len(text) < words.MAX_PAGE_TEXT + 100


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_symbol_word_and_meaning(verdict: Verdict) -> None:
    (named,) = words.totals([verdict.value])["verdicts"]
    assert named["group"] == verdict.group
    assert named["symbol"]
    assert named["word"]
    assert named["meaning"] == verdict.meaning


def test_a_verdict_of_a_later_version_is_shown_and_never_a_pass() -> None:
    totals = words.totals(["SOMETHING_NEW", "PASS"])
    assert totals["passed"] == 1
    assert totals["pass_percent"] == "50"
    assert [item["word"] for item in totals["verdicts"]] == ["PASS", "something new"]
