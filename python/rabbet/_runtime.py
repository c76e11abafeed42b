"""Runtime: loads plans."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

from . import _enums as e
from . import _rabbet
from ._allocators import IGpuAllocator
from ._callbacks import (
    IErrorRecorder,
    ILogger,
    IStreamReader,
    IStreamReaderV2,
    Logger,
)
from ._checked import File, bits_of, checks_arguments
from ._classes._registry import IPluginRegistry, get_plugin_registry
from ._engine import ICudaEngine
from ._errors import FailedPreconditionError
from ._flags import flag, integer
from ._managed import Fixed, Managed, refused
from ._pickling import Origin
from ._recorder import recorded

_Files = Annotated[int, bits_of(e.TempfileControlFlag)]


@checks_arguments
class Runtime(Managed):
    """Loads plans."""

    error_recorder: IErrorRecorder | None = None
    DLA_core = Fixed(-1, "There is none.")
    num_DLA_cores = Fixed(0, "There are none.")  # noqa: N815

    # Whether code that plans carry for their plugins may run: native libraries
    # (IBuilderConfig.plugins_to_serialize), source of Python modules.
    engine_host_code_allowed = False
    # Whether plans come from an untrusted source: their native code is not used, and
    # kernels are compiled again.
    untrusted = False
    # The most iterations of a loop in a run of its engines' contexts; 0: no limit.
    iteration_limit = 0
    _lent: tuple[Any, ...] = ()  # memory that the plan's constants may be in already
    max_threads = Fixed(1, "Plans are loaded on the calling thread.")
    device: str | None = None
    _engine_class: type[ICudaEngine] = ICudaEngine
    _gpu_allocator: IGpuAllocator | None = None

    def __init__(self, logger: ILogger | None = None) -> None:
        self._logger = logger or Logger()

    def _put_gpu_allocator(self, allocator: IGpuAllocator | None) -> None:
        self._gpu_allocator = allocator

    gpu_allocator = property(
        None, _put_gpu_allocator, doc="Asked for the device memory of its engines."
    )

    @property
    def temporary_directory(self) -> str:
        """Folder of temporary files; "": $TMPDIR, or else /tmp. It receives a plugin
        library that a plan carries, deleted once it is open, if in-memory files are
        unavailable or not allowed."""
        return self._temporary_directory

    @temporary_directory.setter
    def temporary_directory(self, path: File) -> None:
        folder = os.fspath(path)
        if folder and not os.path.isdir(folder):
            raise NotADirectoryError(f"temporary_directory: '{folder}' is not a folder")
        self._temporary_directory = folder

    _temporary_directory = ""

    @property
    def tempfile_control_flags(self) -> int:
        """Bits 1 << TempfileControlFlag: kinds of files allowed for a carried
        library."""
        return self._tempfile_control_flags

    @tempfile_control_flags.setter
    def tempfile_control_flags(self, flags: _Files) -> None:
        self._tempfile_control_flags = flags

    _tempfile_control_flags = sum(1 << int(bit) for bit in e.TempfileControlFlag)

    @refused("a plan runs on the runtime of this package alone")
    def load_runtime(self, path: str) -> Runtime:  # type: ignore[empty-body]
        """The runtime of another release."""

    def get_plugin_registry(self) -> IPluginRegistry:
        """The registry of plugin creators."""
        return get_plugin_registry()

    @property
    def logger(self) -> ILogger:
        """The logger that receives messages."""
        return self._logger

    @recorded
    def deserialize_cuda_engine(
        self,
        serialized_engine: Any = None,
        *,
        stream_reader: IStreamReader | None = None,
        stream_reader_v2: IStreamReaderV2 | None = None,
    ) -> ICudaEngine:
        """Loads an engine from a plan's bytes, or from a stream reader."""
        data = serialized_engine
        for other in (stream_reader, stream_reader_v2):
            data = other if data is None else data
        if isinstance(data, (IStreamReader, IStreamReaderV2)):
            data = _read_all(data._rabbet_read)
        elif callable(getattr(data, "read", None)):
            data = _read_all(data.read)
        return self._finish(
            _rabbet.deserialize_engine(self._engine_class, data, self._how())
        )

    def _finish(self, engine: ICudaEngine) -> ICudaEngine:
        engine.error_recorder = self.error_recorder
        engine._allocator = self._gpu_allocator
        engine._origin = Origin(
            self.device,
            bool(self.engine_host_code_allowed),
            bool(self.untrusted),
            int(self.iteration_limit),
        )
        engine._logger = self._logger
        engine._lent = self._lent
        return engine

    @recorded
    def load_cuda_engine(self, path: File) -> ICudaEngine:
        """Loads an engine from a file, which is mapped, not copied."""
        os.stat(path)  # FileNotFoundError, as from open()
        file = os.fspath(path)
        engine = _rabbet.load_engine(self._engine_class, file, self._how())
        engine._path = os.path.abspath(file)
        return self._finish(engine)

    def _how(self) -> tuple[Any, ...]:
        return (
            self.device,
            self._logger,
            flag(self.engine_host_code_allowed, "engine_host_code_allowed"),
            self._gpu_allocator,
            self._temporary_directory or None,
            self._tempfile_control_flags,
            flag(self.untrusted, "untrusted"),
            integer(self.iteration_limit, "iteration_limit"),
            self._lent,
        )


def _read_all(read: Callable[[int], Any]) -> bytes:
    parts = []
    while part := read(1 << 24):
        parts.append(bytes(part))
    if not parts:
        raise FailedPreconditionError("the reader gave no bytes")
    return b"".join(parts)
