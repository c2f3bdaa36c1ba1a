"""The CPU references that a worker judges by: from this run, from the cache, or computed now."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from harness.cases import Case
from harness.jobs import cache as caches
from harness.jobs import death
from harness.jobs.prepared import Prepared
from harness.jobs.processes import Processes


class References:
    """The references of consecutive cases. The last one is kept at hand, and every one that could not be made."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._known: dict[Path, Prepared] = {}

    def of(self, case: Case) -> Prepared:
        """The reference of a case. Raises ServerFailed."""
        folder = caches.reference_folder(self._processes.cache, case, self._processes.seed)
        if folder in self._known:
            return dataclasses.replace(self._known[folder], seconds={})
        meta = caches.read_meta(folder)
        prepared = Prepared.of(meta, cached=True) if meta else self._compute(case)
        self._known = {folder: prepared} if prepared.verdict is None else self._known | {folder: prepared}
        return prepared

    def forget(self) -> None:
        """Look into the cache again for each."""
        self._known = {}

    def _compute(self, case: Case) -> Prepared:
        checkpoint = caches.checkpoint_folder(self._processes.cache, case.entry, self._processes.seed)
        outcome = self._processes.on_cpu(case, str(checkpoint), job="harness.jobs.reference_job:run")
        if outcome.result is None:
            verdict, message = death.of_death(outcome, None)
            return Prepared.failed(verdict, outcome, message)
        if error := outcome.result.get("error"):
            verdict = death.of_error(error, outcome.stage, None)
            return Prepared.failed(verdict, outcome, death.one_line(error), error["detail"])
        return dataclasses.replace(Prepared.of(outcome.result["meta"], cached=False), seconds=outcome.seconds)
