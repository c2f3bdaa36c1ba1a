from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import dashboards
from harness.cases import Mode, Stage, Verdict
from harness.records import Blame
from results.history import compare, side
from results.store import repro_path

BROWSERS = ("chromium", "google-chrome", "chrome", "chromium-browser")
EVIL = "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    found = next(filter(None, [os.environ.get("ZOO_BROWSER"), *map(shutil.which, BROWSERS)]), None)
    if found is None:
        pytest.skip(f"NO BROWSER: the pages were not opened; install one of {', '.join(BROWSERS)} or set ZOO_BROWSER")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page of the store's site from the disk; at the end no page may have written an error."""
    contexts, errors = [], []

    def go(page: str, **options: Any) -> Any:
        if not (tmp_path / "site").exists():
            dashboards.build(tmp_path / "store", tmp_path / "site")
        context = chromium.new_context(**options)
        contexts.append(context)
        opened = context.new_page()
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        opened.goto(f"{(tmp_path / 'site').as_uri()}/{page}")
        return opened

    yield go
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def visit(browse, write_run, make_case, make_record) -> Callable[..., Any]:
    """Opens a page of a site of two nights and another target's run, with hostile texts wherever texts can be."""
    evil = make_case(model_type=EVIL, model_class=EVIL, model_id=EVIL, family=EVIL, task=EVIL)
    cases = {name: make_case(name, mode) for name, mode in (("bert", Mode.EAGER), ("llama", Mode.COMPILED))}
    write_run([make_record(case) for case in cases.values()])
    broken = dict.fromkeys(("detail", "log", "signal", "attempts", "worker", "truth", "started_at", "twin_of"), EVIL)
    blame = Blame(**{part.name: EVIL for part in fields(Blame) if part.type == "str"})
    write_run([make_record(cases["bert"], target=EVIL)], target="cpu", tier=EVIL, packages=EVIL)
    run = write_run(
        [
            make_record(cases["bert"], operators=("gelu", EVIL)),
            make_record(cases["llama"], Verdict.NUMERIC_MISMATCH, blame=Blame(operator="aten.gelu.default")),
            make_record(evil, Verdict.CRASH, message=EVIL, blame=blame, **broken),
        ]
    )
    run.amend({"packages": {EVIL: EVIL}, "machine": {EVIL: EVIL}, "emulated": True})
    made = repro_path(run.path, cases["llama"].id)
    made.parent.mkdir()
    made.write_text("raise SystemExit(1)")
    return browse


def test_a_query_in_the_address_filters_and_typing_changes_it(visit) -> None:
    page = visit(f"matrix.html#q={quote('status:failing mode:compiled')}")
    page.wait_for_function("document.getElementById('shown').textContent === '1 of 3 models'")
    assert "llama" in page.inner_text("#rows")
    for query, shown in {
        "": "3 models",
        "LLAMA": "1 of 3 models",
        "-llama": "2 of 3 models",
        "verdict:crash,numeric_mismatch": "2 of 3 models",
        "arch:=llama since:1d": "1 of 3 models",
        "status:changed": "1 of 3 models",
        "cluster:0 status:passing": "0 of 3 models",
    }.items():
        page.fill("#q", query)
        assert page.inner_text("#shown") == shown, query
    page.fill("#q", "colour:red")
    assert "Not understood: colour:red" in page.inner_text("#hint")
    assert page.evaluate("location.hash") == "#q=colour%3Ared"


def test_keys_lead_from_the_matrix_to_a_case(visit) -> None:
    page = visit("matrix.html#q=llama")
    page.wait_for_selector("#rows .cell")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.press("Enter")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.wait_for_url("**/case.html*")
    page.wait_for_selector("pre")
    assert "250 % of what is allowed" in page.inner_text("main")
    command = page.inner_text(".command pre")
    assert command.startswith("zoo rerun llama/LlamaModel/maker/llama-base/synthetic/forward/compiled")
    page.click(".command button")
    page.wait_for_function("document.querySelector('.command button').textContent !== 'Copy'")
    assert page.evaluate("String(getSelection())").strip() == command


def test_the_rerun_command_is_copied(visit) -> None:
    page = visit("architecture.html#a=llama", permissions=["clipboard-read", "clipboard-write"])
    page.click(".command button")
    page.wait_for_function("document.querySelector('.command button').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == "zoo rerun llama --target tpu-emulated"


def _told(page: Any) -> dict[str, int]:
    """What became of how many cases, as the page that compares says."""
    page.wait_for_selector("#counts a")
    chips = page.eval_on_selector_all("#counts a", "all => all.map(one => one.textContent.split(' '))")
    return {" ".join(words[1:-1]): int(words[-1]) for words in chips}


def test_what_became_of_a_case_has_the_words_of_zoo_diff(browse, write_run, make_case, make_record) -> None:
    ends = {
        "passes": (Verdict.PASS, Verdict.PASS),
        "breaks": (Verdict.PASS, Verdict.CRASH),
        "mended": (Verdict.CRASH, Verdict.PASS),
        "fails": (Verdict.CRASH, Verdict.CRASH),
        "other": (Verdict.CRASH, Verdict.TIMEOUT),
        "dry": (Verdict.PASS, Verdict.DEPENDENCY_MISSING),
        "wet": (Verdict.DEPENDENCY_MISSING, Verdict.REFERENCE_ERROR),
        "never": (Verdict.DEPENDENCY_MISSING, Verdict.HARNESS_ERROR),
    }
    sides = [[make_record(make_case(name), pair[at]) for name, pair in ends.items()] for at in (0, 1)]
    for at, message in enumerate(("shape [1, 2] at 0xaf", "shape [7, 8] at 0xbe")):
        sides[at].append(make_record(make_case("alike"), Verdict.RUN_ERROR, message=message))
    for at, stage in enumerate((Stage.COMPILE, Stage.RUN)):
        sides[at].append(make_record(make_case("later"), Verdict.RUN_ERROR, stage=stage))
    silent, fresh = make_case("silent"), make_case("fresh")
    before = write_run([*sides[0], make_record(silent), make_record(make_case("gone"))])
    after = write_run([*sides[1], make_record(fresh)], [silent.id])
    for old, new in ((before, after), (after, before)):
        counts = {str(word): count for word, count in compare(side(old), side(new)).counts.items() if count}
        counts.pop("removed" if new is after else "new")
        page = browse(f"compare.html#a={old.id}&b={new.id}&q=")
        assert _told(page) == counts | ({} if new is after else {"removed": 1})
    assert "1 case of B has no counterpart in this site’s run" in page.inner_text("#between")


def test_runs_modes_and_targets_are_compared_by_a_query_in_the_address(visit) -> None:
    page = visit("compare.html")
    page.wait_for_selector("#content tbody tr")
    assert page.input_value("#q") == "differs"
    assert page.inner_text("#shown") == "2 of 3 cases"
    for query, shown in {
        "": "3 of 3 cases",
        "llama": "1 of 3 cases",
        "same": "1 of 3 cases",
        "a:PASS b:!PASS": "1 of 3 cases",
        "a:none b:failing": "1 of 3 cases",
        "a:!PASS": "0 of 3 cases",
        "became:regressed,new": "2 of 3 cases",
        "-became:regressed mode:eager": "1 of 3 cases",
        "arch:=llama verdict:numeric_mismatch": "1 of 3 cases",
    }.items():
        page.fill("#q", query)
        assert page.inner_text("#shown") == shown, query
    for wrong in ("b:!NOTHING", "became:worse", "constructor:1"):
        page.fill("#q", wrong)
        assert f"Not understood: {wrong}" in page.inner_text("#hint")
    page.fill("#q", "")
    runs = page.eval_on_selector_all("#a option", "all => all.map(one => one.value)")
    page.select_option("#a", runs[-1])
    page.select_option("#a-mode", "eager")
    page.select_option("#b-mode", "compiled")
    page.wait_for_function("document.getElementById('shown').textContent === '2 of 2 cases'")
    assert _told(page) == {"new": 1, "removed": 1}
    assert "The targets differ" in page.inner_text("#between")
    again = visit(f"compare.html{page.evaluate('location.hash')}")
    again.wait_for_function("document.getElementById('shown').textContent === '2 of 2 cases'")
    assert again.input_value("#b-mode") == "compiled"
    again.click("#swap")
    again.wait_for_function("document.getElementById('a-mode').value === 'compiled'")
    assert _told(again) == {"new": 1, "removed": 1}


def test_medians_are_of_what_passes_in_both(browse, write_run, make_case, make_record) -> None:
    names, worst = ("bert", "t5", "vit"), make_record(make_case()).worst
    write_run([make_record(make_case(name), latency_seconds=0.1) for name in names])
    errors = zip(names, (worst.error, 2 * worst.error, worst.error), strict=True)
    records = [make_record(make_case(name), worst=replace(worst, error=error)) for name, error in errors]
    write_run([*records[:2], make_record(make_case("vit"), Verdict.CRASH)])
    page = browse("compare.html#q=")
    page.wait_for_selector("#counts a")
    assert page.inner_text("#medians") == "error of B over that of A: median 1.50× of 2 cases that pass in both"


def test_an_operator_leads_to_its_cells_and_a_case_to_its_repro(visit, tmp_path: Path) -> None:
    page = visit("matrix.html#q=calls:%3Daten::gelu")
    page.wait_for_function("document.getElementById('shown').textContent === '1 of 3 models'")
    assert "bert" in page.inner_text("#rows")
    page = visit("operators.html")
    page.click("tbody >> text=aten::gelu")
    page.wait_for_function("document.getElementById('shown').textContent === '1 of 3 models'")
    page.click("#rows .cell")
    page.wait_for_selector("text=Operators named")
    assert "aten::gelu in the matrix" in page.inner_text("main")
    repro = page.get_attribute("main a[download]", "href")
    assert (tmp_path / "site" / repro).read_text() == "raise SystemExit(1)"


@pytest.mark.parametrize(
    "name", ["index.html", "matrix.html", "case", "architecture", "compare.html#q=", "operators.html", "claims.html"]
)
def test_hostile_strings_are_shown_as_text_and_pages_are_accessible(visit, name: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    matrix = visit("matrix.html")
    matrix.wait_for_selector("#rows a")
    links = matrix.eval_on_selector_all("#rows a", "all => all.map(one => one.getAttribute('href'))")
    address = next((link for link in links if link.startswith(f"{name}.html#a=x-")), name)
    for look in ({}, {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}}):
        page = visit(address, **look)
        if name != "claims.html":
            page.wait_for_function("document.querySelector('main').textContent.includes('document.title')")
        assert "pwned" not in page.title()[:5]
        assert page.query_selector("img") is None
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        found = Axe().run(page, options={"preload": False}).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], look
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), look
