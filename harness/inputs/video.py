"""Videos: frames before channels."""

from __future__ import annotations

from typing import Any

from harness.inputs.request import Request
from harness.inputs.vision import picture

FRAMES = 4
"""Frames where the config names no number."""


def video(request: Request) -> dict[str, Any]:
    """`pixel_values` or `pixel_values_videos`, float32 (batch, frames, channels, height, width)."""
    part = request.vision()
    frames = request.numbers.get("frames") or request.look("num_frames", "frames_per_clip", config=part) or FRAMES
    name = "pixel_values_videos" if "pixel_values_videos" in request.names else "pixel_values"
    return {name: picture(request, name, part, request.batch, frames)}
