"""When to doubt that a device still works: after several models in a row came to the same bad end."""

from __future__ import annotations

from harness.cases import Group
from harness.records import Record

SUSPICIOUS = 3
"""Models in a row that come to the same end until the device is proved again: a proof takes less than any of them."""


class Streak:
    """The cases of a worker that came last to one and the same end on the target, word for word.

    `after` is the case that was run last before them, empty where they are the first.
    """

    def __init__(self) -> None:
        self.after = ""
        self._end: tuple[str, ...] = ()
        self._models: set[str] = set()
        self._last = ""

    def doubts(self, record: Record) -> bool:
        """Take note of a case that ran; true of the one with which there is doubt, and then again as many later."""
        end = (record.verdict, record.stage, record.message)
        if end != self._end:
            self._end, self._models, self.after = end, set(), self._last
        self._last = record.case.id
        if record.verdict.group is Group.PASS or not record.message:
            return False
        self._models.add(record.case.entry.id)
        if len(self._models) < SUSPICIOUS:
            return False
        self._models.clear()
        return True
