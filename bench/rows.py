"""One row times packed weights of decoders, beside the best read of the same bytes."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh

from . import peers
from .options import Options, installed
from .report import Section
from .rounds import Rounds, Spread, best, ratios, take_turns
from .worker import Field, Worker, drop_wrong, started

STREAMS = (1, 2, 4, 8)
ONNXRUNTIME = "onnxruntime"
READ = "read by {}"
BYTES = 192 << 20
"""Of all products of a model: more than most caches hold; half in a quick run."""
READ_ROUNDS = 5
"""That choose the number of streams; the best then takes turns with each product."""
LONG_ROUNDS = 2
"""With ONNX Runtime, which takes many times as long where it has no kernel for a row."""
TURN_SECONDS = 0.05
"""At most: a call takes 10 ms or more, and bandwidth changes from second to second."""
BOUND = 0.02
"""Rows that may be rounded to 8 bits differ by that."""


@dataclass(frozen=True)
class Kind:
    """How weights are packed. level: MatMulNBits' accuracy_level."""

    bits: int
    block: int
    zeros: bool = False
    level: int = 0
    is_nf4: bool = False
    fp8: bool = False

    @property
    def is_matmul_nbits(self) -> bool:
        return not (self.is_nf4 or self.fp8)

    def text(self) -> str:
        kind = "NF4" if self.is_nf4 else "FP8" if self.fp8 else f"INT{self.bits}"
        zeros = ", zero points" if self.zeros else ""
        return f"{kind}, blocks of {self.block}{zeros}{', level 4' if self.level else ''}"


KINDS = {
    "int4": Kind(4, 32),
    "int4_level4": Kind(4, 32, level=4),
    "int4_zeros": Kind(4, 64, zeros=True),
    "int4_128": Kind(4, 128),
    "int8": Kind(8, 32),
    "nf4": Kind(4, 64, is_nf4=True),
    "fp8": Kind(8, 128, fp8=True),
}
SIZES = ((2048, 2048), (4096, 14336), (1536, 8960), (896, 4864))
"""k and n of decoders' products; a model has all of them, again and again."""


def _weights(
    kind: Kind, k: int, n: int, random: np.random.Generator
) -> tuple[list[onnx.TensorProto], list[onnx.NodeProto], int]:
    """Constants and nodes of y = x w, without their numbers; bytes of codes and
    scales."""
    blocks = -(-k // kind.block)
    scales = random.uniform(0.01, 0.03, n * blocks).astype(np.float32)
    total = n * k * kind.bits // 8 + scales.nbytes
    if kind.fp8:
        codes = random.integers(0, 127, (n, k), np.uint8)
        w = oh.make_tensor("w", onnx.TensorProto.FLOAT8E4M3FN, [n, k], codes.tobytes(), raw=True)
        nodes = [
            oh.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=kind.block),
            oh.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
            oh.make_node("MatMul", ["x", "t"], ["y"]),
        ]
        return [w, onh.from_array(scales.reshape(n, blocks), "s")], nodes, total
    codes = random.integers(0, 256, n * k * kind.bits // 8, np.uint8)
    if kind.is_nf4:
        constants = [onh.from_array(codes, "w"), onh.from_array(scales, "s")]
        node = oh.make_node("MatMulBnb4", ["x", "w", "s"], ["y"], domain="com.microsoft",
                            K=k, N=n, block_size=kind.block, quant_type=1)  # fmt: skip
        return constants, [node], total
    constants = [onh.from_array(codes.reshape(n, blocks, -1), "w"), onh.from_array(scales, "s")]
    if kind.zeros:
        zeros = random.integers(0, 256, (n, (blocks * kind.bits + 7) // 8), np.uint8)
        constants.append(onh.from_array(zeros, "z"))
        total += zeros.nbytes
    node = oh.make_node("MatMulNBits", ["x", *(c.name for c in constants)], ["y"],
                        domain="com.microsoft", K=k, N=n, bits=kind.bits,
                        block_size=kind.block, accuracy_level=kind.level)  # fmt: skip
    return constants, [node], total


def _products(kind: Kind, most: int) -> Iterator[tuple[int, int]]:
    """k and n of products whose weights are about `most` bytes."""
    left = most * 8 // kind.bits
    while True:
        for k, n in SIZES:
            left -= k * n
            if left < 0:
                return
            yield k, n


def _model(kind: Kind, most: int) -> tuple[onnx.ModelProto, int]:
    """Products of one row with matrices of about `most` bytes, whose results are outputs.
    Returns it with the bytes of all."""
    random = np.random.default_rng(0)
    inits: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    inputs, outputs, size = {}, [], 0
    for i, (k, n) in enumerate(_products(kind, most)):
        constants, own_nodes, own_size = _weights(kind, k, n, random)
        for constant in constants:
            constant.name += str(i)
        for node in own_nodes:
            for names in (node.input, node.output):
                for at, name in enumerate(names):
                    names[at] = f"x{k}" if name == "x" else f"{name}{i}"
        inits += constants
        nodes += own_nodes
        size += own_size
        inputs[k] = oh.make_tensor_value_info(f"x{k}", onnx.TensorProto.FLOAT, [1, k])
        outputs.append(oh.make_tensor_value_info(f"y{i}", onnx.TensorProto.FLOAT, [1, n]))
    graph = oh.make_graph(nodes, "rows", list(inputs.values()), outputs, inits)
    imports = [oh.make_opsetid("", 21), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=10), size


@dataclass(frozen=True)
class Reader:
    """The best read with so many threads: times are those of `bytes`."""

    worker: Worker
    threads: int
    bytes: int


@contextlib.contextmanager
def _reader(options: Options, threads: int, size: int) -> Iterator[Reader]:
    """Reads by so many streams each, of which the quickest stays."""
    specs = [
        options.spec(READ.format(s), "bench.peers.read_rows:Read", threads,
                     {"bytes": size, "streams": s, "threads": threads})
        for s in STREAMS
    ]  # fmt: skip
    with started(specs, options.scratch) as field_:
        times = take_turns(field_.workers, rounds=READ_ROUNDS, seconds=TURN_SECONDS)
        floor = best(times, list(times))
        if floor is None:
            raise ValueError("; ".join(field_.absent.values()))
        chosen = field_.workers.pop(floor)
        try:
            for name in list(field_.workers):
                field_.workers.pop(name).stop()
            yield Reader(chosen, threads, size)
        finally:
            chosen.stop()


@dataclass(frozen=True)
class Model:
    """A model's files, and the bytes of its weights."""

    kind: Kind
    path: Path
    inputs: Path
    names: list[str]
    bytes: int


def _saved(kind: Kind, options: Options, most: int) -> Model:
    proto, size = _model(kind, most)
    path, inputs = options.scratch / "rows.onnx", options.scratch / "rows.npz"
    onnx.save(proto, path)
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        value.name: random.standard_normal(
            (1, value.type.tensor_type.shape.dim[1].dim_value), np.float32
        )
        for value in proto.graph.input
    }
    np.savez(inputs, **arrays)
    return Model(kind, path, inputs, [y.name for y in proto.graph.output], size)


@contextlib.contextmanager
def _contestants(options: Options, model: Model, threads: int) -> Iterator[Field]:
    """Rabbet, and ONNX Runtime where it has such weights and its results agree."""
    given = {"path": str(model.path), "inputs": str(model.inputs), "threads": threads,
             "dims": {}, "names": model.names, "plugins": [],
             "plan": str(model.path.with_suffix(".plan"))}  # fmt: skip
    wanted = {peers.RABBET}
    if model.kind.is_matmul_nbits and options.wanted(ONNXRUNTIME):
        wanted.add(ONNXRUNTIME)
    specs = [
        options.spec(peer.name, peer.factory, threads, given)
        for peer in peers.MODELS
        if peer.name in wanted and installed(peer.package)
    ]
    with started(specs, options.scratch) as field_:
        if ONNXRUNTIME in field_.workers:
            drop_wrong(field_, field_.workers[ONNXRUNTIME].outputs(), BOUND)
        yield field_


def _beside(times: Rounds, other: str, scale: float = 1.0) -> Spread | None:
    return (
        Spread.of(ratios(times, peers.RABBET, other)).scaled(scale)
        if times.get(peers.RABBET) and times.get(other)
        else None
    )


def _one(section: Section, options: Options, model: Model, reader: Reader) -> None:
    read, name = reader.worker.spec.name, model.kind.text()
    with _contestants(options, model, reader.threads) as field_:
        workers = {w: field_.workers[w] for w in field_.workers if w == peers.RABBET}
        turns = min(options.seconds, TURN_SECONDS)
        times = take_turns({read: reader.worker, **workers}, rounds=options.rounds,
                           seconds=turns)  # fmt: skip
        long = {}
        if ONNXRUNTIME in field_.workers:
            long = take_turns(field_.workers, rounds=LONG_ROUNDS, seconds=turns, least=1)
    for reason in field_.absent.values():
        section.note(f"{name}: {reason}")
    over_read = _beside(times, read, reader.bytes / model.bytes)
    if not over_read:
        return
    over_ort = _beside(long, ONNXRUNTIME)
    speed = statistics.median(reader.bytes / t / 1e9 for t in times[read])
    section.rows.append([
        name, str(reader.threads), f"{speed:.1f} ({read})", over_read.text(),
        over_ort.text() if over_ort else "-",
    ])  # fmt: skip
    section.data.append({
        "kind": name, "threads": reader.threads, "bytes": model.bytes, "rounds": times,
        "rounds_onnxruntime": long, "read": read, "bytes_read": reader.bytes,
        "over_read": over_read.as_dict(),
        "over_onnxruntime": over_ort.as_dict() if over_ort else None,
    })  # fmt: skip
    print("  " + " | ".join(section.rows[-1]), flush=True)


def run(options: Options) -> Section:
    """Ratios of a product's time to those of the best read, and of ONNX Runtime."""
    columns = ["weights", "threads", "GB/s of the best read", "time / its time",
               "time / ONNX Runtime's"]  # fmt: skip
    section = Section("One row times packed weights", columns)
    wanted = options.models or tuple(KINDS)
    if unknown := [name for name in wanted if name not in KINDS]:
        raise ValueError(f"no weights {', '.join(unknown)}; there are {', '.join(KINDS)}")
    most = BYTES // 2 if options.quick else BYTES
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(_reader(options, threads, most)) for threads in options.threads
        ]
        for name in wanted:
            model = _saved(KINDS[name], options, most)
            for reader in readers:
                _one(section, options, model, reader)
    sizes = ", ".join(f"{k} x {n}" for k, n in SIZES)
    section.note(f"a call multiplies by {most >> 20} MiB of weights: {sizes}, again and again")
    section.note(
        "the best read goes over as many bytes by 1, 2, 4 or 8 streams a thread, of which the "
        f"quickest in {READ_ROUNDS} rounds takes turns; its time is scaled to the bytes of codes, "
        f"scales and zero points. ONNX Runtime's MatMulNBits takes turns in {LONG_ROUNDS} rounds"
    )
    return section
