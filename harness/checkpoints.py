"""Which files a checkpoint on disk is made of, told by their kind. Reads no more of them than headers.

A checkpoint is a folder with config.json and safetensors, or one GGUF file, which has its config inside.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.cases import Dtype

CONFIG, WEIGHTS, GGUF, PICKLES = "config.json", "*.safetensors", ".gguf", "pytorch_model*.bin"
_DTYPES = {"F32": Dtype.FLOAT32, "F16": Dtype.FLOAT16, "BF16": Dtype.BFLOAT16}
"""As headers of safetensors, and the Hub, name them."""
_COMPANIONS = (".json", ".jinja", ".model", ".py", ".txt")


class NoCheckpoint(ValueError):
    """A place holds no checkpoint, or several; one line saying which files it should have."""


class Unreadable(ValueError):
    """The files of a checkpoint are not what their names say; one line."""


def located(place: Path) -> Path:
    """The checkpoint at `place`: the folder itself, or the GGUF file that it is or holds. Raises NoCheckpoint."""
    if is_gguf(place):
        if place.is_file():
            return place
        raise NoCheckpoint(f"{place}: no such file")
    if (place / CONFIG).is_file() and any(place.glob(WEIGHTS)):
        return place
    packed = sorted(place.glob(f"*{GGUF}"))
    if len(packed) == 1:
        return packed[0]
    if packed:
        raise NoCheckpoint(f"{place}: {len(packed)} GGUF files; name one of them, such as {packed[0]}")
    pickled = "; `zoo run --allow-pickle --model` takes its weights, which can carry code"
    raise NoCheckpoint(
        f"{place}: no checkpoint: neither {CONFIG} with safetensors nor a GGUF file"
        + (pickled if any(place.glob(PICKLES)) else "; save_pretrained writes one")
    )


def beside(config: str) -> Path:
    """Where the checkpoint lies that an entry names by its config: a GGUF file, or the folder of a config.json."""
    return Path(config) if is_gguf(Path(config)) else Path(config).parent


def config_of(checkpoint: Path) -> Path:
    """The file that says what model it is."""
    return checkpoint if is_gguf(checkpoint) else checkpoint / CONFIG


def weights_of(checkpoint: Path) -> list[Path]:
    """The files with its weights, sorted; none where there are none."""
    return [checkpoint] if is_gguf(checkpoint) else sorted(checkpoint.glob(WEIGHTS))


def files_of(checkpoint: Path) -> list[Path]:
    """Every file that what it computes may depend on: config, weights, code, and those of tokenizer and processor."""
    beside = [] if is_gguf(checkpoint) else sorted(f for f in checkpoint.glob("*") if f.suffix in _COMPANIONS)
    return list(dict.fromkeys([config_of(checkpoint), *beside, *weights_of(checkpoint)]))


def parameters(folder: Path) -> Counter[str]:
    """Elements of a folder's safetensors by their floating type, as the headers name it (`F32`). Raises Unreadable."""
    from safetensors import SafetensorError, safe_open

    counts: Counter[str] = Counter()
    try:
        for path in weights_of(folder):
            with safe_open(path, framework="np") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    piece = file.get_slice(name)
                    if piece.get_dtype().startswith(("F", "BF")):
                        counts[piece.get_dtype()] += math.prod(piece.get_shape())
    except (OSError, SafetensorError) as error:
        raise Unreadable(f"{folder} cannot be read: {' '.join(str(error).split())[:300]}") from error
    return counts


def shipped_dtype(config: dict[str, Any], counts: Mapping[str, int]) -> str:
    """The dtype that `dtype="auto"` means: what the config says, else that of most elements; empty for other types."""
    said = config.get("dtype") or config.get("torch_dtype")
    found = str(said) if said else _DTYPES.get(max(counts, key=lambda name: counts[name], default=""), "")
    return found if found in set(Dtype) else ""


def arguments(checkpoint: Path) -> tuple[Path, dict[str, str]]:
    """What `from_pretrained` is called with, of a model, config or tokenizer: a folder, and options."""
    return (checkpoint.parent, {"gguf_file": checkpoint.name}) if is_gguf(checkpoint) else (checkpoint, {})


def is_gguf(checkpoint: Path) -> bool:
    """Told by its name: llama.cpp and the library go by it too."""
    return checkpoint.suffix == GGUF
