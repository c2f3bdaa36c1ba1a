"""Makes a failing input smaller while it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from harness.triage.calls import Call
from harness.triage.repro import Subject

T = TypeVar("T")
_SMALL = (1, 2, 3, 4, 8)
"""Sizes that are tried before halves."""


class Deadline:
    """A test that says no once `seconds` have passed; `over` tells whether they have."""

    def __init__(self, fails: Callable[[T], bool], seconds: float) -> None:
        self._fails, self._until = fails, time.monotonic() + seconds

    @property
    def over(self) -> bool:
        """Whether there is no time for another try."""
        return time.monotonic() >= self._until

    def __call__(self, candidate: T) -> bool:
        return not self.over and self._fails(candidate)


def fewest(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A part of `items` that `fails` of which none can be left out alone, as the whole does.

    Delta debugging by complements (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002).
    """
    kept, parts = ([] if fails([]) else list(items)) if items else [], 2
    while kept:
        length = -(-len(kept) // parts)
        for start in range(0, len(kept), length):
            fewer = kept[:start] + kept[start + length :]
            if fails(fewer):
                kept, parts = fewer, max(parts - 1, 2)
                break
        else:
            if length == 1:
                break
            parts = min(parts * 2, len(kept))
    return kept


def smaller(size: int) -> list[int]:
    """What a size is tried to be made, smallest first."""
    return sorted({*(n for n in _SMALL if n < size), *([size // 2] if size // 2 > 1 else [])})


def shrunk(value: T, tries: Callable[[T], Iterable[T]], fails: Callable[[T], bool]) -> T:
    """`value` made into the first of its `tries` that `fails`, again and again, until none does."""
    while (found := next((one for one in tries(value) if fails(one)), None)) is not None:
        value = found
    return value


def smallest(call: Call, fails: Callable[[Call], bool]) -> Call:
    """A call that `fails` as `call` does, with fewer arguments, smaller sizes and plain memory where that is enough."""
    plain = replace(call, tensors=tuple(replace(one, order=None) for one in call.tensors))
    if plain != call and fails(plain):
        call = plain
    call = shrunk(call, lambda one: (one.resized(old, new) for old in one.sizes for new in smaller(old)), fails)
    names = fewest(list(call.kwargs), lambda kept: fails(_with(call, kept)))
    return _with(call, names)


def model(subject: Subject, fails: Callable[[Subject], bool]) -> Subject:
    """A model that `fails` as `subject` does, with fewer layers, inputs and config fields, and smaller sizes."""
    sizes = {name for name, value in subject.config.items() if type(value) is int}  # of which the defaults are larger

    def with_fields(kept: Sequence[str]) -> Subject:
        return replace(subject, config={k: v for k, v in subject.config.items() if k in sizes or k in kept})

    def with_inputs(kept: Sequence[str]) -> Subject:
        return replace(subject, inputs=_with(subject.inputs, kept))

    fields = [name for name in subject.config if name not in sizes]
    subject = with_fields(fewest(fields, lambda kept: fails(with_fields(kept))))
    subject = with_inputs(fewest(list(subject.inputs.kwargs), lambda kept: fails(with_inputs(kept))))
    return shrunk(subject, _smaller_models, fails)


def _smaller_models(subject: Subject) -> Iterable[Subject]:
    config = subject.config
    layers = [name for name in config if "layers" in name]
    for name in (*layers, *(name for name in config if name not in layers)):
        value = config[name]
        if type(value) is int and value > 1:
            yield from (replace(subject, config={**config, name: new}) for new in smaller(value))
    for old in subject.inputs.sizes:
        yield from (replace(subject, inputs=subject.inputs.resized(old, new)) for new in smaller(old))


def _with(call: Call, names: Iterable[str]) -> Call:
    return replace(call, kwargs={name: call.kwargs[name] for name in names})
