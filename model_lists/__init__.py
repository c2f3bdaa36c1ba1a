"""Lists of models: reading and checking the CSV files that say which models there are.

A list is a CSV file whose header names the fields of `harness.cases.Entry` in order; several phases are
separated by spaces, and none means forward alone. Columns of `OPTIONAL` may be left out: `config` holds paths that
begin at the list's own folder, an empty `gated` or `custom_code` is unknown. Nothing here imports torch or
transformers, so that listing and planning stay instant.
"""

from __future__ import annotations

import csv
import io
import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cases import Dtype, Entry, Phase, Weights
from model_lists.spelling import meant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

COLUMNS = tuple(field.name for field in fields(Entry))
OPTIONAL = ("config", "gated", "custom_code", "dtype", "trusted")
REQUIRED = tuple(column for column in COLUMNS if column not in OPTIONAL)
LIBRARIES = ("transformers", "diffusers", "sentence-transformers", "timm")
RUN_LIBRARIES = ("transformers",)
"""Those of them whose models the harness can run. Models of the others are listed, counted, and not attempted."""
UNKNOWN = "unknown"
ANSWERS = ("yes", "no", UNKNOWN)
"""What `gated` and `custom_code` may be."""
ALIASES = Path(__file__).parent / "aliases.csv"
"""Ids that models had before, see `model_lists.aliases`; no list of models."""
DERIVED_LIST = "architectures"
"""Name of the list that is derived from the installed transformers, see `harness.derived`."""
DERIVED_TIERS = ("architectures", "heads")
"""Its tiers: one class for every registered model type, and all other classes."""
NESTED_TIERS = ("smoke", "nightly", "weekly", "full")
"""Tiers of which each holds all before it: an entry names the smallest that it belongs to."""
TIERS = (*NESTED_TIERS, *DERIVED_TIERS)
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
    "diffusion",
)

HUB_ID = re.compile(r"(?!.*(--|\.\.))(\b[\w.-]+\b/)?\b[\w.-]{1,96}\b(?<!\.git)", re.ASCII)
"""What huggingface_hub's validate_repo_id takes for the id of a repository, in ASCII."""
_SHA = re.compile(r"[0-9a-f]{40}")
_TYPE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TASK = re.compile(r"[a-z0-9-]*", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,15}", re.ASCII)


class ListError(ValueError):
    """A list cannot be used; the message is one line, `file:line: what is wrong and what is valid`."""


def list_names() -> tuple[str, ...]:
    """Names of the lists that ship with the harness."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.csv") if path != ALIASES))


def list_path(name: str) -> Path:
    """Where the shipped list `name` lies. Raises ListError for an unknown name."""
    if name not in list_names():
        known = list_names()
        raise ListError(
            f"{_shown(name)}: no such list{meant(name, known)}; valid: {', '.join(known)}, or a path to a .csv file"
        )
    return Path(__file__).parent / f"{name}.csv"


def is_known(path: Path) -> bool:
    """Whether commands look into a list by themselves: one that ships, the derived one, or either `+` weights."""
    base, _, weights = path.stem.partition("+")
    if weights in set(Weights):
        return base in (DERIVED_LIST, *list_names())
    return path.parent == Path(__file__).parent or base == DERIVED_LIST


def load_list(name_or_path: str | Path) -> tuple[Entry, ...]:
    """Entries of a shipped list (by name) or of a CSV file (by path), in file order.

    Raises ListError naming the file, the line and what would be valid.
    """
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or text.endswith(".csv") or "/" in text
    entries = []
    for row in read_list(Path(text) if is_path else list_path(text)):
        if row.entry is None:
            raise ListError(row.problems[0])
        entries.append(row.entry)
    return tuple(entries)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a list: its line, and its entry, or what is wrong with it: lines that begin `file:line: `."""

    line: int
    entry: Entry | None
    problems: tuple[str, ...] = ()


def read_list(path: Path) -> Iterator[Row]:
    """Every row of a CSV file, in file order. Raises ListError where the file is no list at all, or an empty one."""
    seen: dict[str, int] = {}
    empty = True
    for line, row, problem in _rows(path):
        empty = False
        entry, problems = (None, [problem]) if problem else _entry(path, row)
        if entry is not None and entry.id in seen:
            problems = [f"duplicate of line {seen[entry.id]}: {entry.id}; keep one of them"]
            entry = None
        if entry is not None:
            seen[entry.id] = line
        yield Row(line, entry, tuple(f"{path}:{line}: {problem}" for problem in problems))
    if empty:
        raise ListError(f"{path}:1: the list has no entries; add at least one row below the header")


def tiers_within(tier: str) -> tuple[str, ...]:
    """The tiers whose entries belong to `tier`: itself, and those nested in it."""
    if tier not in NESTED_TIERS:
        return (tier,)
    return NESTED_TIERS[: NESTED_TIERS.index(tier) + 1]


def lists_for(tier: str | None) -> tuple[Path, ...]:
    """The shipped lists that may have models of a tier, of all tiers where None.

    The list that is called after the smallest tier holds all of that tier, so that a quick run reads no other.
    """
    names = (tier,) if tier == NESTED_TIERS[0] else list_names()
    return tuple(map(list_path, names))


def write_list(path: Path, entries: Iterable[Entry]) -> None:
    """Write a list as `load_list` reads it; an optional column that no entry uses is left out. Raises OSError."""
    entries = tuple(entries)
    unused = [column for column in OPTIONAL if not any(_text(getattr(entry, column)) for entry in entries)]
    columns = [column for column in COLUMNS if column not in unused]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_text(getattr(entry, column)) for column in columns] for entry in entries)


def line_of(entry: Entry, columns: Iterable[str]) -> str:
    """An entry as a line of a list with these columns, its end included."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(_text(getattr(entry, column)) for column in columns)
    return line.getvalue()


def columns_of(path: Path) -> tuple[str, ...]:
    """The columns that a list has, by its header. Raises ListError where that is none of a list."""
    for _ in _rows(path):
        break
    with path.open(encoding="utf-8-sig", newline="") as file:
        return tuple(next(row for row in csv.reader(file) if row))


def _text(value: object) -> str:
    if value is None or value == UNKNOWN:
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _rows(path: Path):
    """Yield (line number, {column: text}, what is wrong with its shape) below a checked header, without blank lines."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ListError(f"{path}:{line}: not UTF-8 text; save the list as UTF-8 CSV") from error
    except OSError as error:
        raise ListError(f"{path}:1: cannot be read: {error.strerror}; valid: {', '.join(list_names())}") from error
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    header: list[str] | None = None
    absent = dict.fromkeys(OPTIONAL, "")
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
            yield first, {}, f"{len(row)} values for {len(header)} columns ({', '.join(header)})"
            continue
        yield first, absent | dict(zip(header, row, strict=True)), ""
    if header is None:
        raise ListError(f"{path}:1: the file is empty; its first line must be {','.join(COLUMNS)}")


def _check_header(path: Path, line: int, header: list[str]) -> None:
    missing = [column for column in REQUIRED if column not in header]
    if not missing and header == [column for column in COLUMNS if column in header]:
        return
    unknown = [_shown(column) + meant(column, COLUMNS) for column in header if column not in COLUMNS]
    problems = []
    if missing:
        problems.append(f"missing columns {', '.join(missing)}")
    if unknown:
        problems.append(f"unknown columns {', '.join(unknown)}")
    what = "; ".join(problems) or "columns out of order or repeated"
    raise ListError(f"{path}:{line}: {what}; the first line must be {','.join(COLUMNS)}")


def _entry(path: Path, row: dict[str, str]) -> tuple[Entry | None, list[str]]:
    """The entry of a row, or what is wrong with it."""
    problems: list[str] = []

    def wrong(column: str, valid: str, close: str = "") -> None:
        problems.append(f"{column} is {_shown(row[column])}{close}; valid: {valid}")

    def matching(column: str, pattern: re.Pattern[str], valid: str) -> None:
        if not pattern.fullmatch(row[column]):
            wrong(column, valid)

    def one_of(column: str, values: Collection[str]) -> None:
        if row[column] not in values:
            wrong(column, ", ".join(values), meant(row[column], values))

    row["gated"], row["custom_code"] = row["gated"] or UNKNOWN, row["custom_code"] or UNKNOWN
    matching("model_id", HUB_ID, "a Hub id such as owner/name")
    if row["revision"]:
        matching("revision", _SHA, "a commit sha of 40 hex digits, or empty for unknown")
    one_of("library", LIBRARIES)
    matching("model_type", _TYPE, "a config's model_type such as bert")
    matching("model_class", _IDENTIFIER, "a class name such as BertModel")
    one_of("family", FAMILIES)
    matching("task", _TASK, "a Hub task such as fill-mask, or empty for unknown")
    if row["params"] and (not _COUNT.fullmatch(row["params"]) or int(row["params"]) == 0):
        wrong("params", "a positive whole number, or empty for unknown")
    one_of("tier", TIERS)
    one_of("weights", tuple(Weights))
    if row["package"]:
        matching("package", _IDENTIFIER, "an importable package name, or empty")
        if row["weights"] != Weights.HUB:
            wrong("package", f"empty unless weights is {Weights.HUB}")
    phases = row["phases"].split() or [Phase.FORWARD]
    known = [phase for phase in Phase if phase in phases]
    if phases != known or Phase.FORWARD not in known:
        close = next((near for word in phases if word not in known and (near := meant(word, Phase))), "")
        valid = f"empty, or {Phase.FORWARD} and what else the class has of {', '.join(Phase)}, in order"
        wrong("phases", valid, close)
    if row["config"]:
        if row["package"]:
            wrong("config", "empty where a package has the checkpoint")
        elif row["weights"] != Weights.CONFIG and not (path.parent / row["config"]).is_file():
            wrong("config", "the path of a config.json or a GGUF file from the list's folder on, or empty")
        row["config"] = os.path.abspath(path.parent / row["config"])  # a link's own place: the weights lie beside it
    elif row["weights"] == Weights.CONFIG:
        wrong("config", f"not empty where weights is {Weights.CONFIG}; `zoo run --weights config` makes such a list")
    one_of("gated", ANSWERS)
    one_of("custom_code", ANSWERS)
    if row["dtype"]:
        one_of("dtype", tuple(Dtype))
    if row["trusted"]:
        matching("trusted", _SHA, "a full commit sha of 40 hex digits, or empty for none")
        if row["revision"] not in ("", row["trusted"]):
            wrong("trusted", "what revision is: the code of another commit never runs")
        if row["custom_code"] == "no":
            wrong("trusted", "empty where custom_code is no")
        if row["package"] or (row["config"] and row["weights"] != Weights.CONFIG):
            wrong("trusted", "empty where a package or a folder has the checkpoint: only code of the Hub has a commit")
    if problems:
        return None, problems
    typed = {
        "phases": tuple(known),
        "params": int(row["params"]) if row["params"] else None,
        "weights": Weights(row["weights"]),
    }
    return Entry(**row | typed), []


def _shown(text: str) -> str:
    """Text of unknown origin, short and on one line."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
