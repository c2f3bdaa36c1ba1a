"""Runs cases in the process that pytest runs in: one job runner, one journal, one sign of life."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import jobs
from harness.cases import Case, Stage, Verdict
from harness.hub.at_hand import at_hand
from harness.hub.index import Unfetched
from harness.records import Peak, Record, recorded_target
from harness.targets.base import TargetUnavailable
from results import StoreError, schema

if TYPE_CHECKING:
    from harness.targets.base import Target
    from results.store import Run


class Executor:
    """Executes cases one after another and records each before the next.

    `worker` names this process in records, in its journal and in its announcements; `servers` is the
    folder in which the workers of a run find the servers they share; `again` says which failures are worth a second
    attempt, and `peak` what memory a case needs, see `JobRunner`.
    """

    def __init__(
        self,
        target: Target,
        cache: Path,
        run: Run,
        worker: str,
        fault: str,
        servers: Path | None,
        again: Callable[[Record], bool] | None,
        peak: Callable[[Case], Peak],
    ) -> None:
        self._target = target
        self._cache = cache
        self._recorded = recorded_target(target.name, fault)
        self._run = run
        self._worker = worker
        self._stage = Stage.IMPORT
        self._journal = run.journal(worker)
        self._described = False
        self._runner: Any = jobs.JobRunner(
            target,
            cache,
            worker=worker,
            on_stage=self._on_stage,
            fault=fault,
            servers=servers,
            again=again,
            peak=peak,
        )

    def run(self, case: Case) -> Record:
        """Execute a case and put its record on disk.

        Raises StoreError where that is impossible, and TargetUnavailable where there is nothing to execute on.
        """
        self._on_stage(case, Stage.IMPORT)
        try:
            record = self._ran(case)
        except TargetUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary where a failing harness becomes data
            record = self._failed(case, error)
        record = dataclasses.replace(record, target=self._recorded)
        self._journal.append(schema.row(record, self._run.id))
        if self._runner.facts and not self._described:
            self._run.amend({"target": self._runner.facts})
            self._described = True
        self._announce({})
        return record

    def _ran(self, case: Case) -> Record:
        """Run a case, with what `zoo prefetch` fetched if its model needs that, or record why it is not there."""
        try:
            with at_hand(case.entry, self._cache) as entry:
                record = self._runner.run(dataclasses.replace(case, entry=entry))
        except Unfetched as no:
            return self._ended(case, no.verdict, Stage.FETCH, str(no))
        # Where on this machine its config lies is nothing that a row tells.
        told = dataclasses.replace(case.entry, revision=entry.revision)
        return dataclasses.replace(record, case=dataclasses.replace(case, entry=told))

    def close(self) -> None:
        """End the job runner's processes and let go of the journal."""
        self._runner.close()
        self._journal.close()

    def _on_stage(self, case: Case, stage: Stage) -> None:
        self._stage = stage
        self._announce({"case": case.id, "stage": stage.value, "since": time.time()})

    def _announce(self, state: dict[str, Any]) -> None:
        # Announcements are for people who watch; a full disk must show in the journal, not here.
        with contextlib.suppress(StoreError):
            self._run.announce(self._worker, state)

    def _failed(self, case: Case, error: Exception) -> Record:
        message = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        record = self._ended(case, Verdict.HARNESS_ERROR, self._stage, message)
        return dataclasses.replace(record, detail="".join(traceback.format_exception(error)))

    def _ended(self, case: Case, verdict: Verdict, stage: Stage, message: str) -> Record:
        return Record(
            case=case,
            target=self._recorded,
            emulated=self._target.emulated,
            verdict=verdict,
            stage=stage,
            message=message,
            worker=self._worker,
        )
