"""The process that owns a run: it creates and seals the run, and answers for every planned case.

That is the xdist controller, or the only process where there are no workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cases import Case, Stage, Verdict
from harness.plan import PlanError, digest
from harness.pytest_plugin import report as text
from harness.pytest_plugin.collection import CaseItem
from harness.pytest_plugin.ending import conclude, idle_expectations, idle_line
from harness.pytest_plugin.session import NOTE, PEAKS, POINTER
from harness.pytest_plugin.settings import read_plan
from harness.records import Record, recorded_target
from harness.scratch import scratch
from results import StoreError, create_run, missing, open_run, schema, seal
from results.expected import outcome
from results.files import write_atomically
from results.provenance import collect

if TYPE_CHECKING:
    from harness.pytest_plugin.session import ZooSession
    from model_lists.expectations import Expectation

_MISSING_NAMED = 20


class RunOwner:
    """Hooks of the process that owns the run of a `ZooSession`."""

    NAME = "zoo-run-owner"

    def __init__(self, zoo: ZooSession) -> None:
        self.zoo = zoo
        self.missing: list[str] = []
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.never_matching: tuple[Expectation, ...] = ()
        self._own = ExitStack()
        self._handoff: Path | None = None

    # Registered after ZooSession, so among the hooks that run first this one would precede its checks.
    def pytest_sessionstart(self) -> None:
        """Open the run that is resumed, before any worker starts."""
        if self.zoo.config.option.collectonly:
            return
        try:
            if self.zoo.config.option.zoo_resume:
                self._resume(self.zoo.config.option.zoo_resume)
        except StoreError as error:
            raise pytest.UsageError(str(error)) from error
        if self.zoo.distributes:
            self._handoff = self._own.enter_context(scratch())

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where it will find the run, which is created once the plan is final."""
        if self._handoff is not None:
            node.workerinput[POINTER] = str(self._handoff / "run")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep the cases of a model together, unless another distribution was asked for by name."""
        if config.getoption("dist") != "load":
            return None
        from harness.pytest_plugin.scheduling import EntryScheduling

        return EntryScheduling(config, log, self._entry_of, self._on_again)

    def _on_again(self, nodeid: str, node: Any) -> None:
        case = self.zoo.case_of(nodeid)
        self.notes.append(
            f"the worker process {node.gateway.id} died while it ran {case.id if case else nodeid}:"
            " another one ran it again"
        )

    def _entry_of(self, nodeid: str) -> str | None:
        case = self.zoo.case_of(nodeid)
        return case.entry.id if case else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """The first worker's collection, after `-k` and the like, is the plan."""
        # Once is enough: who takes a dead worker's place collects again, while others read what was left here.
        if self._handoff is None or (self._handoff / "run").exists():
            return
        if self.zoo.run is None:
            self._create([case for nodeid in ids if (case := self.zoo.case_of(nodeid))])
        if self.zoo.run is not None:
            write_atomically(self._handoff / PEAKS, json.dumps(self.zoo.peaks), durable=False)
            write_atomically(self._handoff / "run", self.zoo.run.id, durable=False)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers, what is left after deselection is the plan."""
        if not (self.zoo.distributes or self.zoo.config.option.collectonly or self.zoo.run):
            self._create([item.case for item in session.items if isinstance(item, CaseItem)])

    def _create(self, cases: Sequence[Case]) -> None:
        if not cases:
            return
        settings = {
            "target": recorded_target(self.zoo.target.name, self.zoo.fault),
            "tiers": _distinct(case.entry.tier for case in cases),
            "phases": _distinct(case.phase for case in cases),
            "modes": _distinct(case.mode for case in cases),
            "dtypes": _distinct(case.dtype for case in cases),
            "profiles": _distinct(case.profile for case in cases),
            "rerun": self.zoo.config.option.zoo_rerun,
            "fault": self.zoo.fault,
            "cases": len(cases),
            "plan_sha256": digest(cases),
        }
        try:
            document = self._sharding(settings)
            facts = collect(self.zoo.lists, settings)
            facts["emulated"] = self.zoo.target.emulated
            self.zoo.run = create_run(self.zoo.store, facts, [case.id for case in cases], document)
        except (StoreError, PlanError) as error:
            raise pytest.UsageError(str(error)) from error

    def _sharding(self, settings: dict[str, Any]) -> str | None:
        """Text of the plan that the run is a shard of, after adding what identifies both; None where it is none."""
        option = self.zoo.config.option
        if not option.zoo_plan_document:
            return None
        text, plan = read_plan(Path(option.zoo_plan_document))
        settings |= {
            "plan_id": plan.id,
            "planned_at": plan.planned_at,
            "shard": option.zoo_shard,
            "filled_shards": len({case.shard for case in plan.cases}),
            "left_out": len(plan.left_out),
        }
        return text

    def _resume(self, run_id: str) -> None:
        run = open_run(self.zoo.store, run_id)
        if strangers := set(self.zoo.cases) - set(run.planned):
            raise StoreError(
                f"{min(strangers)} is not in the plan of run {run.id}; name its missing cases in --zoo-plan"
            )
        if (known := run.provenance.get("settings", {}).get("fault") or "") != self.zoo.fault:
            began = f"the fault {known}" if known else "no fault"
            raise StoreError(f"run {run.id} began with {began}: it must go on like that")
        self.zoo.run = run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a worker has to say about the run."""
        if report.when == "call":
            self.notes += [value for name, value in report.user_properties if name == NOTE]

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """A second worker died on a case: record it, unless the worker did so with its last breath."""
        case = self.zoo.case_of(crashitem)
        if case is None or self.zoo.run is None:
            return
        report.when = "call"
        report.location = (report.location[0], None, case.id)
        worker = report.node.gateway.id
        try:
            if case.id not in missing(self.zoo.run):
                return
            record = Record(
                case=case,
                target=recorded_target(self.zoo.target.name, self.zoo.fault),
                emulated=self.zoo.target.emulated,
                verdict=Verdict.HARNESS_ERROR,
                stage=self._last_stage(worker, case),
                message=f"the worker process {worker} died while it ran this case",
                worker="controller",
            )
            with self.zoo.run.journal("controller") as journal:
                journal.append(schema.row(record, self.zoo.run.id))
        except StoreError as error:
            self.problems.append(f"{case.id} has no record: {error}")
            return
        ended, expectation = outcome(record.verdict, record.stage, self.zoo.expectations.about(case.id))
        report.user_properties.extend(text.properties(record, ended))
        report.longrepr = text.failure(record, ended, expectation, self.zoo.rerun_command(case))

    def _last_stage(self, worker: str, case: Case) -> Stage:
        """The stage a dead worker announced last for this case."""
        said = self.zoo.run.live().get(worker, {}) if self.zoo.run else {}
        return Stage(said["stage"]) if said.get("case") == case.id else Stage.IMPORT

    # Last, because xdist waits for its workers in this hook.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Seal the run; a planned case without a result fails the session."""
        if self.zoo.run is None:
            return
        try:
            seal(self.zoo.run)
            self.missing = missing(self.zoo.run)
            conclude(self.zoo.run, self.zoo.target, self.zoo.expectations)
            self.never_matching = idle_expectations(
                self.zoo.run, self.zoo.target, self.zoo.expectations, self.zoo.lists
            )
        except StoreError as error:
            self.problems.append(f"the run could not be sealed: {error}")
        if (self.missing or self.problems or self.never_matching) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say where the results are, and name what is missing."""
        if self.zoo.run is not None:
            terminalreporter.section("model zoo")
            for line in self.summary():
                terminalreporter.line(line)

    def summary(self) -> list[str]:
        """Lines for people: the run, and every planned case without a result."""
        run = self.zoo.run
        if run is None:
            return []
        lines = [f"run {run.id} on {self.zoo.target.name}, results in {run.path}", *self.notes, *self.problems]
        if self.zoo.fault:
            lines.append(f"the backend was broken on purpose with {self.zoo.fault}: this says nothing about it")
        lines += map(idle_line, self.never_matching)
        if self.missing:
            lines.append(
                f"{len(self.missing)} of {len(run.planned)} planned cases have no result"
                f" (`zoo run --resume {run.id}` runs them):"
            )
            lines += [f"  missing {case_id}" for case_id in self.missing[:_MISSING_NAMED]]
            if len(self.missing) > _MISSING_NAMED:
                lines.append(f"  and {len(self.missing) - _MISSING_NAMED} more")
        return lines

    def pytest_unconfigure(self) -> None:
        """Remove what only this session's processes needed."""
        self._own.close()


def _distinct(words: Iterable[str]) -> list[str]:
    """Each word once, as plain strings, in the order of first occurrence."""
    return list(dict.fromkeys(str(word) for word in words))
