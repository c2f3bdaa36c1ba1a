"""`zoo export`, `zoo gc` and `zoo sql` from the outside."""

from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree as xml

import pytest

import results

HOSTILE = "[bold red]not markup[/] \x1b[31m\x00"


@pytest.fixture
def nights(night) -> tuple[str, str, str]:
    """Three nights: a green one, one in which a case fails, and one that did not end."""
    good, bad = "a/A/acme/a/synthetic/forward/eager/float32/padded", "b/B/acme/b/synthetic/forward/eager/float32/padded"
    failing = {"verdict": "RUN_ERROR", "message": HOSTILE}
    return (
        night({good: {}, bad: {}}, ended={"unexpected": 0, "missing": 0}),
        night({good: {}, bad: failing}, ended={"unexpected": 1, "missing": 0}),
        night({good: {}}, planned=(bad,)),
    )


def test_a_run_is_exported_to_a_file_or_to_standard_output(zoo, nights, tmp_path):
    ended = zoo("export", nights[1], "--format", "junit", "--out", "report.xml")
    assert (ended.code, ended.both) == (0, "")
    root = xml.parse(tmp_path / "report.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "0")
    assert json.loads(zoo("export", "last-green", "--format", "json").out)["run_id"] == nights[0]
    assert len(list(csv.DictReader(io.StringIO(zoo("export", "last", "--format", "csv").out)))) == 1


def test_the_store_is_asked_in_sql(zoo, nights):
    ended = zoo("sql", "select verdict, count(*) as n from rows group by all order by n", "--format", "csv")
    assert ended.out.splitlines() == ['"verdict","n"', '"RUN_ERROR",1', '"PASS",4']
    assert not ended.err
    ended = zoo("sql", "select message from rows where verdict = 'RUN_ERROR'")
    assert ended.code == 0
    assert "[bold red]not markup[/]" in ended.out
    assert "\x1b" not in ended.out


def test_old_runs_are_let_go_and_named(zoo, nights, tmp_path):
    ended = zoo("gc", "--keep-runs", 1, "--dry-run")
    assert ended.code == 0, ended.both
    assert f"would remove {nights[1]}" in ended.out
    assert f"kept {nights[0]}: it is the last green one on cpu" in ended.out
    assert tuple(results.list_runs(tmp_path / "store")) == nights
    ended = zoo("gc", "--keep-runs", 1)
    assert f"removed {nights[1]}" in ended.out
    assert "removed 1 of 3 runs\nfreed " in ended.out
    assert results.list_runs(tmp_path / "store") == [nights[0], nights[2]]


def test_journals_are_dropped_once_they_are_in_parquet(zoo, nights, tmp_path):
    rows = len(results.load(tmp_path / "store"))
    assert f"would drop the journals of {nights[0]}" in zoo("gc", "--journals", "0h", "--dry-run").out
    for run_id in nights:
        assert list((tmp_path / "store" / "runs" / run_id / "journal").iterdir())
    ended = zoo("gc", "--journals", "0h", "--migrate")
    assert ended.code == 0, ended.both
    assert f"dropped the journals of {nights[1]}" in ended.out
    assert nights[2] not in ended.out, "it may go on"
    assert not list((tmp_path / "store" / "runs" / nights[0] / "journal").iterdir())
    assert tuple(results.list_runs(tmp_path / "store")) == nights
    assert len(results.load(tmp_path / "store")) == rows


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "nonesuch", "--format", "csv"), "no run 'nonesuch'"),
        (("sql", "drop view rows"), "give one SELECT"),
        (("sql", "select nothing from rows"), "cannot be answered"),
        (("gc",), "say what to keep"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(zoo, arguments, said):
    ended = zoo(*arguments)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert not ended.out


@pytest.mark.parametrize(
    "arguments", [("gc", "--keep", "soon"), ("gc", "--journals", "3"), ("gc", "--keep-runs", "0"), ("export", "last")]
)
def test_options_that_are_none_are_usage_errors(zoo, arguments):
    ended = zoo(*arguments)
    assert ended.code == 2
    assert "Traceback" not in ended.both
