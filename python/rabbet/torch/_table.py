"""The table of torch's operators: functions that write each as nodes of ONNX.

A function gets the graph, the operator's result in torch (a tensor without data, or
several), and the arguments, with tensors as Values. It returns a name or a list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._errors import UnsupportedError

Handler = Callable[..., Any]

TABLE: dict[str, Handler] = {}


def aten(*names: str, others: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
    """Registers a function for operators, named as "add.Tensor"; others have a namespace
    of their own."""

    def register(function: Handler) -> Handler:
        TABLE.update({f"aten.{name}": function for name in names})
        TABLE.update(dict.fromkeys(others, function))
        return function

    return register


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
