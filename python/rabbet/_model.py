"""Models: plans that can be called."""

from __future__ import annotations

import collections
import copy
import keyword
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from . import _rabbet
from ._arrays import storage_type
from ._callbacks import IProfiler
from ._checked import File, checks_arguments, unchecked
from ._convert import (
    convert_input,
    create_output,
    device_input,
    take_output,
    torch_dtype,
)
from ._engine import EngineInspector, GraphInfo, ICudaEngine, IExecutionContext
from ._engine_tensors import IoInfo
from ._errors import FailedPreconditionError, InvalidArgumentError, UnsupportedError
from ._pickling import PlanFile, detached_engine

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_MAX_CONTEXTS = 2**31 - 1
# Threads for submitted calls: one's work in Python goes on beside another's kernels.
_THREADS, _MAX_THREADS = 2, 32
# A longer report of tuning is left out of pickles.
_MAX_REPORT = 1 << 20

_OWN = {"_engine", "_inputs", "_outputs", "_report", "_options", "_path", "_pools"}
_OWN |= {"_communicator"}


class _Times(IProfiler):
    def __init__(self) -> None:
        self.times: list[tuple[str, float]] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        self.times.append((layer_name, ms))


def _result_type(names: list[str]) -> Callable[[tuple[Any, ...]], Any]:
    """Type of several outputs: a named tuple."""
    if len(names) < 2:
        return tuple
    fields = [
        name if name.isidentifier() and not keyword.iskeyword(name) else f"output_{i}"
        for i, name in enumerate(names)
    ]
    kind: Any = collections.namedtuple("Outputs", fields, rename=True)  # type: ignore[misc]
    return kind._make


def context_limit(contexts: int | None) -> int:
    """Of the number of contexts; 0: none."""
    if contexts is not None and not 1 <= contexts <= _MAX_CONTEXTS:
        raise InvalidArgumentError(
            f"contexts is {contexts!r}; expected 1 to {_MAX_CONTEXTS}, or None for as "
            "many as there are calls at a time"
        )
    return contexts or 0


@checks_arguments
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

    Pickles, for processes and machines of the same kind: with the plan, which a process
    loads once, or with the path of its file (by_path). A pickle runs code where it is read,
    as any does: read none of sources that you do not trust.
    """

    _engine: ICudaEngine
    _inputs: list[IoInfo]
    _outputs: list[IoInfo]
    _report: tuple[str, str] | None
    _options: tuple[int | None, bool, int | None]
    _path: str | None = None  # in the place of the plan in pickles
    _communicator: Any = None
    _pools: dict[int, ThreadPoolExecutor]  # by process: a fork's child has no threads

    def __new__(
        cls,
        engine: ICudaEngine,
        threads: int | None = None,
        report: Any = None,
        graphs: bool = True,
        contexts: int | None = None,
    ) -> Self:
        import numpy as np

        count = threads or 0
        if not 0 <= count <= 4096:
            raise InvalidArgumentError(
                f"{threads} threads; expected 1 to 4096, or 0 for the plan's number"
            )
        limit = context_limit(contexts)
        infos = [info for _, info in engine._ios().values()]
        outputs = [info for info in infos if not info.is_input]
        dtypes = tuple(storage_type(info.dtype) for info in outputs)
        results = _result_type([info.name for info in outputs])
        self = super().__new__(
            cls, engine, count, graphs, limit, np.empty, dtypes, results
        )
        self._engine = engine
        self._inputs = [info for info in infos if info.is_input]
        self._outputs = outputs
        self._report = report
        self._options = threads, graphs, contexts
        self._pools = {}
        return self

    def set_communicator(self, communicator: Any) -> None:
        """Sets the communicator by which collective layers exchange data with the other
        processes (ranks) that run the model (IExecutionContext.set_communicator). From
        then on one call runs at a time. Copies and pickles have none."""
        self._set_communicator(getattr(communicator, "capsule", communicator))
        self._communicator = communicator

    # ---- Pickles and copies ----

    def by_path(self, path: File | None = None) -> Self:
        """A model that is pickled as the path of its plan's file, in a few bytes.

        Every process that unpickles it must see that file, and has what is in it by then;
        processes of a machine share the memory of the file. Without by_path the plan itself
        travels. The model that is returned uses this one's engine.

        path: of the plan as those processes see it, or of a folder of plans, of which each
            machine takes its own; default: the file or folder from which the plan was
            loaded, or to which compile(save=) wrote it.
        """
        own = self._path or self._engine._path
        file = own if path is None else os.path.abspath(path)
        if file is None:
            raise FailedPreconditionError(
                "by_path: the model does not come from a file; write one with "
                "model.save(path), then model.by_path(path)"
            )
        model = copy.copy(self)
        model._path = file
        return model

    def __getstate__(self) -> dict[str, Any] | None:
        """Attributes that are not the model's own; None: there are none."""
        return {k: v for k, v in vars(self).items() if k not in _OWN} or None

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if type(self).__reduce__ is not object.__reduce__:  # a subclass knows better
            return self.__reduce__()
        engine = self._engine
        source: ICudaEngine | PlanFile = engine
        if self._path is not None:
            source = PlanFile(type(engine), self._path, engine._origin, engine._plugins)
        report = self._report
        if self._path or (report and sum(map(len, report)) > _MAX_REPORT):
            report = None
        values = type(self), source, self._options, report, self._path
        return _model_of, values, self.__getstate__()

    def _copy_with(self, engine: ICudaEngine, state: dict[str, Any] | None) -> Self:
        model = _model_of(type(self), engine, self._options, self._report, self._path)
        vars(model).update(state or {})
        return model  # type: ignore[return-value]

    def __copy__(self) -> Self:
        return self._copy_with(self._engine, self.__getstate__())

    def _detached(self) -> Self:
        """The same model, which reads no memory that was lent."""
        return self._copy_with(detached_engine(self._engine), self.__getstate__())

    def __deepcopy__(self, memo: Any) -> Self:
        engine = copy.deepcopy(self._engine, memo)
        return self._copy_with(engine, copy.deepcopy(self.__getstate__(), memo))

    # ---- Properties ----

    @property
    def engine(self) -> ICudaEngine:
        """The model's engine."""
        return self._engine

    @property
    def inputs(self) -> tuple[IoInfo, ...]:
        """Name, type and shape of each input, in the order of arguments."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[IoInfo, ...]:
        """Name, type and shape of each output."""
        return tuple(self._outputs)

    def _tuning(self) -> tuple[str, str]:
        if self._report is None:
            raise UnsupportedError(
                "a loaded plan has no report of its tuning; model.inspect() "
                "describes its layers"
            )
        return self._report

    @property
    def report(self) -> str:
        """Table of the alternatives and choices of tuning, for a compiled model."""
        return self._tuning()[0]

    @property
    def report_json(self) -> str:
        """The report as JSON."""
        return self._tuning()[1]

    @property
    def choice(self) -> str | None:
        """Which plan of a folder was taken and why, and why not each other; None: the
        plan was named by its file."""
        return self._engine._choice

    @property
    def graph_info(self) -> GraphInfo:
        """Numbers of the last run's steps with and without CUDA graphs; total numbers
        of recordings and replays."""
        return GraphInfo(*self._graph_info())

    def inspect(self) -> str:
        """Table of the plan's layers with types, formats and tactics."""
        return EngineInspector(self._engine).get_engine_information()

    def inspect_json(self) -> Any:
        """The layers, types, formats and tactics as parsed JSON."""
        return EngineInspector(self._engine).as_dict()

    def save(self, path: File) -> None:
        """Writes the plan."""
        _rabbet.write_file(path, self._engine.serialize())

    def create_execution_context(self) -> IExecutionContext:
        """Makes an execution context, for the object interface."""
        return self._engine.create_execution_context()

    def __repr__(self) -> str:
        def line(infos: list[IoInfo]) -> str:
            return ", ".join(
                f"{i.name}: {i.dtype.name} {tuple(i.shape)}" for i in infos
            )

        return f"<Model ({line(self._inputs)}) -> ({line(self._outputs)})>"

    # ---- Running ----

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Runs with a dict of inputs by name; returns a dict of outputs by name."""
        if not isinstance(inputs, Mapping):
            raise TypeError(f"run: expected {{name: array}}, got {inputs!r}")
        result = self(**inputs)
        values = (result,) if len(self._outputs) == 1 else result
        names = [info.name for info in self._outputs]
        return dict(zip(names, values, strict=True))

    @unchecked
    def submit(self, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begins a call on a thread of the model's own; returns the future of what the call
        returns or raises.

        There are as many threads as `contexts`, which they share with other calls, or 2;
        further calls wait in order. They end with the model. Arrays must not change until
        the future is done. A future that is cancelled before its call has begun is not
        run; a call that has begun goes on (see cancel). On a GPU, torch's current stream is
        that of the caller; other libraries' arrays must be complete.
        """
        pool = self._pools.get(os.getpid())
        if pool is None:
            from concurrent.futures import ThreadPoolExecutor

            count = min(self._options[2] or _THREADS, _MAX_THREADS)
            pool = self._pools.setdefault(
                os.getpid(), ThreadPoolExecutor(count, "rabbet-model")
            )
        return pool.submit(self._on_stream(), *args, **kwargs)

    @unchecked
    async def acall(self, /, *args: Any, **kwargs: Any) -> Any:
        """A call to be awaited in asyncio: submit() for coroutines. Cancelling it is
        cancelling the future."""
        import asyncio

        return await asyncio.wrap_future(self.submit(*args, **kwargs))

    def _on_stream(self) -> Callable[..., Any]:
        """The call, on torch's current stream of this thread."""
        torch: Any = sys.modules.get("torch")
        device = self._engine.device
        if torch is None or device == "cpu" or not torch.cuda.is_initialized():
            return self
        stream = torch.cuda.current_stream(device)

        def call(*args: Any, **kwargs: Any) -> Any:
            with torch.cuda.stream(stream):
                return self(*args, **kwargs)

        return call

    def profile(self, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """Runs once; returns milliseconds of each layer, in order."""
        times = _Times()
        self._profiled(times, args, kwargs)
        return times.times

    def check_finite(self, *args: Any, **kwargs: Any) -> Any:
        """A call that checks the outputs of each step.

        Raises FailedPreconditionError at the first step that makes a NaN or an infinity
        of finite numbers: with its layers, what they read, and what to do. Works on any
        plan, and takes longer than a call."""
        return self._checked(args, kwargs)

    def cancel(self) -> bool:
        """Ends the calls that other threads have under way, as
        IExecutionContext.cancel ends a run: they raise CancelledError. False: there was
        none, and nothing happens."""
        return self._cancel(None)

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


def _model_of(
    kind: type[Model], source: ICudaEngine | PlanFile, options: Any, report: Any, path: Any
) -> Model:
    """The model of a pickle or a copy. A subclass's __new__ is not called."""
    engine = source.engine() if isinstance(source, PlanFile) else source
    threads, graphs, contexts = options
    model = Model.__new__(kind, engine, threads, report, graphs, contexts)
    model._path = path
    return model
