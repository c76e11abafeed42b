"""The layers of a model that can be quantized, and why others cannot."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .._errors import NotFoundError
from ._model import Graph, Model, Node
from ._tensor import BFLOAT16, FLOAT, FLOATS, NAMES, Tensor, narrowed, widened

# Operators with weights, by the axis of their output channels.
CHANNELS = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1, "Gemm": 1}
# Operators with weights that stay in floating point.
_OTHERS = ("LSTM", "GRU", "RNN")
# More operators of which each has one output, a view of its first input.
_VIEWS = ("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Cast")


class Scope:
    """Names as a graph's nodes see them: its own, and those of the graphs around it."""

    def __init__(self, graph: Graph, parent: Scope | None = None) -> None:
        self.graph, self.parent = graph, parent
        self.inputs = {each.name for each in graph.inputs}
        self.makers = {name: node for node in graph.nodes for name in node.outputs if name}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.outputs = {each.name for each in graph.outputs}
        # Names that bodies and branches of the graph's nodes read.
        self.inner = {
            name
            for node in graph.nodes
            for body in node.graphs()
            for each in body.all()
            for name in (
                *(n for inside in each.nodes for n in inside.inputs),
                *(output.name for output in each.outputs),
            )
        }

    @classmethod
    def walk(cls, graph: Graph, parent: Scope | None = None) -> Iterator[Scope]:
        """The scopes of a graph and of those in it."""
        scope = cls(graph, parent)
        yield scope
        for node in graph.nodes:
            for body in node.graphs():
                yield from cls.walk(body, scope)

    def maker(self, name: str) -> tuple[Scope, Node | Tensor | None]:
        """The scope that a name is from, and the node or weights that it names there;
        None: an input."""
        scope: Scope | None = self
        last = self
        while scope is not None:
            last = scope
            if name in scope.inputs:  # of a body, or a weight that callers may replace
                return scope, None
            if name in scope.graph.initializers:
                return scope, scope.graph.initializers[name]
            if name in scope.makers:
                return scope, scope.makers[name]
            scope = scope.parent
        return last, None

    def is_read_once(self, name: str) -> bool:
        """Whether one input of one node is all that reads a tensor of this graph."""
        count = sum(node.inputs.count(name) for node in self.readers.get(name, ()))
        return count == 1 and name not in self.outputs and name not in self.inner


# ---- Constants


def _attribute_constant(node: Node) -> Any:
    import numpy as np

    for key, kind in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if key in node.attributes:
            return np.array(node.get(key), kind)
    return None


def _cast(values: Any, dtype: int, to: int) -> tuple[Any, int] | None:
    if dtype not in NAMES or to not in NAMES or to not in FLOATS or dtype not in FLOATS:
        return None
    plain = widened(values) if dtype == BFLOAT16 else values
    return (narrowed(plain) if to == BFLOAT16 else plain.astype(NAMES[to])), to


def _axes(scope: Scope, node: Node) -> list[int] | None:
    if len(node.inputs) > 1:
        found = constant(scope, node.inputs[1])
        return None if found is None else found[0].reshape(-1).tolist()
    return node.get("axes")  # type: ignore[no-any-return]


def _view(scope: Scope, node: Node, values: Any) -> Any:
    """What a node makes of a constant; None where that is not known."""
    import numpy as np

    if node.op == "Identity":
        return values
    if node.op == "Transpose":
        return values.transpose(node.get("perm"))
    if node.op == "Flatten":
        axis = node.get("axis", 1) % (values.ndim + 1)
        return values.reshape(int(np.prod(values.shape[:axis])), -1)
    if node.op == "Reshape":
        found = constant(scope, node.input(1))
        if found is None:
            return None
        shape = found[0].reshape(-1).tolist()
        if not node.get("allowzero", 0):
            shape = [values.shape[i] if d == 0 else d for i, d in enumerate(shape)]
        return values.reshape(shape)
    axes = _axes(scope, node)
    if node.op == "Squeeze":
        return values.squeeze(None if axes is None else tuple(axes))
    return None if axes is None else np.expand_dims(values, tuple(axes))


def constant(scope: Scope, name: str) -> tuple[Any, int] | None:
    """(elements, ONNX's number of their type) of a tensor that is the same in each run:
    weights, constants, and views of such."""
    where, made = scope.maker(name)
    if isinstance(made, Tensor):
        return (made.array(), made.dtype) if made.dtype in NAMES else None
    if made is None or not made.is_onnx("Constant", *_VIEWS):
        return None
    if made.op == "Constant":
        value = made.get("value")
        if isinstance(value, Tensor):
            return (value.array(), value.dtype) if value.dtype in NAMES else None
        values = _attribute_constant(made)
        return None if values is None else (values, 1 if values.dtype.kind == "f" else 7)
    found = constant(where, made.inputs[0])
    if found is None:
        return None
    values, dtype = found
    if made.op == "Cast":
        return _cast(values, dtype, made.get("to"))
    view = _view(where, made, values)
    return None if view is None else (view, dtype)


def source(scope: Scope, name: str) -> str:
    """A text that is equal for two names of the same constant."""
    where, made = scope.maker(name)
    if isinstance(made, Node) and made.is_onnx("Identity"):
        return source(where, made.inputs[0])
    return f"{id(where.graph)}/{name}"


# ---- Layers


class Layer:
    """A node that may be quantized: with weights, or a sum that a convolution adds.

    reason: why it is left in floating point; empty: it is quantized.
    """

    def __init__(self, node: Node, scope: Scope, reason: str = "") -> None:
        self.node, self.scope, self.reason = node, scope, reason
        self.name = node.name or node.outputs[0]
        self.op = node.op
        self.index = 0  # the input that is an activation
        self.dtype = FLOAT  # of the weights
        self.shape: tuple[int, ...] = ()  # of the weights
        self.weights = ""  # the tensor's name; empty: a sum
        self.product: Layer | None = None  # of a sum: the convolution that adds
        # Relative errors of the layer's own output, and of the model's where this layer
        # alone is quantized.
        self.error: float | None = None
        self.alone: float | None = None

    @property
    def graph(self) -> Graph:
        """The graph that the node is in."""
        return self.scope.graph

    @property
    def activation(self) -> str:
        """The tensor that is quantized beside the weights."""
        return self.node.inputs[self.index]

    @property
    def place(self) -> tuple[int, str]:
        """Equal for layers of a graph that read the same activation."""
        return id(self.graph), self.activation

    @property
    def axis(self) -> int:
        """The axis of the weights that is the output channels."""
        if self.op == "Gemm" and self.node.get("transB", 0):
            return 0
        return CHANNELS[self.op]

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for layers that share quantized weights."""
        return source(self.scope, self.weights), self.axis

    def values(self) -> Any:
        """The weights as float32."""
        found = constant(self.scope, self.weights)
        assert found is not None
        values, dtype = found
        return widened(values) if dtype == BFLOAT16 else values.astype("f4", copy=False)


def _is_quantized(scope: Scope, name: str) -> bool:
    where, made = scope.maker(name)
    while isinstance(made, Node) and made.is_onnx(*_VIEWS):
        where, made = where.maker(made.inputs[0])
    return isinstance(made, Node) and made.op == "DequantizeLinear"


def _read_weights(layer: Layer) -> str:
    """Why the weights cannot be quantized; empty: they can."""
    node, scope = layer.node, layer.scope
    if any(_is_quantized(scope, name) for name in node.inputs[:2]):
        return "is quantized already"
    found = constant(scope, node.inputs[1])
    if found is None:
        left = constant(scope, node.inputs[0]) is not None
        return "has its weights on the left" if left else "has no constant weights"
    values, dtype = found
    layer.weights, layer.shape, layer.dtype = node.inputs[1], values.shape, dtype
    if dtype not in FLOATS:
        return "has weights of another type than FLOAT, FLOAT16 or BFLOAT16"
    if node.op in ("MatMul", "Gemm") and values.ndim != 2:
        return f"has weights of rank {values.ndim}"
    if values.size == 0:
        return "has no elements"
    return "has a transposed input" if node.get("transA", 0) else ""


def _depthwise(layer: Layer) -> bool:
    return layer.op == "Conv" and layer.node.get("group", 1) > 1 and layer.shape[1] == 1


def _why_not(layer: Layer, to: str) -> str:
    """Why a layer that could be quantized is left unless `include` names it."""
    if to == "int4":
        return "" if layer.op in ("MatMul", "Gemm") else "INT4 is for MatMul and Gemm"
    if layer.op == "ConvTranspose":
        return "no kernel of 8 bits computes ConvTranspose"
    return ""


class Patterns:
    """Names of layers and operators, in which `*` stands for any text."""

    def __init__(self, what: str, given: str | Sequence[str] | None) -> None:
        self.what = what
        names: Any = [given] if isinstance(given, str) else () if given is None else given
        self.patterns = list(names) if isinstance(names, Iterable) else [names]
        for name in self.patterns:
            if not isinstance(name, str):
                raise TypeError(
                    f"quantize: {what}: expected names of layers or operators, got {name!r}"
                )

    def match(self, layer: Layer) -> bool:
        """Whether one names the layer or its operator."""
        return any(
            fnmatch.fnmatchcase(text, pattern)
            for pattern in self.patterns
            for text in (layer.name, layer.op)
        )

    def check(self, layers: Sequence[Layer]) -> None:
        """NotFoundError for a pattern that names nothing."""
        import difflib

        texts = {text for layer in layers for text in (layer.name, layer.op)}
        for pattern in self.patterns:
            if any(fnmatch.fnmatchcase(text, pattern) for text in texts):
                continue
            near = difflib.get_close_matches(pattern, sorted(texts), 3)
            hint = f"; near it: {', '.join(near)}" if near else ""
            raise NotFoundError(
                f"{self.what}: no layer and no operator of layers is named "
                f"'{pattern}'{hint}"
            )


def find(model: Model, to: str, include: Patterns, exclude: Patterns) -> list[Layer]:
    """Layers in the model's order; those that are left have a reason."""
    layers = []
    for scope in Scope.walk(model.graph):
        for node in scope.graph.nodes:
            if node.is_onnx(*_OTHERS):
                layers.append(Layer(node, scope, f"{node.op} is not quantized"))
            if not node.is_onnx(*CHANNELS):
                continue
            layer = Layer(node, scope)
            layer.reason = _read_weights(layer)
            layers.append(layer)
    if to == "int8":
        layers = _with_sums(layers)
    include.check(layers)
    exclude.check(layers)
    for layer in layers:
        if layer.reason:
            continue
        if exclude.match(layer):
            layer.reason = "excluded"
        elif include.patterns:
            layer.reason = "" if include.match(layer) else "not included"
        elif layer.weights:
            layer.reason = _why_not(layer, to)
    return layers


# ---- Sums


def _with_sums(layers: list[Layer]) -> list[Layer]:
    """Adds the sums of a convolution's result and another tensor. A kernel computes both
    if the other tensor has 8 bits."""
    convolutions = {
        layer.node.outputs[0]: layer
        for layer in layers
        if layer.op == "Conv" and not layer.reason
    }
    found = []
    scopes = {id(layer.scope): layer.scope for layer in layers}
    for scope in scopes.values():
        for node in scope.graph.nodes:
            if not node.is_onnx("Add") or len(set(node.inputs)) != 2:
                continue
            made = [
                name in convolutions
                and convolutions[name].scope is scope
                and scope.is_read_once(name)
                for name in node.inputs
            ]
            if not any(made) or any(constant(scope, name) for name in node.inputs):
                continue
            layer = Layer(node, scope)
            # The later of two convolutions adds the other's result.
            order = [i for i in (0, 1) if made[i]]
            last = max(order, key=lambda i: _position(scope, node.inputs[i]))
            layer.index = 1 - last
            layer.product = convolutions[node.inputs[last]]
            found.append(layer)
    return layers + found


def _position(scope: Scope, name: str) -> int:
    maker = scope.makers[name]
    return next(i for i, node in enumerate(scope.graph.nodes) if node is maker)
