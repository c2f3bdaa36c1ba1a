"""Pictures: channels first, normalised values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.inputs.request import Request

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig

SIDE = 64
"""Side in pixels where the config names none: models that shrink pictures by strides of 32 keep 2 x 2 of it."""
OTHER_SIDE = 96


def vision(request: Request) -> dict[str, Any]:
    """`pixel_values` float32 (batch, channels, height, width)."""
    part = request.part("vision_config")
    return {"pixel_values": picture(request, "pixel_values", part, request.batch)}


def picture(request: Request, name: str, config: PreTrainedConfig, *leading: int) -> torch.Tensor:
    """Normal values of the size that `config` asks for; another size for `single` where it asks for none."""
    return request.normal(name, *leading, channels(request, config), *size(request, config))


def channels(request: Request, config: PreTrainedConfig) -> int:
    return request.look("num_channels", "in_channels", "in_chans", config=config) or 3


def size(request: Request, config: PreTrainedConfig) -> tuple[int, int]:
    """(height, width) in pixels."""
    key = "image_size" if request.padded else "single_image_size"
    chosen = request.numbers.get(key) or request.numbers.get("image_size")
    chosen = chosen or request.look("image_size", "crop_size", config=config)
    if chosen is None:
        return (SIDE, SIDE) if request.padded else (SIDE, OTHER_SIDE)
    return (chosen, chosen) if isinstance(chosen, int) else tuple(chosen)
