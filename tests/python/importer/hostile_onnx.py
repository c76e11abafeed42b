"""ONNX models whose attributes, extents, types and constants are changed at random: each
is built and run on the CPU by the command, in a process with limits of time and memory.

    python -m tests.python.importer.hostile_onnx FIRST:END

takes the models of these numbers (build-asan's programs with RABBET_BUILD=build-asan), and
prints those whose processes ended in another way than with a result or an error. A number says
everything: the model, its changes, how it is built.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.python.support import onnx_evaluate as reference

PROGRAM = reference.BUILD / "tests/fuzz/commands"
SECONDS, MEBIBYTES = 30, 4000
BATCH = 500

INTEGERS = [
    0, 1, -1, 2, -2, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 1000, 4096, 65535,
    65536, 10**6, 3 * 10**9, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1, 2**32, 2**40,
    2**53, 2**61, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1,
]  # fmt: skip
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-30, 1e30, 3.4e38, -3.4e38]
FLOATS += [float("inf"), float("-inf"), float("nan")]
TYPES = [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE]
TYPES += [TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64]
TYPES += [TensorProto.BOOL, TensorProto.STRING, TensorProto.INT4, 0, 99]
WORDS = ["", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "constant", "reflect", "edge"]
WORDS += ["wrap", "linear", "cubic", "nearest", "none", "add", "mul", "max", "min", "DCR"]
WORDS += ["CRD", "bidirectional", "reverse", "forward", "tanh", "ij,jk->ik", "i" * 99, "\xff"]


# ---- Changes: each takes the model and a source of chance, and may do nothing


def _integer(rng: random.Random, near: int = 0) -> int:
    if rng.random() < 0.3:
        return near + rng.choice((-2, -1, 1, 2))
    return rng.choice(INTEGERS)


def _node(model: onnx.ModelProto, rng: random.Random) -> Any:
    """A node of the graph, or of a graph or function within it."""
    nodes = list(model.graph.node)
    for function in model.functions:
        nodes += function.node
    for node in list(nodes):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                nodes += attribute.g.node
    return rng.choice(nodes)


def _change_tensor(tensor: TensorProto, rng: random.Random) -> None:
    kind = rng.choice((0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 4))
    try:
        array = numpy_helper.to_array(tensor)
    except Exception:  # as it was changed before
        kind, array = 1, np.zeros(0)
    name = tensor.name
    if kind == 0 and array.size:  # elements
        array = array.copy()
        for _ in range(rng.randint(1, 3)):
            numbers = INTEGERS if array.dtype.kind in "iu" else FLOATS
            info = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
            number = rng.choice(numbers)
            if info is not None:
                number = min(max(number, info.min), info.max)
            array.flat[rng.randrange(array.size)] = number
        tensor.CopyFrom(numpy_helper.from_array(array, name))
    elif kind == 1:  # extents that the data may not have
        if tensor.dims and rng.random() < 0.8:
            tensor.dims[rng.randrange(len(tensor.dims))] = _integer(rng)
        else:
            tensor.dims.append(_integer(rng))
    elif kind == 2:
        tensor.data_type = rng.choice(TYPES)
    elif kind == 3:  # another shape, and its data
        shape = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randint(0, 6))]
        tensor.CopyFrom(numpy_helper.from_array(np.resize(array, shape), name))
    else:
        flat = np.resize(array, rng.choice((0, 1, 2, 3, 4, 8, 9)))
        tensor.CopyFrom(numpy_helper.from_array(flat, name))


def _change_ints(ints: Any, rng: random.Random) -> None:
    kind = rng.randrange(4)
    if kind == 0 and ints:
        del ints[rng.randrange(len(ints))]
    elif kind == 1:
        ints.insert(rng.randint(0, len(ints)), _integer(rng))
    elif kind == 2 and len(ints) > 1:
        i, j = rng.sample(range(len(ints)), 2)
        ints[i] = ints[j]
    elif ints:
        i = rng.randrange(len(ints))
        ints[i] = _integer(rng, ints[i])


def change_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if not node.attribute:
        return change_schema(model, rng)
    attribute = rng.choice(node.attribute)
    if rng.random() < 0.1:
        node.attribute.remove(attribute)
    elif rng.random() < 0.05:
        attribute.type = rng.choice(list(AttributeProto.AttributeType.values()))
    elif attribute.type == AttributeProto.INT:
        attribute.i = max(-(2**63), min(_integer(rng, attribute.i), 2**63 - 1))
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice(WORDS).encode("latin-1")
    elif attribute.type == AttributeProto.INTS:
        _change_ints(attribute.ints, rng)
    elif attribute.type == AttributeProto.FLOATS and attribute.floats:
        attribute.floats[rng.randrange(len(attribute.floats))] = rng.choice(FLOATS)
    elif attribute.type == AttributeProto.TENSOR:
        _change_tensor(attribute.t, rng)
    return None


def change_schema(model: onnx.ModelProto, rng: random.Random) -> None:
    """An attribute that the operator has and the node has not, or the other way round."""
    node = _node(model, rng)
    try:
        schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
    except onnx.defs.SchemaError:
        return
    known = sorted(schema.attributes)
    if not known:
        return
    name = rng.choice(known)
    kind = schema.attributes[name].type.name
    values: dict[str, Any] = {
        "INT": _integer(rng),
        "FLOAT": rng.choice(FLOATS),
        "STRING": rng.choice(WORDS).encode("latin-1"),
        "INTS": [_integer(rng) for _ in range(rng.randint(0, 5))],
        "FLOATS": [rng.choice(FLOATS) for _ in range(rng.randint(1, 5))],
    }
    if kind not in values or (kind == "INTS" and not values[kind]):
        return
    for attribute in list(node.attribute):
        if attribute.name == name:
            node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute(name, values[kind]))


def change_extent(model: onnx.ModelProto, rng: random.Random) -> None:
    inputs = model.graph.input
    if not inputs:
        return
    tensor = rng.choice(inputs).type.tensor_type
    kind = rng.random()
    if kind < 0.15:
        tensor.elem_type = rng.choice(TYPES)
    elif kind < 0.25:
        tensor.shape.dim.add().dim_value = rng.choice((0, 1, 2, 3))
    elif kind < 0.35 and tensor.shape.dim:
        del tensor.shape.dim[rng.randrange(len(tensor.shape.dim))]
    elif tensor.shape.dim:
        dim = rng.choice(tensor.shape.dim)
        if kind < 0.5:
            dim.dim_param = rng.choice("NMK")
        elif kind < 0.7:
            dim.dim_value = rng.choice((0, 1, 2, 3, 5, 16, 17))
        else:
            dim.dim_value = _integer(rng, dim.dim_value)


def change_constant(model: onnx.ModelProto, rng: random.Random) -> None:
    if model.graph.initializer:
        _change_tensor(rng.choice(model.graph.initializer), rng)


def change_edges(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    names = [v.name for v in model.graph.input] + [t.name for t in model.graph.initializer]
    names += [name for n in model.graph.node for name in n.output]
    kind = rng.randrange(4)
    if kind == 0 and node.input:
        del node.input[rng.randrange(len(node.input))]
    elif kind == 1:
        node.input.append(rng.choice([*names, ""]))
    elif kind == 2 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, ""])
    elif kind == 3 and len(node.input) > 1:
        i, j = rng.sample(range(len(node.input)), 2)
        node.input[i], node.input[j] = node.input[j], node.input[i]


def change_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    _node(model, rng).op_type = rng.choice(OPERATORS)


def change_version(model: onnx.ModelProto, rng: random.Random) -> None:
    model.opset_import[0].version = rng.choice((*range(7, 30), 0, -1, 2**31, 2**62))


def append_node(model: onnx.ModelProto, rng: random.Random) -> None:
    """The operator behind the changes meets the shape that they made."""
    x = model.graph.node[-1].output[0]
    y = f"appended_{len(model.graph.node)}"
    op = rng.choice(("Relu", "Softmax", "Flatten", "ReduceSum", "Transpose", "Concat", "MatMul"))
    inputs = [x, x] if op in ("Concat", "MatMul") else [x]
    attributes = {"axis": 0} if op == "Concat" else {}
    model.graph.node.append(helper.make_node(op, inputs, [y], **attributes))
    model.graph.output.append(helper.make_empty_tensor_value_info(y))


CHANGES = [
    (change_attribute, 10),
    (change_schema, 3),
    (change_extent, 8),
    (change_constant, 10),
    (change_edges, 2),
    (change_operator, 1),
    (change_version, 1),
    (append_node, 2),
]
OPERATORS = sorted(reference.operators())


# ---- Models


def freeze_some(case: Any, rng: random.Random) -> onnx.ModelProto:
    """A node test, some of whose inputs are constants."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    share = rng.choice((0, 0.5, 1))
    for value, array in zip(list(model.graph.input), case.data_sets[0][0], strict=False):
        if isinstance(array, np.ndarray) and rng.random() < share:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            model.graph.input.remove(value)
    return model


def seeds() -> list[Any]:
    from tests.python.importer import test_onnx_nodes as nodes
    from tests.python.support import onnx_cases

    return [
        case
        for _, case in sorted(onnx_cases.load_all().items())
        if not nodes.reason_to_skip(case.model) and case.model.ByteSize() < 20000
    ]


def mutant(number: int, cases: list[Any]) -> tuple[bytes, list[str]]:
    """The model of this number, and how the command builds and runs it."""
    rng = random.Random(number)
    model = freeze_some(rng.choice(cases), rng)
    changes, weights = zip(*CHANGES, strict=True)
    for change in rng.choices(changes, weights, k=rng.choice((1, 1, 2, 2, 3, 5))):
        # protobuf and NumPy will not have some values.
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            change(model, rng)
    dynamic = {
        f"'{value.name}':" + "x".join(
            str(d.dim_value) if d.HasField("dim_value") else str(rng.choice((0, 1, 2, 3)))
            for d in value.type.tensor_type.shape.dim)
        for value in model.graph.input
        if any(not d.HasField("dim_value") for d in value.type.tensor_type.shape.dim)
    }
    words = ["--device=cpu", "--threads=1", "--quiet"]
    words.append(f"--optimization-level={rng.choice((0, 0, 0, 1, 3))}")
    words += [f"--shapes={','.join(sorted(dynamic))}"] if dynamic else []
    words += rng.choice(([], [], ["--fp16"], ["--strongly-typed"]))
    return model.SerializeToString(), words


# ---- Runs


def run(
    models: Iterator[tuple[int, bytes, list[str]]], folder: Path, seconds: int = SECONDS
) -> Iterator[tuple[int, str, float, int, str]]:
    """(number, how it ended, seconds, mebibytes, what it printed) of each model."""
    lines, numbers = [], []
    for number, data, words in models:
        path = folder / f"{number}.onnx"
        path.write_bytes(data)
        lines.append("\t".join(["run", str(path), *words]))
        numbers.append(number)
    environment = {
        "OMP_NUM_THREADS": "1",
        "LD_LIBRARY_PATH": str(reference.BUILD / "lib"),
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=99:allocator_may_return_null=1:"
        f"max_allocation_size_mb={MEBIBYTES}:hard_rss_limit_mb={MEBIBYTES}:"
        "allocator_frees_and_returns_null_on_realloc_zero=false",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1:exitcode=99",
        **os.environ,
    }
    done = subprocess.run(
        [PROGRAM, str(seconds), str(MEBIBYTES), folder],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    for line in done.stdout.splitlines():
        index, *end, took, most = line.split()
        log = folder / index
        text = log.read_text(errors="replace") if log.exists() else ""
        yield numbers[int(index)], " ".join(end), float(took), int(most), text
        log.unlink(missing_ok=True)
        (folder / f"{numbers[int(index)]}.onnx").unlink()


def is_fine(end: str, took: float, most: int) -> bool:
    """A result, or an error of the model, soon and without much memory."""
    return re.fullmatch(r"exit [0-6]", end) is not None and took < SECONDS and most < MEBIBYTES


def main() -> None:
    first, end = (int(n) for n in sys.argv[1].split(":"))
    cases = seeds()
    ends: collections.Counter[str] = collections.Counter()
    slowest = largest = (0.0, 0)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for begin in range(first, end, BATCH):
            numbers = range(begin, min(begin + BATCH, end))
            models = ((n, *mutant(n, cases)) for n in numbers)
            for number, how, took, most, text in run(models, Path(folder)):
                ends[how] += 1
                slowest = max(slowest, (took, number))
                largest = max(largest, (most, number))
                if not is_fine(how, took, most):
                    print(f"{number}: {how}, {took:.1f} s, {most} MiB")
                    print("\n".join(text.splitlines()[:40]), flush=True)
            print(f"{numbers.stop}: {dict(sorted(ends.items()))}", flush=True)
    print(f"slowest {slowest}, largest {largest}")


if __name__ == "__main__":
    main()
