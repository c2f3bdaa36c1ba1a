"""Shows a run while it goes on: a live display on a terminal, one line per finished case elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.cli.style import duration, verdict_style
from harness.plan import FIELDS_AFTER_ENTRY
from results import StoreError

if TYPE_CHECKING:
    from harness.pytest_plugin.owner import RunOwner
    from harness.pytest_plugin.session import ZooSession

_REFRESHES_PER_SECOND = 4


class Reporter:
    """A pytest plugin that takes the terminal reporter's place."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.console = Console()
        self.session: ZooSession | None = None
        self.owner: RunOwner | None = None
        self.interrupted = False
        self.problems: list[str] = []
        self._verdicts: Counter[str] = Counter()
        self._started = time.monotonic()
        self._nodes: dict[str, Any] = {}
        self._live: Live | None = None

    @property
    def done(self) -> int:
        """Cases that have ended."""
        return self._verdicts.total()

    # Among the hooks that run last, those of plugins registered earlier run first: pytest's own terminal
    # reporter is there by now, and xdist has not looked for it yet.
    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        manager = config.pluginmanager
        manager.unregister(manager.get_plugin("terminalreporter"))
        self.session = manager.get_plugin("zoo-session")
        self.owner = manager.get_plugin("zoo-run-owner")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Any:
        if not self.console.is_terminal:
            return (yield)
        with Live(get_renderable=self._render, console=self.console, refresh_per_second=_REFRESHES_PER_SECOND) as live:
            self._live = live
            return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        self._nodes[node.gateway.id] = node

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        self._nodes.pop(node.gateway.id, None)
        if error and not self.interrupted and error != "keyboard-interrupt":
            self.console.print(Text(f"worker {node.gateway.id} died and is replaced", style="yellow"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        facts = dict(report.user_properties)
        if report.when != "call" and not report.failed:
            return
        verdict = facts.get("verdict")
        if verdict is None:
            self.problems.append(facts.get("problem") or " ".join(report.longreprtext.split()))
            return
        self._verdicts[verdict] += 1
        if self._live is None or facts.get("outcome") != "expected":
            self.console.print(self._line(report.nodeid.partition("::")[2], verdict, facts), soft_wrap=True)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(" ".join(report.longreprtext.split()))

    def pytest_internalerror(self, excrepr: Any) -> None:
        self.problems.append(str(excrepr))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # xdist ends a run that was told to stop early with a subclass of KeyboardInterrupt.
        self.interrupted = excinfo.type is KeyboardInterrupt

    def _line(self, case_id: str, verdict: str, facts: dict[str, str]) -> Text:
        width = len(str(self.total))
        line = Text(f"[{self.done:>{width}}/{self.total}] ", style="dim")
        line.append(verdict, verdict_style(verdict))
        if facts.get("outcome") != "expected" or verdict != "PASS":
            line.append(f" ({facts.get('outcome')})")
        line.append(f"  {case_id}", "default")
        if ratio := facts.get("worst_ratio"):
            line.append(f"  error {ratio} x allowed", "dim")
        if verdict != "PASS" and facts.get("message"):
            line.append(f"  {facts['stage']}: {facts['message']}")
        return line

    def _render(self) -> Group:
        elapsed = time.monotonic() - self._started
        left = f"{duration(elapsed / self.done * (self.total - self.done))} left" if self.done else "estimating"
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(f"{self.done}/{self.total}"),
            ProgressBar(total=max(self.total, 1), completed=self.done, width=30),
            Text(f"{duration(elapsed)} elapsed, {left}"),
        )
        counts = Text()
        for verdict, number in self._verdicts.most_common():
            counts.append(f"{verdict} {number}   ", verdict_style(verdict))
        return Group(head, counts, self._workers())

    def _workers(self) -> Table:
        table = Table.grid(padding=(0, 2))
        try:
            states = self.session.run.live() if self.session and self.session.run else {}
        except StoreError:
            states = {}
        now = time.time()
        for worker in sorted(self._nodes):
            state = states.get(worker) or {}
            if not state.get("case"):
                table.add_row(Text(worker, style="dim"), Text("idle", style="dim"))
                continue
            entry, _phase, mode, dtype, _profile = state["case"].rsplit("/", FIELDS_AFTER_ENTRY)
            seconds = duration(now - state.get("since", now))
            doing = Text.assemble((mode, "cyan"), " ", (dtype, "dim"), " ", str(state.get("stage")), f" {seconds}")
            table.add_row(Text(worker, style="dim"), Text(entry, overflow="ellipsis", no_wrap=True), doing)
        return table
