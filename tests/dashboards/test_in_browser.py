from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import dashboards
from harness.cases import Mode, Verdict

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
def visit(chromium: Any, tmp_path: Path, write_run, make_case, make_record) -> Iterator[Callable[..., Any]]:
    """Opens a page of a site of two nights from the disk; at the end no page may have written an error."""
    evil = make_case(model_type=EVIL, model_class=EVIL, model_id=EVIL, family=EVIL, task=EVIL)
    cases = {name: make_case(name, mode) for name, mode in (("bert", Mode.EAGER), ("llama", Mode.COMPILED))}
    write_run([make_record(case) for case in cases.values()])
    broken = {"message": EVIL, "detail": EVIL, "log": EVIL, "signal": EVIL, "attempts": EVIL}
    write_run(
        [
            make_record(cases["bert"]),
            make_record(cases["llama"], Verdict.NUMERIC_MISMATCH),
            make_record(evil, Verdict.CRASH, **broken),
        ]
    )
    dashboards.build(tmp_path / "store", tmp_path / "site")
    context, errors = chromium.new_context(), []

    def go(page: str) -> Any:
        opened = context.new_page()
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        opened.goto(f"{(tmp_path / 'site').as_uri()}/{page}")
        return opened

    yield go
    context.close()
    assert errors == []


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


@pytest.mark.parametrize("name", ["index.html", "matrix.html", "case", "architecture"])
def test_hostile_strings_are_shown_as_text_and_pages_are_accessible(visit, name: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    matrix = visit("matrix.html")
    links = matrix.eval_on_selector_all("#rows a", "all => all.map(one => one.getAttribute('href'))")
    page = visit(next((link for link in links if link.startswith(f"{name}.html#a=x-")), name))
    page.wait_for_function("document.querySelector('main').textContent.includes('document.title')")
    assert "pwned" not in page.title()[:5]
    assert page.query_selector("img") is None
    found = Axe().run(page, options={"preload": False}).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
