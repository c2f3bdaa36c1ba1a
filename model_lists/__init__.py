"""Lists of models: reading and checking the CSV files that say which models there are.

A list is a CSV file whose header names the fields of `harness.cases.Entry` in order; several phases are
separated by spaces, and none means forward alone. The last column, `config`, may be left out; it holds paths that
begin at the list's own folder. Nothing here imports torch or transformers, so that listing and planning stay instant.
"""

from __future__ import annotations

import csv
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cases import Entry, Phase, Weights

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

COLUMNS = tuple(field.name for field in fields(Entry))
REQUIRED = tuple(column for column in COLUMNS if column != "config")
LIBRARIES = ("transformers", "diffusers", "sentence-transformers", "timm")
DERIVED_LIST = "architectures"
"""Name of the list that is derived from the installed transformers, see `harness.derived`."""
DERIVED_TIERS = ("architectures", "heads")
"""Its tiers: one class for every registered model type, and all other classes."""
TIERS = ("smoke", "nightly", "weekly", "full", *DERIVED_TIERS)
FAMILIES = (
    "text-encoder",
    "decoder-dense",
    "decoder-moe",
    "state-space",
    "linear-attention",
    "encoder-decoder",
    "vision",
    "video",
    "audio",
    "time-series",
    "vision-language",
)

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_SHA = re.compile(r"[0-9a-f]{40}")
_TYPE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TASK = re.compile(r"[a-z0-9-]*", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,15}", re.ASCII)


class ListError(ValueError):
    """A list cannot be used; the message is one line, `file:line: what is wrong and what is valid`."""


def list_names() -> tuple[str, ...]:
    """Names of the lists that ship with the harness."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.csv")))


def list_path(name: str) -> Path:
    """Where the shipped list `name` lies. Raises ListError for an unknown name."""
    if name not in list_names():
        raise ListError(f"{_shown(name)}: no such list; valid: {', '.join(list_names())}, or a path to a .csv file")
    return Path(__file__).parent / f"{name}.csv"


def load_list(name_or_path: str | Path) -> tuple[Entry, ...]:
    """Entries of a shipped list (by name) or of a CSV file (by path), in file order.

    Raises ListError naming the file, the line and what would be valid.
    """
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or text.endswith(".csv") or "/" in text
    path = Path(text) if is_path else list_path(text)
    rows = list(_rows(path))
    entries: dict[str, int] = {}
    result = []
    for line, row in rows:
        entry = _entry(path, line, row)
        if entry.id in entries:
            raise ListError(f"{path}:{line}: duplicate of line {entries[entry.id]}: {entry.id}; keep one of them")
        entries[entry.id] = line
        result.append(entry)
    if not result:
        raise ListError(f"{path}:1: the list has no entries; add at least one row below the header")
    return tuple(result)


def write_list(path: Path, entries: Iterable[Entry]) -> None:
    """Write a list as `load_list` reads it. Raises OSError."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([_text(getattr(entry, column)) for column in COLUMNS] for entry in entries)


def _text(value: object) -> str:
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _rows(path: Path):
    """Yield (line number, {column: text}) below a checked header, blank lines left out."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ListError(f"{path}:{line}: not UTF-8 text; save the list as UTF-8 CSV") from error
    except OSError as error:
        raise ListError(f"{path}:1: cannot be read: {error.strerror}; valid: {', '.join(list_names())}") from error
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    header: list[str] | None = None
    while True:
        first = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise ListError(f"{path}:{reader.line_num}: not valid CSV: {error}") from error
        if not row:
            continue
        if header is None:
            header = row
            _check_header(path, first, header)
            continue
        if len(row) != len(header):
            raise ListError(f"{path}:{first}: {len(row)} values for {len(header)} columns ({', '.join(header)})")
        yield first, dict.fromkeys(COLUMNS, "") | dict(zip(header, row, strict=True))
    if header is None:
        raise ListError(f"{path}:1: the file is empty; its first line must be {','.join(COLUMNS)}")


def _check_header(path: Path, line: int, header: list[str]) -> None:
    if tuple(header) in (COLUMNS, REQUIRED):
        return
    missing = [column for column in REQUIRED if column not in header]
    unknown = [_shown(column) for column in header if column not in COLUMNS]
    problems = []
    if missing:
        problems.append(f"missing columns {', '.join(missing)}")
    if unknown:
        problems.append(f"unknown columns {', '.join(unknown)}")
    what = "; ".join(problems) or "columns out of order or repeated"
    raise ListError(f"{path}:{line}: {what}; the first line must be {','.join(COLUMNS)}")


def _entry(path: Path, line: int, row: dict[str, str]) -> Entry:
    def fail(column: str, valid: str) -> ListError:
        return ListError(f"{path}:{line}: {column} is {_shown(row[column])}; valid: {valid}")

    def matching(column: str, pattern: re.Pattern[str], valid: str) -> None:
        if not pattern.fullmatch(row[column]):
            raise fail(column, valid)

    def one_of(column: str, values: Collection[str]) -> None:
        if row[column] not in values:
            raise fail(column, ", ".join(values))

    matching("model_id", _HUB_ID, "a Hub id such as owner/name")
    if row["revision"]:
        matching("revision", _SHA, "a commit sha of 40 hex digits, or empty for unknown")
    one_of("library", LIBRARIES)
    matching("model_type", _TYPE, "a config's model_type such as bert")
    matching("model_class", _IDENTIFIER, "a class name such as BertModel")
    one_of("family", FAMILIES)
    matching("task", _TASK, "a Hub task such as fill-mask, or empty for unknown")
    if row["params"] and (not _COUNT.fullmatch(row["params"]) or int(row["params"]) == 0):
        raise fail("params", "a positive whole number, or empty for unknown")
    one_of("tier", TIERS)
    one_of("weights", tuple(Weights))
    if row["package"]:
        matching("package", _IDENTIFIER, "an importable package name, or empty")
        if row["weights"] != Weights.HUB:
            raise fail("package", f"empty unless weights is {Weights.HUB}")
    phases = row["phases"].split() or [Phase.FORWARD]
    known = [phase for phase in Phase if phase in phases]
    if phases != known or Phase.FORWARD not in known:
        raise fail("phases", f"empty, or {Phase.FORWARD} and what else the class has of {', '.join(Phase)}, in order")
    if row["config"]:
        if row["weights"] != Weights.SYNTHETIC:
            raise fail("config", f"empty unless weights is {Weights.SYNTHETIC}")
        if not (path.parent / row["config"]).is_file():
            raise fail("config", "the path of a config.json from the list's folder on, or empty")
        row["config"] = str((path.parent / row["config"]).resolve())
    return Entry(
        **{
            **row,
            "phases": tuple(known),
            "params": int(row["params"]) if row["params"] else None,
            "weights": Weights(row["weights"]),
        }
    )


def _shown(text: str) -> str:
    """Text of unknown origin, short and on one line."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
