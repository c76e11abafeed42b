"""The short interface: compile and load."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import _enums as e
from . import _rabbet
from ._builder import Builder
from ._callbacks import ILogger, IProgressMonitor, Logger
from ._checked import File, checks_arguments
from ._config import IBuilderConfig
from ._model import Model, context_limit
from ._network import INetworkDefinition
from ._onnx import OnnxParser
from ._plugins import library_paths, load_plugins
from ._profiles import ShapeRange, add_profile, ranges_of
from ._progress import progress_monitor
from ._runtime import Runtime


def _network_of(builder: Builder, model: Any, logger: ILogger) -> INetworkDefinition:
    if isinstance(model, INetworkDefinition):
        return model
    network = builder.create_network()
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
    return network


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"a {type(value).__name__}"


def _is_model(model: Any) -> bool:
    """Whether it is an onnx.ModelProto; its parts, such as a GraphProto, are not."""
    return callable(getattr(model, "SerializeToString", None)) and hasattr(model, "graph")


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
        config.threads = threads
    if level is not None:
        config.builder_optimization_level = level
    if fp16:
        config.set_flag(e.BuilderFlag.FP16)
    if bf16:
        config.set_flag(e.BuilderFlag.BF16)
    return config


@contextlib.contextmanager
def _timings_in(config: IBuilderConfig, file: Any) -> Iterator[None]:
    """Builds take what they have of a file of timings, and add theirs to it."""
    if file is None:
        yield
        return
    path = Path(file)
    cache = config.create_timing_cache()
    if path.exists():
        cache._load(path)
    config.set_timing_cache(cache)
    yield
    cache._save(path)


@checks_arguments
def compile(
    model: Any,
    *,
    plugins: Any = None,
    device: str | None = None,
    save: File | None = None,
    shapes: Mapping[str, ShapeRange] | None = None,
    values: Any = None,
    profiles: Any = None,
    threads: int | None = None,
    fp16: bool = False,
    bf16: bool = False,
    optimization_level: int | None = None,
    timing_cache: File | None = None,
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
    shapes: {input: shape} or {input: (min, opt, max)} for dynamic inputs. Tuning uses
        opt; memory is planned for the shapes of each call.
    values: {input: values} or {input: (min, opt, max)} for inputs that sizes are
        computed from. By default they may have any values, and memory grows as runs
        need it. For several profiles, a list.
    profiles: a list of `shapes`, for several ranges. A call uses the present profile if
        it allows the inputs, else the first that does.
    threads: CPU threads of a call; default: RABBET_THREADS, else all.
    fp16, bf16: FP32 tensors may be computed in these types, where that is faster.
    optimization_level: 0 (nothing is timed) to 5 (everything is tried); default 3.
    timing_cache: a file that keeps measured times for later builds; made if missing.
    progress: True for a bar, or a function (phase, step, steps) that may return
        False to stop.
    verbose: prints all messages of the build to stderr.
    logger: an ILogger that receives the messages instead.
    graphs: on CUDA, runs are recorded into graphs and replayed.
    keep_plugins: the plan carries the plugins: libraries (.so) that `plugins` names,
        and the source of the modules that define Python plugins. load() runs them
        where it is told to (allow_host_code).
    contexts: at most so many execution contexts for calls of several threads;
        further callers wait for one. Each has memory of its own. Default: no limit.
    try_plugins: runs each of your operators once during the build, which finds errors
        in it and includes its just-in-time compilation (Numba). False for operators
        that reject arbitrary values.
    """
    ranges = ranges_of(shapes, values, profiles)
    context_limit(contexts)
    for what, file in (("save", save), ("timing_cache", timing_cache)):
        _check_writable(what, file)
    load_plugins(plugins)
    log = logger or Logger(e.Severity.VERBOSE if verbose else e.Severity.WARNING)
    builder = Builder(log)
    network = _network_of(builder, model, log)
    config = _configure(builder, device, threads, optimization_level, fp16, bf16)
    config.progress_monitor = progress_monitor(progress)
    config.try_plugins = try_plugins
    if keep_plugins:
        config.plugins_to_serialize = library_paths(plugins)
        config.keep_plugin_source = True
    for each in ranges:
        add_profile(builder, network, config, *each)
    with _timings_in(config, timing_cache):
        plan = builder.build_serialized_network(network, config)
        if save is not None:
            _rabbet.write_file(save, plan)
    runtime = Runtime(log)
    runtime.device = device
    runtime.engine_host_code_allowed = True  # it comes from here
    engine = runtime.deserialize_cuda_engine(plan)
    return Model(engine, threads, builder._report, graphs, contexts)


def _check_writable(what: str, file: Any) -> None:
    """Checks the file before tuning, which may take minutes, rather than after it."""
    if file is None:
        return
    path = Path(file)
    if path.is_dir():
        raise IsADirectoryError(f"{what}: '{path}' is a folder; a file is expected")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{what}: there is no folder '{path.parent}'")


@checks_arguments
def load(
    path: File,
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
    threads: CPU threads of a call; default: the number that the plan was built with.
    logger: an ILogger of your own; default: warnings on stderr.
    graphs: on CUDA, runs are recorded into graphs and replayed.
    allow_host_code: allows libraries and source of plugins that the plan carries to
        run; only for plans from sources that you trust.
    contexts: at most so many execution contexts for calls of several threads;
        further callers wait for one. Default: no limit.
    untrusted: for plans from sources that you do not trust: their native code is not
        used, and kernels are compiled again.
    """
    context_limit(contexts)
    load_plugins(plugins)
    runtime = Runtime(logger)
    runtime.device = device
    runtime.engine_host_code_allowed = allow_host_code
    runtime.untrusted = untrusted
    engine = runtime.load_cuda_engine(path)
    return Model(engine, threads, None, graphs, contexts)
