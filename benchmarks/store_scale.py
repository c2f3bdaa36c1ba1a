"""How large may the store grow, and how fast are results taken in?

Writes a store of `--rows` rows (nights of `--cases` each) in a temporary folder and measures, each in a process of its
own, from its start to its end:

- ingest: the journals of a night, as the workers of `zoo run` leave them, sealed on one core, against the standard
  library's json that only parses their lines there;
- `zoo diff` of the last two nights, against pandas that reads every column of the last `PANDAS_NIGHTS` nights and then
  does the same (of no more nights, since it holds them all in memory);
- `zoo sql` counting verdicts by mode over all rows, against the same pandas.

The rows are like those of a real night, of which nine in ten passed: what has no value in a real row has none here,
and the log of each is as long as what a backend prints when nothing is wrong. The first `INGESTED` nights are really
ingested from journals. The others are made of the rows of these, with other measurements, and written by the function
that also seals a run; to read 10^7 rows of journals would only repeat what was measured. Every answer is checked
against what was planted. Memory is the peak resident size of the process, as the system counts it when it ends. Under
other load the CPU seconds still tell what a thing costs. A year of nights has 10^7 rows: `--rows 10_000_000`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import results
from results import journal, schema, sealed, store

INGESTED = 3
PANDAS_NIGHTS = 5
REGRESSED, MENDED = 40, 25
WORKERS = 4
MODES = ("strict-eager", "defer-and-fuse", "compiled", "aot")
DTYPES = ("float32", "bfloat16")

# What a process that is started inherits as its own peak is that of who started it: so a small one does.
_WATCH = """
import json, os, sys, time
told, *command = sys.argv[1:]
began = time.monotonic()
_, status, usage = os.wait4(os.posix_spawn(command[0], command, os.environ), 0)
with open(told, "w") as file:
    json.dump([time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000,
               os.waitstatus_to_exitcode(status)], file)
"""
_SEAL = """
import json, os, sys, time
from pathlib import Path
import results
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
import msgspec, pandas, pyarrow, pyarrow.parquet
store, run_id = sys.argv[1:]
run = results.open_run(Path(store), run_id)
wall, cpu = time.monotonic(), time.process_time()
results.seal(run)
print("wall", time.monotonic() - wall)
print("cpu", time.process_time() - cpu)
cpu = time.process_time()
for path in run.path.glob("journal/*.jsonl"):
    with path.open("rb") as lines:
        for line in lines:
            json.loads(line)
print("parsed", time.process_time() - cpu)
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
_LOG = (
    "/usr/lib/python3/site-packages/torch/library.py:505: UserWarning: Warning only once for all operators,  other "
    "operators may also be overridden.\n  Overriding a previously registered kernel for the same operator and the same "
    "dispatch key\n  operator: aten::normal_(Tensor(a!) self, float mean=0., float std=1.) -> Tensor(a!)\n"
    "    registered at /pytorch/build/aten/src/ATen/RegisterSchema.cpp:6\n  dispatch key: PrivateUse1\n"
    "I0000 00:00:{0:.6f}   {1} pjrt_api.cc:168] The PJRT plugin has PJRT API version 0.115.\n"
    "I0000 00:00:{2:.6f}   {1} pjrt_c_api_client.cc:187] PjRtCApiClient created.\n"
    "W0000 00:00:{3:.6f}   {1} pjrt_state.cc:313] Only using 1 device out of all the 4 addressable devices.\n"
    "I0000 00:00:{4:.6f}   {1} tier2_compilation_cache.cc:97] Tier-2 compilation cache is enabled with name "
    "'../cache/tpu/programs' as requested by the TORCH_TPU_TIER2_COMPILATION_CACHE environment variable.\n"
)
_TRACEBACK = "".join(
    f'  File "/usr/lib/python3/site-packages/transformers/models/{{0}}/modeling_{{0}}.py", line {n}, in forward\n'
    f"    hidden_states = self.layer_{n}(hidden_states, attention_mask=attention_mask)\n"
    for n in range(100, 1600, 150)
)


@dataclass(frozen=True)
class Measured:
    """A process from start to end: wall and CPU seconds, peak resident megabytes, exit code, first word to rest."""

    seconds: float
    cpu_seconds: float
    megabytes: float
    code: int
    said: dict[str, str]


def main() -> None:
    """Write the store, ask it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--cases", type=int, default=40_000, help="rows of a night")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zoo-scale-") as folder:
        place = Path(folder) / "store"
        nights = max(3, options.rows // options.cases)
        runs = _ingest(place, min(INGESTED, nights - 2), options.cases)
        _multiply(place, runs, nights)
        _ask(Path(folder), place, runs)
        print(f"figure: rows {nights * options.cases} count", flush=True)


def _ingest(place: Path, nights: int, cases: int) -> list[results.Run]:
    """Nights that were sealed from their journals, and how fast."""
    random = np.random.default_rng(0)
    rows = _rows(cases, random)
    ids = [row["case_id"] for row in rows]
    runs, wall, cpu, parsed, journals, kept = [], 0.0, 0.0, 0.0, 0, 0
    for night in range(nights):
        run = results.create_run(place, _facts(night, cases), ids)
        runs.append(run)
        for worker in range(WORKERS):
            lines = (journal.line_of(schema.encode(row | {"run_id": run.id})) for row in rows[worker::WORKERS])
            path = run.path / "journal" / f"gw{worker}.jsonl"
            path.write_bytes(b"".join(lines))
            journals += path.stat().st_size
        done = _measured(sys.executable, "-c", _SEAL, str(place), run.id)
        wall, cpu = wall + float(done.said["wall"]), cpu + float(done.said["cpu"])
        parsed += float(done.said["parsed"])
        kept += store.sealed_path(run).stat().st_size
        _require(parquet.read_metadata(store.sealed_path(run)).num_rows == cases, "seal", run.id)
        store.let_go_of_journals(run)
        print(f"ingested night {night + 1}: {float(done.said['wall']):.2f} s, CPU {done.said['cpu']} s", flush=True)
    count = nights * cases
    print(f"figure: ingest_rows_per_second {count / wall:.0f} rows/s")
    print(f"figure: ingest_rows_per_cpu_second {count / cpu:.0f} rows/s")
    print(f"figure: ingest_cpu_over_json_loads {cpu / parsed:.3f} ratio")
    print(f"figure: journal_bytes_per_row {journals / count:.0f} bytes")
    print(f"figure: store_bytes_per_row {kept / count:.0f} bytes", flush=True)
    return runs


def _multiply(place: Path, runs: list[results.Run], nights: int) -> None:
    """More nights of the same cases; in the last, `REGRESSED` that passed before fail, and `MENDED` pass again."""
    random = np.random.default_rng(1)
    table = parquet.read_table(store.sealed_path(runs[-1]))
    ids = table.column("case_id").to_pylist()
    fails = np.array(table.column("verdict").to_pylist()) != "PASS"
    fails[: REGRESSED + MENDED] = np.arange(REGRESSED + MENDED) >= REGRESSED
    began = time.monotonic()
    while len(runs) < nights:
        if len(runs) == nights - 1:
            fails[: REGRESSED + MENDED] ^= True
        run = results.create_run(place, _facts(len(runs), len(ids)), ids)
        for name, values in {
            "run_id": [run.id] * len(ids),
            "verdict": np.where(fails, "NUMERIC_MISMATCH", "PASS"),
            "group": np.where(fails, "backend", "pass"),
            "message": np.where(fails, "output logits: error 17 x what is allowed", ""),
            "worst_ratio": random.lognormal(-2, 0.3, len(ids)) + 9 * fails,
            "latency_seconds": np.array(table.column("latency_seconds")) * random.lognormal(0, 0.1, len(ids)),
        }.items():
            at = table.column_names.index(name)
            table = table.set_column(at, table.schema.field(at), pa.array(values).cast(table.schema.field(at).type))
        sealed.write(store.sealed_path(run), [table], {})
        runs.append(run)
        if len(runs) % 10 == 0:
            print(f"{len(runs)} of {nights} nights after {time.monotonic() - began:.0f} s", flush=True)


def _ask(folder: Path, place: Path, runs: Sequence[results.Run]) -> None:
    """What is asked of the whole store: `zoo diff`, `zoo sql`, and pandas for comparison."""
    zoo = (sys.executable, "-m", "harness.cli")
    told = folder / "diff.json"
    diff = _measured(*zoo, "diff", "--store", str(place), "--format", "json", "--out", str(told))
    document = json.loads(told.read_text(encoding="utf-8"))
    _require(diff.code == 1 and document["counts"]["regressed"] == REGRESSED, "zoo diff", document["counts"])
    _require((document["before"], document["after"]) == (runs[-2].id, runs[-1].id), "zoo diff", "other runs")
    print(f"figure: diff_seconds {diff.seconds:.2f} s")
    print(f"figure: diff_cpu_seconds {diff.cpu_seconds:.2f} s")
    print(f"figure: diff_megabytes {diff.megabytes:.0f} MB", flush=True)

    answer = folder / "answer.csv"
    query = "select mode, verdict, count(*) as n from rows group by all"
    sql = _measured(*zoo, "sql", query, "--store", str(place), "--out", str(answer))
    counted = sum(int(line.rpartition(",")[2]) for line in answer.read_text(encoding="utf-8").splitlines()[1:])
    _require(counted == sum(len(run.planned) for run in runs), "zoo sql", counted)
    print(f"figure: sql_seconds {sql.seconds:.2f} s")
    print(f"figure: sql_megabytes {sql.megabytes:.0f} MB", flush=True)

    some = [str(store.sealed_path(run)) for run in runs[-PANDAS_NIGHTS:]]
    pandas = _measured(sys.executable, "-c", _PANDAS, runs[-2].id, runs[-1].id, *some)
    _require(pandas.said["regressed"] == str(REGRESSED), "pandas", pandas.said)
    name = f"over_pandas_{len(some)}_nights"
    print(f"pandas reading {len(some)} of {len(runs)} nights whole: {pandas.seconds:.2f} s, {pandas.megabytes:.0f} MB")
    print(f"figure: diff_time_{name} {diff.seconds / pandas.seconds:.3f} ratio")
    print(f"figure: diff_memory_{name} {diff.megabytes / pandas.megabytes:.3f} ratio")
    print(f"figure: sql_time_{name} {sql.seconds / pandas.seconds:.3f} ratio", flush=True)


def _facts(night: int, cases: int) -> dict[str, Any]:
    return {"settings": {"target": "tpu", "cases": cases}, "emulated": False, "packages": {"torch": f"2.{night}"}}


def _rows(cases: int, random: np.random.Generator) -> list[dict[str, Any]]:
    """A night as its workers record it, one case in ten a failure."""
    blank = {column.name: "" if column.type == "string" else None for column in schema.COLUMNS}
    measured = [column.name for column in schema.COLUMNS if column.type == "double"]
    numbers = random.lognormal(0, 1, (cases, len(measured)))
    fails = random.random(cases) < 0.1
    rows = []
    for n in range(cases):
        model, rest = divmod(n, len(MODES) * len(DTYPES))
        mode, dtype = MODES[rest // len(DTYPES)], DTYPES[rest % len(DTYPES)]
        entry = f"model{model}/Model{model}ForCausalLM/acme/model-{model}/synthetic"
        clock = 1796087333 + n / 7
        row = blank | dict(zip(measured, numbers[n].tolist(), strict=True))
        row |= {
            "schema_version": schema.SCHEMA_VERSION,
            "recorded_at": f"2026-11-30T01:{n // 60 % 60:02}:{n % 60:02}.{n:06}+00:00",
            "case_id": f"{entry}/forward/{mode}/{dtype}/padded",
            "entry_id": entry,
            "model_id": f"acme/model-{model}",
            "library": "transformers",
            "model_type": f"model{model}",
            "model_class": f"Model{model}ForCausalLM",
            "family": "text-decoder",
            "task": "text-generation",
            "tier": "architectures",
            "weights": "synthetic",
            "phases": "forward generate",
            "phase": "forward",
            "mode": mode,
            "dtype": dtype,
            "profile": "padded",
            "target": "tpu",
            "emulated": False,
            "verdict": "NUMERIC_MISMATCH" if fails[n] else "PASS",
            "group": "backend" if fails[n] else "pass",
            "stage": "compare",
            "message": "output logits: error 17 x what is allowed" if fails[n] else "",
            "detail": _TRACEBACK.format(f"model{model}") if fails[n] else "",
            "log": _LOG.format(clock, 1000 + n, clock + 0.1, clock + 0.2, clock + 0.3),
            "evidence": "architecture-default",
            "leaves": 15,
            "worst_path": "logits",
            "worst_verdict": "NUMERIC_MISMATCH" if fails[n] else "PASS",
            "worst_shape": [2, 16, 1000],
            "worst_dtype": dtype,
            "worst_elements": 32_000,
            "worst_index": [0, 9, n % 1000],
            "blame_repeats": True,
            "seconds_fetch": None,
            "seconds_compile": None,
            "programs_executed": 300 + n % 999,
            "programs_requested": 300 + n % 999,
            "programs_compiled": n % 99,
            "programs_recompiled": 0,
            "host_reads": 0,
            "peak_host_bytes": 10**9 + 4096 * n,
            "synthetic_params": 2_305_602 + model,
            "truth": "float64",
            "reference_cached": n % 8 > 0,
            "weights_sha256": random.bytes(32).hex(),
            "inputs_sha256": random.bytes(32).hex(),
            "structure_sha256": random.bytes(32).hex(),
            "seed": 0,
            "worker": f"gw{n % WORKERS}",
            "started_at": f"2026-11-30T01:{n // 60 % 60:02}:{n % 60:02}.{n % 1000:03}+00:00",
        }
        rows.append(row)
    return rows


def _measured(*command: str) -> Measured:
    """Run a command, and what it cost."""
    with tempfile.TemporaryDirectory(prefix="zoo-scale-") as folder:
        told = os.path.join(folder, "told")
        done = subprocess.run(
            [sys.executable, "-S", "-c", _WATCH, told, *command], stdout=subprocess.PIPE, text=True, check=True
        )
        cost = json.loads(Path(told).read_text(encoding="utf-8"))
    return Measured(*cost, dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line))


def _require(right: bool, who: str, what: object) -> None:
    if not right:
        sys.exit(f"{who} gave a wrong answer: {what}")


if __name__ == "__main__":
    main()
