"""Inputs that a checkpoint's own tokenizer or processor makes, of stated texts, pictures and sounds."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoProcessor, AutoTokenizer, PreTrainedTokenizerBase
from transformers.feature_extraction_utils import FeatureExtractionMixin
from transformers.image_processing_base import ImageProcessingMixin

from harness import checkpoints
from harness.cases import Given, Phase
from harness.inputs.request import CodeNotTrusted, DependencyMissing, InputError, Request

if TYPE_CHECKING:
    from PIL import Image

SENTENCES = (
    "The lighthouse keeper counts the ships that pass between dusk and dawn.",
    "Rain is expected.",
)
OTHER_SENTENCE = "How far is it from the railway station to the old harbour?"
QUESTIONS = ("What is the capital of France, and which river flows through it?", "Count from one to ten.")
OTHER_QUESTION = "Why is the sky blue? Answer in one sentence."
ANSWERS = ("He counts forty of them in a quiet night.", "Take a coat.")
"""What a decoder beside an encoder is given, and what is asked about in pairs of texts."""
SIDES = ((320, 240), (256, 256), (200, 280))
"""Width and height of the pictures, pixels."""
SECONDS = (1.5, 1.0, 1.2)
"""Lengths of the sounds."""
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "*.model")
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")
_SEEN, _HEARD = frozenset({"pixel_values"}), frozenset({"input_features", "input_values"})
_PAIRS = ("QuestionAnswering", "NextSentencePrediction")
_ROWS_OF_SEVERAL = "MultipleChoice"
_REFUSED = "trust_remote_code=True"
"""What the library asks for where code of a repository is needed."""


def own(request: Request, checkpoint: Path) -> tuple[Given, dict[str, Any]] | None:
    """What made the inputs, and the inputs, of two rows of different lengths or one other.

    None where the checkpoint brings nothing that makes inputs for such a model, or not all that it needs. Raises
    InputError where it does but fails, DependencyMissing where a package for it is not installed, and CodeNotTrusted.
    """
    if request.head == _ROWS_OF_SEVERAL:
        return None
    senses = request.names & (_SEEN | _HEARD) if not request.blind() else frozenset()
    try:
        if senses and _has(checkpoint, _PROCESSORS):
            given, made = Given.PROCESSOR, _processed(request, checkpoint)
        elif request.main == "input_ids" and not senses and _has(checkpoint, _TOKENIZERS):
            given, made = Given.TOKENIZER, _worded(request, tokenizer(request, checkpoint))
        else:
            return None
    except ImportError as error:
        raise DependencyMissing(f"{request.model}: {' '.join(str(error).split())[:300]}") from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        if _REFUSED in str(error):
            raise CodeNotTrusted(
                f"{request.model}: its own tokenizer or processor needs code of its repository, and none is trusted; "
                "read the *.py at the commit that is run, and put that commit into the list's column trusted"
            ) from error
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise InputError(f"{request.model}: its own tokenizer or processor fails: {said}") from error
    made = {name: value for name, value in made.items() if name in request.names}
    return (given, made) if {request.main, *_required(request)} <= made.keys() else None


def tokenizer(request: Request, checkpoint: Path) -> PreTrainedTokenizerBase:
    """The checkpoint's tokenizer, which pads as its model reads: left where that goes on with a text."""
    folder, options = checkpoints.arguments(checkpoint)
    options |= {"local_files_only": True, "trust_remote_code": request.trusts_code}
    return _padding(request, AutoTokenizer.from_pretrained(folder, **options))


def _has(checkpoint: Path, names: tuple[str, ...]) -> bool:
    if checkpoints.is_gguf(checkpoint):
        return names is _TOKENIZERS
    return any(any(checkpoint.glob(name)) for name in names)


def _required(request: Request) -> set[str]:
    """Arguments without which the forward method cannot be called."""
    parameters = inspect.signature(request.model_class.forward).parameters.values()
    return {one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD} - {
        "self"
    }


def _padding(request: Request, words: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    if words.pad_token is None:
        words.pad_token = words.eos_token or words.unk_token
    if request.generates and not request.config.is_encoder_decoder:
        words.padding_side = "left"
    return words


def _texts(request: Request, asks: bool) -> list[str]:
    """Texts for the rows: questions where the model is one to talk with, else sentences."""
    if asks:
        return list(QUESTIONS) if request.padded else [OTHER_QUESTION]
    return list(SENTENCES) if request.padded else [OTHER_SENTENCE]


def _talk(text: str, pictures: int = 0) -> list[dict[str, Any]]:
    """A conversation that begins with one question, as chat templates take it."""
    if not pictures:
        return [{"role": "user", "content": text}]
    return [{"role": "user", "content": [{"type": "image"}] * pictures + [{"type": "text", "text": text}]}]


def _worded(request: Request, words: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Token ids, int64 (batch, length), with what goes beside them."""
    asks = request.generates and bool(words.chat_template)
    texts = _texts(request, asks)
    options: dict[str, Any] = {"padding": True, "return_tensors": "pt"}
    if asks:
        talks = [words.apply_chat_template(_talk(text), add_generation_prompt=True, tokenize=False) for text in texts]
        made = words(talks, add_special_tokens=False, **options)
    elif request.head in _PAIRS:
        made = words(texts, list(ANSWERS)[: len(texts)], **options)
    else:
        made = words(texts, **options)
    return dict(made) | _answered(request, words)


def _answered(request: Request, words: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What a decoder beside an encoder has said so far: the start token and an answer. Generation starts by itself."""
    start = request.look("decoder_start_token_id", "bos_token_id", "pad_token_id")
    if "decoder_input_ids" not in request.names or request.phase is Phase.GENERATE or start is None:
        return {}
    said = words(text_target=list(ANSWERS)[: request.batch], padding=True, return_tensors="pt")
    ids = torch.cat([torch.full((request.batch, 1), start), said["input_ids"][:, :-1]], dim=1)
    mask = torch.cat([torch.ones(request.batch, 1, dtype=torch.long), said["attention_mask"][:, :-1]], dim=1)
    return {"decoder_input_ids": ids, "decoder_attention_mask": mask}


def _processed(request: Request, folder: Path) -> dict[str, Any]:
    """Pictures, sounds and texts as the checkpoint's processor makes tensors of them."""
    processor = AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=request.trusts_code)
    sees, hears, words = (
        getattr(processor, name, processor if isinstance(processor, kind) else None)
        for name, kind in (
            ("image_processor", ImageProcessingMixin),
            ("feature_extractor", FeatureExtractionMixin),
            ("tokenizer", PreTrainedTokenizerBase),
        )
    )
    options: dict[str, Any] = {"return_tensors": "pt"}
    rows = range(request.batch) if request.padded else [2]
    things: dict[str, Any] = {}
    if sees is not None and request.names & _SEEN:
        things["images"] = [picture(row) for row in rows]
    if hears is not None and request.names & _HEARD:
        rate = hears.sampling_rate
        things["audio"] = [sound(row, rate) for row in rows]
        options |= {"sampling_rate": rate, "padding": True}
    reads = words is not None and "input_ids" in request.names
    if reads:
        _padding(request, words)
        template = getattr(processor, "chat_template", None) or words.chat_template
        asks = request.generates and bool(template)
        texts = _texts(request, asks)
        if asks:
            pictures = int("images" in things)
            talk = [processor.apply_chat_template(_talk(text, pictures), add_generation_prompt=True) for text in texts]
            things["text"] = talk
        else:
            things["text"] = texts
        options["padding"] = True
    if processor is sees:
        made = processor(things["images"], **options)
    elif processor is hears:
        made = processor(things["audio"], **options)
    else:
        made = processor(**things, **options)
    decoded = _answered(request, words) if words is not None else {}
    return dict(made) | decoded


def picture(row: int) -> Image.Image:
    """A sky over a field with a red disc, RGB, of a size and a place of its own for each row. Raises ImportError."""
    from PIL import Image, ImageDraw

    width, height = SIDES[row % len(SIDES)]
    down, across = np.mgrid[0:height, 0:width]
    sky = np.stack([60 + 90 * down / height, 120 + 80 * across / width, 230 - 60 * down / height], axis=-1)
    made = Image.fromarray(sky.astype(np.uint8), "RGB")
    draw = ImageDraw.Draw(made)
    draw.rectangle((0, height * 2 // 3, width, height), fill=(40, 110 + 20 * row, 50))
    left, top, side = width * (row + 1) // 5, height // 6, height // 4
    draw.ellipse((left, top, left + side, top + side), fill=(200, 40, 30))
    return made


def sound(row: int, rate: int) -> np.ndarray:
    """A rising tone that swells and fades, float32 (samples), `rate` samples per second, within -1 and 1."""
    seconds = SECONDS[row % len(SECONDS)]
    at = np.arange(int(seconds * rate)) / rate
    tone = np.sin(2 * math.pi * (220 + 110 * row + 200 * at) * at)
    return (0.5 * tone * np.sin(math.pi * at / seconds) ** 2).astype(np.float32)
