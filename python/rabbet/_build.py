"""Builds a model from a network with the options of compile()."""

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
from ._pickling import plugin_names
from ._plugins import library_paths, load_plugins
from ._profiles import (
    Ranges,
    ShapeRange,
    add_profile,
    fixed_shapes,
    ranges_of,
    usual_shapes,
)
from ._progress import progress_monitor
from ._runtime import Runtime

# Plans of that many bytes are files without names rather than blocks of the heap.
_FILE_FROM = 1 << 24


def _network_of(
    builder: Builder, model: Any, logger: ILogger, double: bool, ranges: Ranges
) -> INetworkDefinition:
    if isinstance(model, INetworkDefinition):
        return model
    network = builder.create_network()
    parser = OnnxParser(network, logger)
    parser.double = double
    parser.input_shapes = fixed_shapes(ranges)
    parser.usual_shapes = usual_shapes(ranges)
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
    tf32: bool,
    workspace: int | None,
    tactic_memory: int | None,
) -> IBuilderConfig:
    config = builder.create_builder_config()
    if device is not None:
        config.device = device
    if threads is not None:
        config.threads = threads
    if level is not None:
        config.builder_optimization_level = level
    if workspace is not None:
        config.set_memory_pool_limit(e.MemoryPoolType.WORKSPACE, workspace)
    if tactic_memory is not None:
        config.set_memory_pool_limit(e.MemoryPoolType.TACTIC_DRAM, tactic_memory)
    if fp16:
        config.set_flag(e.BuilderFlag.FP16)
    if bf16:
        config.set_flag(e.BuilderFlag.BF16)
    if not tf32:
        config.clear_flag(e.BuilderFlag.TF32)
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


def check_writable(what: str, file: Any) -> None:
    """Checks the file before tuning, which may take minutes, rather than after it."""
    if file is None:
        return
    path = Path(file)
    if path.is_dir():
        raise IsADirectoryError(f"{what}: '{path}' is a folder; a file is expected")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{what}: there is no folder '{path.parent}'")


def _is_worth_lending(plan: Any, save: Any, mapped: bool) -> bool:
    """Whether the plan is a file, whose pages are given back where others' memory has their
    contents."""
    size = os.path.getsize(save) if save is not None and mapped else memoryview(plan).nbytes
    return size >= _FILE_FROM


@checks_arguments
def build_model(
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
    double: bool = False,
    tf32: bool = True,
    workspace: int | None = None,
    tactic_memory: int | None = None,
    optimization_level: int | None = None,
    timing_cache: File | None = None,
    progress: bool | IProgressMonitor | Callable[[str, int, int], Any] = False,
    verbose: bool = False,
    logger: ILogger | None = None,
    graphs: bool = True,
    keep_plugins: bool = False,
    contexts: int | None = None,
    try_plugins: bool = True,
    iteration_limit: int = 0,
) -> Model:
    """compile() of a network, or of what the importer reads."""
    ranges = ranges_of(shapes, values, profiles)
    context_limit(contexts)
    for what, file in (("save", save), ("timing_cache", timing_cache)):
        check_writable(what, file)
    load_plugins(plugins)
    log = logger or Logger(e.Severity.VERBOSE if verbose else e.Severity.WARNING)
    builder = Builder(log)
    network = _network_of(builder, model, log, double, ranges)
    level = optimization_level
    config = _configure(
        builder, device, threads, level, fp16, bf16, tf32, workspace, tactic_memory
    )
    config.progress_monitor = progress_monitor(progress)
    config.try_plugins = try_plugins
    if keep_plugins:
        config.plugins_to_serialize = library_paths(plugins)
        config.keep_plugin_source = True
    for each in ranges:
        add_profile(builder, network, config, *each)
    # A plan in a file is never whole in memory. A pipe or device cannot be read again.
    mapped = save is not None and (os.path.isfile(save) or not os.path.exists(save))
    with _timings_in(config, timing_cache):
        plan = builder._plan(network, config, save if mapped else None)
        if save is not None and not mapped:
            _rabbet.write_file(save, plan)
    report = builder._report
    lent: tuple[Any, ...] = ()
    if device is not None and device.startswith("cpu"):
        lent = network._shared_weights if _is_worth_lending(plan, save, mapped) else ()
    # The network's weights go before the engine packs those of the plan.
    del network, config, builder
    runtime = Runtime(log)
    runtime.device = device
    runtime.engine_host_code_allowed = True  # it comes from here
    runtime.iteration_limit = iteration_limit
    runtime._lent = lent
    engine = (
        runtime.load_cuda_engine(save)
        if save is not None and mapped
        else runtime.deserialize_cuda_engine(plan)
    )
    engine._plugins = plugin_names(plugins)
    return Model(engine, threads, report, graphs, contexts)
