"""What the installed transformers registers: every model type, and every class its auto mappings name for one.

Reads the mappings' tables of names, so no modeling code is imported to list them.

`python -m harness.models.registered FILE` writes all of it as a model list.
"""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto import configuration_auto, modeling_auto

from harness.cases import Entry, Phase
from harness.models.abilities import phases_of
from model_lists import DERIVED_TIERS, write_list

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLE = re.compile(r"MODEL(_FOR_(?P<task>\w+))?_MAPPING_NAMES")
_CHECKPOINT = re.compile(r"\[([\w.-]+/[\w.-]+)\]\(https://huggingface\.co/")
_FAMILIES = (
    ("IMAGE_TEXT_TO_TEXT|MULTIMODAL_LM|VISUAL_QUESTION|ZERO_SHOT|RETRIEVAL|DOCUMENT", "vision-language"),
    ("VIDEO", "video"),
    ("AUDIO|SPEECH|CTC|RNNT|TDT|SPECTROGRAM|WAVEFORM", "audio"),
    ("TIME_SERIES", "time-series"),
    (
        "IMAGE|SEGMENTATION|DETECTION|DEPTH|BACKBONE|MASK_GENERATION|KEYPOINT|NORMAL|POINTMAP|POSE|TEXT_RECOGNITION|TABLE_R"
        "|^DECISION",
        "vision",
    ),
    ("SEQ_TO_SEQ", "encoder-decoder"),
    ("CAUSAL_LM", "decoder-dense"),
)
"""The first that matches any task the type has; types with none of these are text encoders."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A model type and a class that some auto mapping names for it; `tasks` are those mappings, "" the base one."""

    model_type: str
    model_class: str
    tasks: tuple[str, ...]


@functools.cache
def model_types() -> tuple[str, ...]:
    """Every model type the library registers a config class for."""
    return tuple(configuration_auto.CONFIG_MAPPING_NAMES)


@functools.cache
def pairs() -> tuple[Pair, ...]:
    """Every distinct (type, class) of the auto mappings for models, types in the library's order."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for name, table in vars(modeling_auto).items():
        if found := _TABLE.fullmatch(name):
            for model_type, classes in table.items():
                for model_class in [classes] if isinstance(classes, str) else classes:
                    tasks.setdefault((model_type, model_class), []).append(found["task"] or "")
    return tuple(Pair(*key, tuple(names)) for key, names in tasks.items())


def mapped() -> int:
    """Rows of all auto mappings for models: a pair counts once for each task it serves."""
    return sum(len(pair.tasks) for pair in pairs())


@functools.cache
def base_pairs() -> dict[str, Pair]:
    """The class that stands for each type: its base model, else the first class that any mapping names."""
    chosen: dict[str, Pair] = {}
    for pair in pairs():
        if pair.model_type not in chosen or ("" in pair.tasks and "" not in chosen[pair.model_type].tasks):
            chosen[pair.model_type] = pair
    return {model_type: chosen[model_type] for model_type in model_types() if model_type in chosen}


@functools.cache
def wholes() -> dict[str, tuple[str, ...]]:
    """For each type, the types whose configs contain its config."""
    found: dict[str, set[str]] = {}
    for model_type in model_types():
        for inner in _inner(CONFIG_MAPPING[model_type]):
            found.setdefault(inner, set()).add(model_type)
    return {inner: tuple(sorted(outer - {inner})) for inner, outer in found.items()}


def _inner(config_class: type) -> Iterator[str]:
    for part in getattr(config_class, "sub_configs", {}).values():
        inner = getattr(part, "model_type", "")
        if inner in CONFIG_MAPPING:
            yield inner
        else:  # a part of no type of its own, whose parts may be of one
            yield from _inner(part)


def entries() -> Iterator[Entry]:
    """Every pair as an entry with the phases of its class, the class that stands for each type first.

    Imports the library's modeling code.
    """
    chosen = dict.fromkeys((*base_pairs().values(), *pairs()))
    return (replace(entry(pair), phases=_phases(pair.model_class)) for pair in chosen)


def _phases(model_class: str) -> tuple[Phase, ...]:
    """What is known of a class whose own dependencies are missing is that it has a forward pass."""
    try:
        return phases_of(getattr(transformers, model_class))
    except (ImportError, AttributeError):
        return (Phase.FORWARD,)


def entry(pair: Pair) -> Entry:
    """The architecture's own defaults as an entry: synthetic weights, no checkpoint."""
    tasks = _tasks()[pair.model_type]
    task = next((task for task in pair.tasks if task), "feature-extraction")
    return Entry(
        model_id=_checkpoint(pair.model_type) or pair.model_class,
        revision="",
        library="transformers",
        model_type=pair.model_type,
        model_class=pair.model_class,
        family=_family(tasks),
        task=task.lower().replace("_", "-"),
        params=None,
        tier=DERIVED_TIERS[base_pairs()[pair.model_type] != pair],
    )


@functools.cache
def _tasks() -> dict[str, list[str]]:
    """The tasks of each type's classes."""
    found: dict[str, list[str]] = {}
    for pair in pairs():
        found.setdefault(pair.model_type, []).extend(pair.tasks)
    return found


def _checkpoint(model_type: str) -> str:
    """The checkpoint that the config class's own documentation says its defaults describe, "" where it names none."""
    found = _CHECKPOINT.search(CONFIG_MAPPING[model_type].__doc__ or "")
    return found[1] if found else ""


def _family(tasks: list[str]) -> str:
    for pattern, family in _FAMILIES:
        if any(re.search(pattern, task) for task in tasks):
            return family
    return "text-encoder"


if __name__ == "__main__":
    write_list(Path(sys.argv[1]), entries())
