"""Memory between guard bands, and an operator's writes to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _enums as e
from .. import _rabbet
from .._engine import ICudaEngine
from .._errors import Error

# Bytes on each side of an input or output. A multiple of every alignment.
GUARD = 4096
_GUARD_BYTE = 0xCB

# Contents of outputs before the first and the second run of a check. An element that
# is unchanged after both was not written. Floating-point types: NaN.
_FILLS = {
    e.DataType.FLOAT: (b"\xa5\xa5\xc1\x7f", b"\x5a\x5a\xe1\xff"),
    e.DataType.HALF: (b"\xa5\x7e", b"\x5a\xff"),
    e.DataType.BF16: (b"\xe5\x7f", b"\xda\xff"),
    e.DataType.DOUBLE: (b"\xa5" * 6 + b"\xf8\x7f", b"\x5a" * 6 + b"\xf8\xff"),
}
_OTHER_FILLS = (b"\xa5", b"\x5a")


class CheckError(Error, AssertionError):
    """An operator wrote memory that it must not write, or left outputs unwritten."""


class Input(NamedTuple):
    """An input of the plugin that is an input of the engine, with its contents."""

    position: int  # among the plugin's inputs
    name: str  # in the plugin's signature
    tensor: str  # in the engine
    dtype: e.DataType
    shape: tuple[int, ...]
    data: bytes

    @property
    def where(self) -> str:
        """For messages."""
        named = "" if self.name == f"input {self.position}" else f" ('{self.name}')"
        return f"input {self.position}{named}"


class Output(NamedTuple):
    """An output of the plugin."""

    tensor: str
    dtype: e.DataType
    shape: tuple[int, ...]
    in_place: bool  # it is an alias of an input


def _bytes(data: Any) -> Any:
    import numpy as np

    return np.frombuffer(data, np.uint8)


class Memory:
    """Memory of the device between two guard bands."""

    def __init__(self, engine: ICudaEngine, data: bytes) -> None:
        self.size = len(data)
        band = bytes([_GUARD_BYTE]) * GUARD
        self._before = band + data + band
        self._engine = engine
        uint8 = int(e.DataType.UINT8)
        self._array = _rabbet.device_array(engine, uint8, (len(self._before),))
        self.address = self._array.data_ptr + GUARD
        _rabbet.copy_to_device(engine, self._array.data_ptr, self._before, 0)

    def fetch(self) -> None:
        """Reads its contents after the run."""
        self._after = _rabbet.copy_to_host(
            self._engine, self._array.data_ptr, len(self._before), 0
        )

    @property
    def data(self) -> bytes:
        """The bytes between the bands after the run."""
        return bytes(self._after[GUARD : GUARD + self.size])

    @property
    def changed(self) -> Any:
        """Which bytes between the bands the run changed."""
        return self._changed()[GUARD : GUARD + self.size]

    def _changed(self) -> Any:
        return _bytes(self._before) != _bytes(self._after)

    def overwritten(self) -> list[str]:
        """Sentences about bytes of the bands that were overwritten."""
        changed = self._changed()
        low = changed[:GUARD].nonzero()[0]
        high = changed[GUARD + self.size :].nonzero()[0]
        found = []
        if low.size:
            found.append(
                f"{low.size} bytes before it are overwritten, from {GUARD - low[0]} "
                "bytes before its beginning on"
            )
        if high.size:
            found.append(
                f"{high.size} bytes behind it are overwritten, from {high[0]} bytes "
                "past its end on"
            )
        return found


def _fill(dtype: e.DataType, size: int, which: int) -> bytes:
    pattern = _FILLS.get(dtype, _OTHER_FILLS)[which]
    return (pattern * (size // len(pattern) + 1))[:size]


def _some(elements: Any, shape: tuple[int, ...]) -> str:
    """'3 of 12 elements, the first at [0, 2]' of a mask of elements."""
    import numpy as np

    numbers = np.flatnonzero(elements)
    first = [int(i) for i in np.unravel_index(int(numbers[0]), shape)]
    at = f", the first at {first}" if shape else ""
    return f"{numbers.size} of {elements.size} elements{at}"


class Run:
    """A run of an engine between guard bands."""

    def __init__(
        self,
        engine: ICudaEngine,
        inputs: Sequence[Input],
        outputs: Sequence[Output],
        which: int,
    ) -> None:
        context = engine.create_execution_context()
        self.input_infos, self.output_infos = inputs, outputs
        self.inputs = [Memory(engine, info.data) for info in inputs]
        for info, memory in zip(inputs, self.inputs, strict=True):
            context.set_tensor_address(info.tensor, memory.address)
        self.outputs = []
        for output in outputs:
            size = context.get_max_output_size(output.tensor)
            memory = Memory(engine, _fill(output.dtype, size, which))
            context.set_tensor_address(output.tensor, memory.address)
            self.outputs.append(memory)
        context.execute_async_v3(0)
        _rabbet.synchronize(engine, 0)
        for memory in (*self.inputs, *self.outputs):
            memory.fetch()


def _of_inputs(run: Run) -> list[str]:
    import numpy as np

    found = []
    for info, memory in zip(run.input_infos, run.inputs, strict=True):
        found += [f"{info.where}: {sentence}" for sentence in memory.overwritten()]
        if memory.changed.any():
            elements = memory.changed.reshape(int(np.prod(info.shape)), -1).any(axis=1)
            found.append(
                f"{info.where}: {_some(elements, info.shape)}, are written; an output "
                "that shares an input's memory is declared by x.aliased() in the "
                "register function"
            )
    return found


def _of_outputs(first: Run, second: Run) -> list[str]:
    import numpy as np

    found = []
    for i, info in enumerate(first.output_infos):
        memory = first.outputs[i]
        found += [f"output {i}: {sentence}" for sentence in memory.overwritten()]
        if info.in_place or memory.size == 0:
            continue  # the fill was replaced by the input's contents
        written = memory.changed | second.outputs[i].changed
        elements = written.reshape(int(np.prod(info.shape)), -1).any(axis=1)
        if not elements.all():
            found.append(f"output {i}: {_some(~elements, info.shape)}, are not written")
    return found


def findings(runs: Sequence[Run]) -> list[str]:
    """Sentences about forbidden effects of two runs on the same inputs."""
    first, second = runs
    return _of_inputs(first) + _of_outputs(first, second)
