"""Generation through `generate()` as users call it, with the tokens that one run chose given to all others.

Two correct runs may choose different tokens where two are nearly as likely, and from there on nothing
can be compared. So the first CPU run chooses freely and writes down what it chose; every other run is
made to choose the same, and what is compared is what it would have chosen from: the logits of each
step, and the cache after the last.

So it is with parts that decide otherwise than token by token, as a text to speech model's that predict how
long each sound lasts, or all sounds at once: what such a chooser makes is compared, and handed on is what it
made in the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from transformers import CompileConfig, GenerationMixin, LogitsProcessor, LogitsProcessorList

from harness.execution import diffusion
from harness.inputs import REAL_TOKENS

_COMPILED_OPTIONS = "_zoo_compiled_generation"
"""Attribute of a model that `compile_steps` has prepared: what else `generate` is to be called with."""

CHOOSERS = "choosers"
"""Among the arguments of a generation: the choosers, by their names as submodules of the model."""

DECODE_STEPS = 8
"""Steps that read the cache, after the prefill that fills it."""


class WrongSteps(RuntimeError):
    """A run takes another number of steps than the one whose tokens it is given."""


class Teacher(LogitsProcessor):
    """Writes down what a run chooses, one tensor a step, or makes a run choose what another did.

    `tokens` are int64 (rows) where a generation loop asks, whatever its vocabulary, and floating where a chooser hands
    something on. `logits` and `made` are what this run itself chose from: those of the loops, (rows, vocabulary), as
    other processors left them, and those of the choosers.
    """

    def __init__(self, tokens: list[torch.Tensor] | None = None) -> None:
        self._given = tokens
        self.tokens: list[torch.Tensor] = []
        self.logits: list[torch.Tensor] = []
        self.made: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """`scores` (rows, vocabulary) as they are, or with all but the given tokens at minus infinity."""
        self.logits.append(scores)
        if self._given is None:
            self.tokens.append(scores.argmax(dim=-1).cpu())
            return scores
        self.tokens.append(self._next())
        forced = torch.full(scores.shape, -torch.inf, dtype=scores.dtype)
        return forced.scatter_(-1, self.tokens[-1].unsqueeze(-1), 0).to(scores.device)

    @torch.compiler.disable  # else what lies on CPU would be of a device's program
    def hand_on(self, module: nn.Module, args: Any, output: Any) -> Any:
        """As a forward hook of a chooser: its output, in which what it chooses by (the first tensor) is the given."""
        own = output if isinstance(output, torch.Tensor) else output[0]
        self.made.append(own)
        if self._given is None:
            self.tokens.append(own.detach().cpu().clone())
            return output
        given = self._next()
        if given.shape != own.shape:
            raise WrongSteps(f"a chooser makes {tuple(own.shape)} in a step where the reference's {tuple(given.shape)}")
        self.tokens.append(given)
        given = given.to(own)
        if isinstance(output, torch.Tensor):
            return given
        if isinstance(output, dict):
            return type(output)(**dict(output) | {next(iter(output)): given})
        return (given, *output[1:])

    def _next(self) -> torch.Tensor:
        step = len(self.tokens)
        if step >= len(self._given):
            raise WrongSteps(f"generation takes a step {step + 1}; the reference took {len(self._given)}")
        return self._given[step]


def generate(model: nn.Module, inputs: dict[str, Any], teacher: Teacher) -> dict[str, Any]:
    """A prefill and `DECODE_STEPS` cached steps, or as many tokens as the inputs' `max_new_tokens` says; what was
    returned, logits in the model's own dtype.

    Nothing is compiled, unless `compile_steps` has prepared the model: by itself the library compiles on some devices
    and not on others. `inputs` may name what else `generate` is to know or to return, `return_dict_in_generate` as
    false where a class sets that itself, and CHOOSERS. Where it returns no logits, those that the teacher saw are
    added, and so is what choosers made. Raises WrongSteps, and what the library raises.
    """
    inputs = diffusion.opened(inputs)
    choosers = [model.get_submodule(name) for name in inputs.pop(CHOOSERS, ())]
    asked = {"return_dict_in_generate": True, "max_new_tokens": 1 + DECODE_STEPS} | inputs
    if not asked["return_dict_in_generate"]:  # this class asks for it itself, and refuses to be asked as well
        del asked["return_dict_in_generate"]
    with ExitStack() as changed:
        changed.enter_context(_last_word(model, teacher))
        for chooser in choosers:
            changed.callback(chooser.register_forward_hook(teacher.hand_on).remove)
        returned = model.generate(
            **asked,
            min_new_tokens=asked["max_new_tokens"],
            do_sample=False,
            num_beams=1,
            use_cache=True,
            output_logits=True,
            logits_processor=LogitsProcessorList([teacher]),
            **getattr(model, _COMPILED_OPTIONS, {"disable_compile": True}),
        )
    result = {"sequences": returned} if isinstance(returned, torch.Tensor) else dict(returned)
    if result.get("logits") is None:
        result["logits"] = tuple(teacher.logits)
    if isinstance(result["logits"], tuple):
        # The library widens them to float32, which would judge a half type by float32's precision.
        result["logits"] = [step.to(model.dtype) for step in result["logits"]]
    if choosers:
        result["made"] = teacher.made
    return result


@contextmanager
def _last_word(model: nn.Module, teacher: Teacher) -> Iterator[None]:
    """While it is entered, `teacher` comes after the processors that a class adds to those it is given.

    Before them it would write down a token that they forbid, and be left without a choice.
    """
    parts = [part for part in model.modules() if isinstance(part, GenerationMixin)]
    for part in parts:
        part._get_logits_processor = _with_last(part._get_logits_processor, teacher)
    try:
        yield
    finally:
        for part in parts:
            del part._get_logits_processor


def _with_last(processors: Callable[..., LogitsProcessorList], teacher: Teacher) -> Callable[..., LogitsProcessorList]:
    def ordered(*args: Any, **kwargs: Any) -> LogitsProcessorList:
        made = processors(*args, **kwargs)
        others = [each for each in made if each is not teacher]
        return LogitsProcessorList([*others, teacher]) if len(others) < len(made) else made

    return ordered


def compile_steps(model: nn.Module, compiler: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Have `generate` compile with `compiler` as the library does by itself on some devices: the steps after the
    prefill, over a cache of fixed size. Models that it says cannot be compiled as a whole, and those without such a
    cache, have every step compiled, the prefill too, over the cache they have.

    A compiled module would be no help: its `generate` is the module's own, which calls the module itself.
    """
    parts = [part for part in model.modules() if isinstance(part, GenerationMixin)]
    if all(part._can_compile_fullgraph and part._supports_default_dynamic_cache() for part in parts):
        for part in parts:
            part.get_compiled_call = _always(compiler(part.__call__))
        everywhere = CompileConfig()
        everywhere._compile_all_devices = True
        setattr(model, _COMPILED_OPTIONS, {"cache_implementation": "static", "compile_config": everywhere})
        return
    for part in parts:
        part.forward = compiler(part.forward)
    # Every step has shapes of its own; beyond its limit Dynamo silently compiles no more.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 2 * REAL_TOKENS)


def _always(compiled: Callable[..., Any]) -> Callable[[CompileConfig | None], Callable[..., Any]]:
    return lambda config: compiled
