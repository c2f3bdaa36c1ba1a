"""GGUF files: one file with a model's config, tokenizer and weights, these mostly in blocks of a few bits.

The library unpacks the weights to the dtype that is asked for while it loads them. `python -m harness.models.packed
FILE` prints what model it is, as JSON with `model_type`, `architectures`, `params` and `dtype`.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig
from transformers.integrations.gguf import GgufHeader
from transformers.models.auto import modeling_auto

from harness.checkpoints import Unreadable

_BROKEN = (ValueError, OSError, struct.error, KeyError, IndexError, TypeError, AttributeError, OverflowError)
"""What reading a file that is no GGUF file, or only a part of one, has been seen to raise."""


def config(path: Path) -> dict[str, Any]:
    """The config that its metadata amounts to, as config.json would have it.

    Raises Unreadable, and ImportError where the library reads its architecture by a package that is not installed.
    """
    try:
        raw, _ = PreTrainedConfig.get_config_dict(path.parent, gguf_file=path.name)
    except _BROKEN as error:
        raise Unreadable(f"{path.name}: {_line(error)}") from error
    return raw


def header(path: Path) -> tuple[int, str]:
    """Elements of all its tensors, one used in two places counted once, and the dtype that `dtype="auto"` means: that
    of its values, float32 where they are in blocks. Raises Unreadable."""
    try:
        known = GgufHeader.from_file(str(path))
        ends = max((known.data_start + one.offset + one.nbytes for one in known.tensors), default=0)
        size = path.stat().st_size
    except _BROKEN as error:
        raise Unreadable(f"{path.name}: {_line(error)}") from error
    if size < ends:
        raise Unreadable(f"{path.name}: ends after {size:,} of {ends:,} bytes")
    kept = "float32" if known.dtype is None else str(known.dtype).removeprefix("torch.")
    return sum(math.prod(one.shape) for one in known.tensors), kept


def model_class(raw: dict[str, Any]) -> str:
    """The class of a config that names none, as most in GGUF files: its causal language model, else its base model."""
    if named := raw.get("architectures"):
        return named[0]
    tables = (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_MAPPING_NAMES)
    return next((table[raw["model_type"]] for table in tables if raw.get("model_type") in table), "")


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    try:
        found = config(Path(sys.argv[1]))
        count, dtype = header(Path(sys.argv[1]))
    except (Unreadable, ImportError) as failed:
        sys.exit(" ".join(str(failed).split()))
    said = {"model_type": found.get("model_type", ""), "architectures": [model_class(found)]}
    print(json.dumps(said | {"params": count, "dtype": dtype}))
