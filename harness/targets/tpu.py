"""TorchTPU: the `tpu` device of the `torch_tpu` package, on TPU hardware.

`TorchTpu` holds all that is the same whatever executes the programs; the emulated target derives
from it. It relies on a few private names of torch_tpu 0.2 (`_loader._init_device`,
`torch.tpu._get_cache_stats`), all of them in this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from harness.cases import Mode, Stage, Verdict
from harness.records import Counters
from harness.targets import process
from harness.targets.base import Standalone, TargetUnavailable

if TYPE_CHECKING:
    import torch

# Both from torch_tpu 0.2.0, _internal/utils/hardware.py: Google's PCI vendor, and the devices of it that are TPUs.
_GOOGLE_PCI_VENDOR = "0x1ae0"
TPU_PCI_DEVICES = {
    "0x005e": "TPU v4",
    "0x0062": "TPU v5p",
    "0x0063": "TPU v5e",
    "0x006f": "TPU v6e",
    "0x0076": "TPU v7",
}
_CHIP_BYTES = {"TPU v5e": 16 * 2**30, "TPU v5p": 95 * 2**30, "TPU v6e": 32 * 2**30}
"""High-bandwidth memory of a chip that is one device, as https://docs.cloud.google.com/tpu/docs/v5e (v5p, v6e) say."""


def attached_tpus(root: Path = Path("/")) -> tuple[str, ...]:
    """Kind of every TPU of this machine that a process may open; imports nothing and opens nothing.

    The condition is the one under which torch_tpu registers its device by itself: a known TPU on
    the PCI bus whose IOMMU group is offered under /dev/vfio. `root` replaces the file system's root.
    """
    kinds = []
    for device in sorted(root.glob("sys/bus/pci/devices/*")):
        with contextlib.suppress(OSError):
            if (device / "vendor").read_text().strip() != _GOOGLE_PCI_VENDOR:
                continue
            kind = TPU_PCI_DEVICES.get((device / "device").read_text().strip())
            group = os.readlink(device / "iommu_group").rsplit("/", 1)[-1]
            if kind and (root / "dev/vfio" / group).exists():
                kinds.append(kind)
    return tuple(kinds)


# What torch_tpu says about choices the harness makes on purpose: an allocator, the program cache's
# variable and the execution mode, the highest precision. Prefixes of the categories it documents.
_EXPECTED_WARNINGS = (
    "<TorchTpu/Performance/TcMalloc/>",
    "<TorchTpu/ApiStage/ExperimentalApi/>",
    "<TorchTpu/Performance/> TPU is using HIGHEST precision as requested",
)

# Under which torch_tpu 0.2.0 puts its program cache of a given name (csrc/common/tier2_compilation_cache.cc).
_TIER_2 = "TORCH_TPU_TIER2_COMPILATION_CACHE"
_TIER_2_ROOT = "/dev/shm/torch_tpu_cache"

_ATTACH = """\
import torch, torch_tpu._loader
"""

# First match decides. The texts are those of torch_tpu 0.2.0, libtpu 0.0.52, XLA, torch 2.13 and transformers 5.24.
_DIAGNOSES: tuple[tuple[str, Verdict], ...] = (
    (r"is not implemented for TPU|no viable SDPBackend found", Verdict.UNSUPPORTED_OP),
    (r"Could not run '[\w:.]+' with arguments from the 'PrivateUse1' backend", Verdict.UNSUPPORTED_OP),
    (r"cannot access or re-initialize TPU in a forked subprocess", Verdict.HARNESS_ERROR),
    (r"TPU backend does not support torch\.compile\(\.\.\., dynamic=True", Verdict.HARNESS_ERROR),
    (r"multi-process lockfile|/dev/vfio/\w+\): Device or resource busy|TPU is already in use", Verdict.DEVICE_BUSY),
    (r"TPU initialization failed|No jellyfish device found", Verdict.BACKEND_UNAVAILABLE),
    (r"failed to initialize the PjRt plugin", Verdict.BACKEND_UNAVAILABLE),
    (r"the TPU ran out of memory|RESOURCE_EXHAUSTED|ran out of memory in memory space", Verdict.OOM_DEVICE),
    (r"failed to compile MLIR module|backend='\w+' raised|torch\._dynamo\.exc\.\w+", Verdict.COMPILE_ERROR),
)


class TorchTpu:
    """What TorchTPU is on any device; a subclass says which one."""

    name: ClassVar[str]
    emulated: ClassVar[bool]
    exclusive: ClassVar[bool]
    device_bytes: int | None = None
    compile_options: ClassVar[dict[str, Any]] = {}
    device_type = "tpu"
    modes = (Mode.STRICT_EAGER, Mode.DEFER_AND_FUSE, Mode.COMPILED)

    def identity(self) -> dict[str, str]:
        """Everything that can change what torch_tpu compiles, as readable text. Imports no backend."""
        settings = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "TORCH_TPU_INTERNAL_XLA_OPTIONS")
        return process.versions("torch", "torch_tpu", "libtpu") | {
            name: os.environ[name] for name in settings if os.environ.get(name)
        }

    def environment(self, cache: Path) -> dict[str, str]:
        """Loads the device when `preload` says so, and keeps what is compiled apart per `identity` and cache folder.

        torch_tpu's program cache and AOTAutograd's graph cache do not know the plugin, so what they
        hold is only valid for one identity. The program cache is the one torch_tpu calls tier 2: it
        locks each program, so that two processes do not compile the same one at once. Its folder is
        given relative to the one in shared memory that it would use otherwise, where it would be
        common to all processes of the machine and fill its memory. An entry is written in the
        background: a process that is gone before then leaves a program that is compiled again.
        """
        identity = self.identity()
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        folder = cache.resolve() / self.name / f"torch_tpu-{identity['torch_tpu']}-{digest}"
        return {
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            _TIER_2: os.path.relpath(folder / "programs", os.path.realpath(_TIER_2_ROOT)),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "graphs"),
        }

    def preload(self) -> None:
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        try:
            import torch_tpu  # noqa: F401
            from torch_tpu import _loader
        except ImportError as error:
            raise TargetUnavailable(f"torch_tpu cannot be imported ({error}): pip install torch_tpu") from error
        init_device = getattr(_loader, "_init_device", None)
        if init_device is None:
            version = process.versions("torch_tpu")["torch_tpu"]
            raise TargetUnavailable(f"torch_tpu {version} has no _loader._init_device: this harness knows 0.2")
        init_device(self.device_type)
        try:
            Path(_TIER_2_ROOT).mkdir(parents=True, exist_ok=True)
        except OSError:
            # The path relative to it leads nowhere, and torch_tpu aborts the process where it cannot write.
            os.environ[_TIER_2] = "disabled"
        process.warm_up_dynamo()
        process.prepare_forks()

    def prove(self) -> None:
        import torch

        try:
            result = (torch.arange(4.0).to(self.device_type) + 1).cpu()
        except RuntimeError as error:
            line = str(error).strip().splitlines()[0]
            raise TargetUnavailable(f"{self.name}: the device cannot be used: {line}") from error
        if result.tolist() != [1.0, 2.0, 3.0, 4.0]:
            raise TargetUnavailable(f"{self.name}: adding 1 to 0..3 on the device gave {result.tolist()}")

    def describe(self) -> dict[str, str]:
        return {"target": self.name, **self.identity()}

    def load_options(self) -> dict[str, Any]:
        return {}

    @contextlib.contextmanager
    def entered(self, mode: Mode) -> Iterator[None]:
        import torch

        if mode not in self.modes:
            raise ValueError(f"{self.name} has no mode {mode!r}; it has {', '.join(self.modes)}")
        if os.environ.get(_TIER_2, "disabled") != "disabled":
            Path(_TIER_2_ROOT).mkdir(parents=True, exist_ok=True)  # torch_tpu aborts where somebody has removed it
        precision = torch.get_float32_matmul_precision()
        graphs = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        if graphs:
            # Read anew at every use; a graph captured in one mode must not serve another.
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(graphs) / mode)
        eager = torch.tpu.EagerMode
        try:
            torch.set_float32_matmul_precision("highest")
            with torch.tpu.set_eager_mode(eager.DEFER_AND_FUSE if mode is Mode.DEFER_AND_FUSE else eager.DEFER_NEVER):
                yield
        finally:
            torch.set_float32_matmul_precision(precision)
            if graphs:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = graphs

    def compile(
        self, model: torch.nn.Module, around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    ) -> Callable[..., Any]:
        import torch

        return torch.compile(
            model, backend=process.compiler("tpu", around), dynamic=False, options=self.compile_options
        )

    def on_cpu(self) -> dict[Any, Callable[..., Any]]:
        """Pooling for the maximum, which torch_tpu (_internal/pooling/patch.py) routes by operators without indices.

        Not their gradients: which of equal values has been the maximum, these choose otherwise than the CPU.
        """
        import torch

        aten, own = torch.ops.aten, torch.ops.tpu
        return {
            own._max_pool1d.default: aten.max_pool1d.default,
            own._max_pool2d.default: aten.max_pool2d.default,
            own._max_pool3d.default: aten.max_pool3d.default,
        }

    def standalone(self, mode: Mode) -> Standalone:
        eager = "DEFER_AND_FUSE" if mode is Mode.DEFER_AND_FUSE else "DEFER_NEVER"
        enter = [
            'torch.set_float32_matmul_precision("highest")',
            f"(MODE := torch.tpu.set_eager_mode(torch.tpu.EagerMode.{eager})).__enter__()  # it ends with this object",
        ]
        if mode is Mode.COMPILED:
            options = f", options={self.compile_options!r}" * bool(self.compile_options)
            enter.append(f'compiled = torch.compile(backend="tpu", dynamic=False{options})')
        return Standalone(_ATTACH, "".join(f"{line}\n" for line in enter))

    def synchronize(self) -> None:
        import torch

        torch.accelerator.synchronize()

    def counters(self) -> Counters:
        import torch

        read = getattr(torch.tpu, "_get_cache_stats", None)
        stats = read() if read is not None else None
        return Counters(
            programs_requested=getattr(stats, "num_cache_reqs", None),
            programs_compiled=getattr(stats, "num_compilations", None),
            graph_breaks=process.graph_breaks(),
            peak_device_bytes=self.peak_device_bytes(),
            peak_host_bytes=process.peak_host_bytes(),
        )

    def peak_device_bytes(self) -> int | None:
        """Most device memory in use at once, in bytes; None where the device does not say."""
        import torch

        return torch.accelerator.max_memory_allocated() or None

    def diagnose(self, text: str, stage: Stage) -> Verdict | None:
        for pattern, verdict in _DIAGNOSES:
            if re.search(pattern, text):
                return verdict
        return None


class Tpu(TorchTpu):
    """A TPU attached to this machine."""

    name = "tpu"
    emulated = False
    exclusive = True

    @property
    def device_bytes(self) -> int | None:
        """Of the smallest chip attached; None where one is of a kind whose memory is not known."""
        sizes = [_CHIP_BYTES.get(kind) for kind in attached_tpus()]
        return None if not sizes or None in sizes else min(sizes)

    def identity(self) -> dict[str, str]:
        return super().identity() | {"device": " + ".join(attached_tpus())}

    def preload(self) -> None:
        if not attached_tpus():
            raise TargetUnavailable("no TPU is attached to this machine: use --target tpu-emulated")
        super().preload()
