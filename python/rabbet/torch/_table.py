"""The table of torch's operators: functions that write each as nodes of ONNX.

A function gets the graph, the operator's result in torch (a tensor without data, or
several), and the arguments, with tensors as Values. It returns a name or a list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .._errors import UnsupportedError

Handler = Callable[..., Any]

TABLE: dict[str, Handler] = {}

HINTS: dict[str, str] = {}
"""What there is in the place of operators that are not in the table."""


def aten(*names: str, others: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
    """Registers a function for operators, named as "add.Tensor"; others have a namespace
    of their own."""

    def register(function: Handler) -> Handler:
        TABLE.update({f"aten.{name}": function for name in names})
        TABLE.update(dict.fromkeys(others, function))
        return function

    return register


def computed_as(types: Mapping[Any, Any], handler: Handler) -> Handler:
    """Writes an operator whose first tensor has one of these types by one of another
    type, and converts the results."""

    def number(g: Any, x: Any) -> Any:
        to = types.get(getattr(x, "dtype", None))
        return x if to is None else type(x).make(g.cast(x, to), to, x.shape)

    def like(out: Any) -> Any:
        if isinstance(out, list):
            return [like(each) for each in out]
        to = types.get(out.dtype)
        return out if to is None else type(out).make("", to, out.shape)

    def restored(g: Any, made: Any, out: Any) -> Any:
        if isinstance(out, list):
            return [restored(g, *pair) for pair in zip(made, out, strict=False)]
        return g.cast(made, out.dtype) if made and out.dtype in types else made

    def write(g: Any, out: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(x, "dtype", None) not in types:
            return handler(g, out, x, *args, **kwargs)
        given = [number(g, each) for each in args]
        named = {key: number(g, each) for key, each in kwargs.items()}
        return restored(g, handler(g, like(out), number(g, x), *given, **named), out)

    return write


def as_numbers(handler: Handler) -> Handler:
    """Writes an operator of truth values by one of INT32."""
    return computed_as({torch.bool: torch.int32}, handler)


def as_floats(handler: Handler) -> Handler:
    """Writes an operator of narrow floats by one of FLOAT, as torch's kernels compute it:
    a sum of squares is infinite in HALF from 256 on, and an epsilon of 1e-8 is 0."""
    return computed_as(
        {torch.float16: torch.float32, torch.bfloat16: torch.float32}, handler
    )


def refuse(message: str) -> Any:
    """Ends the translation of an operator."""
    raise UnsupportedError(message)


def fixed(number: Any) -> float:
    """A number of a node's attribute. Torch's symbols would become those of the example."""
    if isinstance(number, (torch.SymInt, torch.SymFloat)):
        refuse(f"an attribute that depends on sizes, {number}")
    return float(number)


def axis_of(dim: int, rank: int) -> int:
    """A non-negative axis."""
    return dim + rank if dim < 0 else dim


def axes_of(dims: Any, rank: int) -> list[int]:
    """Non-negative axes; all for None or an empty list."""
    if dims is None or dims == []:
        return list(range(rank))
    return [axis_of(d, rank) for d in ([dims] if isinstance(dims, int) else dims)]
