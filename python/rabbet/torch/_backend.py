"""The backend of torch.compile(module, backend="rabbet")."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import _disable_current_modes

from .._build import build_model
from .._errors import InvalidArgumentError
from ._pieces import divide
from ._report import Left, Report, keep
from ._translate import tables
from ._watched import Watched

_log = logging.getLogger("rabbet.torch")

# Sets of weights that one graph keeps engines for.
_MAX_VARIANTS = 8

_OPTIONS = {
    name
    for name, parameter in inspect.signature(build_model).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
} - {"save", "shapes", "values", "profiles"}

Call = Callable[..., Any]


def _checked(options: Mapping[str, Any] | None) -> dict[str, Any]:
    unknown = [name for name in options or () if name not in _OPTIONS]
    if unknown:
        raise InvalidArgumentError(
            f"torch.compile(backend='rabbet'): options has '{unknown[0]}'; there are "
            + ", ".join(sorted(_OPTIONS))
        )
    return dict(options or {})


def _is_static(value: Any) -> bool:
    """Whether an input of a graph is a parameter or buffer of a module."""
    return isinstance(value, torch.nn.Parameter) or (
        isinstance(value, torch.Tensor) and hasattr(value, "_dynamo_static_input_type")
    )


class _Weights:
    """The tensors that engines were folded with."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = [Watched(tensor) for tensor in tensors]

    def may_come_again(self) -> bool:
        """Whether the tensors still are what engines were folded with."""
        return all(each.is_same() for each in self.tensors)

    def are(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these are the same tensors, unchanged."""
        pairs = zip(self.tensors, tensors, strict=True)
        return all(each.is_(tensor) and each.is_unchanged(tensor) for each, tensor in pairs)


class _Folded:
    """A graph whose parameters are constants of its engines.

    The call checks that the parameters are those that were folded: other ones, or changed
    ones, get engines of their own.
    """

    def __init__(
        self,
        source: fx.GraphModule,
        indices: Sequence[int],
        options: Mapping[str, Any],
        report: Report,
    ) -> None:
        self.source, self.options, self.report = source, options, report
        nodes = source.graph.find_nodes(op="placeholder")
        self.indices = indices
        self.names = [nodes[i].name for i in indices]
        self.variants: list[tuple[_Weights, fx.GraphModule]] = []
        self.lock = threading.Lock()

    def find(self, tensors: Sequence[torch.Tensor]) -> fx.GraphModule:
        """The graph with engines for these parameters."""
        for weights, module in self.variants:
            if weights.are(tensors):
                return module
        with self.lock, _disable_current_modes(), torch.no_grad():
            statics = dict(zip(self.names, tensors, strict=True))
            module = divide(self.source, statics, self.options, self.report)
            kept = [v for v in self.variants if v[0].may_come_again()]
            self.variants = [(_Weights(tensors), module), *kept][:_MAX_VARIANTS]
            return module


def _mutated() -> set[int]:
    """Indices of inputs that the graph changes in place."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return set()
    return {i for i, info in enumerate(metadata.input_info) if info.mutates_data}


def _convert_once(graph: fx.Graph) -> None:
    """Leaves one conversion of each value to each other type. With dynamic=True a number of
    the module is an input of DOUBLE, which torch converts wherever it is used."""
    target = torch.ops.prims.convert_element_type.default
    found: dict[tuple[Any, ...], fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=target):
        source, dtype = node.args
        value = source.meta.get("val")
        same = isinstance(value, torch.Tensor) and value.dtype is dtype
        first = source if same else found.setdefault((source, dtype), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


class _Graph:
    """One graph of torch.compile."""

    def __init__(self, inputs: Sequence[Any], options: Mapping[str, Any]) -> None:
        self.inputs, self.options = list(inputs), options
        self.report = Report()
        self.statics: tuple[int, ...] = ()
        self.folded: _Folded | None = None
        self.local = threading.local()

    def inference(self, source: fx.GraphModule, examples: Sequence[Any]) -> Call:
        """Compiles a graph without gradients."""
        _convert_once(source.graph)
        count = len(source.graph.find_nodes(op="placeholder"))
        if count == len(self.inputs):
            mutated = _mutated()
            self.statics = tuple(
                i
                for i, value in enumerate(self.inputs)
                if _is_static(value) and i not in mutated
            )
        self.folded = _Folded(source, self.statics, self.options, self.report)
        chosen = [self.inputs[i] for i in self.statics]
        self.folded.find(chosen)
        self.inputs = []
        keep(self.report)
        _log.info("%s", self.report)

        def run(args: list[Any]) -> Any:
            module = self.local.module
            given = list(args)
            args.clear()
            with torch.no_grad():
                return module(*given)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def training(self, source: fx.GraphModule, examples: Sequence[Any]) -> Call:
        """Leaves a graph with gradients to torch."""
        reason = (
            "gradients are needed; call it under torch.no_grad() or "
            "torch.inference_mode()"
        )
        if not self.report.left:
            self.report.left.append(Left("the whole graph", "", reason))
            keep(self.report)
            _log.warning("rabbet leaves a graph to torch: %s", reason)

        def run(args: list[Any]) -> Any:
            return fx.Interpreter(source).boxed_run(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def wrapped(self, compiled: Call) -> Call:
        """The compiled graph with engines for the parameters of each call."""

        def call(*args: Any) -> Any:
            if self.folded is not None:
                statics = [args[i] for i in self.statics]
                self.local.module = self.folded.find(statics)
            return compiled(*args)

        return call


def backend(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Call:
    """torch.compile(model, backend="rabbet", options={...}).

    options: those of rabbet.compile, such as fp16, timing_cache, device. What no engine
    takes runs in torch; rabbet.torch.reports() names it with the reason. `mode` has no
    effect.
    """
    graph = _Graph(example_inputs, _checked(options))
    compiler = aot_autograd(
        fw_compiler=graph.training,
        bw_compiler=graph.training,
        inference_compiler=graph.inference,
        decompositions=tables(core_aten_decompositions()),
    )
    return graph.wrapped(compiler(module, example_inputs))
