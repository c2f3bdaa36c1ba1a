"""Sound: waves, and log-mel spectrograms."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from transformers import MODEL_MAPPING

from harness.inputs import text
from harness.inputs.request import InputError, Request

SAMPLES = 4000
"""A quarter of a second at 16 kHz: 12 frames behind the usual strides of 320."""
SINGLE_SAMPLES = 3200
SPEAKER = 2
"""Times that many samples where a speaker is recognised, by convolutions over 15 frames."""
PADDING = 1200
FRAMES = 64
"""Frames of a log-mel spectrogram: 8 behind the usual subsampling by eight."""
SINGLE_FRAMES = 48
HOP = 160
"""Samples from one frame to the next: 10 ms at 16 kHz."""
LATENTS = 8
RATE = 16_000


def wave(request: Request) -> dict[str, Any]:
    """`input_values` float32 (batch, samples), zero where padded, with its mask where the model takes one.

    Codecs take (batch, channels, samples). Those that read a spectrogram of the wave too get as many frames as codes.
    """
    samples = request.numbers.get("samples") or (SAMPLES if request.padded else SINGLE_SAMPLES)
    samples *= SPEAKER if request.head == "XVector" else 1
    values = _tone(request, samples)
    waves = request.numbers.get("waves") or request.look("audio_channels", "in_channels")
    waves = waves or (1 if request.look("codebook_size", "sampling_rate", "input_sampling_rate") else 0)
    kept = torch.ones(request.batch, samples, dtype=torch.long)
    masks = {"padding_mask", "input_values_mask"} | (set() if waves else {"attention_mask"})
    if request.padded and request.names & masks:
        kept[1, samples - PADDING :] = 0
        values[1, samples - PADDING :] = 0
    result = {name: kept.clone() for name in request.names & masks}
    if waves:
        values = values[:, None].repeat(1, waves, 1)
    result["hidden_states" if request.main == "hidden_states" else "input_values"] = values
    if "input_features" in request.names and (hop := request.look("encoder_hop_length", "hop_length")):
        result["input_features"] = request.normal("input_features", request.batch, samples // hop, _mels(request))
        if "input_features_mask" in request.names:
            result["input_features_mask"] = kept[:, hop - 1 :: hop].clone()
    return result | _decoder(request)


def spectrogram(request: Request) -> dict[str, Any]:
    """`input_values` float32 (batch, frames, mel bins)."""
    return {"input_values": request.normal("input_values", request.batch, request.find("max_length"), _mels(request))}


def features(request: Request) -> dict[str, Any]:
    """`input_features` float32: (batch, mel bins, frames) where positions are learned, else (batch, frames, mel bins).

    Learned positions fix the length: two frames each. The masks of frames come along where the model takes them.
    """
    stacked = request.anywhere("feature_projection_input_dim", "input_feat_per_channel") is not None
    positions = None if stacked else request.anywhere("max_source_positions")
    frames = request.numbers.get("frames") or (
        2 * positions if positions else FRAMES if request.padded else SINGLE_FRAMES
    )
    name = "audio_mel" if "audio_mel" in request.names else "input_features"
    values = request.normal(name, request.batch, frames, _mels(request))
    result = {}
    for mask in ("input_features_mask", "feature_attention_mask", "attention_mask", "audio_mel_mask"):
        if mask in request.names and (mask != "attention_mask" or not (positions or "input_ids" in request.names)):
            kept = torch.ones(request.batch, frames, dtype=torch.long)
            if request.padded:
                kept[1, frames * 3 // 4 :] = 0
            if "padding_mask" in request.names:  # the same, of the wave that the frames are of
                result["padding_mask"] = kept.repeat_interleave(HOP, dim=1)
            if mask == "audio_mel_mask":  # this one tells the padding
                result[mask] = kept == 0
            else:
                result[mask] = kept.bool() if request.numbers.get("bool_masks") else kept
    if request.anywhere("spec_size"):  # spectrograms as pictures of one channel
        values = values[:, None]
    elif positions or request.numbers.get("mels_first"):
        values = values.transpose(1, 2).contiguous()
    result[name] = values
    return result | _decoder(request)


def latents(request: Request) -> dict[str, Any]:
    """`latents` float32 (batch, width, steps), what a codec's decoder makes waves of."""
    steps = LATENTS if request.padded else LATENTS - 2
    name = "latents" if "latents" in request.names else "hidden_states"
    return {name: request.normal(name, request.batch, request.find("hidden_size"), steps)}


def embedded(request: Request) -> dict[str, Any]:
    """Float32 (batch, steps, width) for an encoder and a decoder of sounds that have no layers before their first."""
    encoder = text.embedded(request)
    steps = text.DECODER_LENGTH
    values = request.normal("decoder_input_values", request.batch, steps, request.find("hidden_size"))
    mask = torch.ones(request.batch, steps, dtype=torch.long)
    if request.padded:
        mask[1, steps - text.DECODER_PADDING :] = 0
    return encoder | {"decoder_input_values": values, "decoder_attention_mask": mask}


def composed(request: Request) -> dict[str, Any]:
    """What the model's encoder takes, a model of its own, under its own name, beside the decoder's text."""
    encoder = request.find("encoder")
    name = MODEL_MAPPING[type(encoder)].main_input_name
    maker = {"input_values": wave, "input_features": features}.get(name)
    if maker is None:
        raise InputError(f"{request.model}: no sounds are known for an encoder of {name}")
    part = dataclasses.replace(request, config=encoder, names=frozenset({name, "attention_mask"}), main=name)
    return maker(part) | text.decoder(request)


def _mels(request: Request) -> int:
    if "mels" in request.numbers:
        return request.numbers["mels"]
    names = (
        "num_mel_bins",
        "feature_size",
        "n_mels",
        "input_feat_per_channel",
        "feature_projection_input_dim",
        "input_feat_size",
        "audio_embed_dim",
        "input_dim",
        "num_chroma",
    )
    found = request.anywhere(*names)
    if found is None:
        raise InputError(f"{request.model}: its config sets none of {', '.join(names)}; add them to its recipe")
    return found


def _decoder(request: Request) -> dict[str, Any]:
    return text.decoder(request) if request.config.is_encoder_decoder else {}


def _tone(request: Request, samples: int) -> torch.Tensor:
    """A tone in noise, of unit power as feature extractors leave it."""
    time = torch.arange(samples) / RATE
    pitch = 200 + 400 * torch.rand(request.batch, 1, generator=request.generator("pitch"))
    tone = math.sqrt(1.5) * torch.sin(2 * math.pi * pitch * time)
    return tone + 0.5 * request.normal("input_values", request.batch, samples)
