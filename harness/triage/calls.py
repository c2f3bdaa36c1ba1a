"""What a call is given, as plain data that a process on the target describes and from which Python source is made.

A value is a number, a string, a bool or None, or one of `{"tensor": n}` (of the call's tensors), `{"list": [...]}`,
`{"tuple": [...]}`, `{"dict": {...}}`, `{"dtype": "float32"}`, `{"device": 0}`, `{"code": "torch.strided"}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

ZEROS = 0.02
"""Share of zeros from which on floating numbers are drawn with as many: some operators ask for the exact 0."""


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that a call is given.

    `order` lists its dimensions from the one with the largest stride on, where that is not their own order. `values`
    are its elements, row by row, None where they are too many to write down; `low` and `high` bound the finite ones.
    `few` are its one or two different values, if it has no more; `share` is that of the second, `zeros` that of 0.
    """

    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    order: tuple[int, ...] | None = None
    few: tuple[Any, ...] = ()
    share: float = 0.0
    zeros: float = 0.0
    values: tuple[Any, ...] | None = None

    @property
    def is_floating(self) -> bool:
        """Whether its elements are no integers and no truth values."""
        return "float" in self.dtype or "complex" in self.dtype

    def resized(self, shape: tuple[int, ...]) -> Given:
        """The tensor with the first elements of each dimension."""
        values = self.values
        if values is not None and shape != self.shape:
            values = tuple(_leading(values, self.shape, shape))
        return replace(self, shape=shape, values=values)

    def source(self, *, literal: bool) -> str:
        """An expression for it on CPU: random numbers of its range, or with `literal` its own where they are known."""
        shape, back = self.shape, ""
        if self.order and sorted(self.order) == list(range(len(shape))):
            back = f".permute({', '.join(str(self.order.index(n)) for n in range(len(shape)))})"
            shape = tuple(shape[n] for n in self.order)
        if literal and self.values is not None:
            like = "" if len(self.shape) == 1 else f".reshape({_shape(self.shape)})"
            strided = f".permute{self.order}.contiguous()" * bool(back)
            return (
                f"torch.tensor([{', '.join(map(_number, self.values))}], dtype=torch.{self.dtype}){like}{strided}{back}"
            )
        if self.dtype == "bool" and len(self.few) > 1:
            return f"(torch.rand({_shape(shape)}) < {self.share:.3g}){back}"
        typed = f".to(torch.{self.dtype})" if self.dtype not in ("float32", "int64") else ""
        if len(self.few) == 1:
            return f"torch.full({_size(shape)}, {_number(self.few[0])}, dtype=torch.{self.dtype}){back}"
        if len(self.few) == 2:
            one, other = map(_number, self.few)
            return f"torch.where(torch.rand({_shape(shape)}) < {self.share:.3g}, {other}, {one}){typed}{back}"
        if not self.is_floating:
            return f"torch.randint({int(self.low)}, {int(self.high) + 1}, {_size(shape)}){typed}{back}"
        drawn = f"torch.rand({_shape(shape)}) * {self.high - self.low:.4g} + {self.low:.4g}"
        if self.zeros >= ZEROS:
            drawn = f"({drawn}) * (torch.rand({_shape(shape)}) > {self.zeros:.3g})"
        return f"({drawn}){typed}{back}"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of `function`, source text such as `torch.ops.aten.gelu.default`, with its arguments as values.

    `written` names the arguments that it writes into, a number for one by position. `on_cpu` defines, as source,
    the function that takes its place on CPU, where the operator has no kernel there.
    """

    function: str
    tensors: tuple[Given, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    written: tuple[int | str, ...] = ()
    on_cpu: str = ""

    @classmethod
    def of(cls, data: dict[str, Any]) -> Call:
        """The call that a process has described as JSON data."""
        tensors = tuple(
            Given(**{k: tuple(v) if isinstance(v, list) else v for k, v in one.items()}) for one in data["tensors"]
        )
        known = {"tensors": tensors, "args": tuple(data["args"]), "written": tuple(data["written"])}
        return cls(**data | known)

    @property
    def sizes(self) -> list[int]:
        """The sizes above one that its tensors have, largest first."""
        return sorted({size for one in self.tensors for size in one.shape if size > 1}, reverse=True)

    def resized(self, old: int, new: int) -> Call:
        """The call with every dimension of `old` made `new`, and every such number; an index stays inside."""
        tensors = []
        for one in self.tensors:
            smaller = one.resized(tuple(new if size == old else size for size in one.shape))
            if not one.is_floating and one.dtype != "bool" and new <= one.high < old:
                few = smaller.few if all(value < new for value in smaller.few) else ()
                values = smaller.values and tuple(min(value, new - 1) for value in smaller.values)
                smaller = replace(smaller, low=min(one.low, new - 1), high=new - 1, few=few, values=values)
            tensors.append(smaller)

        def change(value: Any) -> Any:
            return new if type(value) is int and value == old else value

        args = tuple(mapped(change, value) for value in self.args)
        kwargs = {name: mapped(change, value) for name, value in self.kwargs.items()}
        return replace(self, tensors=tuple(tensors), args=args, kwargs=kwargs)

    def inputs(self, literal: str = "") -> list[str]:
        """The tensors as source text; `literal` says which are written down: none, `whole` numbers, or `all`."""
        return [
            one.source(literal=literal == "all" or (literal == "whole" and not one.is_floating)) for one in self.tensors
        ]

    def source(self, tensors: Callable[[int], str] = "x{}".format) -> str:
        """The arguments as source text; `tensors` names them by number."""
        given = [written(value, tensors) for value in self.args]
        given += [f"{name}={written(value, tensors)}" for name, value in self.kwargs.items()]
        return ", ".join(given)


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """A value with every plain one in it changed."""
    match value:
        case {"list": list(parts)}:
            return {"list": [mapped(change, part) for part in parts]}
        case {"tuple": list(parts)}:
            return {"tuple": [mapped(change, part) for part in parts]}
        case {"dict": dict(parts)}:
            return {"dict": {name: mapped(change, part) for name, part in parts.items()}}
        case dict():
            return value
    return change(value)


def written(value: Any, tensors: Callable[[int], str]) -> str:
    """A value as source text. `device` is the device, and `wide` says that floating types are to be float64."""
    match value:
        case {"tensor": int(number)}:
            return tensors(number)
        case {"list": list(parts)}:
            return f"[{', '.join(written(part, tensors) for part in parts)}]"
        case {"tuple": list(parts)}:
            inside = ", ".join(written(part, tensors) for part in parts)
            return f"({inside},)" if len(parts) == 1 else f"({inside})"
        case {"dict": dict(parts)}:
            return "{" + ", ".join(f"{name!r}: {written(part, tensors)}" for name, part in parts.items()) + "}"
        case {"dtype": str(name)}:
            return f"torch.float64 if wide else torch.{name}" if "float" in name else f"torch.{name}"
        case {"device": _}:
            return "device"
        case {"code": str(code)}:
            return code
        case float():
            return _number(value)
    return repr(value)


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f"{value:.9g}" if isinstance(value, float) and value != int(value) else repr(value)


def _shape(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape)) if shape else "()"


def _size(shape: Sequence[int]) -> str:
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def _leading(values: Sequence[Any], shape: Sequence[int], wanted: Sequence[int]) -> Iterator[Any]:
    if not shape:
        yield from values
        return
    step = math.prod(shape[1:])
    for row in range(wanted[0]):
        yield from _leading(values[row * step : (row + 1) * step], shape[1:], wanted[1:])
