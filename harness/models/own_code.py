"""Models that need code of their own repository: it runs at the very commit that their list trusts, or not at all."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers
from transformers import CONFIG_MAPPING, AutoConfig, dynamic_module_utils
from transformers.models.auto.auto_factory import add_generation_mixin_to_remote_model

from harness import checkpoints
from harness.cases import Entry, Weights
from harness.models import given

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_BESIDE = re.compile(r"\w+\.\w+")
"""A class in a file beside the config; what names another repository or folder looks otherwise."""


class CodeNotTrusted(RuntimeError):
    """The model needs code that is not allowed to run; one line saying which, and how to allow it."""


def asked(entry: Entry, config: Path) -> tuple[str, ...]:
    """The classes of its own code that a config asks for, as `module.Class`; none where the library has all of them.

    Raises CodeNotTrusted where that code may not run, and BadConfig.
    """
    if checkpoints.is_gguf(config):
        return ()
    raw = given.read(config)
    model_type, known = raw.get("model_type"), dir(transformers)
    classes = list(_classes(raw.get("auto_map")))
    lacking = [one for one in classes if _name(one[1]) not in known]
    if not lacking and isinstance(model_type, str) and model_type in CONFIG_MAPPING:
        return ()
    for auto, wanted in (*lacking, *classes):
        if why := _why_not(entry, wanted):
            raise CodeNotTrusted(
                f"{entry.id}: {config.name} asks for code of its own ({auto[:80]}: {wanted[:80]}), and {why}"
            )
    return tuple(wanted for _, wanted in classes)


def _why_not(entry: Entry, wanted: str) -> str:
    """Why a class's code may not run and what to do, empty where it may."""
    if not entry.revision:
        return "that of a folder or package is not run; list the model as the Hub has it"
    if entry.weights is not Weights.HUB:
        return f"that runs with its real weights alone: `--weights {Weights.HUB}`"
    if not _BESIDE.fullmatch(wanted):
        return "that does not lie beside its config, where the commit that is trusted pins it; it is not run"
    if entry.trusts_its_code:
        return ""
    trusts = f"the list trusts that of commit {entry.trusted}" if entry.trusted else "the list trusts none"
    todo = f"read the *.py of {entry.model_id} at commit {entry.revision}, and put that into the list's column trusted"
    return f"{trusts}; {todo}"


def model_class(entry: Entry, classes: tuple[str, ...]) -> type[PreTrainedModel] | None:
    """The entry's class of those that were `asked` for, its code imported; None where none of them has its name.

    Raises ImportError, and whatever the code raises.
    """
    found = next((one for one in classes if _name(one) == entry.model_class), None)
    return _imported(found, checkpoints.beside(entry.config)) if found else None


def config(folder: Path) -> PreTrainedConfig:
    """The config of a checkpoint whose code is trusted, as its auto class makes it."""
    _copied_apart()
    return AutoConfig.from_pretrained(folder, trust_remote_code=True, local_files_only=True)


@functools.cache
def _imported(wanted: str, folder: Path) -> type[PreTrainedModel]:
    """The class as `from_pretrained` of its auto class makes it."""
    _copied_apart()
    found = dynamic_module_utils.get_class_from_dynamic_module(wanted, folder, local_files_only=True)
    return add_generation_mixin_to_remote_model(found)


@functools.cache
def _copied_apart() -> None:
    """Have the library, which copies code before it imports it, do so where no other process reads it half written."""
    dynamic_module_utils.HF_MODULES_CACHE = tempfile.mkdtemp(prefix="modules-")


def _classes(auto_map: Any) -> Iterator[tuple[str, str]]:
    """The auto classes of an `auto_map`, each with a class that it would load."""
    if not isinstance(auto_map, dict):
        return
    for auto, target in auto_map.items():
        for one in target if isinstance(target, list) else [target]:
            if isinstance(one, str):
                yield auto, one


def _name(wanted: str) -> str:
    return wanted.rpartition(".")[2]
