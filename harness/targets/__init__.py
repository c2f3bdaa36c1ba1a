"""The backends under test, by name. Importing this imports no backend and no torch."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from harness.targets.base import Target, TargetUnavailable
from harness.targets.cpu import Cpu
from harness.targets.tpu import Tpu, attached_tpus
from harness.targets.tpu_emulated import TpuEmulated

__all__ = ["TARGETS", "Target", "TargetUnavailable", "UnknownTarget", "resolve"]


class UnknownTarget(ValueError):
    """There is no target of that name; the message lists those there are, in one line."""


def _tpu() -> Target:
    """The TPU of this machine, or its emulation where there is none."""
    return Tpu() if attached_tpus() else TpuEmulated()


TARGETS: dict[str, Callable[[], Target]] = {"tpu": _tpu, "tpu-emulated": TpuEmulated, "cpu": Cpu}


def resolve(name: str) -> Target:
    """The target called `name`. The result's own name tells whether "tpu" became "tpu-emulated".

    Raises UnknownTarget.
    """
    if name not in TARGETS:
        close = difflib.get_close_matches(name, TARGETS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise UnknownTarget(f"unknown target {name!r}{hint}; targets are {', '.join(TARGETS)}")
    return TARGETS[name]()
