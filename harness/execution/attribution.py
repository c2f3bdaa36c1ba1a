"""Which operators of a run copy from the target to the host, or have programs compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from harness.records import Counters

_READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded}
"""What PyTorch says of operators that must read: their result, or its shape, is a matter of values. Those that draw
are among them, since the harness has the host draw for the target (`randomness.py`)."""


class Attribution(TorchDispatchMode):
    """Counts, while it is entered, copies to the host and compilations by the operator that brings them about.

    `counters` reads the target's totals, `settle` waits for what has been asked of it. `reads` has no operator that
    must read: none with a tensor of the host among its arguments or results, none whose result depends on values as
    PyTorch's tags tell, none that is given a mask for an index, whose elements have to be counted. So each of `reads`
    computes on the host, or waits for the target without need. What is compiled, perhaps by another thread, is only
    counted with `settle`, which takes deferred programs apart.
    """

    def __init__(self, counters: Callable[[], Counters], settle: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._counters, self._settle = counters, settle
        self.reads: Counter[str] = Counter()
        self.compiled: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = self._counters()
        result = function(*args, **(kwargs or {}))
        if self._settle is not None:
            self._settle()
        after = self._counters()
        if (after.host_reads or 0) > (before.host_reads or 0) and not _must_read(function, args, kwargs or {}, result):
            self.reads[str(function)] += after.host_reads - before.host_reads
        if self._settle is not None and (after.programs_compiled or 0) > (before.programs_compiled or 0):
            self.compiled[str(function)] += after.programs_compiled - before.programs_compiled
        return result


def _must_read(function: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
    tensors = [x for x in tree_iter((args, kwargs, result)) if isinstance(x, torch.Tensor)]
    indices = (x for x in args if isinstance(x, list | tuple))
    masks = any(isinstance(x, torch.Tensor) and x.dtype is torch.bool for index in indices for x in index)
    tagged = bool(_READS.intersection(function.tags))
    return tagged or any(x.device.type == "cpu" for x in tensors) or (masks and "index" in function.__name__)
