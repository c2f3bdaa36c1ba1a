from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

import results
from harness.cases import Verdict
from results import lookup, sealed, store


@pytest.fixture
def history(tmp_path: Path, record, monkeypatch) -> list[results.Run]:
    """Three runs of twenty cases, sealed in groups of eight rows; the middle one lacks the last case."""
    monkeypatch.setattr(sealed, "ROWS_IN_GROUP", 8)
    records = [record(f"model{number:02}") for number in range(20)]
    runs = []
    for verdict, some in ((Verdict.PASS, records), (Verdict.CRASH, records[:-1]), (Verdict.TIMEOUT, records)):
        run = results.create_run(tmp_path, {"settings": {"target": "cpu"}}, [made.case.id for made in some])
        with run.journal("gw0") as journal:
            for made in some:
                journal.append(results.row(replace(made, verdict=verdict), run.id))
        results.seal(run)
        runs.append(run)
    return runs


def test_the_newest_runs_come_first_and_only_wanted_rows(tmp_path: Path, history) -> None:
    found = lookup.last_rows(tmp_path, lambda case_id: "model19" in case_id, ("model_type", "verdict"))
    assert [(run.id, rows) for run, rows in found] == [
        (history[2].id, [{"model_type": "model19", "verdict": "TIMEOUT"}]),
        (history[0].id, [{"model_type": "model19", "verdict": "PASS"}]),
    ]


def test_runs_that_are_not_needed_are_not_read(tmp_path: Path, history, monkeypatch) -> None:
    store.sealed_path(history[0]).write_bytes(b"damaged")
    found = lookup.last_rows(tmp_path, lambda case_id: "model03" in case_id, ("verdict",))
    assert [rows[0]["verdict"] for _, rows in islice(found, 2)] == ["TIMEOUT", "CRASH"]
    monkeypatch.setattr(lookup, "LOOKED_AT", 1)
    assert len(list(lookup.last_rows(tmp_path, lambda case_id: True, ("verdict",)))) == 1


def test_of_a_sealed_run_only_the_parts_with_a_wanted_case_are_read(tmp_path: Path, history) -> None:
    path = store.sealed_path(history[2])
    whole = path.read_bytes()
    wanted = [history[2].planned[n] for n in (1, 19)]
    with sealed.opened(path) as file:
        message = [column.name for column in file.schema_arrow].index("message")
        chunks = [file.metadata.row_group(group).column(message) for group in range(file.num_row_groups)]
    assert len(chunks) == 3
    begin, size = chunks[1].dictionary_page_offset or chunks[1].data_page_offset, chunks[1].total_compressed_size
    path.write_bytes(whole[:begin] + b"\x00" * size + whole[begin + size :])
    rows = store.read(history[2], ("case_id", "message"), wanted)[0]
    assert rows.column("case_id").to_pylist() == wanted
    with pytest.raises(results.StoreError, match="is damaged"):
        store.read(history[2], ("case_id", "message"))


def test_a_run_that_goes_on_gives_the_wanted_rows_too(tmp_path: Path, history, record) -> None:
    made = record("late")
    run = results.create_run(tmp_path, {"settings": {"target": "cpu"}}, [made.case.id, history[0].planned[0]])
    with run.journal("gw0") as journal:
        journal.append(results.row(made, run.id))
        rows = store.read(run, ("model_type",), [made.case.id, "unknown"])[0]
        assert rows.to_pylist() == [{"model_type": "late"}]
        assert store.read(run, ("model_type",), [history[0].planned[0]])[0].to_pylist() == []
