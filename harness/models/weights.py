"""Seeded weights that make a wrong answer visible.

Default initialisation hides faults: biases are zero, gates are shut, layer scales are 1e-5, attention is
nearly uniform. Here every parameter is drawn so that it matters and activations stay of order one. Each is
drawn on CPU from its own generator, seeded by (seed, name), so that neither order nor process matters.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from model_lists.recipes import WeightRule, load_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

SPREAD = 0.1
"""Standard deviation of biases, and of norm weights around one."""

CONVOLUTION_GAIN = math.sqrt(2)
"""Rectifiers halve the power that convolutions pass on; batch norms at rest do not restore it (He et al. 2015).

Snakes, the periodic activations of codecs, pass it on whole.
"""

RULES = (
    # Selective state spaces: decay rates exp(-A dt) between slow and fast, steps of 0.01 to 0.3 after softplus.
    WeightRule(re.compile(r"(^|\.)A_log$"), "uniform", 0.0, math.log(8.0)),
    WeightRule(re.compile(r"(^|\.)(dt_bias|dt_proj\.bias)$"), "uniform", -4.6, -1.05),
    WeightRule(re.compile(r"(^|\.)D$"), "normal", 1.0, SPREAD),
    # RWKV: log decay rates and the weights of the current token are O(1); mixing shares lie in (0, 1).
    WeightRule(re.compile(r"\.time_decay$"), "uniform", -2.0, 0.5),
    WeightRule(re.compile(r"\.time_first$"), "normal", 0.0, 0.5),
    WeightRule(re.compile(r"\.time_mix_\w+$"), "uniform", 0.1, 0.9),
    # RG-LRU: sigmoid(-softplus) decays away from zero and one.
    WeightRule(re.compile(r"\.recurrent_param$"), "uniform", -4.0, -1.0),
    # Log temperatures of contrastive models and of attention.
    WeightRule(re.compile(r"logit_scale$"), "normal", 1.0, SPREAD),
    WeightRule(re.compile(r"(^|\.)sinks$"), "normal", 0.0, 0.5),
)
"""Parameters whose values must lie in a range that shape and default do not tell."""


def of_parts(model: PreTrainedModel) -> tuple[WeightRule, ...]:
    """The weight rules of the recipes of other architectures that `model` holds as parts, outer ones first.

    Raises ListError for a malformed recipe.
    """
    types, rules = {"": model.config.model_type}, []
    for name, module in model.named_modules():
        around = types[name.rpartition(".")[0]]
        types[name] = module.config.model_type if isinstance(module, PreTrainedModel) else around
        if types[name] != around:
            rules.extend(replace(rule, part=f"{name}.") for rule in load_recipe(types[name]).weights)
    return tuple(rules)


def draw(model: nn.Module, seed: int, extra: tuple[WeightRule, ...] = ()) -> None:
    """Overwrite every floating parameter, batch-norm statistic and codebook of `model` in place; tied ones once."""
    rules, whole = (*extra, *RULES), _beside_snakes(model)
    with torch.no_grad():
        for module, name, tensor in _tensors(model):
            if tensor.is_floating_point() and tensor.numel():
                gain = 1 if id(module) in whole else CONVOLUTION_GAIN
                tensor.copy_(_values(module, name, tensor, generator(seed, name), rules, gain))


def _beside_snakes(model: nn.Module) -> set[int]:
    """Ids of the convolutions that stand beside a snake, which its class or, where it is wrapped, its name tells."""
    blocks = [dict(module.named_children()) for module in model.modules()]
    snaky = [
        parts for parts in blocks if any("snake" in f"{name} {type(x).__name__}".lower() for name, x in parts.items())
    ]
    return {id(part) for parts in snaky for part in parts.values() if isinstance(part, nn.modules.conv._ConvNd)}


def _tensors(model: nn.Module) -> Iterator[tuple[nn.Module, str, torch.Tensor]]:
    """(owner, full name, tensor) of parameters, shared ones under their first name, and of learned buffers."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield module, f"{prefix}.{leaf}" if prefix else leaf, parameter
        for leaf, buffer in module.named_buffers(recurse=False):
            if leaf in ("running_mean", "running_var") or _is_codebook(module, leaf, buffer):
                yield module, f"{prefix}.{leaf}", buffer


def _is_codebook(module: nn.Module, leaf: str, buffer: torch.Tensor) -> bool:
    """Quantizers hold their codes as buffers, all zero until they are learned or loaded: every sound has one code."""
    saved = leaf not in module._non_persistent_buffers_set
    return saved and buffer.dim() == 2 and buffer.is_floating_point() and not buffer.any()


def generator(seed: int, name: str) -> torch.Generator:
    """A generator on CPU that depends on nothing but the seed and the name."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def _values(
    module: nn.Module,
    name: str,
    default: torch.Tensor,
    generator: torch.Generator,
    rules: tuple[WeightRule, ...],
    convolution_gain: float,
) -> torch.Tensor:
    shape = default.shape
    for rule in rules:
        if rule.matches(name):
            return _ruled(rule, module, shape, generator)
    normal = torch.randn(shape, generator=generator)
    if name.endswith("running_var"):
        return 1 + SPREAD * normal.abs()
    if not isinstance(default, nn.Parameter) and default.dim() == 2:
        return normal  # codes as far from each other as what they stand for
    constant = _constant(default)
    if constant is None and default.dim() == 1 and name.endswith(".weight") and "Norm" in type(module).__name__:
        constant = 1.0  # Some architectures draw the scales of their norms around zero, which shuts them.
    if constant is not None and default.dim() <= 1:
        return _around(constant, normal)
    if isinstance(module, nn.Embedding):
        values = normal
        if module.padding_idx is not None:
            values[module.padding_idx] = 0
        return values
    if default.dim() <= 1:
        return SPREAD * normal
    if not isinstance(module, nn.Linear | Conv1D | nn.modules.conv._ConvNd) and (constant is not None or shape[0] == 1):
        # Tokens, positions and scales that a module holds itself, not matrices that it multiplies by.
        return _around(constant, normal) if constant is not None else 0.5 * normal
    gain = convolution_gain if isinstance(module, nn.modules.conv._ConvNd) else 1
    return gain * normal / math.sqrt(_fan_in(module, shape))


def _constant(values: torch.Tensor) -> float | None:
    """The one value that all elements have by default, which tells a weight's role; None where they differ."""
    first = values.reshape(-1)[0].item()
    return first if bool((values == first).all()) else None


def _around(constant: float, normal: torch.Tensor) -> torch.Tensor:
    """Zero stays a shift, one stays a scale, and a vanishing scale becomes one that matters."""
    if constant == 0:
        return SPREAD * normal
    return (constant if abs(constant) >= 0.5 else math.copysign(0.5, constant)) + SPREAD * normal


def _fan_in(module: nn.Module, shape: torch.Size) -> float:
    """Number of products that one output element sums up."""
    if isinstance(module, Conv1D):
        return shape[0]
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        return shape[0] * math.prod(shape[2:]) / math.prod(module.stride) / module.groups
    if isinstance(module, nn.Linear | nn.modules.conv._ConvNd) or len(shape) == 2:
        return math.prod(shape[1:])
    # Stacked matrices of experts come in either orientation.
    return math.sqrt(shape[-1] * shape[-2])


def _ruled(rule: WeightRule, module: nn.Module, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    if rule.kind == "normal":
        return rule.a + rule.b * torch.randn(shape, generator=generator)
    if rule.kind == "gain":
        return rule.a * torch.randn(shape, generator=generator) / math.sqrt(_fan_in(module, shape))
    share = torch.rand(shape, generator=generator)
    if rule.kind == "log-uniform":
        return torch.exp(math.log(rule.a) + (math.log(rule.b) - math.log(rule.a)) * share)
    return rule.a + (rule.b - rule.a) * share
