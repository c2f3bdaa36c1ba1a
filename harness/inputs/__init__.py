"""From a model's signature and config to deterministic inputs, all drawn on CPU."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from harness.cases import Dtype, Entry, Given, Phase, Profile, Weights
from harness.inputs import (
    audio,
    choices,
    cut,
    decisions,
    drafts,
    features,
    multimodal,
    nested,
    sessions,
    spoken,
    text,
    time_series,
    video,
    vision,
)
from harness.inputs.companions import companions
from harness.inputs.labels import labelled
from harness.inputs.own import own
from harness.inputs.request import InputError, Maker, Request
from model_lists import ListError
from model_lists.recipes import load_recipe

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["REAL_TOKENS", "InputError", "cast", "digest", "made", "make"]

REAL_TOKENS = 17
"""Tokens that real weights generate: that of the prefill, and 16 that read the cache."""


def make(
    entry: Entry,
    config: PreTrainedConfig,
    folder: Path,
    profile: Profile,
    seed: int,
    phase: Phase = Phase.FORWARD,
) -> dict[str, Any]:
    """As `made`, the inputs alone."""
    return made(entry, config, folder, profile, seed, phase)[1]


def made(
    entry: Entry,
    config: PreTrainedConfig,
    folder: Path,
    profile: Profile,
    seed: int,
    phase: Phase = Phase.FORWARD,
    model_class: type[PreTrainedModel] | None = None,
) -> tuple[Given, dict[str, Any]]:
    """What made the inputs, and keyword arguments for what the phase calls: float32, int64 and bool tensors on CPU.

    They are those of the model's forward method. For `Phase.GENERATE` a decoder beside an encoder gets no text to
    begin with, and what the recipe asks `generate` for is added (no tensors); for `Phase.TRAIN` labels are.

    Tensors may also lie in plain data, of which `harness.execution` makes the argument (see `sessions`).

    `config` is the loaded model's own, and `model_class` its class, where that may be of code of its own. `padded` is
    batch 2 with padding in the second row where the model takes an attention mask (left for models that generate from
    a prompt, right for others); `single` is batch 1 of another length or size where the model allows one. Real weights
    get what their checkpoint, `folder`, makes of stated texts, pictures and sounds, where it brings what does that, and
    generate longer. Raises InputError.
    """
    model_class = model_class or getattr(transformers, entry.model_class, None)
    if model_class is None:
        raise InputError(f"{entry.id}: transformers has no class {entry.model_class}; correct the list")
    try:
        recipe = load_recipe(entry.model_type, entry.model_class)
    except ListError as error:
        raise InputError(str(error)) from error
    names = frozenset(inspect.signature(model_class.forward).parameters)
    if model_class.forward is torch.nn.Module.forward:
        raise InputError(f"{entry.id}: {entry.model_class} has no forward method; its parts have")
    request = Request(
        model=entry.id,
        model_class=model_class,
        config=config,
        names=names,
        main=_main(model_class.main_input_name, names),
        profile=profile,
        seed=seed,
        numbers=recipe.inputs,
        generates=model_class.can_generate(),
        phase=phase,
        trusts_code=entry.trusts_its_code,
    )
    if phase is Phase.GENERATE and _passes_on(model_class):  # `generate` has a mask whether or not forward names it
        request = dataclasses.replace(request, names=names | {"attention_mask"})
    if request.numbers.get("inner_pictures"):
        request = dataclasses.replace(request, names=request.names | features.arguments(request, "get_image_features"))
    given, inputs = Given.DRAWN, None
    if entry.weights is Weights.HUB and (found := own(request, folder)) is not None:
        given, inputs = found
    if inputs is None:
        inputs = choices.several(request, _made) if request.head == "MultipleChoice" else _made(request)
    if phase is Phase.TRAIN:
        inputs = labelled(request, inputs)
    unknown = sorted(set(inputs) - request.names)
    if unknown:
        raise InputError(f"{entry.id}: {entry.model_class}.forward does not take {', '.join(unknown)}")
    if phase is Phase.GENERATE:
        inputs |= recipe.generate
        if entry.weights is Weights.HUB:
            inputs["max_new_tokens"] = REAL_TOKENS
    return given, inputs


def _passes_on(model_class: type) -> bool:
    """Does it read a text, and hand what its forward method does not name on to a part?"""
    parameters = inspect.signature(model_class.forward).parameters
    return "input_ids" in parameters and any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _made(request: Request) -> dict[str, Any]:
    inputs = _maker(request)(request)
    return inputs | companions(request, inputs)


def digest(inputs: dict[str, Any]) -> str:
    """sha256 (hex) over every input's name, shape, dtype and bytes, whatever the order of the inputs."""
    result = hashlib.sha256()
    for top in sorted(inputs):
        for name, value in nested.leaves(top, inputs[top]):
            if isinstance(value, torch.Tensor):
                result.update(f"{name}:{tuple(value.shape)}:{value.dtype}:".encode())
                result.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
            else:
                result.update(f"{name}:{value!r}:".encode())
    return result.hexdigest()


def cast(inputs: dict[str, Any], dtype: Dtype | str) -> dict[str, Any]:
    """The inputs with floating-point tensors in `dtype` (torch's name), nested ones too; everything else as it is."""
    target = getattr(torch, str(dtype))
    return nested.mapped(inputs, lambda tensor: tensor.to(target) if tensor.is_floating_point() else tensor)


def _main(declared: str | list[str], names: frozenset[str]) -> str:
    """The input that a model is about: what its class says, unless its forward method does not take that."""
    first = declared if isinstance(declared, str) else declared[0]
    if first == "inputs":  # of any kind; some classes take them by their own name too
        first = next((name for name in ("input_ids", "pixel_values") if name in names), first)
    known = ("input_ids", "pixel_values", "pixel_values_videos", "input_features", "input_values", "hidden_states")
    known += ("query_embeds", "inputs_embeds", "noise_embeds")
    return first if first in names else next((name for name in known if name in names), first)


def _maker(request: Request) -> Maker:
    """The modality's maker, by what the model calls its main input and what its config describes."""
    if "inference_session" in request.names:
        return sessions.session
    if {"input_ids", "marks", "question_type_ids"} <= request.names:
        return decisions.questions
    if "shared_kv_states" in request.names and request.look("backbone_hidden_size"):
        return drafts.draft
    if {"image_pixel_values", "audio_input_features"} <= request.names:
        return multimodal.text_picture_and_sound
    if {"input_ids", "audio_input_ids", "audio_input_ids_mask"} <= request.names and request.look("num_codebooks"):
        return spoken.codes_in_text
    if {"input_ids", "audio_prompt_latents", "audio_latents"} <= request.names and request.look("audio_prompt_dim"):
        return spoken.voice_and_latents
    has_text, has_pixels = "input_ids" in request.names, "pixel_values" in request.names and not request.blind()
    if has_text and has_pixels:
        if multimodal.placeholder(request) is None:
            return multimodal.text_and_picture
        maker = multimodal.placeholders
        maker = spoken.and_videos(maker) if spoken.watches(request) else maker
        return spoken.and_sounds(maker) if spoken.hears(request) else maker
    sounds = request.names & {"input_features", "input_values"}
    if has_text and sounds and not request.blind():
        if request.numbers.get("either"):
            return spoken.text_or_sound
        marked = request.look("audio_token_id", "audio_token_index") is not None
        return spoken.sound_placeholders if marked else spoken.text_and_sound
    if has_pixels and not has_text and cut.come(request):
        return cut.pictures
    if request.names & vision.GRIDS and not has_text:
        return vision.vision
    if "pixel_values_videos" in request.names and "pixel_values" not in request.names:
        return multimodal.text_and_video if has_text else video.video
    if request.main in ("pixel_values", "pixel_values_videos"):
        still = request.head.startswith("Image") or not request.look("num_frames", "frames_per_clip")
        return vision.vision if still else video.video
    if request.main == "hidden_states" and request.look("downsampling_ratios"):  # a codec's half
        return audio.latents if request.look("upsampling_ratios") else audio.wave
    if {"decoder_input_values", "labels"} & request.names == {"decoder_input_values"}:
        return audio.embedded
    if {"inputs", "input_values", "input_features"} <= request.names:
        return audio.composed
    if request.main == "input_values":
        spectral = request.look("num_mel_bins") and request.look("max_length")
        return audio.spectrogram if spectral else audio.wave
    makers = {
        "input_ids": text.text,
        "input_features": audio.features,
        "audio_mel": audio.features,
        "past_values": time_series.series,
        "states": decisions.episode,
        "flattened_patches": vision.flattened,
        "inputs": text.embedded,
        "inputs_embeds": text.embedded,
        "query_embeds": text.embedded,
        "noise_embeds": drafts.block,
        "latents": audio.latents,
    }
    if request.main not in makers:
        known = ", ".join(sorted({*makers, "pixel_values", "pixel_values_videos", "input_values"}))
        raise InputError(f"{request.model}: no inputs are known for its main input {request.main}; known: {known}")
    return makers[request.main]
