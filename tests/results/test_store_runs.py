from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pandas
import pyarrow
import pytest
from pyarrow import parquet

import results
from harness.cases import Mode, Verdict
from results import journal, schema, store


def write(run: results.Run, worker: str, *records) -> None:
    with run.journal(worker) as journal:
        for record in records:
            journal.append(results.row(record, run.id))


def one_line(caught: pytest.ExceptionInfo[results.StoreError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_live_and_sealed_runs_read_alike(tmp_path: Path, record, new_run) -> None:
    records = [record("bert"), record("bert", Mode.COMPILED), record("llama")]
    run = new_run([made.case.id for made in records])
    write(run, "gw0", records[2], records[0])
    write(run, "gw1", records[1])
    live = results.load(tmp_path / "store", run.id)

    results.seal(run)

    pandas.testing.assert_frame_equal(live, results.load(tmp_path / "store", run.id))
    assert list(live.case_id) == [made.case.id for made in records]


def test_seal_is_idempotent_and_continues_after_more_rows(record, new_run) -> None:
    first, second = record("bert"), record("llama")
    run = new_run([first.case.id, second.case.id])
    write(run, "gw0", first)
    path = results.seal(run)
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert results.seal(run) == path
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert results.missing(run) == [second.case.id]

    write(run, "gw0", second)

    assert results.missing(run) == []
    results.seal(run)
    assert parquet.read_table(path).num_rows == 2
    assert [item.name for item in run.path.iterdir() if item.name.startswith(".")] == []


def test_sealed_run_outlives_its_journals(tmp_path: Path, record, new_run) -> None:
    first, second = record("bert"), record("llama")
    run = new_run([first.case.id, second.case.id])
    write(run, "gw0", first)
    results.seal(run)
    (run.path / "journal" / "gw0.jsonl").unlink()
    write(run, "gw1", second)
    results.seal(run)
    assert list(results.load(tmp_path / "store").model_type) == ["bert", "llama"]


def test_last_line_of_a_case_counts(tmp_path: Path, record, new_run) -> None:
    made = record()
    run = new_run([made.case.id])
    write(run, "gw1", replace(made, verdict=Verdict.CRASH), replace(made, verdict=Verdict.TIMEOUT))
    write(run, "gw0", replace(made, verdict=Verdict.PASS))
    for _ in range(2):
        assert list(results.load(tmp_path / "store", run.id).verdict) == ["PASS"]
        results.seal(run)


def test_sealed_parquet_answers_sql_with_meanings(record, new_run) -> None:
    run = new_run()
    write(run, "gw0", record("bert"), record("llama", verdict=Verdict.CRASH))
    path = results.seal(run)
    found = duckdb.sql(f"select model_type from '{path}' where verdict = 'CRASH'").fetchall()
    assert found == [("llama",)]
    assert parquet.read_schema(path).field("verdict").metadata[b"meaning"] == b"how the case ended"


def test_run_ids_sort_by_time_and_name_the_target(tmp_path: Path, new_run) -> None:
    made = [results.create_run(tmp_path, {"settings": {"target": t}}, []).id for t in ("tpu", "cpu", "tpu-emulated")]
    assert results.list_runs(tmp_path) == made
    assert results.latest(tmp_path).id == made[-1]
    assert all(re.fullmatch(r"\d{8}T\d{6}Z-(tpu|cpu|tpu-emulated)-[0-9a-f]{6}", run_id) for run_id in made)


def test_runs_created_at_the_same_instant_stay_apart(tmp_path: Path, monkeypatch, new_run) -> None:
    ticks = iter([1_796_000_000_000_000_000] * 3 + [1_796_000_000_500_000_000])
    monkeypatch.setattr("results.store.time.time_ns", lambda: next(ticks))
    first, second = new_run(["a"]), new_run(["b"])
    assert (first.planned, second.planned) == (["a"], ["b"])
    assert results.list_runs(tmp_path / "store") == [first.id, second.id]


def test_concurrent_processes_share_a_store(tmp_path: Path) -> None:
    code = """
import sys
import results
from results import schema
run = results.create_run(sys.argv[1], {"settings": {"target": sys.argv[2]}}, [f"case-{n}" for n in range(15)])
row = {column.name: None for column in schema.COLUMNS} | {"run_id": run.id, "schema_version": 1}
with run.journal("gw0") as journal:
    for number in range(15):
        journal.append(row | {"case_id": f"case-{number}"})
        if number == 7:
            results.seal(run)
results.seal(run)
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), f"t{n}"]) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    loaded = results.load(tmp_path)
    assert len(results.list_runs(tmp_path)) == 3
    assert list(loaded.groupby("run_id").case_id.nunique()) == [15, 15, 15]


def test_what_was_acknowledged_is_read_while_the_run_writes_seals_and_lets_go(tmp_path: Path) -> None:
    """The writer seals now and then; the reader, whenever it looks, sees every row that was on disk before."""
    code = """
import sys
import results
from results import journal, schema, store
run = results.create_run(sys.argv[1], {}, [])
print(run.id, flush=True)
row = {column.name: None for column in schema.COLUMNS} | {"run_id": run.id, "schema_version": 1, "recorded_at": "2026"}
for number in range(60):
    with run.journal("gw0") as journal:
        journal.append(row | {"case_id": f"case-{number}"})
    print(number, flush=True)
    if number % 10 == 9:
        results.seal(run)
    if number % 20 == 19:
        store.let_go_of_journals(run)
"""
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    run = results.open_run(tmp_path, writer.stdout.readline().strip())
    looked = 0
    for line in writer.stdout:
        table, _ = store.read(run, ["case_id"])
        ids = table.column("case_id").to_pylist()
        assert {f"case-{number}" for number in range(int(line) + 1)} <= set(ids)
        assert len(set(ids)) == len(ids)
        looked += 1
    assert (writer.wait(), looked) == (0, 60)
    assert store.is_sealed(run)


def test_load_of_named_latest_and_all_runs(tmp_path: Path, record, new_run) -> None:
    runs = []
    for name in ("bert", "llama"):
        run = new_run()
        write(run, "gw0", record(name))
        runs.append(run)
    newest = runs[-1]
    assert len(results.load(tmp_path / "store")) == 2
    assert set(results.load(tmp_path / "store", "latest").run_id) == {newest.id}
    assert set(results.load(tmp_path / "store", [runs[0].id]).run_id) == {runs[0].id}
    assert results.load(tmp_path / "nowhere").empty
    assert list(results.load(tmp_path / "nowhere").columns) == list(results.columns())


def test_default_store_is_the_environment_variable(tmp_path: Path, monkeypatch, new_run, record) -> None:
    run = new_run()
    write(run, "gw0", record())
    monkeypatch.setenv("ZOO_STORE", str(tmp_path / "store"))
    assert len(results.load()) == 1
    assert results.provenance_of() == {"settings": {"target": "tpu-emulated"}}
    assert results.provenance_of(run)["settings"]["target"] == "tpu-emulated"


def test_truncated_journal_line_is_reported_by_load(tmp_path: Path, record, new_run) -> None:
    run = new_run()
    write(run, "gw0", record("bert"))
    with (run.path / "journal" / "gw0.jsonl").open("a") as file:
        file.write('{"schema_version":1,"case')
    loaded = results.load(tmp_path / "store")
    assert list(loaded.model_type) == ["bert"]
    assert len(loaded.attrs["problems"]) == 1
    assert "line 2" in loaded.attrs["problems"][0]


def test_amended_facts_and_live_states_are_read_back(tmp_path: Path, new_run) -> None:
    run = new_run()
    run.amend({"finished_at": "2026-11-30T09:00:00+00:00"})
    run.announce("gw0", {"stage": "run"})
    run.announce("gw0", {"stage": "compare"})
    again = results.open_run(tmp_path / "store", run.id)
    assert again.provenance["finished_at"] == "2026-11-30T09:00:00+00:00"
    assert again.provenance["settings"] == {"target": "tpu-emulated"}
    assert again.live() == {"gw0": {"stage": "compare"}}


def test_store_under_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(results.StoreError) as caught:
        results.create_run(tmp_path / "file" / "store", {}, [])
    assert str(tmp_path / "file" / "store") in one_line(caught)


@pytest.mark.parametrize("planned", [["a", "b", "a"], ["a\nb"], [""]])
def test_plan_must_be_distinct_lines(tmp_path: Path, planned: list[str]) -> None:
    with pytest.raises(results.StoreError) as caught:
        results.create_run(tmp_path, {}, planned)
    one_line(caught)
    assert results.list_runs(tmp_path) == []


@pytest.mark.parametrize("name", ["../escape", "a/b", "", ".hidden", "x" * 500])
def test_worker_names_stay_inside_the_run(new_run, name: str) -> None:
    with pytest.raises(results.StoreError):
        new_run().journal(name)


def test_unknown_run_says_which_is_latest(tmp_path: Path, new_run) -> None:
    with pytest.raises(results.StoreError, match="has no runs yet"):
        results.latest(tmp_path / "store")
    run = new_run()
    for wrong in ("nonesuch", "../../etc", ""):
        with pytest.raises(results.StoreError) as caught:
            results.open_run(tmp_path / "store", wrong)
        assert run.id in one_line(caught)


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00", "{}", '{"schema_version": 1, "run_id": "another"}'])
def test_damaged_run_json_is_one_line_naming_the_file(tmp_path: Path, new_run, content: str) -> None:
    run = new_run()
    (run.path / "run.json").write_text(content)
    with pytest.raises(results.StoreError) as caught:
        results.load(tmp_path / "store")
    assert str(run.path / "run.json") in one_line(caught)


def test_damaged_parquet_is_one_line_naming_the_file(tmp_path: Path, record, new_run) -> None:
    made = record()
    run = new_run([made.case.id])
    write(run, "gw0", made)
    path = results.seal(run)
    whole = path.read_bytes()
    for damaged in (b"", b"PAR1", whole[: len(whole) // 2], b"\x00" * 1000):
        path.write_bytes(damaged)
        for read in (lambda: results.load(tmp_path / "store"), lambda: results.seal(run), lambda: results.missing(run)):
            with pytest.raises(results.StoreError) as caught:
                read()
            assert str(path) in one_line(caught)
    path.unlink()
    results.seal(run)
    assert len(results.load(tmp_path / "store")) == 1


def test_newer_schema_is_one_line_asking_to_upgrade(tmp_path: Path, record, new_run) -> None:
    run = new_run()
    write(run, "gw0", record())
    newer = schema.SCHEMA_VERSION + 1

    journal_path = run.path / "journal" / "gw0.jsonl"
    line = json.loads(journal_path.read_text()) | {"schema_version": newer}
    with journal_path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(results.StoreError, match="newer version") as caught:
        results.load(tmp_path / "store")
    assert str(journal_path) in one_line(caught)

    document = json.loads((run.path / "run.json").read_text()) | {"schema_version": newer}
    (run.path / "run.json").write_text(json.dumps(document))
    with pytest.raises(results.StoreError, match="newer version") as caught:
        results.open_run(tmp_path / "store", run.id)
    assert "upgrade" in one_line(caught)


def test_columns_of_another_version_of_the_same_schema_are_tolerated(tmp_path: Path, record, new_run) -> None:
    run = new_run()
    write(run, "gw0", record())
    path = results.seal(run)
    table = parquet.read_table(path).drop_columns(["signal"]).append_column("added_later", pyarrow.array([1]))
    parquet.write_table(table, path)
    loaded = results.load(tmp_path / "store")
    assert loaded.signal.isna().all()
    assert "added_later" not in loaded


def test_sealing_while_a_row_arrives_loses_nothing(record, new_run, monkeypatch) -> None:
    first, late = record("bert"), record("llama")
    run = new_run([first.case.id, late.case.id])
    write(run, "gw0", first)
    read = journal.read

    def read_then_append(path):
        answer = read(path)
        write(run, "gw0", late)
        return answer

    monkeypatch.setattr(journal, "read", read_then_append)
    results.seal(run)
    monkeypatch.undo()

    assert results.missing(run) == []
