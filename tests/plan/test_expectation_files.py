"""Expectation files and the table of verdict x expectation."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from harness.cases import Stage, Verdict
from model_lists.expectations import FOLDER, Expectation, ExpectationError, load_expectations
from results.expected import Outcome, outcome

GOOD = """
[[expect]]
case = "bert/*/compiled/*"
verdict = "NUMERIC_MISMATCH"
stage = "compare"
reason = "softmax in bfloat16"
link = "https://example.org/1"
added = 2026-01-31

[[expect]]
case = "gpt2/*"
verdict = "TIMEOUT"
reason = "slow"
added = 2026-02-01
"""


def load(folder: Path, text: str):
    (folder / "here.toml").write_text(text, encoding="utf-8")
    return load_expectations("here", folder)


def test_a_file_is_read_in_order_with_where_it_stands(tmp_path):
    known = load(tmp_path, GOOD)
    assert [e.verdict for e in known] == [Verdict.NUMERIC_MISMATCH, Verdict.TIMEOUT]
    assert [e.where for e in known] == ["here.toml:2", "here.toml:10"]
    assert known.entries[0].added == datetime.date(2026, 1, 31)
    assert [e.reason for e in known.about("gpt2/GPT2Model/x/y")] == ["slow"]
    assert known.about("t5/T5Model/x/y") == ()


def test_no_file_means_nothing_is_known(tmp_path):
    assert len(load_expectations("nowhere", tmp_path)) == 0


def test_the_shipped_files_load():
    for path in FOLDER.glob("*.toml"):
        load_expectations(path.stem)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('"TIMEOUT"', '"TIMEUOT"', 12, "unknown verdict: 'TIMEUOT' (valid: "),
        ('"TIMEOUT"', '"PASS"', 12, "every case is expected to PASS"),
        ('"compare"', '"comparing"', 5, "unknown stage 'comparing' (valid: "),
        ('link = "', 'lnik = "', 7, "unknown key 'lnik' (valid: case, "),
        ('reason = "slow"\n', "", 10, "key 'reason' is missing"),
        ('reason = "slow"', 'reason = ""', 13, "reason must be a non-empty string"),
        ('case = "gpt2/*"', "case = 3", 11, "case must be a non-empty string"),
        ("2026-02-01", '"2026-02-01"', 14, "added must be a date"),
        ("2026-02-01", "2026-02-31", 14, "not valid TOML"),
        ('reason = "slow"', 'reason = "slow', 13, "not valid TOML"),
        ("\n[[expect]]\ncase = \"bert", "\nversion = 1\n[[expect]]\ncase = \"bert", 2, "unknown key 'version'"),
        ("[[expect]]\ncase = \"gpt2", "[[expects]]\ncase = \"gpt2", 10, "unknown key 'expects'"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_file_and_line(tmp_path, old, new, line, said):
    assert old in GOOD
    with pytest.raises(ExpectationError) as caught:
        load(tmp_path, GOOD.replace(old, new))
    assert str(caught.value).startswith(f"{tmp_path / 'here.toml'}:{line}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["expect = 1", "expect = [1]", "[expect]\ncase = 1", "expect = [{case = 'x'}]", "\x00"]
)
def test_other_shapes_are_refused(tmp_path, text):
    with pytest.raises(ExpectationError, match=r"here\.toml:1: "):
        load(tmp_path, text)


def expect(verdict: Verdict, stage: Stage | None = None) -> Expectation:
    return Expectation("*", verdict, "why", datetime.date(2026, 1, 31), stage)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_table_for_every_verdict(verdict):
    other = Verdict.TIMEOUT if verdict is not Verdict.TIMEOUT else Verdict.CRASH
    passed = verdict is Verdict.PASS

    def ended(*about):
        return outcome(verdict, Stage.RUN, about)[0]

    assert ended() is (Outcome.EXPECTED if passed else Outcome.UNEXPECTED)
    assert ended(expect(other)) is (Outcome.UNEXPECTED_PASS if passed else Outcome.CHANGED_FAILURE)
    if not passed:
        assert ended(expect(verdict)) is Outcome.EXPECTED
        assert ended(expect(verdict, Stage.RUN)) is Outcome.EXPECTED
        assert ended(expect(verdict, Stage.COMPILE)) is Outcome.CHANGED_FAILURE
        assert ended(expect(other), expect(verdict)) is Outcome.EXPECTED


def test_the_expectation_that_an_outcome_rests_on():
    other, same = expect(Verdict.CRASH), expect(Verdict.TIMEOUT)
    assert outcome(Verdict.TIMEOUT, Stage.RUN, [other, same]) == (Outcome.EXPECTED, same)
    assert outcome(Verdict.RUN_ERROR, Stage.RUN, [other, same]) == (Outcome.CHANGED_FAILURE, other)
    assert outcome(Verdict.PASS, Stage.RUN, []) == (Outcome.EXPECTED, None)
