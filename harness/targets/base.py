"""What the harness asks of a backend. One module per backend implements it; nothing else knows backends."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.cases import Mode, Stage, Verdict
from harness.records import Counters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch


class TargetUnavailable(RuntimeError):
    """The target cannot be used here; the message says why and what would help, in one line."""


@dataclass(frozen=True, slots=True)
class Standalone:
    """What a Python file that knows no harness does to use a backend, as source text, whole lines each.

    `attach` makes the device be there and imports torch, and creates no client yet; `enter` then selects a mode for the
    rest of the process and, in `Mode.COMPILED`, defines `compiled`, which compiles what it is given.
    """

    attach: str
    enter: str


class Target(Protocol):
    """A backend under test.

    Importing a target module must not import torch: `environment` is applied to a process
    before its first import of torch, because backends read their settings only once.
    """

    name: str
    """Name in records, pages and `--target`."""
    device_type: str
    """What `device_map=` takes and `tensor.device.type` must be."""
    emulated: bool
    """True where a stand-in executes instead of the backend's own hardware."""
    modes: tuple[Mode, ...]
    exclusive: bool
    """True where a device serves one process at a time, so that a job must hold the device lock."""
    device_bytes: int | None
    """Memory of one device; None where that is unknown, or where the device's memory is the host's."""

    def environment(self, cache: Path) -> dict[str, str]:
        """Variables a process must have before it imports torch. `cache` is the harness's cache folder."""

    def preload(self) -> None:
        """Import and register the backend without creating a device client, so that children may be forked.

        Raises TargetUnavailable.
        """

    def prove(self) -> None:
        """Run one small operation on the device and read it back. Creates the client. Raises TargetUnavailable."""

    def describe(self) -> dict[str, str]:
        """Provenance of what executes: versions, plugin and its sha256, device kind. Callable after `preload`."""

    def load_options(self) -> dict[str, Any]:
        """Extra keyword arguments for `from_pretrained` that this target needs."""

    def entered(self, mode: Mode) -> AbstractContextManager[None]:
        """Execute in `mode`, at the highest matmul precision, inside the returned context."""

    def compile(
        self, model: torch.nn.Module, around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    ) -> Callable[..., Any]:
        """The compiled form of `model`, for `Mode.COMPILED`; `around` makes another of the `torch.compile` backend."""

    def on_cpu(self) -> Mapping[Any, Callable[..., Any]]:
        """What computes on CPU the operators that only this backend has, by operator; others the CPU cannot repeat.

        Each takes the operator's arguments and returns its results.
        """

    def standalone(self, mode: Mode) -> Standalone:
        """How a file of its own uses this backend as `preload` and `entered(mode)` do."""

    def synchronize(self) -> None:
        """Wait until everything queued on the device has executed."""

    def counters(self) -> Counters:
        """Totals of this process so far; fields the backend cannot tell are None."""

    def diagnose(self, text: str, stage: Stage) -> Verdict | None:
        """Verdict for an error's (or a dead process's last) text, or None where the text is not known."""
