from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

import dashboards
import results
from harness.cases import Dtype, Mode, Stage, Verdict

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome", "chromium-browser"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium or chrome")


class Page(HTMLParser):
    """What a page consists of: elements with attributes, visible text, embedded data."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self._inside: list[tuple[str, str]] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append((tag, dict(attrs).get("id") or ""))

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1][0] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.texts.append(data)
        elif self._inside[-1][0] == "script":
            name = self._inside[-1][1]
            self.scripts[name] = self.scripts.get(name, "") + data

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def cases(self) -> dict[str, dict]:
        return {case["id"]: case for case in json.loads(self.scripts["details"])["cases"]}

    def all(self, tag: str, css_class: str = "") -> list[dict[str, str | None]]:
        return [a for t, a in self.elements if t == tag and css_class in ["", *(a.get("class") or "").split()]]


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Page]:
    return lambda **options: Page(dashboards.build(tmp_path / "store", tmp_path / "site", **options))


@pytest.fixture
def browse(tmp_path: Path) -> Callable[[str], str]:
    """The page's elements after its script has run, opened from a file with this address hash."""

    def dump(fragment: str) -> str:
        page = (tmp_path / "site" / "index.html").as_uri()
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
        done = subprocess.run(
            [BROWSER, *options, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000",
             "--dump-dom", f"{page}#{fragment}"],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        return done.stdout

    return dump


def test_totals_count_the_whole_plan(build, write_run, make_case, make_record) -> None:
    modes = (Mode.STRICT_EAGER, Mode.COMPILED)
    cases = [make_case(name, mode) for name in ("bert", "llama") for mode in modes]
    write_run(
        [make_record(cases[0]), make_record(cases[1], Verdict.NUMERIC_MISMATCH), make_record(cases[2])], [cases[3].id]
    )
    page = build()
    assert "50 % 2 of 4 planned cases pass" in page.text
    assert "1 of 4 planned cases have not reported" in page.text
    assert "✓ 2 pass ✕ 1 backend · 1 not reported" in page.text
    assert "2 architectures, 2 models × 2 modes" in page.text
    assert "strict-eager 100 % 2 / 2" in page.text
    assert "compiled 0 % 0 / 2" in page.text


def test_a_single_failure_never_rounds_to_all(build, write_run, make_case, make_record) -> None:
    names = [f"model{number}" for number in range(300)]
    write_run([make_record(make_case(name), Verdict.CRASH if name == "model0" else Verdict.PASS) for name in names])
    assert "99 % 299 of 300 planned cases pass" in build().text


def test_every_planned_case_has_a_cell(build, write_run, make_case, make_record) -> None:
    cases = [make_case(f"model{number}", mode) for number in range(20) for mode in (Mode.EAGER, Mode.COMPILED)]
    write_run([make_record(case) for case in cases[:30]], [case.id for case in cases[30:]])
    page = build()
    cells = page.all("a", "cell")
    assert sorted(int(cell["data-n"]) for cell in cells) == list(range(30))
    assert len(page.all("span", "cell")) == 10
    assert set(page.cases) == {case.id for case in cases[:30]}
    assert len(page.all("tr", "entry")) == 20


def test_planned_ids_of_unknown_form_are_listed(build, write_run, make_case, make_record) -> None:
    write_run([make_record(make_case())], ["an id of <another> form"])
    assert "1 unreported cases that fit no row an id of <another> form" in build().text


def test_unreported_cases_are_judged_by_nobody(build, write_run, make_case) -> None:
    write_run([], [make_case().id])
    page = build()
    assert "0 % 0 of 1 planned cases pass" in page.text
    assert "maker/bert-base" in page.text
    assert len(page.all("aside", "emulated")) == 1


def test_cell_shows_verdict_share_and_time(build, write_run, make_case, make_record) -> None:
    write_run([make_record(make_case("bert")), make_record(make_case("llama"), Verdict.NUMERIC_MISMATCH)])
    text = build().text
    assert "✓ PASS 40 % 0.75 s" in text
    assert "✕ numeric mismatch 250 % 0.75 s" in text
    assert "config-faithful" in text


def test_columns_split_by_what_varies(build, write_run, make_case, make_record) -> None:
    write_run([make_record(make_case(dtype=dtype)) for dtype in (Dtype.FLOAT32, Dtype.BFLOAT16)])
    labels = [cell["data-label"] for cell in build().all("td") if cell.get("data-m")]
    assert labels == ["strict-eager · float32", "strict-eager · bfloat16"]


@pytest.mark.parametrize("emulated", [True, False])
def test_badge_exactly_where_a_stand_in_executed(build, write_run, make_case, make_record, emulated: bool) -> None:
    target = "tpu-emulated" if emulated else "tpu"
    write_run([make_record(make_case(), emulated=emulated, target=target)], target=target)
    page = build()
    assert len(page.all("aside", "emulated")) == emulated
    assert ("XLA:CPU executes" in page.text) == emulated


def test_details_carry_error_leaf_stages_and_rerun(build, write_run, make_case, make_record) -> None:
    bad, dead = make_case("bert"), make_case("it's")
    write_run(
        [
            make_record(bad, Verdict.NUMERIC_MISMATCH),
            make_record(dead, Verdict.CRASH, message="killed", detail="Traceback\nend", log="last", signal="SIGSEGV"),
        ]
    )
    page = build()
    told = page.cases[bad.id]
    assert told["worst"]["path"] == "last_hidden_state"
    assert told["worst"]["index"] == [1, 0, 3]
    assert told["worst"]["error"] == 2.5e-6
    assert told["share"] == "250 %"
    data = json.loads(page.scripts["details"])
    assert dict(zip(data["stages"], told["seconds"], strict=False))["run"] == 0.5
    dead_told = page.cases[dead.id]
    assert (dead_told["message"], dead_told["detail"], dead_told["log"]) == ("killed", "Traceback\nend", "last")
    assert dict(zip(data["labels"], dead_told["facts"], strict=False))["signal"] == "SIGSEGV"
    assert dead_told["stage"] == Stage.RUN
    assert dead_told["rerun"].startswith("zoo rerun 'it'")


def test_hostile_strings_stay_text(build, write_run, make_case, make_record) -> None:
    payload = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}\x1b[31mred\x00\u202e"
    case = make_case(model_id=payload, model_class=payload, family=payload, task=payload)
    record = make_record(
        case, Verdict.CRASH, message=payload, detail=payload, log=payload + "x" * 200_000, signal=payload
    )
    write_run([record], [f"a/b/{payload}/synthetic/forward/eager/float32/padded"], tier=payload)
    page = build()
    assert len(page.all("script")) == 2
    assert page.all("img") == []
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "{{7*7}}" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page.source)
    (told,) = page.cases.values()
    assert told["detail"].startswith("</script><script>alert(1)</script>")
    assert "red␀⟨U+202E⟩" in told["detail"]
    assert len(page.source) < 200_000


def test_page_needs_nothing_from_outside(build, write_run, make_case, make_record) -> None:
    write_run([make_record(make_case())])
    page = build()
    (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    linked = [value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href")]
    assert all(value.startswith("#") for value in linked)
    assert not any("style" in attributes for _, attributes in page.elements)


def test_history_lists_all_runs_and_survives_a_damaged_one(build, write_run, make_case, make_record) -> None:
    case = make_case()
    runs = [write_run([make_record(case, verdict)]) for verdict in (Verdict.PASS, Verdict.CRASH, Verdict.PASS)]
    good, shown, damaged = runs
    (damaged.path / "run.json").write_text("{")
    page = build(run=shown.id)
    assert good.id in page.text
    assert f"{damaged.path / 'run.json'} is damaged" in page.text
    assert f"{shown.id} this page" in page.text
    assert "0 of 1 planned cases pass" in page.text


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


def test_page_stays_light(build, write_run, make_case, make_record) -> None:
    write_run([make_record(make_case(f"model{number}"), log="chatter " * 5000) for number in range(200)])
    assert len(build().source) < 500_000


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


def test_building_imports_no_torch(tmp_path: Path, write_run, make_case, make_record) -> None:
    write_run([make_record(make_case())])
    code = "import sys, dashboards; dashboards.build(sys.argv[1], sys.argv[2]); print('torch' in sys.modules)"
    arguments = [sys.executable, "-c", code, str(tmp_path / "store"), str(tmp_path / "site")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.strip() == "False"


@needs_browser
def test_browser_filters_by_address(build, browse, write_run, make_case, make_record) -> None:
    verdicts = {"bert": Verdict.PASS, "llama": Verdict.CRASH, "t5": Verdict.NUMERIC_MISMATCH}
    write_run([make_record(make_case(name), verdict) for name, verdict in verdicts.items()])
    build()
    assert ">3 models</output>" in browse("")
    assert ">2 of 3 models</output>" in browse("v=not-pass")
    assert ">1 of 3 models</output>" in browse("v=CRASH")
    assert ">2 of 3 models</output>" in browse("v=backend")
    assert ">1 of 3 models</output>" in browse("q=LLAMA")
    assert ">0 of 3 models</output>" in browse("q=llama&v=PASS")


@needs_browser
def test_browser_opens_hostile_details_as_text(tmp_path, build, browse, write_run, make_case, make_record) -> None:
    payload = "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
    case = make_case(model_class=payload)
    write_run([make_record(case, Verdict.CRASH, message=payload, detail=payload, log=payload)])
    build()
    shown = browse(f"case={quote(case.id, safe='')}")
    assert "<title>pwned" not in shown
    assert "<img" not in shown
    dialog = shown[shown.index("<dialog") : shown.index("</dialog>")]
    assert 'open=""' in dialog.split(">")[0]
    assert "&lt;img src=x onerror=" in dialog


def test_a_rerun_does_not_take_the_night_s_place_and_a_fault_is_announced(tmp_path):
    from dashboards import build
    from results import create_run

    night = create_run(tmp_path, {"settings": {"target": "cpu"}}, ["a/b/c/synthetic/forward/eager/float32/padded"])
    create_run(
        tmp_path, {"settings": {"target": "cpu", "rerun": True}}, ["a/b/c/synthetic/forward/eager/float32/single"]
    )
    broken = create_run(
        tmp_path, {"settings": {"target": "cpu", "fault": "m:<b>"}}, ["a/b/c/synthetic/forward/eager/float32/padded"]
    )
    page = build(tmp_path, tmp_path / "site").read_text()
    assert f"{night.id}" in page
    assert "broken on purpose" not in page
    assert broken.id not in page
    shown = build(tmp_path, tmp_path / "site", run=broken.id).read_text()
    assert "broken on purpose with <code>m:&lt;b&gt;</code>" in shown
