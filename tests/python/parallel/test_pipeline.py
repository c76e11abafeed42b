"""rabbet.parallel.pipeline: stages' results against torch and ONNX Runtime, by emulation.

All stages are computed in one network. What crosses a border is there behind it with the extents
that the receiving stage computes, so a wrong extent is a wrong result."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.helper as oh
import onnxruntime
import pytest
import rabbet
from onnx import numpy_helper
from rabbet import parallel

from .ranks import ROOT
from .test_tensor import FAMILIES, check, ids, past, results
from .test_tensor import made as _made

made = functools.cache(_made)
_random = np.random.default_rng(3)


def weights(name: str, *shape: int) -> Any:
    values = _random.standard_normal(shape) / shape[-1] ** 0.5
    return numpy_helper.from_array(values.astype(np.float32), name)


def model(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    constants: list[Any],
) -> bytes:
    """An ONNX file; inputs and outputs are (element type, shape)."""
    ends = [
        [oh.make_tensor_value_info(name, *each) for name, each in infos.items()]
        for infos in (inputs, outputs)
    ]
    graph = oh.make_graph(nodes, "g", *ends, constants)
    return oh.make_model(
        graph, ir_version=9, opset_imports=[oh.make_opsetid("", 17)]
    ).SerializeToString()


def compare(split: parallel.Pipeline, file: bytes, feeds: dict[str, Any]) -> None:
    """With ONNX Runtime."""
    session = onnxruntime.InferenceSession(file)
    names = [each.name for each in session.get_outputs()]
    found = results(split.emulation(), feeds)
    assert set(found) == set(names)
    for name, want in zip(names, session.run(None, feeds), strict=True):
        assert found[name].shape == want.shape
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-4)


def groups_of(network: Any) -> list[tuple[int, ...]]:
    """Groups of a network's collectives, each when it is new."""
    layers = [layer for layer in network if layer._op == "dist_collective"]
    return list(dict.fromkeys(tuple(layer._attr("groups")) for layer in layers))


# ---- Cuts that are chosen ----


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, ranks: int) -> None:
    file, module, given = made(family)
    split = parallel.pipeline(file, ranks)
    check(split, module, given)
    report = split.report
    assert report.ranks == ranks
    assert len(report.cuts) == ranks - 1
    # The families have few layers, of which some are large.
    assert max(each.share for each in report.stages) < 1.6 / ranks
    assert sum(each.share for each in report.stages) == pytest.approx(1)
    outputs = [name for each in report.stages for name in each.outputs]
    assert len(outputs) == len(set(outputs)), "an output has one home"


def test_networks_of_ranks() -> None:
    """Groups come in one order on each rank, and weights are where they are read."""
    split = parallel.pipeline(made("llama")[0], 4)
    networks = [split.network(rank) for rank in range(4)]
    for rank, network in enumerate(networks):
        network.validate()
        assert groups_of(network) == [(0, 1), (1, 2), (2, 3)]
        stage = split.report.stages[rank]
        inputs = [network.get_input(i).name for i in range(network.num_inputs)]
        outputs = [network.get_output(i).name for i in range(network.num_outputs)]
        assert (tuple(inputs), tuple(outputs)) == (stage.inputs, stage.outputs)
        assert stage.receives == (split.report.cuts[rank - 1] if rank else ())
        for name in stage.receives:
            own, whole = (
                network._find_tensor(name),
                split.emulation()._find_tensor(name),
            )
            assert tuple(own.shape) == tuple(whole.shape)
    assert networks[0]._find_tensor("embed.weight") is not None
    assert networks[3]._find_tensor("embed.weight") is None
    assert (
        sum(each.weights for each in split.report.stages) < 1.1 * split.report.weights
    )


def test_caches_stay_on_their_stage() -> None:
    first, second = parallel.pipeline(made("llama")[0], 2).report.stages
    assert {"x1", "x2"} <= set(first.inputs)
    assert first.outputs == ("y1", "y2")
    assert second.outputs == ("y0", "y3", "y4")
    assert not {"x1", "x2"} & set(second.inputs)


def test_prefill_and_decode() -> None:
    file, module, _ = made("llama")
    split = parallel.pipeline(file, 3)
    for length, before in ((6, 0), (1, 6)):
        check(split, module, (ids(3, length), *past(3, before)))


def residuals(count: int, width: int = 16) -> tuple[bytes, dict[str, Any]]:
    """x + relu(x w) so many times, under a mask that is computed from an input."""
    nodes = [
        oh.make_node("Cast", ["seen"], ["seen_f"], to=1),
        oh.make_node("Unsqueeze", ["seen_f", "last"], ["mask"]),
    ]
    for i in range(count):
        nodes += [
            oh.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"]),
            oh.make_node("Relu", [f"p{i}"], [f"r{i}"]),
            oh.make_node("Mul", [f"r{i}", "mask"], [f"m{i}"]),
            oh.make_node("Add", [f"x{i}", f"m{i}"], [f"x{i + 1}"]),
        ]
    constants = [weights(f"w{i}", width, width) for i in range(count)]
    constants.append(numpy_helper.from_array(np.array([1], np.int64), "last"))
    file = model(
        nodes, {"x0": (1, ["n", width]), "seen": (7, ["n"])},
        {f"x{count}": (1, ["n", width])}, constants)  # fmt: skip
    feeds = {
        "x0": _random.standard_normal((5, width)).astype(np.float32),
        "seen": np.array([1, 1, 0, 1, 0], np.int64),
    }
    return file, feeds


def test_equal_layers_are_cut_between() -> None:
    file, feeds = residuals(8, 64)
    split = parallel.pipeline(file, 4)
    assert split.report.cuts == [("x2",), ("x4",), ("x6",)]
    # The mask is not sent: each rank computes it from the input.
    assert [each.inputs for each in split.report.stages] == [("x0", "seen")] + 3 * [
        ("seen",)
    ]
    assert split.report.stages[3].outputs == ("x8",)
    compare(split, file, feeds)


def test_long_chains_of_small_operators() -> None:
    """Each rank that reads the end of a chain computes the chain."""
    length = 1200
    names = ["m", *(f"m{i}" for i in range(length))]
    nodes = [oh.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    for i in range(4):
        nodes += [
            oh.make_node("MatMul", [f"y{i}" if i else "x", f"w{i}"], [f"h{i}"]),
            oh.make_node("Add", [f"h{i}", names[-1]], [f"y{i + 1}"]),
        ]
    ends = {"x": (1, [8, 256]), "m": (1, [1, 1])}, {"y4": (1, [8, 256])}
    constants = [weights(f"w{i}", 256, 256) for i in range(4)]
    file = model(nodes, *ends, constants)
    split = parallel.pipeline(file, 2)
    assert min(each.layers for each in split.report.stages) > length
    ones = {name: np.ones(each[1], np.float32) for name, each in ends[0].items()}
    compare(split, file, ones)


def test_a_tensor_passes_ranks_between() -> None:
    """What rank 0 makes for rank 2 goes through rank 1, so that no rank waits for another
    than its neighbours."""
    nodes = [oh.make_node("MatMul", ["x", "a"], ["skip"]),
             oh.make_node("MatMul", ["skip", "b"], ["low"]),
             oh.make_node("MatMul", ["low", "c"], ["up"]),
             oh.make_node("Add", ["up", "skip"], ["y"])]  # fmt: skip
    file = model(nodes, {"x": (1, ["n", 8])}, {"y": (1, ["n", 8])},
                 [weights(name, 8, 8) for name in "abc"])  # fmt: skip
    split = parallel.pipeline(file, cuts=["skip", ("low", "skip")])
    assert split.report.cuts == [("skip",), ("skip", "low")]
    assert split.report.exchanges[0].number == 3
    compare(split, file, {"x": _random.standard_normal((3, 8)).astype(np.float32)})
    with pytest.raises(
        rabbet.InvalidArgumentError,
        match=r"'low' does not separate the model: 'skip' is read behind it, too.*low\+skip",
    ):
        parallel.pipeline(file, cuts=["low"])


# ---- Extents of what is received ----


def test_extents_from_other_inputs() -> None:
    """Rank 1 needs the extents of `a` and `b`, of which it reads no element: rounded up by
    pooling, joined, and broadcast."""
    nodes = [
        oh.make_node(
            "AveragePool", ["a"], ["pooled"], kernel_shape=[2], strides=[2], ceil_mode=1
        ),
        oh.make_node("Concat", ["pooled", "a"], ["long"], axis=2),
        oh.make_node("MatMul", ["b", "w"], ["wide"]),
        oh.make_node("ReduceMean", ["long"], ["mean"], axes=[1, 2], keepdims=1),
        oh.make_node("Mul", ["wide", "mean"], ["cut"]),
        oh.make_node("MatMul", ["cut", "v"], ["y"]),
        oh.make_node("Shape", ["long"], ["sizes"]),
        oh.make_node("Shape", ["cut"], ["cut_sizes"]),
        oh.make_node("Concat", ["sizes", "cut_sizes"], ["all_sizes"], axis=0),
        oh.make_node("Cast", ["all_sizes"], ["z"], to=1),
        oh.make_node("ReduceMean", ["y"], ["level"], keepdims=0),
        oh.make_node("Add", ["z", "level"], ["out"]),
    ]
    file = model(
        nodes, {"a": (1, ["p", 3, "q"]), "b": (1, ["r", "s", 8])},
        {"y": (1, None), "out": (1, [6])}, [weights("w", 8, 8), weights("v", 8, 8)])  # fmt: skip
    split = parallel.pipeline(file, cuts=["cut"])
    assert split.report.stages[1].inputs == ("a", "b")
    for p, q, r, s in ((1, 5, 3, 2), (3, 4, 1, 2), (2, 7, 2, 1)):
        feeds = {
            "a": _random.standard_normal((p, 3, q)).astype(np.float32),
            "b": _random.standard_normal((r, s, 8)).astype(np.float32),
        }
        compare(split, file, feeds)
    assert [t.name for t in map(split.network(1).get_input, range(2))] == ["a", "b"]


def test_extents_from_values() -> None:
    """A shape input tells an extent: each rank has its values."""
    nodes = [
        oh.make_node("MatMul", ["x", "w"], ["h"]),
        oh.make_node("Reshape", ["h", "shape"], ["cut"]),
        oh.make_node("MatMul", ["cut", "v"], ["y"]),
    ]
    file = model(
        nodes, {"x": (1, ["n", 12]), "shape": (7, [3])}, {"y": (1, None)},
        [weights("w", 12, 12), weights("v", 4, 8)])  # fmt: skip
    split = parallel.pipeline(file, cuts=["cut"])
    assert split.report.stages[1].inputs == ("shape",)
    x = _random.standard_normal((4, 12)).astype(np.float32)
    feeds = {"x": x, "shape": np.array([2, 6, 4], np.int64)}
    compiled = rabbet.compile(
        split.emulation(), device="cpu", shapes={"x": (4, 12)},
        values={"shape": ([1, 1, 4], [2, 6, 4], [12, 12, 4])}, optimization_level=0)  # fmt: skip
    want = onnxruntime.InferenceSession(file).run(None, feeds)[0]
    np.testing.assert_allclose(compiled.run(feeds)["y"], want, rtol=1e-4, atol=1e-4)
    options = split._local(
        {"values": {"shape": [2, 6, 4]}, "shapes": {"x": (4, 12)}}, 1
    )
    assert options == {"values": {"shape": [2, 6, 4]}, "shapes": {}}


def test_extents_that_depend_on_data() -> None:
    """They are known to the rank alone that computes them: no cut is behind."""
    nodes = [
        oh.make_node("MatMul", ["x", "w"], ["h"]),
        oh.make_node("NonZero", ["h"], ["places"]),
        oh.make_node("Cast", ["places"], ["numbers"], to=1),
        oh.make_node("Transpose", ["numbers"], ["turned"], perm=[1, 0]),
        oh.make_node("MatMul", ["turned", "v"], ["y"]),
    ]
    file = model(nodes, {"x": (1, ["n", 8])}, {"y": (1, None)},
                 [weights("w", 8, 8), weights("v", 2, 64)])  # fmt: skip
    split = parallel.pipeline(file, 2)
    assert split.report.cuts == [("h",)]
    compare(split, file, {"x": _random.standard_normal((3, 8)).astype(np.float32)})
    with pytest.raises(
        rabbet.UnsupportedError, match="'numbers' cannot be sent: its extents"
    ):
        parallel.pipeline(file, cuts=["numbers"])
    with pytest.raises(rabbet.UnsupportedError, match="into 3 stages: it has 1 place"):
        parallel.pipeline(file, 3)


@pytest.mark.parametrize("kind", [np.float16, np.bool_, np.int64, np.int32, np.uint8])
def test_types_that_cross(kind: Any) -> None:
    element = oh.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [
        oh.make_node("MatMul", ["x", "w"], ["h"]),
        oh.make_node("Relu", ["h"], ["r"]),
        oh.make_node("Cast", ["r"], ["cut"], to=element),
        oh.make_node("Cast", ["cut"], ["back"], to=1),
        oh.make_node("MatMul", ["back", "v"], ["y"]),
    ]
    file = model(nodes, {"x": (1, ["n", 8])}, {"y": (1, ["n", 8])},
                 [weights("w", 8, 8), weights("v", 8, 8)])  # fmt: skip
    split = parallel.pipeline(file, cuts=["cut"])
    x = 3 * _random.standard_normal((3, 8)).astype(np.float32)
    want = onnxruntime.InferenceSession(file).run(None, {"x": x})[0]
    close = 2e-2 if kind is np.float16 else 1e-4
    np.testing.assert_allclose(
        results(split.emulation(), {"x": x})["y"], want, atol=close
    )


# ---- Loops and conditionals ----


def looped() -> bytes:
    body = oh.make_graph(
        [oh.make_node("MatMul", ["s", "w"], ["inner"]), oh.make_node("Tanh", ["inner"], ["t"]),
         oh.make_node("Identity", ["c"], ["d"])], "body",
        [oh.make_tensor_value_info("i", 7, []), oh.make_tensor_value_info("c", 9, []),
         oh.make_tensor_value_info("s", 1, ["n", 16])],
        [oh.make_tensor_value_info("d", 9, []), oh.make_tensor_value_info("t", 1, ["n", 16])],
        [weights("w", 16, 16)],
    )  # fmt: skip
    nodes = [
        oh.make_node("MatMul", ["x", "a"], ["h"]),
        oh.make_node("Loop", ["trips", "", "h"], ["looped"], body=body),
        oh.make_node("MatMul", ["looped", "b"], ["y"]),
    ]
    return model(
        nodes, {"x": (1, ["n", 16]), "trips": (7, [])}, {"y": (1, ["n", 16])},
        [weights("a", 16, 16), weights("b", 16, 16)])  # fmt: skip


def branched() -> bytes:
    branches = [
        oh.make_graph(
            [oh.make_node("MatMul", ["h", name], [f"{name}_made"]),
             oh.make_node("Relu", [f"{name}_made"], [f"{name}_out"])], name,
            [], [oh.make_tensor_value_info(f"{name}_out", 1, ["n", 16])], [weights(name, 16, 16)])
        for name in ("one", "other")
    ]  # fmt: skip
    nodes = [
        oh.make_node("MatMul", ["x", "a"], ["h"]),
        oh.make_node(
            "If",
            ["trips"],
            ["looped"],
            then_branch=branches[0],
            else_branch=branches[1],
        ),
        oh.make_node("MatMul", ["looped", "b"], ["y"]),
    ]
    return model(
        nodes, {"x": (1, ["n", 16]), "trips": (9, [])}, {"y": (1, ["n", 16])},
        [weights("a", 16, 16), weights("b", 16, 16)])  # fmt: skip


@pytest.mark.parametrize(
    ("make", "values"),
    [(looped, [np.array(3, np.int64), np.array(1, np.int64)]),
     (branched, [np.array(True), np.array(False)])],
)  # fmt: skip
def test_loops_and_conditionals_stay_in_one_piece(make: Any, values: list[Any]) -> None:
    file = make()
    split = parallel.pipeline(file, 3)
    assert split.report.cuts == [("h",), ("looped",)]
    x = _random.standard_normal((5, 16)).astype(np.float32)
    compiled = rabbet.compile(
        split.emulation(), device="cpu", shapes={"x": (5, 16)}, optimization_level=0
    )
    session = onnxruntime.InferenceSession(file)
    for value in values:
        feeds = {"x": x, "trips": value}
        want = session.run(None, feeds)[0]
        np.testing.assert_allclose(compiled.run(feeds)["y"], want, rtol=1e-4, atol=1e-4)
    inner = next(
        layer._get_output(0).name
        for layer in split.network(1)
        if layer._op == "matrix_multiply"
    )
    with pytest.raises(
        rabbet.InvalidArgumentError, match="within a loop or conditional"
    ):
        parallel.pipeline(file, cuts=[inner])
    with pytest.raises(rabbet.UnsupportedError, match="cannot be cut into 4 stages"):
        parallel.pipeline(file, 4)


# ---- Cuts that are named, mistakes, the report ----


def encoder_and_decoder() -> bytes:
    """What the decoder does before it reads the encoder depends on no cut."""
    nodes = [
        oh.make_node("MatMul", ["x", "a"], ["encoded"]),
        oh.make_node("MatMul", ["t", "b"], ["started"]),
        oh.make_node("MatMul", ["encoded", "c"], ["keys"]),
        oh.make_node("Add", ["started", "keys"], ["y"]),
        oh.make_node("Relu", ["encoded"], ["rest"]),
    ]
    return model(
        nodes, {"x": (1, ["n", 8]), "t": (1, ["n", 8])},
        {"y": (1, ["n", 8]), "rest": (1, ["n", 8])}, [weights(n, 8, 8) for n in "abc"])  # fmt: skip


def test_what_no_cut_needs_is_where_it_is_read() -> None:
    file = encoder_and_decoder()
    split = parallel.pipeline(file, cuts=["encoded"])
    first, second = split.report.stages
    assert (first.inputs, second.inputs) == (("x",), ("t",))
    assert (first.outputs, second.outputs) == ((), ("y", "rest"))
    feeds = {name: _random.standard_normal((3, 8)).astype(np.float32) for name in "xt"}
    compare(split, file, feeds)


def test_names_with_several_cuts() -> None:
    file, feeds = residuals(5)
    split = parallel.pipeline(file, cuts=["x1", ["x2"], ("p3", "x3")])
    assert split.report.cuts == [("x1",), ("x2",), ("x3", "p3")]
    compare(split, file, feeds)


@pytest.mark.parametrize(
    ("ranks", "cuts", "error", "message"),
    [
        (1, None, rabbet.InvalidArgumentError, "ranks is 1; expected 2 or more"),
        (None, None, TypeError, "give ranks or cuts"),
        (2.0, None, TypeError, "cannot be interpreted as an integer"),
        (3, ["x1"], rabbet.InvalidArgumentError, "cuts has 1 border, .* 2 stages; ranks is 3"),
        (None, [], rabbet.InvalidArgumentError, "cuts is empty"),
        (None, "x1", TypeError, "expected a list of names of tensors.* got 'x1'"),
        (None, [()], TypeError, r"or a tuple of names.*got \(\)"),
        (None, [3], TypeError, "expected the name of a tensor.* got 3"),
        (2, ["y1"], rabbet.NotFoundError, "no tensor 'y1'"),
        (2, ["x0"], rabbet.InvalidArgumentError, "'x0' is an input: nothing is before it"),
        (2, ["mask"], rabbet.InvalidArgumentError, "'mask' is computed from inputs"),
        (2, ["w1"], rabbet.InvalidArgumentError, "'w1' is computed from"),
        (2, ["x5"], rabbet.InvalidArgumentError, "nothing reads 'x5'"),
        (2, ["p1"], rabbet.InvalidArgumentError, "'x1' is read behind it, too"),
        (3, ["x3", "x1"], rabbet.InvalidArgumentError, "'x1' is computed before 'x3'"),
        (3, ["x3", "x3"], rabbet.InvalidArgumentError, "'x3' is computed before 'x3', or is"),
        (99, None, rabbet.UnsupportedError, "cannot be cut into 99 stages: it has 19 places"),
    ],
)  # fmt: skip
def test_mistakes(ranks: Any, cuts: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        parallel.pipeline(residuals(5)[0], ranks, cuts)


def test_mistakes_of_ranks() -> None:
    split = parallel.pipeline(residuals(2)[0], 2)
    with pytest.raises(rabbet.InvalidArgumentError, match="rank is 2; expected 0 to 1"):
        split.network(2)
    with pytest.raises(TypeError, match="save= is not taken"):
        split.save("plan", save="other")
    with pytest.raises(TypeError, match="path of an ONNX file"):
        parallel.pipeline(3, 2)
    # Names that no rank has are the builder's to refuse.
    with pytest.raises(rabbet.InvalidArgumentError, match="the model has no input 'z'"):
        split.compile(0, device="cpu", shapes={"x0": (5, 16), "seen": (5,), "z": (1,)})


def test_shapes_of_ranks() -> None:
    split = parallel.pipeline(residuals(2, 64)[0], cuts=["x1"])
    shapes = {"x0": (5, 64), "seen": ((1,), (5,), (9,))}
    assert split._local({"shapes": shapes, "threads": 1}, 0)["shapes"] == shapes
    profiles = split._local({"profiles": [shapes]}, 1)["profiles"]
    assert profiles == [{"seen": shapes["seen"]}]
    assert split.parts() == {}


def test_report() -> None:
    split = parallel.pipeline(made("gpt2")[0], 2)
    report = split.report.as_dict()
    assert report["ranks"] == 2
    assert report["cuts"] == [split.report.stages[0].sends]
    assert report["stages"][1]["outputs"] == ("y0",)
    assert split.report.json().startswith("{")
    text = str(split)
    assert text.startswith("2 stages; weights of ")
    assert "rank 0: " in text
    assert "  outputs: y0" in text


def test_example(tmp_path: Path) -> None:
    file, _ = residuals(3)
    (tmp_path / "m.onnx").write_bytes(file)
    shapes = ["--shape", "x0=5x16", "--shape", "seen=5"]
    for words, shown in (
        (["--pipeline"], "2 stages; "),
        ([tmp_path / "m.onnx", "--pipeline", "--cut", "x1", "--cut", "p2+x2", *shapes],
         "3 stages; "),
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, ROOT / "examples/parallel/split.py", *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(shown)
        assert done.stdout.endswith("equal\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranks", "0"], "--ranks: expected 2 or more, got 0"),
        (["--shape", "z=2x7"], "--shape names 'z'; the model's inputs are x"),
        (["--shape", "x=2x7"], "dimension 1 of input 'x' the range 7 to 7"),
        (["--pipeline", "--cut", "zz"], "the network has no tensor 'zz'"),
        (["--plugins", "nope.py"], "plugin file 'nope.py' does not exist"),
        ([__file__], "the bytes are not an ONNX model"),
    ],
)
def test_mistakes_of_the_example(words: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples/parallel/split.py", *words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode
    assert message in done.stderr
    assert "Traceback" not in done.stderr
