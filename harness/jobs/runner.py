"""Runs cases, one after the other, each in processes of its own, and turns whatever happens into a record."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from harness.cases import Case, Stage, Verdict
from harness.jobs import attempts, device_lock, outcomes
from harness.jobs.attempts import WRONG
from harness.jobs.explaining import Explainer, is_local
from harness.jobs.lost_device import Streak
from harness.jobs.memory import TooLarge, require
from harness.jobs.prepared import Prepared
from harness.jobs.processes import Processes
from harness.jobs.references import References
from harness.jobs.supervisor import JobTaken, Limits, ServerFailed
from harness.jobs.twins import Twins
from harness.records import Peak, Record
from harness.scratch import scratch
from harness.targets.base import Target, TargetUnavailable

PROBE_SECONDS = 20.0
"""How long a probe waits for a device that others have: somebody is watching."""


class JobRunner:
    """Runs cases on one target from one worker process, which itself imports no torch.

    `fault` names a `module:function` that is called in the process of each case before the model is
    loaded, to break the backend there on purpose.

    `again` says of a failure whether it is worth finding out more: by a second attempt in a fresh process, where that
    may end otherwise at all (`harness/jobs/attempts.py`), and by seeking the operator that fails first. None: there
    are no second attempts, and the operator is always sought.

    `peak` predicts the memory that a case needs; no more jobs run side by side, on all of the machine, than have enough
    of it, and one that needs more than there can be ends as TOO_LARGE before it starts.

    `patience` is for how many seconds a device is waited for that others have; once in vain, and no more then.

    `servers` is a private folder that the runners of a run have in common, to share their servers. Use as a context
    manager.
    """

    def __init__(
        self,
        target: Target,
        cache: Path,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        seed: int = 0,
        worker: str = "main",
        on_stage: Callable[[Case, Stage], None] | None = None,
        fault: str = "",
        servers: Path | None = None,
        again: Callable[[Record], bool] | None = None,
        peak: Callable[[Case], Peak] = lambda case: Peak(0),
        patience: float = device_lock.WAIT_SECONDS,
    ) -> None:
        self.again = again
        self._target, self._worker, self._peak = target, worker, peak
        self._on_stage = on_stage or (lambda case, stage: None)
        self._own = ExitStack()
        folder = servers or self._own.enter_context(scratch())
        self.processes = Processes(
            target,
            cache,
            folder,
            limits=limits,
            seed=seed,
            fault=fault,
            patience=device_lock.Patience(str(folder), patience),
            peak=peak,
            on_stage=self._on_stage,
        )
        self.references = References(self.processes)
        self._explainer = Explainer(self.processes, self._execute)
        self._twins = Twins(folder)
        self._streak = Streak()
        self._lost = ""

    def __enter__(self) -> JobRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._own.close()

    def close(self) -> None:
        """End every process this runner has started."""
        self.processes.close()

    @property
    def facts(self) -> dict[str, str] | None:
        """The provenance of what executes, None until it has executed something."""
        return self.processes.facts

    def describe(self) -> dict[str, str]:
        """Provenance of what executes, after it has been proved to. Raises TargetUnavailable and DeviceBusy."""
        return self.processes.describe()

    def run(self, case: Case) -> Record:
        """Run one case to its record, whatever a model or a backend does meanwhile.

        Raises TargetUnavailable where the target cannot be loaded or executes nothing at all.
        """
        started, clock = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
        record = Record(case, self._target.name, self._target.emulated, Verdict.HARNESS_ERROR, Stage.IMPORT)
        try:
            try:
                require(self._peak(case), self._target)
                self.processes.start()
                record = self._judged(record)
            except ServerFailed as failed:  # which says nothing about this case
                self.close()
                self.processes.start()
                again = self._judged(record)
                if isinstance(failed, JobTaken):
                    taken = dataclasses.replace(record, stage=failed.stage, message=str(failed))
                    again = attempts.repeated(taken, again)
                record = again
        except TooLarge as large:
            record = dataclasses.replace(record, verdict=Verdict.TOO_LARGE, message=str(large))
        except device_lock.DeviceBusy as busy:
            record = dataclasses.replace(record, verdict=Verdict.DEVICE_BUSY, message=str(busy))
        except ServerFailed as failed:
            stage = failed.stage if isinstance(failed, JobTaken) else record.stage
            record = dataclasses.replace(record, stage=stage, message=str(failed), log=failed.log)
            self.close()
        return dataclasses.replace(
            record,
            seed=self.processes.seed,
            worker=self._worker,
            started_at=started,
            wall_seconds=time.monotonic() - clock,
        )

    def _judged(self, record: Record) -> Record:
        case, fault = record.case, self.processes.fault
        if self._lost:
            return dataclasses.replace(record, verdict=Verdict.BACKEND_UNAVAILABLE, message=self._lost)
        self._on_stage(case, Stage.IMPORT)
        prepared = self.references.of(case)
        record = dataclasses.replace(record, **prepared.facts, seconds=prepared.seconds)
        if prepared.verdict is not None:
            return dataclasses.replace(record, verdict=prepared.verdict, **prepared.why)
        self.describe()
        if twin := self._twins.of(case, record.structure_sha256, fault):
            own = prepared.facts | {"case": case, "twin_of": twin.case.id, "seconds": prepared.seconds}
            return dataclasses.replace(twin, **own, log="", cpu_seconds=None)
        first = self._attempt(record, prepared)
        if self.again and first.verdict in attempts.AGAIN and not first.attempts and self.again(first):
            first = attempts.settled(first, self._attempt(record, prepared))
        record = self._doubted(first)
        if is_local(record) and (self.again is None or self.again(record)):
            record = self._explainer.located(record, prepared)
        self._explainer.note(record)
        self._twins.keep(record, fault)
        return record

    def _doubted(self, record: Record) -> Record:
        """The record, after a proof that the device still works where there is doubt; without one it tells of that."""
        if not self._streak.doubts(record):
            return record
        try:
            self.processes.prove()
        except device_lock.DeviceBusy:
            return record
        except TargetUnavailable as gone:
            since = f"it stopped after {self._streak.after}: " if self._streak.after else ""
            self._lost = f"{gone}; {since}`zoo rerun --verdict BACKEND_UNAVAILABLE` tries again"
            message = f"{record.message}; {self._lost}"
            return dataclasses.replace(record, verdict=Verdict.BACKEND_UNAVAILABLE, message=message)
        return record

    def _attempt(self, record: Record, prepared: Prepared) -> Record:
        record = self._execute(record, prepared)
        return self._explainer.explained(record, prepared) if record.verdict in WRONG else record

    def _execute(self, record: Record, prepared: Prepared) -> Record:
        outcome = self.processes.on_target(record.case, prepared.checkpoint)
        if self.processes.is_busy(outcome):
            lost = self.processes.patience.lost(self._target)
            message = f"{lost}; the last try {outcomes.told(outcome, self._target)}"
            return outcomes.ended(record, outcome, Verdict.DEVICE_BUSY, message)
        return outcomes.judged(record, outcome, self._target)


def probe(target: Target, cache: Path) -> dict[str, str]:
    """Prove that the target executes an operation, in processes of its own, and describe it.

    Raises TargetUnavailable, with one line of why.
    """
    with JobRunner(target, cache, patience=PROBE_SECONDS) as runner:
        try:
            return runner.describe()
        except device_lock.DeviceBusy as busy:
            raise TargetUnavailable(str(busy)) from busy
