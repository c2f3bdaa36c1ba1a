"""Weights that were pickled, as safetensors beside them, so that no run ever reads a pickle.

`python -m harness.hub.unpickled FOLDER FILE...` does it, in a process of its own that holds no token: torch's reader of
nothing but weights refuses whatever else a pickle may hold, and this is the only place that trusts it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

from harness.cases import Verdict
from harness.hub.index import Unfetched
from harness.redaction import SECRETS

NAME = "model.safetensors"
_ONE_AT_A_TIME = threading.Lock()
"""A checkpoint is in memory whole meanwhile."""


def beside(folder: Path, names: list[str]) -> Path:
    """Write what is in the named files to safetensors in the same folder. Raises Unfetched (NO_SAFETENSORS)."""
    without = {name: value for name, value in os.environ.items() if name not in SECRETS}
    alone = without | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HF_HUB_OFFLINE": "1", "HF_TOKEN_PATH": os.devnull}
    command = [sys.executable, "-m", __name__, str(folder), *names]
    with _ONE_AT_A_TIME:
        done = subprocess.run(command, env=alone, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or [f"the process that read it ended with {done.returncode}"])[-1]
        raise Unfetched(Verdict.NO_SAFETENSORS, f"{names[0]}: no weights that can be read without running code: {why}")
    return folder / NAME


def _main(folder: Path, names: list[str]) -> None:
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    for name in names:
        try:
            held = torch.load(folder / name, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
            sys.exit(f"{name}: {' '.join(str(error).split())[:200] or type(error).__name__}")
        if not isinstance(held, dict) or not all(isinstance(one, torch.Tensor) for one in held.values()):
            sys.exit(f"{name}: holds other things than tensors by name")
        tensors |= held
    # Each gets memory of its own: safetensors has no tensors that share theirs.
    whole = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    draft = folder / f".{NAME}.{os.getpid()}"
    try:
        save_file(whole, draft, metadata={"format": "pt"})
        os.replace(draft, folder / NAME)
    finally:
        draft.unlink(missing_ok=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
