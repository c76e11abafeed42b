"""Random ONNX networks with dynamic shapes, and what ONNX Runtime makes of them.

Each tensor is known in all runs as soon as its node is there: ONNX Runtime has
computed it, so that a node is kept only if it works with the shapes of every run.
Beside the values lie copies of them that went the same way with noise added after
each node, which tell how far another order of sums may lead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

OPSET = 18
RUNS = 8  # min, opt, max of a first profile, then of a second one or between; between
USUAL = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 48, 64, 100, 150]  # sizes at opt
COPIES = 2  # with noise

Arrays = list[list[np.ndarray]]  # by run: the value, then its copies


class Rejected(Exception):
    """The node cannot be had: ONNX Runtime refuses it, or its result is no use."""


class Tensor:
    """The value of a name: arrays of each run."""

    def __init__(self, name: str, runs: Arrays) -> None:
        self.name, self.runs = name, runs
        self.dtype = runs[0][0].dtype
        self.shapes = [run[0].shape for run in runs]
        self.rank = len(self.shapes[0])
        self.readers = 0
        self.exact = False  # computed from sizes: no noise

    def sizes(self, axis: int) -> list[int]:
        """Of the axis in each run."""
        return [shape[axis] for shape in self.shapes]

    def fixed(self, axis: int) -> bool:
        """Whether all runs have the same size."""
        return len(set(self.sizes(axis))) == 1

    @property
    def is_float(self) -> bool:
        return bool(self.dtype == np.float32)


def element_type(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    """Runs the model as it is written."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def make_model(
    nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], constants: Any
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = helper.make_graph(list(nodes), "random", list(inputs), list(outputs), tensors)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


class Network:
    """A network that grows node by node."""

    def __init__(
        self, rng: np.random.Generator, noise: float, profiles: int, empty: bool = False
    ) -> None:
        self.rng, self.noise, self.profiles, self.empty = rng, noise, profiles, empty
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.tensors: dict[str, Tensor] = {}
        self.inputs: dict[str, list[Any]] = {}  # dims: sizes, or names of symbols
        self.outputs: list[str] = []
        self.shape_inputs: set[str] = set()  # their values are sizes
        self.symbols: dict[str, list[int]] = {}
        # Which profile the runs belong to.
        self.profile_of = [0] * 3 + [1 % profiles] * 3
        while len(self.profile_of) < RUNS:
            self.profile_of.append(int(rng.integers(profiles)))
        self.large = False
        self.largest = 6000  # elements of a tensor
        self.quantum = 0.0  # more noise than usual that is not refused

    # ---- Chance ----

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def pick(self, fits: Callable[[Tensor], bool] = lambda t: t.is_float) -> Tensor:
        """A tensor that fits; most often a late one."""
        found = [t for t in self.tensors.values() if fits(t)]
        if not found:
            raise Rejected("no tensor that fits")
        return self.one(found[-3:] if self.chance(0.7) else found)  # type: ignore[no-any-return]

    # ---- Symbols and inputs ----

    def corners(self) -> list[int]:
        """First runs of the profiles: there all sizes are smallest."""
        return [0, 3][: self.profiles]

    def symbol(self, largest: int = 32) -> str:
        """A new size that varies, or one of before. largest: at opt."""
        if self.symbols and self.chance(0.5):
            return str(self.one(list(self.symbols)))
        usual = [n for n in USUAL if n <= (largest * 5 if self.large else largest)]
        sizes = [0] * RUNS
        if self.chance(0.2):
            return self.new_symbol(self.sometimes_one([self.one(usual[1:])] * RUNS))
        for profile, corner in enumerate(self.corners()):
            opt = self.one(usual)
            low = 1 if self.chance(0.6) else int(self.rng.integers(1, opt + 1))
            if self.empty and self.chance(0.5):
                low = 0
            high = opt if self.chance(0.3) else int(opt + self.rng.integers(0, opt + 3))
            high += low == high
            for run in range(RUNS):
                if self.profile_of[run] == profile:
                    sizes[run] = int(self.rng.integers(low, high + 1))
            sizes[corner : corner + 3] = low, opt, high
        return self.new_symbol(sizes)

    def check_symbol(self, sizes: list[int]) -> None:
        for profile, corner in enumerate(self.corners()):
            of_it = [s for s, p in zip(sizes, self.profile_of, strict=True) if p == profile]
            if min(of_it) < sizes[corner] or max(of_it) > sizes[corner + 2]:
                raise Rejected("sizes that shrink where others grow")

    def new_symbol(self, sizes: list[int]) -> str:
        self.check_symbol(sizes)
        name = f"s{len(self.symbols)}"
        self.symbols[name] = sizes
        return name

    def symbol_of(self, sizes: list[int], apart: bool = False) -> Any:
        """A dimension of an input with these sizes; apart: with a symbol of its own."""
        if len(set(sizes)) == 1 and not apart:
            return sizes[0]
        same = [name for name, of in self.symbols.items() if of == sizes]
        if same and not apart:
            return self.one(same)
        return self.new_symbol(sizes)

    def sometimes_one(self, sizes: list[int]) -> list[int]:
        """Equal where all is as usual, one in some runs."""
        corners = self.corners()
        usual = {c + i for c in corners for i in (1, 2)}
        return [
            s if run in usual or (run not in corners and self.chance(0.5)) else 1
            for run, s in enumerate(sizes)
        ]

    def input(self, dims: Sequence[Any], dtype: Any = np.float32, top: int = 0) -> Tensor:
        """dims: sizes and names of symbols. top: of integers, exclusive."""
        name = f"x{len(self.inputs)}"
        runs = []
        for run in range(RUNS):
            shape = tuple(self.symbols[d][run] if isinstance(d, str) else d for d in dims)
            if np.prod(shape) > self.largest:
                raise Rejected("too large")
            if dtype == np.float32:
                value = self.normal(*shape)
            else:
                value = self.rng.integers(0, top, shape).astype(dtype)
            runs.append(self.copies([value] * (COPIES + 1)))
        self.inputs[name] = list(dims)
        return self.keep(name, runs)

    def sizes_input(self, columns: list[list[int]]) -> Tensor:
        """An input of sizes: a list of those of each run for each element."""
        if not columns:
            raise Rejected("no sizes")
        for sizes in columns:
            self.check_symbol(sizes)
        runs = [
            [np.array([sizes[run] for sizes in columns], np.int64)] * (COPIES + 1)
            for run in range(RUNS)
        ]
        name = f"x{len(self.inputs)}"
        self.inputs[name] = [len(columns)]
        self.shape_inputs.add(name)
        made = self.keep(name, runs)
        made.exact = True
        return made

    def like(self, x: Tensor, part: bool = True) -> Tensor:
        """An input, or constant, that broadcasts with x (or x with it)."""
        dims: list[Any] = []
        constant = self.chance(0.3)
        for axis in range(x.rank):
            sizes = x.sizes(axis)
            fixed = len(set(sizes)) == 1
            kind = self.rng.random()
            if part and (kind < 0.25 or (constant and not fixed)):
                dims.append(1)
            elif kind < 0.5 and not fixed:
                dims.append(self.symbol_of(self.sometimes_one(sizes), apart=True))
            elif kind < 0.6 and fixed and sizes[0] == 1:
                dims.append(self.one([2, 3, 4, 8]))
            elif kind < 0.7 and set(sizes) == {1, max(sizes)}:  # it is sometimes one
                most = max(sizes)
                known = self.chance(0.5)
                dims.append(most if known else self.symbol_of(
                    self.sometimes_one([most] * RUNS), apart=True))  # fmt: skip
            else:
                dims.append(self.symbol_of(sizes))
        while part and dims and self.chance(0.2):
            dims.pop(0)
        if constant and all(isinstance(d, int) for d in dims):
            return self.constant(self.normal(*dims))
        return self.input(dims)

    def constant(self, array: np.ndarray) -> Tensor:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return Tensor(name, [[array] * (COPIES + 1)] * RUNS)

    def ints(self, *values: Any) -> Tensor:
        return self.constant(np.array(values, np.int64))

    # ---- Nodes ----

    def copies(self, values: list[np.ndarray]) -> list[np.ndarray]:
        """The value, and the others with noise."""
        if values[0].dtype != np.float32:
            return values
        noisy = [
            v * (1 + self.noise * self.rng.standard_normal(v.shape).astype(np.float32))
            for v in values[1:]
        ]
        return [values[0], *noisy]

    def keep(self, name: str, runs: Arrays) -> Tensor:
        self.tensors[name] = Tensor(name, runs)
        return self.tensors[name]

    def add(
        self, op: str, inputs: Sequence[Tensor | None], outputs: int = 1, **attributes: Any
    ) -> Any:
        """The new tensor (or tensors), if ONNX Runtime can make them in each run."""
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        given = [t.name if t else "" for t in inputs]
        node = helper.make_node(op, given, names, f"{op}{len(self.nodes)}", **attributes)
        given_tensors = [t for t in inputs if t]
        computed = [t for t in given_tensors if t.name not in self.constants]
        exact = op == "Shape" or bool(computed and all(t.exact for t in computed))
        runs = self.evaluate(node, given_tensors, exact)
        self.nodes.append(node)
        for t in inputs:
            if t:
                t.readers += 1
        made = [self.keep(n, r) for n, r in zip(names, runs, strict=True)]
        for t in made:
            t.exact = exact
        return made[0] if outputs == 1 else made

    def evaluate(
        self, node: Any, inputs: Sequence[Tensor], exact: bool = False
    ) -> list[Arrays]:
        """The node's results, by output. exact: without noise."""
        if self.empty and inputs:
            self.check_empty(node.op_type, inputs)
        infos = {
            t.name: helper.make_tensor_value_info(
                t.name, element_type(t.dtype), [None] * t.rank)
            for t in inputs if t.name not in self.constants
        }  # fmt: skip
        constants = {t.name: t.runs[0][0] for t in inputs if t.name in self.constants}
        outs = [onnx.ValueInfoProto(name=name) for name in node.output]
        try:
            runner = session(make_model([node], infos.values(), outs, constants))
            runs = [
                [
                    runner.run(None, {t.name: t.runs[run][c] for t in inputs
                                      if t.name in infos})
                    for c in range(COPIES + 1)
                ]
                for run in range(RUNS)
            ]  # fmt: skip
        except Exception as error:
            raise Rejected(str(error)) from None
        made = []
        for i in range(len(node.output)):
            one = [[copy[i] for copy in run] for run in runs]
            if not exact:
                one = [self.copies(values) for values in one]
            self.add_noise(node.op_type, inputs, one)
            self.look_at(node.op_type, one)
            made.append(one)
        return made

    def add_noise(self, op: str, inputs: Sequence[Tensor], runs: Arrays) -> None:
        """The noise beyond that which the operator makes of its inputs' noise."""
        if op == "QuantizeLinear":  # the next number is as good, and no noise of its own
            runs[:] = [[values[0]] * (COPIES + 1) for values in runs]
        if op == "DequantizeLinear" and inputs[0].name not in self.constants:
            for values in runs:
                for v in values[1:]:
                    v += inputs[1].runs[0][0] * self.rng.uniform(-1, 1, v.shape)
        if op == "LogSoftmax":  # a difference of what is much larger
            for values, x in zip(runs, inputs[0].runs, strict=True):
                for v in values[1:]:
                    top = self.noise * np.abs(x[0]).max(initial=0)
                    v += top * self.rng.choice([-1, 1], v.shape)

    def check_empty(self, op: str, inputs: Sequence[Tensor]) -> None:
        """Refuses sums and maxima of nothing, of which ONNX Runtime makes what it
        likes."""
        for run in range(RUNS):
            shapes = [t.shapes[run] for t in inputs]
            if 0 in shapes[0] and op == "Reshape":
                raise Rejected("a size of 0 that is computed says: as in the input")
            known = ("Reduce", "Global", "Arg", "LogSoftmax", "GRU", "LSTM", "RNN")
            if 0 in shapes[0] and op.startswith(known):
                raise Rejected("of nothing")

    def look_at(self, op: str, runs: Arrays) -> None:
        """Refuses what is too large, and what little noise changes a lot."""
        if len({values[0].ndim for values in runs}) > 1:
            raise Rejected(f"{op}: ranks that differ")
        for values in runs:
            v = values[0]
            if not 0 < v.size + self.empty <= self.largest:
                raise Rejected(f"{op}: {v.size} elements")
            if v.ndim > 6:
                raise Rejected(f"{op}: rank {v.ndim}")
            if v.dtype != np.float32:
                if any(c.shape != v.shape or (c != v).any() for c in values):
                    raise Rejected(f"{op}: noise changes it")
                continue
            if any(c.shape != v.shape for c in values):
                raise Rejected(f"{op}: noise changes its shape")
            top = np.abs(v).max(initial=0)
            if not top < 500:
                raise Rejected(f"{op}: values up to {top}")
            if spread(values) > max(30 * self.noise, self.quantum) * max(top, 1e-3):
                raise Rejected(f"{op}: noise changes it")

    # ---- The whole ----

    def finish(self) -> None:
        """Outputs: what nobody reads, and some of the rest."""
        made = [t for n in self.nodes for t in n.output if t]
        self.outputs = [
            t for t in made if self.tensors[t].readers == 0 or self.chance(0.1)
        ]

    def prune(self) -> None:
        """Leaves what outputs need."""
        needed = set(self.outputs)
        nodes = []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.insert(0, node)
                needed |= set(node.input)
        self.nodes = nodes
        self.inputs = {n: d for n, d in self.inputs.items() if n in needed}
        self.shape_inputs &= self.inputs.keys()
        self.constants = {n: a for n, a in self.constants.items() if n in needed}

    def model(self) -> onnx.ModelProto:
        def info(name: str, dims: Sequence[Any]) -> Any:
            dtype = self.tensors[name].dtype
            return helper.make_tensor_value_info(name, element_type(dtype), dims)

        inputs = [info(name, dims) for name, dims in self.inputs.items()]
        outputs = [info(n, [None] * self.tensors[n].rank) for n in self.outputs]
        return make_model(self.nodes, inputs, outputs, self.constants)

    def shapes(self, profile: int) -> dict[str, Any]:
        """(min, opt, max) of inputs."""
        corner = self.corners()[profile]
        found = {}
        for name, dims in self.inputs.items():
            three = [self.tensors[name].shapes[corner + i] for i in range(3)]
            if any(isinstance(d, str) for d in dims):
                found[name] = tuple(three)
        return found

    def values(self, profile: int) -> dict[str, Any]:
        """(min, opt, max) of the inputs' elements that are sizes."""
        corner = self.corners()[profile]
        return {
            name: [self.tensors[name].runs[corner + i][0].tolist() for i in range(3)]
            for name in self.inputs if name in self.shape_inputs
        }  # fmt: skip

    def describe(self, run: int = 1) -> str:
        """The nodes, a line each, with shapes of a run."""
        lines = []
        for name, dims in self.inputs.items():
            shapes = self.tensors[name].shapes
            if name in self.shape_inputs:
                lines.append(f"  {name}: {[v.tolist() for v, *_ in self.tensors[name].runs]}")
            lines.append(f"  {name}: {dims}, min {shapes[0]}, opt {shapes[1]}, "
                         f"max {shapes[2]}, here {shapes[run]}")  # fmt: skip
        for node in self.nodes:
            given = []
            for name in node.input:
                array = self.constants.get(name)
                if array is None:
                    given.append(name)
                elif array.size <= 6:
                    given.append(str(array.tolist()))
                else:
                    given.append(f"{array.dtype}{list(array.shape)}")
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            made = [
                f"{n} {self.tensors[n].shapes[run]} at opt {self.tensors[n].shapes[1]}"
                for n in node.output
            ]
            lines.append(f"  {node.op_type}({', '.join(given)}) {attributes or ''} -> "
                         + ", ".join(made))  # fmt: skip
        return "\n".join([*lines, f"  outputs {', '.join(self.outputs)}"])


def spread(values: list[np.ndarray]) -> float:
    """How far the copies are from the value."""
    if values[0].dtype != np.float32:
        return 0
    return max(float(np.abs(c - values[0]).max(initial=0)) for c in values[1:])


def cut(network: Network, node: onnx.NodeProto | None) -> Network:
    """Without the node: what it makes is an input, with the shapes that it had.
    None: all of it."""
    other = Network(np.random.default_rng(0), network.noise, network.profiles)
    other.profile_of = network.profile_of
    other.nodes = [n for n in network.nodes if n is not node]
    other.constants, other.tensors = network.constants, network.tensors
    other.symbols, other.empty = dict(network.symbols), network.empty
    other.shape_inputs = set(network.shape_inputs)
    gone = list(node.output) if node else []
    other.outputs = [n for n in network.outputs if n not in gone]
    other.inputs = dict(network.inputs)
    read = {name for n in other.nodes for name in n.input}
    for name in gone:
        if name in read:
            t = network.tensors[name]
            other.inputs[name] = [
                other.symbol_of(t.sizes(axis)) for axis in range(t.rank)
            ]
    other.prune()
    return other
