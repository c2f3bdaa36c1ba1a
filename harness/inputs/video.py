"""Videos: frames before channels."""

from __future__ import annotations

from typing import Any

from harness.inputs.request import Request
from harness.inputs.vision import picture


def video(request: Request) -> dict[str, Any]:
    """`pixel_values` or `pixel_values_videos`, float32 (batch, frames, channels, height, width)."""
    frames = request.numbers.get("frames") or request.find("num_frames", "frames_per_clip")
    return {request.main: picture(request, request.main, request.config, request.batch, frames)}
