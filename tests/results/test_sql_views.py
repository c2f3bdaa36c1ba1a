from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

import results
from harness.cases import Verdict
from results import StoreError
from results.sql import query


@pytest.fixture
def store(tmp_path: Path, record, new_run) -> Path:
    """A store with a sealed run of an older version's columns, and one that is still running."""
    for name, verdict, sealed in (("bert", Verdict.CRASH, True), ("llama", Verdict.PASS, False)):
        run = new_run(["one", "two"])
        with run.journal("gw0") as journal:
            journal.append(results.row(record(name, verdict=verdict), run.id))
        if sealed:
            path = results.seal(run)
            table = parquet.read_table(path).drop_columns(["signal"]).append_column("later", pyarrow.array([1]))
            parquet.write_table(table, path)
    return tmp_path / "store"


def test_rows_of_sealed_and_running_runs_have_the_columns_of_today(store: Path) -> None:
    answer = query(store, "select * from rows order by model_type")
    assert answer.column_names == list(results.columns())
    assert answer.column("model_type").to_pylist() == ["bert", "llama"]
    assert answer.column("signal").to_pylist() == [None, ""]


def test_runs_can_be_asked_for_and_joined(store: Path) -> None:
    found = query(store, "select verdict, runs.target, cases from rows join runs using (run_id) order by verdict")
    assert found.column("verdict").to_pylist() == ["CRASH", "PASS"]


def test_an_empty_store_has_the_views(tmp_path: Path) -> None:
    assert query(tmp_path, "select count(*) n from rows").to_pylist() == [{"n": 0}]
    assert query(tmp_path, "select * from runs").num_rows == 0


@pytest.mark.parametrize(
    "sql",
    [
        "drop view rows",
        "select 1; select 2",
        "",
        "select * from nowhere",
        "select nothing from rows",
        "selec",
        "copy (select 1) to '{store}/stolen.csv'",
        "attach '{store}/new.db'",
        "set enable_external_access = true",
        "select * from read_text('{outside}')",
        "select * from '{outside}'",
        "select * from runs_of_python",
        "install httpfs",
    ],
)
def test_anything_but_reading_the_store_is_one_line(store: Path, tmp_path: Path, sql: str) -> None:
    runs_of_python = pyarrow.table({"secret": [1]})
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    before = sorted(store.rglob("*"))
    with pytest.raises(StoreError) as caught:
        query(store, sql.format(store=store, outside=outside))
    assert "\n" not in str(caught.value)
    assert sorted(store.rglob("*")) == before
    assert len(runs_of_python) == 1
