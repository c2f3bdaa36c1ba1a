"""A config.json that somebody else wrote, read with suspicion: it may be anything, of any size, and ask for code."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING

from harness import checkpoints
from harness.models import packed

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

BYTES = 16 * 2**20
"""Longest file that is read: configs that name the 21,000 classes of ImageNet take two of these MiB."""
DEEPEST = 32
"""Configs inside configs; real ones have four levels."""
WIDEST, MOST_HEADS, MOST_LAYERS, MOST_WORDS = 2**22, 2**16, 2**12, 2**24
SIZES = tuple(
    (re.compile(pattern), smallest, largest)
    for pattern, smallest, largest in (
        (r"(\w+_)?(layers|depths?|n_layers?|num_blocks|blocks_per_stage)", 0, MOST_LAYERS),
        (r"\w*(heads|experts)(_per_stage|_per_tok)?|n_heads?", 0, MOST_HEADS),
        (r"\w*vocab_size\w*|n_vocab|num_embeddings|num_labels", 0, MOST_WORDS),
        (r"\w*(hidden_sizes?|_dims?|d_model|d_ff|_channels|intermediate_size|n_embd|n_inner)|dim", 0, WIDEST),
        (r"\w*(image_size|patch_size|window_size|num_channels|num_queries|kernel_size)", -1, WIDEST),
    )
)
"""Smallest and largest value taken for a size, by the field's name: from none to tens of times what any published
model has. Windows and pictures may be -1, which says that there is no limit."""


class BadConfig(ValueError):
    """The file holds no config that can be built; one line naming the file and the field."""


def given_config(path: Path, model_type: str) -> PreTrainedConfig:
    """The config in the file as the library's own class for `model_type`, unreduced. Raises BadConfig."""
    raw = checked(path, model_type)
    config_class = CONFIG_MAPPING[model_type]
    try:
        return config_class.from_dict(copy.deepcopy(raw))
    except (StrictDataclassError, *_REFUSALS) as error:
        field = _field(error) or _culprit(config_class, raw)
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise BadConfig(f"{path.name}: {config_class.__name__} refuses {field or 'its values'}: {said}") from error


def checked(path: Path, model_type: str, own_code: bool = False) -> dict[str, Any]:
    """What the file holds, a config.json or a GGUF file: an architecture of type `model_type` and of sane sizes, which
    is registered unless it is one of its `own_code`. Raises BadConfig, and ImportError as `packed.config` does.
    """
    raw = _unpacked(path) if checkpoints.is_gguf(path) else read(path)
    found = raw.get("model_type")
    if not isinstance(found, str) or not (own_code or found in CONFIG_MAPPING):
        raise BadConfig(
            f"{path.name}: model_type is {_shown(found)}, which transformers {transformers.__version__} "
            "does not register"
        )
    if found != model_type:
        raise BadConfig(
            f"{path.name}: model_type is {found!r}, while the list says {model_type!r}; correct one of them"
        )
    for where, size, smallest, largest in _sizes(raw, ""):
        if not smallest <= size <= largest:
            raise BadConfig(f"{path.name}: {where} is {_number(size)}; valid: from {smallest} to {largest:,}")
    return raw


_REFUSALS = (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError)


def _unpacked(path: Path) -> dict[str, Any]:
    try:
        return packed.config(path)
    except checkpoints.Unreadable as error:
        raise BadConfig(str(error)) from error


def read(path: Path) -> dict[str, Any]:
    """The fields of a config.json. Raises BadConfig."""
    try:
        with path.open("rb") as file:
            content = file.read(BYTES + 1)
        if len(content) > BYTES:
            raise BadConfig(f"{path.name}: longer than {BYTES:,} bytes, which no config is")
        raw = json.loads(content)
    except OSError as error:
        raise BadConfig(f"{path.name}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadConfig):
            raise
        raise BadConfig(f"{path.name}: no JSON: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(raw, dict):
        raise BadConfig(f"{path.name}: holds a {type(raw).__name__}; valid: an object with the fields of a config")
    if _depth(raw) > DEEPEST:
        raise BadConfig(f"{path.name}: nested more than {DEEPEST} levels deep, which no config is")
    return raw


def _depth(value: Any) -> int:
    """Levels of containers; json's own limit keeps the recursion within Python's."""
    deepest, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        deepest += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return deepest


def _sizes(raw: dict[str, Any], prefix: str) -> Iterator[tuple[str, int, int, int]]:
    """Every number that is a size by its field's name: where and what it is, and the smallest and largest valid."""
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from _sizes(value, f"{prefix}{key}.")
        bounds = next((bounds for pattern, *bounds in SIZES if pattern.fullmatch(key)), None)
        if bounds is not None:
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int) and not isinstance(number, bool):
                    yield f"{prefix}{key}", number, *bounds


def _field(error: BaseException) -> str:
    """The field that the library's own message names, "" where it names none."""
    found = re.search(r"[Ff]ield '(\w+)'", str(error))
    return found[1] if found else ""


def _culprit(config_class: type[PreTrainedConfig], raw: dict[str, Any]) -> str:
    """The field without which the class takes the rest, "" where there is none: messages often name no field."""
    for key in raw:
        try:
            config_class.from_dict(copy.deepcopy({name: value for name, value in raw.items() if name != key}))
        except (StrictDataclassError, *_REFUSALS):
            continue
        return key
    return ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _number(value: int) -> str:
    return f"{value:,}" if abs(value) < 10**30 else "a number of more than 30 digits"
