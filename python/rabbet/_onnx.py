"""OnnxParser: ONNX files to networks."""

from __future__ import annotations

import os
from typing import Any

from . import _enums as e
from . import _rabbet
from ._callbacks import ILogger, check_logger
from ._managed import Managed
from ._network import INetworkDefinition


class ParserError:
    """One thing that is wrong with a model."""

    def __init__(self, code: int, node: int, name: str, op: str, message: str) -> None:
        self._code, self._node, self._name = code, node, name
        self._op, self._message = op, message

    def code(self) -> e.ErrorCode:
        """Kind of error."""
        return _CODES.get(self._code, e.ErrorCode.INTERNAL_ERROR)

    def desc(self) -> str:
        """What is wrong."""
        return self._message

    def node(self) -> int:
        """Index of the node in its graph; -1 if it is none."""
        return self._node

    def node_name(self) -> str:
        """Name of the node."""
        return self._name

    def node_operator(self) -> str:
        """Operator of the node."""
        return self._op

    def file(self) -> str:
        """Empty: errors are about the model, not about the parser's source."""
        return ""

    def line(self) -> int:
        """0, as file()."""
        return 0

    def func(self) -> str:
        """Empty, as file()."""
        return ""

    def __str__(self) -> str:
        return self._message

    __repr__ = __str__


# By rabbet_status_code_t.
_CODES = {
    2: e.ErrorCode.INVALID_NODE,
    3: e.ErrorCode.UNSUPPORTED_NODE,
    5: e.ErrorCode.INVALID_VALUE,
    7: e.ErrorCode.MEM_ALLOC_FAILED,
    8: e.ErrorCode.UNSUPPORTED_NODE,
    10: e.ErrorCode.MODEL_DESERIALIZE_FAILED,
    11: e.ErrorCode.UNSUPPORTED_GRAPH,
    12: e.ErrorCode.MODEL_DESERIALIZE_FAILED,
}


class OnnxParser(Managed):
    """Adds an ONNX model to an empty network.

    What is wrong is raised, and all of it is listed by get_error.
    """

    def __init__(
        self, network: INetworkDefinition, logger: ILogger | None = None
    ) -> None:
        if not isinstance(network, INetworkDefinition):
            raise TypeError(
                f"OnnxParser: expected an INetworkDefinition, got {network!r}"
            )
        self._network = network
        self._logger = check_logger(logger)
        self._errors: list[ParserError] = []
        self.flags = 0

    def set_flag(self, flag: e.OnnxParserFlag) -> None:
        """Sets a flag."""
        self.flags |= 1 << int(e.OnnxParserFlag(flag))

    def clear_flag(self, flag: e.OnnxParserFlag) -> None:
        """Clears a flag."""
        self.flags &= ~(1 << int(e.OnnxParserFlag(flag)))

    def get_flag(self, flag: e.OnnxParserFlag) -> bool:
        """Whether a flag is set."""
        return bool(self.flags >> int(e.OnnxParserFlag(flag)) & 1)

    def _import(self, path: str | None, data: Any) -> bool:
        override = self.get_flag(e.OnnxParserFlag.ENABLE_PLUGIN_OVERRIDE)
        error, found = _rabbet.import_onnx(self._network, path, data, override)
        self._errors = [ParserError(*item) for item in found]
        if error is not None:
            raise error
        return True

    def parse(self, model: Any, path: str | os.PathLike[str] | None = None) -> bool:
        """Imports a model from memory; path locates external data."""
        if model is None or isinstance(model, str):
            raise TypeError(
                f"parse takes a model's bytes, got {model!r}; parse_from_file takes a path"
            )
        return self._import(None if path is None else os.fspath(path), model)

    def parse_from_file(self, model: str | os.PathLike[str]) -> bool:
        """Imports a file; its weights are used in place."""
        os.stat(model)  # FileNotFoundError, as from open()
        return self._import(os.fspath(model), None)

    def supports_operator(self, op_name: str, domain: str = "") -> bool:
        """Whether the importer knows an operator."""
        return _rabbet.onnx_supports(domain, op_name)

    @property
    def num_errors(self) -> int:
        """Errors of the last import."""
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        """An error of the last import."""
        if not 0 <= index < len(self._errors):
            raise IndexError(f"error {index}: there are {len(self._errors)}")
        return self._errors[index]

    def clear_errors(self) -> None:
        """Forgets the errors."""
        self._errors = []
