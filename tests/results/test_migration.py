"""An invented older version, since there is no real one yet: its one step renames a column and converts another."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import compute, parquet

import results
from results import migration, schema, sealed, sql, store
from results.schema import Column

OLD, TODAY = 1, 2


def _change(table: pyarrow.Table) -> pyarrow.Table:
    for name, values in (
        ("stage", table.column("phase_reached")),
        ("wall_seconds", compute.divide(compute.cast(table.column("wall_seconds"), "float64"), 1000.0)),
    ):
        table = table.set_column(table.column_names.index(name), name, values)
    return table


HAD = (Column("phase_reached", "string", "", "now stage"), Column("wall_seconds", "int64", "", "in milliseconds then"))


@pytest.fixture
def an_old_row(record, monkeypatch):
    """A row as version 1 wrote it, read by a harness that is at version 2."""
    monkeypatch.setattr(schema, "SCHEMA_VERSION", TODAY)
    monkeypatch.setitem(migration.STEPS, OLD, migration.Step(HAD, _change))

    def make(name: str, run_id: str) -> dict[str, object]:
        row = results.row(record(name), run_id) | {"schema_version": OLD, "phase_reached": "compare"}
        return row | {"wall_seconds": 1500, "stage": None, "worst_ratio": "Infinity"}

    return make


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_every_version_below_todays_has_a_step() -> None:
    assert sorted(migration.STEPS) == list(range(1, schema.SCHEMA_VERSION))


def test_old_and_new_rows_of_one_journal_read_alike_and_in_order(tmp_path: Path, record, new_run, an_old_row) -> None:
    run = new_run()
    path = run.path / "journal" / "gw0.jsonl"
    newer = schema.encode(results.row(record("t5"), run.id))
    path.write_text(lines(an_old_row("bert", run.id), newer, an_old_row("llama", run.id) | {"wall_seconds": "slow"}))
    for _ in range(2):
        table, problems = store.read(run)
        rows = table.to_pylist()
        assert [(row["model_type"], row["stage"], row["wall_seconds"]) for row in rows] == [
            ("bert", "compare", 1.5),
            ("t5", "compare", 1.5),
        ]
        assert {row["schema_version"] for row in rows} == {TODAY}
        assert rows[0]["worst_ratio"] == float("inf")
        assert table.schema.equals(schema.arrow_schema())
        assert problems == [] or "line 3" in problems[0]
        results.seal(run)


def test_a_sealed_file_keeps_its_version_until_it_is_migrated(tmp_path: Path, new_run, an_old_row, monkeypatch) -> None:
    run = new_run()
    old = pyarrow.Table.from_pylist(
        [an_old_row(name, run.id) | {"worst_ratio": 0.5} for name in ("bert", "llama")],
        schema=schema.arrow_schema(migration.columns_of(OLD)),
    ).drop_columns(["stage"])
    with monkeypatch.context() as then:
        then.setattr(schema, "SCHEMA_VERSION", OLD)
        sealed.write(store.sealed_path(run), [old], {})
    case_id = old.column("case_id")[1].as_py()

    def check() -> None:
        assert (
            store.read(run, ("stage", "wall_seconds"))[0].to_pylist() == [{"stage": "compare", "wall_seconds": 1.5}] * 2
        )
        assert store.read(run, ("model_type",), [case_id])[0].to_pylist() == [{"model_type": "llama"}]
        answer = sql.query(tmp_path / "store", "select stage, sum(wall_seconds) as s from rows group by stage")
        assert answer.to_pylist() == [{"stage": "compare", "s": 3.0}]
        results.seal(run)

    check()
    assert "phase_reached" in parquet.read_schema(store.sealed_path(run)).names
    assert sealed.migrate(store.sealed_path(run))
    assert "phase_reached" not in parquet.read_schema(store.sealed_path(run)).names
    check()
    assert not sealed.migrate(store.sealed_path(run))


def test_what_a_newer_version_sealed_is_refused_in_one_line_and_left_as_it_is(record, new_run, monkeypatch) -> None:
    run = new_run()
    with run.journal("gw0") as journal:
        journal.append(results.row(record(), run.id))
    path = results.seal(run)
    table = parquet.read_table(path)
    parquet.write_table(table.replace_schema_metadata(table.schema.metadata | {b"zoo.schema_version": b"2"}), path)
    before = path.read_bytes()

    def migrate(run: results.Run) -> None:
        sealed.migrate(store.sealed_path(run))

    for attempt in (store.read, results.seal, migrate, store.let_go_of_journals, results.missing):
        with pytest.raises(results.StoreError, match=r"^[^\n]* newer version [^\n]*$") as caught:
            attempt(run)
        assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert (run.path / "journal" / "gw0.jsonl").exists()
