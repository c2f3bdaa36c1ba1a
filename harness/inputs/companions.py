"""Inputs that few models take beside their main ones, each made by its name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch

from harness.cases import Phase
from harness.inputs.request import Request, configs
from harness.inputs.text import ordinary_tokens
from harness.inputs.vision import flattened, picture, size

QUESTION = 8
"""Tokens of a second, short text."""
RESIDUES = 12
"""Amino acids of a protein."""
REGIONS = 4
"""Regions of a picture whose features are given."""
ACTIONS = 6
"""Steps that a robot plans ahead."""
MENTIONS = ((1, 2, 3), (5, 6, -1))
"""Places of the words that name each entity, -1 where it has fewer."""
SPECIAL = 16
"""Ids at either end of a vocabulary that are left alone, since they may be special."""
SPOKEN = 8
"""Frames that a speaker has spoken already."""
NOISE_STEPS = 1000
"""Times from noise to sound, of which a few are taken."""
CODEBOOK_STRIDE = 8
"""Pixels that a codebook of patches shrinks a picture by (`FlavaImageCodebook` halves it three times)."""


_BOUNDS = ("image_start_token_id", "image_end_token_id")


def companions(request: Request, inputs: dict[str, Any]) -> dict[str, Any]:
    """What the signature names beside `inputs` and is known here."""
    made: dict[str, Any] = {}
    for name, (beside, make) in (_MAKERS | _OF_HEADS.get(request.head, {})).items():
        given = inputs | made
        if name in request.names and name not in given and any(other in given for other in beside.split("|")):
            value = make(request, given)
            if value is not None:
                made[name] = value
    return made


def _question(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    sizes = [size for config in configs(request.config) if isinstance(size := getattr(config, "vocab_size", None), int)]
    return request.integers("question", SPECIAL, min(sizes) - SPECIAL, request.batch, QUESTION)


def _question_mask(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.ones(request.batch, QUESTION, dtype=torch.long)


def _task(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    length, vocabulary = request.find("task_seq_len"), request.find("text_encoder_vocab_size")
    return request.integers("task_inputs", 1, vocabulary, request.batch, length)


def _protein(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """The residues of a protein that the text is about."""
    vocabulary = request.find("vocab_size", config=request.part("protein_encoder_config"))
    return request.integers("protein_input_ids", 4, min(vocabulary, 24), request.batch, RESIDUES)


def _protein_mask(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    mask = torch.ones(request.batch, RESIDUES, dtype=torch.long)
    if request.padded:
        mask[1, RESIDUES // 2 :] = 0
    return mask


def _patches(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return flattened(request)["flattened_patches"]


def _regions(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return request.normal("visual_feats", request.batch, REGIONS, request.find("visual_feat_dim"))


def _seen_regions(request: Request, inputs: dict[str, Any]) -> torch.Tensor | None:
    """Features of a picture's regions that come after the text; training does without, since its labels are words."""
    if request.phase is Phase.TRAIN:
        return None
    return request.normal("visual_embeds", request.batch, REGIONS, request.find("visual_embedding_dim"))


def _region_boxes(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    width = request.find("visual_pos_dim")
    return torch.rand(request.batch, REGIONS, width, generator=request.generator("visual_pos"))


def _prompt_picture(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return picture(request, "prompt_pixel_values", request.vision(), request.batch)


def _prompt_mask(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return picture(request, "prompt_masks", request.vision(), request.batch)


def _depth(request: Request, inputs: dict[str, Any]) -> torch.Tensor | None:
    """What a coarse sensor measured of each picture, metres, half as high and wide; `single` does without."""
    if not request.padded:
        return None
    rows, _, height, width = inputs["pixel_values"].shape
    return 1 + 4 * torch.rand(rows, 1, height // 2, width // 2, generator=request.generator("prompt_depth"))


def _mask_prompt(request: Request, inputs: dict[str, Any]) -> torch.Tensor | None:
    """An earlier mask, four times as fine as the features of the picture; `single` does without."""
    if not request.padded:
        return None
    part = request.part("prompt_encoder_config")
    side = 4 * (request.find("image_size", config=part) // request.find("patch_size", config=part))
    return request.normal("input_masks", request.batch, 1, side, side)


def _features_here(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Where in the text the features of the picture go: right after the first token."""
    positions = torch.arange(inputs["input_ids"].shape[1])
    here = (positions > 0) & (positions <= request.find("latent_query_num"))
    return here.expand(request.batch, -1).contiguous()


def _read(request: Request, inputs: dict[str, Any]) -> torch.Tensor | None:
    """What queries attend to, or a decoder by itself whose recipe says how wide it is; else None."""
    told = request.numbers.get("encoder_width")
    width = told or ("query_embeds" in inputs and request.find("encoder_hidden_size"))
    return request.normal("encoder_hidden_states", request.batch, REGIONS, width) if width else None


def _actions(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """The state of a robot, and the actions that follow."""
    width = request.find("hidden_size", config=request.part("dit_config"))
    return request.normal("action_embeds", request.batch, 1 + ACTIONS, width)


def _not_padding(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.zeros_like(inputs["past_values"], dtype=torch.long)


def _frequency(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.zeros(request.batch, 1, dtype=torch.long)


def _hidden_patches(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Which patches are hidden: as many in each row, others in each."""
    rows, columns = _patch_grid(request)
    count = rows * columns
    if inputs["pixel_values"].dim() == 5:
        count *= inputs["pixel_values"].shape[1] // request.find("tubelet_size")
    return _as_many_in_each_row(request, "bool_masked_pos", count, count // 2)


def _some_hidden_patches(request: Request, inputs: dict[str, Any]) -> torch.Tensor | None:
    """Fewer of them, for a model that can do without; none where it has nothing to put in their place.

    Whether it has is told by its config, or by how it is built, or else goes without saying; encoders of videos
    leave hidden patches out instead.
    """
    if inputs["pixel_values"].dim() != 4:
        return None
    told = request.look("use_mask_token", config=request.vision())
    built = inspect.signature(request.model_class.__init__).parameters.get("use_mask_token")
    if not request.padded or not (told if told is not None else built is None or built.default):
        return None
    rows, columns = _patch_grid(request)
    return _as_many_in_each_row(request, "bool_masked_pos", rows * columns, rows * columns // 4)


def _schedule(request: Request, inputs: dict[str, Any]) -> dict[str, int] | None:
    """What a sound is drawn out of noise by, as plain data (see `harness.execution.diffusion`)."""
    return {"train_steps": NOISE_STEPS} if request.phase is Phase.GENERATE else None


def _expert_kinds(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Which experts each token goes to: those for pictures also where one begins and where it ends."""
    bounds = [number for name in _BOUNDS if (number := request.anywhere(name)) is not None]
    kinds = inputs["mm_token_type_ids"].clone()
    kinds[torch.isin(inputs["input_ids"], torch.tensor(bounds, dtype=torch.long))] = 1
    return kinds


def _hidden_frames(request: Request, inputs: dict[str, Any]) -> torch.Tensor | None:
    """Which frames of a sound, behind the convolutions that make them of a wave, are hidden; none without a mask."""
    if not request.padded or not request.look("mask_time_prob"):
        return None
    frames = inputs[request.main].shape[1]
    if request.main == "input_values":
        for kernel, stride in zip(request.find("conv_kernel"), request.find("conv_stride"), strict=True):
            frames = (frames - kernel) // stride + 1
    return _as_many_in_each_row(request, "mask_time_indices", frames, frames // 4)


def _as_many_in_each_row(request: Request, name: str, count: int, chosen: int) -> torch.Tensor:
    """Bool (batch, count) with `chosen` of each row true."""
    order = torch.rand(request.batch, count, generator=request.generator(name)).argsort(dim=1)
    return order < chosen


def _patch_grid(request: Request) -> tuple[int, int]:
    part = request.vision()
    patch = request.find("patch_size", config=part)
    height, width = size(request, part)
    return height // patch, width // patch


def _noise(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """By whose order patches, or square units of them, are hidden."""
    part = request.vision()
    step = request.find("patch_stride", "patch_size", config=part)
    units = request.look("masked_unit_size", config=part) or [1, 1]
    steps = step if isinstance(step, list | tuple) else [step, step]
    count = math.prod(side // each // unit for side, each, unit in zip(size(request, part), steps, units, strict=True))
    return torch.rand(request.batch, count, generator=request.generator("noise"))


def _codebook_pixels(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    height, width = (CODEBOOK_STRIDE * patches for patches in _patch_grid(request))
    return torch.rand(request.batch, 3, height, width, generator=request.generator("codebook_pixel_values"))


def _hidden_words(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """The text with every fifth word replaced."""
    ids = inputs["input_ids"].clone()
    ids[:, 2::5] = ordinary_tokens(request, "input_ids_masked", *ids[:, 2::5].shape)
    return ids


def _questions(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Places of the words that are asked for."""
    return torch.tensor([2, 5]).repeat(request.batch, 1)


def _seen_by_all(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """The first word sees all others and is seen by them, also from afar."""
    mask = torch.zeros_like(inputs["input_ids"])
    mask[:, 0] = 1
    return mask


def _entities(request: Request, inputs: dict[str, Any]) -> torch.Tensor | None:
    """Ids of the entities that the text names, where the model knows any."""
    if (known := request.look("entity_vocab_size")) is None:
        return None
    return request.integers("entity_ids", SPECIAL, known, request.batch, len(MENTIONS))


def _entity_mask(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """The second row names one less."""
    mask = torch.ones_like(inputs["entity_ids"])
    if request.padded:
        mask[1, -1] = 0
    return mask


def _mentions(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.tensor(MENTIONS).repeat(request.batch, 1, 1)


def _entity_types(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """The first entities belong to one part of the text, the last one to the other."""
    types = torch.zeros_like(inputs["entity_ids"])
    types[:, -1] = 1
    return types


def _earlier_guess(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Scores of every word for each of the decoder's, from the step before."""
    size = request.find("vocab_size", config=request.part("text_config"))
    return request.normal("self_conditioning_logits", *inputs["decoder_input_ids"].shape, size)


def _robot(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return request.normal("state", request.batch, request.find("max_state_dim"))


def _action_noise(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """What the actions are denoised from."""
    return request.normal("noise", request.batch, request.find("chunk_size"), request.find("max_action_dim"))


def _time(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """How far each row is denoised, a share."""
    return torch.rand(request.batch, generator=request.generator("timestep"))


def _spoken(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Frames that have been spoken already."""
    return request.normal("decoder_input_values", request.batch, SPOKEN, request.find("num_mel_bins"))


def _speaker(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Whose voice it is."""
    return request.normal("speaker_embeddings", request.batch, request.find("speaker_embedding_dim"))


def _sound_noise(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """What a sound is made of, for each frame. A vocoder that is given none draws it, differently on each device."""
    frames = inputs["input_features"].shape[1]
    return request.normal("noise_sequence", request.batch, frames, request.find("model_in_channels"))


_Makers = dict[str, tuple[str, Callable[[Request, dict[str, Any]], torch.Tensor | None]]]

_MAKERS: _Makers = {
    "encoder_hidden_states": ("query_embeds|input_ids", _read),
    "action_embeds": ("pixel_values", _actions),
    "qformer_input_ids": ("input_ids", _question),
    "qformer_attention_mask": ("input_ids", _question_mask),
    "protein_input_ids": ("input_ids", _protein),
    "protein_attention_mask": ("protein_input_ids", _protein_mask),
    "flattened_patches": ("input_ids", _patches),
    "task_inputs": ("pixel_values", _task),
    "visual_feats": ("input_ids", _regions),
    "visual_embeds": ("input_ids", _seen_regions),
    "visual_pos": ("input_ids", _region_boxes),
    "prompt_pixel_values": ("pixel_values", _prompt_picture),
    "prompt_masks": ("pixel_values", _prompt_mask),
    "prompt_depth": ("pixel_values", _depth),
    "input_masks": ("input_points", _mask_prompt),
    "image_embeds_position_mask": ("pixel_values|flattened_patches", _features_here),
    "past_values_padding": ("past_values", _not_padding),
    "freq": ("past_values", _frequency),
    "entity_ids": ("input_ids", _entities),
    "entity_attention_mask": ("entity_ids", _entity_mask),
    "entity_position_ids": ("entity_ids", _mentions),
    "entity_token_type_ids": ("entity_ids", _entity_types),
    "self_conditioning_logits": ("decoder_input_ids", _earlier_guess),
    "moe_mm_token_type_ids": ("mm_token_type_ids", _expert_kinds),
    "noise_scheduler": ("input_values", _schedule),
    "mask_time_indices": ("input_values|input_features", _hidden_frames),
    "noise_sequence": ("input_features", _sound_noise),
}
"""Each with the input that it goes beside, or any of several; what is made here counts for those below it."""

_OF_HEADS: dict[str, _Makers] = {
    "": {
        "bool_masked_pos": ("pixel_values", _some_hidden_patches),
        "global_attention_mask": ("input_ids", _seen_by_all),
    },
    "ConditionalGeneration": {
        "state": ("pixel_values", _robot),
        "noise": ("pixel_values", _action_noise),
        "timestep": ("pixel_values", _time),
    },
    "TextToSpeech": {
        "decoder_input_values": ("input_ids", _spoken),
        "speaker_embeddings": ("input_ids", _speaker),
    },
    "MaskedImageModeling": {"bool_masked_pos": ("pixel_values", _hidden_patches)},
    "PreTraining": {
        "bool_masked_pos": ("pixel_values", _hidden_patches),
        "noise": ("pixel_values", _noise),
        "codebook_pixel_values": ("pixel_values", _codebook_pixels),
        "input_ids_masked": ("input_ids", _hidden_words),
        "question_positions": ("input_ids", _questions),
    },
}
"""The same for what only classes of one head take or need."""
