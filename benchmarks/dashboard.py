"""How long do the pages take to build and to answer, over a large zoo?

Writes a store of `--entries` models x 8 cells x `--nights` nights as `zoo run` leaves them, builds its site in a
process of its own (imports included), and opens it from the disk in headless Chromium: when the front page can be
used, and how long the matrix and the page that compares take from a key to the next frame. Without a browser the
figures that need one are missing, and that is said. A tenth of the cases fail, with texts as long as tracebacks and
logs are.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import results
from results import schema
from results.store import sealed_path

BROWSERS = ("chromium", "google-chrome", "chrome", "chromium-browser")
MODES = ("strict-eager", "defer-and-fuse", "eager", "compiled")
DTYPES = ("float32", "bfloat16")
FAMILIES = ("decoder-dense", "text-encoder", "vision", "audio", "encoder-decoder", "vision-language")
ARCHITECTURES = 600
OPERATORS = [f"operator_{n}" for n in range(80)]

_BUILD = """
import os
import sys
from pathlib import Path
from dashboards import build
build(Path(sys.argv[1]), Path(sys.argv[2]))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) / 1000, sum(os.times()[:2]))
"""
_KEY = """
(letter) => new Promise((told) => {
  const search = document.getElementById("q"), began = performance.now();
  search.value += letter;
  search.dispatchEvent(new Event("input"));
  requestAnimationFrame(() => setTimeout(() => told(performance.now() - began)));
})
"""


def main() -> None:
    """Write the store, build the site, open it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=5000)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--keep", type=Path, help="folder to leave the store and the site in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zoo-dashboard-") as scratch:
        folder = options.keep or Path(scratch)
        _write(folder / "store", options.entries, options.nights)
        began = time.monotonic()
        arguments = [sys.executable, "-c", _BUILD, str(folder / "store"), str(folder / "site")]
        done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True)
        seconds = time.monotonic() - began
        peak, cpu = map(float, done.stdout.split())
        print(f"figure: build_seconds {seconds:.1f} s")
        print(f"{cpu:.1f} s of them on a processor: on a machine with other work the rest is waiting")
        print(f"figure: build_megabytes {peak:.0f} MB", flush=True)
        size = sum(path.stat().st_size for path in (folder / "site").rglob("*") if path.is_file())
        print(f"the site has {size / 1e6:.0f} MB")
        transferred = [folder / "site" / name for name in ("index.html", "assets/site.css", "assets/site.js")]
        front = sum(path.stat().st_size for path in [*transferred, folder / "site" / "badges" / "zoo.svg"])
        print(f"figure: front_page_kilobytes {front / 1000:.0f} kB", flush=True)
        _open(folder / "site")


def _write(store: Path, entries: int, nights: int) -> None:
    """Nights of the same cases; each night a hundred of them end otherwise than before."""
    random = np.random.default_rng(0)
    parts = [
        (f"arch{n % ARCHITECTURES}", f"Arch{n % ARCHITECTURES}ForCausalLM", f"acme/model-{n}", mode, dtype, n)
        for n in range(entries)
        for mode in MODES
        for dtype in DTYPES
    ]
    ids = [f"{t}/{c}/{m}/synthetic/forward/{mode}/{dtype}/padded" for t, c, m, mode, dtype, _ in parts]
    cases = len(ids)
    same = {
        "case_id": pa.array(ids),
        "entry_id": pa.array([case_id.rsplit("/", 4)[0] for case_id in ids]),
        "model_type": pa.array([part[0] for part in parts]),
        "model_class": pa.array([part[1] for part in parts]),
        "model_id": pa.array([part[2] for part in parts]),
        "family": pa.array([FAMILIES[part[5] % ARCHITECTURES % len(FAMILIES)] for part in parts]),
        "mode": pa.array([part[3] for part in parts]),
        "dtype": pa.array([part[4] for part in parts]),
        "operators": pa.array([" ".join(OPERATORS[part[5] % 7 :: 2]) for part in parts]),
        "structure_sha256": pa.array([f"{n:064x}" for n in range(cases)]),
    }
    words = {"library": "transformers", "task": "text-generation", "weights": "synthetic", "phases": "forward",
             "phase": "forward", "profile": "padded", "target": "tpu", "evidence": "architecture-default",
             "stage": "compare", "tier": "full", "recorded_at": "2026-11-30T01:00:00+00:00"}  # fmt: skip
    known = schema.arrow_schema()
    for column in known:
        if column.name in same:
            continue
        if column.name in words:
            same[column.name] = pa.array([words[column.name]] * cases)
        elif pa.types.is_floating(column.type):
            same[column.name] = pa.array(random.lognormal(0, 1, cases))
        elif pa.types.is_integer(column.type):
            same[column.name] = pa.array(random.integers(0, 2**30, cases))
        elif pa.types.is_boolean(column.type):
            same[column.name] = pa.array(np.zeros(cases, bool))
        elif pa.types.is_string(column.type):
            same[column.name] = pa.array([""] * cases)
        else:
            same[column.name] = pa.array([[2, 7, 32]] * cases)
    fails = random.random(cases) < 0.1
    kinds = random.integers(0, 40, cases)
    for _ in range(nights):
        fails[random.integers(0, cases, 100)] ^= True
        run = results.create_run(store, {"settings": {"target": "tpu", "tier": "full"}, "emulated": False}, ids)
        text = "Traceback (most recent call last)\n" + "  File model.py, line 17, in forward\n" * 80
        columns = same | {
            "run_id": pa.array([run.id] * cases),
            "verdict": pa.array(np.where(fails, "UNSUPPORTED_OP", "PASS")),
            "group": pa.array(np.where(fails, "backend", "pass")),
            "message": pa.array(np.where(fails, [f"aten::op{k}.out is not implemented" for k in kinds], "")),
            "detail": pa.array([f"{text}{n}" if f else "" for n, f in enumerate(fails)]),
            "log": pa.array([f"warning {n}\n" * (100 if f else 10) for n, f in enumerate(fails)]),
            "worst_ratio": pa.array(random.lognormal(-2, 0.3, cases), mask=fails),
            "latency_seconds": pa.array(random.lognormal(-3, 1, cases), mask=fails),
        }
        table = pa.Table.from_arrays([columns[field.name].cast(field.type) for field in known], schema=known)
        parquet.write_table(table, sealed_path(run), compression="zstd")


def find_browser() -> str | None:
    """Path of a Chromium: what `ZOO_BROWSER` says, or else what is installed."""
    return next(filter(None, [os.environ.get("ZOO_BROWSER"), *map(shutil.which, BROWSERS)]), None)


def _open(site: Path) -> None:
    browser = find_browser()
    if browser is None:
        print(f"no browser here ({', '.join(BROWSERS)}, or ZOO_BROWSER): nothing was opened, three figures are missing")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        times = []
        for _ in range(5):
            page = chromium.new_page()
            page.goto((site / "index.html").as_uri())
            times.append(page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd") / 1000)
            page.close()
        print(f"figure: interactive_seconds {statistics.median(times):.3f} s")
        page = chromium.new_page()
        for address, typed, figure in (
            ("matrix.html", "arch:arch7 mode:compiled status:failing", "filter_milliseconds"),
            ("compare.html#q=", "arch:arch7 mode:compiled became:fixed", "compare_filter_milliseconds"),
        ):
            page.goto(f"{site.resolve().as_uri()}/{address}")
            page.wait_for_function("document.getElementById('shown').textContent !== ''")
            keys = [page.evaluate(_KEY, letter) for letter in typed]
            print(f"figure: {figure} {max(keys):.0f} ms")
            print(f"of {len(keys)} keys, median {statistics.median(keys):.0f} ms; now: {page.inner_text('#shown')}")
        chromium.close()


if __name__ == "__main__":
    main()
