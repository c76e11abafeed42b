"""rabbet.compile() of modules and exported programs of torch."""

from __future__ import annotations

import contextlib
import json
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from .._errors import Error, InvalidArgumentError, UnsupportedError
from .._model import Model
from .._profiles import range_of
from . import _guards
from ._building import Range, RefusedPartError, bounds, build
from ._checks import Checks, size_of
from ._complex import Pair
from ._export import exported
from ._graph import HELD, Graph, Value, described, multiple_of
from ._lent import LentModel
from ._random import draw
from ._translate import RefusedNodeError, Translation, is_number, refusal, tables

_SUFFIX = ".torch"

# Structures of arguments and results in a convention.
_TREES = ("tree", "result_tree")

# Options of compile() that say how inputs vary: dynamic_shapes does for torch.
_NOT_FOR_TORCH = ("shapes", "values")


class TorchModel:
    """A module that was compiled: called as the module is, with torch's tensors.

    Row-major tensors are used in place; results are new tensors without a gradient.
    `model` is the rabbet.Model that runs, `buffers` what a module changes in its calls.
    """

    def __init__(
        self,
        model: Model,
        convention: dict[str, Any],
        buffers: Any,
        lent: Iterable[torch.Tensor] = (),
    ) -> None:
        """lent: parameters whose memory the model's engine may read."""
        self._runs = LentModel(model, lent)
        self.buffers: dict[str, torch.Tensor] = buffers
        self._convention = convention
        self._leaves: list[list[Any]] = convention["leaves"]
        self._inputs: list[list[Any]] = convention["inputs"]
        self._results: list[list[Any]] = convention["results"]
        self._changes: list[list[Any]] = convention["changes"]
        self._tree = convention["tree"]
        self._result_tree = convention["result_tree"]
        self._checks = Checks(convention.get("conditions", ()))
        self._checked = [
            (i, leaf[1]) for i, leaf in enumerate(self._leaves) if leaf[0] == "constant"
        ]
        # The usual case: tensors by position alone, one of them for each input.
        self._is_plain = (
            not self._checked
            and not self.buffers
            and all(kind == "leaf" and not cast for kind, _, cast in self._inputs)
            and self._tree == pytree.tree_structure(((0,) * len(self._leaves), {}))
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_plain and not kwargs and len(args) == len(self._leaves):
            leaves: Sequence[Any] = args
        else:
            leaves = self._flattened(args, kwargs)
        if self._checks.own:
            self._checks.before(leaves)
        model = self._runs.model()
        try:
            found = model(*(self._read(leaves, *each) for each in self._inputs))
        except Error as error:
            self._checks.explain(leaves, error)
            raise
        outputs = found if isinstance(found, tuple) else (found,)
        for kind, which, index in self._changes:
            target = self.buffers[which] if kind == "buffer" else leaves[which]
            found = torch.as_tensor(outputs[index])
            target.copy_(torch.view_as_complex(found) if target.is_complex() else found)
        results = [_result(leaves, outputs, *each) for each in self._results]
        return pytree.tree_unflatten(results, self._result_tree)

    def _read(self, leaves: Sequence[Any], kind: str, which: Any, cast: str | None) -> Any:
        if kind == "random":
            return self._drawn(leaves, which, cast)
        value = self.buffers[which] if kind == "buffer" else leaves[which]
        if not isinstance(value, torch.Tensor):
            value = torch.tensor(value)
        if not cast:
            return value
        given = getattr(torch, cast)
        if value.dtype is not given:
            raise TypeError(
                f"input {which} is {value.dtype}; the module was compiled for {given}"
            )
        if given.is_complex:
            return torch.view_as_real(value.resolve_conj())
        return value.to(HELD[given])

    def _drawn(self, leaves: Sequence[Any], wanted: Any, cast: str | None) -> torch.Tensor:
        """Random numbers of this call."""
        places = wanted["sizes"].items()
        sizes = {name: size_of(leaves[leaf], axis) for name, (leaf, axis) in places}
        found = draw(wanted, sizes, self._runs.model().engine.device or "cpu")
        return found.to(HELD[found.dtype]) if cast else found

    def _flattened(self, args: Any, kwargs: dict[str, Any]) -> list[Any]:
        """Leaves of the arguments, checked against those of the example."""
        names = self._convention["keywords"]
        if set(names) == set(kwargs):
            kwargs = {name: kwargs[name] for name in names}
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if tree != self._tree:
            raise TypeError(
                "the arguments have another structure than those that the module was "
                f"compiled for: {_shown(tree)}; expected {_shown(self._tree)}"
            )
        for index, value in self._checked:
            if leaves[index] != value:
                raise ValueError(
                    f"argument {self._leaves[index][2]} is {leaves[index]!r}; the module "
                    f"was compiled for {value!r}"
                )
        return leaves

    @property
    def model(self) -> Model:
        """The rabbet.Model that runs; another one once a parameter whose memory it read was
        changed in place or is gone."""
        return self._runs.model()

    @property
    def report(self) -> str:
        """Table of the alternatives and choices of tuning."""
        return self.model.report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan, and PATH.torch beside it, which says how the module is called;
        rabbet.load(path) reads both. Other programs run the plan alone."""
        file = os.fspath(path)
        self.model.save(file)
        buffers = {name: tensor.cpu() for name, tensor in self.buffers.items()}
        text = json.dumps({**self._convention, **self._written_trees()})
        torch.save({"convention": text, "buffers": buffers}, f"{file}{_SUFFIX}")

    def _written_trees(self) -> dict[str, str]:
        """The structures of arguments and results as text."""
        try:
            return {
                name: pytree.treespec_dumps(self._convention[name]) for name in _TREES
            }
        except NotImplementedError as error:
            raise UnsupportedError(
                f"save: torch cannot write the structure of the results: {error}"
            ) from error

    def __repr__(self) -> str:
        return f"<TorchModel of {self.model!r}>"


def _shown(tree: Any) -> str:
    text = str(tree)
    return text if len(text) < 300 else text[:300] + "..."


def _result(leaves: Any, outputs: Any, kind: str, which: Any, cast: Any) -> Any:
    """One leaf of what the module returns."""
    if kind == "output":
        value = torch.as_tensor(outputs[which])
        if not cast:
            return value
        given = getattr(torch, cast)
        if not given.is_complex:
            return value.to(given)
        return torch.view_as_complex(value.to(given.to_real()))
    if kind == "number":
        return outputs[which].item()
    return leaves[which] if kind == "leaf" else which


def restored(model: Model, path: str) -> TorchModel:
    """The model of a plan and of the file beside it."""
    kept = torch.load(path, weights_only=True)
    device = torch.device(model.engine.device or "cpu")
    buffers = {name: tensor.to(device) for name, tensor in kept["buffers"].items()}
    convention = json.loads(kept["convention"])
    for name in _TREES:
        convention[name] = pytree.treespec_loads(convention[name])
    return TorchModel(model, convention, buffers)


# ---- Compiling -------------------------------------------------------------


def decompositions() -> Any:
    """torch's, without those of operators that are in our table."""
    table = torch.export.default_decompositions()
    kept = tables(dict(table.items()))
    for op in list(table.keys()):
        if op not in kept:
            table.pop(op)
    return table


def _tensors_of(module: Any) -> Iterable[torch.Tensor]:
    """Parameters and buffers that the caller has, and the export only refers to."""
    if isinstance(module, torch.export.ExportedProgram):
        return [t for t in module.state_dict.values() if isinstance(t, torch.Tensor)]
    return [*module.parameters(), *module.buffers()]


def _device_of(program: Any) -> str:
    """The device of the program's weights, else of its example inputs."""
    tensors = [*program.state_dict.values(), *program.constants.values()]
    tensors += pytree.tree_leaves(program.example_inputs)
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
            return str(tensor.device)
    return "cpu"


# A module's calls may change parameters as they change buffers.
_OF_STATE = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


class _Program:
    """An exported program that is being translated."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        conditions: _guards.Conditions,
        stated_least: Mapping[tuple[int, int], int],
        double: bool,
    ) -> None:
        """conditions: those of the program before it was decomposed."""
        self.program = program
        self.conditions = conditions
        # Symbols that conditions read and no argument that is used tells.
        self.untold = conditions.symbols(program)
        self.stated_least = stated_least
        self.least: dict[Any, int] = {}  # of symbols, as the caller stated it
        self.signature = program.graph_signature
        self.translation = Translation(double)
        self.graph: Graph = self.translation.graph
        self.inputs: list[list[Any]] = []
        self.leaves: list[list[Any]] = []
        self.shapes: dict[str, Any] = {}
        self.numbers: dict[str, Any] = {}
        self.symbols: dict[Any, int] = {}
        self.buffers: dict[str, torch.Tensor] = {}
        self.constants: dict[torch.fx.Node, Any] = {}  # values that weights alone tell
        self.folded: set[Any] = set()
        specs = self.signature.output_specs
        self.graph.draw = self._draw
        self.changed = {spec.target for spec in specs if spec.kind in _OF_STATE}

    # ---- Inputs ----

    def _example_leaves(self) -> list[Any]:
        return pytree.tree_leaves(self.program.example_inputs)

    def add_inputs(self) -> None:
        """Parameters become constants, arguments inputs."""
        nodes = self.program.graph.find_nodes(op="placeholder")
        examples = self._example_leaves()
        for node in nodes:
            if node.users:
                self.untold -= self._symbols_of(node.meta.get("val"))
        for node, spec in zip(nodes, self.signature.input_specs, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                self._add_leaf(node, examples[len(self.leaves)])
            elif spec.target in self.changed:
                tensor = self._tensor_of(spec)
                self.buffers[spec.target] = tensor.detach().clone()
                self._add_tensor(node, "buffer", spec.target)
            elif spec.kind is InputKind.TOKEN:  # orders effects
                self.translation.values[node] = None
            elif spec.kind is InputKind.CUSTOM_OBJ:
                raise InvalidArgumentError(
                    f"compile: the module's '{spec.target}' is an object that plans "
                    "cannot hold"
                )
            else:
                self._add_weight(node, spec)

    def _tensor_of(self, spec: Any) -> torch.Tensor:
        for table in (self.program.state_dict, self.program.constants):
            if spec.target in table:
                return table[spec.target]  # type: ignore[return-value]
        raise InvalidArgumentError(f"compile: the program lacks '{spec.target}'")

    def _add_weight(self, node: Any, spec: Any) -> None:
        if not node.users:
            return
        tensor = self._tensor_of(spec)
        self.constants[node] = tensor
        self.translation.add_weight(node, spec.target, tensor)

    def _add_leaf(self, node: Any, example: Any) -> None:
        index = len(self.leaves)
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            self.leaves.append(["tensor"])
            self._note_least(index, value)
            if node.users or self.untold & self._symbols_of(value):
                self._add_tensor(node, "leaf", index)
        elif isinstance(value, torch.SymInt):
            self.leaves.append(["number"])
            self._add_number(node, index, value)
        else:
            if not isinstance(example, (int, float, bool, str, type(None))):
                raise InvalidArgumentError(
                    f"compile: argument '{node.name}' is a {type(example).__name__}, "
                    "neither a tensor nor a number"
                )
            self.leaves.append(["constant", example, f"'{node.name}'"])
            self.translation.values[node] = example

    def _note_least(self, index: int, value: torch.Tensor) -> None:
        for axis, extent in enumerate(described(value).shape):
            least = self.stated_least.get((index, axis), 0)
            if isinstance(extent, sympy.Symbol):
                self.least[extent] = max(least, self.least.get(extent, 0))

    @staticmethod
    def _symbols_of(value: Any) -> set[sympy.Symbol]:
        """Those of a tensor's extents."""
        if not isinstance(value, torch.Tensor):
            return set()
        extents = [e for e in described(value).shape if isinstance(e, sympy.Basic)]
        return {symbol for extent in extents for symbol in extent.free_symbols}

    def _add_tensor(self, node: Any, kind: str, which: Any) -> None:
        like = described(node.meta["val"])
        name = self.translation.add_input(node, like)
        self.shapes[name] = name.shape
        self.inputs.append([kind, which, self.graph.held(like.dtype)])
        for extent, own in zip(like.shape, node.meta["val"].shape, strict=True):
            if isinstance(extent, sympy.Symbol):
                self.symbols[extent] = own.node.hint
            elif (found := multiple_of(extent)) is not None:
                symbol, factor, rest = found
                self.symbols.setdefault(symbol, (own.node.hint - rest) // factor)

    def _add_number(self, node: Any, index: int, value: Any) -> None:
        symbol = described(value)
        if not isinstance(symbol, sympy.Symbol):
            self.translation.values[node] = symbol
            return
        name = self.graph.input(node.name, torch.int64, ())
        self.graph.numbers.setdefault(symbol, name)
        self.translation.values[node] = symbol
        self.numbers[name] = symbol
        self.symbols[symbol] = value.node.hint
        self.inputs.append(["leaf", index, None])

    def _draw(self, kind: str, dtype: Any, shape: Any, parameters: Sequence[Any]) -> str:
        """Random numbers are an input, which the model draws in each call."""
        if self.graph.part:
            raise UnsupportedError("random numbers in a branch or loop")
        trees, sizes = self.conditions.sizes_of(shape)
        name = self.graph.input(self.graph.origin, dtype, shape)
        wanted = {
            "kind": kind, "dtype": str(dtype).removeprefix("torch."), "shape": trees,
            "parameters": list(parameters), "sizes": sizes,
        }  # fmt: skip
        self.shapes[name] = name.shape
        self.inputs.append(["random", wanted, self.graph.held(dtype)])
        return name

    def ranges(self) -> dict[Any, Range]:
        """The range of each symbol."""
        constraints = self.conditions.ranges
        found = {}
        for symbol, hint in self.symbols.items():
            limits = constraints.get(symbol)
            low, high = (limits.lower, limits.upper) if limits else (0, sympy.oo)
            # A least extent of 2 stands for none unless the caller stated it: torch's
            # programs do not check it.
            least = self.least.get(symbol, 0) if low == 2 else low
            found[symbol] = bounds(least, hint, high)
        return found

    def profile(self, given: Any) -> dict[Any, Range]:
        """The range of each symbol in a profile, {argument: (min, opt, max)}."""
        found = self.ranges()
        if not isinstance(given, Mapping):
            raise TypeError(
                "profiles: expected a list of {argument: shape or (min, opt, max)}, got "
                f"{given!r}"
            )
        for name, shape in given.items():
            if name not in self.shapes:
                raise InvalidArgumentError(
                    f"profiles: the module has no argument '{name}'; it has "
                    f"{', '.join(self.shapes)}"
                )
            parts = range_of(shape, name)
            if any(len(part) != len(self.shapes[name]) for part in parts):
                raise InvalidArgumentError(
                    f"profiles: argument '{name}' has {len(self.shapes[name])} "
                    f"dimensions, got {shape!r}"
                )
            for extent, *three in zip(self.shapes[name], *parts, strict=True):
                low, _, high = found.get(extent, (extent,) * 3)
                fits = isinstance(extent, (int, sympy.Symbol))
                if not fits or not low <= three[0] <= three[1] <= three[2] <= high:
                    raise InvalidArgumentError(
                        f"profiles: argument '{name}' has a dimension with the range "
                        f"{tuple(three)}; dynamic_shapes allow {extent} from {low} to {high}"
                    )
                if not isinstance(extent, int):
                    found[extent] = tuple(three)
        return found

    # ---- Nodes ----

    def add_nodes(self) -> None:
        """Writes all operators; one error names all that are unknown."""
        nodes = [n for n in self.program.graph.nodes if n.op == "call_function"]
        fixed = self._fixed(nodes)
        refused = [
            (node, reason)
            for node in nodes
            if node not in fixed and (reason := refusal(node))
        ]
        unknown = [each for each in refused if "a number that data tells" not in each[1]]
        if unknown:
            node, reason = unknown[0]
            error = RefusedNodeError(node, reason)
            names = sorted({RefusedNodeError(n, r).op for n, r in unknown} - {error.op})
            if names:
                error.args = (f"{error.args[0]}; others: {', '.join(names)}",)
            raise error
        for node in nodes:
            of_folded = node.target is operator.getitem and node.args[0] in self.folded
            if node in fixed and (of_folded or refusal(node)):
                self._fold(node)
                continue
            try:
                self.translation.add(node)
            except RefusedNodeError:
                if node not in fixed:
                    raise
                self._fold(node)

    def _fixed(self, nodes: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
        """Nodes whose results follow from weights that no call changes."""
        found = set(self.constants)
        for node in nodes:
            inputs = node.all_input_nodes
            tags = getattr(node.target, "tags", ())
            is_random = torch.Tag.nondeterministic_seeded in tags
            if inputs and found.issuperset(inputs) and not (is_random or is_number(node)):
                found.add(node)
        return found - set(self.constants)

    def _fold(self, node: torch.fx.Node) -> None:
        """Has torch compute an operator of weights alone that Rabbet lacks, such as the
        matrix exponential of an orthogonal parametrization."""
        made = self._computed(node)
        self.folded.add(node)
        if isinstance(made, torch.Tensor):  # else getitem nodes take its parts
            self.translation.add_weight(node, node.name, made)

    def _computed(self, node: torch.fx.Node) -> Any:
        """The value of a node that follows from weights."""
        if node not in self.constants:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._computed)
            self.constants[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return self.constants[node]

    def add_conditions(self) -> list[dict[str, Any]]:
        """Runs that the program does not hold for fail."""
        return self.conditions.write(self.graph, self.program)

    # ---- Outputs ----

    def add_outputs(self) -> tuple[list[list[Any]], list[list[Any]]]:
        """Results, and buffers and inputs that the module changes."""
        output = next(n for n in self.program.graph.nodes if n.op == "output")
        results: list[list[Any]] = []
        changes: list[list[Any]] = []
        count = 0
        leaf_of = self._leaves_by_node()
        for node, spec in zip(output.args[0], self.signature.output_specs, strict=True):
            if spec.kind is OutputKind.TOKEN:
                continue
            if spec.kind is OutputKind.USER_OUTPUT:
                if not isinstance(node, torch.fx.Node):
                    results.append(["constant", node, None])
                    continue
                if node in leaf_of:
                    results.append(["leaf", leaf_of[node], None])
                    continue
                count = self._add_result(node, count, results)
                continue
            kind = "buffer" if spec.kind in _OF_STATE else "leaf"
            which = spec.target if kind == "buffer" else self._leaf_named(spec.target)
            value = self.translation.values[node]
            self.translation.add_output("change", value)
            changes.append([kind, which, count])
            count += 1
        if not count:  # arguments are the results, and a plan has an output
            values = map(self.translation.values.get, leaf_of)
            for value in (v for v in values if isinstance(v, (Value, Pair))):
                self.translation.add_output("output", value)
                break
        return results, changes

    def _leaves_by_node(self) -> dict[Any, int]:
        nodes = self.program.graph.find_nodes(op="placeholder")
        user = [
            node
            for node, spec in zip(nodes, self.signature.input_specs, strict=True)
            if spec.kind is InputKind.USER_INPUT
        ]
        return {node: index for index, node in enumerate(user)}

    def _leaf_named(self, name: str) -> int:
        named = {node.name: index for node, index in self._leaves_by_node().items()}
        return named[name]

    def _add_result(self, node: Any, count: int, results: list[list[Any]]) -> int:
        value = self.translation.values[node]
        if isinstance(value, (int, float, bool)):
            results.append(["constant", value, None])
            return count
        if isinstance(value, (Value, Pair)):
            self.translation.add_output("output", value)
            results.append(["output", count, self.graph.held(node.meta["val"].dtype)])
        else:
            dtype = torch.float64 if isinstance(value, torch.SymFloat) else torch.int64
            number = self.graph.scalar(value, dtype)
            self.graph.output("output", number, dtype)
            results.append(["number", count, None])
        return count + 1


@contextlib.contextmanager
def _explained() -> Any:
    """Errors say what else can be done."""
    try:
        yield
    except RefusedNodeError as error:
        error.args = (
            f"{error.args[0]}. torch.compile(module, backend='rabbet') leaves such "
            "operators to torch",
        )
        raise


def compile_module(
    module: Any, args: Any, kwargs: Any, dynamic_shapes: Any, options: Mapping[str, Any]
) -> TorchModel:
    """Exports and builds a module; see rabbet.compile."""
    for name in _NOT_FOR_TORCH:
        if options.get(name) is not None:
            raise InvalidArgumentError(
                f"compile: {name} is not for modules of torch, whose dynamic_shapes say "
                "which dimensions vary in which range"
            )
    with torch.no_grad():
        program = exported(module, args, kwargs, dynamic_shapes)
        device = options.get("device") or _device_of(program)
        conditions = _guards.Conditions(program)
        program = program.run_decompositions(decompositions())
        conditions.specialize()
        least = _guards.stated_least(module, args, kwargs, dynamic_shapes)
        state = _Program(program, conditions, least, bool(options.get("double")))
        kept = {id(tensor) for tensor in _tensors_of(module)}
        state.graph.may_lend = lambda tensor: id(tensor) in kept
        with _explained():
            state.add_inputs()
            state.add_nodes()
            results, changes = state.add_outputs()
            checked = state.add_conditions()
    given = {name: v for name, v in options.items() if name not in _NOT_FOR_TORCH}
    profiles = given.pop("profiles", None)
    ranges = [state.ranges()] if profiles is None else [*map(state.profile, profiles)]
    save = given.pop("save", None)
    given["device"] = device
    if save is not None:
        given["save"] = save
    try:
        model = build(state.graph, state.shapes, state.numbers, ranges, given)
    except RefusedPartError as error:
        nodes = {node.name: node for node in program.graph.nodes}
        with _explained():
            raise RefusedNodeError(nodes[error.origin], str(error)) from error
    in_spec, out_spec = program.call_spec.in_spec, program.call_spec.out_spec
    keywords = in_spec.children()[1].context if in_spec.children()[1].children() else []
    convention = {
        "tree": in_spec,
        "result_tree": out_spec,
        "keywords": list(keywords or []),
        "leaves": state.leaves,
        "inputs": state.inputs,
        "results": results,
        "changes": changes,
        "conditions": checked,
    }
    compiled = TorchModel(model, convention, state.buffers, state.graph.lent.values())
    if save is not None:
        compiled.save(save)
    return compiled


