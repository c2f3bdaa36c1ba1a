"""The account of what became of the cases of each scenario.

`pytest tests/faults_of_processes` prints it as a table, and its sums as figures; `--kills N` adds N runs of the real
backend that are killed at a random moment (`test_random_kills.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

OF_KILLS = "test_random_kills.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=0, help="runs of the real backend to kill at a random moment")
    parser.addoption("--kills-seed", type=int, default=0, help="of the moments and the victims")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return (collection_path.name == OF_KILLS and not config.getoption("--kills", 0)) or None


@pytest.fixture
def account(request: pytest.FixtureRequest):
    """`account(expected, found, verdict)` notes what was lost, duplicated and wrong, and asserts that nothing was.

    `expected` has the verdict that each case must have, `found` those that it has; `verdict` is what the table says.
    """

    def account(expected: Mapping[str, str], found: Mapping[str, list[str]], verdict: str) -> None:
        lost = sorted(expected.keys() - found.keys())
        duplicated = sorted(case for case, rows in found.items() if len(rows) > 1)
        wrong = {case: rows for case, rows in found.items() if set(rows) - {expected.get(case)}}
        name = request.node.callspec.id if hasattr(request.node, "callspec") else request.node.name
        told = [name.removeprefix("test_"), str(verdict), len(lost), len(duplicated), len(wrong)]
        request.node.user_properties.append(("account", told))
        assert (lost, duplicated, wrong) == ([], [], {})

    return account


def pytest_terminal_summary(terminalreporter) -> None:
    reports = [report for word in ("passed", "failed") for report in terminalreporter.stats.get(word, ())]
    told = [value for report in reports for name, value in report.user_properties if name == "account"]
    if not told:
        return
    sums: Counter[str] = Counter()
    width = max(len(name) for name, *_ in told)
    terminalreporter.section("scenarios")
    terminalreporter.line(f"{'scenario':{width}}  {'verdict':16}  lost  duplicated")
    for name, verdict, lost, duplicated, wrong in told:
        terminalreporter.line(f"{name:{width}}  {verdict:16}  {lost:4}  {duplicated:10}")
        sums.update(lost_rows=lost, duplicated_rows=duplicated, wrong_verdicts=wrong)
    for figure, count in {"scenarios": len(told), **sums}.items():
        terminalreporter.line(f"figure: {figure} {count} count")
