"""PyTorch on the CPU as a target: the harness pointed at the device that also computes the reference."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cases import Mode, Stage, Verdict
from harness.records import Counters
from harness.targets import process
from harness.targets.base import Standalone, TargetUnavailable

if TYPE_CHECKING:
    import torch

_DIAGNOSES: tuple[tuple[str, Verdict], ...] = (
    (r"No working C\+\+ compiler found|InvalidCxxCompiler|CppCompileError.*not found", Verdict.BACKEND_UNAVAILABLE),
    (r"DefaultCPUAllocator: can't allocate memory|not enough memory: you tried to allocate", Verdict.OOM_HOST),
    (r"Could not run '[\w:.]+' with arguments from the 'CPU' backend", Verdict.UNSUPPORTED_OP),
    (r"not implemented for '\w+'", Verdict.UNSUPPORTED_OP),
)


THREADS = "ZOO_CPU_THREADS"
"""Variable that says with how many threads the target computes; sums are made in another order by each number."""


def _threads() -> int:
    text = os.environ.get(THREADS, "1")
    if not text.isdecimal() or int(text) < 1:
        raise TargetUnavailable(f"cpu: {THREADS} is {text!r}; valid: a whole number from 1 on")
    return int(text)


class Cpu:
    """Eager PyTorch, and `torch.compile` with Inductor (which needs a C++ compiler)."""

    name = "cpu"
    device_type = "cpu"
    emulated = False
    modes = (Mode.EAGER, Mode.COMPILED)
    exclusive = False
    device_bytes = None

    def identity(self) -> dict[str, str]:
        """Everything that can change what Inductor compiles, as readable text."""
        return process.versions("torch") | {"cpu": process.instruction_set()}

    def environment(self, cache: Path) -> dict[str, str]:
        """Never loads another backend, since those patch torch; keeps compiled code apart per `identity`."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:16]
        return {
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "TORCHINDUCTOR_CACHE_DIR": str(cache / self.name / f"torch-{digest}"),
        }

    def preload(self) -> None:
        _threads()
        process.warm_up_dynamo()
        process.prepare_forks()

    def prove(self) -> None:
        """The CPU is always there."""

    def describe(self) -> dict[str, str]:
        return {"target": self.name, "device": "CPU", "threads": str(_threads()), **self.identity()}

    def load_options(self) -> dict[str, Any]:
        return {}

    @contextlib.contextmanager
    def entered(self, mode: Mode) -> Iterator[None]:
        import torch

        if mode not in self.modes:
            raise ValueError(f"{self.name} has no mode {mode!r}; it has {', '.join(self.modes)}")
        precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(_threads())
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision(precision)

    def compile(
        self, model: torch.nn.Module, around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    ) -> Callable[..., Any]:
        import torch

        return torch.compile(model, backend=process.compiler("inductor", around), dynamic=False)

    def on_cpu(self) -> dict[Any, Callable[..., Any]]:
        return {}

    def standalone(self, mode: Mode) -> Standalone:
        compiled = 'compiled = torch.compile(backend="inductor", dynamic=False)\n' * (mode is Mode.COMPILED)
        return Standalone("import torch\n", f'torch.set_float32_matmul_precision("highest")\n{compiled}')

    def synchronize(self) -> None:
        """Nothing is queued on the CPU."""

    def counters(self) -> Counters:
        return Counters(graph_breaks=process.graph_breaks(), peak_host_bytes=process.peak_host_bytes())

    def diagnose(self, text: str, stage: Stage) -> Verdict | None:
        for pattern, verdict in _DIAGNOSES:
            if re.search(pattern, text):
                return verdict
        return None
