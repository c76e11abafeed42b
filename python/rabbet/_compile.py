"""The short interface: compile and load."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ._build import build_model
from ._callbacks import ILogger, IProgressMonitor
from ._checked import File, checks_arguments
from ._errors import InvalidArgumentError
from ._model import Model, context_limit
from ._pickling import plugin_names
from ._plan_builds import build_missing
from ._plan_folder import Folder, FolderLogger
from ._plugins import load_plugins
from ._profiles import ShapeRange
from ._runtime import Runtime

# Added to a plan's path: the file that says how a module of torch was called.
_OF_TORCH = ".torch"


def _is_of_torch(model: Any) -> bool:
    """Whether it is a module or an exported program; does not import torch."""
    names = (("torch.nn", "Module"), ("torch.export", "ExportedProgram"))
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return any(kind is not None and isinstance(model, kind) for kind in kinds)


@checks_arguments
def compile(
    model: Any,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
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
) -> Any:
    """Tunes a model for this machine and returns it, ready to be called.

    model: path of an ONNX file, its bytes, an onnx.ModelProto, a network, or a module or
        exported program of torch; of these a rabbet.torch.TorchModel is made, which takes
        and gives torch's tensors as the module does.
    args, kwargs, dynamic_shapes: for a module, as torch.export.export takes them: example
        inputs, and which of their dimensions vary in which range (torch.export.Dim).
    plugins: files (.py, .so) or modules that register operators; one or a list.
    device: "cpu", "cuda" or "cuda:1"; default: RABBET_DEVICE, else a GPU if there
        is one, else the CPU.
    save: where to write the plan, for rabbet.load.
    shapes: {input: shape} or {input: (min, opt, max)} for dynamic inputs. Tuning uses
        opt; memory is planned for the shapes of each call.
    values: {input: values} or {input: (min, opt, max)} for inputs that sizes are
        computed from. By default they may have any values, and memory grows as runs
        need it. For several profiles, a list.
    profiles: a list of `shapes`, for several ranges. Each has kernels chosen at its own
        opt. A call uses the narrowest profile that allows the inputs.
    threads: CPU threads of a call; default: RABBET_THREADS, else all.
    fp16, bf16: FP32 tensors may be computed in these types, where that is faster.
    double: DOUBLE is computed as such, on the CPU; else it is rounded to FLOAT.
    tf32: a GPU's products of FP32 may round their factors to TF32.
    workspace: bytes of scratch memory that kernels may use; default: no limit.
    tactic_memory: bytes of the device's memory that timings may hold at a time, beside
        weights that it reads in place; a kernel that needs more is not timed. Default:
        no limit.
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
    iteration_limit: the most iterations of a loop whose number a call tells, of which one
        more is an error; default: no limit.
    """
    options = {
        "plugins": plugins,
        "device": device,
        "save": save,
        "shapes": shapes,
        "values": values,
        "profiles": profiles,
        "threads": threads,
        "fp16": fp16,
        "bf16": bf16,
        "double": double,
        "tf32": tf32,
        "workspace": workspace,
        "tactic_memory": tactic_memory,
        "optimization_level": optimization_level,
        "timing_cache": timing_cache,
        "progress": progress,
        "verbose": verbose,
        "logger": logger,
        "graphs": graphs,
        "keep_plugins": keep_plugins,
        "contexts": contexts,
        "try_plugins": try_plugins,
        "iteration_limit": iteration_limit,
    }
    if _is_of_torch(model):
        from .torch._module import compile_module

        return compile_module(model, args, kwargs, dynamic_shapes, options)
    for name, given in (
        ("args", args), ("kwargs", kwargs), ("dynamic_shapes", dynamic_shapes)
    ):  # fmt: skip
        if given is not None:
            raise InvalidArgumentError(
                f"compile: {name} is for modules of torch; the model is {type(model)!r}"
            )
    return build_model(model, **options)


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
    iteration_limit: int = 0,
    build: bool = False,
) -> Any:
    """Loads a plan that was saved and returns it, ready to be called.

    If it was built from a module of torch and the file PATH.torch lies beside it, a
    rabbet.torch.TorchModel is returned.

    path: the file that compile(save=) or `rabbet build` wrote; or a folder of plans, of
        which the one is taken that fits this machine best (`model.choice` says which, and
        why).
    plugins: files (.py, .so) or modules that register the plan's operators; they
        must be named again, unless the plan carries them.
    device: the device that the plan was built for; default as for compile.
    threads: CPU threads of a call; default: the number that the plan was built with.
    logger: an ILogger of your own; default: warnings on stderr, those of a folder's plans
        once a process.
    graphs: on CUDA, runs are recorded into graphs and replayed.
    allow_host_code: allows libraries and source of plugins that the plan carries to
        run; only for plans from sources that you trust.
    contexts: at most so many execution contexts for calls of several threads;
        further callers wait for one. Default: no limit.
    untrusted: for plans from sources that you do not trust: their native code is not
        used, and kernels are compiled again.
    iteration_limit: the most iterations of a loop whose number a call tells, of which one
        more is an error; default: no limit.
    build: builds the plan for this kind of machine if the folder has none, and keeps it
        there. Of several processes one builds, and the others wait for its plan. It builds
        what the folder's build.json says: only for folders that you trust.
    """
    context_limit(contexts)
    load_plugins(plugins)
    file = os.fspath(path)
    is_folder = os.path.isdir(file)
    runtime = Runtime(logger or (FolderLogger(os.path.abspath(file)) if is_folder else None))
    runtime.device = device
    runtime.engine_host_code_allowed = allow_host_code
    runtime.untrusted = untrusted
    runtime.iteration_limit = iteration_limit
    if is_folder:
        engine = _engine_of_folder(file, runtime, plugins, build)
    elif build:
        raise InvalidArgumentError(f"load: build= is for a folder of plans; '{file}' is none")
    else:
        engine = runtime.load_cuda_engine(file)
    engine._plugins = plugin_names(plugins)
    model = Model(engine, threads, None, graphs, contexts)
    if os.path.exists(convention := f"{file}{_OF_TORCH}"):
        from .torch._module import restored

        return restored(model, convention)
    return model


def _engine_of_folder(path: str, runtime: Runtime, plugins: Any, build: bool) -> Any:
    if build and runtime.untrusted:
        raise InvalidArgumentError(
            "load: build= runs what the folder's build.json says, and untrusted= is for what "
            "you do not trust; they exclude each other"
        )
    logger = runtime.logger
    folder = Folder(os.path.abspath(path), runtime.device, logger)
    if build:
        engine = build_missing(folder, runtime.load_cuda_engine, plugins, logger)
    else:
        engine = folder.take(runtime.load_cuda_engine)
    if engine is None:
        raise folder.none_fits()
    if isinstance(logger, FolderLogger):
        logger.is_loaded()
    engine._path = folder.path  # by path, other processes choose as well
    return engine
