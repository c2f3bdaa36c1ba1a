"""What a model is trained towards: labels of every kind, by the names of arguments and by the task a class is for.

Classes are named for their task (`...ForTokenClassification`), and the library itself chooses their loss by that name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

from harness.inputs import features
from harness.inputs.request import InputError, Request
from harness.inputs.text import ordinary_tokens

IGNORED = -100
"""Label of a position that does not count, in the losses of text."""
UNLABELLED = 255
"""Label of a pixel that does not count, in the losses of segmentation."""
SPOKEN = 4
"""Tokens of a transcript; fewer than the frames of any sound."""
OBJECTS = 3
"""Things in a picture."""


def labelled(request: Request, inputs: dict[str, Any]) -> dict[str, Any]:
    """`inputs` with all that the signature names of what a loss needs. Raises InputError where none is known.

    A decoder whose texts are labels gets no other: the model itself shifts them by a token, as when it is trained.
    """
    added = {name: make(request, inputs) for name, make in _BY_NAME.items() if name in request.names - set(inputs)}
    if "labels" in request.names and not {"start_positions", "target_values"} & set(added):
        added["labels"] = _maker(request)(request, inputs)
    if not added and not {"labels", "future_values"} & request.names and not _needs_none(request):
        raise InputError(f"{request.model}: no labels are known for {request.model_class.__name__}")
    result = inputs | added
    if "labels" in added and _shifts(request):
        result.pop("decoder_input_ids", None)
    return result


def _shifts(request: Request) -> bool:
    """Does the forward method shift labels, and know what stands where none counts?"""
    code = inspect.unwrap(request.model_class.forward).__code__
    padding = request.look("pad_token_id", config=request.part("text_config"))
    return padding is not None and any("shift" in name for name in code.co_names)


def _needs_none(request: Request) -> bool:
    """Models that learn to restore their own input."""
    return request.model_class.__name__.endswith(("ForPreTraining", "ForMaskedImageModeling", "ForPretraining"))


def _maker(request: Request) -> Callable[[Request, dict[str, Any]], Any]:
    name = request.model_class.__name__
    for pattern, make in _BY_TASK:
        if re.search(pattern, name):
            return make
    raise InputError(f"{request.model}: no labels are known for the task of {name}")


def _tokens(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """A word for each token, int64 of the same shape; padding and special tokens do not count."""
    side = "decoder_" if "decoder_input_ids" in inputs else ""
    ids = inputs.get(f"{side}input_ids")
    if ids is None:
        raise InputError(f"{request.model}: labels are tokens, and its inputs have none")
    labels = ordinary_tokens(request, "labels", *ids.shape)
    mask = inputs.get(f"{side}attention_mask")
    if mask is not None and mask.shape == ids.shape:
        labels[mask == 0] = IGNORED
    if not side:
        labels[torch.isin(ids, torch.tensor(sorted(request.special_tokens()), dtype=torch.long))] = IGNORED
    return labels


def _token_classes(request: Request, inputs: dict[str, Any], classes: int | None = None) -> torch.Tensor:
    """A class for each token, int64 (batch, length)."""
    shape = _main(request, inputs).shape[:2]
    labels = request.integers("labels", 0, classes or request.config.num_labels, *shape)
    mask = inputs.get("attention_mask")
    if mask is not None and mask.shape == shape:
        labels[mask == 0] = IGNORED
    return labels


def _frame_classes(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """A class for each frame that the model makes of a sound, int64 (batch, frames, classes), one of them 1.

    Runs an untrained model of the same config on CPU: the number of frames depends on sizes alone.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        frames = features.untrained(request)(**inputs).logits.shape[1]
    classes = request.config.num_labels
    drawn = request.integers("labels", 0, classes, request.batch, frames)
    return torch.nn.functional.one_hot(drawn, classes)


def _answers(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Words of the answer where the model speaks, else how good each known answer is, float32 (batch, answers)."""
    if "decoder_input_ids" in request.names:
        return _tokens(request, inputs)
    return torch.rand(request.batch, request.config.num_labels, generator=request.generator("labels"))


def _replaced(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Is each token the original one? int64 (batch, length), or tokens where whole sentences are judged too."""
    if request.names & {"next_sentence_label", "sentence_order_label", "matched_label", "sentence_image_labels"}:
        return _tokens(request, inputs)
    return request.integers("labels", 0, 2, *_main(request, inputs).shape[:2])


def _class(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """A class for each row, int64 (batch,), or float32 where there is one class, which is a value."""
    if request.config.num_labels == 1:
        return request.normal("labels", request.batch)
    return request.integers("labels", 0, request.config.num_labels, request.batch)


def _choice(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """The right one of the choices of each row, int64 (batch,)."""
    return request.integers("labels", 0, _main(request, inputs).shape[1], request.batch)


def _yes_or_no(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    return request.integers("yes", 0, 2, request.batch)


def _transcript(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Tokens without the blank one, int64 (batch, tokens); the second row is shorter."""
    labels = ordinary_tokens(request, "labels", request.batch, SPOKEN)
    if request.padded:
        labels[1, -1] = IGNORED
    return labels


def _pixel_classes(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """A class for each pixel, int64 (batch, height, width); a border has none."""
    labels = request.integers("labels", 0, request.config.num_labels, request.batch, *_picture_size(request, inputs))
    labels[:, 0] = UNLABELLED
    return labels


def _depths(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """How far each pixel is, float32 (batch, height, width), positive."""
    return 1 + request.normal("labels", request.batch, *_picture_size(request, inputs)).abs()


def _objects(request: Request, inputs: dict[str, Any]) -> list[dict[str, torch.Tensor]]:
    """Things in each picture: classes, int64, and boxes, float32, as centre and size in shares of the picture."""
    return [
        {
            "class_labels": request.integers(f"class.{row}", 0, request.config.num_labels, OBJECTS),
            "boxes": torch.cat([_share(request, f"centre.{row}", 2), _share(request, f"size.{row}", 2) / 2], dim=-1),
        }
        for row in range(request.batch)
    ]


def _masked_objects(request: Request, inputs: dict[str, Any]) -> list[dict[str, torch.Tensor]]:
    """The same with the pixels that each thing covers, float32 (things, height, width) of zeros and ones."""
    masks = _masks(request, inputs)
    return [thing | {"masks": mask} for thing, mask in zip(_objects(request, inputs), masks, strict=True)]


def _masks(request: Request, inputs: dict[str, Any]) -> list[torch.Tensor]:
    size = _picture_size(request, inputs)
    return [(request.normal(f"mask.{row}", OBJECTS, *size) > 0).float() for row in range(request.batch)]


def _mask_classes(request: Request, inputs: dict[str, Any]) -> list[torch.Tensor]:
    classes = request.config.num_labels
    return [request.integers(f"class.{row}", 0, classes, OBJECTS) for row in range(request.batch)]


def _start(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """Where the answer begins, int64 (batch,)."""
    return request.integers("start", 0, _main(request, inputs).shape[1] // 4, request.batch)


def _end(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    length = _main(request, inputs).shape[1]
    return _start(request, inputs) + request.integers("end", 1, length // 4, request.batch)


def _future(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """What comes after `past_values`, float32 (batch, time) or (batch, time, channels) as they are."""
    length = request.find("prediction_length", "horizon_length")
    return request.normal("future_values", request.batch, length, *inputs["past_values"].shape[2:])


def _target(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    """A class or several values for each series, int64 (batch,) or float32 (batch, values)."""
    if "Classification" in request.model_class.__name__:
        classes = request.look("num_targets", "num_labels")
        return request.integers("target_values", 0, classes, request.batch)
    return request.normal("target_values", request.batch, request.find("num_targets"))


def _true(request: Request, inputs: dict[str, Any]) -> bool:
    return True


def _main(request: Request, inputs: dict[str, Any]) -> torch.Tensor:
    for name in (request.main, "input_ids", "inputs_embeds"):
        if name in inputs:
            return inputs[name]
    raise InputError(f"{request.model}: labels follow its main input {request.main}, which it does not have")


def _picture_size(request: Request, inputs: dict[str, Any]) -> tuple[int, int]:
    pictures = inputs.get("pixel_values", inputs.get("pixel_values_videos"))
    if pictures is None or pictures.dim() < 4:
        raise InputError(f"{request.model}: labels follow the size of pictures, which its inputs do not have")
    return pictures.shape[-2], pictures.shape[-1]


def _share(request: Request, name: str, *shape: int) -> torch.Tensor:
    """Numbers well inside (0, 1), float32 (things, ...)."""
    return 0.3 + 0.4 * torch.rand(OBJECTS, *shape, generator=request.generator(name))


_BY_NAME: dict[str, Callable[[Request, dict[str, Any]], Any]] = {
    "start_positions": _start,
    "end_positions": _end,
    "next_sentence_label": _yes_or_no,
    "sentence_order_label": _yes_or_no,
    "mask_labels": _masks,
    "class_labels": _mask_classes,
    "future_values": _future,
    "target_values": _target,
    "return_loss": _true,
}

_BY_TASK: tuple[tuple[str, Callable[[Request, dict[str, Any]], Any]], ...] = (
    (r"For(Token|EntitySpan)Classification$", _token_classes),
    (r"ForAudioFrameClassification$", _frame_classes),
    (r"ForMultipleChoice$", _choice),
    (r"ForNextSentencePrediction$", _yes_or_no),
    (r"(Classification\w*|WithTeacher|ForXVector)$", _class),
    (r"For(CTC|RNNT|TDT)$", _transcript),
    (r"ForSemanticSegmentation$", _pixel_classes),
    (r"ForDepthEstimation$", _depths),
    (r"ForObjectDetection$", _objects),
    (r"For(Instance)?Segmentation$", _masked_objects),
    (r"ForPre[Tt]raining$", _replaced),
    (r"ForQuestionAnswering$", _answers),
    (r"LMHead|MTModel|EncoderDecoder|DoubleHeads|For(Causal|Masked|Conditional|Text|Speech)", _tokens),
)
"""By the end of a class's name, the first that fits."""
