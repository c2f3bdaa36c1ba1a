"""Did the model really run where it was sent?"""

from __future__ import annotations

import torch


class WrongDevice(RuntimeError):
    """Parameters, buffers or outputs are not on the target; the message names the first few."""


def assert_on(device_type: str, tensors: dict[str, torch.Tensor], what: str) -> None:
    """Raise WrongDevice unless every tensor is on `device_type`."""
    strays = {name: t.device.type for name, t in tensors.items() if t.device.type != device_type}
    if strays:
        shown = ", ".join(f"{name} on {where}" for name, where in list(strays.items())[:3])
        raise WrongDevice(f"{len(strays)} of {len(tensors)} {what} are not on {device_type}: {shown}")


def assert_model_on(device_type: str, model: torch.nn.Module) -> None:
    """Raise WrongDevice unless every parameter and buffer of `model` is on `device_type`."""
    assert_on(device_type, dict(model.named_parameters()), "parameters")
    assert_on(device_type, dict(model.named_buffers()), "buffers")
