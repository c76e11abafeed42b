"""Symbolic dimensions: integers that only a run, or a profile, tells.

An expression is a number of the builder's graph (the engine keeps, simplifies
and evaluates it), an integer, or nothing at all ("fake").
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex, TypeVar

from .. import _rabbet
from .._enums import DimensionOperation as Op
from .._errors import InvalidArgumentError

# Of one list; arguments of a kernel are far fewer.
MAX_EXPRS = 4096

S = TypeVar("S", bound="SymIntExpr")


def _floor_div(a: int, b: int) -> int:
    if b == 0:
        raise InvalidArgumentError(f"shape expression: {a} // 0")
    return a // b


_FOLD: dict[Op, Callable[[int, int], int]] = {
    Op.SUM: operator.add,
    Op.PROD: operator.mul,
    Op.MAX: builtins.max,
    Op.MIN: builtins.min,
    Op.SUB: operator.sub,
    Op.EQUAL: lambda a, b: int(a == b),
    Op.LESS: lambda a, b: int(a < b),
    Op.FLOOR_DIV: _floor_div,
    Op.CEIL_DIV: lambda a, b: -_floor_div(-a, b),
}


class SymExpr:
    """Base of symbolic expressions, which define all that is here."""

    __slots__ = ()

    def _undefined(self, *_: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} is not a kind of expression")

    __add__ = __sub__ = __mul__ = __floordiv__ = __lt__ = _undefined
    is_constant = property(_undefined)
    constant_value = property(_undefined)


class SymIntExpr(SymExpr):
    """A symbolic integer.

    + - * // % == != < <= > >= with expressions and integers give expressions;
    comparisons give 1 or 0. Only a constant one has a truth value.
    """

    __slots__ = ("_builder", "_constant", "_dim")
    __hash__ = None  # type: ignore[assignment]
    _builder: _rabbet.DimBuilder | None
    _dim: int | None
    _constant: int | None

    def __init__(self, value: Any = None) -> None:
        self._builder, self._dim, self._constant = None, None, None
        if isinstance(value, SymIntExpr):
            self._builder, self._dim = value._builder, value._dim
            self._constant = value._constant
        elif value is not None:
            try:
                self._constant = operator.index(value)
            except TypeError:
                raise InvalidArgumentError(
                    f"{type(self).__name__} takes an integer or an expression, "
                    f"got {value!r}"
                ) from None

    @classmethod
    def _of(cls: type[S], builder: _rabbet.DimBuilder, dim: int) -> S:
        self = cls()
        self._builder, self._dim = builder, dim
        return self

    # ---- Known values ----

    @property
    def is_fake(self) -> bool:
        """Whether it is a placeholder without a value."""
        return self._dim is None and self._constant is None

    @property
    def is_constant(self) -> bool:
        """Whether its value is known at build time."""
        if self.is_fake:
            raise RuntimeError("this shape expression is fake: it has no value")
        return self._value() is not None

    @property
    def is_size_tensor(self) -> bool:
        """Whether it is the value of a size tensor."""
        if self._builder is None or self._dim is None:
            return False
        return self._builder.is_size_tensor(self._dim)

    def _value(self) -> int | None:
        if self._constant is not None:
            return self._constant
        if self._builder is None or self._dim is None:
            return None
        return self._builder.value(self._dim)

    def constant_value(self) -> int:
        """The value of a constant expression."""
        value = None if self.is_fake else self._value()
        if value is None:
            raise RuntimeError(
                f"{self!r} is not constant: its value is known only at run time"
            )
        return value

    def __bool__(self) -> bool:
        value = None if self.is_fake else self._value()
        if value is None:
            raise RuntimeError(
                f"the truth of {self!r} is not known when the shapes are described; "
                "use comparisons as numbers (1 or 0), rabbet.plugin.max and min"
            )
        return bool(value)

    def __index__(self) -> int:
        value = None if self.is_fake else self._value()
        if value is None:
            raise TypeError(
                f"{self!r} is not an integer yet: its value is known only at run time; "
                "calculate with it as an expression"
            )
        return value

    __int__ = __index__

    # ---- Arithmetic ----

    def _to_dim(self, builder: _rabbet.DimBuilder) -> int:
        if self._dim is not None:
            return self._dim
        if self._constant is None:
            raise InvalidArgumentError(
                "a fake ShapeExpr (made without a value) cannot be a dimension"
            )
        return builder.constant(self._constant)

    def _combine(self, op: Op, other: Any, swap: bool = False) -> Any:
        if not isinstance(other, (SymIntExpr, SupportsIndex)):
            return NotImplemented
        right = other if isinstance(other, SymIntExpr) else type(self)._plain(other)
        kind = type(right) if isinstance(right, ShapeExpr) else type(self)
        a, b = (right, self) if swap else (self, right)
        return _operate(kind._result_type(), op, a, b)

    @classmethod
    def _plain(cls, value: Any) -> SymIntExpr:
        return SymIntExpr(value)

    @classmethod
    def _result_type(cls) -> type[SymIntExpr]:
        return cls

    def __add__(self, other: Any) -> Any:
        return self._combine(Op.SUM, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combine(Op.SUB, other)

    def __rsub__(self, other: Any) -> Any:
        return self._combine(Op.SUB, other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._combine(Op.PROD, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._combine(Op.FLOOR_DIV, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._combine(Op.FLOOR_DIV, other, swap=True)

    def __mod__(self, other: Any) -> Any:
        quotient = self._combine(Op.FLOOR_DIV, other)
        return quotient if quotient is NotImplemented else self - quotient * other

    def __neg__(self) -> Any:
        return 0 - self

    def __truediv__(self, other: Any) -> Any:
        raise TypeError("dimensions are integers: use // or rabbet.plugin.cdiv, not /")

    def __eq__(self, other: object) -> Any:
        return self._combine(Op.EQUAL, other)

    def __ne__(self, other: object) -> Any:
        equal = self._combine(Op.EQUAL, other)
        return equal if equal is NotImplemented else 1 - equal

    def __lt__(self, other: Any) -> Any:
        return self._combine(Op.LESS, other)

    def __gt__(self, other: Any) -> Any:
        return self._combine(Op.LESS, other, swap=True)

    def __le__(self, other: Any) -> Any:
        greater = self > other
        return greater if greater is NotImplemented else 1 - greater

    def __ge__(self, other: Any) -> Any:
        less = self < other
        return less if less is NotImplemented else 1 - less

    def __repr__(self) -> str:
        if self.is_fake:
            return f"{type(self).__name__}(fake)"
        try:
            value = self._value()
        except RuntimeError:
            return f"{type(self).__name__}(expired)"
        return f"{type(self).__name__}({'symbolic' if value is None else value})"


def _operate(kind: type[S], op: Op, a: SymIntExpr, b: SymIntExpr) -> S:
    if a.is_fake or b.is_fake:
        return kind()
    builder = a._builder or b._builder
    if builder is None:
        assert a._constant is not None
        assert b._constant is not None
        return kind(_FOLD[op](a._constant, b._constant))
    return kind._of(
        builder, builder.operation(int(op), a._to_dim(builder), b._to_dim(builder))
    )


class SymInt32(SymIntExpr):
    """A symbolic integer that a kernel takes as a 32-bit argument."""

    __slots__ = ()


class SymInt16(SymIntExpr):
    """A symbolic integer that a kernel takes as a 16-bit argument."""

    __slots__ = ()


class SymInt8(SymIntExpr):
    """A symbolic integer that a kernel takes as an 8-bit argument."""

    __slots__ = ()


class ShapeExpr(SymInt32):
    """A dimension of a tensor as an expression."""

    __slots__ = ()

    @classmethod
    def _result_type(cls) -> type[SymIntExpr]:
        return ShapeExpr


class SizeTensorShapeExpr(ShapeExpr):
    """The value of a size tensor: valid as a dimension, not as an operand."""

    __slots__ = ("_desc",)

    def __init__(self, size_tensor_desc: Any) -> None:
        super().__init__()
        self._desc = size_tensor_desc

    @property
    def is_fake(self) -> bool:
        """Always False."""
        return False

    @property
    def is_constant(self) -> bool:
        """Always False."""
        return False

    @property
    def is_size_tensor(self) -> bool:
        """Always True."""
        return True

    def _value(self) -> int | None:
        return None

    def _to_dim(self, builder: _rabbet.DimBuilder) -> int:
        return self._desc._to_dim(builder)

    def _combine(self, op: Op, other: Any, swap: bool = False) -> Any:
        raise ValueError(
            "the extent that a size tensor tells cannot be calculated with; use it "
            "as a dimension by itself (another size tensor can tell another extent)"
        )

    def __repr__(self) -> str:
        return f"SizeTensorShapeExpr(of output {self._desc.index})"


def _function(op: Op, name: str, first: Any, second: Any) -> ShapeExpr:
    if not isinstance(first, SymIntExpr) and not isinstance(second, SymIntExpr):
        raise ValueError(
            f"rabbet.plugin.{name} is for shape expressions, got {first!r} and "
            f"{second!r}; for plain numbers use builtins"
        )
    for operand in (first, second):
        if isinstance(operand, SizeTensorShapeExpr):
            operand._combine(op, 0)
    a = first if isinstance(first, SymIntExpr) else SymIntExpr(first)
    b = second if isinstance(second, SymIntExpr) else SymIntExpr(second)
    return _operate(ShapeExpr, op, a, b)


def cdiv(first: Any, second: Any) -> ShapeExpr:
    """Quotient rounded up."""
    return _function(Op.CEIL_DIV, "cdiv", first, second)


def max(first: Any, second: Any) -> ShapeExpr:
    """The larger of two."""
    return _function(Op.MAX, "max", first, second)


def min(first: Any, second: Any) -> ShapeExpr:
    """The smaller of two."""
    return _function(Op.MIN, "min", first, second)


class SymExprs:
    """A list of fixed length of symbolic expressions."""

    _item: type[SymIntExpr] = SymInt32

    def __init__(self, length: int) -> None:
        count = operator.index(length)
        if not 0 <= count <= MAX_EXPRS:
            raise ValueError(
                f"{type(self).__name__}: expected 0 to {MAX_EXPRS} expressions, got {count}"
            )
        self._exprs: list[Any] = [None] * count

    @classmethod
    def from_tuple(cls, shape_exprs: Iterable[Any]) -> Any:
        """A list from any iterable."""
        items = list(shape_exprs)
        self = cls(len(items))
        for i, item in enumerate(items):
            self[i] = item
        return self

    def __len__(self) -> int:
        return len(self._exprs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._exprs)

    def __getitem__(self, index: int) -> Any:
        return self._exprs[index]

    def __setitem__(self, index: int, value: Any) -> None:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} of {type(self).__name__}({len(self)})")
        if not isinstance(value, SymIntExpr):
            value = self._item(value)
        self._exprs[index] = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._exprs))})"


class SymIntExprs(SymExprs):
    """A list of fixed length of symbolic integers: a kernel's extra arguments."""


class ShapeExprs(SymExprs):
    """The dimensions of a tensor as expressions; at most 8."""

    _item = ShapeExpr

    def __init__(self, length: int, _is_dummy: bool = False) -> None:
        if length > 8:
            raise ValueError(f"a tensor has at most 8 dimensions, got {length}")
        super().__init__(length)
        if _is_dummy:
            self._exprs = [ShapeExpr() for _ in range(length)]

    def numel(self) -> ShapeExpr:
        """The number of elements."""
        result: Any = ShapeExpr(1)
        for i, item in enumerate(self._exprs):
            if item is None:
                raise ValueError(f"dimension {i} of {self!r} was never set")
            result = result * item
        return result


class KernelLaunchParams:
    """Grid, block and shared memory of a kernel: integers or expressions."""

    __slots__ = (
        "block_x",
        "block_y",
        "block_z",
        "grid_x",
        "grid_y",
        "grid_z",
        "shared_mem",
    )

    def __init__(
        self,
        grid_x: Any = 1,
        grid_y: Any = 1,
        grid_z: Any = 1,
        block_x: Any = 1,
        block_y: Any = 1,
        block_z: Any = 1,
        shared_mem: Any = 0,
    ) -> None:
        self.grid_x, self.grid_y, self.grid_z = grid_x, grid_y, grid_z
        self.block_x, self.block_y, self.block_z = block_x, block_y, block_z
        self.shared_mem = shared_mem

    def __setattr__(self, name: str, value: Any) -> None:
        item = value if isinstance(value, SymInt32) else SymInt32(value)
        object.__setattr__(self, name, item)
