from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import dashboards
import results
from dashboards.clusters import COLUMNS, clusters
from harness.cases import Mode, Verdict


class Page(HTMLParser):
    """What a page consists of: elements with attributes, and visible text."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def all(self, tag: str, css_class: str = "") -> list[dict[str, str | None]]:
        return [a for t, a in self.elements if t == tag and css_class in ["", *(a.get("class") or "").split()]]


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Page]:
    return lambda **options: Page(dashboards.build(tmp_path / "store", tmp_path / "site", **options))


def test_the_whole_zoo_is_what_models_are_counted_of(build, write_run, make_case, make_record) -> None:
    works, fails, dry, silent, gone = (make_case(name) for name in ("bert", "llama", "t5", "vit", "gpt2"))
    write_run([make_record(gone)])
    write_run(
        [
            make_record(works),
            make_record(make_case("llama", Mode.COMPILED)),
            make_record(fails, Verdict.CRASH),
            make_record(dry, Verdict.DEPENDENCY_MISSING),
        ],
        [silent.id],
    )
    text = build().text
    assert "20 % of the zoo works on tpu-emulated" in text
    assert "✓ 1 pass ✕ 1 fail △ 1 environment · 2 not attempted of 5 models" in text
    assert "2 of 5 planned cases pass (40 %)" in text
    assert "1 of 5 planned cases have not reported" in text


def test_a_single_failure_never_rounds_to_all(build, write_run, make_case, make_record) -> None:
    names = [f"model{number}" for number in range(120)]
    write_run([make_record(make_case(name), Verdict.CRASH if name == "model0" else Verdict.PASS) for name in names])
    text = build().text
    assert "99 % of the zoo works" in text
    assert "119 of 120 planned cases pass (99 %)" in text


def test_what_changed_since_last_night(build, write_run, make_case, make_record) -> None:
    broke, mended, drifts = make_case("bert"), make_case("llama"), make_case("t5")
    write_run([make_record(broke), make_record(mended, Verdict.CRASH), make_record(drifts)])
    assert "nothing to compare with" in build().text
    far = make_record(drifts).worst
    write_run(
        [
            make_record(broke, Verdict.RUN_ERROR, message="boom"),
            make_record(mended),
            make_record(drifts, worst=replace(far, error=9e-7)),
        ]
    )
    page = build()
    assert "▼ 1 regressed" in page.text
    assert "▲ 1 fixed" in page.text
    assert "≈ 1 drifting" in page.text
    assert "40 % → 90 % of what is allowed" in page.text
    assert any("case.html#a=bert&c=bert" in (a.get("href") or "") for a in page.all("a"))
    assert "Models over 2 nights" in page.text


def test_blockers_are_told_by_what_they_unlock(write_run, make_case, make_record) -> None:
    def row(name: str, mode: Mode, message: str, verdict: str = "UNSUPPORTED_OP") -> dict[str, str]:
        case = make_case(name, mode)
        said = {"case_id": case.id, "entry_id": case.entry.id, "model_type": name, "verdict": verdict}
        return dict.fromkeys(COLUMNS, "") | said | {"message": message}

    found = clusters(
        [
            row("bert", Mode.EAGER, "aten::erfinv.out is not implemented"),
            row("t5", Mode.EAGER, "no kernel for aten::erfinv.out here"),
            row("t5", Mode.COMPILED, "boom at 0x12", "RUN_ERROR"),
            row("vit", Mode.COMPILED, "boom at 0x99", "RUN_ERROR"),
            row("gpt2", Mode.COMPILED, "", "PASS"),
        ]
    )
    assert [(one.what, len(one.models), one.unlocks) for one in found] == [
        ("boom at ADDRESS", 2, 1),
        ("aten::erfinv", 2, 1),
    ]


@pytest.mark.parametrize("emulated", [True, False])
def test_badge_exactly_where_a_stand_in_executed(build, write_run, make_case, make_record, emulated: bool) -> None:
    target = "tpu-emulated" if emulated else "tpu"
    write_run([make_record(make_case(), emulated=emulated, target=target)], target=target)
    page = build()
    assert len(page.all("aside", "emulated")) == emulated
    assert ("XLA:CPU executes" in page.text) == emulated
    assert ("hardware" in page.text) != emulated


def test_hostile_strings_stay_text(build, write_run, make_case, make_record, tmp_path: Path) -> None:
    payload = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}\x1b[31mred\x00\u202e"
    case = make_case(model_type=payload, model_id=payload, model_class=payload, family=payload, task=payload)
    record = make_record(case, Verdict.CRASH, message=payload, detail=payload, log=payload + "x" * 200_000)
    write_run([record], [f"a/b/{payload}/synthetic/forward/eager/float32/padded"], tier=payload)
    page = build()
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    assert not any(name.startswith("on") or name == "style" for _, attributes in page.elements for name in attributes)
    assert "{{7*7}}" in page.text
    made = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    for path in made:
        if "assets" not in path.parts:
            assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", path.read_text(encoding="utf-8")), path
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", path.name)
    assert sum(path.stat().st_size for path in made) < 400_000


def test_pages_need_nothing_from_outside(build, write_run, make_case, make_record, tmp_path: Path) -> None:
    write_run([make_record(make_case())])
    build()
    pages = [Page(path) for path in (tmp_path / "site").glob("*.html")]
    assert len(pages) == 7
    for page in pages:
        (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
        assert policy.startswith("default-src 'none';")
        assert "unsafe" not in policy
        linked = [v for _, attributes in page.elements for n, v in attributes.items() if n in ("src", "href")]
        for link in linked:
            name = link.partition("#")[0]
            assert not name or (tmp_path / "site" / name).is_file(), link


def test_history_survives_a_damaged_run(build, write_run, make_case, make_record) -> None:
    case = make_case()
    damaged, good, shown = (
        write_run([make_record(case, verdict)]) for verdict in (Verdict.PASS, Verdict.CRASH, Verdict.PASS)
    )
    (damaged.path / "run.json").write_text("{")
    text = build().text
    assert good.id in text
    assert f"{damaged.path / 'run.json'} is damaged" in text
    assert f"{shown.id} this page" in text


def test_provenance_and_journal_problems_are_shown(build, write_run, make_case, make_record) -> None:
    run = write_run([make_record(make_case())])
    with (run.path / "journal" / "gw0.jsonl").open("a") as file:
        file.write('{"half')
    text = build().text
    assert "torch 2.13.0+cpu" in text
    assert "libtpu not installed or unknown" in text
    assert "25.0 GiB" in text
    assert "gw0.jsonl line 2: unreadable row skipped" in text


def test_sealed_run_gives_the_same_page(build, write_run, make_case, make_record) -> None:
    run = write_run([make_record(make_case(name)) for name in ("bert", "llama")])
    live = build().source
    results.seal(run)
    assert build().source == live


def test_planned_ids_of_unknown_form_are_listed(build, write_run, make_case, make_record) -> None:
    write_run([make_record(make_case())], ["an id of <another> form"])
    assert "1 unreported cases that fit no row an id of <another> form" in build().text


@pytest.mark.parametrize(("run", "match"), [(None, "has no runs yet"), ("nonesuch", "no run 'nonesuch'")])
def test_no_such_run_is_one_line(tmp_path: Path, run: str | None, match: str) -> None:
    with pytest.raises(results.StoreError, match=match):
        dashboards.build(tmp_path / "store", tmp_path / "site", run=run)
    assert not (tmp_path / "site").exists()


def test_unwritable_folder_is_one_line(tmp_path: Path, write_run) -> None:
    write_run([])
    (tmp_path / "file").write_text("")
    with pytest.raises(results.StoreError, match="cannot write the page") as caught:
        dashboards.build(tmp_path / "store", tmp_path / "file" / "site")
    assert "\n" not in str(caught.value)


def test_an_older_site_is_replaced_and_other_files_stay(build, write_run, make_case, make_record, tmp_path) -> None:
    write_run([make_record(make_case("bert"))])
    build()
    (tmp_path / "site" / "CNAME").write_text("zoo.example.org")
    write_run([make_record(make_case("llama"))])
    build()
    site = tmp_path / "site"
    assert (site / "CNAME").read_text() == "zoo.example.org"
    assert [path.name for path in (site / "data" / "architectures").glob("*.js")] == ["llama.js"]
    assert not list(site.glob(".*"))


@pytest.mark.parametrize("name", ["data/x.json", "assets/x.css", "index.html", "badges/x.svg"])
def test_what_somebody_else_put_there_is_not_replaced(write_run, make_case, make_record, tmp_path, name) -> None:
    own = tmp_path / "site" / name
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("mine")
    write_run([make_record(make_case("bert"))])
    with pytest.raises(results.StoreError, match="is not of a dashboard"):
        dashboards.build(tmp_path / "store", tmp_path / "site")
    assert [path for path in (tmp_path / "site").rglob("*") if path.is_file()] == [own]
    assert own.read_text() == "mine"


def test_building_imports_no_torch(tmp_path: Path, write_run, make_case, make_record) -> None:
    write_run([make_record(make_case())])
    code = "import sys, dashboards; dashboards.build(sys.argv[1], sys.argv[2]); print('torch' in sys.modules)"
    arguments = [sys.executable, "-c", code, str(tmp_path / "store"), str(tmp_path / "site")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.strip() == "False"


def test_a_rerun_does_not_take_the_night_s_place_and_a_fault_is_announced(build, write_run, make_case) -> None:
    case = make_case().id
    night = write_run([], [case])
    write_run([], [case], rerun=True)
    broken = write_run([], [case], fault="m:<b>")
    page = build()
    assert night.id in page.text
    assert "broken on purpose" not in page.text
    assert broken.id not in page.text
    assert "broken on purpose with <code>m:&lt;b&gt;</code>" in build(run=broken.id).source
