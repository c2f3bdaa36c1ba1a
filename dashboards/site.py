"""Builds the site: reads a run from the store and writes self-contained pages that need no network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dashboards import view
from results import store as results_store
from results.baseline import find_run
from results.errors import StoreError
from results.store import Run

HISTORY = 20
"""Earlier runs listed on the front page."""


def build(store: Path, out: Path, run: str | Run | None = None) -> Path:
    """Write `index.html` for a run into the folder `out` and return its path.

    The run is named by a word of `results.baseline`: an id, or by default the last.
    The page replaces an older one in one step. Raises StoreError (one line) where the store has no such run or
    cannot be read, or `out` cannot be written.
    """
    chosen = run if isinstance(run, Run) else find_run(Path(store), run or "last")
    page = _render("index.html.j2", _index(Path(store), chosen))
    return _write(Path(out) / "index.html", page)


def _has_fault(run: Run) -> bool:
    return bool((run.provenance.get("settings") or {}).get("fault"))


def _index(store: Path, run: Run) -> dict[str, Any]:
    table, problems = results_store.read(run)
    rows = table.to_pylist()
    reported = {row["case_id"] for row in rows}
    missing = [case_id for case_id in run.planned if case_id not in reported]
    provenance = dict(run.provenance)
    settings = provenance.get("settings") if isinstance(provenance.get("settings"), dict) else {}
    targets = sorted({row["target"] for row in rows if row["target"]}) or [str(settings.get("target") or "unknown")]
    starts = sorted(row["started_at"] for row in rows if row["started_at"])
    ends = sorted(row["recorded_at"] for row in rows if row["recorded_at"])
    return {
        "run_id": view.clean(run.id),
        "targets": [view.clean(target) for target in targets],
        # A run that has not reported yet is judged by its target's name, so that the badge is never late.
        "emulated": any(row["emulated"] for row in rows) or (not rows and any("emulated" in t for t in targets)),
        "fault": view.clean(str(settings.get("fault") or "")),
        "tier": view.clean(str(settings.get("tier") or "")),
        "started": view.moment(starts[0] if starts else None),
        "ended": view.moment(ends[-1] if ends else None),
        "totals": view.totals([row["verdict"] or "" for row in rows] + [view.MISSING] * len(missing)),
        "matrix": view.matrix(rows, missing),
        "details": view.details(rows),
        "provenance": view.facts_table(provenance),
        "problems": [view.clean(problem) for problem in problems],
        "history": _history(store, run),
    }


def _history(store: Path, shown: Run) -> list[dict[str, Any]]:
    """Totals of the newest runs, newest first; a run that cannot be read says why instead.

    Runs with a fault put in are left out, but for the one that is shown.
    """
    lines: list[dict[str, Any]] = []
    for run_id in reversed(results_store.list_runs(store)):
        if len(lines) == HISTORY:
            break
        line: dict[str, Any] = {"run_id": view.clean(run_id), "current": run_id == shown.id}
        try:
            run = results_store.open_run(store, run_id)
            if _has_fault(run) and run_id != shown.id:
                continue
            verdicts = dict.fromkeys(run.planned, view.MISSING)
            table = results_store.read(run, ["case_id", "verdict"])[0]
            for row in table.to_pylist():
                verdicts[row["case_id"]] = row["verdict"] or ""
            line |= {"totals": view.totals(verdicts.values()), "created": view.moment(run.created_at)}
        except StoreError as error:
            line["error"] = view.clean(str(error))
        lines.append(line)
    return lines


def _render(template: str, context: dict[str, Any]) -> str:
    environment = Environment(
        loader=PackageLoader("dashboards"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = _asset("site.css"), _asset("site.js")
    return environment.get_template(template).render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_csp_hash(style),
        script_hash=_csp_hash(script),
        data=_embedded,
        **context,
    )


def _asset(name: str) -> str:
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in, whatever its strings hold."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _write(path: Path, page: str) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(page, encoding="utf-8", errors="backslashreplace")
        os.replace(draft, path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise StoreError(f"cannot write the page {path}: {error.strerror}") from error
    return path
