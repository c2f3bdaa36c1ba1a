"""A run for other tools: CSV, JSON, and JUnit XML as GitLab, GitHub and Jenkins read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as xml

from harness.cases import Group, Stage, Verdict
from model_lists.expectations import Expectations
from results import schema
from results.baseline import target_of
from results.expected import Outcome, outcome
from results.store import Run, read

if TYPE_CHECKING:
    import pyarrow

NOT_REPORTED = "NOT_REPORTED"
"""What JUnit says of a planned case without a result."""

_JUNIT_COLUMNS = ("case_id", "verdict", "stage", "message", "detail", "log", "wall_seconds")
_JUNIT_PROPERTIES = ("emulated", "harness_revision", "python")
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to hold, not even escaped (its production `Char`)."""


def as_csv(table: pyarrow.Table) -> bytes:
    """A table as CSV in UTF-8: texts in quotes, unknown as nothing at all, lists as JSON."""
    import pyarrow
    from pyarrow import csv

    for number, field in enumerate(table.schema):
        if pyarrow.types.is_nested(field.type) or pyarrow.types.is_interval(field.type):
            texts = [
                None if value is None else json.dumps(value, default=str) for value in table.column(number).to_pylist()
            ]
            table = table.set_column(number, field.name, pyarrow.array(texts, pyarrow.string()))
    sink = pyarrow.BufferOutputStream()
    csv.write_csv(table, sink)
    return sink.getvalue().to_pybytes()


def run_as_csv(run: Run) -> bytes:
    """All rows and columns of a run as CSV. Raises StoreError."""
    return as_csv(read(run)[0])


def run_as_json(run: Run) -> bytes:
    """A run as one JSON object: `run_id`, `created_at`, `provenance`, `planned` and `rows`, unknown as null.

    Numbers that JSON has not are spelled "NaN", "Infinity" and "-Infinity". Raises StoreError.
    """
    document = {
        "run_id": run.id,
        "created_at": run.created_at,
        "provenance": run.provenance,
        "planned": run.planned,
        "rows": [schema.encode(row) for row in read(run)[0].to_pylist()],
    }
    return json.dumps(document, allow_nan=False).encode("ascii") + b"\n"


def run_as_junit(run: Run, expectations: Expectations) -> bytes:
    """A run as JUnit XML: a suite for each mode of the target, a test for each planned case.

    An expected failure is skipped, any other is a failure; what says nothing about model or backend (the environment,
    the harness, no result at all) is an error. Characters that XML forbids are left out. Raises StoreError.
    """
    target = target_of(run)
    rows = {row["case_id"]: row for row in read(run, _JUNIT_COLUMNS)[0].to_pylist()}
    suites: dict[str, list[xml.Element]] = {}
    for case_id in dict.fromkeys([*run.planned, *rows]):
        mode = _mode(case_id)
        case = xml.Element(
            "testcase",
            classname=_clean(".".join(part.replace(".", "_") for part in (target, mode, case_id.split("/")[0]))),
            name=_clean(case_id),
            time=f"{(rows.get(case_id) or {}).get('wall_seconds') or 0:.3f}",
        )
        case.extend(_result(case_id, rows.get(case_id), expectations))
        suites.setdefault(mode, []).append(case)
    root = xml.Element("testsuites", name=f"zoo {run.id}")
    for mode, cases in suites.items():
        suite = xml.SubElement(root, "testsuite", name=_clean(f"{target}/{mode}"), timestamp=run.created_at[:19])
        properties = xml.SubElement(suite, "properties")
        for name, value in _properties(run):
            xml.SubElement(properties, "property", name=_clean(name), value=_clean(value))
        suite.extend(cases)
        _count(suite, cases)
    _count(root, [case for cases in suites.values() for case in cases])
    return xml.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _mode(case_id: str) -> str:
    parts = case_id.split("/")
    return parts[-3] if len(parts) > 4 else "unknown"


def _properties(run: Run) -> Iterator[tuple[str, str]]:
    provenance = run.provenance
    yield "run", run.id
    for name in _JUNIT_PROPERTIES:
        yield name, str(provenance.get(name))
    for name, version in (provenance.get("packages") or {}).items():
        yield name, str(version)


def _result(case_id: str, row: Mapping[str, Any] | None, expectations: Expectations) -> Iterator[xml.Element]:
    if row is None:
        yield _element("error", NOT_REPORTED, "planned, but no result has been recorded")
        return
    try:
        verdict, stage = Verdict(row["verdict"]), Stage(row["stage"])
    except ValueError:
        yield _element("error", row["verdict"] or "", "a verdict or stage that this version does not know")
        return
    ended, about = outcome(verdict, stage, expectations.about(case_id))
    message = f"{verdict} in stage {stage}: {row['message'] or verdict.meaning}"
    if ended is Outcome.EXPECTED and verdict is not Verdict.PASS:
        yield xml.Element("skipped", message=_clean(f"expected {message} ({about.reason if about else ''})"))
    elif ended is Outcome.UNEXPECTED_PASS:
        known = f"{about.verdict} ({about.where}): {about.reason}" if about else "a failure"
        yield _element("failure", ended, f"passes, but is expected to end in {known}")
    elif ended is not Outcome.EXPECTED:
        says_something = verdict.group in (Group.BACKEND, Group.MODEL)
        yield _element("failure" if says_something else "error", verdict, message, row["detail"] or "")
    if row["log"]:
        log = xml.Element("system-out")
        log.text = _clean(row["log"])
        yield log


def _element(tag: str, kind: str, message: str, text: str = "") -> xml.Element:
    element = xml.Element(tag, type=_clean(kind), message=_clean(message))
    element.text = _clean(text)
    return element


def _count(element: xml.Element, cases: list[xml.Element]) -> None:
    element.set("tests", str(len(cases)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(name, str(sum(case.find(tag) is not None for case in cases)))
    element.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("", text)
