"""What the input makers are told: the model's config and signature, the profile's sizes, and seeded draws."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from harness.cases import Phase, Profile

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_HEAD = re.compile(r"For([A-Z][A-Za-z0-9]*)$")
_TOKEN = re.compile(r"\w*_token_(id|index)")


class InputError(ValueError):
    """No valid inputs can be made; one line saying for which model and why."""


class DependencyMissing(InputError):
    """A Python package that a checkpoint's own tokenizer or processor needs is not installed; the line names it."""


class CodeNotTrusted(InputError):
    """A checkpoint's own tokenizer or processor needs code that is not allowed to run; one line saying what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """One model's inputs to make. `names` are the arguments of its forward method."""

    model: str
    model_class: type[PreTrainedModel]
    config: PreTrainedConfig
    names: frozenset[str]
    main: str
    profile: Profile
    seed: int
    numbers: dict[str, Any]
    generates: bool
    phase: Phase
    trusts_code: bool = False
    """Whether the checkpoint's tokenizer or processor may be of its own code."""
    choice: int = 0
    """Which of several inputs of a row this is."""

    @property
    def batch(self) -> int:
        return self.numbers.get("rows", 2) if self.padded else 1

    @property
    def head(self) -> str:
        """What the class's name says it is for, as "MultipleChoice"; "" for a base model."""
        found = _HEAD.search(self.model_class.__name__)
        return found[1] if found else ""

    @property
    def padded(self) -> bool:
        return self.profile is Profile.PADDED

    def generator(self, name: str) -> torch.Generator:
        """A generator of its own for each input, so that adding one changes no other."""
        several = f":{self.choice}" if self.choice else ""
        digest = hashlib.sha256(f"{self.seed}:{self.profile}:{name}{several}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)

    def normal(self, name: str, *shape: int) -> torch.Tensor:
        """Standard normal float32 values."""
        return torch.randn(shape, generator=self.generator(name))

    def integers(self, name: str, low: int, high: int, *shape: int) -> torch.Tensor:
        """Uniform int64 values in [low, high)."""
        return torch.randint(low, high, shape, generator=self.generator(name))

    def find(self, *names: str, config: PreTrainedConfig | None = None) -> Any:
        """The first of the config's fields that is set, else InputError naming them."""
        value = self.look(*names, config=config)
        if value is None:
            raise InputError(f"{self.model}: its config sets none of {', '.join(names)}; add them to its recipe")
        return value

    def look(self, *names: str, config: PreTrainedConfig | None = None) -> Any:
        """Like `find`, but None where none is set."""
        for name in names:
            value = getattr(self.config if config is None else config, name, None)
            if value is not None:
                return value
        return None

    def anywhere(self, *names: str) -> Any:
        """Like `look`, in the config and all inside it, the outermost first."""
        for config in configs(self.config):
            if (value := self.look(*names, config=config)) is not None:
                return value
        return None

    def part(self, *names: str) -> PreTrainedConfig:
        """The sub-config of a modality, else the config itself."""
        return self.look(*names) or self.config

    def vision(self) -> PreTrainedConfig:
        """The config that describes pictures: a part for them at any depth, else the first with sizes of its own."""
        parts = configs(self.config)
        for config in parts:
            for name in ("vision_config", "image_config"):
                if getattr(config, name, None) is not None:
                    return getattr(config, name)
        sized = [config for config in parts if self.look("image_size", "patch_size", config=config) is not None]
        return (sized or parts)[0]

    def blind(self) -> bool:
        """Could the model see pictures, if only its config had the part for them?"""
        return "vision_config" in getattr(self.config, "sub_configs", {}) and self.config.vision_config is None

    def special_tokens(self) -> set[int]:
        """Ids that mean something to the model, in all its configs."""
        return {number for config in configs(self.config) for number in _tokens(config)}


def configs(config: PreTrainedConfig) -> list[PreTrainedConfig]:
    """A config and all inside it, outermost first."""
    result = [config]
    for name in getattr(config, "sub_configs", {}):
        inner = getattr(config, name, None)
        if inner is not None:
            result += configs(inner)
    return result


def _tokens(config: PreTrainedConfig) -> list[int]:
    values = [value for key, value in vars(config).items() if _TOKEN.fullmatch(key)]
    flat = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    return [item for item in flat if isinstance(item, int)]


Maker = Callable[[Request], dict[str, Any]]
