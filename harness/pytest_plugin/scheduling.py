"""Which worker runs what: the cases of one model stay together, so that they share its process tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


class EntryScheduling(LoadScopeScheduling):
    """Hands out whole entries, in plan order, as workers become free.

    `entry_of` gives the entry of an item by its node id, None for an item outside the model lists;
    those are grouped as `--dist loadscope` does. `on_again` is told of each item that is handed out once more,
    since the worker that had it died.
    """

    def __init__(
        self,
        config: pytest.Config,
        log: Any,
        entry_of: Callable[[str], str | None],
        on_again: Callable[[str, WorkerController], None],
    ) -> None:
        super().__init__(config, log)
        self._entry_of = entry_of
        self._on_again = on_again
        self._fatal: set[str] = set()
        # The base class would sort by number of cases; plan order is what the user reads.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return self._entry_of(nodeid) or super()._split_scope(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker its next entry as late as possible.

        A worker starts an item only once it holds the one after it, so the next entry has to come
        when one item is left; the base class sends it when two are, which ends a run less evenly.
        """
        # One that takes a dead worker's place cannot be given anything before it has collected; then it is asked again.
        if node.shutting_down or node not in self.registered_collections:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= 1:
            self._assign_work_unit(node)
        if not self.workqueue:
            # The worker does all it holds first; without this it would wait for a successor to its last item.
            node.shutdown()

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a worker that ended; what it had not done goes to other workers.

        The item it died on as well, for it may have been killed from outside; at the second death that item is given
        up and returned. The base class would hand it out for ever, to kill every worker in turn.
        """
        workload = self.assigned_work[node]
        fatal = next((name for unit in workload.values() for name, done in unit.items() if not done), None)
        if fatal is None:
            return super().remove_node(node)
        given_up = fatal in self._fatal
        self._fatal.add(fatal)
        if not given_up:
            self._on_again(fatal, node)
        del self.assigned_work[node]
        for scope, unit in reversed(workload.items()):
            if left := {name: done for name, done in unit.items() if not done and (name != fatal or not given_up)}:
                self.workqueue[scope] = left
                self.workqueue.move_to_end(scope, last=False)
        for other in self.nodes:
            self._reschedule(other)
        return fatal if given_up else None
