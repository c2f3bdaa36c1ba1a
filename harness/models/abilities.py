"""What a model class can do beyond a forward pass, told from the class alone: no model is built."""

from __future__ import annotations

import dis
import inspect
from itertools import pairwise
from types import CodeType
from typing import TYPE_CHECKING

from harness.cases import Phase

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def phases_of(model_class: type[PreTrainedModel]) -> tuple[Phase, ...]:
    """The phases a class has, in the order of `Phase`: always forward, the others where it can do them.

    It generates where the library says that it can, and trains where its forward method makes a loss.
    Return annotations are not asked: several of them name an output of another class.
    """
    found = [Phase.FORWARD]
    if model_class.can_generate():
        found.append(Phase.GENERATE)
    if _makes_loss(model_class):
        found.append(Phase.TRAIN)
    return tuple(found)


def _makes_loss(model_class: type) -> bool:
    """Does its forward method, or the one that it calls on its parent, make a loss?"""
    for base in model_class.__mro__:
        forward = vars(base).get("forward")
        if forward is None:
            continue
        code = getattr(inspect.unwrap(forward), "__code__", None)
        if code is None:
            return False
        if "loss" in code.co_varnames:
            return _is_set(code, "loss")
        if "loss" in _names_in_calls(code):
            return True
        if not {"super", "forward"} <= set(code.co_names):
            return False
    return False


def _is_set(code: CodeType, name: str) -> bool:
    """Is the local variable ever set to something other than None? Some classes refuse labels and return no loss."""
    steps = list(dis.get_instructions(code))
    return any(
        step.opname == "STORE_FAST"
        and step.argval == name
        and not (before.opname == "LOAD_CONST" and not before.argval)
        for before, step in pairwise(steps)
    )


def _names_in_calls(code: CodeType) -> set[str]:
    """Texts among a function's constants; names of keyword arguments are kept in tuples, or alone in long calls."""
    found: set[str] = set()
    for constant in code.co_consts:
        found |= set(constant) if isinstance(constant, tuple) else {constant}
    return {text for text in found if isinstance(text, str)}
