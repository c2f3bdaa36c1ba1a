"""One pytest session over model lists, as every process of it sees it: what is planned, and executing it.

With xdist this exists in the controller and in every worker; the controller executes nothing.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import json
import logging
import signal
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.cases import Case, Group
from harness.jobs.attempts import SAME_IN_A_ROW, Budget
from harness.jobs.memory import BadAmount, usable
from harness.jobs.zygote import die_with_parent
from harness.plan import PlanError, select
from harness.plan.peaks import predicted
from harness.pytest_plugin import report as text
from harness.pytest_plugin.collection import CaseItem, ModelList
from harness.pytest_plugin.settings import Choice, default_cache
from harness.targets.base import TargetUnavailable
from model_lists import ListError, load_list
from model_lists.expectations import ExpectationError, load_expectations
from results import StoreError, default_store

if TYPE_CHECKING:
    from harness.pytest_plugin.executor import Executor
    from harness.records import Peak, Record
    from harness.targets.base import Target
    from model_lists.expectations import Expectations
    from results.store import Run

_log = logging.getLogger(__name__)

NOTE = "note"
"""Name of a report's property that holds a line for the summary of the run."""
POINTER = "zoo_run_pointer"
"""Key of `workerinput` under which a worker finds the path of the file that will hold the run's id."""
PEAKS = "peaks.json"
"""File beside that one: memory that cases have needed."""


class ZooSession:
    """State and hooks of a session in which at least one model list was given."""

    NAME = "zoo-session"

    def __init__(self, config: pytest.Config, lists: tuple[Path, ...]) -> None:
        self.config = config
        self.lists = lists
        self.run: Run | None = None
        self._executor: Executor | None = None
        self._second_attempts = Budget()
        option = config.option
        self.choice = Choice(
            phases=option.zoo_phase,
            modes=option.zoo_mode,
            dtypes=option.zoo_dtype,
            profiles=option.zoo_profile,
            tier=option.zoo_tier,
            words=option.zoo_select or (),
            plan_file=Path(option.zoo_plan) if option.zoo_plan else None,
        )
        self.store = Path(option.zoo_store or default_store()).absolute()
        self.cache = Path(option.zoo_cache or default_cache()).absolute()

    @property
    def fault(self) -> str:
        """The fault that is put into the backend, `module:name`; empty for none."""
        return self.config.option.zoo_fault

    @property
    def is_worker(self) -> bool:
        """Whether this is an xdist worker."""
        return hasattr(self.config, "workerinput")

    @property
    def distributes(self) -> bool:
        """Whether this is the controller of xdist workers."""
        return not self.is_worker and self.config.pluginmanager.has_plugin("dsession")

    @cached_property
    def target(self) -> Target:
        """The backend under test. Raises UnknownTarget."""
        from harness.targets import resolve

        return resolve(self.config.option.zoo_target)

    @cached_property
    def expectations(self) -> Expectations:
        """What is known about the target. Raises ExpectationError."""
        folder = self.config.option.zoo_expectations
        return load_expectations(self.target.name, Path(folder)) if folder else load_expectations(self.target.name)

    @cached_property
    def cases(self) -> dict[str, Case]:
        """Every planned case by id, in plan order. Raises ListError, PlanError and UnknownTarget."""
        entries = [entry for path in self.lists for entry in load_list(path)]
        return {case.id: case for case in self.choice.cases(select(entries), self.target)}

    @cached_property
    def _owners(self) -> dict[str, Path]:
        """For each entry id the first list that has it, so that a model in two lists runs once."""
        owners: dict[str, Path] = {}
        for path in self.lists:
            for entry in load_list(path):
                owners.setdefault(entry.id, path)
        return owners

    def collector(self, path: Path, parent: pytest.Collector) -> ModelList:
        """The node of one model list."""
        node = ModelList.from_parent(parent, path=path)
        node.zoo = self
        return node

    def cases_of(self, path: Path) -> list[Case]:
        """The planned cases that belong to one of the given lists."""
        return [case for case in self.cases.values() if self._owners[case.entry.id] == path]

    def case_of(self, nodeid: str) -> Case | None:
        """The case an item's node id ends in, None for an item of another kind."""
        return self.cases.get(nodeid.partition("::")[2])

    def rerun_command(self, case: Case) -> str:
        """The shell command that runs a case again."""
        return text.rerun_command(case.id, self.config.option.zoo_target, self._owners.get(case.entry.id))

    def execute(self, item: CaseItem) -> None:
        """Run an item's case, record it, and raise the pytest outcome it deserves."""
        from harness.pytest_plugin.executor import Executor

        try:
            if self._executor is None:
                worker = self.config.workerinput["workerid"] if self.is_worker else "main"
                servers = Path(self.config.workerinput[POINTER]).parent if self.is_worker else None
                again = None if self.config.option.zoo_one_attempt else self._worth_another
                self._executor = Executor(
                    self.target, self.cache, self._opened_run(), worker, self.fault, servers, again, self._peak
                )
            record = self._executor.run(item.case)
        except (StoreError, TargetUnavailable) as error:
            item.session.shouldstop = problem = str(error)
            item.user_properties.append(("problem", problem))
        else:
            if self._second_attempts.spend(record):
                told = f"worker {record.worker} ran no more failures again: {SAME_IN_A_ROW} had failed alike both times"
                item.user_properties.append((NOTE, told))
            self._conclude(item, record)
            return
        pytest.fail(problem, pytrace=False)

    def _opened_run(self) -> Run:
        if self.run is None:
            from results import open_run

            self.run = open_run(self.store, Path(self.config.workerinput[POINTER]).read_text(encoding="utf-8"))
        return self.run

    @cached_property
    def peaks(self) -> dict[str, int]:
        """Largest memory of late, in bytes, of each planned case of which the store tells."""
        if self.is_worker:
            return json.loads((Path(self.config.workerinput[POINTER]).parent / PEAKS).read_text(encoding="utf-8"))
        from results.learned import learned

        try:
            past = learned(self.store, self.target.name)
        except StoreError as error:  # of an older run, which must not keep this one from running
            _log.warning("what memory cases need is guessed: %s", error)
            return {}
        return {case_id: past[case_id].peak for case_id in self.cases if case_id in past and past[case_id].peak}

    def _peak(self, case: Case) -> Peak:
        return predicted(case, self.peaks.get(case.id))

    def _worth_another(self, record: Record) -> bool:
        return self._second_attempts.left and self._unexpected(record)

    def _unexpected(self, record: Record) -> bool:
        from results.expected import Outcome, outcome

        about = self.expectations.about(record.case.id)
        return outcome(record.verdict, record.stage, about)[0] is not Outcome.EXPECTED

    def _conclude(self, item: CaseItem, record: Record) -> None:
        from results.expected import Outcome, outcome

        ended, expectation = outcome(record.verdict, record.stage, self.expectations.about(record.case.id))
        item.user_properties.extend(text.properties(record, ended))
        match ended:
            case Outcome.EXPECTED if record.verdict.group is Group.PASS:
                return
            case Outcome.EXPECTED:
                raise pytest.xfail.Exception(f"{record.verdict}: {expectation.reason}")
            case _:
                why = text.failure(record, ended, expectation, self.rerun_command(record.case))
                pytest.fail(why, pytrace=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Find everything wrong with what was asked before anything starts."""
        from harness.targets import UnknownTarget

        if self.is_worker and threading.current_thread() is threading.main_thread():
            # So that a controller that is told to stop can have its workers end their models' processes. SIGINT
            # would not do: shells start background jobs with it ignored.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            die_with_parent()
        try:
            if not self.is_worker:
                self.expectations.check(self.cases)
            _ = self.cases, self.expectations, usable()
            _check_fault(self.fault)
        except (ListError, PlanError, UnknownTarget, ExpectationError, BadAmount) as error:
            raise pytest.UsageError(str(error)) from error

    def pytest_sessionfinish(self) -> None:
        """End the processes of the job runner."""
        if self._executor is not None:
            self._executor.close()


def _check_fault(fault: str) -> None:
    """Raise PlanError unless `fault` is empty or names something in a module, whose text is read and not executed."""
    if not fault:
        return
    module, _, name = fault.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise PlanError(f"--fault {fault!r} is not of the form MODULE:NAME")
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise PlanError(f"--fault {fault!r}: there is no module {module}; its folder must be on PYTHONPATH")
    if not found.origin or not found.origin.endswith(".py"):
        return
    try:
        known = _names(ast.parse(Path(found.origin).read_bytes()))
    except (OSError, SyntaxError) as error:
        raise PlanError(f"--fault {fault!r}: {found.origin} cannot be read: {error}") from error
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        raise PlanError(f"--fault {fault!r}: {module} has no {name}" + (f"; did you mean {near[0]}?" if near else ""))


def _names(module: ast.Module) -> set[str]:
    """What the top of a module defines or imports."""
    found: set[str] = set()
    for node in module.body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Import() | ast.ImportFrom():
                found |= {(alias.asname or alias.name) for alias in node.names}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found
