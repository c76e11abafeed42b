"""Descriptions of an engine's inputs and outputs."""

from __future__ import annotations

from typing import NamedTuple

from . import _enums as e
from . import _rabbet
from ._checked import checks_arguments
from ._dims import Dims
from ._errors import NotFoundError


class IoInfo(NamedTuple):
    """An input or output of an engine."""

    name: str
    is_input: bool
    is_shape_input: bool
    dtype: e.DataType
    format: e.TensorFormat
    shape: tuple[int, ...]
    dim_names: tuple[str | None, ...]
    aliased_input: int


# Channels in a vector.
_COMPONENTS = {
    e.TensorFormat.CHW2: 2,
    e.TensorFormat.HWC8: 8,
    e.TensorFormat.CHW4: 4,
    e.TensorFormat.CHW16: 16,
    e.TensorFormat.CHW32: 32,
    e.TensorFormat.DHWC8: 8,
    e.TensorFormat.CDHW32: 32,
    e.TensorFormat.HWC16: 16,
}


@checks_arguments
class EngineTensors(_rabbet.Engine):
    """Methods of ICudaEngine that describe its inputs and outputs."""

    _table: dict[str, tuple[int, IoInfo]] | None = None

    def _ios(self) -> dict[str, tuple[int, IoInfo]]:
        if self._table is None:
            infos = [IoInfo(*self._io(i)) for i in range(self._io_count())]
            self._table = {info.name: (i, info) for i, info in enumerate(infos)}
        return self._table

    def _find(self, name: str) -> tuple[int, IoInfo]:
        try:
            return self._ios()[name]
        except KeyError:
            raise NotFoundError(
                f"the engine has no input or output '{name}'; it has "
                + ", ".join(f"'{n}'" for n in self._ios())
            ) from None

    @property
    def num_io_tensors(self) -> int:
        """Number of inputs and outputs."""
        return self._io_count()

    def get_tensor_name(self, index: int) -> str:
        """Name of an input or output; inputs come first."""
        return self._io(index)[0]

    __getitem__ = get_tensor_name

    def get_tensor_mode(self, name: str) -> e.TensorIOMode:
        """INPUT or OUTPUT; NONE for an unknown name."""
        found = self._ios().get(name)
        if found is None:
            return e.TensorIOMode.NONE
        return e.TensorIOMode.INPUT if found[1].is_input else e.TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> Dims:
        """Shape; -1 where it is dynamic."""
        return Dims._of([*self._find(name)[1].shape])

    def get_tensor_dtype(self, name: str) -> e.DataType:
        """Type of the elements."""
        return self._find(name)[1].dtype

    def get_tensor_format(self, name: str, profile_index: int = 0) -> e.TensorFormat:
        """Memory format of an input or output."""
        return self._find(name)[1].format

    def get_tensor_format_desc(self, name: str, profile_index: int = 0) -> str:
        """Description of the format and type."""
        info = self._find(name)[1]
        return f"{info.format.name} format, {info.dtype.name}"

    def get_tensor_location(self, name: str) -> e.TensorLocation:
        """HOST for inputs whose values the host reads."""
        host = self._find(name)[1].is_shape_input
        return e.TensorLocation.HOST if host else e.TensorLocation.DEVICE

    def is_shape_inference_io(self, name: str) -> bool:
        """Whether the host reads its values."""
        return self._find(name)[1].is_shape_input

    def get_tensor_bytes_per_component(self, name: str, profile_index: int = 0) -> int:
        """Bytes of one element."""
        return int(self._find(name)[1].dtype.itemsize)

    def get_tensor_components_per_element(
        self, name: str, profile_index: int = 0
    ) -> int:
        """Channels in a vector of a vectorized format; -1 in others."""
        return _COMPONENTS.get(self._find(name)[1].format, -1)

    def get_tensor_vectorized_dim(self, name: str, profile_index: int = 0) -> int:
        """The channel axis of a vectorized format; -1 in others."""
        return 1 if self._find(name)[1].format in _COMPONENTS else -1

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        """[min, opt, max] of an input's shape."""
        return [
            Dims(d) for d in self._profile_shape(profile_index, self._find(name)[0])
        ]

    def get_tensor_profile_values(
        self, name: str, profile_index: int
    ) -> list[list[int]]:
        """[min, opt, max] of the values of a shape input."""
        values = self._profile_values(profile_index, self._find(name)[0])
        return [list(v) for v in values]

    def get_aliased_input_tensor(self, name: str) -> str | None:
        """The input whose memory an output shares."""
        index = self._find(name)[1].aliased_input
        return None if index < 0 else self._io(index)[0]
