"""`zoo bisect` with real environments, pip, and wheels of a package whose versions end otherwise; jobs are faked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile

import pytest

from results import list_runs, load, provenance_of

CASE = "alpha/AlphaModel/acme/alpha/synthetic/forward/eager/float32/padded"
ASKED = ("bisect", CASE, "--list", "models.csv", "--target", "cpu")
INSTALLED = {"*": "installed:acme_kernels"}


def wheel(folder, version, verdict, requires="", name="acme_kernels"):
    """A wheel with which a case ends so, or as a module says that it imports."""
    stem, folder = f"{name}-{version}", folder / "wheels"
    folder.mkdir(exist_ok=True)
    needs = f"Requires-Dist: {requires}\n" * bool(requires)
    files = {
        f"{name}.py": verdict if verdict.startswith("from ") else f"VERDICT = {verdict!r}\n",
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{stem}.dist-info/RECORD"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        for name, text in (files | {record: "".join(f"{name},,\n" for name in (*files, record))}).items():
            archive.writestr(name, text)


def left_in(folder):
    return [name for name in os.listdir(folder) if name.startswith("zoo-")]


@pytest.fixture
def index(tmp_path):
    """Variables with which pip knows the wheels alone, and a folder for temporary files of its own."""
    (tmp_path / "scratch").mkdir()
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "TMPDIR": str(tmp_path / "scratch")}


def test_the_version_with_which_a_case_turned_is_found(zoo, models, index, tmp_path):
    for version, verdict in enumerate(("PASS", "PASS", "NUMERIC_MISMATCH", "CRASH"), 1):
        wheel(tmp_path, version, verdict, requires="torch>=99" if version == 4 else "")
    (tmp_path / "wheels" / "acme_kernels-2-py3-none-any.whl").write_bytes(b"no wheel at all")
    ended = zoo(*ASKED, "--versions", "acme_kernels==1..4", script=INSTALLED, **index)
    assert ended.code == 0, ended.both
    assert "acme_kernels 2  skipped: pip install: " in ended.out
    assert "  pip: acme-kernels 4 has requirement torch>=99, but you have torch " in ended.out
    assert "acme_kernels 1 is the last with PASS, acme_kernels 3 the first with NUMERIC_MISMATCH\n" in ended.out
    assert "may have turned with one that could not be judged: acme_kernels 2\n" in ended.out

    rows = load(tmp_path / "store")
    facts = [provenance_of(run, tmp_path / "store") for run in rows.run_id]
    assert [one["packages"]["acme_kernels"] for one in facts] == ["1", "4", "3"]
    assert [one["bisected"]["version"] for one in facts] == ["1", "4", "3"]
    assert list(rows.verdict) == ["PASS", "CRASH", "NUMERIC_MISMATCH"]
    assert set(rows.case_id) == {CASE}
    assert all(one["settings"]["rerun"] for one in facts), "none of them is a night"
    assert not left_in(tmp_path / "scratch")


def test_wheels_that_end_alike_are_said_to_and_what_they_require_is_installed_on_demand(zoo, models, index, tmp_path):
    wheel(tmp_path, 1, "CRASH")
    wheel(tmp_path, 2, "from acme_base import VERDICT", requires="acme_base>=7")
    wheel(tmp_path, 7, "CRASH", name="acme_base")
    asked = (*ASKED, "--versions", "wheels/acme_kernels*.whl", "--dependencies")
    ended = zoo(*asked, script=INSTALLED, **index)
    assert ended.code == 1, ended.both
    assert "pip: " not in ended.out
    assert "the case ends as CRASH: it did not turn between them" in ended.out
    (one, other) = (provenance_of(run, tmp_path / "store")["bisected"] for run in list_runs(tmp_path / "store"))
    assert one["wheel"] == "acme_kernels-1-py3-none-any.whl"
    assert len(one["sha256"]) == 64
    assert one["sha256"] != other["sha256"]


def test_where_no_version_can_be_judged_the_reasons_are_told(zoo, models, index, tmp_path):
    wheel(tmp_path, 1, "PASS")
    asked = (*ASKED, "--versions", "acme_kernels==1,7")
    ended = zoo(*asked, script={"target": "unavailable"}, **index)
    assert ended.code == 2
    assert "acme_kernels 1  skipped: " in ended.out
    assert "no device here; plug one in" in ended.out
    assert "acme_kernels 7  skipped: pip install: Could not find a version that satisfies" in ended.out
    assert "0 of 2 versions could be judged" in ended.out
    (tmp_path / "acme_kernels.py").write_text("VERDICT = 'PASS'\n")
    assert f"skipped: acme_kernels 1 is hidden by {tmp_path}/acme_kernels.py: " in zoo(*asked, **index).out


def test_interrupted_it_leaves_nothing_behind(environment, models, index, tmp_path):
    for version in (1, 2):
        wheel(tmp_path, version, "hang")
    hanging, closed = tmp_path / "hanging", tmp_path / "closed"
    env = environment(INSTALLED, ZOO_FAKE_HANGING=str(hanging), ZOO_FAKE_CLOSED=str(closed), **index)
    command = [sys.executable, "-m", "harness.cli", *ASKED, "--versions", "acme_kernels==1,2"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while not hanging.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert b"Traceback" not in out
    assert "gw0" in closed.read_text(), "the worker's job runner was not closed"
    assert not left_in(tmp_path / "scratch")


@pytest.mark.parametrize(
    ("ends", "code", "told"),
    [
        ("PASS", 0, "the case passes: there is nothing to find"),
        ("CRASH in aten.gelu.default", 0, "first bad operator     aten.gelu.default\n"),
        ("CRASH", 1, "no operator is known that fails by itself: no place found"),
    ],
)
def test_without_versions_the_first_bad_place_is_named(zoo, models, tmp_path, ends, code, told):
    ended = zoo(*ASKED, script={"*": ends})
    assert ended.code == code, ended.both
    assert told in ended.out
    (run,) = list_runs(tmp_path / "store")
    assert f"run {run}\n" in ended.out


def test_what_cannot_be_bisected_is_refused_in_one_line(zoo, models, index, tmp_path):
    several = zoo("bisect", "alpha", "--list", models, "--target", "cpu")
    assert (several.code, several.err.count("\n")) == (2, 1)
    assert "'alpha' names 2 cases, and one is bisected at a time: give an id, as alpha/" in several.err
    unknown = zoo(*ASKED, "--versions", "acme-nothing==1..2", **index)
    assert (unknown.code, unknown.err.count("\n")) == (2, 1)
    assert "ERROR: pip index: No matching distribution found for acme-nothing" in unknown.err
    assert not (tmp_path / "store" / "runs").exists()
