"""Launch parameters that IPluginV3QuickAOTBuild.get_launch_params fills in."""

from __future__ import annotations

import operator
from typing import Any

from .._enums import PluginArgDataType, PluginArgType
from ._exprs import IDimensionExpr


class ISymExpr:
    """An integer argument of a kernel: set type, dtype and expr."""

    __slots__ = ("_dtype", "_expr", "_type")

    def __init__(self) -> None:
        self._type = PluginArgType.INT
        self._dtype = PluginArgDataType.INT32
        self._expr: IDimensionExpr | None = None

    def _put_type(self, kind: PluginArgType) -> None:
        self._type = PluginArgType(kind)

    def _put_dtype(self, dtype: PluginArgDataType) -> None:
        self._dtype = PluginArgDataType(dtype)

    def _put_expr(self, expr: IDimensionExpr) -> None:
        if not isinstance(expr, IDimensionExpr):
            raise TypeError(
                f"ISymExpr.expr: expected an IDimensionExpr, got {expr!r}; numbers are "
                "expr_builder.constant(number)"
            )
        self._expr = expr

    type = property(None, _put_type, doc="PluginArgType.INT.")
    dtype = property(None, _put_dtype, doc="The integer's width.")
    expr = property(None, _put_expr, doc="Its value.")


class ISymExprs:
    """The kernel's integer arguments: set nbSymExprs, then the items."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[ISymExpr | None] = []

    @property
    def nbSymExprs(self) -> int:  # noqa: N802
        """Number of arguments."""
        return len(self._items)

    @nbSymExprs.setter
    def nbSymExprs(self, count: int) -> None:  # noqa: N802
        number = operator.index(count)
        self._items = (self._items + [None] * number)[:number]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> ISymExpr | None:
        return self._items[index]

    def __setitem__(self, index: int, item: ISymExpr) -> None:
        if not isinstance(item, ISymExpr):
            raise TypeError(f"ISymExprs: expected an ISymExpr, got {item!r}")
        self._items[index] = item


class KernelLaunchParams:
    """Grid, block and shared memory of a kernel, as ISymExprs."""

    __slots__ = ("_values",)
    NAMES = (
        "grid_x",
        "grid_y",
        "grid_z",
        "block_x",
        "block_y",
        "block_z",
        "shared_mem",
    )

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}


def _parameter(name: str) -> property:
    def get(self: KernelLaunchParams) -> Any:
        return self._values.get(name)

    def put(self: KernelLaunchParams, value: Any) -> None:
        if not isinstance(value, (ISymExpr, IDimensionExpr)):
            raise TypeError(
                f"KernelLaunchParams.{name}: expected an ISymExpr, got {value!r}"
            )
        self._values[name] = value

    return property(get, put, doc=f"{name}; default {int(name != 'shared_mem')}.")


for _name in KernelLaunchParams.NAMES:
    setattr(KernelLaunchParams, _name, _parameter(_name))
