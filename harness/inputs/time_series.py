"""Series of the past, with the calendar features and the future that sequence-to-sequence forecasters take."""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.inputs.request import Request


def series(request: Request) -> dict[str, Any]:
    """`past_values` float32 (batch, time, channels), or (batch, time) where the model takes one channel."""
    if request.look("lags_sequence") is not None:
        return _lagged(request)
    length = request.find("context_length")
    count = request.look("num_input_channels")
    if count is None:
        length = length if request.padded else length // 2
        return {"past_values": _walk(request, "past_values", length)}
    values = torch.stack([_walk(request, f"past_values.{index}", length) for index in range(count)], dim=-1)
    return {"past_values": values}


def _lagged(request: Request) -> dict[str, Any]:
    """Past long enough for the longest lag, fully observed, with features for past and future times."""
    past = (request.look("context_length") or request.find("prediction_length")) + max(request.find("lags_sequence"))
    future = request.find("prediction_length")
    features = request.find("num_time_features")
    values = _walk(request, "values", past + future)
    times = request.normal("time_features", request.batch, past + future, features)
    result = {
        "past_values": values[:, :past].contiguous(),
        "past_time_features": times[:, :past].contiguous(),
        "past_observed_mask": torch.ones(request.batch, past),
        "future_values": values[:, past:].contiguous(),
        "future_time_features": times[:, past:].contiguous(),
    }
    if request.padded:
        result["past_observed_mask"][1, :3] = 0
    if request.look("num_static_categorical_features"):
        columns = [
            request.integers(f"category.{index}", 0, size, request.batch)
            for index, size in enumerate(request.find("cardinality"))
        ]
        result["static_categorical_features"] = torch.stack(columns, dim=-1)
    if count := request.look("num_static_real_features"):
        result["static_real_features"] = request.normal("static_real", request.batch, count)
    return result


def _walk(request: Request, name: str, length: int) -> torch.Tensor:
    """A season of twelve steps on a slow random walk, float32 (batch, length)."""
    steps = 0.3 * request.normal(name, request.batch, length)
    season = torch.sin(2 * math.pi * torch.arange(length) / 12)
    return 2 + season + steps.cumsum(dim=-1)
