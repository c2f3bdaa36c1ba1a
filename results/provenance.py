"""What a run was made with: versions, machine, settings and lists, so that a result can be explained later."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.versions import installed
from results.errors import StoreError

_FLAGS = re.compile(
    r"(XLA|PJRT|TORCH|TORCH_TPU|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|LIBTPU|TPU|OMP|MKL|OPENBLAS|KMP|ZOO)_\w+"
    r"|LD_PRELOAD|PYTHONHASHSEED|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|CUDA_VISIBLE_DEVICES"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH|(^|_)KEY($|_)", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


def collect(list_paths: Iterable[Path], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about this process and machine, JSON-ready; None or "unknown" where a fact cannot be had.

    `settings` are the run's own (target, tier, modes, ...). Imports no torch. Raises StoreError where a list
    cannot be read.
    """
    return {
        "python": platform.python_version(),
        "packages": installed(),
        "machine": {
            "system": platform.platform(),
            "architecture": platform.machine(),
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_bytes": _memory_bytes(),
        },
        "environment": _environment(os.environ),
        "harness_revision": _revision(Path(__file__).resolve().parents[1]),
        "lists": {Path(path).name: _sha256(Path(path)) for path in list_paths},
        "settings": dict(settings),
    }


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or None


def _memory_bytes() -> int:
    import psutil

    return psutil.virtual_memory().total


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: _USER_IN_URL.sub("", value)
        for name, value in sorted(variables.items())
        if _FLAGS.fullmatch(name) and not _SECRET.search(name)
    }


def _revision(root: Path) -> str:
    """Commit of the harness's own checkout; an enclosing repository (of a virtual environment, say) is not it."""
    top = _git(root, "rev-parse", "--show-toplevel")
    if not top or Path(top) != root:
        return "unknown"
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if not commit:
        return "unknown"
    return commit + ("-modified" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise StoreError(f"cannot read the list {path}: {error.strerror}") from error
