"""TorchTPU without a TPU: the unmodified `torch_tpu`, its programs executed by XLA on the CPU.

TorchTPU loads whatever PJRT plugin it is told to. Here that is XLA's CPU plugin, so dispatch,
decompositions, lowering, views, caching and the compile path are TorchTPU's own, while matmul
passes, tiling, fusion and memory are XLA:CPU's. A result therefore judges TorchTPU's software
and says nothing about the numerics of TPU hardware.

Two things are different from a run on hardware, because XLA:CPU lacks what TorchTPU asks for:
attention runs as separate operators instead of a fused TPU kernel, and mixtures of experts use
batched instead of grouped matmul. Whatever else XLA:CPU lacks is an EMULATION_LIMIT.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from harness.cases import Mode, Stage, Verdict
from harness.records import Counters
from harness.targets import pjrt_shim, process
from harness.targets.base import Standalone, TargetUnavailable
from harness.targets.tpu import TorchTpu

PLUGIN_VARIABLE = "ZOO_PJRT_PLUGIN"
_PACKAGE = "lammps-jax-pjrt-cpu"
_MODULE = "lammps_jax_pjrt_cpu"
_LIBRARY = "pjrt_c_api_cpu_plugin.so"
_VERSION = "0.11.2"
# Of the library in the wheel lammps_jax_pjrt_cpu-0.11.2 on PyPI, as its RECORD lists it.
_SHA256 = "ad1309ac822b1b24d51b7f9947c7c9fa9ef5d67f390584cbc3d1fa2428fed9c2"

_XLA_FLAGS = (
    # Cumulative operators, embedding bags and repeat_interleave reach XLA as scans. Its CPU compiler first
    # turns a scan into a reduce-window that calls a function, and then aborts the process on that call;
    # without that step it expands the scan into a loop, which it can run.
    "--xla_disable_hlo_passes=associative-scan-rewriter",
    # How well LLVM optimises the CPU's machine code says nothing about TorchTPU, and most programs of a
    # small model run once: level 0 halves the compile time of a fused program.
    "--xla_backend_optimization_level=0",
)

# For a file of its own, see `standalone`.
_FOUND = f'importlib.util.find_spec("{_MODULE}").submodule_search_locations[0] + "/{_LIBRARY}"'
_BY_HAND = """\
torch_tpu._loader._init_device("tpu")
"""
_PLAIN_ATTENTION = """\
(ATTENTION := torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)).__enter__()
"""

# Texts of XLA:CPU as of PJRT 0.115, and fatal checks of its code generator, which end the process.
_LIMITS = (
    r"no registered implementation for .*custom call",
    r"tpu_custom_call",
    r"no FFI handler registered for \w+ on a platform Host",
    r"opcode `?[\w-]+`? is not supported(?! for TPU)",
    r"[bB]ufferAllocation::Slice not assigned",
    r"^F\d{4} .*\b(computation_partitioner|elemental_ir_emitter|ir_emitter2?|thunk_emitter|cpu_compiler)\.cc:\d+\]",
)


@dataclass(frozen=True, slots=True)
class Plugin:
    """The PJRT plugin that executes; `pinned` where it is the one this harness was tested with."""

    path: Path
    label: str
    sha256: str
    pinned: bool


@functools.cache
def find_plugin(override: str) -> Plugin:
    """The plugin file at `override`, or the pinned one where that is empty. Loads nothing.

    Raises TargetUnavailable where there is none, or the pinned file is not the published one.
    """
    if override:
        path = Path(override)
        if not path.is_file():
            raise TargetUnavailable(f"{PLUGIN_VARIABLE}={override}: there is no such file")
        return Plugin(path, f"unpinned {path}", _sha256(path), pinned=False)
    install = f"pip install {_PACKAGE}=={_VERSION} (Linux on x86-64), or set {PLUGIN_VARIABLE} to a PJRT CPU plugin"
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise TargetUnavailable(f"tpu-emulated needs {_PACKAGE}: {install}")
    path = Path(spec.submodule_search_locations[0]) / _LIBRARY
    if not path.is_file():
        raise TargetUnavailable(f"{_PACKAGE} has no {_LIBRARY} for this platform: {install}")
    sha256 = _sha256(path)
    if sha256 != _SHA256:
        found = process.versions(_PACKAGE)[_PACKAGE]
        raise TargetUnavailable(
            f"{path} ({_PACKAGE} {found}) is not the file published as {_VERSION}: its SHA-256 is {sha256}; {install}"
        )
    return Plugin(path, f"{_PACKAGE} {_VERSION}", sha256, pinned=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _xla_flags() -> str:
    """The user's XLA_FLAGS with what emulation needs in front, so that the user's own have the last word."""
    given = os.environ.get("XLA_FLAGS", "").split()
    return " ".join([flag for flag in _XLA_FLAGS if flag not in given] + given)


class TpuEmulated(TorchTpu):
    """`torch_tpu` over XLA:CPU."""

    name = "tpu-emulated"
    emulated = True
    exclusive = False
    # XLA:CPU loses the code of a program that it read from a cache when it writes that program again, as
    # AOTAutograd's cache of graphs would have it do. Without that cache every compile is TorchTPU's own work.
    compile_options: ClassVar[dict[str, Any]] = {"serializable": False}

    def __init__(self) -> None:
        self._shim: pjrt_shim.Shim | None = None

    @property
    def plugin(self) -> Plugin:
        return find_plugin(os.environ.get(PLUGIN_VARIABLE, ""))

    def identity(self) -> dict[str, str]:
        return super().identity() | {
            "plugin": self.plugin.label,
            "plugin_sha256": self.plugin.sha256,
            "cpu": process.instruction_set(),
            "XLA_FLAGS": _xla_flags(),
        }

    def environment(self, cache: Path) -> dict[str, str]:
        return super().environment(cache) | {
            "TPU_LIBRARY_PATH": str(self.plugin.path),
            # libtpu asks Google Cloud's metadata server about the machine otherwise, and waits for an answer.
            "TPU_SKIP_MDS_QUERY": "1",
            "XLA_FLAGS": _xla_flags(),
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        }

    def preload(self) -> None:
        plugin = self.plugin
        os.environ["TPU_LIBRARY_PATH"] = str(plugin.path)
        self._shim = pjrt_shim.install(plugin.path, stand_in=True)
        super().preload()

    def describe(self) -> dict[str, str]:
        api = {"pjrt_api": self._shim.api_version} if self._shim else {}
        return super().describe() | {"device": "XLA:CPU standing in for a TPU"} | api

    def load_options(self) -> dict[str, Any]:
        return {"experts_implementation": "batched_mm"}

    @contextlib.contextmanager
    def entered(self, mode: Mode) -> Iterator[None]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with super().entered(mode), sdpa_kernel(SDPBackend.MATH):
            yield

    def standalone(self, mode: Mode) -> Standalone:
        on_hardware = super().standalone(mode)
        attach = pjrt_shim.STANDALONE.format(
            package=f"{_PACKAGE}=={_VERSION}",
            plugin=_FOUND if self.plugin.pinned else repr(str(self.plugin.path)),
            flags=_xla_flags(),
        )
        attach += on_hardware.attach + _BY_HAND
        return Standalone(attach, on_hardware.enter + _PLAIN_ATTENTION)

    def counters(self) -> Counters:
        totals = super().counters()
        if self._shim is None:
            return totals
        return replace(
            totals,
            programs_executed=self._shim.executed,
            programs_compiled=self._shim.compiled,
            host_reads=self._shim.read,
        )

    def peak_device_bytes(self) -> int | None:
        """XLA:CPU keeps no account of its memory."""
        return None

    def diagnose(self, text: str, stage: Stage) -> Verdict | None:
        if any(re.search(limit, text, re.MULTILINE) for limit in _LIMITS):
            return Verdict.EMULATION_LIMIT
        verdict = super().diagnose(text, stage)
        # The stand-in's device memory is the host's.
        return Verdict.OOM_HOST if verdict is Verdict.OOM_DEVICE else verdict
