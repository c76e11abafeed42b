"""Refitter and OnnxParserRefitter: new weights for a loaded plan."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _enums as e
from . import _rabbet
from ._callbacks import IErrorRecorder, ILogger, Logger
from ._checked import Constants, File, checks_arguments
from ._engine import ICudaEngine
from ._errors import FailedPreconditionError, NotFoundError
from ._managed import Fixed
from ._network import INetworkDefinition
from ._onnx import OnnxParser, ParserError
from ._recorder import recorded
from ._weights import Weights


class _Info(NamedTuple):
    name: str
    layer: str
    role: int
    dtype: e.DataType
    dims: tuple[int, ...]
    is_missing: bool


@checks_arguments
class Refitter(_rabbet.Refitter):
    """Replaces weights of an engine whose plan was built with BuilderFlag.REFIT, and
    supplies those of a plan that was stripped.

    Nothing of the engine may run during refit_cuda_engine; contexts may live.
    """

    error_recorder: IErrorRecorder | None = None
    weights_validation = Fixed(True, "Types and sizes are always checked.")
    max_threads = Fixed(1, "Refitting is done on the calling thread.")
    _logger: ILogger

    def __new__(cls, engine: ICudaEngine, logger: ILogger | None = None) -> Refitter:
        self = super().__new__(cls, engine)
        self._engine = engine
        self._logger = logger or Logger()
        self._given = {}
        return self

    _engine: ICudaEngine
    _given: dict[int, Weights]  # weights must live until they are in the engine

    def __init__(self, engine: ICudaEngine, logger: ILogger | None = None) -> None:
        pass

    def __del__(self) -> None:
        """Does nothing: Python frees objects without references."""

    @property
    def logger(self) -> ILogger:
        """The logger that gets messages."""
        return self._logger

    def _infos(self) -> list[_Info]:
        return [_Info(*self._info(i)) for i in range(self._count())]

    def _put(self, index: int, new: Weights) -> bool:
        self._set(index, int(new.dtype), new._address, new.size)
        self._given[index] = new
        return True

    # ---- By layer and role

    @recorded
    def set_weights(self, layer_name: str, role: e.WeightsRole, weights: Constants) -> bool:
        """Sets a layer's weights from an array or Weights."""
        return self._put(self._find(layer_name, int(role)), weights)

    def _roles(self, missing: bool) -> tuple[list[str], list[e.WeightsRole]]:
        found = [i for i in self._infos() if i.is_missing or not missing]
        return [i.layer for i in found], [e.WeightsRole(i.role) for i in found]

    def get_all(self) -> tuple[list[str], list[e.WeightsRole]]:
        """(layers, roles) of all weights that can be set."""
        return self._roles(False)

    def get_missing(self) -> tuple[list[str], list[e.WeightsRole]]:
        """(layers, roles) of the weights that must be set before refit_cuda_engine."""
        return self._roles(True)

    # ---- By name

    @recorded
    def set_named_weights(
        self,
        name: str,
        weights: Constants,
        location: e.TensorLocation = e.TensorLocation.HOST,
    ) -> bool:
        """Sets weights by name from an array or Weights. With location DEVICE, their
        address is in the memory of the engine's device; they are copied after the work
        of the default stream."""
        try:
            index = self._find(name)
        except NotFoundError as error:
            error.add_note(
                "an importer may compute weights from a model's initializers (transposed, "
                "reshaped, cast): OnnxParserRefitter sets those from the model"
            )
            raise
        if location is e.TensorLocation.DEVICE:
            weights = self._from_device(name, weights)
        return self._put(index, weights)

    def _from_device(self, name: str, given: Weights) -> Weights:
        if given._array is not None:
            raise ValueError(
                f"weights '{name}': an array lies in the host's memory; give "
                "Weights(type, address, count) for an address of the device"
            )
        data = _rabbet.copy_to_host(self._engine, given._address, given.nbytes, 0)
        return Weights._of_bytes(given.dtype, bytes(data))

    def get_named_weights(self, weights_name: str) -> Weights:
        """Weights that were set and not yet committed to the engine; else empty
        Weights."""
        return self._given.get(self._find(weights_name), Weights())

    def get_weights_location(self, weights_name: str) -> e.TensorLocation:
        """Always HOST: weights set from device memory were copied."""
        self._find(weights_name)
        return e.TensorLocation.HOST

    def get_weights_prototype(self, weights_name: str) -> Weights:
        """Type and number of elements of weights, without an address."""
        info = _Info(*self._info(self._find(weights_name)))
        return Weights._prototype(info.dtype, info.dims)

    @recorded
    def unset_named_weights(self, weights_name: str) -> bool:
        """Undoes set_named_weights."""
        index = self._find(weights_name)
        self._unset(index)
        self._given.pop(index, None)
        return True

    def get_all_weights(self) -> list[str]:
        """Names of all weights that can be set."""
        return [i.name for i in self._infos()]

    def get_missing_weights(self) -> list[str]:
        """Names of the weights that must be set before refit_cuda_engine."""
        return [i.name for i in self._infos() if i.is_missing]

    # ---- Committing

    @recorded
    def refit_cuda_engine(self) -> bool:
        """Puts the weights that were set into the engine."""
        self._commit()
        self._given.clear()
        return True

    def refit_cuda_engine_async(self, stream_handle: int) -> bool:
        """The same as refit_cuda_engine; complete on return."""
        return self.refit_cuda_engine()

    # ---- Ranges of INT8 tensors

    @recorded
    def get_dynamic_range(self, tensor_name: str) -> tuple[float, float]:
        """(min, max) of the values that an INT8 tensor represents, symmetric."""
        _, size = self._ranges()[self._find_range(tensor_name)]
        return -size, size

    @recorded
    def set_dynamic_range(self, tensor_name: str, range: tuple[float, float]) -> bool:
        """Replaces the range of a tensor that the engine reads as INT8."""
        index = self._find_range(tensor_name)
        try:
            low, high = range
        except (TypeError, ValueError):
            raise TypeError(
                f"set_dynamic_range('{tensor_name}'): expected (min, max), got {range!r}"
            ) from None
        self._set_range(index, low, high)
        return True

    def get_tensors_with_dynamic_range(self) -> list[str]:
        """Names of the tensors that the engine reads as INT8, from BuilderFlag.INT8."""
        return [name for name, _ in self._ranges()]


@checks_arguments
class OnnxParserRefitter:
    """Sets a refitter's weights from an ONNX model that differs only in its weights."""

    def __init__(self, refitter: Refitter, logger: ILogger | None = None) -> None:
        self._refitter = refitter
        self._logger = logger or Logger()
        self._parser: OnnxParser | None = None

    def _new_parser(self) -> OnnxParser:
        network = INetworkDefinition(0, self._logger)
        self._parser = OnnxParser(network, self._logger)
        return self._parser

    def _refit(self) -> bool:
        """Sets the weights from the parsed network, where they have the same names as
        in the build."""
        assert self._parser is not None
        network = self._parser._network
        for info in self._refitter._infos():
            tensor = network._find_weights(info.name)
            found = None if tensor is None else tensor._weights()
            if found is None:
                raise FailedPreconditionError(
                    f"the model has no weights '{info.name}', which the plan needs: refit "
                    "with the model of which it was built, or set them by name"
                )
            weights = Weights._of_bytes(*found)
            self._refitter.set_named_weights(info.name, weights)
        return True

    def refit_from_bytes(
        self, model: Any, path: File | None = None
    ) -> bool:
        """Sets all weights from a model in memory; path locates external data. Then
        call refit_cuda_engine."""
        self._new_parser().parse(model, path)
        return self._refit()

    def refit_from_file(self, model: File) -> bool:
        """Sets all weights from a file. Then call refit_cuda_engine."""
        self._new_parser().parse_from_file(model)
        return self._refit()

    # ---- In steps

    def load_model_proto(
        self, model: Any, path: File | None = None
    ) -> bool:
        """Keeps a model's bytes for refit_model_proto."""
        return self._new_parser().load_model_proto(model, path)

    def _loaded(self) -> OnnxParser:
        if self._parser is None:
            raise FailedPreconditionError("there is no model: call load_model_proto")
        return self._parser

    def load_initializer(self, name: str, data: Any, size: int) -> bool:
        """Sets weights in place of an initializer's own, from a buffer or an address of
        `size` bytes."""
        return self._loaded().load_initializer(name, data, size)

    def refit_model_proto(self) -> bool:
        """Sets all weights from the model that load_model_proto kept."""
        self._loaded().parse_model_proto()
        return self._refit()

    # ---- Errors

    @property
    def num_errors(self) -> int:
        """Errors of the last model."""
        return 0 if self._parser is None else self._parser.num_errors

    def get_error(self, index: int) -> ParserError:
        """An error of the last model."""
        if self._parser is None:
            raise IndexError(f"error {index}: there are 0")
        return self._parser.get_error(index)

    def clear_errors(self) -> None:
        """Removes the errors."""
        if self._parser is not None:
            self._parser.clear_errors()
