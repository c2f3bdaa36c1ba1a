"""Drafts entries of a list: from a checkpoint on this machine, or from what the Hub says of a model."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import checkpoints
from harness.cases import Entry, Weights
from harness.derived import derived_list, printed_by
from model_lists import FAMILIES, NESTED_TIERS, ListError, load_list
from model_lists.spelling import meant

if TYPE_CHECKING:
    from harness.hub.facts import Facts

TIER = NESTED_TIERS[-1]
"""That of drafts: the largest, since nobody has said that a model belongs to a smaller one."""


def local(what: str) -> bool:
    """Whether a word means a place on this machine and no model: a path as such, or a GGUF file."""
    return what.startswith((".", "/", "~")) or what.endswith(checkpoints.GGUF)


def of_checkpoint(place: Path, cache: Path) -> Entry:
    """The checkpoint in a folder or GGUF file, with its real weights, under the name of its place. Raises ListError."""
    try:
        checkpoint = checkpoints.located(Path(os.path.abspath(place.expanduser())))
    except checkpoints.NoCheckpoint as error:
        raise ListError(str(error)) from error
    config = checkpoints.config_of(checkpoint)
    said = _in_gguf(config) if checkpoints.is_gguf(checkpoint) else _in_config(config)
    entry = _registered(said, f"{config}:1", cache)
    called = checkpoint.stem if checkpoints.is_gguf(checkpoint) else checkpoint.name
    name = re.sub(r"[^\w.-]|^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", called, flags=re.ASCII) or "checkpoint"
    facts = {"params": said["params"], "dtype": said["dtype"], "config": str(config)}
    return replace(entry, model_id=name, weights=Weights.HUB, **facts)


def of_hub(facts: Facts, weights: Weights | None, cache: Path) -> Entry:
    """A model of the Hub at the commit that it is now, without trust in its code. Raises ListError.

    Without `weights` they are synthetic, or real where only code of its own has the class.
    """
    if facts.library and "model_type" not in facts.config:
        raise ListError(f"{facts.model_id}: its library is {facts.library}; drafts are made for transformers alone")
    entry = _registered(facts.config, f"{facts.model_id}: config.json", cache, own_code=True)
    return replace(
        entry,
        model_id=facts.model_id,
        revision=facts.revision,
        task=facts.task or entry.task,
        params=sum(facts.stored.values()) or None,
        weights=weights or entry.weights,
        gated=facts.gated,
        custom_code=facts.custom_code,
        dtype=checkpoints.shipped_dtype(facts.config, facts.stored),
    )


def _registered(config: dict[str, Any], where: str, cache: Path, own_code: bool = False) -> Entry:
    """The entry of the class that a config names, as the installed transformers registers it. Raises ListError.

    With `own_code` it may be one that only code of its own has, of which no more is known than what it is called.
    """
    try:
        model_type, model_class = config["model_type"], config["architectures"][0]
    except (TypeError, KeyError, IndexError) as error:
        raise ListError(f"{where}: it does not say its model_type and architectures; save_pretrained does") from error
    listed = load_list(derived_list(cache))
    known = [entry for entry in listed if entry.model_type == model_type]
    entry = next((entry for entry in known if entry.model_class == model_class), None)
    if entry is None and own_code and isinstance(model_type, str) and str(model_class) in _own_classes(config):
        head = re.search(r"For[A-Z]\w*$", model_class)
        alike = [one for one in listed if head and one.model_class.endswith(head[0])]
        family = Counter(one.family for one in alike).most_common(1)[0][0] if alike else FAMILIES[0]
        task = alike[0].task if alike else "feature-extraction"
        return Entry("", "", "transformers", model_type, model_class, family, task, None, TIER, Weights.HUB)
    if entry is None:
        close = meant(str(model_class), [one.model_class for one in known])
        raise ListError(
            f"{where}: {model_type!r} {model_class!r} is no model class of the installed transformers{close}"
        )
    return replace(entry, revision="", tier=TIER)


def _own_classes(config: dict[str, Any]) -> set[str]:
    """Names of the classes that a config's own code has."""
    named = config.get("auto_map")
    return {str(one).rpartition(".")[2] for one in named.values()} if isinstance(named, dict) else set()


def _in_config(config: Path) -> dict[str, Any]:
    """What a config.json says, with the parameters in the files of weights beside it. Raises ListError."""
    try:
        said = json.loads(config.read_bytes())
    except OSError as error:
        raise ListError(f"{config}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ListError(f"{config}:1: no JSON: {error}") from error
    if not isinstance(said, dict):
        raise ListError(f"{config}:1: it holds no config")
    try:
        counts = checkpoints.parameters(config.parent)
    except checkpoints.Unreadable as error:
        raise ListError(str(error)) from error
    return said | {"params": counts.total() or None, "dtype": checkpoints.shipped_dtype(said, counts)}


def _in_gguf(file: Path) -> dict[str, Any]:
    """The same of a GGUF file, asked of the library in a process of its own. Raises ListError."""
    return json.loads(printed_by("harness.models.packed", str(file), failing=f"{file}: it cannot be read as GGUF"))
