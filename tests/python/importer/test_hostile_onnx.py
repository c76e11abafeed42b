"""ONNX models made to do harm: each ends in an error that names what is wrong, soon
and without much memory. (What random changes of models found: hostile_onnx.py.)"""

import os
import re
import resource
import subprocess

import numpy as np
import pytest
import rabbet as trt
from onnx import TensorProto, helper, numpy_helper

from tests.python.support.command import PROGRAM


def model_of(nodes, inputs, outputs=("y",), constants=(), functions=()):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        initializer=list(constants),
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
        functions=list(functions),
        ir_version=8,
    )


def save(path, *args, **kwargs):
    path.write_bytes(model_of(*args, **kwargs).SerializeToString())
    return path


def import_of(*args, **kwargs):
    """The parser's error for a model; None if it is imported."""
    logger = trt.Logger(trt.Logger.ERROR)
    parser = trt.OnnxParser(trt.Builder(logger).create_network(), logger)
    try:
        assert parser.parse(model_of(*args, **kwargs).SerializeToString())
    except trt.Error as error:
        return str(error)
    return None


def limited(arguments, mebibytes, seconds, **environment):
    """The command, with so much address space and processor time."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds,) * 2)

    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        env={**os.environ, **environment},
        check=False,
    )


# ---- Ranks


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize(
    ("operand", "rank"),
    [("X", 4), ("X", 2), ("X", 0), ("W", 2), ("R", 4), ("B", 3), ("initial_h", 2)],
)
def test_recurrent_layers_check_ranks(op, gates, layout, operand, rank):
    shapes = {
        "X": (2, 3, 5),
        "W": (1, 4 * gates, 5),
        "R": (1, 4 * gates, 4),
        "B": (1, 8 * gates),
        "lengths": (),
        "initial_h": (2, 1, 4) if layout else (1, 3, 4),
    }
    shapes[operand] = (*shapes[operand], 1, 1, 1, 1)[:rank]
    names = ["" if name == "lengths" else name for name in shapes]
    del shapes["lengths"]
    node = helper.make_node(op, names, ["y"], "n", hidden_size=4, layout=layout)
    error = import_of([node], shapes)
    assert error is not None
    assert f"{operand} " in error
    assert f"has rank {rank}; expected" in error or operand == "R"


def test_rows_of_recurrent_weights_do_not_wrap_around():
    """4 * 2**62 is 0 in 64 bits, and the axis of 0 rows is not as long as that."""
    shapes = {"x": (2, 3, 5), "w": (1, 0, 5), "r": (1, 0, 2**62)}
    error = import_of([helper.make_node("LSTM", ["x", "w", "r"], ["y"], "n")], shapes)
    assert error is not None
    assert f"R has shape (1, 0, {2**62}); expected (1, 4 * hidden_size" in error


# ---- External data


def model_with_external_data(path, location):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return save(path, [node], {"x": (4,)}, constants=[tensor])


def runs(path):
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(trt.compile(path, device="cpu")(x), 2 * x)


@pytest.fixture
def folders(tmp_path):
    """A folder for a model, with a folder `sub`, and data outside of it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "model" / "sub").mkdir(parents=True)
    for folder in ("outside", "model/sub"):
        (tmp_path / folder / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    return tmp_path / "model", tmp_path / "outside"


@pytest.mark.parametrize("location", ["w.bin", "sub/link/w.bin"])
def test_links_do_not_leave_the_folder(folders, location):
    inside, outside = folders
    (inside / "w.bin").symlink_to(outside / "w.bin")
    (inside / "sub" / "link").symlink_to("../../outside")
    path = model_with_external_data(inside / "model.onnx", location)
    with pytest.raises(trt.InvalidArgumentError, match=f"'{location}' is a link to .*outside/w"):
        trt.compile(path, device="cpu")


def test_links_within_the_folder_are_followed(folders):
    inside, outside = folders
    (inside / "w.bin").symlink_to("sub/w.bin")
    runs(model_with_external_data(inside / "model.onnx", "w.bin"))
    # The model's folder may be reached by a link.
    (outside / "link").symlink_to(inside)
    runs(outside / "link" / "model.onnx")


def test_a_model_that_is_a_link_has_its_targets_folder(folders):
    """As in the caches of hubs: files by their hash, and links that name them."""
    inside, outside = folders
    model_with_external_data(outside / "0123abcd", "w.bin")
    (inside / "model.onnx").symlink_to("../outside/0123abcd")
    (inside / "w.bin").symlink_to("../outside/w.bin")
    runs(inside / "model.onnx")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_external_data_is_a_regular_file(tmp_path, kind):
    data = tmp_path / "w.bin"
    if kind == "pipe":
        os.mkfifo(data)
    elif kind == "folder":
        data.mkdir()
    path = model_with_external_data(tmp_path / "model.onnx", "w.bin")
    if kind == "device":
        data.symlink_to("/dev/zero")
    error = "is a link to '/dev/zero'" if kind == "device" else f"it is a {kind}"
    with pytest.raises(trt.Error, match=error):
        trt.compile(path, device="cpu")


# ---- Small files that stand for large networks


def doubling_functions(depth, body):
    """f0, and functions each of which calls the one before twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = [helper.make_function("local", "f0", ["a"], ["b"], body, opsets)]
    for i in range(1, depth):
        calls = [
            helper.make_node(f"f{i - 1}", [a], [b], domain="local") for a, b in ("at", "tb")
        ]
        functions.append(helper.make_function("local", f"f{i}", ["a"], ["b"], calls, opsets))
    return functions


LOOP_INPUTS = [("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("v", TensorProto.FLOAT)]


def nested_loops(depth, node):
    """The body of a loop that has a loop that has ..., with `node` innermost."""
    inner = nested_loops(depth - 1, node) if depth else None
    nodes = [helper.make_node("Loop", ["n", "c", "v"], ["w"], body=inner)] if inner else [node]
    values = [helper.make_tensor_value_info(n, t, None) for n, t in LOOP_INPUTS]
    outputs = [values[1], helper.make_tensor_value_info("w", TensorProto.FLOAT, None)]
    return helper.make_graph(nodes, "body", values, outputs)


def number(name, *values):
    array = np.array(values[0] if len(values) == 1 else values, np.int64)
    return numpy_helper.from_array(array, name)


NODES = "more than 20000 nodes, layers and iterations; RABBET_ONNX_MAX_NODES"
MEMORY = "need more than 256 MiB; RABBET_ONNX_MAX_MIB"
RELU = helper.make_node("Relu", ["v"], ["w"])


BOMBS = {
    "functions": (
        {
            "nodes": [helper.make_node("f39", ["x"], ["y"], domain="local")],
            "inputs": {"x": (4,)},
            "functions": doubling_functions(40, [helper.make_node("Relu", ["a"], ["b"])]),
        },
        NODES,
    ),
    "functions of nothing": (
        {
            "nodes": [helper.make_node("f39", ["x"], ["y"], domain="local")],
            "inputs": {"x": (4,)},
            "functions": doubling_functions(40, [helper.make_node("Identity", ["a"], ["b"])]),
        },
        NODES,
    ),
    "loops": (
        {
            "nodes": [helper.make_node("Loop", ["n", "", "x"], ["y"], body=nested_loops(4, RELU))],
            "inputs": {"x": (4,)},
            "constants": [number("n", 60)],
        },
        NODES,
    ),
    "names": (
        {
            "nodes": [
                helper.make_node(
                    "Loop", ["n", "", "x"], ["y"],
                    body=nested_loops(1, helper.make_node("Relu", ["v"], ["w"], "n" * 2**20)),
                )
            ],
            "inputs": {"x": (4,)},
            "constants": [number("n", 60)],
        },
        MEMORY,
    ),
    "constants of a shape": (
        {
            "nodes": [
                *(helper.make_node("ConstantOfShape", ["s"], [f"t{i}"]) for i in range(200)),
                helper.make_node("Sum", [f"t{i}" for i in range(200)], ["y"]),
            ],
            "inputs": {},
            "constants": [numpy_helper.from_array(np.array([2**22], np.int64), "s")],
        },
        MEMORY,
    ),
    "a range": (
        {
            "nodes": [helper.make_node("Range", list("abc"), ["y"])],
            "inputs": {},
            "constants": [number("a", 0), number("b", 999999999), number("c", 1)],
        },
        MEMORY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_written_out_is_limited(name, tmp_path):
    """With smaller limits than the usual ones, so that they are soon reached, and little
    address space, so that a limit that is not kept is another error."""
    arguments, expected = BOMBS[name]
    path = save(tmp_path / "model.onnx", **arguments)
    build = ["build", path, "-o", tmp_path / "a.plan", "--device", "cpu"]
    limits = {"RABBET_ONNX_MAX_NODES": "20000", "RABBET_ONNX_MAX_MIB": "256"}
    done = limited(build, 1000, 60, **limits)
    assert done.returncode == 4, done.stderr
    assert expected in done.stderr


def test_limits_are_raised_in_the_environment(tmp_path):
    body = nested_loops(0, RELU)
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    path = save(tmp_path / "model.onnx", [node], {"x": (4,)}, constants=[number("n", 20)])
    build = ["build", path, "-o", tmp_path / "a.plan", "--device=cpu", "--quiet"]
    done = limited(build, 1000, 60, RABBET_ONNX_MAX_NODES="50")
    assert "more than 50 nodes, layers and iterations" in done.stderr
    assert done.returncode == 4
    assert limited(build, 1000, 60, RABBET_ONNX_MAX_NODES="100").returncode == 0
    done = limited(build, 1000, 60, RABBET_ONNX_MAX_MIB="lots")
    assert "RABBET_ONNX_MAX_MIB is 'lots'; expected a positive number" in done.stderr


@pytest.mark.parametrize("op", ["Concat", "Tile"])
@pytest.mark.parametrize("constant", [False, True])
def test_repeated_doubling_ends_in_an_error(op, constant, tmp_path):
    """Of a constant, which is not folded without end, and of an input."""
    nodes = []
    for i in range(34):
        x, y = f"t{i}", f"t{i + 1}" if i < 33 else "y"
        inputs = [x, x] if op == "Concat" else [x, "two"]
        nodes.append(helper.make_node(op, inputs, [y], **({"axis": 0} if op == "Concat" else {})))
    constants = [numpy_helper.from_array(np.array([2], np.int64), "two")]
    if constant:
        constants.append(numpy_helper.from_array(np.ones(4, np.float32), "t0"))
    inputs = {} if constant else {"t0": (4,)}
    path = save(tmp_path / "model.onnx", nodes, inputs, constants=constants)
    done = limited(["run", path, "--device=cpu", "--optimization-level=0"], 1000, 60)
    assert 1 <= done.returncode <= 4, done.stderr
    assert re.search(r"too large|no memory|gave no memory|memory than", done.stderr)


# ---- Extents and windows that no arithmetic may overflow


def windows(op, extent, **attributes):
    names = ["x"]
    constants = []
    if op == "Conv":
        constants = [numpy_helper.from_array(np.ones((1, 1, 2, 2), np.float32), "w")]
        names = ["x", "w"]
    node = helper.make_node(op, names, ["y"], **attributes)
    return {"nodes": [node], "inputs": {"x": (1, 1, *extent)}, "constants": constants}


BIG = 2**31 - 1
LARGE = {
    **{
        f"{op} of {shape}": {
            "nodes": [helper.make_node(op, ["x", "x"][:count], ["y"], **attributes)],
            "inputs": {"x": shape},
        }
        for op, count, attributes in (
            ("Relu", 1, {}),
            ("Add", 2, {}),
            ("Softmax", 1, {}),
            ("ReduceMax", 1, {}),
            ("Transpose", 1, {}),
            ("Concat", 2, {"axis": 0}),
            ("GlobalAveragePool", 1, {}),
        )
        for shape in ((0, 3, 2**61, 5), (3, 2**62, 0), (2**31, 1, 1), (1, 1, 2**40), (2**63 - 1,))
    },
    "a large window": windows("MaxPool", (4, 4), kernel_shape=[BIG, 1], pads=[BIG, 0, BIG, 0]),
    "a large mean": windows("AveragePool", (4, 4), kernel_shape=[BIG, BIG], pads=[BIG] * 4),
    "a large stride": windows("MaxPool", (4, 4), kernel_shape=[1, 1], strides=[BIG, BIG]),
    "large padding": windows("Conv", (4, 4), pads=[BIG] * 4),
    "a large dilation": windows("Conv", (4, 4), dilations=[BIG, BIG], pads=[BIG] * 4),
    "a large image": windows("Conv", (2**31, 2**20)),
    "a row of 31 bits": windows("Conv", (5, BIG), auto_pad="SAME_LOWER"),
    "a pooled row of 31 bits": windows("MaxPool", (5, BIG), kernel_shape=[3, 3], pads=[1] * 4),
    "a larger image": windows("MaxPool", (2**40, 2), kernel_shape=[2, 2]),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_extents_end_in_a_result_or_an_error(name, tmp_path):
    path = save(tmp_path / "model.onnx", **LARGE[name])
    done = limited(["run", path, "--device=cpu", "--optimization-level=0"], 1000, 20)
    assert 0 <= done.returncode <= 4, (done.returncode, done.stderr)
    assert done.returncode == 0 or done.stderr.startswith("rabbet run: ")


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("op", "expected"), [("AveragePool", 2.0**-26), ("MaxPool", 1.0)])
def test_padding_of_large_windows_is_not_visited(op, expected, constant, tmp_path):
    """A window of 2**28 rows, with 4 of the image: a mean of 16 ones and many zeros."""
    ones = numpy_helper.from_array(np.ones((1, 1, 4, 4), np.float32), "c")
    side = 2**28
    attributes = {"kernel_shape": [side, 4], "pads": [side - 4, 0, 0, 0]}
    if op == "AveragePool":
        attributes["count_include_pad"] = 1
    nodes = [
        helper.make_node(op, ["c" if constant else "x"], ["h"], **attributes),
        helper.make_node("Add", ["h", "zero"], ["y"]),
    ]
    zero = numpy_helper.from_array(np.zeros(1, np.float32), "zero")
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, 1, 4, 4)}, constants=[ones, zero])
    np.save(tmp_path / "x.npy", np.ones((1, 1, 4, 4), np.float32))
    run = ["run", path, "--device=cpu", "--inputs", f"x={tmp_path / 'x.npy'}"]
    done = limited([*run, "-o", tmp_path / "y.npz"], 4000, 20)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], [[[[expected]]]])


def test_large_products_of_constants_are_left_to_the_device(tmp_path):
    """The reference kernel, which folds constants, would take minutes."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (1600, 1600)).astype(np.float32) for _ in range(2))
    constants = [numpy_helper.from_array(a, "a"), numpy_helper.from_array(b, "b")]
    nodes = [helper.make_node("MatMul", ["a", "b"], ["h"])]
    nodes += [helper.make_node("Add", ["h", "x"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, {"x": (1,)}, constants=constants)
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    run = ["run", path, "--device=cpu", "--optimization-level=0", "-o", tmp_path / "y.npz"]
    done = limited([*run, "--inputs", f"x={tmp_path / 'x.npy'}"], 4000, 20)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], a @ b + 1)


def test_memory_of_folded_chains_is_given_back(tmp_path):
    """160 results of 4 MiB, one after the other."""
    first = np.linspace(0.5, 2, 2**20, dtype=np.float32)
    nodes = []
    for i in range(160):
        name = "last" if i == 159 else f"t{i}"
        nodes.append(helper.make_node(("Abs", "Sqrt")[i % 2], [f"t{i - 1}" if i else "c"], [name]))
    nodes.append(helper.make_node("Add", ["last", "x"], ["y"]))
    constants = [numpy_helper.from_array(first, "c")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (1,)}, constants=constants)
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    run = ["run", path, "--device=cpu", "--optimization-level=0", "-o", tmp_path / "y.npz"]
    done = limited([*run, "--inputs", f"x={tmp_path / 'x.npy'}"], 500, 60)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], 2, rtol=1e-6)


def test_a_constant_in_many_ways_is_folded_up_to_a_limit(tmp_path):
    """300 results of 4 MiB that are there at once."""
    nodes = [
        helper.make_node("Gather", ["c", f"i{k}"], [f"t{k}"], axis=0) for k in range(300)
    ]
    nodes.append(helper.make_node("Sum", [*(f"t{k}" for k in range(300)), "x"], ["y"]))
    constants = [numpy_helper.from_array(np.ones((1024, 1024), np.float32), "c")]
    for k in range(300):
        rows = np.roll(np.arange(1024), k)
        constants.append(numpy_helper.from_array(rows, f"i{k}"))
    path = save(tmp_path / "m.onnx", nodes, {"x": (1,)}, constants=constants)
    build = ["build", path, "--device=cpu", "--optimization-level=0", "-o", tmp_path / "p"]
    done = limited(build, 1000, 60)
    assert done.returncode == 0, done.stderr


SLOW = {
    "boxes": (
        [
            helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["h"]),
            helper.make_node("Cast", ["h"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMax", ["f"], ["m"], keepdims=0),
        ],
        {
            "boxes": np.arange(40000, dtype=np.float32).repeat(4).reshape(1, -1, 4)
            + np.array([0, 0, 0.5, 0.5], np.float32),
            "scores": np.ones((1, 1, 40000), np.float32),
            "most": np.array([40000], np.int64),
        },
    ),
    "windows": (
        [helper.make_node("MaxPool", ["c"], ["m"], kernel_shape=[300, 300], pads=[299, 299, 0, 0])],
        {"c": np.ones((1, 1, 300, 300), np.float32)},
    ),
    "samples": (
        [
            helper.make_node("Resize", ["c", "", "s"], ["m"], mode="cubic"),
        ],
        {
            "c": np.ones((30, 30, 30, 30), np.float32),
            "s": np.array([1.5] * 4, np.float32),
        },
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_slow_operators_of_constants_are_left_to_the_device(name, tmp_path):
    """A build that times nothing does not evaluate them, either."""
    nodes, constants = SLOW[name]
    nodes = [*nodes, helper.make_node("Add", ["m", "x"], ["y"])]
    tensors = [numpy_helper.from_array(array, key) for key, array in constants.items()]
    path = save(tmp_path / "m.onnx", nodes, {"x": (1,)}, constants=tensors)
    build = ["build", path, "--device=cpu", "--optimization-level=0", "-o", tmp_path / "p"]
    done = limited(build, 2000, 6)
    assert done.returncode == 0, done.stderr


def test_every_limit_of_memory_ends_in_a_result_or_an_error(tmp_path):
    """Libraries of others end the process where the system refuses them memory."""
    weights = numpy_helper.from_array(np.eye(32, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"])]
    nodes += [helper.make_node("Softmax", ["h"], ["y"])]
    model = save(tmp_path / "m.onnx", nodes, {"x": (4, 32)}, constants=[weights])
    plan = tmp_path / "m.plan"
    build = ["build", model, "--device=cpu", "-o", plan, "--quiet"]
    ends = [limited(build, 1 << 14, 60)]  # that of a plan to run
    run = ["run", plan, "--device=cpu"]
    for mebibytes in [*range(44, 80, 4), *range(80, 200, 12), 1 << 14]:
        ends += [limited(arguments, mebibytes, 60) for arguments in (build, run)]
    assert ends[0].returncode == ends[-1].returncode == ends[-2].returncode == 0
    assert [end for end in ends if end.returncode < 0] == []
    errors = [end.stderr for end in ends if end.returncode != 0]
    assert all(errors)
    assert any("the limits of this process (ulimit -v" in error for error in errors)
