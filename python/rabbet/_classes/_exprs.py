"""Dimension expressions and tensor descriptors for plugins that are classes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

from .. import _rabbet
from .._dims import Dims
from .._enums import DataType, DimensionOperation, TensorFormat


class IDimensionExpr:
    """A dimension, made by an IExprBuilder; valid during the call that received the
    builder."""

    __slots__ = ("_builder", "_dim")
    _builder: _rabbet.DimBuilder
    _dim: int

    def __init__(self) -> None:
        raise TypeError(
            "IDimensionExprs are made by an IExprBuilder: expr_builder.constant(4)"
        )

    @classmethod
    def _of(cls, builder: _rabbet.DimBuilder, dim: int) -> IDimensionExpr:
        self = cls.__new__(cls)
        self._builder, self._dim = builder, dim
        return self

    def is_constant(self) -> bool:
        """Whether the value is known at build time."""
        return self._builder.value(self._dim) is not None

    def get_constant_value(self) -> int:
        """The value; ValueError unless it is constant."""
        value = self._builder.value(self._dim)
        if value is None:
            raise ValueError(
                "this dimension is known only at run time (see is_constant()). Build an "
                "expression of it with expr_builder.operation()"
            )
        return value

    def is_size_tensor(self) -> bool:
        """Whether the value is that of a size tensor."""
        return self._builder.is_size_tensor(self._dim)

    isConstant = is_constant  # noqa: N815
    getConstantValue = get_constant_value  # noqa: N815

    def __repr__(self) -> str:
        try:
            value = self._builder.value(self._dim)
        except RuntimeError:
            return "<IDimensionExpr of an earlier call>"
        return f"<IDimensionExpr {'?' if value is None else value}>"


class DimsExprs:
    """The dimensions of a tensor as expressions: DimsExprs(rank), or of a sequence."""

    __slots__ = ("_items",)

    def __init__(self, source: int | Iterable[IDimensionExpr] = ()) -> None:
        items: list[Any]
        if isinstance(source, Iterable):
            items = [self._checked(item) for item in source]
        else:
            rank = operator.index(source)
            items = [None] * min(max(rank, 0), Dims.MAX_DIMS + 1)
            if rank < 0:
                raise ValueError(f"a tensor has 0 dimensions or more, got {rank}")
        if len(items) > Dims.MAX_DIMS:
            raise ValueError(f"a tensor has at most {Dims.MAX_DIMS} dimensions")
        self._items = items

    @staticmethod
    def _checked(item: Any) -> IDimensionExpr | None:
        if item is None or isinstance(item, IDimensionExpr):
            return item
        raise TypeError(
            f"DimsExprs: {item!r} is not an IDimensionExpr; numbers are "
            "expr_builder.constant(number)"
        )

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[IDimensionExpr]:
        return iter(self._items)

    def __getitem__(self, index: int) -> IDimensionExpr:
        return self._items[self._position(index)]

    def __setitem__(self, index: int, item: IDimensionExpr) -> None:
        self._items[self._position(index)] = self._checked(item)

    def _position(self, index: int) -> int:
        position = operator.index(index)
        if not -len(self._items) <= position < len(self._items):
            raise IndexError(f"DimsExprs: index {index} of {len(self._items)} dimensions")
        return position

    def __repr__(self) -> str:
        return f"DimsExprs({self._items})"


class IExprBuilder:
    """Makes dimension expressions."""

    __slots__ = ("_builder", "_sizes")

    def __init__(self) -> None:
        self._builder: _rabbet.DimBuilder | None = None
        self._sizes: set[int] = set()  # outputs that were declared size tensors

    def _open(self) -> _rabbet.DimBuilder:
        if self._builder is None:
            raise RuntimeError(
                "this IExprBuilder was not given to a plugin; it has no expressions"
            )
        return self._builder

    def constant(self, value: int, /) -> IDimensionExpr:
        """A constant expression."""
        builder = self._open()
        return IDimensionExpr._of(builder, builder.constant(operator.index(value)))

    def _number(self, what: str, item: Any) -> int:
        if isinstance(item, IDimensionExpr):
            if item._builder is not self._builder:
                raise RuntimeError(
                    f"IExprBuilder.{what}: an expression of an earlier call was kept; "
                    "they are valid only during the call"
                )
            return item._dim
        raise TypeError(
            f"IExprBuilder.{what}: expected an IDimensionExpr, got {item!r}; numbers are "
            "expr_builder.constant(number)"
        )

    def operation(
        self, op: DimensionOperation, first: Any, second: Any, /
    ) -> IDimensionExpr:
        """An operation on two expressions."""
        builder = self._open()
        if not isinstance(op, DimensionOperation):
            raise TypeError(f"IExprBuilder.operation: expected a DimensionOperation, got {op!r}")
        a, b = self._number("operation", first), self._number("operation", second)
        return IDimensionExpr._of(builder, builder.operation(int(op), a, b))

    def declare_size_tensor(
        self, output_index: int, opt: Any, upper: Any, /
    ) -> IDimensionExpr:
        """An extent that output `output_index`, an integer of rank 0, holds after each
        run: about `opt`, at most `upper`."""
        builder = self._open()
        index = operator.index(output_index)
        what = "declare_size_tensor"
        dim = builder.size_tensor(
            index, self._number(what, opt), self._number(what, upper)
        )
        self._sizes.add(index)
        return IDimensionExpr._of(builder, dim)


def builder_for(builder: _rabbet.DimBuilder) -> IExprBuilder:
    """An IExprBuilder for one call."""
    self = IExprBuilder()
    self._builder = builder
    return self


def exprs(builder: _rabbet.DimBuilder, dims: Iterable[int]) -> DimsExprs:
    """Expression numbers as DimsExprs."""
    return DimsExprs([IDimensionExpr._of(builder, dim) for dim in dims])


# ---- Descriptors ----


class PluginTensorDesc:
    """Type, format and dimensions of a tensor."""

    __slots__ = ("_dims", "device", "format", "scale", "type")

    def __init__(self) -> None:
        self._dims = Dims()
        self.device = ""  # not in TensorRT: "cpu" or "cuda:0", in enqueue
        self.type = DataType.FLOAT
        self.format = TensorFormat.LINEAR
        self.scale = -1.0

    @property
    def dims(self) -> Dims:
        """Dimensions; -1 where they are unknown."""
        return self._dims

    @dims.setter
    def dims(self, dims: Iterable[int]) -> None:
        self._dims = Dims(dims)

    def __repr__(self) -> str:
        return f"<PluginTensorDesc {self.type.name} {self.format.name} {self.dims!r}>"


_set = object.__setattr__


class _GivenDesc(PluginTensorDesc):
    """An immutable descriptor, since the engine passes it several times."""

    __slots__ = ("_shape",)
    _shape: Iterable[int]

    @property  # type: ignore[misc]
    def dims(self) -> Dims:
        """A copy of the dimensions."""
        return Dims._of(list(self._shape))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"this PluginTensorDesc describes the engine's choice; setting {name} would "
            "have no effect"
        )


def given_desc(
    device: str, dtype: DataType, format_: TensorFormat, dims: Iterable[int]
) -> PluginTensorDesc:
    """An immutable descriptor."""
    self = _GivenDesc.__new__(_GivenDesc)
    _set(self, "device", device)
    _set(self, "_shape", tuple(dims))
    _set(self, "type", dtype)
    _set(self, "format", format_)
    _set(self, "scale", -1.0)
    return self


def made_desc(
    dtype: DataType, format_: TensorFormat, dims: Iterable[int]
) -> PluginTensorDesc:
    """A mutable descriptor."""
    self = PluginTensorDesc.__new__(PluginTensorDesc)
    self.type, self.format, self._dims = dtype, format_, Dims._of(list(dims))
    self.device, self.scale = "", -1.0
    return self


class DynamicPluginTensorDesc:
    """A descriptor with the bounds of its dimensions."""

    __slots__ = ("_max", "_min", "_opt", "desc")

    def __init__(self) -> None:
        self.desc = PluginTensorDesc()
        self._min, self._opt, self._max = Dims(), Dims(), Dims()

    @property
    def min(self) -> Dims:
        """Minimum dimensions of the profile."""
        return self._min

    @min.setter
    def min(self, dims: Iterable[int]) -> None:
        self._min = Dims(dims)

    @property
    def opt(self) -> Dims:
        """Optimal dimensions of the profile, for which a build tunes."""
        return self._opt

    @opt.setter
    def opt(self, dims: Iterable[int]) -> None:
        self._opt = Dims(dims)

    @property
    def max(self) -> Dims:
        """Maximum dimensions of the profile."""
        return self._max

    @max.setter
    def max(self, dims: Iterable[int]) -> None:
        self._max = Dims(dims)

    def __repr__(self) -> str:
        return (
            f"<DynamicPluginTensorDesc {self.desc.type.name} {self.desc.format.name} "
            f"{self.desc.dims!r} within {self.min!r} to {self.max!r}>"
        )


Range = tuple[Any, Any, Any, Any]  # dims, min, opt, max


def dynamic_desc(
    dtype: DataType, format_: TensorFormat, extent: Range
) -> DynamicPluginTensorDesc:
    """A descriptor with bounds."""
    self = DynamicPluginTensorDesc.__new__(DynamicPluginTensorDesc)
    dims, low, opt, high = (list(each) for each in extent)
    self.desc = made_desc(dtype, format_, dims)
    self._min, self._opt, self._max = Dims._of(low), Dims._of(opt), Dims._of(high)
    return self
