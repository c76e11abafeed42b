"""The short way: compile, load, and models to call."""

from __future__ import annotations

import collections
import keyword
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from . import _enums as e
from . import _rabbet
from ._arrays import storage_type
from ._builder import Builder
from ._callbacks import ILogger, IProfiler, IProgressMonitor, Logger
from ._config import IBuilderConfig
from ._convert import (
    convert_input,
    create_output,
    device_input,
    take_output,
    torch_dtype,
)
from ._dims import Dims
from ._engine import EngineInspector, GraphInfo, ICudaEngine, IExecutionContext
from ._engine_tensors import IoInfo
from ._errors import InvalidArgumentError, UnsupportedError
from ._flags import flag, integer
from ._network import INetworkDefinition
from ._onnx import OnnxParser
from ._plugins import library_paths, load_plugins
from ._progress import progress_monitor
from ._runtime import Runtime

ShapeRange = Any  # a shape, or (min, opt, max)

_MAX_CONTEXTS = 2**31 - 1


class _Times(IProfiler):
    def __init__(self) -> None:
        self.times: list[tuple[str, float]] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        self.times.append((layer_name, ms))


def _result_type(names: list[str]) -> Callable[[tuple[Any, ...]], Any]:
    """The type of several outputs: a tuple whose items have names."""
    if len(names) < 2:
        return tuple
    fields = [
        name if name.isidentifier() and not keyword.iskeyword(name) else f"output_{i}"
        for i, name in enumerate(names)
    ]
    kind: Any = collections.namedtuple("Outputs", fields, rename=True)  # type: ignore[misc]
    return kind._make


def _limit(contexts: int | None) -> int:
    """Of the number of contexts; 0: none."""
    given: Any = contexts
    limit = given.__index__() if hasattr(given, "__index__") else 0
    if contexts is not None and not 1 <= limit <= _MAX_CONTEXTS:
        raise InvalidArgumentError(
            f"contexts is {contexts!r}; expected 1 to {_MAX_CONTEXTS}, or None for as "
            "many as there are calls at a time"
        )
    return limit


class Model(_rabbet.Runner):
    """A plan ready to be called; by several threads at once, if they want.

    model(x), model(a, b), model(name=a): inputs by position or name, arrays of
    NumPy, torch, JAX or anything that has the buffer protocol or DLPack. A dict of
    inputs is for model.run({"x": x}), or model(**inputs). An array of the right type
    and row-major is used in place; another layout is copied; a wrong type is an
    error. The result is a fresh array of the inputs' kind, or with several outputs a
    named tuple of them; out= takes arrays to fill.

    On a GPU, arrays of torch, CuPy, JAX and others on that GPU are taken there, and
    so are outputs; runs are recorded into CUDA graphs and replayed unless graphs is
    False.
    """

    _engine: ICudaEngine
    _inputs: list[IoInfo]
    _outputs: list[IoInfo]
    _report: tuple[str, str] | None

    def __new__(
        cls,
        engine: ICudaEngine,
        threads: int | None = None,
        report: Any = None,
        graphs: bool = True,
        contexts: int | None = None,
    ) -> Self:
        import numpy as np

        if not isinstance(engine, ICudaEngine):
            raise TypeError(f"Model: expected an ICudaEngine, got {engine!r}")
        count = integer(threads or 0, "threads")
        if not 0 <= count <= 4096:
            raise InvalidArgumentError(
                f"{threads} threads; expected 1 to 4096, or 0 for the plan's number"
            )
        limit = _limit(contexts)
        infos = [info for _, info in engine._ios().values()]
        outputs = [info for info in infos if not info.is_input]
        dtypes = tuple(storage_type(info.dtype) for info in outputs)
        results = _result_type([info.name for info in outputs])
        self = super().__new__(
            cls, engine, count, flag(graphs, "graphs"), limit, np.empty, dtypes, results
        )
        self._engine = engine
        self._inputs = [info for info in infos if info.is_input]
        self._outputs = outputs
        self._report = report
        return self

    # ---- What it is ----

    @property
    def engine(self) -> ICudaEngine:
        """The engine under it."""
        return self._engine

    @property
    def inputs(self) -> tuple[IoInfo, ...]:
        """Name, type, shape, ... of each input, in the order of arguments."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[IoInfo, ...]:
        """Name, type, shape, ... of each output."""
        return tuple(self._outputs)

    def _tuning(self) -> tuple[str, str]:
        if self._report is None:
            raise UnsupportedError(
                "a loaded plan has no report of its tuning; model.inspect() tells "
                "what it holds"
            )
        return self._report

    @property
    def report(self) -> str:
        """A table of the alternatives and choices of tuning; of a compiled model."""
        return self._tuning()[0]

    @property
    def report_json(self) -> str:
        """The same as JSON."""
        return self._tuning()[1]

    @property
    def graph_info(self) -> GraphInfo:
        """Steps of the last run by CUDA graphs and without; recordings and replays of
        all runs."""
        return GraphInfo(*self._graph_info())

    def inspect(self) -> str:
        """The plan's layers with types, formats and tactics, as a table."""
        return EngineInspector(self._engine).get_engine_information()

    def inspect_json(self) -> Any:
        """The same as parsed JSON."""
        return EngineInspector(self._engine).as_dict()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan."""
        _rabbet.write_file(_path("path", path), self._engine.serialize())

    def create_execution_context(self) -> IExecutionContext:
        """A context of the object interface."""
        return self._engine.create_execution_context()

    def __repr__(self) -> str:
        def line(infos: list[IoInfo]) -> str:
            return ", ".join(
                f"{i.name}: {i.dtype.name} {tuple(i.shape)}" for i in infos
            )

        return f"<Model ({line(self._inputs)}) -> ({line(self._outputs)})>"

    # ---- Running ----

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs by name, outputs by name."""
        if not isinstance(inputs, Mapping):
            raise TypeError(f"run: expected {{name: array}}, got {inputs!r}")
        result = self(**inputs)
        values = (result,) if len(self._outputs) == 1 else result
        names = [info.name for info in self._outputs]
        return dict(zip(names, values, strict=True))

    def profile(self, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """Milliseconds of each layer in one run, in order."""
        times = _Times()
        self._profiled(times, args, kwargs)
        return times.times

    def check_finite(self, *args: Any, **kwargs: Any) -> Any:
        """A call that looks at what each step writes.

        Raises FailedPreconditionError at the first step that makes a NaN or an infinity
        of finite numbers: with its layers, what they read, and what to do. Works on any
        plan, and takes longer than a call."""
        return self._checked(args, kwargs)

    # ---- Called by the C part where an argument is not simply used ----

    def _bad_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> None:
        names = [info.name for info in self._inputs]
        listed = ", ".join(names) or "none"
        if len(args) > len(names):
            raise TypeError(
                f"{len(args)} inputs given, the model takes {len(names)}: {listed}"
            )
        for name in kwargs or {}:
            if name in names[: len(args)]:
                raise TypeError(f"input '{name}' is given twice")
            if name not in names and name != "out":
                raise TypeError(f"the model has no input '{name}'; it takes {listed}")
        missing = [n for n in names[len(args) :] if n not in (kwargs or {})]
        raise TypeError(
            f"input {', '.join(missing)} is missing; the model takes {listed}"
        )

    def _convert(self, value: Any, index: int) -> tuple[Any, ...]:
        info = self._inputs[index]
        found = device_input(value, info, self._engine, self._outputs)
        return found or convert_input(value, info, self._engine.device or "cpu")

    def _create(self, index: int, shape: tuple[int, ...]) -> tuple[Any, int]:
        return create_output(self._outputs[index], shape)

    def _torch_options(self, index: int, on_device: bool) -> dict[str, Any]:
        options: dict[str, Any] = {"dtype": torch_dtype(self._outputs[index].dtype)}
        if on_device:
            options["device"] = self._engine.device
        return options

    def _out(
        self, out: Any, index: int, shape: tuple[int, ...]
    ) -> tuple[Any, int, bool, int]:
        names = [info.name for info in self._outputs]
        if isinstance(out, Mapping):
            unknown = [name for name in out if name not in names]
            missing = [name for name in names if name not in out]
            if unknown or missing:
                raise ValueError(
                    f"out: the outputs are {', '.join(names)}; got {', '.join(out)}"
                )
            array = out[names[index]]
        elif isinstance(out, (tuple, list)):
            if len(out) != len(names):
                raise ValueError(
                    f"out: {len(out)} arrays for {len(names)} outputs "
                    f"({', '.join(names)})"
                )
            array = out[index]
        elif len(names) != 1:
            raise ValueError(f"out: a tuple or dict of {len(names)} arrays is expected")
        else:
            array = out
        return take_output(array, self._outputs[index], shape, self._engine.device or "cpu")


# ---- Compiling ----


def _parse(network: INetworkDefinition, model: Any, logger: ILogger) -> None:
    parser = OnnxParser(network, logger)
    if isinstance(model, (str, os.PathLike)):
        parser.parse_from_file(model)
    elif _is_model(model):
        parser.parse(model.SerializeToString())
    elif isinstance(model, (bytes, bytearray, memoryview)):
        parser.parse(model)
    else:
        raise TypeError(
            "compile takes the path of an ONNX file, its bytes, an onnx.ModelProto or "
            f"an INetworkDefinition, got {_shown(model)}"
        )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"a {type(value).__name__}"


def _is_model(model: Any) -> bool:
    """Whether it is an onnx.ModelProto, and not a part of one."""
    return callable(getattr(model, "SerializeToString", None)) and hasattr(model, "graph")


def _range(given: Any, name: str) -> tuple[Any, Any, Any]:
    """(min, opt, max) of what a user gave for an input."""
    nested = [isinstance(item, (Sequence, Dims)) for item in _iterable(given, name)]
    if not any(nested):
        return given, given, given
    if len(nested) != 3 or not all(nested):
        raise InvalidArgumentError(
            f"shapes: input '{name}' has {given!r}; expected a shape, or three: "
            "(min, opt, max)"
        )
    return tuple(given)  # type: ignore[return-value]


def _iterable(shape: Any, name: str) -> Any:
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise InvalidArgumentError(
            f"shapes: input '{name}' has {shape!r}; expected a shape, or three: "
            "(min, opt, max)"
        )
    return shape


def _matches(shape: Any, declared: tuple[int, ...], name: str) -> tuple[int, ...]:
    try:
        dims = tuple(operator.index(d) for d in _iterable(shape, name))
    except TypeError:
        raise InvalidArgumentError(
            f"shapes: input '{name}': dimensions are integers, got {shape!r}"
        ) from None
    if len(dims) != len(declared):
        raise InvalidArgumentError(
            f"shapes: input '{name}' has {len(declared)} dimensions "
            f"{declared}, got {dims}"
        )
    return dims


def _numbers(given: Any, name: str) -> list[int]:
    """Values of a shape input: integers, in a list or an array of any rank."""
    if hasattr(given, "ravel"):
        given = given.ravel().tolist()
    try:
        items = given if isinstance(given, Iterable) else [given]
        if isinstance(given, (str, bytes)):
            raise TypeError
        return [operator.index(item) for item in items]
    except TypeError:
        raise InvalidArgumentError(
            f"values: input '{name}' has {given!r}; expected its values, which are "
            "integers, or three such lists: (min, opt, max)"
        ) from None


def _value_range(given: Any, count: int, name: str) -> list[list[int]]:
    """min, opt and max of the values of a shape input. Three numbers for an input of one
    value are a range, too."""
    three = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 3
    nested = three and all(
        isinstance(item, (Sequence, Dims)) or hasattr(item, "ravel") for item in given
    )
    parts = given if nested or (three and count == 1) else (given,) * 3
    found = [_numbers(part, name) for part in parts]
    for part in found:
        if len(part) != count:
            raise InvalidArgumentError(
                f"values: input '{name}' is a shape input of {count} value"
                f"{'s' * (count != 1)}, for which {part} are given"
            )
    return found


def _add_values(
    profile: Any, inputs: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(
            f"values: expected {{input: values or (min, opt, max)}}, got {values!r}"
        )
    sizes = [name for name, tensor in inputs.items() if tensor.is_shape_tensor]
    for name, given in values.items():
        if name not in sizes:
            known = ", ".join(sizes) or "none"
            raise InvalidArgumentError(
                f"values: the model has no shape input '{name}' (an input that sizes are "
                f"computed from); it has {known}"
            )
        count = math.prod(inputs[name].shape)
        profile.set_shape_input(name, *_value_range(given, count, name))


def _add_profile(
    builder: Builder,
    network: INetworkDefinition,
    config: IBuilderConfig,
    shapes: Mapping[str, ShapeRange],
    values: Mapping[str, Any],
) -> None:
    if not isinstance(shapes, Mapping):
        raise TypeError(
            f"shapes: expected {{input: shape or (min, opt, max)}}, got {shapes!r}"
        )
    inputs = {
        t.name: t for t in (network.get_input(i) for i in range(network.num_inputs))
    }
    for name in shapes:
        if name not in inputs:
            raise InvalidArgumentError(
                f"shapes: the model has no input '{name}'; it has {', '.join(inputs)}"
            )
    profile = builder.create_optimization_profile()
    for name, given in shapes.items():
        declared = tuple(inputs[name].shape)
        low, opt, high = _range(given, name)
        profile.set_shape(
            name,
            _matches(low, declared, name),
            _matches(opt, declared, name),
            _matches(high, declared, name),
        )
    _add_values(profile, inputs, values)
    config.add_optimization_profile(profile)


def _values(values: Any, count: int) -> list[Any]:
    """The values of each profile."""
    if values is None or isinstance(values, Mapping):
        return [values or {}] * count
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(
            "values: expected {input: values or (min, opt, max)}, or a list of such, one "
            f"for each profile, got {values!r}"
        )
    each = list(values)
    if len(each) != count:
        raise InvalidArgumentError(
            f"values: a list of {len(each)} for {count} profile{'s' * (count != 1)}"
        )
    return each


def _ranges(shapes: Any, profiles: Any) -> list[Any]:
    """The ranges of each profile."""
    if shapes is not None and profiles is not None:
        raise InvalidArgumentError(
            "compile: give shapes (one range) or profiles (a list of such), not both"
        )
    if profiles is None:
        return [] if shapes is None else [shapes]
    if isinstance(profiles, (str, Mapping)) or not isinstance(profiles, Iterable):
        raise TypeError(
            "profiles: expected a list of {input: shape or (min, opt, max)}, got "
            f"{profiles!r}"
        )
    return list(profiles)


def _configure(
    builder: Builder,
    device: str | None,
    threads: int | None,
    level: int | None,
    fp16: bool,
    bf16: bool,
) -> IBuilderConfig:
    config = builder.create_builder_config()
    if device is not None:
        config.device = device
    if threads is not None:
        config.threads = integer(threads, "threads")
    if level is not None:
        config.builder_optimization_level = integer(level, "optimization_level")
    if fp16:
        config.set_flag(e.BuilderFlag.FP16)
    if bf16:
        config.set_flag(e.BuilderFlag.BF16)
    return config


def compile(
    model: Any,
    *,
    plugins: Any = None,
    device: str | None = None,
    save: str | os.PathLike[str] | None = None,
    shapes: Mapping[str, ShapeRange] | None = None,
    values: Any = None,
    profiles: Any = None,
    threads: int | None = None,
    fp16: bool = False,
    bf16: bool = False,
    optimization_level: int | None = None,
    timing_cache: str | os.PathLike[str] | None = None,
    progress: bool | IProgressMonitor | Callable[[str, int, int], Any] = False,
    verbose: bool = False,
    logger: ILogger | None = None,
    graphs: bool = True,
    keep_plugins: bool = False,
    contexts: int | None = None,
    try_plugins: bool = True,
) -> Model:
    """Tunes a model for this machine and returns it, ready to be called.

    model: path of an ONNX file, its bytes, an onnx.ModelProto, or a network.
    plugins: files (.py, .so) or modules that register operators; one or a list.
    device: "cpu", "cuda" or "cuda:1"; default: RABBET_DEVICE, else a GPU if there
        is one, else the CPU.
    save: where to write the plan, for rabbet.load.
    shapes: {input: shape} or {input: (min, opt, max)} for dynamic inputs; tuning is
        for opt, memory is laid out for the sizes of each call.
    values: {input: values} or {input: (min, opt, max)}, of inputs that sizes are
        computed from; without it they may have any, and memory is taken as runs need
        it. A list of such for a list of profiles.
    profiles: a list of shapes, for several ranges; each call takes the first that
        allows its inputs, and stays with it while it does.
    threads: CPU threads of a call; default: RABBET_THREADS, else all.
    fp16, bf16: FP32 tensors may be computed in these types, where that is faster.
    optimization_level: 0 (nothing is timed) to 5 (everything is tried); default 3.
    timing_cache: a file that spares the next build its timing; made if it is not
        there.
    progress: True for a bar, or a function (phase, step, steps) that may return
        False to stop.
    verbose: everything that the build tells, on stderr.
    logger: an ILogger of your own in its place.
    graphs: on CUDA, runs are recorded into graphs and replayed.
    keep_plugins: the plan carries the plugins: libraries (.so) that `plugins` names,
        and the source of the modules that define Python plugins. load() runs them
        where it is told to (allow_host_code).
    contexts: at most so many execution contexts for calls of several threads;
        further callers wait for one. Each has memory of its own. Default: no limit.
    try_plugins: each operator of yours is run once, so that mistakes in its body and
        compilers such as Numba's are part of the build. False: for operators that
        refuse arbitrary numbers.
    """
    given = {"fp16": fp16, "bf16": bf16, "verbose": verbose, "graphs": graphs,
             "keep_plugins": keep_plugins, "try_plugins": try_plugins}  # fmt: skip
    for name, value in given.items():
        flag(value, f"compile: {name}")
    ranges = _ranges(shapes, profiles)
    if values is not None and not ranges:
        ranges = [{}]
    value_ranges = _values(values, len(ranges))
    _limit(contexts)
    for what, file in (("save", save), ("timing_cache", timing_cache)):
        _check_writable(what, file)
    load_plugins(plugins)
    log = logger or Logger(e.Severity.VERBOSE if verbose else e.Severity.WARNING)
    builder = Builder(log)
    network = model
    if not isinstance(model, INetworkDefinition):
        network = builder.create_network()
        _parse(network, model, log)
    config = _configure(builder, device, threads, optimization_level, fp16, bf16)
    config.progress_monitor = progress_monitor(progress)
    config.try_plugins = try_plugins
    if keep_plugins:
        config.plugins_to_serialize = library_paths(plugins)
        config.keep_plugin_source = True
    for each in zip(ranges, value_ranges, strict=True):
        _add_profile(builder, network, config, *each)
    cache_path = None if timing_cache is None else Path(_path("timing_cache", timing_cache))
    if cache_path is not None:
        cache = config.create_timing_cache()
        if cache_path.exists():
            cache._load(cache_path)
        config.set_timing_cache(cache)
    plan = builder.build_serialized_network(network, config)
    if save is not None:
        _rabbet.write_file(save, plan)
    if cache_path is not None:
        cache._save(cache_path)
    runtime = Runtime(log)
    runtime.device = device
    runtime.engine_host_code_allowed = True  # it comes from here
    engine = runtime.deserialize_cuda_engine(plan)
    return Model(engine, threads, builder._report, graphs, contexts)


def _check_writable(what: str, file: Any) -> None:
    """Before tuning, which may take minutes, and not after it."""
    if file is None:
        return
    path = Path(_path(what, file))
    if path.is_dir():
        raise IsADirectoryError(f"{what}: '{path}' is a folder; a file is expected")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{what}: there is no folder '{path.parent}'")


def _path(what: str, file: Any) -> str:
    try:
        return os.fsdecode(file)
    except TypeError:
        raise TypeError(f"{what}: expected the path of a file, got {file!r}") from None


def load(
    path: str | os.PathLike[str],
    *,
    plugins: Any = None,
    device: str | None = None,
    threads: int | None = None,
    logger: ILogger | None = None,
    graphs: bool = True,
    allow_host_code: bool = False,
    contexts: int | None = None,
    untrusted: bool = False,
) -> Model:
    """Loads a plan that was saved and returns it, ready to be called.

    path: the file that compile(save=) or `rabbet build` wrote.
    plugins: files (.py, .so) or modules that register the plan's operators; they
        must be named again, unless the plan carries them.
    device: the device that the plan was built for; default as for compile.
    threads: CPU threads of a call; default: what the plan was built with.
    logger: an ILogger of your own; default: warnings on stderr.
    graphs: on CUDA, runs are recorded into graphs and replayed.
    allow_host_code: libraries and source of plugins that the plan carries may run
        here: for plans from people whom you trust.
    contexts: at most so many execution contexts for calls of several threads;
        further callers wait for one. Default: no limit.
    untrusted: the plan comes from somebody whom you do not trust: no native code of
        it is used, and its kernels are compiled anew.
    """
    given = {"graphs": graphs, "allow_host_code": allow_host_code, "untrusted": untrusted}
    for name, value in given.items():
        flag(value, f"load: {name}")
    file = _path("path", path)
    _limit(contexts)
    load_plugins(plugins)
    runtime = Runtime(logger)
    runtime.device = device
    runtime.engine_host_code_allowed = allow_host_code
    runtime.untrusted = untrusted
    engine = runtime.load_cuda_engine(file)
    return Model(engine, threads, None, graphs, contexts)
