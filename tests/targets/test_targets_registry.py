"""Names of targets, and the cheap look for TPU hardware that decides what "tpu" means."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from harness import targets
from harness.cases import Mode, Stage, Verdict
from harness.targets import TARGETS, UnknownTarget, resolve
from harness.targets.base import TargetUnavailable
from harness.targets.tpu import TPU_PCI_DEVICES, Tpu, attached_tpus


def attach(root: Path, vendor: str = "0x1ae0", device: str = "0x006f", offered: bool = True) -> None:
    """A file system root with one PCI device, its IOMMU group offered to processes or not."""
    pci = root / "sys/bus/pci/devices/0000:00:05.0"
    pci.mkdir(parents=True)
    (pci / "vendor").write_text(vendor + "\n")
    (pci / "device").write_text(device + "\n")
    (pci / "iommu_group").symlink_to("../../../../kernel/iommu_groups/7")
    (root / "dev/vfio").mkdir(parents=True)
    if offered:
        (root / "dev/vfio/7").touch()


@pytest.mark.parametrize("name", ["tpu-emulated", "cpu"])
def test_a_target_is_found_by_its_own_name(name):
    assert resolve(name).name == name


def test_an_unknown_name_is_answered_in_one_line_with_the_valid_ones_and_a_guess():
    with pytest.raises(UnknownTarget) as caught:
        resolve("tpu-emulate")
    message = str(caught.value)
    assert "\n" not in message
    assert "did you mean 'tpu-emulated'?" in message
    assert all(name in message for name in TARGETS)


def test_resolving_and_importing_every_target_imports_no_torch():
    code = (
        "import sys; from harness.targets import TARGETS, resolve; [resolve(n).modes for n in TARGETS];"
        "sys.exit(any(m in sys.modules for m in ('torch', 'torch_tpu', 'numpy', 'llvmlite')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("kinds", "name"), [(("TPU v6e",), "tpu"), ((), "tpu-emulated")])
def test_tpu_means_hardware_where_there_is_some_and_the_stand_in_elsewhere(monkeypatch, kinds, name):
    monkeypatch.setattr(targets, "attached_tpus", lambda: kinds)
    target = resolve("tpu")
    assert (target.name, target.emulated, target.exclusive) == (name, not kinds, bool(kinds))


@pytest.mark.parametrize(
    ("kinds", "size"),
    [(("TPU v5e",) * 4, 16 * 2**30), (("TPU v6e", "TPU v5e"), 16 * 2**30), (("TPU v6e", "TPU v7"), None), ((), None)],
)
def test_the_memory_of_a_chip_is_known_by_its_kind_or_not_at_all(monkeypatch, kinds, size):
    monkeypatch.setattr("harness.targets.tpu.attached_tpus", lambda: kinds)
    assert Tpu().device_bytes == size
    assert resolve("cpu").device_bytes is resolve("tpu-emulated").device_bytes is None


def test_a_tpu_offered_to_processes_is_seen(tmp_path):
    attach(tmp_path)
    assert attached_tpus(tmp_path) == ("TPU v6e",)


@pytest.mark.parametrize(
    "device",
    [{"device": "0x0042"}, {"vendor": "0x8086"}, {"offered": False}],
    ids=["network card", "vendor", "no vfio"],
)
def test_what_no_process_can_use_as_a_tpu_is_not_one(tmp_path, device):
    attach(tmp_path, **device)
    assert attached_tpus(tmp_path) == ()


def test_the_known_devices_are_those_of_the_installed_torch_tpu():
    package = importlib.util.find_spec("torch_tpu")
    if package is None:
        pytest.skip("torch_tpu is not installed")
    path = Path(package.origin).parent / "_internal/utils/hardware.py"
    spec = importlib.util.spec_from_file_location("hardware_of_torch_tpu", path)
    hardware = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hardware)
    assert dict(hardware._PCI_DEVICE_ID_TO_NAME) == TPU_PCI_DEVICES


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("operator 'aten::mish.out' is not implemented for TPU. Please file", Verdict.UNSUPPORTED_OP),
        ("no viable SDPBackend found: all supported backends are disabled", Verdict.UNSUPPORTED_OP),
        ("the TPU ran out of memory while awaiting the materialization of value %3", Verdict.OOM_DEVICE),
        ("RESOURCE_EXHAUSTED: Attempting to allocate 3.0G", Verdict.OOM_DEVICE),
        ("open(/dev/vfio/0): Device or resource busy", Verdict.DEVICE_BUSY),
        (
            "failed to initialize the PjRt plugin: Internal error when accessing libtpu multi-process lockfile",
            Verdict.DEVICE_BUSY,
        ),
        ("TPU initialization failed: No jellyfish device found.", Verdict.BACKEND_UNAVAILABLE),
        ("cannot access or re-initialize TPU in a forked subprocess. To use TPU", Verdict.HARNESS_ERROR),
        ("TPU backend does not support torch.compile(..., dynamic=True, ...).", Verdict.HARNESS_ERROR),
        ("failed to compile MLIR module -- the XLA compiler failed with: bad shape", Verdict.COMPILE_ERROR),
        ("backend='tpu' raised:\nAssertionError: x", Verdict.COMPILE_ERROR),
        ("The size of tensor a (3) must match the size of tensor b (4)", None),
    ],
)
def test_error_texts_of_torch_tpu_have_their_verdicts(text, verdict):
    assert Tpu().diagnose(text, Stage.RUN) is verdict


def test_the_same_text_is_the_stand_ins_limit_only_on_the_stand_in():
    text = "failed to compile MLIR module -- the XLA compiler failed with: no registered implementation for untyped "
    text += "custom call to tpu_custom_call for Host"
    assert resolve("tpu-emulated").diagnose(text, Stage.RUN) is Verdict.EMULATION_LIMIT
    assert Tpu().diagnose(text, Stage.RUN) is Verdict.COMPILE_ERROR


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("I0\nF1130 10:00:00.1 9 computation_partitioner.cc:269] Check failed: operand_maps", Verdict.EMULATION_LIMIT),
        ("bufferAllocation::Slice not assigned for instruction get-tuple-element", Verdict.EMULATION_LIMIT),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes", Verdict.OOM_HOST),
        ("operator 'aten::mish.out' is not implemented for TPU.", Verdict.UNSUPPORTED_OP),
        ("F1130 10:00:00.1 9 dispatch.cc:1] Check failed: x", None),
    ],
)
def test_limits_of_the_stand_in_are_told_from_failures_of_the_backend(text, verdict):
    assert resolve("tpu-emulated").diagnose(text, Stage.RUN) is verdict


def test_compiled_programs_are_kept_apart_per_flags_cache_folder_and_target(tmp_path, monkeypatch):
    def folders(name: str, cache: Path) -> set[str]:
        return {v for k, v in resolve(name).environment(cache).items() if "CACHE" in k and "/" in v}

    target = resolve("tpu-emulated").name
    plain = folders(target, tmp_path)
    assert plain == folders(target, tmp_path)
    assert not plain & folders(target, tmp_path / "other")
    assert not plain & folders("cpu", tmp_path)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert not plain & folders(target, tmp_path)


def test_the_environment_is_the_same_when_asked_for_inside_itself(tmp_path, monkeypatch):
    target = resolve("tpu-emulated")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    outer = target.environment(tmp_path)
    for name, value in outer.items():
        monkeypatch.setenv(name, value)
    assert target.environment(tmp_path) == outer
    assert outer["XLA_FLAGS"].endswith("--xla_cpu_enable_fast_math=false")


def test_the_cpu_is_a_target_whose_executed_programs_are_unknown():
    code = """
from harness.cases import Mode
from harness.targets import resolve
target = resolve("cpu")
target.preload(); target.prove()
with target.entered(Mode.EAGER):
    target.synchronize()
counters = target.counters()
assert counters.programs_executed is None and counters.graph_breaks is None and counters.peak_host_bytes > 0
try:
    target.entered(Mode.STRICT_EAGER).__enter__()
except ValueError as error:
    assert "eager, compiled" in str(error)
else:
    raise SystemExit("a mode the CPU has not was entered")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_compiler_is_the_machines_fault():
    text = "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in config"
    assert resolve("cpu").diagnose(text, Stage.COMPILE) is Verdict.BACKEND_UNAVAILABLE


def test_modes_of_the_targets():
    assert resolve("cpu").modes == (Mode.EAGER, Mode.COMPILED)
    assert resolve("tpu-emulated").modes == (Mode.STRICT_EAGER, Mode.DEFER_AND_FUSE, Mode.COMPILED)


def test_the_cpu_computes_with_as_many_threads_as_it_is_told(monkeypatch):
    import torch

    cpu, before = resolve("cpu"), torch.get_num_threads()
    monkeypatch.setenv("ZOO_CPU_THREADS", "3")
    with cpu.entered(Mode.EAGER):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before
    assert cpu.describe()["threads"] == "3"


@pytest.mark.parametrize("threads", ["0", "-1", "two", ""])
def test_threads_that_are_no_number_make_the_cpu_unavailable_in_one_line(monkeypatch, threads):
    monkeypatch.setenv("ZOO_CPU_THREADS", threads)
    with pytest.raises(TargetUnavailable, match=r"ZOO_CPU_THREADS is .*valid: a whole number"):
        resolve("cpu").preload()
