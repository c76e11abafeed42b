"""register(..., torch=True): the plugin as an operator of torch.

The operator torch.ops.NAMESPACE.NAME has the plugin's inputs and attributes. It runs
the plugin's impl. Its fake kernel, which gives tracing the shapes, is the register
function, evaluated with torch's symbolic integers. Its export writes an ONNX node, which
the importer turns into a plugin layer.
"""

from __future__ import annotations

import collections
import inspect
import math
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .._arrays import dtype_of
from .._convert import torch_dtype
from .._enums import DataType
from .._enums import DimensionOperation as Op
from .._model import Model
from .._numbers import Attr
from ._attributes import AttributeType
from ._call import build_one
from ._definition import DefinitionError
from ._instance import Instance
from ._plugin import PluginDef

# The most models that are cached: each runs one operator for given types, shapes and
# attributes.
_MAX_MODELS = 64

# For each kind of attribute: its type in torch's schemas; its type in ONNX; the suffix
# that torch's older exporter adds to an attribute's name; the code with which that
# exporter's parse_args reads the value (None: it reads no such values).
_ATTRIBUTES = {
    Attr.INT: ("int", "INT", "i", "i"),
    Attr.FLOAT: ("float", "FLOAT", "f", "f"),
    Attr.BOOL: ("bool", "INT", "i", "b"),
    Attr.STRING: ("str", "STRING", "s", "s"),
    Attr.INTS: ("int[]", "INTS", "i", "is"),
    Attr.FLOATS: ("float[]", "FLOATS", "f", "fs"),
    Attr.BOOLS: ("bool[]", "INTS", "i", "is"),
    Attr.STRINGS: ("str[]", "STRINGS", "s", None),
}

# Texts that a torch schema can have as defaults: it knows no escapes.
_PLAIN_TEXT = re.compile(r"[\w .,:;+*/=()<>-]*", re.ASCII)

# ONNX's names of the types of tensors.
_ONNX_TYPES = [
    f"tensor({name})"
    for name in (
        "float", "float16", "bfloat16", "int8", "int32", "int64", "bool", "uint8",
        "float8e4m3fn",
    )
]  # fmt: skip

_operators: dict[str, TorchOperator] = {}
_lock = threading.Lock()


def _fail(definition: PluginDef, message: str) -> DefinitionError:
    return DefinitionError(
        f"@rabbet.plugin.register('{definition.id}', torch=True): {message}"
    )


def _stored(kind: AttributeType, value: Any) -> Any:
    """The value, checked and converted to what the engine stores: a number, a text, or
    a list of either."""
    encoded = kind.encode(value)
    return encoded[1] if isinstance(encoded, tuple) else encoded


def _as_onnx(value: Any) -> Any:
    """The value with bools as ints: ONNX has no attributes of type bool."""
    if isinstance(value, list):
        return [_as_onnx(item) for item in value]
    return int(value) if isinstance(value, bool) else value


def _literal(default: Any) -> str | None:
    """The default in torch's schema syntax, or None if a schema cannot express it."""
    if isinstance(default, str):
        return f'"{default}"' if _PLAIN_TEXT.fullmatch(default) else None
    if isinstance(default, float):
        normal = math.isfinite(default) and abs(default) >= sys.float_info.min
        return repr(default) if normal or default == 0 else None
    if isinstance(default, (bool, int)):
        return repr(default)
    if any(isinstance(item, (bool, str)) for item in default):
        return None
    items = [_literal(item) for item in default]
    return None if None in items else f"[{', '.join(map(str, items))}]"


# ---- Shapes with torch's integers ------------------------------------------


class _Dims:
    """Dimensions for a register function: torch's integers, or None where the exporter
    does not know an extent. Has the interface of _rabbet.DimBuilder."""

    def __init__(self, new_size: Callable[[], Any]) -> None:
        self.values: list[Any] = []
        self.sizes: set[int] = set()
        self.new_size = new_size  # makes a data-dependent extent

    def add(self, value: Any) -> int:
        """Adds a dimension and returns its number."""
        self.values.append(value)
        return len(self.values) - 1

    constant = add

    def operation(self, op: int, a: int, b: int) -> int:
        """Adds the result of an operation on two dimensions."""
        x, y = self.values[a], self.values[b]
        known = x is not None and y is not None
        return self.add(_operations()[Op(op)](x, y) if known else None)

    def size_tensor(self, output: int, opt: int, upper: int) -> int:
        """Adds a data-dependent extent, which the size tensor `output` reports."""
        dim = self.add(self.new_size())
        self.sizes.add(dim)
        return dim

    def value(self, dim: int) -> int | None:
        """The dimension as an int; None if it is symbolic or not known."""
        found = self.values[dim]
        return found if isinstance(found, int) else None

    def is_size_tensor(self, dim: int) -> bool:
        """Whether the dimension is data-dependent."""
        return dim in self.sizes


def _operations() -> dict[Op, Callable[[Any, Any], Any]]:
    import torch

    def truth(condition: Any) -> Any:
        return torch.sym_ite(condition, 1, 0)

    return {
        Op.SUM: lambda a, b: a + b,
        Op.SUB: lambda a, b: a - b,
        Op.PROD: lambda a, b: a * b,
        Op.MAX: torch.sym_max,
        Op.MIN: torch.sym_min,
        Op.EQUAL: lambda a, b: truth(a == b),
        Op.LESS: lambda a, b: truth(a < b),
        Op.FLOOR_DIV: lambda a, b: a // b,
        Op.CEIL_DIV: lambda a, b: -(-a // b),
    }


# ---- The operator ----------------------------------------------------------


def _device(tensors: Sequence[Any]) -> Any:
    return next((tensor.device for tensor in tensors if tensor is not None), "cpu")


class TorchOperator:
    """The operator of torch that one plugin makes."""

    def __init__(self, definition: PluginDef) -> None:
        self.definition = definition
        registration = definition.registration
        parameters = inspect.signature(definition.register_function).parameters
        self.order = [
            name
            for name in parameters
            if name in registration.inputs or name in registration.attributes
        ]
        self.inputs = list(registration.inputs)
        self.attributes = registration.attributes
        self.num_outputs = registration.num_outputs
        if registration.variadic is not None:
            raise _fail(
                definition,
                f"its input '{registration.variadic}' takes any number of tensors, and "
                "torch's exporters write nodes with a fixed number of inputs",
            )
        for name, is_shape in registration.inputs.items():
            if is_shape:
                raise _fail(
                    definition,
                    f"its input '{name}' is a ShapeInput, whose values torch does not "
                    "know when it traces; make it an attribute",
                )
        for name, kind in self.attributes.items():
            if kind.code not in _ATTRIBUTES:
                raise _fail(
                    definition, f"torch has no type for its attribute '{name}' ({kind})"
                )

    @property
    def called(self) -> str:
        """The operator's name in torch, for messages."""
        return f"torch.ops.{self.definition.id.replace('::', '.')}"

    # ---- Schema ----

    def _parameter(self, name: str) -> str:
        if name in self.inputs:
            optional = name in self.definition.registration.optional
            return f"Tensor? {name}=None" if optional else f"Tensor {name}"
        kind = _ATTRIBUTES[self.attributes[name].code][0]
        defaults = self.definition.registration.defaults
        if name not in defaults:
            return f"{kind} {name}"
        default = _literal(_stored(self.attributes[name], defaults[name]))
        return f"{kind}? {name}=None" if default is None else f"{kind} {name}={default}"

    @property
    def schema(self) -> str:
        """The operator's signature in torch's schema syntax."""
        results = ", ".join(["Tensor"] * self.num_outputs)
        returned = results if self.num_outputs == 1 else f"({results})"
        return f"({', '.join(map(self._parameter, self.order))}) -> {returned}"

    def _split(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Splits a call's arguments into the inputs (None: absent) and all attributes,
        defaults included."""
        given = {**dict(zip(self.order, args, strict=False)), **kwargs}
        for name, default in self.definition.registration.defaults.items():
            if given.get(name) is None:
                given[name] = default
        attributes = {}
        for name, kind in self.attributes.items():
            try:
                attributes[name] = _stored(kind, given[name])
            except (TypeError, ValueError, OverflowError) as error:
                raise DefinitionError(
                    f"{self.called}: attribute '{name}' is {given[name]!r}, expected "
                    f"{kind}: {error}"
                ) from None
        return [given.get(name) for name in self.inputs], attributes

    # ---- Shapes ----

    def describe(
        self,
        given: Sequence[tuple[DataType, Sequence[Any]] | None],
        attributes: dict[str, Any],
        new_size: Callable[[], Any],
    ) -> list[tuple[DataType, list[Any]]]:
        """Type and shape of each output, from those of the inputs (None: absent).
        new_size makes a data-dependent extent."""
        dims: Any = _Dims(new_size)
        inputs = [
            (operand[0], tuple(dims.add(extent) for extent in operand[1]), None)
            for operand in given
            if operand is not None
        ]
        absent = sum(1 << i for i, operand in enumerate(given) if operand is None)
        values = {n: self.attributes[n].decode(v) for n, v in attributes.items()}
        instance = Instance(self.definition, values, None, absent)
        found = instance.describe(dims, inputs)
        return [
            (DataType(dtype), [dims.values[dim] for dim in shape])
            for dtype, shape, _, _ in found
        ]

    def fake(self, *args: Any, **kwargs: Any) -> Any:
        """Outputs without data, for tracing."""
        import torch

        tensors, attributes = self._split(args, kwargs)
        described = self.describe(
            [
                None if t is None else (self._dtype(name, t.dtype), t.shape)
                for name, t in zip(self.inputs, tensors, strict=True)
            ],
            attributes,
            lambda: torch.library.get_ctx().new_dynamic_size(),
        )
        device = _device(tensors)
        outputs = tuple(
            torch.empty(shape, dtype=torch_dtype(dtype), device=device)
            for dtype, shape in described
        )
        return outputs[0] if self.num_outputs == 1 else outputs

    def _dtype(self, name: str, dtype: Any) -> DataType:
        try:
            return dtype_of(dtype)
        except TypeError as error:
            raise TypeError(f"{self.called}, input '{name}': {error}") from None

    # ---- Running ----

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the impl through a model of one layer, which is cached for later calls
        with the same types, shapes and attributes."""
        tensors, attributes = self._split(args, kwargs)
        device = str(_device(tensors))
        key = (
            self.definition,
            device,
            tuple(t if t is None else (t.dtype, tuple(t.shape)) for t in tensors),
            repr(attributes),
        )
        with _lock:
            model = _models.pop(key, None)
        if model is None:
            setup = build_one(self.definition, tensors, device, None, attributes)
            model = Model(setup.engine)
        outputs = model(*(tensor for tensor in tensors if tensor is not None))
        with _lock:
            _models[key] = model
            while len(_models) > _MAX_MODELS:
                _models.popitem(last=False)
        return outputs if self.num_outputs == 1 else tuple(outputs)

    # ---- Export ----

    def _node_attributes(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes of the ONNX node, plugin_namespace included."""
        written = {name: _as_onnx(value) for name, value in attributes.items()}
        return {"plugin_namespace": self.definition.namespace, **written}

    def node(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Tensors and attributes of the node that a call is written as."""
        tensors, attributes = self._split(args, kwargs)
        return tensors, self._node_attributes(attributes)

    def translation(self) -> Callable[..., Any]:
        """The function by which torch.onnx.export(..., dynamo=True) writes the node."""
        import onnx
        from onnxscript import values

        schema = onnx.defs.OpSchema
        kinds = {
            name: getattr(schema.AttrType, _ATTRIBUTES[kind.code][1])
            for name, kind in self.attributes.items()
        }
        kinds["plugin_namespace"] = schema.AttrType.STRING
        names = [*self.inputs, *(f"output_{i}" for i in range(self.num_outputs))]
        optional = self.definition.registration.optional
        single, lacking = (
            getattr(schema.FormalParameterOption, name) for name in ("Single", "Optional")
        )
        operands = [
            schema.FormalParameter(
                name,
                f"T_{name}",
                param_option=lacking if name in optional else single,
            )
            for name in names
        ]
        declared = schema(
            self.definition.name,
            self.definition.namespace,
            1,
            inputs=operands[: len(self.inputs)],
            outputs=operands[len(self.inputs) :],
            type_constraints=[(f"T_{name}", _ONNX_TYPES, "") for name in names],
            attributes=[schema.Attribute(name, kind) for name, kind in kinds.items()],
        )
        opset = values.Opset(self.definition.namespace, 1)
        node = values.Op(opset, self.definition.name, declared)

        def translate(*args: Any, **kwargs: Any) -> Any:
            tensors, attributes = self.node(args, kwargs)
            return node(*tensors, **attributes)

        return translate

    def symbolic(self) -> Callable[..., Any]:
        """The function by which torch's older exporter (dynamo=False) writes the node."""
        from torch.onnx import symbolic_helper

        readers: list[Any] = []
        for name in self.order:
            kind = self.attributes.get(name)
            reader = "v" if kind is None else _ATTRIBUTES[kind.code][3]
            if reader is None:
                return self._refused(name)
            readers.append(reader)

        def symbol(g: Any, *args: Any) -> Any:
            tensors, attributes = self._split(args, {})
            letters = {
                name: _ATTRIBUTES[kind.code][2] for name, kind in self.attributes.items()
            }
            letters["plugin_namespace"] = "s"
            named = {
                f"{name}_{letters[name]}": value
                for name, value in self._node_attributes(attributes).items()
            }
            made = g.op(self.definition.id, *tensors, outputs=self.num_outputs, **named)
            there = [None if symbolic_helper._is_none(t) else t for t in tensors]
            self._set_types(there, attributes, made)
            return made

        # parse_args matches its codes to parameters by name.
        symbol.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
                for name in ("g", *self.order)
            ]
        )
        return symbolic_helper.parse_args(*readers)(symbol)  # type: ignore[no-any-return]

    def _refused(self, name: str) -> Callable[..., Any]:
        def symbol(g: Any, *args: Any) -> Any:
            raise _fail(
                self.definition,
                f"torch's older exporter cannot write the attribute '{name}', a list of "
                "str; export with dynamo=True",
            )

        return symbol

    def _set_types(
        self, tensors: Sequence[Any], attributes: dict[str, Any], made: Any
    ) -> None:
        """Sets types and ranks of the node's outputs, which the export of later nodes
        needs. Extents that the exporter does not know stay unknown."""
        types = [None if tensor is None else tensor.type() for tensor in tensors]
        known = [kind for kind in types if kind is not None]
        if not all(kind.dtype() and kind.sizes() is not None for kind in known):
            return
        described = self.describe(
            [
                k if k is None else (self._dtype(name, k.dtype()), k.sizes())
                for name, k in zip(self.inputs, types, strict=True)
            ],
            attributes,
            lambda: None,
        )
        outputs = [made] if self.num_outputs == 1 else made
        for output, (dtype, shape) in zip(outputs, described, strict=True):
            output.setType(known[0].with_dtype(torch_dtype(dtype)).with_sizes(shape))


    # ---- Defining ----

    def define(self) -> None:
        """Makes the operator of torch; nothing where torch is not installed, as on a
        machine that only runs plans."""
        try:
            import torch
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            return

        made = torch.library.custom_op(
            self.definition.id,
            lambda *args, **kwargs: self.run(*args, **kwargs),
            mutates_args=(),
            schema=self.schema,
        )
        made.register_fake(lambda *args, **kwargs: self.fake(*args, **kwargs))
        torch.onnx.register_custom_op_symbolic(self.definition.id, self.symbolic(), 1)
        _operators[self.definition.id] = self


_models: collections.OrderedDict[Any, Any] = collections.OrderedDict()


def operator_of(target: Any) -> TorchOperator | None:
    """The plugin's operator that a node of a graph of torch calls."""
    name = getattr(target, "name", None)
    text = name() if callable(name) else None
    return _operators.get(text) if isinstance(text, str) else None


def torch_translations() -> dict[Any, Callable[..., Any]]:
    """The custom_translation_table with which torch.onnx.export(..., dynamo=True) can
    write the operators that were registered with torch=True."""
    import torch

    def overload(operator: TorchOperator) -> Any:
        definition = operator.definition
        packet = getattr(getattr(torch.ops, definition.namespace), definition.name)
        return packet.default

    return {overload(each): each.translation() for each in _operators.values()}
