from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import results
from results import journal

WRITER = """
import sys
import results
from results import schema
row = {column.name: None for column in schema.COLUMNS} | {"run_id": "r", "schema_version": 1, "detail": "x" * 5000}
journal = results.Journal(sys.argv[1])
number = 0
while True:
    journal.append(row | {"case_id": f"case-{number}"})
    print(number, flush=True)
    number += 1
"""


def test_every_acknowledged_row_survives_kill_minus_nine(tmp_path: Path) -> None:
    path = tmp_path / "gw0.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline() for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read()
    assert writer.wait() == -signal.SIGKILL
    count = len(acknowledged) + rest.count("\n")

    table, _ = journal.read(path)

    ids = table.column("case_id").to_pylist()
    assert ids[:count] == [f"case-{number}" for number in range(count)]
    assert len(ids) <= count + 1


def test_half_written_last_line_is_reported_and_all_before_it_kept(tmp_path: Path, record) -> None:
    path = tmp_path / "gw0.jsonl"
    with results.Journal(path) as writer:
        writer.append(results.row(record("bert"), "r"))
        writer.append(results.row(record("llama"), "r"))
    os.truncate(path, path.stat().st_size - 40)

    table, problems = journal.read(path)

    assert table.column("model_type").to_pylist() == ["bert"]
    assert len(problems) == 1
    assert f"{path} line 2" in problems[0]


def test_writer_continues_a_half_line_on_a_fresh_line(tmp_path: Path, record) -> None:
    path = tmp_path / "gw0.jsonl"
    with results.Journal(path) as writer:
        writer.append(results.row(record("bert"), "r"))
        writer.append(results.row(record("llama"), "r"))
    os.truncate(path, path.stat().st_size - 40)

    with results.Journal(path) as writer:
        writer.append(results.row(record("t5"), "r"))

    table, problems = journal.read(path)
    assert table.column("model_type").to_pylist() == ["bert", "t5"]
    assert len(problems) == 1


@pytest.mark.parametrize(
    "damage", [b"\x00\x00\x00\x00", b"[1, 2]", b"{}", b'{"case_id": 7}', b"\xff\xfe", b"[" * 100_000]
)
def test_damaged_lines_never_hide_intact_ones(tmp_path: Path, record, damage: bytes) -> None:
    path = tmp_path / "gw0.jsonl"
    with results.Journal(path) as writer:
        writer.append(results.row(record("bert"), "r"))
    with path.open("ab") as file:
        file.write(damage + b"\n")
    with results.Journal(path) as writer:
        writer.append(results.row(record("t5"), "r"))

    table, problems = journal.read(path)

    assert table.column("model_type").to_pylist() == ["bert", "t5"]
    assert len(problems) == 1
    assert "\n" not in problems[0]


def test_a_second_writer_of_the_same_file_is_refused(tmp_path: Path) -> None:
    with (
        results.Journal(tmp_path / "gw0.jsonl"),
        pytest.raises(results.StoreError, match="written by another process"),
    ):
        results.Journal(tmp_path / "gw0.jsonl")


def test_row_that_does_not_fit_on_the_disk_leaves_no_trace(tmp_path: Path, record) -> None:
    path = tmp_path / "gw0.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with results.Journal(path) as writer:
        writer.append(results.row(record("bert"), "r"))
        before = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
        try:
            with pytest.raises(results.DiskFull, match="no space left to write"):
                writer.append(results.row(record("llama"), "r"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        writer.append(results.row(record("t5"), "r"))

    table, problems = journal.read(path)
    assert table.column("model_type").to_pylist() == ["bert", "t5"]
    assert problems == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_device_is_one_clear_line(record) -> None:
    with (
        results.Journal(Path("/dev/full")) as writer,
        pytest.raises(results.DiskFull, match=r"^no space left to write /dev/full: free some and resume the run$"),
    ):
        writer.append(results.row(record(), "r"))


def test_a_row_that_readers_would_refuse_is_never_written(tmp_path: Path, record) -> None:
    path = tmp_path / "gw0.jsonl"
    with results.Journal(path) as writer, pytest.raises(ValueError, match="column seed"):
        writer.append(results.row(record(seed=2**63), "r"))
    assert path.read_bytes() == b""


def test_every_row_is_synced_before_append_returns(tmp_path: Path, record, monkeypatch) -> None:
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))
    path = tmp_path / "gw0.jsonl"
    with results.Journal(path) as writer:
        for name in ("bert", "llama"):
            writer.append(results.row(record(name), "r"))
            assert sizes[-1] == path.stat().st_size
    assert len(sizes) == 2
