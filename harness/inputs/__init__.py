"""From a model's signature and config to deterministic inputs, all drawn on CPU."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from harness.cases import Dtype, Entry, Phase, Profile, Weights
from harness.inputs import audio, decisions, multimodal, text, time_series, video, vision
from harness.inputs.companions import companions
from harness.inputs.labels import labelled
from harness.inputs.request import InputError, Maker, Request
from model_lists import ListError
from model_lists.recipes import load_recipe

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

__all__ = ["InputError", "cast", "digest", "make"]


def make(
    entry: Entry,
    config: PreTrainedConfig,
    folder: Path,
    profile: Profile,
    seed: int,
    phase: Phase = Phase.FORWARD,
) -> dict[str, Any]:
    """Keyword arguments for what the phase calls: float32, int64 and bool tensors on CPU.

    They are those of the model's forward method. For `Phase.GENERATE` a decoder beside an encoder gets no text to
    begin with, for `Phase.TRAIN` labels are added.

    `config` is the loaded model's own. `padded` is batch 2 with padding in the second row where the model takes
    an attention mask (left for models that generate from a prompt, right for others); `single` is batch 1 of
    another length or size where the model allows one. Entries with real weights and a tokenizer in `folder` get
    real sentences. Raises InputError.
    """
    model_class = getattr(transformers, entry.model_class, None)
    if model_class is None:
        raise InputError(f"{entry.id}: transformers has no class {entry.model_class}; correct the list")
    try:
        recipe = load_recipe(entry.model_type)
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
    )
    if entry.weights is Weights.HUB and request.main == "input_ids" and (folder / "tokenizer.json").is_file():
        inputs = text.sentences(request, folder)
        return labelled(request, inputs) if phase is Phase.TRAIN else inputs
    inputs = _maker(request)(request)
    inputs |= companions(request, inputs)
    if phase is Phase.TRAIN:
        inputs = labelled(request, inputs)
    unknown = sorted(set(inputs) - request.names)
    if unknown:
        raise InputError(f"{entry.id}: {entry.model_class}.forward does not take {', '.join(unknown)}")
    return inputs


def digest(inputs: dict[str, Any]) -> str:
    """sha256 (hex) over every input's name, shape, dtype and bytes, whatever the order of the inputs."""
    result = hashlib.sha256()
    for name in sorted(inputs):
        _add(result, name, inputs[name])
    return result.hexdigest()


def _add(result: hashlib._Hash, name: str, value: Any) -> None:
    match value:
        case torch.Tensor():
            result.update(f"{name}:{tuple(value.shape)}:{value.dtype}:".encode())
            result.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        case dict():
            for key in sorted(value):
                _add(result, f"{name}.{key}", value[key])
        case list() | tuple() if any(isinstance(item, torch.Tensor | dict | list | tuple) for item in value):
            for number, item in enumerate(value):
                _add(result, f"{name}.{number}", item)
        case _:
            result.update(f"{name}:{value!r}:".encode())


def cast(inputs: dict[str, Any], dtype: Dtype | str) -> dict[str, Any]:
    """The inputs with floating-point tensors in `dtype` (torch's name), nested ones too; everything else as it is."""
    target = getattr(torch, str(dtype))

    def convert(value: Any) -> Any:
        match value:
            case torch.Tensor():
                return value.to(target) if value.is_floating_point() else value
            case dict():
                return {key: convert(item) for key, item in value.items()}
            case list() | tuple():
                return type(value)(convert(item) for item in value)
            case _:
                return value

    return convert(inputs)


def _main(declared: str | list[str], names: frozenset[str]) -> str:
    """The input that a model is about: what its class says, unless its forward method does not take that."""
    first = declared if isinstance(declared, str) else declared[0]
    known = ("input_ids", "pixel_values", "pixel_values_videos", "input_features", "input_values", "hidden_states")
    known += ("query_embeds", "inputs_embeds")
    return first if first in names else next((name for name in known if name in names), first)


def _maker(request: Request) -> Maker:
    """The modality's maker, by what the model calls its main input and what its config describes."""
    has_text, has_pixels = "input_ids" in request.names, "pixel_values" in request.names and not request.blind()
    if has_text and has_pixels:
        marked = request.anywhere("image_token_id", "image_token_index") is not None
        return multimodal.placeholders if marked else multimodal.text_and_picture
    sounds = request.names & {"input_features", "input_values"} and not request.numbers.get("text_only")
    if has_text and sounds and not request.blind():
        marked = request.look("audio_token_id", "audio_token_index") is not None
        return multimodal.sound_placeholders if marked else multimodal.text_and_sound
    if request.names & {"grid_thw", "image_grid_thw"} and not has_text:
        return vision.vision
    if "pixel_values_videos" in request.names and "pixel_values" not in request.names:
        return multimodal.text_and_video if has_text else video.video
    if request.main in ("pixel_values", "pixel_values_videos"):
        return video.video if request.look("num_frames", "frames_per_clip") else vision.vision
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
        "latents": audio.latents,
    }
    if request.main not in makers:
        known = ", ".join(sorted({*makers, "pixel_values", "pixel_values_videos", "input_values"}))
        raise InputError(f"{request.model}: no inputs are known for its main input {request.main}; known: {known}")
    return makers[request.main]
