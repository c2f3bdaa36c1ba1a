"""Sound: waves, and log-mel spectrograms."""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.inputs.request import Request
from harness.inputs.text import decoder

SAMPLES = 4000
"""A quarter of a second at 16 kHz: 12 frames behind the usual strides of 320."""
SINGLE_SAMPLES = 3200
PADDING = 1200
RATE = 16_000


def wave(request: Request) -> dict[str, Any]:
    """`input_values` float32 (batch, samples), zero where padded, with its mask where the model takes one."""
    samples = request.numbers.get("samples") or (SAMPLES if request.padded else SINGLE_SAMPLES)
    values = _tone(request, samples)
    result = {"input_values": values}
    if "attention_mask" in request.names:
        mask = torch.ones(request.batch, samples, dtype=torch.long)
        if request.padded:
            mask[1, samples - PADDING :] = 0
            values[1, samples - PADDING :] = 0
        result["attention_mask"] = mask
    return result | _decoder(request)


def spectrogram(request: Request) -> dict[str, Any]:
    """`input_values` float32 (batch, frames, mel bins)."""
    return {"input_values": request.normal("input_values", request.batch, request.find("max_length"), _mels(request))}


def features(request: Request) -> dict[str, Any]:
    """`input_features` float32 (batch, mel bins, frames), two frames for each position of the encoder."""
    frames = 2 * request.find("max_source_positions")
    return {"input_features": request.normal("input_features", request.batch, _mels(request), frames)} | _decoder(
        request
    )


def _mels(request: Request) -> int:
    return request.find("num_mel_bins", "feature_size")


def _decoder(request: Request) -> dict[str, Any]:
    return decoder(request) if request.config.is_encoder_decoder else {}


def _tone(request: Request, samples: int) -> torch.Tensor:
    """A tone in noise, of unit power as feature extractors leave it."""
    time = torch.arange(samples) / RATE
    pitch = 200 + 400 * torch.rand(request.batch, 1, generator=request.generator("pitch"))
    tone = math.sqrt(1.5) * torch.sin(2 * math.pi * pitch * time)
    return tone + 0.5 * request.normal("input_values", request.batch, samples)
