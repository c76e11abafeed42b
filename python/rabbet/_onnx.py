"""OnnxParser: imports ONNX models into networks."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from . import _enums as e
from . import _rabbet
from ._callbacks import ILogger, Logger
from ._checked import File, checks_arguments
from ._config import IBuilderConfig
from ._errors import Error, FailedPreconditionError, NotFoundError
from ._layers._layer import ITensor
from ._managed import Managed, no_effect
from ._network import INetworkDefinition


def get_nv_onnx_parser_version() -> int:
    """The version of TensorRT's parser whose interface this one has: 10.16.0."""
    return 101600


class NodeIndices(list[int]):
    """Indices of nodes."""

    def __bool__(self) -> bool:
        return len(self) > 0


class SubGraphCollection(list[tuple[NodeIndices, bool]]):
    """Sequences of nodes, each with whether it can be imported."""

    def __bool__(self) -> bool:
        return len(self) > 0


class ParserError:
    """An error in a model."""

    def __init__(self, code: int, node: int, name: str, op: str, message: str) -> None:
        self._code, self._node, self._name = code, node, name
        self._op, self._message = op, message

    def code(self) -> e.ErrorCode:
        """Kind of error."""
        return _CODES.get(self._code, e.ErrorCode.INTERNAL_ERROR)

    def desc(self) -> str:
        """The message."""
        return self._message

    def node(self) -> int:
        """Index of the node in its graph; -1 for other errors."""
        return self._node

    def node_name(self) -> str:
        """Name of the node."""
        return self._name

    def node_operator(self) -> str:
        """Operator of the node."""
        return self._op

    def file(self) -> str:
        """Always empty: errors concern the model, not the parser's source."""
        return ""

    def line(self) -> int:
        """Always 0, as for file()."""
        return 0

    def func(self) -> str:
        """Always empty, as for file()."""
        return ""

    def local_function_stack(self) -> list[str]:
        """Always empty: the message names the functions that contain the node."""
        return []

    def local_function_stack_size(self) -> int:
        """Always 0, as for local_function_stack()."""
        return 0

    def __str__(self) -> str:
        return self._message

    __repr__ = __str__


def _bytes_of(data: Any, size: int) -> bytes:
    """Bytes of a buffer or at an address; `size` must match a buffer's."""
    if isinstance(data, int):
        return ctypes.string_at(data, size)
    found = bytes(memoryview(data).cast("B"))
    if size not in (0, len(found)):
        raise ValueError(f"{len(found)} bytes were given, and their size as {size}")
    return found


# Error codes by status code.
_CODES = {
    _rabbet.NUMBERS[f"STATUS_{status}"]: code
    for status, code in {
        "INVALID_ARGUMENT": e.ErrorCode.INVALID_NODE,
        "NOT_FOUND": e.ErrorCode.UNSUPPORTED_NODE,
        "OUT_OF_RANGE": e.ErrorCode.INVALID_VALUE,
        "OUT_OF_MEMORY": e.ErrorCode.MEM_ALLOC_FAILED,
        "UNSUPPORTED": e.ErrorCode.UNSUPPORTED_NODE,
        "DATA_LOSS": e.ErrorCode.MODEL_DESERIALIZE_FAILED,
        "INCOMPATIBLE": e.ErrorCode.UNSUPPORTED_GRAPH,
        "IO": e.ErrorCode.MODEL_DESERIALIZE_FAILED,
    }.items()
}


@checks_arguments
class OnnxParser(Managed):
    """Adds an ONNX model to an empty network.

    The first error is raised, and get_error lists all.
    """

    flags = 0
    double = False
    """Whether DOUBLE stays DOUBLE, which the CPU computes; else it is rounded to FLOAT."""
    input_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """Shapes of inputs in all runs, for extents that the model leaves open; -1 stays open.
    What depends on them (the rank of a `Squeeze`, the branch of an `If`) is imported for
    these."""
    usual_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """Shapes of inputs in most runs: an `If` whose branches differ in rank is imported with
    the rank of these."""
    _subgraphs: list[tuple[list[int], bool]]
    _proto: tuple[bytes, File | None] | None = None
    _lent = False

    def __init__(
        self, network: INetworkDefinition, logger: ILogger | None = None
    ) -> None:
        self._network = network
        self._logger = logger or Logger()
        self._errors: list[ParserError] = []
        self._subgraphs = []
        self._initializers: dict[str, bytes] = {}

    def set_flag(self, flag: e.OnnxParserFlag) -> None:
        """Sets a flag."""
        self.flags |= 1 << int(flag)

    def clear_flag(self, flag: e.OnnxParserFlag) -> None:
        """Clears a flag."""
        self.flags &= ~(1 << int(flag))

    def get_flag(self, flag: e.OnnxParserFlag) -> bool:
        """Whether a flag is set."""
        return bool(self.flags >> int(flag) & 1)

    def _import(self, path: File | None, data: Any) -> bool:
        override = self.get_flag(e.OnnxParserFlag.ENABLE_PLUGIN_OVERRIDE)
        error, found, nodes = _rabbet.import_onnx(
            self._network,
            path,
            data,
            override,
            self._initializers,
            self._lent,
            bool(self.double),
            dict(self.input_shapes),
            dict(self.usual_shapes),
        )
        self._errors = [ParserError(*item[:-1]) for item in found]
        self._divide(nodes, {item[-1] for item in found})
        if error is not None:
            raise error
        return True

    def _divide(self, nodes: int, bad: set[int]) -> None:
        """Sequences of nodes without an error. Clients cut out a sequence that is not
        known to be importable and query it alone; a node with an error must be in none,
        or they would query it forever."""
        runs: list[list[int]] = []
        for node in range(nodes):
            if node in bad:
                continue
            if not runs or runs[-1][-1] != node - 1:
                runs.append([])
            runs[-1].append(node)
        # An error of the whole model says nothing about a sequence of nodes.
        self._subgraphs = [] if -1 in bad else [(run, not bad) for run in runs]

    def parse(self, model: Any, path: File | None = None) -> bool:
        """Imports a model from memory; path locates external data."""
        if model is None or isinstance(model, str):
            raise TypeError(
                f"parse takes a model's bytes, got {model!r}; parse_from_file takes a path"
            )
        return self._import(path, model)

    def parse_from_file(self, model: File) -> bool:
        """Imports a file; the network uses its weights without a copy."""
        os.stat(model)  # FileNotFoundError, as from open()
        return self._import(model, None)

    def parse_with_weight_descriptors(self, model: Any) -> bool:
        """Alias of parse."""
        return self.parse(model)

    # ---- Nodes that can be imported

    def supports_model_v2(
        self, model: Any, path: File | None = None
    ) -> bool:
        """Whether a model can be imported; the network is not changed. Afterwards the
        subgraphs and errors describe the model."""
        network, self._network = (
            self._network,
            INetworkDefinition(self._network.flags, self._logger),
        )
        try:
            return self.parse(model, path)
        except (Error, OSError):
            return False
        finally:
            self._network = network

    def supports_model(
        self, model: Any, path: File | None = None
    ) -> tuple[bool, SubGraphCollection]:
        """(whether the model can be imported, [(nodes, whether importable), ...]); see
        num_subgraphs."""
        answer = self.supports_model_v2(model, path)
        parts = [(NodeIndices(nodes), good) for nodes, good in self._subgraphs]
        return answer, SubGraphCollection(parts)

    @property
    def num_subgraphs(self) -> int:
        """Number of sequences of nodes, in the model's order, that contain no node with
        an error."""
        return len(self._subgraphs)

    def _subgraph(self, index: int) -> tuple[list[int], bool]:
        if not 0 <= index < len(self._subgraphs):
            raise IndexError(f"subgraph {index}: there are {len(self._subgraphs)}")
        return self._subgraphs[index]

    def is_subgraph_supported(self, index: int) -> bool:
        """Whether a subgraph is known to be importable, which requires that it is the
        whole model. Cut out others and query them alone: nodes after an error were not
        checked."""
        return self._subgraph(index)[1]

    def get_subgraph_nodes(self, index: int) -> list[int]:
        """Indices of a subgraph's nodes."""
        return list(self._subgraph(index)[0])

    def get_layer_output_tensor(self, name: str, i: int) -> ITensor | None:
        """Output i of the layer made from the node of that name."""
        for layer in self._network:
            if layer.name == name:
                return layer.get_output(i)
        raise NotFoundError(f"no layer was made of a node named '{name}'")

    def get_used_vc_plugin_libraries(self) -> list[str]:
        """Always empty: no operator needs a library of its own."""
        return []

    @no_effect("what can be imported is the same for every configuration")
    def set_builder_config(self, builder_config: IBuilderConfig) -> bool:
        """Accepted without effect: import does not depend on the configuration."""
        return True

    # ---- In steps

    def load_model_proto(
        self, model: Any, path: File | None = None
    ) -> bool:
        """Keeps a model's bytes for parse_model_proto."""
        self._proto = bytes(model), path
        return True

    def load_initializer(self, name: str, data: Any, size: int) -> bool:
        """Sets weights in place of an initializer's own, from a buffer or an address of
        `size` bytes."""
        self._initializers[name] = _bytes_of(data, size)
        return True

    def _lend_initializers(self, buffers: dict[str, Any]) -> None:
        """Memory for initializers, which the network uses in place and keeps."""
        self._initializers, self._lent = buffers, True
        self._network._lent_weights = buffers

    def parse_model_proto(self) -> bool:
        """Imports the model that load_model_proto kept."""
        if self._proto is None:
            raise FailedPreconditionError("there is no model: call load_model_proto")
        return self.parse(*self._proto)

    def supports_operator(self, op_name: str, domain: str = "") -> bool:
        """Whether the importer knows an operator."""
        return _rabbet.onnx_supports(domain, op_name)

    @property
    def num_errors(self) -> int:
        """Number of errors of the last import."""
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        """An error of the last import."""
        if not 0 <= index < len(self._errors):
            raise IndexError(f"error {index}: there are {len(self._errors)}")
        return self._errors[index]

    def clear_errors(self) -> None:
        """Removes the errors."""
        self._errors = []
