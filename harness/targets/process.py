"""What any target can tell about the process it runs in, and about the software installed in it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def versions(*packages: str) -> dict[str, str]:
    """Installed version of each distribution, empty where it is not installed."""

    def version(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return ""

    return {package: version(package) for package in packages}


def instruction_set() -> str:
    """Short digest of the CPU's instruction set: code compiled for one CPU may be illegal on another."""
    flags = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags += next((line for line in cpuinfo.read_text().splitlines() if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:12]


def warm_up_dynamo() -> None:
    """Compile a small module on the CPU, so that forked children need not import and set up what every compile uses.

    Leaves no compiled code, no counts and no thread behind.
    """
    import torch._inductor.compile_fx
    from torch._dynamo.utils import counters

    with torch.no_grad():
        torch.compile(torch.nn.Linear(2, 2), backend="aot_eager", dynamic=False)(torch.zeros(1, 2))
    torch._dynamo.reset()
    counters.clear()
    tqdm = sys.modules.get("tqdm")
    if tqdm is not None and tqdm.tqdm.monitor is not None:
        # Its thread takes a lock from time to time, which a fork at that moment would leave locked in the child.
        tqdm.tqdm.monitor.exit()


def compiler(backend: str, around: Callable[[Callable[..., Any]], Callable[..., Any]] | None) -> Any:
    """What `torch.compile` takes as its backend: the one of that name, or what `around` makes of it."""
    if around is None:
        return backend
    from torch._dynamo.backends.registry import lookup_backend

    return around(lookup_backend(backend))


@functools.cache
def prepare_forks() -> None:
    """Make children that are forked after this able to start with several threads at once; once per process.

    PyTorch (2.13, ParallelOpenMP.cpp) replaces its thread pool at the first use after a fork, without a
    lock. The first use in a child is often by several threads together (the autograd engine's, or those
    that load a checkpoint's shards), one of which then finds no pool and fails ("Invalid thread pool!").
    Here the main thread is the first.
    """
    import torch

    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(torch.get_num_threads()))


def graph_breaks() -> int | None:
    """Graph breaks Dynamo has recorded in this process; None where it captured nothing."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None or not dynamo.counters["frames"]["total"]:
        return None
    return sum(dynamo.counters["graph_break"].values())


def peak_host_bytes() -> int:
    """Largest resident size of this process so far, in bytes. A forked child starts from its parent's present size."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
