"""Runs build/tests/onnx/onnx_evaluate: the importer and the reference kernels.

No builder and no device takes part, so that a wrong number is the importer's
(or a reference kernel's) fault.
"""

import os
import pathlib
import re
import struct
import subprocess
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("RABBET_BUILD", ROOT / "build"))
PROGRAM = BUILD / "tests/onnx/onnx_evaluate"

# rabbet_dtype_t
DTYPES = {
    0: np.dtype(np.float32), 1: np.dtype(np.float16), 2: np.dtype(np.int8),
    3: np.dtype(np.int32), 4: np.dtype(np.bool_), 5: np.dtype(np.uint8),
    6: np.dtype(ml_dtypes.float8_e4m3fn), 7: np.dtype(ml_dtypes.bfloat16),
    8: np.dtype(np.int64), 11: np.dtype(ml_dtypes.float8_e8m0fnu),
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


class ImportFailed(Exception):
    """The importer's message."""


class EvaluationFailed(Exception):
    """A kernel's message."""


class Tensor(NamedTuple):
    name: str
    dtype: int
    dims: tuple


class Network(NamedTuple):
    inputs: list
    outputs: list
    layers: list  # (operator, name)


def operators(macros="OP|LIST_OP"):
    """The importer's tables: name -> versions that changed the operator. `macros` "ML_OP":
    of the domain ai.onnx.ml."""
    files = sorted((ROOT / "src/onnx").glob("*/ops_*.c"))
    text = "".join(path.read_text() for path in files)
    found = re.findall(
        rf"^ +RABBET_ONNX_(?:{macros})\((\w+),\s*\w+,\s*\"\w*\",([\s\d,]+)\)", text, re.M)
    return {name: [int(v) for v in since.split(",")] for name, since in found}


def _parse(text):
    network = Network([], [], [])
    for line in text.removesuffix("\n").split("\n"):
        word, dtype, rest = line.split(" ", 2)
        if word == "layer":
            network.layers.append((dtype, rest))
            continue
        rank, _, rest = rest.partition(" ")
        *dims, name = rest.split(" ", int(rank))
        tensor = Tensor(name, int(dtype), tuple(map(int, dims)))
        (network.inputs if word == "input" else network.outputs).append(tensor)
    return network


def _call(*arguments):
    result = subprocess.run([PROGRAM, *arguments], capture_output=True,
                            text=True, check=False)
    message = result.stderr.strip()
    if result.returncode == 2:
        raise ImportFailed(message)
    if result.returncode == 3:
        raise EvaluationFailed(message)
    assert result.returncode == 0, (result.returncode, message)
    return _parse(result.stdout)


def _save(model, folder):
    path = folder / "model.onnx"
    if isinstance(model, bytes):
        path.write_bytes(model)
    elif isinstance(model, (str, pathlib.Path)):
        return pathlib.Path(model)
    else:
        path.write_bytes(model.SerializeToString())
    return path


def describe(model, folder):
    """The network of a model (ModelProto, bytes or path), described."""
    return _call(_save(model, folder))


HELD = {"float64": np.float32, "int16": np.int32, "uint16": np.int32, "uint32": np.int64,
        "uint64": np.int64, "int4": np.int8, "uint4": np.uint8, "int2": np.int8,
        "uint2": np.uint8, "float8_e4m3fnuz": np.float16, "float8_e5m2": np.float16,
        "float8_e5m2fnuz": np.float16, "float4_e2m1fn": ml_dtypes.float8_e4m3fn,
        "float6_e2m3fn": ml_dtypes.float8_e4m3fn, "float6_e3m2fn": ml_dtypes.float8_e4m3fn}


def held(array):
    """An array of a type that networks do not have, in the one that holds it."""
    return array.astype(HELD.get(array.dtype.name, array.dtype), copy=False)


def run(model, inputs, folder):
    """Outputs for a list of arrays of types that networks have or hold."""
    path = _save(model, folder)
    with open(folder / "in.bin", "wb") as file:
        for array in inputs:
            array = held(np.asarray(array))
            file.write(struct.pack("<ii", NUMBERS[array.dtype], array.ndim))
            file.write(struct.pack(f"<{array.ndim}q", *array.shape))
            file.write(np.ascontiguousarray(array).tobytes())
    network = _call(path, folder / "in.bin", folder / "out.bin")
    data = (folder / "out.bin").read_bytes()
    outputs, at = [], 0
    for _ in network.outputs:
        number, rank = struct.unpack_from("<ii", data, at)
        dims = struct.unpack_from(f"<{rank}q", data, at + 8)
        at += 8 + 8 * rank
        count = int(np.prod(dims, dtype=np.int64))
        dtype = DTYPES[number]
        outputs.append(np.frombuffer(data, dtype, count, at).reshape(dims))
        at += count * dtype.itemsize
    assert at == len(data)
    return outputs


def node_types(graph):
    """(domain, op_type) of every node, those in branches included."""
    for node in graph.node:
        yield node.domain, node.op_type
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from node_types(inner)


def element_types(model):
    """Names of the element types of inputs, initializers and outputs."""
    graph = model.graph
    numbers = {t.data_type for t in graph.initializer}
    for value in [*graph.input, *graph.output]:
        if value.type.HasField("tensor_type"):
            numbers.add(value.type.tensor_type.elem_type)
    return {onnx.TensorProto.DataType.Name(number) for number in numbers}
