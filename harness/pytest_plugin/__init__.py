"""pytest as the runner: a model list given as an argument becomes one item per case.

    pytest model_lists/smoke.csv --zoo-target tpu --zoo-mode compiled -n 2

This module is loaded into every pytest run of an environment that has the harness installed, so
it imports next to nothing and does nothing at all unless a model list is among the arguments.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HEADER_MARKS = ("model_id", "model_type", "model_class")
"""Columns by which a CSV file is taken for a model list."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("zoo", "model zoo (for model lists given as arguments)")
    group.addoption("--zoo-target", metavar="NAME", default="tpu", help="backend under test (default: tpu)")
    group.addoption(
        "--zoo-phase", metavar="PHASE", action="append", help="phase, repeatable (default: all a model has)"
    )
    group.addoption("--zoo-mode", metavar="MODE", action="append", help="mode, repeatable (default: all of the target)")
    group.addoption("--zoo-dtype", metavar="DTYPE", action="append", help="dtype, repeatable (default: float32)")
    group.addoption("--zoo-profile", metavar="NAME", action="append", help="inputs, repeatable (default: padded)")
    group.addoption("--zoo-tier", metavar="TIER", help="only the models of this tier")
    group.addoption("--zoo-select", metavar="WORD", action="append", help="only what a model name or glob names")
    group.addoption("--zoo-plan", metavar="FILE", help="exactly the cases whose ids the file lists, one a line")
    group.addoption("--zoo-shard", metavar="N/COUNT", help="record these cases as this shard of a plan")
    group.addoption("--zoo-plan-document", metavar="FILE", help="the plan that the shard belongs to")
    group.addoption("--zoo-resume", metavar="RUN", help="record into this existing run (with --zoo-plan)")
    group.addoption("--zoo-expectations", metavar="PLACE", help="folder of <target>.toml, or a file (default: shipped)")
    group.addoption("--zoo-rerun", action="store_true", help="mark the run as a rerun of a part, not a night")
    group.addoption("--zoo-one-attempt", action="store_true", help="run no unexpected failure a second time")
    group.addoption("--zoo-fault", metavar="MODULE:NAME", default="", help="break the backend on purpose")
    group.addoption("--zoo-store", metavar="DIR", help="results store (default: $ZOO_STORE or ./zoo-results)")
    group.addoption("--zoo-cache", metavar="DIR", help="cache (default: $ZOO_CACHE or the user's cache folder)")


def pytest_configure(config: pytest.Config) -> None:
    if lists := _model_lists(config):
        from harness.pytest_plugin.session import ZooSession

        zoo = ZooSession(config, lists)
        config.pluginmanager.register(zoo, ZooSession.NAME)
        if not zoo.is_worker:
            from harness.pytest_plugin.owner import RunOwner

            config.pluginmanager.register(RunOwner(zoo), RunOwner.NAME)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    session = parent.config.pluginmanager.get_plugin("zoo-session")
    return session.collector(file_path, parent) if session and file_path in session.lists else None


def _model_lists(config: pytest.Config) -> tuple[Path, ...]:
    """The arguments that are model lists, resolved, without repetition."""
    found: dict[Path, None] = {}
    for argument in config.args:
        name = argument.partition("::")[0]
        if name.endswith(".csv"):
            path = (config.invocation_params.dir / name).absolute()
            if _is_model_list(path):
                found[path] = None
    return tuple(found)


def _is_model_list(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            columns = file.readline().strip().split(",")
    except OSError:
        return False
    return all(mark in columns for mark in HEADER_MARKS)
