"""A small llama language model as the gguf package writes one, with a tokenizer of bytes and a chat template."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quantize

WIDTH, HEADS, INNER, LAYERS = 64, 2, 96, 2
BEGIN, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for one in messages %}<|im_start|>{{ one.role }}: {{ one.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


def write(path: Path, *, packed: bool = True) -> dict[str, np.ndarray]:
    """Write the file, its matrices in blocks of 8 bits where `packed`; the tensors as they were, by their names."""
    writer = GGUFWriter(path, "llama")
    letters = [BEGIN, END, *_letters()]
    writer.add_name("small")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(letters))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(letters)
    writer.add_token_types([3, 3, *[1] * (len(letters) - 2)])
    writer.add_token_merges(["h e", "l l"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(1)
    writer.add_chat_template(TEMPLATE)
    tensors = _tensors(len(letters))
    for name, values in tensors.items():
        if packed and values.ndim == 2:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def _letters() -> list[str]:
    """The 256 characters that stand for bytes in vocabularies of GPT-2's kind, and the merges of two."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [256 + number for number in range(256 - len(kept))]
    return [*map(chr, kept), *map(chr, others), "he", "ll"]


def _tensors(words: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)

    made = {"token_embd.weight": matrix(words, WIDTH), "output_norm.weight": np.ones(WIDTH, np.float32)}
    for layer in range(LAYERS):
        shapes = {"ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}
        shapes |= dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (WIDTH, WIDTH))
        made |= {f"blk.{layer}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        made |= {f"blk.{layer}.{name}.weight": np.ones(WIDTH, np.float32) for name in ("attn_norm", "ffn_norm")}
    return made
