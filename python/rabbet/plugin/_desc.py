"""Descriptors: tensors as a plugin's register and autotune functions see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from .. import _rabbet
from .._arrays import dtype_of
from .._enums import DataType, TensorFormat
from .._errors import InvalidArgumentError
from .._rabbet import Shape
from ._expr import ShapeExpr, ShapeExprs, SizeTensorShapeExpr, SymIntExpr


class TensorDesc:
    """Type and shape of a tensor, and during tuning its format and range.

    Inputs cannot be changed: `like()` gives a copy that can, `aliased()` an
    output in the input's place.
    """

    def __init__(
        self,
        shape_expr: Any = None,
        dtype: Any = None,
        format: TensorFormat | None = None,
        scale: float | None = None,
    ) -> None:
        self._locked = False
        self._aliased: TensorDesc | None = None
        self._shape: Shape | None = None
        self._shape_expr: ShapeExprs | None = None
        self._dtype = None if dtype is None else dtype_of(dtype)
        self._format = format
        self._scale = scale
        if shape_expr is not None:
            self.shape_expr = shape_expr

    @classmethod
    def _input(cls, exprs: ShapeExprs, dtype: DataType) -> TensorDesc:
        self = TensorDesc(exprs, dtype)
        self._locked = True
        return self

    @classmethod
    def _tuned(cls, shape: Shape, dtype: DataType, format: TensorFormat) -> TensorDesc:
        exprs = ShapeExprs.from_tuple(
            ShapeExpr(d) if d >= 0 else ShapeExpr() for d in shape
        )
        self = TensorDesc(exprs, dtype, format, 1.0)
        self._shape = shape
        self._locked = True
        return self

    def _refuse(self, name: str) -> NoReturn:
        raise ValueError(
            f"'{name}' of this TensorDesc cannot be set: it is an input, or one that "
            "aliased() gave; use input.like() for an output that you can change"
        )

    @property
    def shape_expr(self) -> Any:
        """Dimensions as expressions (ShapeExprs)."""
        return self._shape_expr

    @shape_expr.setter
    def shape_expr(self, value: Any) -> None:
        if self._locked:
            self._refuse("shape_expr")
        if isinstance(value, ShapeExprs):
            self._shape_expr = value
        elif isinstance(value, (int, SymIntExpr)):
            self._shape_expr = ShapeExprs.from_tuple([value])
        else:
            self._shape_expr = ShapeExprs.from_tuple(value)

    @property
    def dtype(self) -> Any:
        """DataType."""
        return self._dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        if self._locked:
            self._refuse("dtype")
        self._dtype = dtype_of(value)

    def _tuning_only(self, name: str) -> NoReturn:
        raise ValueError(
            f"'{name}' is known only in autotune and impl; register describes shapes "
            "by shape_expr"
        )

    @property
    def shape(self) -> Shape:
        """Shape with its range; in autotune only."""
        if self._shape is None:
            self._tuning_only("shape")
        return self._shape

    @property
    def format(self) -> Any:
        """TensorFormat; in autotune only."""
        if self._format is None:
            self._tuning_only("format")
        return self._format

    @property
    def scale(self) -> float:
        """Quantization scale; in autotune only."""
        if self._scale is None:
            self._tuning_only("scale")
        return self._scale

    @property
    def has_shape(self) -> bool:
        """Whether shape, format and scale are known."""
        return self._shape is not None

    @property
    def has_shape_expr(self) -> bool:
        """Whether shape_expr is set."""
        return self._shape_expr is not None

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension is unknown; in autotune only."""
        return self.shape.is_dynamic

    @property
    def is_size_tensor(self) -> bool:
        """Whether it is a size tensor, which holds the extent of other outputs."""
        return False

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        if self._shape_expr is None:
            raise ValueError("this TensorDesc has no shape_expr yet")
        return len(self._shape_expr)

    def numel(self) -> int:
        """Number of elements; in autotune only (else shape_expr.numel())."""
        return self.shape.numel()

    def like(self) -> TensorDesc:
        """A mutable copy: same type, same dimensions."""
        copy = TensorDesc(ShapeExprs.from_tuple(self._shape_expr or ()), self._dtype)
        copy._format, copy._scale, copy._shape = self._format, self._scale, self._shape
        return copy

    def aliased(self) -> TensorDesc:
        """An output in this input's memory."""
        copy = self.like()
        copy._aliased = self
        copy._locked = True
        return copy

    def get_aliased(self) -> TensorDesc | None:
        """The input whose memory it shares, or None."""
        return self._aliased

    @property
    def is_aliased(self) -> bool:
        """Whether it shares an input's memory."""
        return self._aliased is not None

    def __repr__(self) -> str:
        return f"TensorDesc({self._shape_expr!r}, {self._dtype})"


class ShapeInput(TensorDesc):
    """An input whose values are dimensions: integers that the host reads.

    len(), indexing and iteration give the values as ShapeExpr; impl gets them as
    a Tensor in host memory.
    """

    _values: tuple[ShapeExpr, ...] | None = None

    @property
    def values(self) -> tuple[ShapeExpr, ...]:
        """The values, row-major."""
        if self._values is None:
            raise InvalidArgumentError(
                "the values of this shape input are not known when shapes are "
                "described; it must be a constant, a shape input of the network, or "
                "calculated from shapes"
            )
        return self._values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[ShapeExpr]:
        return iter(self.values)

    def __getitem__(self, index: int) -> ShapeExpr:
        return self.values[index]


class SizeTensorDesc(TensorDesc):
    """An output of rank 0 that holds, in each run, the extent of other outputs."""

    def __init__(self, opt: Any, upper_bound: Any) -> None:
        super().__init__(ShapeExprs(0), DataType.INT32)
        self._opt = opt if isinstance(opt, SymIntExpr) else ShapeExpr(opt)
        self._upper = (
            upper_bound
            if isinstance(upper_bound, SymIntExpr)
            else ShapeExpr(upper_bound)
        )
        self._index: int | None = None

    @property
    def opt(self) -> Any:
        """Extent for which a build tunes."""
        return self._opt

    @property
    def upper_bound(self) -> Any:
        """Extent for which memory is reserved."""
        return self._upper

    @property
    def index(self) -> int | None:
        """Position among the outputs; None until they are known."""
        return self._index

    @property
    def is_size_tensor(self) -> bool:
        """Always True."""
        return True

    def expr(self) -> SizeTensorShapeExpr:
        """The extent, as a dimension of another output."""
        return SizeTensorShapeExpr(self)

    def _to_dim(self, builder: _rabbet.DimBuilder) -> int:
        if self._index is None:
            raise InvalidArgumentError(
                "a size tensor is used in a shape but is not among the outputs: "
                "return it as one of them"
            )
        opt, upper = self._opt._to_dim(builder), self._upper._to_dim(builder)
        return builder.size_tensor(self._index, opt, upper)


def size_tensor(opt: Any, upper_bound: Any) -> SizeTensorDesc:
    """An output that tells an extent: about `opt`, at most `upper_bound`."""
    return SizeTensorDesc(opt, upper_bound)


def from_shape_expr(shape_expr: Any, dtype: Any) -> TensorDesc:
    """An output of these dimensions (expressions, integers) and type."""
    return TensorDesc(shape_expr, dtype)
