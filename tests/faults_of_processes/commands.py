"""How these tests run the command line, and read what it left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import results

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HEADER = "model_id,revision,library,model_type,model_class,family,task,params,tier,weights,package,phases"
ROW = "hostile/{0},,transformers,{0},HostileModel,text-encoder,fill-mask,,smoke,synthetic,,"
CASE = "{0}/HostileModel/hostile/{0}/synthetic/forward/compiled/float32/{1}"
PROFILES = ("padded", "single")


def command(*arguments: object) -> list[str]:
    """The command line, in a process of its own."""
    return [sys.executable, "-m", "harness.cli", *map(str, arguments)]


def of_list(folder: Path, names: list[str]) -> list[str]:
    """Arguments of a run over one model for each name, which is made the list of `folder`."""
    (folder / "hostile.csv").write_text("\n".join([HEADER, *map(ROW.format, names), ""]))
    profiles = [word for profile in PROFILES for word in ("--profile", profile)]
    return ["--list", "hostile.csv", "--target", "cpu", "--mode", "compiled", *profiles, "--workers", "2"]


def environment(folder: Path) -> dict[str, str]:
    """Of a run of hostile jobs that is recorded in `folder`, as everything that it leaves is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ZOO_", "COV_"))}
    paths = os.pathsep.join((str(ROOT), str(HERE)))
    ours = {"PYTHONPATH": paths, "PYTEST_PLUGINS": "hostile_run", "COLUMNS": "200"}
    for name, place in {"ZOO_STORE": "store", "ZOO_CACHE": "cache", "TMPDIR": "tmp", "STRIKES": "strikes"}.items():
        ours[name] = str(folder / place)
    for made in ("tmp", "strikes"):
        (folder / made).mkdir(exist_ok=True)
    return kept | ours


def verdicts(store: Path) -> dict[str, list[str]]:
    """The verdicts of each case of the store's newest run."""
    found: dict[str, list[str]] = {}
    rows = results.load(store, runs="latest")
    for case_id, verdict in zip(rows.case_id, rows.verdict, strict=True):
        found.setdefault(case_id, []).append(verdict)
    return found
