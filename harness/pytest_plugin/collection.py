"""The collected tree: a model list is a file node, each of its cases an item whose name is the case's id."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING

import pytest

from harness.cases import Case

if TYPE_CHECKING:
    from harness.pytest_plugin.session import ZooSession


class ModelList(pytest.File):
    """A model list given on the command line."""

    zoo: ZooSession

    def collect(self) -> Iterator[pytest.Item]:
        """One item per planned case of this list."""
        for case in self.zoo.cases_of(self.path):
            item = CaseItem.from_parent(self, name=case.id)
            item.case = case
            yield item


class CaseItem(pytest.Item):
    """One case. It passes, is an expected failure, or fails with a text for people."""

    case: Case

    def runtest(self) -> None:
        """Run the case in this process's job runner and raise pytest's own outcomes."""
        self.parent.zoo.execute(self)

    def reportinfo(self) -> tuple[PathLike[str], None, str]:
        """Where pytest says the item is."""
        return self.path, None, self.name
