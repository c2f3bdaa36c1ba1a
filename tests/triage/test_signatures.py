"""What failures have in common, and what sets them apart."""

import pytest

from harness.cases import Verdict
from harness.triage import signatures
from harness.triage.signatures import clusters, signature


def row(verdict=Verdict.RUN_ERROR, message="", **said):
    empty = dict.fromkeys(signatures.COLUMNS, "")
    case = {"case_id": "a/A/o/a/synthetic/forward/compiled/float32/padded", "entry_id": "a/A/o/a/synthetic"}
    about = {"model_id": "o/a", "model_type": "a", "model_class": "AModel", "phase": "forward", "mode": "compiled"}
    return empty | case | about | {"dtype": "float32", "stage": "run", "verdict": verdict, "message": message} | said


SAME_CAUSE = [
    ("RuntimeError: cannot view [2, 17, 64] as (2, 1088)", "RuntimeError: cannot view [1, 33, 64] as (1, 2112)"),
    ("RuntimeError: shape f32[2,17]{1,0} is wrong", "RuntimeError: shape f32[4,9]{1,0} is wrong"),
    ("RuntimeError: bad tensor 2x17xf32", "RuntimeError: bad tensor 4x9x3xf32"),
    ("RuntimeError: argument 1xint64", "RuntimeError: argument 2xint64"),
    ("RuntimeError: 2x17 by 17x4", "RuntimeError: 3x9x1 by 9x8"),
    ("ValueError: object at 0x7f12ab has no grad", "ValueError: object at 0x55d0c8 has no grad"),
    ("OSError: /home/a/.cache/x/config.json: gone", "OSError: /tmp/y/config.json: gone"),
    ("RuntimeError: needs torch 2.13.0+cpu", "RuntimeError: needs torch 2.14.1"),
    ("RuntimeError: split_with_sizes sums to 12", "RuntimeError: split_with_sizes sums to 1.5e3"),
    ("OSError: no file at 50b1a2797a03c638f4efa10a12ad151c", "OSError: no file at 0123456789abcdef0123456789abcdef"),
    ("IndexError: index -1 is out of bounds", "IndexError: index 9 is out of bounds"),
    (
        "RuntimeError: job 1b4e28ba-2fa1-11d2-883f-0016d3cca427",
        "RuntimeError: job 6fa459ea-ee8a-3ca4-894e-db77e160355e",
    ),
    ("InputError: AModel has no forward", "InputError: BModel has no forward"),
    ("InputError: o/a has no forward", "InputError: p/b has no forward"),
    ("RuntimeError: lost", "BackendCompilerFailed: backend='compile' raised: RuntimeError: lost"),
    ("RuntimeError: two  words", "RuntimeError: two\twords"),
]


@pytest.mark.parametrize(("one", "other"), SAME_CAUSE)
def test_what_changes_from_occurrence_to_occurrence_does_not_count(one, other):
    of_b = {"model_id": "p/b", "model_type": "b", "model_class": "BModel", "entry_id": "b/B/p/b/synthetic"}
    first, second = signature(row(message=one)), signature(row(message=other, **of_b))
    assert first.cause == second.cause, (first.subject, second.subject)
    assert first.occurrence != second.occurrence


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (row(message="RuntimeError: cannot view"), row(message="RuntimeError: cannot reshape")),
        (row(message="RuntimeError: x"), row(Verdict.COMPILE_ERROR, "RuntimeError: x")),
        (
            row(Verdict.UNSUPPORTED_OP, "operator 'aten::roll' is not implemented"),
            row(Verdict.UNSUPPORTED_OP, "operator 'aten::flip' is not implemented"),
        ),
        (row(Verdict.CRASH, signal="SIGSEGV"), row(Verdict.CRASH, signal="SIGABRT")),
        (
            row(Verdict.NUMERIC_MISMATCH, blame_pair="compiled vs strict-eager"),
            row(Verdict.NUMERIC_MISMATCH, blame_pair="strict-eager vs cpu"),
        ),
        (
            row(Verdict.NUMERIC_MISMATCH, blame_pair="strict-eager vs cpu", model_type="a"),
            row(Verdict.NUMERIC_MISMATCH, blame_pair="strict-eager vs cpu", model_type="b"),
        ),
    ],
)
def test_other_causes_are_told_apart(one, other):
    assert signature(one).cause != signature(other).cause


@pytest.mark.parametrize("name", ["aten.gelu.default", "aten::gelu", "gelu", "aten.gelu.out"])
def test_an_operator_is_one_cause_in_every_mode_and_model(name):
    found = signature(row(Verdict.NUMERIC_MISMATCH, "logits: 3 times too far", blame_operator=name, model_type=name))
    assert found.subject == "aten::gelu"
    assert found.cause == signature(row(Verdict.NUMERIC_MISMATCH, blame_operator="gelu", dtype="bfloat16")).cause


def test_an_operator_that_is_missing_is_one_cause_wherever_that_is_said():
    eager = row(
        Verdict.UNSUPPORTED_OP, "RuntimeError: operator 'aten::roll.out' is not implemented for TPU", stage="run"
    )
    packed = row(Verdict.UNSUPPORTED_OP, "BackendCompilerFailed: backend='compile' raised: " + eager["message"])
    assert signature(eager).cause == signature(packed).cause
    assert signature(eager).subject == "aten::roll"


def test_a_crash_is_told_by_what_the_process_said_or_else_by_where_the_dying_thread_was():
    stacks = (
        'Thread 0x01 (most recent call first):\n  File "/x/threading.py", line 3 in wait\n\n'
        'Current thread 0x02 (most recent call first):\n  File "/x/modeling_a.py", line 9 in forward\n'
    )
    found = signature(row(Verdict.CRASH, signal="SIGSEGV", log=stacks))
    assert found.subject == "SIGSEGV: in forward of modeling_a.py"
    said = "F0000 12:01 x.cc:7] Check failed: size == 12 (13 vs. 12)\n" + stacks
    assert (
        signature(row(Verdict.CRASH, signal="SIGABRT", log=said)).subject
        == "SIGABRT: Check failed: size == N (N vs. N)"
    )


def test_what_passes_has_no_cause():
    assert signature(row(Verdict.PASS)) is None
    assert clusters([row(Verdict.PASS)]) == []


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.PASS])
def test_every_failure_has_one_though_it_says_nothing(verdict):
    bare = row(verdict) | dict.fromkeys(("message", "log", "detail", "signal", "blame_pair", "blame_operator"))
    assert signature(bare).subject


def test_a_verdict_of_another_version_is_a_cause_as_well():
    assert signature(row("MELTED")).subject == "an unknown verdict"


def test_what_blocks_most_architectures_comes_first():
    rows = [row(message="RuntimeError: rare", model_type="a", case_id=str(n)) for n in range(9)]
    rows += [row(message="RuntimeError: common", model_type=str(n), mode=f"m{n}", case_id=f"c{n}") for n in range(3)]
    rows += [row(Verdict.PASS)]
    common, rare = clusters(rows)
    assert (common.subject, [*common.types], common.cases) == ("common", ["0", "1", "2"], ["c0", "c1", "c2"])
    assert [*common.modes] == ["m0", "m1", "m2"]
    assert len(rare.cases) == 9
    assert common.name == "RUN_ERROR common (forward, float32)"


def test_the_id_of_a_cluster_says_which_algorithm_made_it(monkeypatch):
    before, version = signature(row(message="x")).cluster, signatures.VERSION
    monkeypatch.setattr(signatures, "VERSION", version + 1)
    after = signature(row(message="x")).cluster
    assert [name.partition("-")[0] for name in (before, after)] == [str(version), str(version + 1)]
