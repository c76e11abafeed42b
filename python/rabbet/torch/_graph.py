"""The ONNX graph that is being written: values, constants, sizes."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as integers

from .. import _protobuf
from .._errors import UnsupportedError
from ._lent import LEAST

# ONNX's numbers of types. DOUBLE is computed as FLOAT, but where a graph keeps it.
ONNX_TYPES = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.uint16: 4,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 1,
    torch.uint32: 12,
    torch.uint64: 13,
    torch.bfloat16: 16,
    torch.float8_e4m3fn: 17,
    torch.float8_e5m2: 19,
}

_DOUBLE = 11

HELD = {
    torch.float64: torch.float32,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
    torch.float8_e5m2: torch.float16,
}
"""Types that plans lack, and those of their inputs and outputs in their place."""


def onnx_type(dtype: Any) -> int:
    """ONNX's number of a type; UnsupportedError where plans lack it."""
    if dtype not in ONNX_TYPES:
        known = ", ".join(str(each).removeprefix("torch.") for each in ONNX_TYPES)
        raise UnsupportedError(f"plans have no type {dtype}; there are {known}")
    return ONNX_TYPES[dtype]


class Value(str):
    """Name of a tensor in the graph, with its type and shape in torch."""

    dtype: Any
    shape: Any

    @staticmethod
    def of(name: str, like: Any) -> Value:
        """A value with the type and shape of a tensor."""
        return Value.make(name, like.dtype, like.shape)

    @staticmethod
    def make(name: str, dtype: Any, shape: Sequence[Any]) -> Value:
        """A value."""
        value = Value(name)
        value.dtype, value.shape = dtype, tuple(shape)
        return value

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating one."""
        return bool(self.dtype.is_floating_point)


def expression(value: Any) -> sympy.Expr:
    """An integer of torch as an expression."""
    if isinstance(value, torch.SymInt):
        return sympy.sympify(value.node.expr)
    return value if isinstance(value, sympy.Basic) else sympy.Integer(int(value))


def extent_of(value: Any) -> Any:
    """An integer, or an expression of symbols: one of torch's would make guards."""
    if isinstance(value, torch.SymInt):
        expr = expression(value)
        return int(expr) if expr.is_Integer else expr
    if isinstance(value, torch.SymBool):
        return sympy.sympify(value.node.expr)
    if isinstance(value, sympy.Integer):
        return int(value)
    return value


def multiple_of(extent: Any) -> tuple[sympy.Symbol, int, int] | None:
    """(symbol, a, b) of an extent a * symbol + b, as `4 * Dim("n")` has it."""
    if not isinstance(extent, sympy.Expr) or len(extent.free_symbols) != 1:
        return None
    (symbol,) = extent.free_symbols
    if not extent.is_polynomial(symbol):
        return None
    rest = extent.subs(symbol, 0)
    factor = sympy.expand(extent - rest) / symbol
    if not (factor.is_Integer and rest.is_Integer and factor > 0):
        return None
    return symbol, int(factor), int(rest)


def described(value: Any) -> Any:
    """Type and shape of a result in torch; lists for several."""
    if isinstance(value, (tuple, list)):
        return [described(each) for each in value]
    if isinstance(value, torch.Tensor):
        return Value.make("", value.dtype, [extent_of(d) for d in value.shape])
    return extent_of(value)


class Graph:
    """An ONNX graph. Sizes are expressions of extents of tensors, computed in it."""

    def __init__(self, double: bool = False) -> None:
        self.double = double  # whether DOUBLE stays DOUBLE
        self.nodes: list[bytes] = []
        self.initializers: list[bytes] = []
        self.inputs: list[bytes] = []
        self.outputs: list[bytes] = []
        self.checks: dict[str, str] = {}  # messages, by conditions, which are outputs
        self.assumed: list[tuple[sympy.Basic, str]] = []  # with who assumes it
        self.domains: set[str] = set()
        self.weights: dict[str, Any] = {}  # buffers, by initializers' names
        # Of them, those that are torch's own memory, and whether a tensor may lend it.
        self.lent: dict[str, torch.Tensor] = {}
        self.may_lend: Callable[[torch.Tensor], bool] = lambda tensor: True
        self._turned: dict[str, str] = {}  # weights, by the names of their transposes
        self.part = ""  # the node of torch whose inner graph is written
        self.origin = ""  # the node of torch that is written
        self.operator = ""  # its operator
        self.used: set[int] = set()  # of several results of that node
        self.parts: dict[str, str] = {}  # nodes of torch by names of ours
        self._taken: dict[str, int] = {}
        self._known: dict[Any, str] = {}  # constants, sizes and others that exist
        # Where the extents lie that symbols stand for, and integers that are inputs.
        self.extents: dict[sympy.Symbol, tuple[str, int]] = {}
        self.numbers: dict[sympy.Expr, str] = {}
        # Real numbers that data tells.
        self.reals: dict[sympy.Expr, Value] = {}
        # Symbols that only multiples tell: the tensor's extent is a * symbol + b.
        self.derived: dict[sympy.Symbol, tuple[str, int, int, int]] = {}
        self.missing: Callable[[sympy.Expr], str] = _no_such_symbol
        # Random numbers, by kind, type, shape and parameters.
        self.draw: Callable[[str, Any, Any, Sequence[Any]], str] = _no_random_numbers

    # ---- Types ----

    def type(self, dtype: Any) -> int:
        """ONNX's number of a type in this graph."""
        return _DOUBLE if self.double and dtype is torch.float64 else onnx_type(dtype)

    def held(self, dtype: Any) -> str | None:
        """The name of a type that the plan holds in another one."""
        if dtype.is_complex:
            return str(dtype).removeprefix("torch.")
        kept = dtype not in HELD or (self.double and dtype is torch.float64)
        return None if kept else str(dtype).removeprefix("torch.")

    def _kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """Weights in the type that they have in the graph."""
        narrows = tensor.dtype is torch.float64 and not self.double
        return tensor.float() if narrows else tensor

    # ---- Nodes ----

    def name(self, base: str) -> str:
        """A name that no other tensor has."""
        count = self._taken.get(base, 0)
        self._taken[base] = count + 1
        return base if not count else f"{base}.{count}"

    def ops(
        self, kind: str, *inputs: str | None, count: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Adds a node with so many outputs."""
        outputs = [self.name(self.origin or kind) for _ in range(count)]
        self.parts[outputs[0]] = self.part or self.origin
        operands = [each or "" for each in inputs]
        while operands and not operands[-1]:
            operands.pop()
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(
            _protobuf.node(kind, operands, outputs, outputs[0], domain, given)
        )
        if domain:
            self.domains.add(domain)
        return outputs

    def op(self, kind: str, *inputs: str | None, **attributes: Any) -> str:
        """Adds a node with one output."""
        return self.ops(kind, *inputs, count=1, **attributes)[0]

    def once(self, key: Any, make: Callable[[], str]) -> str:
        """What `make` gave at the first call with this key."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """A tensor with its dimensions in another order."""
        made = self.op("Transpose", x, perm=list(perm))
        if x in self.weights and list(perm) == [1, 0]:
            self._turned[made] = str(x)
        return made

    def matmul(self, a: Value, b: str) -> str:
        """A product. A transposed weight is read where it lies, not stored transposed."""
        if b not in self._turned or a.rank < 2:
            return self.op("MatMul", a, b)
        return self.ops(
            "FusedMatMul", a, self._turned[b], count=1, domain="com.microsoft", transB=1
        )[0]

    # ---- Constants ----

    def constant(self, values: Any, dtype: Any) -> str:
        """A constant of numbers, of any nesting."""
        assert not isinstance(values, torch.Tensor), "repr shortens a tensor's numbers"
        key = (repr(values), dtype)
        if key not in self._known:
            made = torch.tensor(values, dtype=dtype)
            self._known[key] = self.literal(made)
        return self._known[key]

    def literal(self, made: torch.Tensor) -> str:
        """A constant whose elements stand in the model."""
        made = self._kept(made)
        name = self.name("constant")
        data = made.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        number = self.type(made.dtype)
        self.initializers.append(_protobuf.tensor(name, number, made.shape, data))
        return name

    def weight(self, base: str, tensor: torch.Tensor) -> str:
        """A constant whose memory is lent to the importer."""
        name = self.name(base)
        data = self._kept(tensor.detach()).cpu().contiguous()
        number = self.type(data.dtype)
        self.initializers.append(_protobuf.tensor(name, number, data.shape, None))
        self.weights[name] = data.reshape(-1).view(torch.uint8).numpy()
        # Changes of inference tensors are not counted.
        is_own = data.data_ptr() == tensor.data_ptr() and not tensor.is_inference()
        if is_own and self.weights[name].nbytes >= LEAST and self.may_lend(tensor):
            self.lent[name] = tensor
        return name

    def scalar(self, value: Any, dtype: Any) -> str:
        """A number as a tensor of rank 0; sizes are computed."""
        if isinstance(value, torch.SymFloat):
            return self.to(Value.make(self.real(value.node.expr), torch.float64, ()), dtype)
        if isinstance(value, (torch.SymInt, sympy.Basic)):
            size = self.op("Squeeze", self.size(value), self.constant([0], torch.int64))
            return size if dtype is torch.int64 else self.cast(size, dtype)
        if isinstance(value, torch.SymBool):
            raise UnsupportedError(f"a condition on shapes as a number, {value}")
        if not (dtype.is_floating_point or dtype is torch.bool):
            value = int(value)
        return self.constant(value, dtype)

    def cast(self, x: str, dtype: Any) -> str:
        """The tensor in a type."""
        return self.op("Cast", x, to=self.type(dtype))

    def to(self, x: Any, dtype: Any) -> str:
        """A value or number as a tensor of the type."""
        if not isinstance(x, Value):
            return self.scalar(x, dtype)
        same = self.type(x.dtype) == self.type(dtype)
        return x if same else self.cast(x, dtype)

    # ---- Sizes ----

    def ints(self, values: Sequence[Any]) -> str:
        """A vector of INT64."""
        if all(isinstance(v, int) for v in values):
            return self.constant(list(values), torch.int64)
        parts = [self.size(value) for value in values]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def size(self, value: Any) -> str:
        """An integer as a vector of one INT64."""
        expr = expression(value)
        if expr.is_Integer:
            return self.constant([int(expr)], torch.int64)
        if expr not in self._known:
            self._known[expr] = self._compute(expr)
        return self._known[expr]

    def real(self, expr: sympy.Expr) -> str:
        """A real number that sizes tell, of rank 0."""
        if expr.is_number:
            return self.constant(float(expr), torch.float64)
        if expr in self.reals:
            return self.to(self.reals[expr], torch.float64)
        if expr.is_integer:
            return self.scalar(expr, torch.float64)
        for kind, node in _REALS.items():
            if isinstance(expr, kind):
                first, *rest = map(self.real, expr.args)
                if not rest:
                    return self.op(node, first)
                return functools.reduce(lambda a, b: self.op(node, a, b), rest, first)
        raise UnsupportedError(f"a number is '{expr}', which no table has")

    def _compute(self, expr: sympy.Expr) -> str:
        if isinstance(expr, sympy.Symbol):
            return self._symbol(expr)
        reason = f"a size is '{expr}' ({type(expr).__name__}), which no table has"
        for kind, write in _EXPRESSIONS.items():
            if isinstance(expr, kind):
                try:
                    return write(self, *expr.args)
                except UnsupportedError as error:
                    reason = str(error)
        try:
            return self._given(expr)
        except UnsupportedError:
            raise UnsupportedError(reason) from None

    def _symbol(self, symbol: sympy.Symbol) -> str:
        if symbol in self.extents:
            name, axis = self.extents[symbol]
            return self.op("Shape", name, start=axis, end=axis + 1)
        if symbol in self.derived and symbol not in self.numbers:
            name, axis, factor, rest = self.derived[symbol]
            size = self.op("Shape", name, start=axis, end=axis + 1)
            size = self.op("Sub", size, self.constant([rest], torch.int64))
            return self.op("Div", size, self.constant([factor], torch.int64))
        return self._given(symbol)

    def _given(self, expr: sympy.Expr) -> str:
        """A size that is an input."""
        if expr not in self.numbers:
            self.numbers[expr] = self.missing(expr)
        number = self.op("Cast", self.numbers[expr], to=7)
        return self.op("Reshape", number, self.constant([1], torch.int64))

    def _fold(self, kind: str, *args: Any) -> str:
        result = self.size(args[0])
        for arg in args[1:]:
            result = self.op(kind, result, self.size(arg))
        return result

    def _floor_div(self, a: Any, b: Any) -> str:
        x, y = self.size(a), self.size(b)
        if not (a.is_nonnegative and b.is_positive):
            x = self.op("Sub", x, self.op("Mod", x, y))
        return self.op("Div", x, y)

    def _rounded(self, real: Any, up: bool) -> str:
        """The integer at or next to a quotient of sizes, as arange with a float step
        has it."""
        found = fraction(real)
        if found is None:
            raise UnsupportedError(f"a size is '{real}', rounded")
        a, b = found
        floor = integers.FloorDiv(-a if up else a, b)
        return self.size(-floor if up else floor)

    def _truncated(self, real: Any) -> str:
        """The integer at or next to a number that is not negative, towards 0."""
        found = fraction(real)
        if found is None or not found[0].is_nonnegative:
            raise UnsupportedError(f"a size is '{real}', truncated")
        return self._rounded(real, False)

    def _nearest(self, real: Any) -> str:
        """The integer nearest to a quotient of sizes, the even one of two."""
        found = fraction(real)
        if found is None or not found[0].is_nonnegative:
            raise UnsupportedError(f"a size is '{real}', rounded to the nearest")
        above, below = 2 * found[0] + found[1], 2 * found[1]
        up = integers.FloorDiv(above, below)
        is_between = 1 - sympy.Min(1, integers.Mod(above, below))
        return self.size(up - is_between * integers.Mod(up, sympy.Integer(2)))

    def _case(self, cases: Sequence[Any]) -> str:
        """The first value whose condition holds; the last one's always does."""
        found = self.size(cases[-1][0])
        for value, holds in reversed(cases[:-1]):
            found = self.op("Where", self.truth(holds), self.size(value), found)
        return found

    def _power(self, base: Any, exponent: Any) -> str:
        if not exponent.is_Integer or not 0 < int(exponent) < 8:
            raise UnsupportedError(f"a size is a power, '{base}**{exponent}'")
        return self._fold("Mul", *[base] * int(exponent))

    # ---- Graphs of nodes ----

    @contextlib.contextmanager
    def inner(self) -> Iterator[Inner]:
        """Nodes that are added are those of an inner graph, which sees all names of this
        one. Its own names are not known afterwards."""
        nodes, part, origin = self.nodes, self.part, self.origin
        with self.scope():
            self.nodes, self.part = [], part or origin
            try:
                yield Inner(self)
            finally:
                self.nodes, self.part, self.origin = nodes, part, origin

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is known of sizes in it is forgotten afterwards."""
        names = ("_known", "extents", "numbers", "derived", "_turned")
        outer = {name: getattr(self, name) for name in names}
        for name, known in outer.items():
            setattr(self, name, dict(known))
        try:
            yield
        finally:
            for name, known in outer.items():
                setattr(self, name, known)

    def rebind(self, symbol: sympy.Symbol, to: str | tuple[str, int]) -> None:
        """From now on a symbol is this scalar, or this extent of a tensor."""
        for expr in list(self._known):
            if isinstance(expr, sympy.Basic) and symbol in expr.free_symbols:
                del self._known[expr]
        self.extents.pop(symbol, None)
        self.numbers.pop(symbol, None)
        self.derived.pop(symbol, None)
        if isinstance(to, str):
            self.numbers[symbol] = to
        else:
            self.extents[symbol] = to

    def truth(self, expr: Any) -> str:
        """A condition on sizes as a tensor of BOOL."""
        if expr in (True, False):
            return self.constant(bool(expr), torch.bool)
        if isinstance(expr, sympy.Not):
            return self.op("Not", self.truth(expr.args[0]))
        for kind, name in _CONDITIONS.items():
            if isinstance(expr, kind):
                return self._condition(name, expr.args)
        raise UnsupportedError(f"a condition is '{expr}', which no table has")

    def _condition(self, name: str, args: Sequence[Any]) -> str:
        if name in ("And", "Or"):
            found = self.truth(args[0])
            for arg in args[1:]:
                found = self.op(name, found, self.truth(arg))
            return found
        fractions = [fraction(arg) for arg in args]
        if not all(fractions):
            raise UnsupportedError(f"a condition compares '{args[0]}' with '{args[1]}'")
        (above, below), (other, divisor) = fractions  # type: ignore[misc]
        sides = (extent_of(above * divisor), extent_of(other * below))
        a, b = (self.scalar(side, torch.int64) for side in sides)
        if name == "NotEqual":
            return self.op("Not", self.op("Equal", a, b))
        return self.op(name, a, b)

    # ---- Inputs and outputs ----

    def know(self, value: Value) -> None:
        """Symbols of a tensor's shape are its extents from now on."""
        for axis, extent in enumerate(value.shape):
            if isinstance(extent, sympy.Symbol):
                self.extents.setdefault(extent, (value, axis))
            elif (found := multiple_of(extent)) is not None:
                symbol, factor, rest = found
                self.derived.setdefault(symbol, (value, axis, factor, rest))

    def input(self, name: str, dtype: Any, shape: Sequence[Any]) -> Value:
        """Adds an input; symbolic extents get their expressions as names."""
        dims = [d if isinstance(d, int) else str(d) for d in shape]
        value = Value.make(self.name(name), dtype, shape)
        self.inputs.append(_protobuf.value_info(value, self.type(dtype), dims))
        self.know(value)
        return value

    def output(self, base: str, x: str, dtype: Any) -> str:
        """Adds an output."""
        name = self.name(base)
        self.nodes.append(_protobuf.node("Identity", [x], [name], name, "", {}))
        self.outputs.append(_protobuf.value_info(name, self.type(dtype), None))
        return name

    def assume(self, expr: sympy.Basic) -> None:
        """Notes a condition on sizes under which the node computes what torch does. Who
        made the graph sees to it: torch.compile traces other sizes anew."""
        self.assumed.append((expr, f"{self.operator}, node '{self.origin}'"))

    def check(self, holds: str, message: str) -> None:
        """Runs fail unless the condition holds."""
        self.checks[self.output("check", holds, torch.bool)] = message

    def place(self, symbol: sympy.Symbol) -> str:
        """What a symbol stands for, in words."""
        if symbol in self.extents:
            name, axis = self.extents[symbol]
            return f"{name}.shape[{axis}]"
        return self.numbers.get(symbol, str(symbol))

    def model(self) -> bytes:
        """The ONNX model."""
        return _protobuf.model(
            self.nodes, self.initializers, self.inputs, self.outputs, sorted(self.domains)
        )


class Inner:
    """The inner graph that is being written."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def input(self, base: str, dtype: Any) -> str:
        """Adds an input."""
        name = self._graph.name(base)
        self._inputs.append(_protobuf.value_info(name, self._graph.type(dtype), None))
        return name

    def output(self, x: str, dtype: Any) -> None:
        """Adds an output, which is a name of its own."""
        name = self._graph.op("Identity", x)
        self._outputs.append(_protobuf.value_info(name, self._graph.type(dtype), None))

    def attribute(self) -> _protobuf.Subgraph:
        """The graph, as the value of an attribute."""
        return _protobuf.Subgraph(
            _protobuf.graph("inner", self._graph.nodes, (), self._inputs, self._outputs)
        )


_CONDITIONS: dict[Any, str] = {
    sympy.StrictLessThan: "Less",
    sympy.LessThan: "LessOrEqual",
    sympy.StrictGreaterThan: "Greater",
    sympy.GreaterThan: "GreaterOrEqual",
    sympy.Equality: "Equal",
    sympy.Unequality: "NotEqual",
    sympy.And: "And",
    sympy.Or: "Or",
}


def _no_such_symbol(symbol: sympy.Expr) -> str:
    raise UnsupportedError(f"no input's shape tells the size '{symbol}'")


def _no_random_numbers(*args: Any) -> str:
    raise UnsupportedError("random numbers, which torch draws")


def fraction(real: Any) -> tuple[sympy.Expr, sympy.Integer] | None:
    """A real number as an integer expression over a positive integer, which doubles hold
    without rounding."""
    if isinstance(real, integers.ToFloat):
        return real.args[0], sympy.Integer(1)
    if isinstance(real, sympy.Float):
        number = sympy.Rational(float(real))
        return (sympy.Integer(number.p), sympy.Integer(number.q)) if _is_short(number) else None
    if isinstance(real, sympy.Mul) and not real.is_integer:
        return _product(real.args)
    if not isinstance(real, (integers.FloatTrueDiv, integers.IntTrueDiv)):
        return (real, sympy.Integer(1)) if real.is_integer else None
    above, below = real.args
    found = fraction(above)
    if found is None or not below.is_number or below.is_zero:
        return None
    by = sympy.Rational(below)
    if not _is_short(by):
        return None
    sign = 1 if by > 0 else -1
    return found[0] * (by.q * sign), found[1] * abs(by.p)


def _is_short(number: sympy.Rational) -> bool:
    """Whether products of sizes and the number are exact in doubles: they round 0.1."""
    return bool(number.q <= 1024 and abs(number.p) <= 2**20)


def _product(factors: Sequence[Any]) -> tuple[sympy.Expr, sympy.Integer] | None:
    """A product by binary fractions alone, which doubles have without rounding."""
    above, below = sympy.Integer(1), sympy.Integer(1)
    for factor in factors:
        found = fraction(factor)
        if found is None or int(found[1]).bit_count() != 1:
            return None
        above, below = above * found[0], below * found[1]
    return above, below


_REALS: dict[Any, str] = {
    sympy.Add: "Add",
    sympy.Mul: "Mul",
    sympy.Max: "Max",
    sympy.Min: "Min",
    sympy.Abs: "Abs",
    integers.Max: "Max",
    integers.Min: "Min",
    integers.IntTrueDiv: "Div",
    integers.FloatTrueDiv: "Div",
    integers.FloatPow: "Pow",
    integers.ToFloat: "Identity",
    integers.OpaqueUnaryFn_sqrt: "Sqrt",
    integers.OpaqueUnaryFn_exp: "Exp",
    integers.OpaqueUnaryFn_log: "Log",
}


_EXPRESSIONS: dict[Any, Callable[..., str]] = {
    integers.CeilToInt: lambda g, a: g._rounded(a, True),
    integers.FloorToInt: lambda g, a: g._rounded(a, False),
    integers.RoundToInt: lambda g, a: g._nearest(a),
    integers.TruncToInt: lambda g, a: g._truncated(a),
    sympy.Add: lambda g, *args: g._fold("Add", *args),
    sympy.Mul: lambda g, *args: g._fold("Mul", *args),
    sympy.Pow: lambda g, a, b: g._power(a, b),
    sympy.Max: lambda g, *args: g._fold("Max", *args),
    sympy.Min: lambda g, *args: g._fold("Min", *args),
    integers.Max: lambda g, *args: g._fold("Max", *args),
    integers.Min: lambda g, *args: g._fold("Min", *args),
    integers.CleanDiv: lambda g, a, b: g._floor_div(a, b),
    integers.FloorDiv: lambda g, a, b: g._floor_div(a, b),
    integers.Mod: lambda g, a, b: g._fold("Mod", a, b),
    integers.PythonMod: lambda g, a, b: g._fold("Mod", a, b),
    integers.ModularIndexing: lambda g, x, a, b: g._fold(
        "Mod", integers.FloorDiv(x, a), b
    ),
    integers.PowByNatural: lambda g, a, b: g._power(a, b),
    integers.Identity: lambda g, a: g.size(a),
    sympy.Piecewise: lambda g, *cases: g._case(cases),
}


def broadcast(*shapes: Sequence[Any]) -> list[Any]:
    """The shape of tensors that are broadcast together."""
    rank = max(len(shape) for shape in shapes)
    found: list[Any] = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if not (isinstance(extent, int) and extent == 1):
                found[axis] = extent
    return found


def quotient(a: Any, b: Any) -> Any:
    """a // b."""
    return a // b if isinstance(a, int) else integers.FloorDiv(a, sympy.Integer(b))


def numel(shape: Sequence[Any]) -> Any:
    """Number of elements, an integer or an expression."""
    return math.prod(shape) if shape else 1
