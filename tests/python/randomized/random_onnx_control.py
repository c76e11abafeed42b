"""Random ONNX graphs of If, Loop and Scan in one another, against ONNX Runtime.

All numbers are small integers, so that results are equal and conditions are never in doubt.
Tensors are (rows, 2); branches and iterations give them other numbers of rows.

    python -m tests.python.randomized.random_onnx_control FIRST:END [cpu|cuda]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import rabbet
from onnx import TensorProto, helper, numpy_helper

from tests.python.randomized.random_onnx import seeds

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
DEPTH = 3
MOST_ROWS = 6
RUNS = 6


@dataclass
class Scope:
    """The nodes of one graph; names of outer graphs are seen. `free`: tensors whose
    numbers of rows may be anything; `kept`: tensors with as many rows as input x."""

    free: list[str]
    kept: list[str]
    counts: list[str]
    nodes: list[Any] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(list(self.free), list(self.kept), list(self.counts))


class Maker:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0
        self.constants: list[Any] = []

    def pick(self, items: list[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, part: float) -> bool:
        return bool(self.rng.random() < part)

    def name(self, what: str = "t") -> str:
        self.count += 1
        return f"{what}{self.count}"

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        self.constants.append(
            numpy_helper.from_array(np.asarray(value, dtype), self.name("k"))
        )
        return str(self.constants[-1].name)

    def node(self, scope: Scope, op: str, *inputs: str, **attributes: Any) -> str:
        made = self.name(op.lower())
        scope.nodes.append(helper.make_node(op, list(inputs), [made], **attributes))
        return made

    # ---- Without control flow

    def small(self, scope: Scope, x: str) -> str:
        return self.node(scope, "Clip", x, self.constant(-4), self.constant(4))

    def few_rows(self, scope: Scope, x: str, most: int | None = None) -> str:
        first = self.constant([0], np.int64)
        end = self.constant([MOST_ROWS if most is None else most], np.int64)
        return self.node(scope, "Slice", x, first, end)

    def calculate(self, scope: Scope, x: str) -> str:
        """As many rows as x."""
        row = self.constant(self.rng.integers(-2, 3, (1, 2)))
        kind = int(self.rng.integers(4))
        if kind == 0:
            return self.node(scope, "Neg", x)
        if kind == 1:
            return self.small(scope, self.node(scope, "Add", x, row))
        if kind == 2:
            weights = self.constant(self.rng.integers(-1, 2, (2, 2)))
            return self.small(scope, self.node(scope, "MatMul", x, weights))
        number = self.node(scope, "Cast", self.pick(scope.counts), to=FLOAT)
        return self.small(scope, self.node(scope, "Add", x, number))

    def resize(self, scope: Scope) -> str:
        """Other numbers of rows."""
        x = self.pick(scope.free)
        kind = int(self.rng.integers(3))
        if kind == 0:
            y = self.node(scope, "Concat", x, self.pick(scope.free), axis=0)
            return self.few_rows(scope, y)
        if kind == 1:
            return self.few_rows(scope, x, int(self.rng.integers(0, 4)))
        large = self.node(scope, "Greater", x, self.constant([[0, 9]]))
        flags = self.node(scope, "Slice", large, self.constant([0], np.int64),
                          self.constant([1], np.int64), self.constant([1], np.int64))  # fmt: skip
        flat = self.node(scope, "Reshape", flags, self.constant([-1], np.int64))
        return self.node(scope, "Compress", x, flat, axis=0)

    def condition(self, scope: Scope) -> str:
        total = self.node(scope, "ReduceSum", self.pick(scope.free), keepdims=0)
        level = self.constant(float(self.rng.integers(-3, 4)) + 0.5)
        return self.node(scope, self.pick(["Less", "Greater"]), total, level)

    # ---- Control flow

    def branch(self, scope: Scope, keeps: list[bool], depth: int) -> Any:
        inner = scope.inner()
        self.fill(inner, depth)
        outputs = []
        for keep in keeps:
            # The last value is likely to be a loop's or a conditional's own.
            pool = inner.kept if keep else inner.free
            made = pool[-1] if self.chance(0.7) else self.pick(pool)
            if made in (scope.kept + scope.free):
                made = self.node(inner, "Identity", made)
            outputs.append(made)
        if len(set(outputs)) < len(outputs):
            outputs = [self.node(inner, "Identity", made) for made in outputs]
        infos = [helper.make_tensor_value_info(o, FLOAT, None) for o in outputs]
        return helper.make_graph(inner.nodes, self.name("branch"), [], infos)

    def conditional(self, scope: Scope, depth: int) -> None:
        keeps = [self.chance(0.3) for _ in range(int(self.rng.integers(1, 4)))]
        outputs = [self.name("if") for _ in keeps]
        scope.nodes.append(
            helper.make_node(
                "If", [self.condition(scope)], outputs,
                then_branch=self.branch(scope, keeps, depth + 1),
                else_branch=self.branch(scope, keeps, depth + 1),
            )
        )  # fmt: skip
        for keep, name in zip(keeps, outputs, strict=True):
            scope.free.append(name)
            if keep:
                scope.kept.append(name)

    def trips(self, scope: Scope) -> str:
        if self.chance(0.4):
            return self.constant(int(self.rng.integers(0, 4)), np.int64)
        count = self.pick(scope.counts)
        return self.node(scope, "Min", count, self.constant(3, np.int64))

    def states(self, inner: Scope, keeps: list[bool]) -> list[str]:
        names = [self.name("state") for _ in keeps]
        for keep, name in zip(keeps, names, strict=True):
            inner.free.append(name)
            if keep:
                inner.kept.append(name)
        return names

    def next_states(self, inner: Scope, keeps: list[bool]) -> list[str]:
        made = []
        for keep in keeps:
            pool = inner.kept if keep else inner.free
            made.append(pool[-1] if self.chance(0.6) else self.pick(pool))
        return [self.node(inner, "Identity", name) for name in made]

    def loop(self, scope: Scope, depth: int) -> None:
        keeps = [self.chance(0.4) for _ in range(int(self.rng.integers(1, 3)))]
        stacks = [self.chance(0.5) for _ in range(int(self.rng.integers(0, 3)))]
        starts = [self.pick(scope.kept if keep else scope.free) for keep in keeps]
        inner = scope.inner()
        i, c = self.name("i"), self.name("c")
        inner.counts.append(i)
        names = self.states(inner, keeps)
        self.fill(inner, depth + 1)
        going = (
            self.condition(inner)
            if self.chance(0.5)
            else self.node(inner, "Identity", c)
        )
        nexts = self.next_states(inner, keeps)
        # Elements of equal extents: sums, or rows of the kept ones.
        axes = self.constant([0], np.int64)
        elements = [
            self.node(inner, "Identity", self.pick(inner.kept)) if keep else
            self.node(inner, "ReduceSum", self.pick(inner.free), axes, keepdims=0)
            for keep in stacks
        ]  # fmt: skip
        info = helper.make_tensor_value_info
        body = helper.make_graph(
            inner.nodes, self.name("body"),
            [info(i, INT64, []), info(c, BOOL, []), *(info(n, FLOAT, None) for n in names)],
            [info(going, BOOL, None), *(info(n, FLOAT, [None, 2]) for n in nexts),
             *(info(n, FLOAT, [None, 2] if keep else [2])
               for keep, n in zip(stacks, elements, strict=True))],
        )  # fmt: skip
        self.looped(
            scope, "Loop", [self.trips(scope), "", *starts], keeps, stacks, body
        )

    def looped(
        self, scope: Scope, op: str, inputs: list[str], keeps: list[bool],
        stacks: list[bool], body: Any, **attributes: Any,
    ) -> None:  # fmt: skip
        outputs = [self.name(op.lower()) for _ in keeps + stacks]
        scope.nodes.append(
            helper.make_node(op, inputs, outputs, body=body, **attributes)
        )
        for keep, name in zip(keeps, outputs, strict=False):
            scope.free.append(name)
            if keep:
                scope.kept.append(name)
        for name in outputs[len(keeps) :]:
            rows = self.node(scope, "Reshape", name, self.constant([-1, 2], np.int64))
            scope.free.append(self.few_rows(scope, self.small(scope, rows)))

    def scan(self, scope: Scope, depth: int) -> None:
        """Over the rows of a tensor; the states keep their extents."""
        keeps = [True] * int(self.rng.integers(1, 3))
        starts = [self.pick(scope.kept) for _ in keeps]
        inner = scope.inner()
        names = self.states(inner, keeps)
        row = self.name("row")
        state = self.small(inner, self.node(inner, "Add", names[0], row))
        inner.kept.append(state)
        inner.free.append(state)
        self.fill(inner, depth + 1)
        nexts = self.next_states(inner, keeps)
        axes = self.constant([0], np.int64)
        element = self.node(inner, "ReduceSum", self.pick(inner.free), axes, keepdims=0)
        info = helper.make_tensor_value_info
        body = helper.make_graph(
            inner.nodes, self.name("body"),
            [*(info(n, FLOAT, None) for n in names), info(row, FLOAT, [2])],
            [*(info(n, FLOAT, [None, 2]) for n in nexts), info(element, FLOAT, [2])],
        )  # fmt: skip
        # ONNX Runtime refuses to scan no rows.
        more = self.constant(self.rng.integers(-2, 3, (1, 2)))
        x = self.node(scope, "Concat", self.pick(scope.free), more, axis=0)
        self.looped(
            scope, "Scan", [*starts, x], keeps, [False], body, num_scan_inputs=1
        )

    # ---- A graph

    def fill(self, scope: Scope, depth: int) -> None:
        for _ in range(int(self.rng.integers(1, 3 + (depth == 0)))):
            kind = float(self.rng.random())
            deep = depth >= DEPTH or self.count > 220
            if kind < 0.25 or (deep and kind < 0.6):
                x = self.pick(scope.kept)
                made = self.calculate(scope, x)
                scope.kept.append(made)
                scope.free.append(made)
            elif kind < 0.45 or deep:
                made = self.resize(scope)
                scope.free.append(self.calculate(scope, made))
            elif kind < 0.72:
                self.conditional(scope, depth)
            elif kind < 0.93:
                self.loop(scope, depth)
            else:
                self.scan(scope, depth)

    def model(self, dynamic: bool) -> Any:
        scope = Scope(["x", "y"], ["x"], ["m"])
        while not any(n.op_type in ("If", "Loop", "Scan") for n in scope.nodes):
            self.fill(scope, 0)
        made = [o for n in scope.nodes for o in n.output if o in scope.free]
        outputs = [o for o in made if o == made[-1] or self.chance(0.4)]
        scope.nodes.extend(
            helper.make_node("Shape", [o], [f"shape_{o}"]) for o in outputs[-1:]
        )
        info = helper.make_tensor_value_info
        rows = ["n", "k"] if dynamic else [3, 2]
        graph = helper.make_graph(
            scope.nodes, "g",
            [info("x", FLOAT, [rows[0], 2]), info("y", FLOAT, [rows[1], 2]),
             info("m", INT64, [])],
            [*(info(o, FLOAT, None) for o in outputs), info(f"shape_{outputs[-1]}", INT64, None)],
            self.constants,
        )  # fmt: skip
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)


def feeds_of(seed: int, dynamic: bool) -> list[dict[str, Any]]:
    rng = np.random.default_rng([seed, 1])
    made = []
    for run in range(RUNS):
        n, k = (int(v) for v in rng.integers(1, 5, 2)) if dynamic and run else (3, 2)
        made.append({
            "x": rng.integers(-3, 4, (n, 2)).astype(np.float32),
            "y": rng.integers(-3, 4, (k, 2)).astype(np.float32),
            "m": np.asarray(int(rng.integers(0, 4)), np.int64),
        })  # fmt: skip
    return made


def check_seed(seed: int, device: str) -> None:
    dynamic = seed % 3 != 0
    model = Maker(seed).model(dynamic)
    data = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
    shapes = {"x": ((1, 2), (3, 2), (4, 2)), "y": ((1, 2), (2, 2), (4, 2))}
    ours = rabbet.compile(
        data, device=device, threads=1, optimization_level=seed % 2,
        shapes=shapes if dynamic else None,
    )  # fmt: skip
    for run, feed in enumerate(feeds_of(seed, dynamic)):
        wanted = session.run(None, feed)
        found = ours.run(feed)
        for output, a in zip(session.get_outputs(), wanted, strict=True):
            np.testing.assert_array_equal(
                found[output.name], a, f"run {run}, output {output.name}", strict=True
            )


def main(texts: list[str]) -> int:
    failed, device = 0, texts[1] if len(texts) > 1 else "cpu"
    for seed in seeds(texts[0]):
        try:
            check_seed(seed, device)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}\n", flush=True)
    print(f"{failed} of {len(seeds(texts[0]))} seeds failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
