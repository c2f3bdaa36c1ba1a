"""Token ids, masks and token types; the texts of sequence-to-sequence models."""

from __future__ import annotations

from typing import Any

import torch

from harness.cases import Phase
from harness.inputs.request import Request, configs

LENGTH = 20
SINGLE_LENGTH = 16
PADDING = 7
"""Tokens of padding in the second row of the `padded` profile."""
QUESTION = 5
"""Words of a question."""
PHRASE = 5
"""Tokens of a phrase with its end."""
DECODER_LENGTH = 12
DECODER_PADDING = 4


def text(request: Request) -> dict[str, Any]:
    """`input_ids` int64 (batch, length) with what the model takes beside them; padded left where it generates."""
    length = request.numbers.get("text_length", LENGTH if request.padded else SINGLE_LENGTH)
    if (positions := request.look("max_position_embeddings", config=request.part("text_config"))) and positions > 0:
        length = min(length, positions)
    encoder_decoder = request.config.is_encoder_decoder or "decoder_text" in request.numbers
    left = request.generates and not encoder_decoder
    result = masked(request, "input_ids", "attention_mask", length, PADDING, left)
    if request.head in ("QuestionAnswering", "MultipleChoice") and request.look("sep_token_id") is not None:
        _separated(request, result)
    if end := request.numbers.get("phrase_end"):
        result["input_ids"][:, PHRASE - 1 :: PHRASE] = end
    types = request.numbers.get("token_types", request.look("type_vocab_size", config=request.part("text_config")))
    if "token_type_ids" in request.names and types and types > 1:
        kinds = (torch.arange(length) >= length // 2).long().expand(request.batch, -1)
        result["token_type_ids"] = kinds * result["attention_mask"] if "attention_mask" in result else kinds.clone()
    if codes := request.numbers.get("codebooks"):
        low = request.integers("codes", 1, _codes(request), request.batch, length, codes)
        result["input_ids"] = low
    if rows := request.numbers.get("codebook_rows"):
        result["input_ids"] = request.integers("codes", 1, _codes(request), request.batch * rows, length)
    if "bbox" in request.names:
        result["bbox"] = boxes(request, length)
    if encoder_decoder and request.head == "SequenceClassification":
        _ended(request, result)  # such a class reads the one end token of each text, and makes the decoder's own
    elif encoder_decoder:
        result |= decoder(request)
        if "decoder_input_ids" in result and "decoder_text" in request.numbers and "labels" in request.names:
            result["labels"] = result["decoder_input_ids"].clone()  # without, what the decoder says stays inside
    return result


def _separated(request: Request, result: dict[str, Any]) -> None:
    """A question, two separators, what may answer it, and a separator."""
    lengths = result["attention_mask"].sum(dim=1)
    result["input_ids"][:, QUESTION : QUESTION + 2] = request.find("sep_token_id")
    result["input_ids"][torch.arange(request.batch), lengths - 1] = request.find("sep_token_id")


def _ended(request: Request, result: dict[str, Any]) -> None:
    """The last word of each row becomes the end of its text."""
    lengths = result["attention_mask"].sum(dim=1)
    result["input_ids"][torch.arange(request.batch), lengths - 1] = request.find("eos_token_id")


def embedded(request: Request) -> dict[str, Any]:
    """The main input, float32 (batch, length, width), for models without embeddings of their own."""
    length = LENGTH if request.padded else SINGLE_LENGTH
    width = request.find("d_model", "hidden_size")
    result: dict[str, Any] = {request.main: request.normal(request.main, request.batch, length, width)}
    if "attention_mask" in request.names:
        result["attention_mask"] = torch.ones(request.batch, length, dtype=torch.long)
        if request.padded:
            result["attention_mask"][1, length - PADDING :] = 0
    return result


def boxes(request: Request, length: int) -> torch.Tensor:
    """Where each word stands on a page, (batch, length, 4) as left, top, right, bottom.

    int64 in thousandths where the model looks positions up in a table, else float32 shares.
    """
    limit = request.look("max_2d_position_embeddings")
    low = request.integers("bbox.low", 0, 50, request.batch, length, 2)
    box = torch.cat([low, low + request.integers("bbox.size", 1, 50, request.batch, length, 2)], dim=-1)
    if limit is None or request.look("bbox_scale") is not None:
        return box / 100
    return box.clamp(max=limit - 1)


def decoder(request: Request) -> dict[str, Any]:
    """`decoder_input_ids` int64 (batch, length), beginning with the start token, and their mask.

    Generation starts a decoder by itself.
    """
    if "decoder_input_ids" not in request.names or request.phase is Phase.GENERATE:
        return {}
    result = masked(request, "decoder_input_ids", "decoder_attention_mask", DECODER_LENGTH, DECODER_PADDING, left=False)
    if codes := request.numbers.get("decoder_codebooks"):
        shape = (*result["decoder_input_ids"].shape, codes)
        return {"decoder_input_ids": request.integers("codes", 1, _codes(request), *shape)}
    if rows := request.numbers.get("decoder_codebook_rows"):
        shape = (request.batch * rows, DECODER_LENGTH)
        return {"decoder_input_ids": request.integers("codes", 1, _codes(request), *shape)}
    start = request.look("decoder_start_token_id", "bos_token_id", "pad_token_id")
    if start is not None:
        result["decoder_input_ids"][:, 0] = start
    return result


def masked(request: Request, ids: str, mask: str, length: int, padding: int, left: bool) -> dict[str, torch.Tensor]:
    """Ordinary tokens, with padding in the last row where the profile and the signature have it."""
    tokens = ordinary_tokens(request, ids, request.batch, length)
    result = {ids: tokens}
    if mask in request.names:
        kept = torch.ones(request.batch, length, dtype=torch.long)
        if request.padded and "unpadded" not in request.numbers:
            where = slice(None, padding) if left else slice(length - padding, None)
            kept[-1, where] = 0
            tokens[-1, where] = pad_token(request)
        result[mask] = kept
    return result


def ordinary_tokens(request: Request, name: str, *shape: int) -> torch.Tensor:
    """Ids of words: never a special token, of which every config's smallest vocabulary has some."""
    sizes = [size for config in configs(request.config) if isinstance(size := getattr(config, "vocab_size", None), int)]
    size = min(sizes, default=0) or request.find("vocab_size", "num_hash_buckets")
    allowed = torch.tensor(sorted(set(range(size)) - request.special_tokens()))
    return allowed[request.integers(name, 0, len(allowed), *shape)]


def _codes(request: Request) -> int:
    """Size of the smallest vocabulary of any part."""
    return min(
        size for config in configs(request.config) if isinstance(size := getattr(config, "vocab_size", 0), int) and size
    )


def pad_token(request: Request) -> int:
    """The config's padding id, else 0; it may be negative or absent where the model has no padding."""
    pad = request.look("pad_token_id", config=request.part("text_config"))
    pad = pad[0] if isinstance(pad, list | tuple) else pad
    return pad if pad is not None and pad >= 0 else 0
