"""Builds the site: reads a run and the nights before it, and writes a folder of static files that needs no network."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined

from dashboards import claims, clusters, compare, data, feed, front, grid, nights, operators, words
from model_lists.expectations import Expectation, ExpectationError
from results import store as results_store
from results.baseline import expectations_of, find_run, target_of
from results.errors import StoreError
from results.store import Run, repro_path

PAGES = ("matrix", "compare", "architecture", "case")
"""Pages that draw data files; the front page is complete as it stands."""

_KNOWN_BY = "data/summary.json"
"""What every site has, and no other folder is likely to."""
_SLICE = 2000
"""Rows that are Python objects at a time."""


def build(store: Path, out: Path, run: str | Run | None = None) -> Path:
    """Write the site of a run into the folder `out` and return the path of its `index.html`.

    The run is named by a word of `results.baseline`: an id, or by default the last. An older site is replaced when
    the new one is complete; other files in the folder stay. Raises StoreError (one line) where the store has no such
    run or cannot be read, or `out` cannot be written or has files of these names that are no site's.
    """
    store, out = Path(store), Path(out)
    shown = run if isinstance(run, Run) else find_run(store, run or "last")
    draft = out / f".new-{secrets.token_hex(4)}"
    try:
        draft.mkdir(parents=True)
        _fill(draft, store, shown)
        _put_in_place(draft, out)
    except OSError as error:
        raise StoreError(f"cannot write the page {out / 'index.html'}: {error.strerror}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return out / "index.html"


def _put_in_place(draft: Path, out: Path) -> None:
    """Move what was made over what there was, the front page last, and first the data, by which a site is known."""
    here = sorted(draft.iterdir(), key=lambda path: (path.name == "index.html", path.name != "data"))
    others = [made.name for made in here if (out / made.name).exists()]
    if others and not (out / _KNOWN_BY).is_file():
        raise StoreError(f"{out / others[0]} is not of a dashboard, and would be lost: give --out another folder")
    for made in here:
        if made.is_dir() and (out / made.name).exists():
            os.replace(out / made.name, draft / f".old-{made.name}")
        os.replace(made, out / made.name)


def _fill(out: Path, store: Path, shown: Run) -> None:
    for name in ("data/architectures", "data/models", "data/runs", "badges"):
        (out / name).mkdir(parents=True)
    shutil.copytree(Path(__file__).parent / "assets", out / "assets")
    read = nights.read_nights(store, shown)
    columns = dict.fromkeys([*grid.CASE_COLUMNS, *clusters.COLUMNS, *operators.COLUMNS, *data.MEASURED_COLUMNS])
    rows_of = _as_they_were(shown, read)
    table = rows_of(list(columns))
    rows = table.select(list(grid.CASE_COLUMNS)).to_pylist()
    laid = grid.lay_out(rows, read.cases[len(rows) :])
    told = table.select(list(dict.fromkeys([*clusters.COLUMNS, *operators.COLUMNS]))).to_pylist()
    found, named, called = clusters.clusters(told), operators.operators(told), operators.calls(told)
    compared = front.since_last_night(store, shown)

    _give_zoo(out, read, laid, found, named)
    _give(out, "calls", {"version": data.VERSION, **operators.callers(called, laid)}, machines=True)
    _give_sides(out, store, laid, read)
    _give(out, "vocabulary", data.vocabulary(read))
    _give(out, "environment", {"version": data.VERSION, "groups": words.facts_table(shown.provenance)})
    if not isinstance(compared, str):
        changed = {"version": data.VERSION, "before": compared[0].id, "changes": list(data.changes(compared[1]))}
        _give(out, "changes", changed, machines=True)

    target = target_of(shown)
    measured = table.select(list(data.MEASURED_COLUMNS))
    for name, numbers in laid.architectures.items():
        cases = sorted(case for number in numbers for case in laid.entries[number].cases.values() if case < len(rows))
        taken = dict(zip(cases, measured.take(pa.array(cases, pa.int64())).to_pylist(), strict=True))
        own = data.architecture(name, laid, read, taken.get, target)
        _give(out, f"architectures/{laid.slugs[name]}", own, machines=True)
    for number, evidence in _evidence(laid, rows_of(), _expectations(shown), _repros(shown, out)):
        _give(out, f"models/{number}", evidence)

    zoo, header = front.zoo(read, laid, store), front.header(shown, laid)
    _write_json(out / _KNOWN_BY, {"version": data.VERSION, "run": header, "zoo": zoo})
    pages = _pages()
    front_page = {
        "zoo": zoo,
        "totals": words.totals(v for v, n in read.nights[-1].verdicts.items() for _ in range(n)),
        "changes": front.changes(compared, laid),
        "blockers": front.blockers(found),
        "clusters": len(found),
        "trend": front.trend(read),
        "runs": front.runs(read),
        "problems": [words.clean(problem) for problem in read.problems],
        "unplaced": [words.clean(case_id) for case_id in laid.unplaced],
        "provenance": words.facts_table(shown.provenance),
    }
    gains = claims.claims(rows_of(list(claims.COLUMNS)).to_pylist())
    content = {page: {} for page in PAGES} | {
        "claims": {"claims": gains},
        "operators": operators.page(named, called, told, laid),
        "index": front_page,
    }
    for page, own in content.items():
        _write(out / f"{page}.html", pages(f"{page}.html.j2", {"header": header, "page": page} | own))
    entries = {"entries": feed.regressions(read), "updated": words.clean(shown.created_at)}
    _write(out / "feed.xml", pages("feed.xml.j2", {"header": header} | entries))
    _write(out / "card.svg", pages("card.svg.j2", {"header": header, "zoo": zoo, "fills": words.FILLS}))
    _badges(out / "badges", pages, laid, read, zoo)


def _give_zoo(
    out: Path, read: nights.Nights, laid: grid.Grid, found: Sequence[clusters.Cluster], named: operators.Named
) -> None:
    """The files that tell of the whole zoo: one verdict for each cell, and which cells have what in common."""
    clustered = {case: number for number, one in enumerate(found) for case in one.cases}
    _give(out, "matrix", data.matrix(laid, read, clustered), machines=True)
    _give(out, "clusters", {"version": data.VERSION, "clusters": front.blockers(found, len(found))}, machines=True)
    cells = laid.cells(read.cases)
    _give(out, "operators", {"version": data.VERSION, **operators.cells(named, cells)}, machines=True)


def _give_sides(out: Path, store: Path, laid: grid.Grid, read: nights.Nights) -> None:
    """What the page that compares loads: the list of runs, and a file for each."""
    sides = compare.sides(store, laid, read)
    _give(out, "runs", {"version": data.VERSION, **compare.runs(sides)}, machines=True)
    for number, side in enumerate(sides):
        _give(out, f"runs/{number}", {"version": data.VERSION, **compare.cells(side)})


def _repros(shown: Run, out: Path) -> Callable[[str], str]:
    """Copies the file that reproduces a case, where the run has one, and tells where it is; else an empty text."""
    if not repro_path(shown.path, "").parent.is_dir():
        return lambda case_id: ""
    (out / "repros").mkdir()

    def copied(case_id: str) -> str:
        made = repro_path(shown.path, case_id)
        if not made.is_file():
            return ""
        shutil.copyfile(made, out / "repros" / made.name)
        return f"repros/{made.name}"

    return copied


def _as_they_were(shown: Run, read: nights.Nights) -> Callable[..., pa.Table]:
    """Reads columns of the rows that there were when `read` was: a run that goes on gets more, in between others."""
    reported = read.cases[: len(read.cases) - read.missing]
    return lambda columns=None: results_store.read(shown, columns, reported)[0]


def _evidence(
    laid: grid.Grid, table: pa.Table, about: Callable[[str], Expectation | None], repro: Callable[[str], str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """For each model its number and the evidence of its cases, a few models at a time."""
    waiting: list[tuple[int, list[int]]] = []
    count = 0

    def read() -> Iterator[tuple[int, dict[str, Any]]]:
        rows = iter(table.take(pa.array([case for _, cases in waiting for case in cases], pa.int64())).to_pylist())
        for number, cases in waiting:
            yield number, data.model([next(rows) for _ in cases], about, repro)

    for number, entry in enumerate(laid.entries):
        cases = [case for case in entry.cases.values() if case < len(table)]
        waiting.append((number, cases))
        count += len(cases)
        if count >= _SLICE:
            yield from read()
            waiting, count = [], 0
    yield from read()


def _expectations(shown: Run) -> Callable[[str], Expectation | None]:
    try:
        return expectations_of(shown).about
    except ExpectationError:  # a file that the run did not need: its pages can do without
        return lambda case_id: None


def _badges(
    folder: Path, pages: Callable[..., str], laid: grid.Grid, read: nights.Nights, zoo: Mapping[str, Any]
) -> None:
    def badge(name: str, label: str, passed: int, whole: int) -> None:
        says = f"{passed} of {whole} pass"
        shape = {"label": label, "says": says, "left": 7 * len(label) + 12, "right": 7 * len(says) + 12}
        _write(folder / f"{name}.svg", pages("badge.svg.j2", shape | {"good": passed == whole and whole > 0}))

    badge("zoo", "model zoo", zoo["works"], zoo["whole"])
    for name, numbers in laid.architectures.items():
        verdicts = [read.verdict(case) for number in numbers for case in laid.entries[number].cases.values()]
        badge(laid.slugs[name], words.clean(name)[:40], verdicts.count("PASS"), len(verdicts))


def _pages() -> Callable[[str, Mapping[str, Any]], str]:
    environment = Environment(
        loader=PackageLoader("dashboards"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return lambda template, context: environment.get_template(template).render(context)


def _give(out: Path, name: str, value: Mapping[str, Any], *, machines: bool = False) -> None:
    """A data file as a script, which a page can load from a disk too, and for `machines` as JSON beside it."""
    text = _json(value)
    _write(out / "data" / f"{name}.js", f"zoo.give({json.dumps(name)},\n{text}\n);\n")
    if machines:
        _write(out / "data" / f"{name}.json", text)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    _write(path, _json(value))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
