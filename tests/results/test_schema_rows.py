from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas
import pytest

import results
from harness.cases import Entry, Stage, Verdict
from harness.records import Leaf, Record
from results import schema

HOSTILE = [
    "</script><script>alert(1)</script>",
    "\"quotes\" 'single' \\back\\ `tick`",
    "\x1b[31mred\x1b[0m\x07",
    "before\x00after",
    "first\r\nsecond\u2028third\x85fourth",
    "surrogate \udcff from a dying process",
    "🤗 \u202eoverride",
]


def test_every_field_of_a_record_has_a_column() -> None:
    sources = {column.source for column in schema.COLUMNS}
    covered = {source.split(".")[0] for source in sources}
    assert set(Record.__dataclass_fields__) <= covered
    assert {f"worst.{name}" for name in Leaf.__dataclass_fields__} <= sources
    assert {f"case.entry.{name}" for name in Entry.__dataclass_fields__} <= sources
    assert {f"seconds.{stage}" for stage in Stage} <= sources


def test_columns_are_documented_in_load() -> None:
    assert list(results.columns()) == [column.name for column in schema.COLUMNS]
    assert all(f"{name}: " in (results.load.__doc__ or "") for name in results.columns())


def test_unknown_is_none_and_never_zero(record) -> None:
    case = record().case
    case = replace(case, entry=replace(case.entry, params=None))
    row = results.row(Record(case, "tpu", False, Verdict.CRASH, Stage.RUN, signal="SIGSEGV"), "r")
    for name in ("params", "worst_ratio", "worst_index", "leaves", "seconds_run", "programs_executed", "exit_code"):
        assert row[name] is None, name
    assert row["group"] == "backend"
    assert row["signal"] == "SIGSEGV"


def test_values_survive_journal_seal_and_load_exactly(tmp_path: Path, record, new_run) -> None:
    leaf = replace(record().worst, error=math.nan, max_error=math.inf, actual=-math.inf, cpu=None)
    made = record(worst=leaf, verdict=Verdict.NONFINITE_DEVICE_ONLY)
    run = new_run([made.case.id])
    with run.journal("gw0") as journal:
        journal.append(results.row(made, run.id))
    results.seal(run)

    loaded = results.load(tmp_path / "store", run.id).iloc[0]

    assert loaded.seed == 2**62 + 1
    assert math.isnan(loaded.worst_error)
    assert loaded.worst_error is not pandas.NA
    assert loaded.worst_max_error == math.inf
    assert loaded.worst_actual == -math.inf
    assert loaded.worst_cpu is pandas.NA
    assert list(loaded.worst_index) == [1, 0, 3]
    assert loaded.seconds_to_device == 0.5
    assert loaded.emulated is True or bool(loaded.emulated)


def test_journal_lines_are_strict_json(tmp_path: Path, record, new_run) -> None:
    made = record(worst=replace(record().worst, error=math.nan))
    run = new_run([made.case.id])
    with run.journal("gw0") as journal:
        journal.append(results.row(made, run.id))

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    values = json.loads((run.path / "journal" / "gw0.jsonl").read_text(), parse_constant=refuse)
    assert values["schema_version"] == schema.SCHEMA_VERSION


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_every_field_comes_back(tmp_path: Path, record, new_run, text: str) -> None:
    case = record().case
    entry = replace(
        case.entry,
        **dict.fromkeys(("model_id", "revision", "library", "model_class", "family", "task", "tier"), text),
    )
    made = record(
        case=replace(case, entry=entry),
        message=text,
        detail=text,
        log=text,
        signal=text,
        worker=text,
        worst=replace(record().worst, path=text, note=text, dtype=text),
    )
    run = new_run()
    with run.journal("gw0") as journal:
        journal.append(results.row(made, run.id))
    results.seal(run)

    loaded = results.load(tmp_path / "store", run.id)

    assert len(loaded) == 1
    expected = text.replace("\udcff", "\\udcff")
    for name in ("model_id", "model_class", "message", "detail", "log", "signal", "worker", "worst_path", "worst_note"):
        assert loaded.iloc[0][name] == expected, name


def test_very_long_text_keeps_head_and_tail_and_says_what_went(record) -> None:
    row = results.row(record(log="HEAD" + "x" * 5_000_000 + "TAIL"), "r")
    assert row["log"].startswith("HEAD")
    assert row["log"].endswith("TAIL")
    assert len(row["log"]) < schema.MAX_TEXT + 100
    assert "characters left out" in row["log"]


def test_import_is_cheap() -> None:
    heavy = "pandas, pyarrow, duckdb, torch, numpy, jinja2"
    code = f"import sys, results, results.provenance; print([m for m in {heavy.split(', ')} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
