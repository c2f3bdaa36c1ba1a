from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

import results
from harness.cases import Mode, Stage, Verdict
from model_lists.expectations import load_expectations
from results.export import NOT_REPORTED, run_as_csv, run_as_json, run_as_junit
from results.schema import decode

HOSTILE = "]]> <b>&amp; \x00\x1b[31m\x0b \ufffe \u2028 'quoted' \"twice\", = ünïcödé \U0001f600"


@pytest.fixture
def run(record, new_run) -> results.Run:
    """A run in which a case passes, five end otherwise, and one has not ended."""
    made = [
        record("bert"),
        record("llama", verdict=Verdict.NUMERIC_MISMATCH, message=HOSTILE, detail=HOSTILE, log=HOSTILE),
        record("known", Mode.COMPILED, verdict=Verdict.CRASH, stage=Stage.RUN),
        record("mended", Mode.COMPILED),
        record("busy", Mode.COMPILED, verdict=Verdict.DEVICE_BUSY),
        record("moved", Mode.COMPILED, verdict=Verdict.TIMEOUT, wall_seconds=None),
    ]
    never = "late/LateModel/acme/late/synthetic/forward/compiled/float32/padded"
    run = new_run([*(one.case.id for one in made), never])
    with run.journal("gw0") as journal:
        for one in made:
            journal.append(results.row(one, run.id))
    return run


@pytest.fixture
def known(tmp_path: Path):
    entry = '[[expect]]\ncase = "{}/*"\nverdict = "CRASH"\nreason = "a known fault"\nadded = 2026-01-31\n'
    (tmp_path / "tpu-emulated.toml").write_text("".join(entry.format(name) for name in ("known", "mended", "moved")))
    return load_expectations("tpu-emulated", tmp_path)


def test_junit_has_a_suite_per_mode_and_a_test_per_planned_case(run, known) -> None:
    root = xml.fromstring(run_as_junit(run, known))
    assert {suite.get("name"): int(suite.get("tests")) for suite in root} == {
        "tpu-emulated/strict-eager": 2,
        "tpu-emulated/compiled": 5,
    }
    told = {
        case.get("name").split("/")[0]: {child.tag: child.get("type") for child in case if child.tag != "system-out"}
        for case in root.iter("testcase")
    }
    assert told == {
        "bert": {},
        "llama": {"failure": "NUMERIC_MISMATCH"},
        "known": {"skipped": None},
        "mended": {"failure": "unexpected-pass"},
        "busy": {"error": "DEVICE_BUSY"},
        "moved": {"failure": "TIMEOUT"},
        "late": {"error": NOT_REPORTED},
    }
    assert [case.get("name") for case in root.iter("testcase")] == run.planned
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "7",
        "failures": "3",
        "errors": "2",
        "skipped": "1",
    }
    assert "a known fault" in root.find(".//skipped").get("message")
    assert float(root.get("time")) == pytest.approx(1.5 * 5)
    assert root.find(".//testcase").get("classname") == "tpu-emulated.strict-eager.bert"


def test_junit_keeps_what_xml_can_hold_of_a_hostile_text_and_nothing_else(run, known) -> None:
    failure = xml.fromstring(run_as_junit(run, known)).find(".//failure")
    kept = "".join(c for c in HOSTILE if c not in "\x00\x1b\x0b\ufffe")
    assert failure.text == kept
    assert failure.get("message") == f"NUMERIC_MISMATCH in stage compare: {kept}"


def test_csv_holds_every_row_and_column_and_keeps_unknown_apart_from_empty(run) -> None:
    text = run_as_csv(run).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == list(results.columns())
    assert [row["case_id"] for row in rows] == run.planned[:-1]
    assert rows[1]["message"] == HOSTILE
    assert json.loads(rows[0]["worst_shape"]) == [2, 7, 32]
    assert ',"",' in text, "an empty text"
    assert ",," in text, "unknown"


def test_json_is_strict_and_whole(run) -> None:
    with run.journal("gw1") as journal:
        journal.append(decode({"case_id": run.planned[-1], "worst_ratio": float("inf")}))
    document = json.loads(run_as_json(run), parse_constant=lambda word: pytest.fail(word))
    assert (document["run_id"], document["planned"]) == (run.id, run.planned)
    assert document["provenance"] == run.provenance
    assert [row["case_id"] for row in document["rows"]] == run.planned
    assert document["rows"][1]["message"] == HOSTILE
    assert document["rows"][-1]["worst_ratio"] == "Infinity"
    assert document["rows"][-1]["verdict"] is None
