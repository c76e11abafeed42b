"""The base of all layers: tensors, and properties that are operators' attributes."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from .. import _enums as e
from .. import _rabbet
from .._checked import Check, DType, Shape, checks_arguments
from .._dims import Dims, Permutation, dims_of
from .._errors import AlreadyExistsError, Error, UnsupportedError
from .._flags import enumerator, flag, integer, real, shown, text
from .._managed import Fixed
from .._numbers import Attr

T = TypeVar("T")

# By operator; the modules that define them put them in.
LAYER_CLASSES: dict[str, type[ILayer]] = {}


def _warn(layer: Any, message: str) -> None:
    logger = layer._network()._logger
    if logger is not None:
        logger.log(e.Severity.WARNING, message)


def _is_strongly_typed(layer: Any) -> bool:
    flag = e.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    return layer._network().get_flag(flag)  # type: ignore[no-any-return]


def _warn_of_type(layer: Any, what: str, dtype: e.DataType) -> None:
    """Warns of a type set in a strongly typed network and continues, as TensorRT
    does."""
    _warn(
        layer,
        f"layer '{layer.name}': its {what} is not set to {dtype.name}, as the network is "
        "strongly typed: types follow from the layer's inputs; add a cast for another",
    )


@checks_arguments
class ITensor(_rabbet.NetworkTensor):
    """A tensor of a network. Two objects for one tensor are equal."""

    # Setting an unknown attribute is an error in every class here: a misspelt option
    # would be ignored.
    __slots__ = ()
    broadcast_across_batch = Fixed(False, "The batch is a dimension like others.")

    @property
    def dtype(self) -> e.DataType:
        """Data type. In a strongly typed network only an input's can be set."""
        return super().dtype  # type: ignore[no-any-return]

    @dtype.setter
    def dtype(self, dtype: DType) -> None:
        producer = self._producer()
        if producer is not None and _is_strongly_typed(producer):
            if not self._has_dtype(dtype):
                _warn_of_type(producer, "output type", dtype)
            return
        # There is no super() for setters.
        vars(_rabbet.NetworkTensor)["dtype"].__set__(self, dtype)

    def _has_dtype(self, dtype: e.DataType) -> bool:
        try:
            return self.dtype is dtype
        except Error:  # its layer is not complete yet
            return False

    @property
    def shape(self) -> Dims:
        """Dimensions; -1 where they are dynamic."""
        return Dims(self._dims)

    @shape.setter
    def shape(self, shape: Shape) -> None:
        self._dims = tuple(shape)

    @property
    def location(self) -> e.TensorLocation:
        """Location of the memory that a run reads or writes."""
        return (
            e.TensorLocation.HOST if self.is_shape_tensor else e.TensorLocation.DEVICE
        )

    @location.setter
    def location(self, location: e.TensorLocation) -> None:
        if location is not self.location:
            raise UnsupportedError(
                f"tensor '{self.name}' lies on the {self.location.name}: it follows from "
                "its readers"
            )

    @property
    def dynamic_range(self) -> tuple[float, float] | None:
        """(min, max) of the values, for BuilderFlag.INT8: layers may read the tensor as
        INT8 with scale max(abs(min), abs(max)) / 127. None: not set."""
        return self._range()  # type: ignore[no-any-return]

    @dynamic_range.setter
    def dynamic_range(self, range: tuple[float, float] | None) -> None:
        if range is None:
            self._reset_range()
            return
        try:
            low, high = range
        except (TypeError, ValueError):
            raise TypeError(
                f"dynamic_range of tensor '{self.name}': expected (min, max), got "
                f"{range!r}"
            ) from None
        self._set_range(low, high)

    def set_dynamic_range(self, min: float, max: float) -> bool:
        """Sets dynamic_range."""
        self._set_range(min, max)
        return True

    def reset_dynamic_range(self) -> None:
        """Removes the dynamic range."""
        self._reset_range()

    @property
    def is_execution_tensor(self) -> bool:
        """Whether it holds data, not only values for shapes."""
        return not self.is_shape_tensor

    @property
    def producer(self) -> ILayer | None:
        """The layer that computes it; None for inputs and weights."""
        layer = self._producer()
        return None if layer is None else as_found(layer)

    def set_dimension_name(self, index: int, name: str | None) -> None:
        """Names a dynamic dimension; dimensions with the same name have equal
        extents."""
        self._set_dim_name(index, name)

    def get_dimension_name(self, index: int) -> str | None:
        """Name of a dimension, or None."""
        return self._dim_name(index)

    def __repr__(self) -> str:
        return f"<ITensor '{self.name}'>"


@checks_arguments
class ILayer(_rabbet.NetworkLayer):
    """A layer of a network. Two objects for one layer are equal."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        checks_arguments(cls)

    _type: ClassVar[e.LayerType | None] = None
    num_ranks = Fixed(1, "Collective layers alone have ranks.")

    @property
    def name(self) -> str:
        """Name. A number is appended to a name in use, with a warning."""
        return super().name  # type: ignore[no-any-return]

    @name.setter
    def name(self, name: str) -> None:
        if self._take_name(name):
            return
        # Binary search, as thousands of layers may request the same name.
        taken, free = 0, 1
        while not self._take_name(f"{name}_{free}"):
            taken, free = free, 2 * free
        while free - taken > 1:
            number = (taken + free) // 2
            if self._take_name(f"{name}_{number}"):
                free = number
            else:
                taken = number
        _warn(
            self,
            f"the network has a layer '{name}' already: this one is called "
            f"'{name}_{free}'",
        )

    def _take_name(self, name: str) -> bool:
        """Sets the name; False if another layer has it."""
        try:
            vars(_rabbet.NetworkLayer)["name"].__set__(self, name)
        except AlreadyExistsError:
            return False
        return True

    def get_input(self, index: int) -> ITensor | None:
        """An input; None for an omitted optional one."""
        return self._get_input(index)  # type: ignore[no-any-return]

    def get_output(self, index: int) -> ITensor:
        """An output; None beyond the last."""
        return self._get_output(index)  # type: ignore[no-any-return]

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Sets an input; None removes an optional one."""
        self._set_input(index, tensor)

    @property
    def type(self) -> e.LayerType:
        """Kind of layer."""
        kind = self._type or LAYER_CLASSES.get(self._op, ILayer)._type
        if kind is None:
            raise AttributeError(f"operator '{self._op}' has no LayerType")
        return kind

    @property
    def precision(self) -> e.DataType:
        """Type of the computation (weakly typed networks)."""
        dtype = self._precision()
        return e.DataType.FLOAT if dtype is None else dtype

    @precision.setter
    def precision(self, dtype: DType) -> None:
        if _is_strongly_typed(self):
            _warn_of_type(self, "precision", dtype)
        else:
            self._set_precision(dtype)

    @property
    def precision_is_set(self) -> bool:
        """Whether precision was set."""
        return self._precision() is not None

    def reset_precision(self) -> None:
        """Removes the precision that was set."""
        self._set_precision(None)

    def _output(self, index: int) -> ITensor:
        tensor = self.get_output(index)
        if tensor is None:
            raise IndexError(
                f"layer '{self.name}' has {self.num_outputs} outputs; there is no output {index}"
            )
        return tensor

    def get_output_type(self, index: int) -> e.DataType:
        """Type of an output."""
        return self._output(index).dtype

    def set_output_type(self, index: int, dtype: DType) -> None:
        """Requests the type of an output (weakly typed networks)."""
        self._output(index).dtype = dtype

    def output_type_is_set(self, index: int) -> bool:
        """Whether set_output_type was called for an output."""
        return self._output(index)._wished() is not None

    def reset_output_type(self, index: int) -> None:
        """Removes the type that set_output_type set."""
        self._output(index)._reset_dtype()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self.name}'>"


def as_found(layer: ILayer) -> ILayer:
    """The object that get_layer returns for a layer: an attention's boundary layers
    have a class of their own."""
    parts = layer._network()._composites.get(hash(layer), {})
    return layer._as(parts["found_as"]) if "found_as" in parts else layer


class _Attribute(Generic[T]):
    """A property that is an attribute of the layer's operator."""

    def __init__(
        self, name: str, read: Callable[[Any], T], check: Check, doc: str
    ) -> None:
        self.name, self.read, self.check = name, read, check
        self.__doc__ = doc

    @overload
    def __get__(self, layer: None, owner: Any) -> _Attribute[T]: ...
    @overload
    def __get__(self, layer: ILayer, owner: Any) -> T: ...
    def __get__(self, layer: ILayer | None, owner: Any) -> T | _Attribute[T]:
        if layer is None:
            return self
        return self.read(layer._attr(self.name))

    def __set__(self, layer: ILayer, value: Any) -> None:
        name = f"{type(layer).__name__}.{self.name} of layer '{layer.name}'"
        layer._set_attrs({self.name: self.check(value, name)})


def _ints(values: Any, name: str) -> tuple[int, list[int]]:
    return Attr.INTS, list(dims_of(values, name))


def _reals(values: Any, name: str) -> tuple[int, list[float]]:
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise TypeError(f"{name}: expected numbers, got {shown(values)}")
    return Attr.FLOATS, [real(value, name) for value in values]


def _number(name: str, doc: str) -> _Attribute[int]:
    return _Attribute(name, int, integer, doc)


def _float(name: str, doc: str) -> _Attribute[float]:
    return _Attribute(name, float, real, doc)


def _flag(name: str, doc: str) -> _Attribute[bool]:
    return _Attribute(name, bool, flag, doc)


def _text(name: str, doc: str) -> _Attribute[str]:
    return _Attribute(name, str, text, doc)


def _dims(name: str, doc: str) -> _Attribute[Dims]:
    return _Attribute(name, Dims, _ints, doc)


def _floats(name: str, doc: str) -> _Attribute[list[float]]:
    return _Attribute(name, list, _reals, doc)


def _order(name: str, doc: str) -> _Attribute[Permutation]:
    return _Attribute(name, Permutation, _ints, doc)


E_ = TypeVar("E_", bound=enum.Enum)


def _choice(name: str, kind: type[E_], doc: str) -> _Attribute[E_]:
    def check(value: Any, where: str) -> int:
        return int(cast(Any, enumerator(kind, value, where)))

    return _Attribute(name, kind, check, doc)


class _Spatial(_Attribute[Dims]):
    """A value for each spatial axis; an empty list means `default` on each."""

    def __init__(self, name: str, default: int, doc: str) -> None:
        super().__init__(name, Dims, _ints, doc)
        self.default = default

    def __get__(self, layer: Any, owner: Any) -> Any:
        if layer is None:
            return self
        values = layer._attr(self.name)
        return Dims(
            values or [self.default] * max(len(layer.get_input(0).shape) - 2, 0)
        )
