"""`zoo diff` from the outside: what is printed in each format, and returned."""

from __future__ import annotations

import json

import pytest

import results

HOSTILE = "`` | <script>alert(1)</script> [x](http://evil) @everyone \x1b[31m\nsecond line"


@pytest.fixture
def nights(night) -> tuple[str, str]:
    """Two nights in which everything happens."""
    return (
        night(
            {
                "good": {"worst_ratio": 0.1, "latency_seconds": 0.1},
                "broken": {},
                "mended": {"verdict": "CRASH"},
                "other": {"verdict": "CRASH"},
                "gone": {},
                "busy": {},
            }
        ),
        night(
            {
                "good": {"worst_ratio": 0.8, "latency_seconds": 0.3},
                "broken": {"verdict": "RUN_ERROR", "message": HOSTILE},
                "mended": {},
                "other": {"verdict": "TIMEOUT"},
                "new": {"verdict": "CRASH"},
                "busy": {"verdict": "DEVICE_BUSY"},
            },
            packages={"torch": "2.14.0"},
        ),
    )


def test_a_regression_exits_1_and_everything_is_told(zoo, nights):
    ended = zoo("diff")
    assert ended.code == 1, ended.both
    assert "PASS -> RUN_ERROR  broken" in ended.out
    assert "CRASH -> PASS  mended" in ended.out
    assert "CRASH -> TIMEOUT  other" in ended.out
    assert "PASS -> DEVICE_BUSY  busy" in ended.out
    assert "torch: 2.13.0 -> 2.14.0" in ended.out
    assert "x 8  0.1 → 0.8  good" in ended.out
    assert "x 3  100 ms → 300 ms  good" in ended.out
    assert "5 cases ran in both" in ended.out
    assert "of the new cases 1 do not pass" in ended.out
    assert "\x1b" not in ended.out


def test_no_regression_exits_0(zoo, night):
    night({"one": {"verdict": "CRASH"}})
    night({"one": {}})
    ended = zoo("diff", "previous", "last")
    assert ended.code == 0, ended.both
    assert "CRASH -> PASS  one" in ended.out
    assert not ended.err


def test_json_has_all_of_it(zoo, nights, tmp_path):
    ended = zoo("diff", *nights, "--format", "json", "--out", "diff.json", "--limit", 0)
    assert (ended.code, ended.out) == (1, "")
    document = json.loads((tmp_path / "diff.json").read_text())
    assert (document["before"], document["after"], document["compared"]) == (*nights, 5)
    assert document["counts"]["regressed"] == 1
    became = {change["case_id"]: change["became"] for change in document["changes"]}
    assert became == {
        "broken": "regressed",
        "other": "changed failure",
        "mended": "fixed",
        "busy": "no longer measured",
        "new": "new",
        "gone": "removed",
    }
    assert {move["quantity"]: move["factor"] for move in document["moves"]} == pytest.approx(
        {"worst_ratio": 8, "latency_seconds": 3}
    )
    assert document["components"] == [{"name": "torch", "before": "2.13.0", "after": "2.14.0"}]


def test_markdown_keeps_foreign_text_in_code(zoo, nights):
    ended = zoo("diff", "--format", "markdown")
    assert ended.code == 1
    assert "| 1 | regressed | passed before, fails now |" in ended.out
    (line,) = [line for line in ended.out.splitlines() if "`broken`" in line]
    assert line.endswith("``` `` | <script>alert(1)</script> [x](http://evil) @everyone [31m second line ```")
    assert "second line" not in ended.out.replace(line, "")


def test_only_so_many_cases_are_named_as_asked(zoo, night):
    night({f"case-{number}": {} for number in range(5)})
    night({f"case-{number}": {"verdict": "CRASH"} for number in range(5)})
    for form in ("text", "markdown"):
        out = zoo("diff", "--limit", 2, "--format", form).out
        assert out.count("case-") == 2
        assert "and 3 more" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonesuch",), "no run 'nonesuch'"),
        (("2026-99-01",), "is no date"),
        (("torch_tpu==",), "is no version"),
        (("last-green", "--expectations", "absent"), "absent"),
        (("--out", "no/such/folder/x"), "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(zoo, night, tmp_path, arguments, said):
    night({"one": {}})
    night({"one": {}})
    ended = zoo("diff", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert not ended.out


def test_runs_with_nothing_in_common_or_of_other_targets_are_refused(zoo, night):
    first, second, third = night({"one": {}}), night({"two": {}}), night({"two": {}}, target="tpu")
    ended = zoo("diff", first, second)
    assert (ended.code, ended.out) == (2, "")
    assert "nothing to compare" in ended.err
    ended = zoo("diff", second, third)
    assert (ended.code, ended.out) == (2, "")
    assert "results of different targets are not compared" in ended.err


def test_a_run_records_whether_it_was_green(zoo, models, tmp_path):
    run = ("run", "--list", models, "--target", "cpu", "--mode", "eager", "--workers", 1)
    zoo(*run)
    zoo(*run, script={"beta/*": "RUN_ERROR"})
    green, red = (
        results.provenance_of(run_id, tmp_path / "store")["ended"] for run_id in results.list_runs(tmp_path / "store")
    )
    assert (green["unexpected"], green["missing"]) == (0, 0)
    assert red["unexpected"] > 0
    ended = zoo("diff", "last-green")
    assert ended.code == 1
    assert "PASS -> RUN_ERROR" in ended.out
