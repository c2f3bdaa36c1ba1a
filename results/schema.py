"""The columns of the store: the single definition of what a result row holds and means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from harness.redaction import redacted

if TYPE_CHECKING:
    import pyarrow

    from harness.records import Record

SCHEMA_VERSION = 1
"""Raised whenever an older reader would misread a row, with a step in `results.migration`. Added columns do not count:
readers take them as unknown."""

MAX_TEXT = 64 * 1024
"""Characters kept of one text: enough for any traceback and log tail, small enough for a page. The middle goes."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `source` is the attribute path in a Record, empty for what `row` stamps itself."""

    name: str
    type: str
    source: str
    meaning: str


COLUMNS: tuple[Column, ...] = tuple(
    Column(*spec)
    for spec in (
        ("run_id", "string", "", "run the row belongs to; provenance_of(run) tells its versions and machine"),
        ("schema_version", "int64", "", "version of these columns when the row was written"),
        ("recorded_at", "string", "", "UTC time the row was made, ISO 8601; of two rows of a case the later counts"),
        ("case_id", "string", "case.id", "readable, unique name of the case"),
        ("entry_id", "string", "case.entry.id", "readable, unique name of the model entry"),
        ("model_id", "string", "case.entry.model_id", "Hugging Face Hub id"),
        ("revision", "string", "case.entry.revision", "commit sha of the Hub repository, empty where unknown"),
        ("library", "string", "case.entry.library", "Python library that implements the model"),
        ("model_type", "string", "case.entry.model_type", "architecture, as the library names it"),
        ("model_class", "string", "case.entry.model_class", "class that was built"),
        ("family", "string", "case.entry.family", "kind of architecture, for grouping"),
        ("task", "string", "case.entry.task", "what the class is for"),
        ("params", "int64", "case.entry.params", "parameters of the real model"),
        ("tier", "string", "case.entry.tier", "selection the entry belongs to"),
        (
            "weights",
            "string",
            "case.entry.weights",
            "seeded on defaults (synthetic) or its own config (config), or real (hub)",
        ),
        ("package", "string", "case.entry.package", "Python package that carries the real checkpoint, if any"),
        ("phases", "string", "case.entry.phases", "phases that the class has, separated by spaces"),
        (
            "config",
            "string",
            "case.entry.config",
            "path of the model's own config.json, empty for defaults",
        ),
        ("gated", "string", "case.entry.gated", "does the Hub ask for a token: yes, no or unknown"),
        ("custom_code", "string", "case.entry.custom_code", "does it need code of its own repository: likewise"),
        ("shipped_dtype", "string", "case.entry.dtype", "type that the real weights come in, empty where unknown"),
        ("trusted", "string", "case.entry.trusted", "commit whose own code was allowed to run, empty for none"),
        ("phase", "string", "case.phase", "what of the model was exercised: forward, generate or train"),
        ("mode", "string", "case.mode", "how the target executed the model"),
        ("dtype", "string", "case.dtype", "floating-point type of parameters and inputs"),
        ("profile", "string", "case.profile", "shape of the inputs"),
        ("target", "string", "target", "backend under test"),
        ("emulated", "bool", "emulated", "a stand-in executed instead of the backend's own hardware"),
        ("verdict", "string", "verdict", "how the case ended"),
        (
            "group",
            "string",
            "verdict.group",
            "who the verdict speaks about: backend, model, environment, ...",
        ),
        ("stage", "string", "stage", "stage the case ended in; compare for a judged case"),
        ("message", "string", "message", "why, in one line"),
        ("detail", "string", "detail", "full error text"),
        ("log", "string", "log", "last lines the processes printed"),
        ("signal", "string", "signal", "signal that killed the process, empty if none"),
        ("exit_code", "int64", "exit_code", "exit code of a process that ended by itself"),
        ("evidence", "string", "evidence", "how strong the result is: real-weights, config-faithful, ..."),
        (
            "inputs",
            "string",
            "inputs",
            "what made the inputs: drawn (seeded), or the checkpoint's own tokenizer or processor",
        ),
        ("leaves", "int64", "leaves", "output tensors judged"),
        (
            "worst_ratio",
            "double",
            "worst.ratio",
            "error of the worst output over what is allowed; above 1 fails",
        ),
        ("worst_path", "string", "worst.path", "worst output tensor: where it is in the output"),
        ("worst_verdict", "string", "worst.verdict", "verdict of that tensor alone"),
        ("worst_shape", "list<int64>", "worst.shape", "its shape"),
        ("worst_dtype", "string", "worst.dtype", "its dtype"),
        ("worst_elements", "int64", "worst.elements", "its number of elements"),
        ("worst_scale", "double", "worst.scale", "its typical magnitude in truth, in its own units"),
        ("worst_error", "double", "worst.error", "its root-mean-square error against float64 truth"),
        ("worst_cpu_error", "double", "worst.cpu_error", "the same error of the CPU at the case's dtype"),
        ("worst_allowed", "double", "worst.allowed", "root-mean-square error allowed"),
        ("worst_max_error", "double", "worst.max_error", "error of its worst element against float64 truth"),
        ("worst_max_cpu_error", "double", "worst.max_cpu_error", "largest error of the CPU at the case's dtype"),
        ("worst_max_allowed", "double", "worst.max_allowed", "error allowed for a single element"),
        ("worst_index", "list<int64>", "worst.index", "index of its worst element"),
        ("worst_actual", "double", "worst.actual", "value on the target there"),
        ("worst_cpu", "double", "worst.cpu", "value on the CPU at the case's dtype there"),
        ("worst_expected", "double", "worst.expected", "float64 truth there"),
        ("worst_note", "string", "worst.note", "remark on the judgement"),
        ("blame_pair", "string", "blame.pair", "the two executions that disagree, empty where unknown"),
        ("blame_repeats", "bool", "blame.repeats", "a second run of the target agreed with the first"),
        (
            "blame_precision",
            "string",
            "blame.precision",
            "widest narrower type whose products, on CPU, are as far off; empty if none is",
        ),
        ("blame_first", "string", "blame.first", "first output tensor, in order, that is wrong"),
        (
            "blame_operator",
            "string",
            "blame.operator",
            "first operator that fails by itself, empty if none does",
        ),
        ("blame_module", "string", "blame.module", "path of the module that called it"),
        ("blame_given", "string", "blame.given", "dtypes and shapes of the tensors that it was given"),
        ("blame_place", "string", "blame.place", "which call of the run, or of which captured graph, it was"),
        ("blame_why", "string", "blame.why", "what is wrong with its result, or how it ended"),
        ("flips", "int64", "flips", "toss-ups that the target chose otherwise than the CPU"),
        ("seconds_import", "double", "seconds.import", "wall seconds in stage import"),
        ("seconds_fetch", "double", "seconds.fetch", "wall seconds in stage fetch"),
        ("seconds_build", "double", "seconds.build", "wall seconds in stage build"),
        ("seconds_inputs", "double", "seconds.inputs", "wall seconds in stage inputs"),
        ("seconds_reference", "double", "seconds.reference", "wall seconds in stage reference"),
        ("seconds_to_device", "double", "seconds.to-device", "wall seconds in stage to-device"),
        ("seconds_compile", "double", "seconds.compile", "wall seconds in stage compile"),
        ("seconds_run", "double", "seconds.run", "wall seconds in stage run"),
        ("seconds_compare", "double", "seconds.compare", "wall seconds in stage compare"),
        (
            "latency_seconds",
            "double",
            "latency_seconds",
            "wall seconds of a repeated call, all compiled already",
        ),
        ("cpu_seconds", "double", "cpu_seconds", "CPU seconds of the case's process, its reference not included"),
        ("wall_seconds", "double", "wall_seconds", "wall seconds of the whole case"),
        ("programs_executed", "int64", "counters.programs_executed", "programs the target executed"),
        ("programs_requested", "int64", "counters.programs_requested", "programs looked up in the compile cache"),
        ("programs_compiled", "int64", "counters.programs_compiled", "programs really compiled"),
        (
            "programs_recompiled",
            "int64",
            "counters.programs_recompiled",
            "programs compiled in a call that repeats an earlier one",
        ),
        ("host_reads", "int64", "counters.host_reads", "copies to the host in one call, its outputs not included"),
        ("graph_breaks", "int64", "counters.graph_breaks", "graph breaks while compiling"),
        ("peak_device_bytes", "int64", "counters.peak_device_bytes", "largest device memory in use, bytes"),
        ("peak_host_bytes", "int64", "counters.peak_host_bytes", "largest resident memory of the process, bytes"),
        ("synthetic_params", "int64", "synthetic_params", "parameters of the model as built"),
        ("truth", "string", "truth", "dtype the truth was computed in: float64, or float32 where that cannot run"),
        ("operators", "string", "operators", "operators of PyTorch that are called by name, separated by spaces"),
        ("reference_cached", "bool", "reference_cached", "the CPU reference came from the cache"),
        ("weights_sha256", "string", "weights_sha256", "sha256 hex of the weights"),
        ("inputs_sha256", "string", "inputs_sha256", "sha256 hex of the inputs"),
        ("structure_sha256", "string", "structure_sha256", "sha256 hex of class, config, weights and inputs together"),
        (
            "twin_of",
            "string",
            "twin_of",
            "case that ran in this one's stead, being the same job; empty if none",
        ),
        (
            "attempts",
            "string",
            "attempts",
            "JSON list of what each attempt came to (verdict, stage, message), empty if there was one",
        ),
        ("seed", "int64", "seed", "seed of weights and inputs"),
        ("worker", "string", "worker", "worker that ran the case"),
        ("started_at", "string", "started_at", "UTC time the case started, ISO 8601"),
    )
)

_UNIQUE = {"case_id", "recorded_at", "started_at", "message", "detail", "log"} | {
    f"{what}_sha256" for what in ("weights", "inputs", "structure")
}
"""Texts that are another in most rows."""

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def row(record: Record, run_id: str) -> dict[str, Any]:
    """The flat row of a record: one plain value per column, None where unknown.

    Texts longer than `MAX_TEXT` lose their middle, and say so; credentials in them are hidden.
    """
    stamped = {
        "run_id": run_id,
        "schema_version": SCHEMA_VERSION,
        "recorded_at": datetime.now(UTC).isoformat(timespec="microseconds"),
    }
    return {
        column.name: stamped[column.name] if not column.source else _plain(_find(record, column.source), column.type)
        for column in COLUMNS
    }


def encode(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as strict JSON values: non-finite floats, which JSON has not, become their names."""
    return {name: _spell(value) if isinstance(value, float) else value for name, value in row.items()}


def decode(values: Mapping[str, Any], columns: Iterable[Column] = COLUMNS) -> dict[str, Any]:
    """The row of an encoded one; columns it lacks are None, columns unknown here are left out.

    Raises ValueError naming the column whose value has the wrong type.
    """
    return {column.name: _read(values.get(column.name), column) for column in columns}


def arrow_schema(columns: Iterable[Column] = COLUMNS) -> pyarrow.Schema:
    """The columns as an Arrow schema, every one nullable, meanings attached as field metadata."""
    import pyarrow

    def arrow_type(name: str) -> pyarrow.DataType:
        if name.startswith("list<"):
            return pyarrow.list_(pyarrow.type_for_alias(name.removeprefix("list<").removesuffix(">")))
        return pyarrow.type_for_alias(name)

    return pyarrow.schema([pyarrow.field(c.name, arrow_type(c.type), metadata={"meaning": c.meaning}) for c in columns])


def repetitive() -> list[str]:
    """The columns in which few values come again and again: a file that tells them apart once is written faster."""
    return [column.name for column in COLUMNS if column.type == "string" and column.name not in _UNIQUE]


def _find(value: Any, path: str) -> Any:
    for name in path.split("."):
        if value is None:
            return None
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name)
    return value


def _plain(value: Any, type_name: str) -> Any:
    if value is None:
        return None
    match type_name:
        case "string":
            words = value if isinstance(value, tuple) else (value,)
            return _bounded(" ".join(str(word.value if isinstance(word, Enum) else word) for word in words))
        case "int64":
            return int(value)
        case "double":
            return float(value)
        case "bool":
            return bool(value)
        case "list<int64>":
            return [int(item) for item in value]
    raise ValueError(f"unknown column type {type_name}")


def _bounded(text: str) -> str:
    text = redacted(_encodable(text))
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _encodable(text: str) -> str:
    # Undecodable bytes of a dead process arrive as lone surrogates, which neither UTF-8 nor Parquet can hold.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _spell(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _read(value: Any, column: Column) -> Any:
    match column.type, value:
        case _, None:
            return None
        case "string", str():
            return _encodable(value)
        case "bool", bool():
            return value
        case "double", bool():
            pass
        case "double", int() | float():
            try:
                return float(value)
            except OverflowError:
                return math.inf if value > 0 else -math.inf
        case "double", str() if value in _NON_FINITE:
            return _NON_FINITE[value]
        case "int64", int() if not isinstance(value, bool) and _fits(value):
            return value
        case "list<int64>", list() if all(type(item) is int and _fits(item) for item in value):
            return value
    raise ValueError(f"column {column.name} should hold a {column.type}, not {str(value)[:40]!r}")


def _fits(value: int) -> bool:
    return -(2**63) <= value < 2**63
