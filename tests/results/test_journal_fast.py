"""The fast reader of journals against the slow one: they may never differ, whatever a line holds."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import results
from results import journal, schema

TEXTS = [
    "plain",
    "",
    "NaN",
    "-Infinity",
    'quote " and \\ and /',
    "tab\tline\nreturn\r",
    "\x00\x01\x1f\x7f",
    "é ü 漢 😀",
    "\ud83d alone",
    "alone \udcff",
    "\\ud83d as text",
    "2026-11-30T01:00:00Z",
    "x" * 70_000,
]
FLOATS = [0.0, -0.0, 0.1, -1.5e-7, 5e-324, 1.7976931348623157e308, float("nan"), float("inf"), float("-inf"), 3, 2**70]
INTEGERS = [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)]
WRONG = {
    "string": [7, True, ["a"], {"a": 1}],
    "int64": [2**63, -(2**63) - 1, 1.0, 1e2, True, "5", "NaN", [1]],
    "double": ["5", "nan", "inf", True, [0.5], {}],
    "bool": [0, 1, "true"],
    "list<int64>": [[1, None], [1.5], [True], [2**63], ["1"], 5, {}],
}
"""What no column of that type may hold; the damage of one value must not go unseen, nor cost another row."""
RAW = [
    b"",
    b"   ",
    b"null",
    b"[1, 2]",
    b'"text"',
    b"{}",
    b"\xff\xfe{}",
    b'{"case_id":"a"} x',
    b'{"case_id":"a"}{"case_id":"b"}',
    b'{"case_id":"a"},{"case_id":"b"}',
    b'{"case_id":"a"}\x00{"case_id":"b"}',
    b' {"case_id":"a"}\r',
    b'{"case_id":"first","case_id":"last"}',
    b'{"case_id":"a","unknown":{"deep":[{}]}}',
    b'{"case_id":"a","unknown":NaN}',
    b'{"case_id":"a","wall_seconds":Infinity}',
    b'{"case_id":"a","wall_seconds":Inf}',
    b'{"case_id":"a","wall_seconds":1e999}',
    b'{"case_id":"a","wall_seconds":' + b"9" * 400 + b"}",
    b'{"case_id":"a","wall_seconds":1.}',
    b'{"case_id":"a","seed":01}',
    b'{"case_id":"a","seed":-0}',
    b'{"case\\u005fid":"a"}',
    b'{"case_id":"\xc3\xa9"}',
    b'{"case_id":"\xc3"}',
    b'{"case_id":"a\nb"}',
    b'{"case_id":"a","message":"\x01"}',
    b"{'case_id':'a'}",
    b'{"case_id":"a",}',
    b'{"case_id":"a" /* why */}',
    b'{"case_id":null}',
    b'{"case_id":"a","schema_version":null}',
    b'{"case_id":"a","schema_version":0}',
    b'{"case_id":"a","schema_version":"1"}',
    b'{"case_id":"a","worst_shape":[]}',
]


def one_by_one(path: Path) -> tuple[list[dict[str, object]], list[str]]:
    rows, problems = [], []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                rows.append(journal.read_line(line, path))
            except ValueError as error:
                problems.append(f"{path} line {number}: unreadable row skipped ({error})")
    return rows, problems


def random_line(choose: random.Random) -> bytes:
    values = {
        "string": TEXTS[: -1 if choose.random() < 0.9 else None],
        "double": FLOATS,
        "int64": INTEGERS,
        "bool": [True, False],
        "list<int64>": [[], [1], [2**63 - 1, 0]],
    }
    row = {column.name: choose.choice([None, *values[column.type]]) for column in schema.COLUMNS}
    row |= {"schema_version": schema.SCHEMA_VERSION, "case_id": f"case-{choose.randrange(10**6)}"}
    if choose.random() < 0.3:
        row["added_later"] = choose.choice([None, 1, "text", [{}]])
    for name in choose.sample(sorted(row), choose.choice([0, 0, 5])):
        del row[name]
    if choose.random() < 0.2:
        # A newer version is refused, as whole, and `RAW` has what is no version.
        column = choose.choice([column for column in schema.COLUMNS if column.name != "schema_version"])
        row[column.name] = choose.choice(WRONG[column.type])
    return json.dumps(schema.encode(row), separators=(",", ":"), ensure_ascii=choose.random() < 0.9).encode(
        "utf-8", "surrogatepass"
    )


def same(path: Path) -> list[dict[str, object]]:
    table, problems = journal.read(path)
    rows, expected = one_by_one(path)
    assert problems == expected
    assert table.schema.equals(schema.arrow_schema(), check_metadata=True)
    assert repr(table.to_pylist()) == repr(rows)
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_fast_and_slow_reader_read_alike(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    path = tmp_path / "gw0.jsonl"
    path.write_bytes(b"\n".join(random_line(choose) for _ in range(150)) + b"\n" * choose.randrange(2))
    assert len(same(path)) > 75


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_hostile_line_among_good_ones_reads_as_it_does_alone(tmp_path: Path, record, raw: bytes) -> None:
    path = tmp_path / "gw0.jsonl"
    with results.Journal(path) as writer:
        writer.append(results.row(record("bert"), "r"))
    with path.open("ab") as file:
        file.write(raw + b"\n")
    with results.Journal(path) as writer:
        writer.append(results.row(record("t5"), "r"))

    rows = same(path)

    assert (rows[0]["model_type"], rows[-1]["model_type"]) == ("bert", "t5")


def test_texts_of_dead_processes_can_be_sealed(tmp_path: Path, record, new_run) -> None:
    run = new_run([record().case.id])
    with run.journal("gw0") as writer:
        writer.append(results.row(record(), run.id) | {"log": "bytes \udcff\udc80"})
    results.seal(run)
    assert list(results.load(tmp_path / "store").log) == ["bytes \\udcff\\udc80"]
