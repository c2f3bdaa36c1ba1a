"""Pictures of a site's pages, as docs/img/ has them: `zoo dashboard --out site`, then this over the folder.

Without `--case` and `--architecture` those are the first that do not pass, or else the first of all.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dashboard import find_browser

SIZES = {"wide": (1280, 720), "phone": (390, 844)}
WORST_OF = """
() => {
  const links = [...document.querySelectorAll("#rows .line:not(.title)")];
  const line = links.find((one) => one.querySelector(".cell.backend")) || links[0];
  return [line.querySelector(".name a"), line.querySelector(".cell.backend") || line.querySelector(".cell")]
    .map((link) => link.getAttribute("href"));
}
"""


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, help="folder that `zoo dashboard` wrote")
    parser.add_argument("out", type=Path, help="folder for the pictures")
    parser.add_argument("--size", choices=SIZES, default="wide")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--whole", action="store_true", help="each page to its end, not only what fits the window")
    for name in ("architecture", "case", "compare"):
        parser.add_argument(f"--{name}", default="", help="address of that page, after its #")
    options = parser.parse_args()
    browser = find_browser()
    if browser is None:
        parser.error("no browser here: install Chromium or set ZOO_BROWSER")
    from playwright.sync_api import sync_playwright

    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        width, height = SIZES[options.size]
        scheme = "dark" if options.dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        for name, address in _pages(context, options).items():
            page = _opened(context, options.site, address)
            page.screenshot(path=options.out / f"{name}.png", full_page=options.whole)
            print(name, (options.out / f"{name}.png").stat().st_size // 1000, "kB")
            page.close()
        chromium.close()


def _opened(context: Any, site: Path, address: str) -> Any:
    page = context.new_page()
    page.goto(f"{site.resolve().as_uri()}/{address}")
    page.wait_for_function("!document.querySelector('main').textContent.includes('Loading…')")
    return page


def _pages(context: Any, options: argparse.Namespace) -> dict[str, str]:
    """What to take a picture of: for each its name and address."""
    matrix = _opened(context, options.site, "matrix.html#sort=failures&group=")
    matrix.wait_for_selector("#rows .cell")
    architecture, case = matrix.evaluate(WORST_OF)
    return {
        "front": "index.html",
        "matrix": "matrix.html#sort=failures&group=",
        "architecture": f"architecture.html#{options.architecture}" if options.architecture else architecture,
        "case": f"case.html#{options.case}" if options.case else case,
        "compare": f"compare.html#{options.compare}",
        "operators": "operators.html",
        "claims": "claims.html",
    }


if __name__ == "__main__":
    main()
