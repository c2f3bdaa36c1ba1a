"""Text and sounds together: beside each other, one instead of the other, or with placeholders where sounds go.

Sounds and videos also come behind the pictures of a text."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import torch

from harness.cases import Phase
from harness.inputs import audio, features
from harness.inputs.request import InputError, Maker, Request
from harness.inputs.text import LENGTH, PADDING, SINGLE_LENGTH, decoder, ordinary_tokens, pad_token, text
from harness.inputs.video import video
from harness.inputs.vision import GRIDS

BEFORE = 3
"""Words before the sound."""
AFTER = 12
"""Words after it; eight for `single`."""
FRAMES = 8
"""Frames of a sound that is given as codes or latents."""
PADDED_SAMPLES = 2400
"""By how much the second row's sound is shorter where it ends at a sample: more than a code of a slow codec."""


def text_and_sound(request: Request) -> dict[str, Any]:
    """A text and a sound for each row, as long as each other where each token has a stretch of the sound."""
    if stretch := request.look("audio_length_per_tok"):
        length = request.numbers.get("text_length", LENGTH if request.padded else SINGLE_LENGTH)
        request = dataclasses.replace(request, numbers=request.numbers | {"frames": stretch * length})
    return text(request) | _sounds(request)


def text_or_sound(request: Request) -> dict[str, Any]:
    """Sounds for `padded` and a text for `single`, for models that take either."""
    if request.padded:
        return _maker(request)(dataclasses.replace(request, names=request.names - {"input_ids"}))
    return text(request)


def hears(request: Request) -> bool:
    """Does a model that sees pictures in its text hear sounds there too, as it is configured?"""
    if request.look("audio_token_id", "audio_token_index") is None or request.look("audio_config") is None:
        return False
    own = inspect.signature(getattr(request.model_class, _METHOD, lambda: None)).parameters.values()
    needed = {each.name for each in own if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD}
    return bool(needed & _SOUNDS & request.names) and needed <= request.names | {"self"}


def and_sounds(maker: Maker) -> Maker:
    """Texts with pictures as `maker` makes them, and at the end of each row a sound and some words."""

    def make(request: Request) -> dict[str, Any]:
        made = maker(request)
        sounds = _sounds(request)
        token = request.find("audio_token_id", "audio_token_index")
        start, end = ([item] if isinstance(item, int) else [] for item in _bounds(request))
        heard = [torch.tensor([*start, *[token] * count, *end]) for count in _counts(request, sounds)]
        return made | sounds | _longer(request, made, heard, token, HEARD)

    return make


def watches(request: Request) -> bool:
    """Does a model that sees pictures in its text see videos there too, given as nothing but their frames?"""
    if "pixel_values_videos" not in request.names or request.anywhere("video_token_id", "video_token_index") is None:
        return False
    if request.names & GRIDS or any(name.startswith(("video_", "num_frames")) for name in request.names):
        return False
    return features.needs(request, "get_video_features") == {"pixel_values_videos"}


def and_videos(maker: Maker) -> Maker:
    """Texts with pictures as `maker` makes them, and at the end of each row a video and some words."""

    def make(request: Request) -> dict[str, Any]:
        made = maker(request)
        videos = video(request)
        token = request.anywhere("video_token_id", "video_token_index")
        count = features.count(request, "get_video_features", videos)
        shown = [torch.full((count // request.batch,), token)] * request.batch
        return made | videos | _longer(request, made, shown, token, WATCHED)

    return make


def _longer(
    request: Request, made: dict[str, Any], parts: list[torch.Tensor], token: int, kind: int
) -> dict[str, torch.Tensor]:
    """The texts of `made` with one of `parts` and some words behind each, where `token` is of a `kind` of its own."""
    kept = made.get("attention_mask", torch.ones_like(made["input_ids"])).bool()
    rows, kinds = [], []
    for row, part in enumerate(parts):
        words = ordinary_tokens(request, f"{_NAMES[kind]}.{row}", BEFORE)
        rows.append(torch.cat([made["input_ids"][row][kept[row]], part, words]))
        before = {name: made[name][row][kept[row]] for name in _KINDS if name in made}
        kinds.append({name: torch.cat([old, kind * (rows[-1][len(old) :] == token)]) for name, old in before.items()})
    result = _aligned(request, rows, token)
    for name in kinds[0]:
        result[name] = torch.zeros_like(result["input_ids"])
        for row, values in enumerate(kinds):
            result[name][row, -len(values[name]) :] = values[name]
    return result


def sound_placeholders(request: Request) -> dict[str, Any]:
    """`input_ids` with one placeholder for each feature of the row's sound, padded left, and the sounds."""
    sounds = _sounds(request)
    token = request.find("audio_token_id", "audio_token_index")
    if "input_values_cutoffs" in request.names:
        return _cut(request, token, sounds)
    counts = _counts(request, sounds)
    if "input_features_mask" in sounds and not features.takes(request, _METHOD, "input_features_mask"):
        # It tells which of the features are of the sound, not which of the frames.
        kept = torch.ones(request.batch, max(counts), dtype=torch.bool)
        if request.padded:
            kept[1, max(counts) * 3 // 4 :] = False
        sounds["input_features_mask"] = kept
        counts = kept.sum(dim=1).tolist()
    return _marked(request, token, counts) | sounds


def codes_in_text(request: Request) -> dict[str, Any]:
    """A text that goes on as sound, given as a codec's codes: int64 (batch, frames, codebooks), a mask of the frames.

    The second row is of fewer frames.
    """
    kept = _frames(request, FRAMES, "audio_input_ids_mask")
    size, books = request.find("codebook_size"), request.find("num_codebooks")
    codes = request.integers("audio_input_ids", 0, size, request.batch, FRAMES, books)
    marked = _marked(request, request.find("audio_token_id"), kept.sum(dim=1).tolist())
    return marked | {"audio_input_ids": codes, "audio_input_ids_mask": kept}


def voice_and_latents(request: Request) -> dict[str, Any]:
    """A voice, a text to say in it, and what has been said so far, each as latents: float32 (batch, frames, width).

    Nothing has been said before generation. The second row's have fewer frames where a mask can tell.
    """
    starts = request.phase is Phase.GENERATE
    voice = _frames(request, FRAMES, "audio_prompt_latents_mask")
    said = _frames(request, 0 if starts else FRAMES, "audio_latents_mask")
    rows = []
    for row in range(request.batch):
        words = ordinary_tokens(request, f"said.{row}", AFTER)
        first = torch.full((int(voice[row].sum()),), request.find("audio_prompt_token_id"))
        last = torch.full((int(said[row].sum()),), request.find("audio_latent_token_id"))
        rows.append(torch.cat([first, words, torch.tensor([request.find("audio_bos_token_id")]), last]))
    made = _aligned(request, rows, request.find("audio_prompt_token_id"))
    given = {"audio_prompt_latents": (voice, "audio_prompt_dim")}
    given |= {} if starts else {"audio_latents": (said, "latent_dim")}
    for name, (kept, width) in given.items():
        made[name] = request.normal(name, *kept.shape, request.find(width))
        if f"{name}_mask" in request.names:
            made[f"{name}_mask"] = kept.long()
    return made


def _frames(request: Request, count: int, mask: str) -> torch.Tensor:
    """Bool (batch, count): which frames there are, a quarter less in the second row where the model takes a `mask`."""
    kept = torch.ones(request.batch, count, dtype=torch.bool)
    if mask in request.names:
        kept[1:, count * 3 // 4 :] = False
    return kept


def _cut(request: Request, token: int, sounds: dict[str, Any]) -> dict[str, Any]:
    """Sounds that a codec makes codes of, with the sample that each ends at: the second row's sooner."""
    samples = sounds["input_values"].shape[-1]
    ends = torch.tensor([samples, samples - PADDED_SAMPLES][: request.batch])
    kept = (torch.arange(samples) < ends[:, None]).long()
    codes = features.call(request, "get_audio_codes_mask", kept)
    return _marked(request, token, codes.sum(dim=-1).tolist()) | sounds | {"input_values_cutoffs": ends[:, None]}


_METHOD = "get_audio_features"
_SOUNDS = frozenset({"input_features", "input_values"})
_KINDS = ("mm_token_type_ids", "token_type_ids")
WATCHED, HEARD = 2, 3
"""What processors call tokens of videos and of sounds, where words are 0 and pictures 1."""
_NAMES = {WATCHED: "watched", HEARD: "heard"}


def _maker(request: Request) -> Maker:
    return audio.features if "input_features" in request.names else audio.wave


def _sounds(request: Request) -> dict[str, Any]:
    return {name: value for name, value in _maker(request)(request).items() if name != "attention_mask"}


def _counts(request: Request, sounds: dict[str, Any]) -> list[int]:
    """Placeholders that each row's sound needs."""
    if not features.takes(request, _METHOD, "input_ids"):
        counts = features.counts(request, _METHOD, sounds, request.batch)
        if counts is not None:
            return counts
    mask = next((sounds[name] for name in ("input_features_mask", "feature_attention_mask") if name in sounds), None)
    made = None if mask is None else features.call(request, "_get_feat_extract_output_lengths", mask.sum(dim=-1))
    if made is None:
        raise InputError(f"{request.model}: it has no {_METHOD} to tell how many placeholders a sound needs")
    return (made[-1] if isinstance(made, tuple) else made).tolist()


def _bounds(request: Request) -> tuple[Any, Any]:
    """The tokens before and after a sound, None where the config names none."""
    return (
        request.look("audio_bos_token_id", "audio_start_token_id", "sound_bos_token_id"),
        request.look("audio_eos_token_id", "audio_end_token_id", "sound_eos_token_id"),
    )


def _marked(request: Request, token: int, counts: list[int]) -> dict[str, Any]:
    """Text with so many placeholders in each row."""
    start, end = ([item] if isinstance(item, int) else [] for item in _bounds(request))
    rows = []
    for row, count in enumerate(counts):
        words = (AFTER if request.padded else AFTER - 4) - (PADDING if row == 1 else 0)
        lead = ordinary_tokens(request, f"before.{row}", BEFORE)
        tail = ordinary_tokens(request, f"after.{row}", words)
        rows.append(torch.cat([lead, torch.tensor([*start, *[token] * count, *end]), tail]))
    result = _aligned(request, rows, token)
    for name in _KINDS:
        if name in request.names:
            result[name] = HEARD * (result["input_ids"] == token)
    return result | (decoder(request) if request.config.is_encoder_decoder else {})


def _aligned(request: Request, rows: list[torch.Tensor], token: int) -> dict[str, Any]:
    """Rows of any lengths as `input_ids`, padded left, and their mask where the model takes one."""
    length = max(map(len, rows))
    pad = pad_token(request)
    ids = torch.full((len(rows), length), 0 if pad == token else pad)  # some configs have one token for both
    mask = torch.zeros(len(rows), length, dtype=torch.long)
    for row, tokens in enumerate(rows):
        ids[row, length - len(tokens) :] = tokens
        mask[row, length - len(tokens) :] = 1
    result = {"input_ids": ids}
    if "attention_mask" in request.names:
        result["attention_mask"] = mask
    return result
