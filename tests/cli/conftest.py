"""Runs the real command line and the real pytest in processes of their own, over a fake job runner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_list import HEADER, MODELS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Ended:
    """A finished process."""

    code: int
    out: str
    err: str

    @property
    def both(self) -> str:
        return self.out + self.err


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A small model list: alpha and beta in tier smoke, gamma in tier nightly."""
    path = tmp_path / "models.csv"
    path.write_text("\n".join((HEADER, *MODELS, "")), encoding="utf-8")
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Environment of a child process whose job runner follows a script (see `zoo_fakes`)."""

    def make(script: Mapping[str, str] | None = None, plugins: str = "zoo_fakes", **extra: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ZOO_", "COV_"))}
        return kept | {
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE))),
            "PYTEST_PLUGINS": plugins,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "ZOO_FAKE": json.dumps(script or {}),
            "ZOO_STORE": str(tmp_path / "store"),
            "ZOO_CACHE": str(tmp_path / "cache"),
            "COLUMNS": "200",
            **extra,
        }

    return make


@pytest.fixture
def zoo(tmp_path: Path, environment: Callable[..., dict[str, str]]) -> Callable[..., Ended]:
    """`zoo("run", "--tier", "smoke", script={...})` runs the command line to its end."""

    def run(*arguments: object, script: Mapping[str, str] | None = None, **extra: str) -> Ended:
        command = [sys.executable, "-m", "zoo_fakes", *map(str, arguments)]
        return _finish(command, tmp_path, environment(script, **extra))

    return run


@pytest.fixture
def run_pytest(tmp_path: Path, environment: Callable[..., dict[str, str]]) -> Callable[..., Ended]:
    """`run_pytest("models.csv", "-n2", script={...})` runs pytest with our plugin to its end."""

    def run(
        *arguments: object,
        script: Mapping[str, str] | None = None,
        plugins: str = "xdist.plugin,harness.pytest_plugin,zoo_fakes",
        **extra: str,
    ) -> Ended:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *map(str, arguments)]
        return _finish(command, tmp_path, environment(script, plugins, **extra))

    return run


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Verdict by case id of the newest run in the store."""

    def read() -> dict[str, str]:
        from results import latest
        from results.store import read as read_run

        table = read_run(latest(tmp_path / "store"))[0]
        return dict(zip(table["case_id"].to_pylist(), table["verdict"].to_pylist(), strict=True))

    return read


@pytest.fixture
def night(tmp_path: Path) -> Callable[..., str]:
    """A run of the store, given by what each case's row says beside its id."""
    import results
    from results import schema

    def make(
        cases: dict[str, dict[str, object]], *, target: str = "cpu", planned: tuple[str, ...] = (), **facts
    ) -> str:
        given = {"settings": {"target": target}, "packages": {"torch": "2.13.0"}, "emulated": False, **facts}
        run = results.create_run(tmp_path / "store", given, [*cases, *planned])
        empty = {column.name: None for column in schema.COLUMNS}
        with run.journal("gw0") as journal:
            for case_id, said in cases.items():
                known = {"run_id": run.id, "schema_version": 1, "case_id": case_id, "stage": "compare"}
                journal.append(
                    empty | known | {"target": target, "recorded_at": "2026-11-30", "verdict": "PASS"} | said
                )
        results.seal(run)
        return run.id

    return make


def _finish(command: list[str], folder: Path, env: dict[str, str]) -> Ended:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    return Ended(done.returncode, done.stdout, done.stderr)
