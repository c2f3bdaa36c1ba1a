"""Expectation files and the table of verdict x expectation."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Stage, Verdict
from harness.scope import never_matching
from model_lists.expectations import FOLDER, Expectation, ExpectationError, load_expectations
from results.expected import Outcome, outcome

TODAY = datetime.date(2026, 1, 31)
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
    assert known.about("gpt2/GPT2Model/x/y").reason == "slow"
    assert known.about("t5/T5Model/x/y") is None


def test_no_file_means_nothing_is_known(tmp_path):
    assert len(load_expectations("nowhere", tmp_path)) == 0


def test_the_shipped_files_load():
    for path in FOLDER.glob("*.toml"):
        load_expectations(path.stem)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('"TIMEOUT"', '"TIMEUOT"', 12, "unknown verdict: 'TIMEUOT'; did you mean TIMEOUT? (valid: "),
        ('"TIMEOUT"', '"PASS"', 12, "every case is expected to PASS"),
        ('"compare"', '"comparing"', 5, "unknown stage 'comparing'; did you mean compare? (valid: "),
        ('link = "', 'lnik = "', 7, "unknown key 'lnik'; did you mean link? (valid: case, "),
        ('reason = "slow"\n', "", 10, "key 'reason' is missing"),
        ('reason = "slow"', 'reason = ""', 13, "reason must be a non-empty string"),
        ('case = "gpt2/*"', "case = 3", 11, "case must be a non-empty string"),
        ("2026-02-01", '"2026-02-01"', 14, "added must be a date"),
        ("2026-02-01", "2026-02-31", 14, "not valid TOML"),
        ('reason = "slow"', 'reason = "slow', 13, "not valid TOML"),
        ("\n[[expect]]\ncase = \"bert", "\nversion = 1\n[[expect]]\ncase = \"bert", 2, "unknown key 'version'"),
        ("[[expect]]\ncase = \"gpt2", "[[expects]]\ncase = \"gpt2", 10, "unknown key 'expects'; did you mean expect?"),
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


def expect(verdict: Verdict, stage: Stage | None = None, **more) -> Expectation:
    return Expectation("*", verdict, "why", TODAY, stage, **more)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_table_for_every_verdict(verdict):
    other = Verdict.TIMEOUT if verdict is not Verdict.TIMEOUT else Verdict.CRASH
    passed = verdict is Verdict.PASS

    def ended(about=None):
        return outcome(verdict, Stage.RUN, about)[0]

    assert ended() is (Outcome.EXPECTED if passed else Outcome.UNEXPECTED)
    for expired in (False, True):
        assert ended(expect(other, expired=expired)) is (Outcome.UNEXPECTED_PASS if passed else Outcome.CHANGED_FAILURE)
    if not passed:
        assert ended(expect(verdict)) is Outcome.EXPECTED
        assert ended(expect(verdict, Stage.RUN)) is Outcome.EXPECTED
        assert ended(expect(verdict, Stage.COMPILE)) is Outcome.CHANGED_FAILURE
        assert ended(expect(verdict, expired=True)) is Outcome.EXPIRED
        assert ended(expect(verdict, Stage.COMPILE, expired=True)) is Outcome.CHANGED_FAILURE
    if verdict is not Verdict.FLAKY:
        # What is known to pass at one of two attempts may pass at the first, but not fail at both.
        assert ended(expect(Verdict.FLAKY)) is (Outcome.EXPECTED if passed else Outcome.CHANGED_FAILURE)


def test_no_verdict_at_all_is_for_an_expectation_that_matches_nothing():
    assert outcome(None, None, None)[0] is Outcome.EXPECTED
    for known in (expect(Verdict.CRASH), expect(Verdict.CRASH, expired=True), expect(Verdict.FLAKY)):
        assert outcome(None, None, known)[0] is Outcome.NEVER_MATCHING


def entry(case: str, verdict: str = "CRASH", more: str = "") -> str:
    return f'[[expect]]\ncase = "{case}"\nverdict = "{verdict}"\nreason = "x"\nadded = 2026-01-01\n{more}\n'


def test_the_last_that_covers_a_case_counts(tmp_path):
    known = load(tmp_path, entry("bert/*") + entry("bert/*/train/*", "TIMEOUT") + entry("*/compiled/*", "CRASH"))
    assert known.about("bert/B/x/synthetic/train/eager/float32/padded").verdict is Verdict.TIMEOUT
    assert known.about("bert/B/x/synthetic/forward/eager/float32/padded").verdict is Verdict.CRASH
    assert known.about("gpt2/G/x/synthetic/forward/compiled/float32/padded").where == "here.toml:13"
    assert known.about("gpt2/G/x/synthetic/forward/eager/float32/padded") is None


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (entry("bert/*/train/*"), entry("bert/*", "TIMEOUT")),
        (entry("bert/*"), entry("bert/*")),
        (entry("bert/[ab]*"), entry("bert/[ab]*", "TIMEOUT")),
        (entry("bert/B", more='versions = "torch<9"'), entry("bert/*")),
        (entry("bert/B", more='versions = "torch<9"'), entry("bert/*", more='versions = "torch<9"')),
    ],
)
def test_an_entry_that_a_later_one_makes_void_is_a_mistake(tmp_path, first, later):
    with pytest.raises(ExpectationError) as caught:
        load(tmp_path, first + later)
    assert str(caught.value).startswith(f"{tmp_path / 'here.toml'}:1: never counts, since here.toml:7 covers all of")


def test_an_exception_and_one_for_other_versions_are_no_mistakes(tmp_path):
    load(tmp_path, entry("bert/*") + entry("bert/B", "TIMEOUT"))
    load(tmp_path, entry("bert/B") + entry("bert/*", "TIMEOUT", 'versions = "torch<1"'))


def test_two_that_disagree_about_a_case_are_told_apart_by_that_case_only(tmp_path):
    known = load(tmp_path, entry("bert/*/compiled/*") + entry("bert/*/train/*", "TIMEOUT") + entry("bert/*/eager/*"))
    known.check(["bert/B/forward/compiled/float32", "bert/B/train/strict-eager/float32"])
    with pytest.raises(ExpectationError, match=r"^here\.toml:7: TIMEOUT for bert/B/train/compiled/x contradicts CRASH"):
        known.check(["bert/B/train/compiled/x"])
    agreeing = load(tmp_path, entry("bert/*/compiled/*") + entry("bert/*/train/*"))
    agreeing.check(["bert/B/train/compiled/x"])


HERE = {"torch": "2.13.0+cpu", "torch_tpu": "0.3.0.dev20260101", "libtpu": None}


@pytest.mark.parametrize(
    ("versions", "inert"),
    [
        ('"torch<3"', ""),
        ('"torch>=2.13,<2.14"', ""),
        ('["torch>=2.13", "torch-tpu<0.3.1"]', ""),
        ('"torch_tpu>=0.2"', ""),
        ("[]", ""),
        ('"torch<2.13"', "torch is 2.13.0+cpu, not <2.13"),
        ('"torch_tpu<0.3"', "torch_tpu is 0.3.0.dev20260101, not <0.3"),
        ('["torch<3", "libtpu>1"]', "libtpu is not installed, not >1"),
    ],
)
def test_outside_its_versions_an_entry_is_inert(tmp_path, versions, inert):
    (tmp_path / "here.toml").write_text(entry("bert/*", more=f"versions = {versions}"), encoding="utf-8")
    known = load_expectations("here", tmp_path, installed=HERE)
    assert known.entries[0].inert == inert
    assert (known.about("bert/x") is None) == bool(inert)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('versions = "torch"', "'torch' is not a version range"),
        ('versions = "<2"', "'<2' is not a version range"),
        ('versions = "torch<x"', "is not a version range"),
        ("versions = 2", "versions must be a string"),
        ('versions = "torch_tup<2"', "unknown package 'torch_tup'; did you mean torch_tpu?"),
        ('expires = "soon"', "expires must be a date"),
        ("expires = 2025-12-31", "expires on 2025-12-31, before it was added on 2026-01-01"),
    ],
)
def test_bad_ranges_and_days(tmp_path, more, said):
    with pytest.raises(ExpectationError, match=r"here\.toml:6: ") as caught:
        load(tmp_path, entry("bert/*", more=more))
    assert said in str(caught.value)


def test_an_entry_holds_through_its_last_day(tmp_path):
    (tmp_path / "here.toml").write_text(entry("bert/*", more="expires = 2026-03-01"), encoding="utf-8")
    for day, expired in ((1, False), (2, True)):
        known = load_expectations("here", tmp_path, today=datetime.date(2026, 3, day))
        assert known.about("bert/x").expired is expired


def test_flaky_must_expire(tmp_path):
    with pytest.raises(ExpectationError, match="key 'expires' is missing"):
        load(tmp_path, entry("bert/*", "FLAKY"))
    load(tmp_path, entry("bert/*", "FLAKY", "expires = 2099-01-01"))


def test_a_file_is_about_the_target_that_it_names(tmp_path):
    path = tmp_path / "any.toml"
    path.write_text('target = "tpu"\n' + entry("bert/*"), encoding="utf-8")
    assert len(load_expectations("tpu", path)) == 1
    with pytest.raises(ExpectationError, match=r"any\.toml:1: is about the target 'tpu', not 'cpu'"):
        load_expectations("cpu", path)


MODELS = tuple(
    Entry(f"acme/{name}", "", "transformers", name, f"{name.title()}Model", "vision", "", None, tier)
    for name, tier in (("alpha", "smoke"), ("beta", "smoke"), ("gamma", "nightly"))
)
MODES = (Mode.EAGER, Mode.COMPILED)


def idle(tmp_path, globs, chosen=MODELS, elsewhere=()):
    known = load(tmp_path, "".join(entry(glob) for glob in globs))
    planned = [Case(m, Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, Profile.PADDED).id for m in chosen]
    return [
        one.case
        for one in never_matching(
            known, planned, MODELS, MODES, None if elsewhere is None else set(elsewhere).__contains__
        )
    ]


def test_what_speaks_of_no_case_is_never_matching(tmp_path):
    globs = ["alpha/*", "alpha/AlphaModell/*", "delta/*", "beta/*/complied/*", "beta/*/strict-eager/*", "*/train/*"]
    assert idle(tmp_path, globs) == ["alpha/AlphaModell/*", "delta/*", "beta/*/complied/*", "beta/*/strict-eager/*"]
    assert idle(tmp_path, ["*/train/*"], elsewhere=None) == ["*/train/*"]


def test_what_the_run_did_not_cover_is_not_never_matching(tmp_path):
    not_asked = ["beta/*/compiled/*", "beta/*/bfloat16/*", "alpha/*/single"]
    assert idle(tmp_path, not_asked) == []
    assert idle(tmp_path, ["gamma/*"], MODELS[:2]) == [], "another tier"
    assert idle(tmp_path, ["delta/*"], MODELS[:2]) == ["delta/*"], "all of a tier were planned"
    assert idle(tmp_path, ["delta/*"], MODELS[:1]) == [], "a part of the list was planned"
    assert idle(tmp_path, ["delta/DeltaModel/*"], elsewhere=["delta", "DeltaModel"]) == []
    assert idle(tmp_path, ["delta/DeltaModell/*"], elsewhere=["delta", "DeltaModel"]) == ["delta/DeltaModell/*"]


def test_an_inert_entry_is_not_never_matching(tmp_path):
    known = load(tmp_path, entry("delta/*", more='versions = "torch<1"'))
    planned = [Case(m, Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, Profile.PADDED).id for m in MODELS]
    assert never_matching(known, planned, MODELS, MODES, lambda word: False) == ()
