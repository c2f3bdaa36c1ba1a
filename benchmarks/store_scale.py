"""How large may the store grow?

Writes a store of `--rows` synthetic rows (nights of `--cases` each, a plan and a Parquet file per night, as `zoo run`
leaves them) in a temporary folder and measures, each in a process of its own, imports included:

- `zoo diff` of the last two nights, against pandas that reads every column of every night and then does the same
  (of at most 25 nights, since it holds them all in memory);
- `zoo sql` counting verdicts by mode over all rows, against the same pandas;
- sealing a night from its journal, per row.

Every answer is checked against what was planted. A year of nights has 10^7 rows: `--rows 10_000_000`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import results
from results import schema
from results.store import sealed_path

PANDAS_NIGHTS = 25
REGRESSED, MENDED = 40, 25
MODES = ("strict-eager", "defer-and-fuse", "compiled", "aot")
DTYPES = ("float32", "bfloat16")

_PEAK = """
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("peak", int(peak.split()[1]) / 1000, flush=True)
"""
_ZOO = """
import sys
from harness.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print("code", ended.code)
"""
_PANDAS = """
import sys
import pandas as pd
before, after, *files = sys.argv[1:]
rows = pd.concat([pd.read_parquet(path) for path in files])
print("counted", len(rows.groupby(["mode", "verdict"]).size()))
both = rows[rows.run_id == before].merge(rows[rows.run_id == after], on="case_id")
print("regressed", int(((both.verdict_x == "PASS") & (both.verdict_y != "PASS")).sum()))
"""


def main() -> None:
    """Write the store, ask it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--cases", type=int, default=40_000, help="rows of a night")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zoo-scale-") as folder:
        store = Path(folder) / "store"
        nights = max(2, options.rows // options.cases)
        runs = _write(store, nights, options.cases)
        files = [sealed_path(run) for run in runs]
        size = sum(path.stat().st_size for path in files)
        print(f"figure: store_rows {nights * options.cases} rows")
        print(f"figure: store_bytes_per_row {size / nights / options.cases:.1f} bytes", flush=True)

        told = Path(folder) / "diff.json"
        where = ("--store", str(store))
        diff_seconds, diff_peak, said = _measured(_ZOO, "diff", *where, "--format", "json", "--out", str(told))
        document = json.loads(told.read_text(encoding="utf-8"))
        _require(said["code"] == "1" and document["counts"]["regressed"] == REGRESSED, "zoo diff", document["counts"])
        _require((document["before"], document["after"]) == (runs[-2].id, runs[-1].id), "zoo diff", "other runs")

        query = "select mode, verdict, count(*) as n from rows group by all"
        answer = Path(folder) / "answer.csv"
        sql_seconds, sql_peak, _ = _measured(_ZOO, "sql", query, *where, "--out", str(answer))
        counts = answer.read_text(encoding="utf-8").splitlines()[1:]
        counted = sum(int(line.rpartition(",")[2]) for line in counts)
        _require(counted == nights * options.cases, "zoo sql", counted)

        some = [str(path) for path in files[-PANDAS_NIGHTS:]]
        pandas_seconds, pandas_peak, said = _measured(_PANDAS, runs[-2].id, runs[-1].id, *some)
        _require(said["regressed"] == str(REGRESSED), "pandas", said)

        print(f"figure: diff_seconds {diff_seconds:.2f} s")
        print(f"figure: diff_megabytes {diff_peak:.0f} MB")
        print(f"figure: sql_seconds {sql_seconds:.2f} s")
        print(f"figure: sql_megabytes {sql_peak:.0f} MB")
        print(f"pandas reading {len(some)} of {nights} nights whole: {pandas_seconds:.2f} s, {pandas_peak:.0f} MB")
        print(f"figure: diff_time_over_pandas_{len(some)}_nights {diff_seconds / pandas_seconds:.3f} ratio")
        print(f"figure: diff_memory_over_pandas_{len(some)}_nights {diff_peak / pandas_peak:.3f} ratio")
        print(f"figure: sql_time_over_pandas_{len(some)}_nights {sql_seconds / pandas_seconds:.3f} ratio", flush=True)

        rate = _ingest(Path(folder) / "ingest", files[-1])
        print(f"figure: ingest_rows_per_second {rate:.0f} rows/s")


def _write(store: Path, nights: int, cases: int) -> list[results.Run]:
    """Nights of the same cases; in the last, `REGRESSED` that passed the night before fail, and `MENDED` pass again."""
    random = np.random.default_rng(0)
    ids = [
        f"model{n}/Model{n}ForCausalLM/acme/model-{n}/synthetic/forward/{mode}/{dtype}/padded"
        for n in range(1 + cases // (len(MODES) * len(DTYPES)))
        for mode in MODES
        for dtype in DTYPES
    ][:cases]
    fails = random.random(cases) < 0.1
    fails[: REGRESSED + MENDED] = np.arange(REGRESSED + MENDED) >= REGRESSED
    base = _night(ids, random)
    latency = random.lognormal(-3, 1, cases)
    runs = []
    for night in range(nights):
        if night == nights - 1:
            fails[: REGRESSED + MENDED] ^= True
        facts = {"settings": {"target": "tpu", "cases": cases}, "emulated": False, "packages": {"torch": f"2.{night}"}}
        run = results.create_run(store, facts, ids)
        columns = base | {
            "run_id": pa.array([run.id] * cases),
            "verdict": pa.array(np.where(fails, "NUMERIC_MISMATCH", "PASS")),
            "group": pa.array(np.where(fails, "backend", "pass")),
            "message": pa.array(np.where(fails, "output logits: error 17 x what is allowed", "")),
            "worst_ratio": pa.array(random.lognormal(-2, 0.3, cases) + 9 * fails),
            "latency_seconds": pa.array(latency * random.lognormal(0, 0.1, cases)),
        }
        known = schema.arrow_schema()
        table = pa.Table.from_arrays([columns[field.name].cast(field.type) for field in known], schema=known)
        parquet.write_table(table, sealed_path(run), compression="zstd")
        runs.append(run)
    return runs


def _night(ids: list[str], random: np.random.Generator) -> dict[str, pa.Array]:
    """Values for every column: what a case is by its id, random numbers in what is measured, few words elsewhere."""
    cases = len(ids)
    parts = [case_id.split("/") for case_id in ids]
    made: dict[str, pa.Array] = {
        "case_id": pa.array(ids),
        "entry_id": pa.array(["/".join(part[:5]) for part in parts]),
        "model_id": pa.array(["/".join(part[2:4]) for part in parts]),
        "model_type": pa.array([part[0] for part in parts]),
        "model_class": pa.array([part[1] for part in parts]),
        "mode": pa.array([part[-3] for part in parts]),
        "dtype": pa.array([part[-2] for part in parts]),
        "emulated": pa.array([False] * cases),
        "schema_version": pa.array([schema.SCHEMA_VERSION] * cases),
        "recorded_at": pa.array([f"2026-11-30T01:{n // 60 % 60:02}:{n % 60:02}.{n:06}+00:00" for n in range(cases)]),
    }
    for name in ("weights_sha256", "inputs_sha256", "structure_sha256"):
        made[name] = pa.array([random.bytes(32).hex() for _ in range(cases)])
    for column in schema.COLUMNS:
        if column.name in made:
            continue
        match column.type:
            case "string":
                made[column.name] = pa.array([column.name] * cases)
            case "double":
                made[column.name] = pa.array(random.lognormal(0, 1, cases))
            case "int64":
                made[column.name] = pa.array(random.integers(0, 2**40, cases))
            case "bool":
                made[column.name] = pa.array(random.random(cases) < 0.5)
            case _:
                made[column.name] = pa.array([[2, 7, 32]] * cases)
    return made | {"stage": pa.array(["compare"] * cases), "target": pa.array(["tpu"] * cases)}


def _ingest(store: Path, night: Path) -> float:
    """Rows of a journal that `seal` reads and writes a second."""
    rows = parquet.read_table(night).to_pylist()
    run = results.create_run(store, {"settings": {"target": "tpu"}}, [row["case_id"] for row in rows])
    lines = (json.dumps(schema.encode(row), separators=(",", ":")) + "\n" for row in rows)
    (run.path / "journal" / "gw0.jsonl").write_text("".join(lines), encoding="ascii")
    began = time.monotonic()
    sealed = results.seal(run)
    seconds = time.monotonic() - began
    _require(parquet.read_metadata(sealed).num_rows == len(rows), "seal", sealed)
    return len(rows) / seconds


def _measured(code: str, *arguments: str) -> tuple[float, float, dict[str, str]]:
    """Run Python code in a process of its own: wall seconds, peak megabytes, and what it printed, by first word."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code + _PEAK, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    seconds = time.monotonic() - began
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    return seconds, float(said["peak"]), said


def _require(right: bool, who: str, what: object) -> None:
    if not right:
        sys.exit(f"{who} gave a wrong answer: {what}")


if __name__ == "__main__":
    main()
