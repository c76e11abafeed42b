"""Classes to derive from: the callbacks of builds and runs."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from . import _enums as e
from . import _rabbet
from ._allocators import address_of
from ._dims import Dims
from ._enums import DataType, ErrorCodeTRT, TensorLocation
from ._managed import Managed
from ._versioned import InterfaceInfo, IVersionedInterface


class ILogger(Managed):
    """Receives messages: derive, and define log(severity, msg)."""

    Severity = e.Severity
    INTERNAL_ERROR: ClassVar[e.Severity] = e.Severity.INTERNAL_ERROR
    ERROR: ClassVar[e.Severity] = e.Severity.ERROR
    WARNING: ClassVar[e.Severity] = e.Severity.WARNING
    INFO: ClassVar[e.Severity] = e.Severity.INFO
    VERBOSE: ClassVar[e.Severity] = e.Severity.VERBOSE

    def __init__(self) -> None:
        pass

    def log(self, severity: e.Severity, msg: str) -> None:
        """Called on any thread; free-threaded Python may call it on several threads at
        once."""
        raise NotImplementedError(
            f"{type(self).__name__} must define log(severity, msg)"
        )

    def _rabbet_log(self, severity: int, msg: str) -> None:
        self.log(e.Severity(severity), msg)


class Logger(ILogger):
    """Writes messages up to a severity to stderr."""

    min_severity = e.Severity.WARNING

    def __init__(self, min_severity: e.Severity = e.Severity.WARNING) -> None:
        super().__init__()
        self.min_severity = e.Severity(min_severity)

    def log(self, severity: e.Severity, msg: str) -> None:
        """Prints one line."""
        if severity <= self.min_severity:
            print(f"[rabbet] [{severity.name}] {msg}", file=sys.stderr)


class IProfiler:
    """Receives the time of each layer: derive, and define report_layer_time."""

    def __init__(self) -> None:
        pass

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Called for each layer after a run, in order of execution."""
        raise NotImplementedError(
            f"{type(self).__name__} must define report_layer_time(layer_name, ms)"
        )


class Profiler(IProfiler):
    """Prints the time of each layer."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Prints one line."""
        print(f"{_rabbet.shown(layer_name)}: {ms:.4f} ms")


class IProgressMonitor:
    """Reports the progress of a build: derive, and define the three methods."""

    def __init__(self) -> None:
        pass

    def phase_start(
        self, phase_name: str, parent_phase: str | None, num_steps: int
    ) -> None:
        """A phase of num_steps steps begins; phases nest."""

    def step_complete(self, phase_name: str, step: int) -> bool:
        """A step is complete; return False to stop the build."""
        return True

    def phase_finish(self, phase_name: str) -> None:
        """A phase has ended."""


class IErrorRecorder:
    """Collects errors. The base class works as it is; derive to define the methods."""

    MAX_DESC_LENGTH = 127

    def __init__(self) -> None:
        self._errors: list[tuple[ErrorCodeTRT, str]] = []

    def num_errors(self) -> int:
        """Number of errors since the last clear."""
        return len(self._errors)

    def get_num_errors(self) -> int:
        """Alias of num_errors."""
        return self.num_errors()

    def get_error_code(self, index: int) -> ErrorCodeTRT:
        """Code of an error."""
        return self._errors[index][0]

    def get_error_desc(self, index: int) -> str:
        """Message of an error."""
        return self._errors[index][1]

    def has_overflowed(self) -> bool:
        """Whether errors were dropped."""
        return False

    def clear(self) -> None:
        """Removes all errors."""
        self._errors.clear()

    def report_error(self, val: ErrorCodeTRT, desc: str) -> bool:
        """Called with each error, on any thread."""
        self._errors.append((val, desc))
        return True


class IOutputAllocator:
    """Supplies memory for outputs: derive, and define

    reallocate_output(tensor_name, memory, size, alignment) -> address, or
    reallocate_output_async(tensor_name, memory, size, alignment, stream), and
    notify_shape(tensor_name, shape). Both are called in every run.
    """

    def __init__(self) -> None:
        pass

    def _rabbet_reallocate(
        self, name: str, memory: int, size: int, alignment: int, stream: int
    ) -> int:
        asynchronous = getattr(self, "reallocate_output_async", None)
        if asynchronous is not None:
            answer = asynchronous(name, memory, size, alignment, stream)
            return self._rabbet_address(answer, name)
        method = getattr(self, "reallocate_output", None)
        if method is None:
            raise NotImplementedError(
                f"{type(self).__name__} must define reallocate_output("
                "tensor_name, memory, size, alignment)"
            )
        return self._rabbet_address(method(name, memory, size, alignment), name)

    def _rabbet_address(self, answer: Any, name: str) -> int:
        return address_of(self, answer, f"output '{name}'", "0")

    def _rabbet_notify(self, name: str, shape: tuple[int, ...]) -> None:
        method = getattr(self, "notify_shape", None)
        if method is None:
            raise NotImplementedError(
                f"{type(self).__name__} must define notify_shape(tensor_name, shape)"
            )
        method(name, Dims(shape))


class IStreamReader:
    """Reads a plan in parts: derive, and define read(size) -> bytes."""

    def __init__(self) -> None:
        pass

    # TensorRT documents the C++ arguments; users' functions take only a size.
    def read(self, destination: Any = None, size: int = 0) -> bytes:
        """Returns at most `size` bytes; b"" at the end."""
        raise NotImplementedError(f"{type(self).__name__} must define read(size)")

    def _rabbet_read(self, size: int) -> Any:
        return self.read(size)


class IStreamReaderV2(IVersionedInterface):
    """Reads a plan in parts: derive, and define read(num_bytes, stream) -> bytes and
    seek(offset, where)."""

    _rabbet_info: ClassVar[InterfaceInfo] = InterfaceInfo("IStreamReaderV2", 1, 0)

    def __init__(self) -> None:
        pass

    def read(self, destination: Any = None, num_bytes: int = 0, stream: int = 0) -> bytes:
        """Returns at most `num_bytes` bytes; b"" at the end."""
        raise NotImplementedError(
            f"{type(self).__name__} must define read(num_bytes, stream)"
        )

    def seek(self, offset: int, where: e.SeekPosition) -> bool:
        """Moves the position in the stream. The engine reads a plan from start to
        end."""
        raise NotImplementedError(f"{type(self).__name__} must define seek(offset, where)")

    def _rabbet_read(self, size: int) -> Any:
        return self.read(size, 0)


class IStreamWriter(IVersionedInterface):
    """Writes a plan in parts: derive, and define write(data) -> size."""

    _rabbet_info: ClassVar[InterfaceInfo] = InterfaceInfo("IStreamWriter", 1, 0)

    def __init__(self) -> None:
        pass

    def write(self, data: bytes, size: int = 0) -> int:
        """Writes the bytes and returns their number."""
        raise NotImplementedError(f"{type(self).__name__} must define write(data)")


class IDebugListener:
    """Receives debug tensors: derive, and define process_debug_tensor."""

    def __init__(self) -> None:
        pass

    def process_debug_tensor(
        self,
        addr: int,
        location: TensorLocation,
        type: DataType,
        shape: Any,
        name: str,
        stream: int,
    ) -> bool:
        """Called with each debug tensor of a run; the memory at `addr` is valid during
        the call, in the stream's order."""
        raise NotImplementedError(
            f"{self.__class__.__name__} must define process_debug_tensor"
        )

    def _rabbet_process(
        self,
        addr: int,
        on_host: int,
        dtype: DataType,
        shape: tuple[int, ...],
        name: str,
        stream: int,
    ) -> None:
        location = TensorLocation.HOST if on_host else TensorLocation.DEVICE
        self.process_debug_tensor(addr, location, dtype, Dims(shape), name, stream)
