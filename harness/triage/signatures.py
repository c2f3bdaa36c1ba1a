"""Which failures have the same cause, as far as their rows tell.

A signature is computed from what a row holds whenever it is asked for, and is not stored: so a better algorithm groups
old runs anew, and its `VERSION` is part of every cluster's id, lest an id of one be taken for an id of another.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness import wording
from harness.cases import Verdict

VERSION = 2

COLUMNS = (
    "case_id",
    "entry_id",
    "model_id",
    "model_type",
    "model_class",
    "phase",
    "mode",
    "dtype",
    "verdict",
    "stage",
    "message",
    "log",
    "signal",
    "twin_of",
    "blame_pair",
    "blame_operator",
)
"""Columns of the store that a row must have to be given a signature."""

_HEX = 10
"""Hexadecimal digits of an id: 40 bits, of which ten thousand causes have two alike once in twenty thousand runs."""

_OPERATOR = re.compile(r"\b([a-z_][a-z0-9_]*)::([a-z_][a-z0-9_]*)(\.[a-z_][a-z0-9_]*)?", re.IGNORECASE)
"""An operator as dispatcher and backends write it: `aten::add.Tensor`."""
_FRAME = re.compile(r'File "([^"]+)", line \d+,? in (\S+)')
"""A frame of a traceback, or of what Python's fault handler prints of a dying process."""
_DYING = "Current thread 0x"
"""What the fault handler calls the thread that dies, among the others that it prints."""
_FATAL = re.compile(r"Check failed: .*|terminate called .*|what\(\): .*")

_WRAPPERS = re.compile(r"^(?:[\w.]+(?:Error|Exception|Failed): |backend='\w+' raised:\s*)+")
"""What an error is packed into by those that pass it on."""

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Signature:
    """What a failure is about: `cause` is alike for all that have one cause, `occurrence` for one model and cell too.

    `subject` is what people call the cause by: an operator, or an error text without what changes from case to case.
    """

    verdict: str
    subject: str
    cause: str
    occurrence: str

    @property
    def cluster(self) -> str:
        """Id of the cluster of all failures of this cause: `2-0f3a2b7c10`, with the version of the algorithm."""
        return f"{VERSION}-{self.cause}"


@dataclass(slots=True)
class Cluster:
    """Failures of one cause: the ids of their cases, and where they occur, each word once in order of occurrence."""

    id: str
    verdict: str
    subject: str
    cases: list[str] = field(default_factory=list)
    entries: dict[str, None] = field(default_factory=dict)
    types: dict[str, None] = field(default_factory=dict)
    phases: dict[str, None] = field(default_factory=dict)
    modes: dict[str, None] = field(default_factory=dict)
    dtypes: dict[str, None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """One line: `UNSUPPORTED_OP aten::_upsample_bilinear2d_aa (forward, float32)`."""
        return f"{self.verdict} {self.subject} ({', '.join((*self.phases, *self.dtypes))})"


def signature(row: Mapping[str, Any]) -> Signature | None:
    """The signature of a row that has `COLUMNS`; None for a pass."""
    verdict = row["verdict"] or ""
    if verdict == Verdict.PASS:
        return None
    subject = _subject(row, verdict)
    cause = _fingerprint(verdict, subject)
    cell = (row[name] for name in ("entry_id", "phase", "mode", "dtype"))
    return Signature(verdict, subject, cause, _fingerprint(cause, *cell))


def clusters(rows: Iterable[Mapping[str, Any]]) -> list[Cluster]:
    """The failures among rows by their cause: first what keeps most architectures from passing, then most models."""
    found: dict[str, Cluster] = {}
    for row in rows:
        if (own := signature(row)) is None:
            continue
        cluster = found.setdefault(own.cause, Cluster(own.cluster, own.verdict, own.subject))
        cluster.cases.append(row["case_id"])
        cluster.entries[row["entry_id"]] = None
        cluster.types[row["model_type"]] = None
        cluster.phases[row["phase"]] = None
        cluster.modes[row["mode"]] = None
        cluster.dtypes[row["dtype"]] = None
    return sorted(found.values(), key=lambda one: (-len(one.types), -len(one.entries), -len(one.cases), one.id))


def _subject(row: Mapping[str, Any], verdict: str) -> str:
    if operator := row["blame_operator"]:
        return operator_name(operator)
    told = _without_names(row["message"] or "", row)
    if verdict == Verdict.UNSUPPORTED_OP and (found := operators_in(told)):
        return found[0]
    if row["blame_pair"]:  # of a wrong result nobody knows more than which architecture shows it
        return f"{row['blame_pair']}, {row['model_type']}"
    if verdict == Verdict.CRASH:
        return f"{row['signal'] or 'a signal'}: {_of_death(row)}"
    return _plain(told) or (Verdict(verdict).meaning if verdict in set(Verdict) else "an unknown verdict")


def _of_death(row: Mapping[str, Any]) -> str:
    """What a process said before it died, or else where it was."""
    log = _without_names(row["log"] or "", row)
    if fatal := _FATAL.search(log):
        return _plain(fatal[0])
    if frame := _FRAME.search(log, max(log.rfind(_DYING), 0)):
        return f"in {frame[2]} of {frame[1].rpartition('/')[2]}"
    return f"in stage {row['stage']}"


def operators_in(text: str) -> list[str]:
    """The operators that a text names as dispatcher and backends do, `aten::gelu`, without their overloads."""
    return [f"{found[1]}::{found[2]}" for found in _OPERATOR.finditer(text)]


def operator_name(name: str) -> str:
    """One name for an operator in all modes, with or without overload: `aten::gelu` of `aten.gelu.default`."""
    parts = name.replace("::", ".").split(".")
    if len(parts) == 1:  # a function of PyTorch, as a compiled graph calls it
        return f"aten::{parts[0]}"
    return f"{parts[0]}::{parts[1]}"


def _without_names(text: str, row: Mapping[str, Any]) -> str:
    for column in ("entry_id", "model_id", "model_class"):
        if row[column]:
            text = text.replace(row[column], "MODEL")
    return text


def _plain(text: str) -> str:
    """An error text without what changes from occurrence to occurrence."""
    return wording.lasting(_WRAPPERS.sub("", text.strip()))[:_LONGEST]


def _fingerprint(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:_HEX]
