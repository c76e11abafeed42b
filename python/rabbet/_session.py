"""InferenceSession: a model with the methods of ONNX Runtime's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import _rabbet
from ._arrays import storage_type
from ._builder import Builder
from ._callbacks import ILogger, Logger
from ._compile import compile, load
from ._declared import HELD, Declared, declared
from ._engine_tensors import IoInfo
from ._enums import Severity
from ._errors import InvalidArgumentError, UnsupportedError
from ._model import Model
from ._network import INetworkDefinition
from ._onnx import OnnxParser
from ._ort_values import IOBinding, OrtValue
from ._plugins import load_plugins
from ._session_options import (
    ModelMetadata,
    NodeArg,
    SessionOptions,
    choose,
    providers_of,
    terminable,
)

# Extents of dimensions that neither the model nor the caller bounds.
_MOST = 2**20

# By ONNX Runtime's number.
_SEVERITIES = (
    Severity.VERBOSE,
    Severity.INFO,
    Severity.WARNING,
    Severity.ERROR,
    Severity.INTERNAL_ERROR,
)


def _named_extents(tensor: Any) -> list[Any]:
    """Its shape, with names of dynamic dimensions, or None."""
    return [
        tensor.get_dimension_name(axis) if extent < 0 else extent
        for axis, extent in enumerate(tensor.shape)
    ]


def _is_plan(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and str(path).endswith((".plan", ".engine"))


class InferenceSession:
    """A model with the methods of onnxruntime.InferenceSession.

    path_or_bytes: an ONNX file or its bytes, or a plan (.plan, .engine).
    sess_options: SessionOptions, of this package or of ONNX Runtime.
    providers: names, or pairs (name, options): the first one whose device is there is
        taken; CUDAExecutionProvider's option device_id chooses the GPU.
    Further arguments are those of rabbet.compile: shapes, plugins, fp16, timing_cache...

    A model with dynamic dimensions is built by the first run if `shapes` or `profiles` do
    not give their ranges: its shapes are the optimum, and any others run without another
    build.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Iterable[Any] | None = None,
        provider_options: Iterable[Mapping[str, Any]] | None = None,
        *,
        device: str | None = None,
        **options: Any,
    ) -> None:
        self._options = SessionOptions() if sess_options is None else sess_options
        level = max(int(self._options.log_severity_level), 0)
        log = options.setdefault("logger", Logger(_SEVERITIES[min(level, 4)]))
        self._asked = providers_of(providers, provider_options)
        self._provider, self._device = choose(self._asked, device, log)
        self._lock = threading.Lock()
        # Inputs and outputs of types that the plan lacks: NumPy's, and those of the plan.
        self._held: dict[str, tuple[str, str]] = {}
        self._model: Model | None = None
        self._build_options = options
        self._network: INetworkDefinition | None = None
        threads = int(self._options.intra_op_num_threads) or None
        options.setdefault("threads", threads)
        if int(self._options.graph_optimization_level) == 0:
            options.setdefault("optimization_level", 0)
        if _is_plan(path_or_bytes):
            known = (
                "plugins", "threads", "logger", "graphs", "contexts", "iteration_limit"
            )  # fmt: skip
            kept = {name: options[name] for name in known if name in options}
            self._model = load(path_or_bytes, device=self._device, **kept)
            self._describe_model(self._model)
            return
        self._import(path_or_bytes, log)
        is_open = any(-1 in tensor.shape for tensor in self._tensors("input"))
        if not is_open or not {"shapes", "profiles"}.isdisjoint(options):
            self._built(options.pop("shapes", None))

    # ---- Building ----

    def _import(self, model: Any, log: ILogger) -> None:
        load_plugins(self._build_options.get("plugins"))
        self._network = Builder(log).create_network()
        parser = OnnxParser(self._network, log)
        parser.double = bool(self._build_options.get("double"))
        if isinstance(model, (str, os.PathLike)):
            parser.parse_from_file(model)
        else:
            if callable(getattr(model, "SerializeToString", None)):
                model = model.SerializeToString()
            parser.parse(model)
        own = declared(model)
        self._inputs, self._outputs = (
            [self._node_arg(tensor, found.get(tensor.name)) for tensor in self._tensors(kind)]
            for kind, found in zip(("input", "output"), own, strict=True)
        )

    def _node_arg(self, tensor: Any, own: Declared | None) -> NodeArg:
        """An input or output as the model declares it."""
        shape = _named_extents(tensor)
        if own is not None and own.shape is not None and len(own.shape) == len(shape):
            pairs = zip(shape, own.shape, strict=True)
            shape = [name if extent is None else extent for extent, name in pairs]
        fixed = getattr(self._options, "extents", {})
        shape = [fixed.get(each, each) for each in shape]
        arg = NodeArg(tensor.name, tensor.dtype, shape)
        if own is not None and own.number in HELD and arg.type != HELD[own.number][0]:
            arg.type, given = HELD[own.number]
            self._held[tensor.name] = given, str(storage_type(tensor.dtype))
        return arg

    def _describe_model(self, model: Model) -> None:
        def described(info: IoInfo) -> NodeArg:
            pairs = zip(info.shape, info.dim_names, strict=True)
            shape = [name if extent < 0 else extent for extent, name in pairs]
            return NodeArg(info.name, info.dtype, shape)

        self._inputs = [described(info) for info in model.inputs]
        self._outputs = [described(info) for info in model.outputs]

    def _tensors(self, kind: str) -> list[Any]:
        network = self._network
        assert network is not None
        count = network.num_inputs if kind == "input" else network.num_outputs
        get = network.get_input if kind == "input" else network.get_output
        return [get(i) for i in range(count)]

    def _built(self, shapes: Any) -> Model:
        self._model = compile(
            self._network, device=self._device, shapes=shapes, **self._build_options
        )
        self._network = None
        return self._model

    def _ranges(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Any shape, tuned for those of the first run."""
        import numpy as np

        fixed = getattr(self._options, "extents", {})
        ranges = {}
        for tensor in self._tensors("input"):
            declared = tuple(tensor.shape)
            if -1 not in declared:
                continue
            given = feed.get(tensor.name)
            shape = tuple(np.shape(given) if given is not None else ())
            if len(shape) != len(declared):
                raise InvalidArgumentError(
                    f"input '{tensor.name}' has {len(declared)} dimensions "
                    f"{_named_extents(tensor)}, got {list(shape)}"
                )
            bounds = []
            for axis, (extent, open_) in enumerate(zip(shape, declared, strict=True)):
                own = fixed.get(tensor.get_dimension_name(axis), open_)
                bounds.append(
                    (own,) * 3 if own >= 0 else (0, extent, max(extent, _MOST))
                )
            ranges[tensor.name] = tuple(zip(*bounds, strict=True))
        return ranges

    def _ready(self, feed: Mapping[str, Any]) -> Model:
        """The model, built if it is not yet."""
        with self._lock:
            if self._model is not None:
                return self._model
            missing = [arg.name for arg in self._inputs if arg.name not in feed]
            if missing:
                raise InvalidArgumentError(
                    f"input {', '.join(missing)} is missing; the model takes "
                    + ", ".join(arg.name for arg in self._inputs)
                )
            return self._built(self._ranges(feed))

    @property
    def model(self) -> Model:
        """The rabbet.Model that runs; before the first run of a model with dynamic
        dimensions there is none."""
        if self._model is None:
            raise InvalidArgumentError(
                "the session's model has dynamic dimensions and is built by the first "
                "run; InferenceSession(shapes=) builds it at once"
            )
        return self._model

    # ---- Description ----

    def get_inputs(self) -> list[NodeArg]:
        """The inputs."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Always empty: weights are folded into the plan."""
        return []

    def get_providers(self) -> list[str]:
        """The provider that the session uses."""
        return [self._provider]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The providers' options."""
        number = self._device.partition(":")[2]
        return {self._provider: {"device_id": number} if number else {}}

    def set_providers(
        self,
        providers: Iterable[Any] | None = None,
        provider_options: Iterable[Mapping[str, Any]] | None = None,
    ) -> None:
        """Refused where it would change the device, which a plan is built for."""
        log = self._build_options["logger"]
        asked = choose(providers_of(providers, provider_options), None, log)
        if asked[1] != self._device:
            raise UnsupportedError(
                f"set_providers: the session runs on {self._device}; make another "
                f"session for {asked[1]}"
            )

    def get_session_options(self) -> Any:
        """The options that were given."""
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        """Texts of the model: its graph's name."""
        named = self._network if self._model is None else self._model.engine
        return ModelMetadata(getattr(named, "name", None) or "")

    def enable_fallback(self) -> None:
        """Without effect: a session never changes its device."""

    disable_fallback = enable_fallback

    def _check_name(self, name: str, kind: str) -> None:
        args = self._inputs if kind == "input" else self._outputs
        if name not in [arg.name for arg in args]:
            raise InvalidArgumentError(
                f"the model has no {kind} '{name}'; it has "
                + (", ".join(arg.name for arg in args) or "none")
            )

    # ---- Running ----

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """Runs; returns the outputs of these names, or all, as NumPy arrays.

        run_options: RunOptions, whose `terminate` ends the run."""
        if not isinstance(input_feed, Mapping):
            raise TypeError(f"run: expected {{name: array}}, got {input_feed!r}")
        if isinstance(output_names, str):
            raise TypeError(f"run: expected a list of output names, got {output_names!r}")
        for name in output_names or ():
            self._check_name(name, "output")
        for name in input_feed:
            self._check_name(name, "input")
        feed = {
            name: value._array if isinstance(value, OrtValue) else value
            for name, value in input_feed.items()
        }
        feed = {name: self._taken(name, value) for name, value in feed.items()}
        model = self._ready(feed)
        with terminable(run_options, model):
            results = model.run(feed)
        return [
            self._given(name, results[name]) for name in output_names or list(results)
        ]

    def _taken(self, name: str, value: Any) -> Any:
        """An input in the plan's type."""
        if name not in self._held:
            return value
        import numpy as np

        given, held = self._held[name]
        array = np.asarray(value, given if isinstance(value, list) else None)
        if array.dtype != given:
            raise TypeError(f"input '{name}' is {array.dtype}, the model takes {given}")
        return array.astype(held)

    def _given(self, name: str, result: Any) -> Any:
        """An output in the model's type."""
        if name not in self._held:
            return result
        import numpy as np

        return np.asarray(result).astype(self._held[name][0])

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], Any],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Runs in a thread of its own, and calls callback(outputs, user_data, error) there;
        the error is "" where there is none."""

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as failure:
                results, error = [], str(failure)
            callback(results, user_data, error)

        threading.Thread(target=work, daemon=True).start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: Any = None,
    ) -> list[OrtValue]:
        """run() with OrtValues as inputs and outputs."""
        found = self.run(output_names, input_dict_ort_values, run_options)
        return [
            OrtValue(each, self._device if hasattr(each, "data_ptr") else "cpu")
            for each in found
        ]

    def io_binding(self) -> IOBinding:
        """Inputs and outputs to be bound, for run_with_iobinding."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Runs with what is bound."""
        if not isinstance(iobinding, IOBinding) or iobinding._session is not self:
            raise InvalidArgumentError(
                "run_with_iobinding: expected what this session's io_binding() returned"
            )
        for name in (*iobinding._inputs, *iobinding._outputs):
            if name in self._held:
                given, held = self._held[name]
                raise UnsupportedError(
                    f"run_with_iobinding: '{name}' is {given}, which the plan holds as {held}: "
                    "call run(), which converts it"
                )
        model = self._ready(iobinding._inputs)
        with terminable(run_options, model):
            iobinding._run(model)

    def _wait(self) -> None:
        """Waits for the outputs of runs on a GPU."""
        if self._model is not None and self._device != "cpu":
            _rabbet.synchronize(self._model.engine, 0)
