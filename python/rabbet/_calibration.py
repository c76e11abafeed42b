"""Calibration of INT8: ranges of tensors, found by running the network on samples.

The network is built once more, in floating point and with all its tensors as debug
tensors, and run on the calibrator's batches; a histogram of each tensor is kept
(_histograms.py), and a range is chosen from it. The builder uses the ranges
(src/builder/rewrite/implicit_quantization.c).
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import _enums as e
from . import _rabbet
from ._arrays import storage_type
from ._calibrators import IInt8Calibrator, IInt8LegacyCalibrator
from ._callbacks import IDebugListener, ILogger, IOutputAllocator
from ._config import IBuilderConfig, IOptimizationProfile
from ._dims import volume
from ._errors import FailedPreconditionError
from ._histograms import Histogram, dump, load
from ._layers._layer import ITensor
from ._network import INetworkDefinition
from ._runtime import Runtime

_Algorithm = e.CalibrationAlgoType
# Names in a calibration cache.
_NAMES = {
    _Algorithm.LEGACY_CALIBRATION: "LegacyCalibration",
    _Algorithm.ENTROPY_CALIBRATION: "EntropyCalibration",
    _Algorithm.ENTROPY_CALIBRATION_2: "EntropyCalibration2",
    _Algorithm.MINMAX_CALIBRATION: "MinMaxCalibration",
}
# The release of TensorRT whose format caches have.
_RELEASE = 101600
_STEPS = 127.0
_FLOATS = (e.DataType.FLOAT, e.DataType.HALF, e.DataType.BF16)


# ---- The cache


def cache_bytes(algorithm: _Algorithm, ranges: dict[str, float]) -> bytes:
    """A line for the algorithm, and one for each tensor: its name, and its scale, the
    range divided by 127, as the hexadecimal digits of a float32."""
    lines = [f"TRT-{_RELEASE}-{_NAMES[algorithm]}"]
    for name, size in ranges.items():
        lines.append(f"{name}: {struct.pack('>f', size / _STEPS).hex()}")
    return ("\n".join(lines) + "\n").encode()


def _cache_line(line: str, number: int) -> tuple[str, float]:
    name, colon, digits = line.rpartition(": ")
    try:
        (scale,) = struct.unpack(">f", bytes.fromhex(digits.strip()))
    except (ValueError, struct.error):
        colon = ""
    if not colon or not name:
        raise ValueError(
            f"calibration cache, line {number}: expected 'tensor: 8 hexadecimal digits', "
            f"found {line!r}"
        )
    # So written where nothing was seen of a tensor.
    return name, scale * _STEPS if 0 < scale < float("inf") else 0.0


def read_cache(data: bytes) -> tuple[str, dict[str, float]]:
    """(name of the algorithm, ranges); ValueError names an invalid line."""
    try:
        lines = bytes(data).decode().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"a calibration cache is text; {error}") from None
    head = lines[0].split("-", 2) if lines else []
    if len(head) != 3 or head[2] not in _NAMES.values():
        raise ValueError(
            "calibration cache, line 1: expected 'TRT-RELEASE-ALGORITHM' with one of "
            f"{', '.join(_NAMES.values())}, found {lines[0] if lines else ''!r}"
        )
    ranges = dict(
        _cache_line(line, number)
        for number, line in enumerate(lines[1:], 2)
        if line.strip()
    )
    return head[2], ranges


# ---- Tensors to look at


def _all_tensors(network: INetworkDefinition) -> list[ITensor]:
    """Inputs and computed tensors of floating types."""
    found = [network.get_input(i) for i in range(network.num_inputs)]
    for layer in network:
        if layer._op == "constant":
            continue
        for i in range(layer.num_outputs):
            tensor = layer.get_output(i)
            if tensor is not None:
                found.append(tensor)
    return [tensor for tensor in found if tensor.dtype in _FLOATS]


def _left_tensors(
    network: INetworkDefinition, plan: Any, logger: ILogger | None
) -> list[ITensor]:
    """Tensors that still exist after fusion: inputs, and outputs of the plan's steps."""
    import json

    engine = Runtime(logger).deserialize_cuda_engine(plan)
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(e.LayerInformationFormat.JSON)
    names: set[str] = set()
    for layer in json.loads(text)["Layers"]:
        for output in layer["Outputs"]:
            names.update((output["Name"], output["Name"].rpartition(" (")[0]))
    return [t for t in _all_tensors(network) if t.is_network_input or t.name in names]


@contextlib.contextmanager
def _without_int8(network: INetworkDefinition) -> Iterator[None]:
    """Layers that shall compute in INT8 do so after calibration."""
    changed: list[tuple[Any, Any]] = []
    for layer in network:
        if layer.precision_is_set and layer.precision is e.DataType.INT8:
            layer.reset_precision()
            changed.append((setattr, (layer, "precision", e.DataType.INT8)))
        for i in range(layer.num_outputs):
            if (
                layer.output_type_is_set(i)
                and layer.get_output_type(i) is e.DataType.INT8
            ):
                layer.reset_output_type(i)
                changed.append((layer.set_output_type, (i, e.DataType.INT8)))
    try:
        yield
    finally:
        for call, arguments in changed:
            call(*arguments)


@contextlib.contextmanager
def _shown(network: INetworkDefinition, tensors: list[ITensor]) -> Iterator[None]:
    marked = [tensor for tensor in tensors if not network.is_debug_tensor(tensor)]
    try:
        for tensor in marked:
            network.mark_debug(tensor)
        yield
    finally:
        for tensor in marked:
            network.unmark_debug(tensor)


# ---- Runs


def elements(
    engine: Any, address: int, dtype: e.DataType, count: int, stream: int
) -> Any:
    """Elements in memory of the engine's device; on the CPU a view of that."""
    import numpy as np

    kind = storage_type(dtype)
    size = count * kind.itemsize
    data: Any
    if engine.device == "cpu":
        data = (ctypes.c_char * size).from_address(address)
    else:
        data = _rabbet.copy_to_host(engine, address, size, stream)
    values = np.frombuffer(data, kind)
    if dtype is e.DataType.BF16 and kind == np.uint16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values


class DebugReader(IDebugListener):
    """Reads debug tensors: `taker(name)` gives the function that gets the tensor's
    elements, None if they are not wanted. Empty tensors are not read. `error`: the
    first exception, to be raised behind the run."""

    def __init__(
        self, engine: Any, taker: Callable[[str], Callable[[Any], None] | None]
    ) -> None:
        super().__init__()
        self.engine, self.taker = engine, taker
        self.error: BaseException | None = None

    def process_debug_tensor(
        self,
        addr: int,
        location: e.TensorLocation,
        type: e.DataType,
        shape: Any,
        name: str,
        stream: int,
    ) -> bool:
        try:
            take, count = self.taker(name), volume(shape)
            if take is not None and count > 0:
                values = elements(self.engine, addr, type, count, stream)
                take(values.reshape(tuple(shape)))
        except BaseException as error:  # raised again behind the run
            self.error = self.error or error
        return True


class Outputs(IOutputAllocator):
    """Memory for outputs that are not read."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self.engine = engine
        self.blocks: dict[str, Any] = {}

    def reallocate_output_async(
        self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
    ) -> int:
        block = self.blocks.get(tensor_name)
        if block is None or block[1] < size:
            int8 = int(e.DataType.INT8)
            array = _rabbet.device_array(self.engine, int8, (max(size, 1),))
            block = self.blocks[tensor_name] = array, size
        return block[0].data_ptr  # type: ignore[no-any-return]

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        pass


class _Calibration:
    """One calibration."""

    def __init__(
        self,
        network: INetworkDefinition,
        config: IBuilderConfig,
        calibrator: IInt8Calibrator,
        logger: ILogger | None,
    ) -> None:
        self.network, self.config = network, config
        self.calibrator, self.logger = calibrator, logger
        self.algorithm = _Algorithm(calibrator.get_algorithm())

    def _log(self, severity: e.Severity, text: str) -> None:
        if self.logger is not None:
            self.logger.log(severity, text)

    # ---- Building

    def _profile(self) -> IOptimizationProfile | None:
        if self.config._calibration_profile is not None:
            return self.config._calibration_profile
        profiles = self.config._profiles
        return profiles[0] if profiles else None

    def _build(self, level: int) -> Any:
        config = IBuilderConfig(self.logger)
        config.device, config.threads = self.config.device, self.config.threads
        config.builder_optimization_level = level
        profile = self._profile()
        if profile is not None:
            config.add_optimization_profile(profile)
        return _rabbet.build(self.network, config, self.config.progress_monitor)[0]

    def _tensors(self) -> list[ITensor]:
        """Entropy 2 and min-max calibrate all tensors of the network, the older
        algorithms those that remain after fusion, unless a flag overrides this."""
        flag = e.QuantizationFlag.CALIBRATE_BEFORE_FUSION
        older = (_Algorithm.LEGACY_CALIBRATION, _Algorithm.ENTROPY_CALIBRATION)
        if self.algorithm in older and not self.config.get_quantization_flag(flag):
            return _left_tensors(self.network, self._build(1), self.logger)
        return _all_tensors(self.network)

    # ---- Running

    def _shape(self, tensor: ITensor, size: int) -> tuple[int, ...]:
        """Shape of an input in a batch: its optimal one, with the batch's size if the
        profile allows that."""
        declared = tuple(tensor.shape)
        profile = self._profile()
        if all(extent >= 0 for extent in declared) or profile is None:
            return declared
        low, usual, high = (tuple(dims) for dims in profile.get_shape(tensor.name))
        if declared[0] < 0 and low[0] <= size <= high[0]:
            return (size, *usual[1:])
        return usual

    def _batch(self, names: list[str]) -> list[int] | None:
        who = type(self.calibrator).__name__
        batch = self.calibrator.get_batch(list(names))
        if batch is None:
            return None
        addresses = list(batch)
        if not addresses or addresses[0] is None:
            return None
        if len(addresses) != len(names):
            raise ValueError(
                f"{who}.get_batch gave {len(addresses)} addresses for {len(names)} "
                f"inputs: {', '.join(names)}"
            )
        return [
            self._address(name, address)
            for name, address in zip(names, addresses, strict=True)
        ]

    def _address(self, name: str, address: Any) -> int:
        # Many classes for device memory define only __int__.
        try:
            number = 0 if isinstance(address, (float, str, bytes)) else int(address)
        except (TypeError, ValueError):
            number = 0
        if not 0 < number < 1 << 64:
            raise TypeError(
                f"{type(self.calibrator).__name__}.get_batch: expected the address of "
                f"input '{name}' on device '{self.device}' as an int, got {address!r}"
            )
        return number

    def _size(self) -> int:
        size = self.calibrator.get_batch_size()
        if not isinstance(size, int) or size < 1:
            raise ValueError(
                f"{type(self.calibrator).__name__}.get_batch_size: expected an int of at "
                f"least 1, got {size!r}"
            )
        return size

    def _run(self, engine: Any, listener: DebugReader) -> int:
        context, outputs = engine.create_execution_context(), Outputs(engine)
        inputs = [self.network.get_input(i) for i in range(self.network.num_inputs)]
        names = [tensor.name for tensor in inputs]
        size, count = self._size(), 0
        for tensor in inputs:
            shape = self._shape(tensor, size)
            if any(extent < 0 for extent in tensor.shape):
                context.set_input_shape(tensor.name, shape)
        for i in range(self.network.num_outputs):
            context.set_output_allocator(self.network.get_output(i).name, outputs)
        context.set_debug_listener(listener)
        context.set_all_tensors_debug_state(True)
        while (addresses := self._batch(names)) is not None:
            for name, address in zip(names, addresses, strict=True):
                context.set_tensor_address(name, address)
            context.execute_async_v3(0)
            _rabbet.synchronize(engine, 0)
            if listener.error is not None:
                raise listener.error
            count += 1
        return count

    def _observe(self) -> dict[str, Histogram]:
        start = time.monotonic()
        with _without_int8(self.network):
            tensors = self._tensors()
            with _shown(self.network, tensors):
                plan = self._build(0)
            engine = Runtime(self.logger).deserialize_cuda_engine(plan)
            self.device = engine.device
            histograms = {tensor.name: Histogram() for tensor in tensors}

            def taker(name: str) -> Callable[[Any], None] | None:
                found = histograms.get(name)
                if found is None:  # "loop[2]/name": of an iteration of a loop
                    found = histograms.get(name.rpartition("]/")[2])
                return None if found is None else found.add

            count = self._run(engine, DebugReader(engine, taker))
        if count == 0:
            raise FailedPreconditionError(
                f"{type(self.calibrator).__name__}.get_batch gave no batch; "
                "calibration needs at least one"
            )
        self._log(
            e.Severity.INFO,
            f"calibration: {count} batches, {len(tensors)} tensors, "
            f"{time.monotonic() - start:.1f} s",
        )
        # Some tensors of a network do not exist in a plan: recurrences of loops.
        return {name: one for name, one in histograms.items() if one.is_seen}

    # ---- Choosing

    def _share(self, method: str) -> float:
        value = getattr(self.calibrator, method)()
        if not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise ValueError(
                f"{type(self.calibrator).__name__}.{method}: expected a number above 0 "
                f"and at most 1, got {value!r}"
            )
        return float(value)

    def _choose(self, histograms: dict[str, Histogram]) -> dict[str, float]:
        if self.algorithm is _Algorithm.MINMAX_CALIBRATION:
            found = {name: one.extreme() for name, one in histograms.items()}
        elif self.algorithm is _Algorithm.LEGACY_CALIBRATION:
            share = self._share("get_quantile")
            cutoff = self._share("get_regression_cutoff")
            found = {
                name: one.quantile(share, cutoff) for name, one in histograms.items()
            }
        else:
            found = {name: one.entropy() for name, one in histograms.items()}
        for name, size in found.items():
            if not histograms[name].is_finite:
                self._log(
                    e.Severity.WARNING,
                    f"calibration: tensor '{name}' holds infinities or NaN, which its "
                    "range does not count",
                )
            if size == 0:
                self._log(
                    e.Severity.WARNING,
                    f"calibration: tensor '{name}' was zero in all batches; it gets no "
                    "range",
                )
        return found

    def _cache(self, method: str) -> bytes:
        """The calibrator's cache; empty if it has none."""
        import inspect

        read = getattr(self.calibrator, method)
        # TensorRT gives read_histogram_cache a length, which has no use in Python.
        data = read(0) if inspect.signature(read).parameters else read()
        try:
            return b"" if data is None else bytes(memoryview(data))
        except TypeError:
            raise TypeError(
                f"{type(self.calibrator).__name__}.{method}: expected bytes or None, got "
                f"{data!r}"
            ) from None

    def _histograms(self) -> dict[str, Histogram]:
        legacy = self.calibrator
        if not isinstance(legacy, IInt8LegacyCalibrator):
            return self._observe()
        kept = self._cache("read_histogram_cache")
        if kept:
            return load(kept)
        found = self._observe()
        data = dump(found)
        block = (ctypes.c_char * len(data)).from_buffer_copy(data)
        legacy.write_histogram_cache(ctypes.addressof(block), len(data))
        return found

    def _kept(self) -> dict[str, float] | None:
        data = self._cache("read_calibration_cache")
        if not data:
            return None
        algorithm, ranges = read_cache(data)
        if algorithm == _NAMES[self.algorithm]:
            return ranges
        self._log(
            e.Severity.WARNING,
            f"the calibration cache is of {algorithm}, the calibrator of "
            f"{_NAMES[self.algorithm]}: calibrating anew",
        )
        return None

    def ranges(self) -> dict[str, float]:
        """Largest absolute value of each tensor, by name."""
        kept = self._kept()
        if kept is not None:
            return kept
        found = self._choose(self._histograms())
        cache = memoryview(cache_bytes(self.algorithm, found))
        self.calibrator.write_calibration_cache(cache)
        return found


@contextlib.contextmanager
def calibrated(
    network: INetworkDefinition, config: IBuilderConfig, logger: ILogger | None
) -> Iterator[None]:
    """Sets the ranges that the configuration's calibrator finds, for tensors without
    one."""
    calibrator = config.int8_calibrator
    if calibrator is None:
        yield
        return
    if not config.get_flag(e.BuilderFlag.INT8):
        if logger is not None:
            logger.log(
                e.Severity.WARNING,
                "int8_calibrator has no effect without BuilderFlag.INT8",
            )
        yield
        return
    if network.get_flag(e.NetworkDefinitionCreationFlag.STRONGLY_TYPED):
        raise FailedPreconditionError(
            "int8_calibrator: the network is strongly typed, so that its types follow "
            "from its layers: use add_quantize and add_dequantize, or create it without "
            "STRONGLY_TYPED"
        )
    network.validate()
    given = []
    try:
        for name, size in _Calibration(network, config, calibrator, logger).ranges().items():
            tensor = network._find_tensor(name)
            if tensor is None or size == 0 or tensor.dynamic_range is not None:
                continue
            tensor.dynamic_range = -size, size
            given.append(tensor)
        yield
    finally:
        for tensor in given:
            tensor.reset_dynamic_range()
