"""ONNX models as they are edited: nodes and weights as objects, all else as its bytes.

Weights are views of the file, which is mapped, until one is replaced; so a model may be
larger than memory, and be written without a copy of it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from .. import _protobuf as pb
from .._errors import DataLossError, InvalidArgumentError
from ._tensor import Tensor, nested

# Kinds of attributes.
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 5, 6, 7, 8
GRAPHS = 10
# The field of an attribute that holds the value of each kind.
_FIELDS = {
    FLOAT: 2, INT: 3, STRING: 4, TENSOR: 5, GRAPH: 6, FLOATS: 7, INTS: 8, STRINGS: 9,
    GRAPHS: 11,
}  # fmt: skip
_KINDS = {field: kind for kind, field in _FIELDS.items()}
# Domains of ONNX's own operators.
ONNX_DOMAINS = ("", "ai.onnx")
# The largest message that readers of protobuf take.
MESSAGE_LIMIT = (1 << 31) - 1


def _text(value: Any) -> str:
    return str(value, "utf-8", "surrogateescape")


def _encoded(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


class Attribute:
    """An attribute of a node; `value` is None for kinds that no pass looks at."""

    def __init__(self, name: str, kind: int, value: Any, raw: Any = None) -> None:
        self.name, self.kind, self.value, self.raw = name, kind, value, raw

    @classmethod
    def parse(cls, data: memoryview, folder: Path | None) -> Self:
        """Reads the message."""
        import numpy as np

        name, kind, found = "", 0, []
        for number, encoding, value, _ in pb.fields(data):
            if number == 1:
                name = _text(value)
            elif number == 20:
                kind = value
            elif number in _KINDS:
                found.append((_KINDS[number], encoding, value))
        if kind == 0 and found:  # models of old do not say it
            kind = found[0][0]
        values: list[Any] = []
        for which, encoding, value in found:
            if which != kind:
                continue
            if kind in (FLOAT, FLOATS):
                values += np.frombuffer(value, "<f4").tolist()
            elif kind in (INT, INTS):
                values += [value] if encoding == pb.VARINT else _integers(value)
            elif kind == TENSOR:
                values.append(Tensor.parse(value, folder))
            elif kind in (GRAPH, GRAPHS):
                values.append(Graph.parse(value, folder))
            else:
                values.append(_text(value))
        if kind in (INT, INTS):
            values = [pb.signed(value) for value in values]
        single = kind in (FLOAT, INT, STRING, TENSOR, GRAPH)
        value = (values[0] if values else None) if single else values
        return cls(name, kind, value, None if kind in (GRAPH, GRAPHS) else data)

    def graphs(self) -> list[Graph]:
        """Graphs that it holds."""
        if self.kind == GRAPH:
            return [self.value]
        return list(self.value) if self.kind == GRAPHS else []

    def chunks(self) -> list[Any]:
        """The message."""
        if self.raw is not None:
            return [self.raw]
        if self.kind == 0:  # as Node.set() makes it
            return [pb.attribute(self.name, self.value)]
        held = [self.value] if self.kind == TENSOR else self.graphs()
        parts: list[Any] = [pb.nested(1, _encoded(self.name))]
        for each in held:
            parts += nested(_FIELDS[self.kind], each.chunks())
        return [*parts, pb.integer(20, self.kind)]


def _integers(data: memoryview) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = pb.read_varint(data, at)
        found.append(value)
    return found


class Node:
    """A node; `rest` are fields that no pass looks at."""

    def __init__(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str = "",
        **attributes: Any,
    ) -> None:
        self.op, self.domain, self.name = op, "", name
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.attributes: dict[str, Attribute] = {}
        self.rest: list[Any] = []
        for key, value in attributes.items():
            self.set(key, value)

    @classmethod
    def parse(cls, data: memoryview, folder: Path | None) -> Self:
        """Reads the message."""
        self = cls("", [], [])
        for number, _, value, whole in pb.fields(data):
            if number == 1:
                self.inputs.append(_text(value))
            elif number == 2:
                self.outputs.append(_text(value))
            elif number == 3:
                self.name = _text(value)
            elif number == 4:
                self.op = _text(value)
            elif number == 5:
                attribute = Attribute.parse(value, folder)
                self.attributes[attribute.name] = attribute
            elif number == 7:
                self.domain = _text(value)
            else:
                self.rest.append(whole)
        return self

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        found = self.attributes.get(name)
        return default if found is None else found.value

    def set(self, name: str, value: Any) -> None:
        """Sets an attribute to an int, float, str, a list of such, or a tensor."""
        kind = TENSOR if isinstance(value, Tensor) else 0
        self.attributes[name] = Attribute(name, kind, value)

    def is_onnx(self, *ops: str) -> bool:
        """Whether it is one of these operators of ONNX's own."""
        return self.op in ops and self.domain in ONNX_DOMAINS

    def input(self, index: int) -> str:
        """The name of an input; empty: it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def graphs(self) -> list[Graph]:
        """Bodies and branches."""
        return [g for each in self.attributes.values() for g in each.graphs()]

    def chunks(self) -> list[Any]:
        """The message."""
        parts: list[Any] = [pb.nested(1, _encoded(each)) for each in self.inputs]
        parts += [pb.nested(2, _encoded(each)) for each in self.outputs]
        parts += [pb.nested(3, _encoded(self.name)), pb.nested(4, _encoded(self.op))]
        for attribute in self.attributes.values():
            parts += nested(5, attribute.chunks())
        if self.domain:
            parts.append(pb.nested(7, _encoded(self.domain)))
        return parts + self.rest


class ValueInfo:
    """An input or output: its name, the number of its type (0: no tensor), and its
    shape, in which -1 is a dynamic extent (None: not known)."""

    def __init__(self, name: str, dtype: int, shape: Any, raw: Any = None) -> None:
        self.name, self.dtype, self.shape, self.raw = name, dtype, shape, raw

    @classmethod
    def parse(cls, data: memoryview) -> Self:
        """Reads the message."""
        name, dtype, shape = "", 0, None
        for number, _, value, _ in pb.fields(data):
            if number == 1:
                name = _text(value)
            elif number == 2:
                for kind, _, tensor, _ in pb.fields(value):
                    if kind == 1:
                        dtype, shape = cls._tensor(tensor)
        return cls(name, dtype, shape, data)

    @staticmethod
    def _tensor(data: memoryview) -> tuple[int, list[int] | None]:
        dtype, shape = 0, None
        for number, _, value, _ in pb.fields(data):
            if number == 1:
                dtype = value
            elif number == 2:
                dims = [list(pb.fields(d)) for n, _, d, _ in pb.fields(value) if n == 1]
                shape = [
                    next((pb.signed(v) for n, _, v, _ in dim if n == 1), -1) for dim in dims
                ]
        return dtype, shape

    def chunks(self) -> list[Any]:
        """The message."""
        if self.raw is not None:
            return [self.raw]
        return [pb.value_info(self.name, self.dtype, self.shape)]


class Graph:
    """A graph: the main one, a body, or a branch."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.initializers: dict[str, Tensor] = {}
        self.inputs: list[ValueInfo] = []
        self.outputs: list[ValueInfo] = []
        self.rest: list[Any] = []

    @classmethod
    def parse(cls, data: memoryview, folder: Path | None) -> Self:
        """Reads the message."""
        self = cls()
        for number, _, value, whole in pb.fields(data):
            if number == 1:
                self.nodes.append(Node.parse(value, folder))
            elif number == 5:
                tensor = Tensor.parse(value, folder)
                self.initializers[tensor.name] = tensor
            elif number == 11:
                self.inputs.append(ValueInfo.parse(value))
            elif number == 12:
                self.outputs.append(ValueInfo.parse(value))
            else:
                self.rest.append(whole)
        return self

    def all(self) -> Iterator[Graph]:
        """This graph and those in it."""
        yield self
        for node in self.nodes:
            for graph in node.graphs():
                yield from graph.all()

    def chunks(self) -> list[Any]:
        """The message."""
        parts: list[Any] = []
        for field, messages in (
            (1, self.nodes),
            (5, self.initializers.values()),
            (11, self.inputs),
            (12, self.outputs),
        ):
            for message in messages:
                parts += nested(field, message.chunks())
        return parts + self.rest


class Function:
    """A function of the model: nodes, and operator sets of its own."""

    def __init__(self, data: memoryview, folder: Path | None) -> None:
        self.nodes: list[Node] = []
        self.opsets: dict[str, int] = {}
        self.rest: list[Any] = []
        for number, _, value, whole in pb.fields(data):
            if number == 7:
                self.nodes.append(Node.parse(value, folder))
            elif number == 9:
                self.opsets.update([_opset(value)])
            else:
                self.rest.append(whole)

    def chunks(self) -> list[Any]:
        """The message."""
        parts = list(self.rest)
        for node in self.nodes:
            parts += nested(7, node.chunks())
        return parts + _opsets(9, self.opsets)


def _opset(data: memoryview) -> tuple[str, int]:
    domain, version = "", 1
    for number, _, value, _ in pb.fields(data):
        if number == 1:
            domain = _text(value)
        elif number == 2:
            version = value
    return ("" if domain in ONNX_DOMAINS else domain), version


def _opsets(field: int, opsets: dict[str, int]) -> list[Any]:
    return [
        pb.nested(field, pb.text(1, domain) + pb.integer(2, version))
        for domain, version in opsets.items()
    ]


class Model:
    """A model. Graphs keep their weights, so that edits of one need no other."""

    def __init__(self, data: Any, folder: Path | None) -> None:
        self.ir_version, self.graph = 0, Graph()
        self.opsets: dict[str, int] = {}
        self.functions: list[Function] = []
        self.rest: list[Any] = []
        for number, _, value, whole in pb.fields(memoryview(data)):
            if number == 1:
                self.ir_version = value
            elif number == 7:
                self.graph = Graph.parse(value, folder)
            elif number == 8:
                self.opsets.update([_opset(value)])
            elif number == 25:
                self.functions.append(Function(value, folder))
            else:
                self.rest.append(whole)
        self._names = self._all_names()
        if self.ir_version < 4:
            # In such models each initializer is an input as well, and still no input.
            self.graph.inputs = [
                each
                for each in self.graph.inputs
                if each.name not in self.graph.initializers
            ]

    @classmethod
    def load(cls, source: Any) -> Self:
        """From a file, bytes, or an onnx.ModelProto; DataLossError where it is none."""
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            return cls._parse(_mapped(path), path.parent, f"'{path}'")
        if callable(getattr(source, "SerializeToString", None)):
            source = source.SerializeToString()
        return cls._parse(source, None, "the model")

    @classmethod
    def _parse(cls, data: Any, folder: Path | None, what: str) -> Self:
        try:
            self = cls(data, folder)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, InvalidArgumentError):
                raise
            raise DataLossError(f"{what} is not an ONNX model: {error}") from error
        if not self.graph.nodes and not self.graph.outputs:
            raise DataLossError(f"{what} is not an ONNX model: it has no graph")
        return self

    def _all_names(self) -> set[str]:
        names: set[str] = set()
        for graph in self.graph.all():
            names.update(graph.initializers)
            names.update(each.name for each in (*graph.inputs, *graph.outputs))
            for node in graph.nodes:
                names.update((node.name, *node.inputs, *node.outputs))
        return names

    def name(self, base: str) -> str:
        """A name that nothing has yet."""
        name, count = base, 1
        while name in self._names:
            name, count = f"{base}_{count}", count + 1
        self._names.add(name)
        return name

    @property
    def opset(self) -> int:
        """Version of ONNX's operators."""
        return self.opsets.get("", 1)

    def tensors(self) -> Iterator[Tensor]:
        """Weights: initializers of all graphs."""
        for graph in self.graph.all():
            yield from graph.initializers.values()

    def chunks(self) -> list[Any]:
        """The message."""
        parts: list[Any] = [pb.integer(1, self.ir_version)]
        parts += self.rest
        parts += nested(7, self.graph.chunks())
        parts += _opsets(8, self.opsets)
        for function in self.functions:
            parts += nested(25, function.chunks())
        return parts

    @contextlib.contextmanager
    def scratch(self) -> Iterator[None]:
        """Edits in this context are undone at its end."""
        names = set(self._names)
        graphs = [
            (graph, (list(graph.nodes), dict(graph.initializers), list(graph.inputs)))
            for graph in self.graph.all()
        ]
        nodes = [
            (node, (list(node.inputs), list(node.outputs)))
            for graph, _ in graphs
            for node in graph.nodes
        ]
        try:
            yield
        finally:
            self._names = names
            for graph, (kept, initializers, inputs) in graphs:
                graph.nodes[:] = kept
                graph.initializers, graph.inputs = initializers, inputs
            for node, (read, made) in nodes:
                node.inputs, node.outputs = read, made

    # ---- Writing ----

    def to_bytes(self) -> bytes:
        """The model with its weights; InvalidArgumentError if that is more than a
        message may have."""
        size = sum(tensor.nbytes for tensor in self.tensors())
        if size > MESSAGE_LIMIT:
            raise InvalidArgumentError(
                f"the model has {size} bytes of weights, and ONNX's messages at most "
                f"{MESSAGE_LIMIT}: save it to a file"
            )
        return b"".join(self.chunks())

    def graph_bytes(self) -> tuple[bytes, dict[str, Any]]:
        """The model without the weights, and these, for the importer to use in place."""
        lent: dict[str, Any] = {}
        tensors = [t for t in self.graph.initializers.values() if t.can_lend]
        for tensor in tensors:
            lent[tensor.name] = tensor.buffer()
            tensor.is_lent = True
        try:
            return b"".join(self.chunks()), lent
        finally:
            for tensor in tensors:
                tensor.is_lent = False

    def save(self, path: Path, external: bool) -> None:
        """Writes a file, and PATH.data with the weights where `external` says so or they
        are too large for a message."""
        total = sum(tensor.nbytes for tensor in self.tensors())
        data = Path(f"{path}.data")
        kept: list[Any] = []
        if external or total > MESSAGE_LIMIT - (64 << 20):
            with _replacing(data) as file:
                offset = 0
                for tensor in self.tensors():
                    if tensor.nbytes < _SMALL:
                        continue
                    offset += file.write(bytes(-offset % _ALIGNMENT))
                    tensor.placed = (data.name, offset)
                    kept.append(tensor)
                    offset += file.write(tensor.buffer())
        try:
            with _replacing(path) as file:
                for chunk in self.chunks():
                    file.write(chunk)
        finally:
            for tensor in kept:
                tensor.placed = None


# Weights of fewer bytes stay in the message; others begin at such an offset.
_SMALL, _ALIGNMENT = 1024, 64


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    """A file that takes its place when it is complete: a model that is read from it stays
    readable until then, as it is mapped. Links stay, and devices and pipes are written."""
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    temporary = path.with_name(f".rabbet-{os.getpid()}-{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _mapped(path: Path) -> Any:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise DataLossError(f"'{path}' is not an ONNX model: it is empty")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
