"""OnnxParser and plugin files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from onnx import TensorProto, helper
from rabbet._cli import plugin_files
from rabbet._plugins import load_file, load_plugins

from tests.python.support.plugins import new_id, random


def model_of(*nodes: Any, domains: tuple[str, ...] = ()) -> Any:
    """A model x -> y with shape (2, 3)."""
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = helper.make_graph(list(nodes), "g", [info[0]], [info[1]])
    opsets = [helper.make_opsetid("", 17)] + [
        helper.make_opsetid(d, 1) for d in domains
    ]
    return helper.make_model(graph, opset_imports=opsets)


def parse(model: Any, **flags: Any) -> tuple[trt.INetworkDefinition, trt.OnnxParser]:
    network = trt.Builder().create_network()
    parser = trt.OnnxParser(network, trt.Logger())
    parser.parse(model.SerializeToString())
    return network, parser


def test_parse(tmp_path: Path) -> None:
    model = model_of(helper.make_node("Relu", ["x"], ["y"]))
    network, parser = parse(model)
    assert parser.num_errors == 0
    assert network.num_layers >= 1
    assert network.get_output(0).name == "y"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    again = trt.Builder().create_network()
    assert trt.OnnxParser(again).parse_from_file(path)
    assert parser.supports_operator("Conv")
    assert not parser.supports_operator("Convolution")


def test_errors_are_listed() -> None:
    model = model_of(helper.make_node("Reluu", ["x"], ["y"], name="bad"), domains=())
    network = trt.Builder().create_network()
    parser = trt.OnnxParser(network)
    with pytest.raises(trt.Error, match="Reluu") as caught:
        parser.parse(model.SerializeToString())
    assert "Relu" in str(caught.value)
    assert parser.num_errors >= 1
    error = parser.get_error(0)
    assert error.node_name() == "bad"
    assert error.node_operator() == "Reluu"
    assert error.code() is trt.ErrorCode.UNSUPPORTED_NODE
    assert error.desc() == str(error)
    parser.clear_errors()
    assert parser.num_errors == 0
    with pytest.raises(trt.Error):
        trt.OnnxParser(trt.Builder().create_network()).parse(b"\xff\xff\xff")


def test_a_node_that_names_a_plugin() -> None:
    plugin_id = new_id("onnx")
    namespace, name = plugin_id.split("::")
    seen: dict[str, Any] = {}

    @trtp.register(plugin_id)
    def register(
        x: trtp.TensorDesc, ints: list[int], f: float, b: bool, s: str, k: int = 4
    ) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(
        x: trtp.Tensor,
        ints: list[int],
        f: float,
        b: bool,
        s: str,
        k: int,
        outputs: tuple[trtp.Tensor],
        stream: int,
    ) -> None:
        seen.update(ints=ints, f=f, b=b, s=s, k=k)
        np.asarray(outputs[0])[...] = np.asarray(x) * k

    attributes = {"ints": [1, 2], "f": 0.5, "b": 1, "s": "text"}
    node = helper.make_node(
        name, ["x"], ["y"], plugin_namespace=namespace, **attributes
    )
    x = random(2, 3)
    assert np.array_equal(trt.compile(model_of(node), device="cpu")(x), x * 4)
    assert seen == {"ints": [1, 2], "f": 0.5, "b": True, "s": "text", "k": 4}
    assert type(seen["b"]) is bool
    by_domain = helper.make_node(
        name, ["x"], ["y"], domain=namespace, k=2, **attributes
    )
    model = trt.compile(model_of(by_domain, domains=(namespace,)), device="cpu")
    assert np.array_equal(model(x), x * 2)


def test_array_attributes_of_a_node() -> None:
    plugin_id = new_id("arrays")
    namespace, name = plugin_id.split("::")
    import numpy.typing as npt

    @trtp.register(plugin_id)
    def register(x: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(
        x: trtp.Tensor,
        pads: npt.NDArray[np.int32],
        outputs: tuple[trtp.Tensor],
        stream: int,
    ) -> None:
        assert pads.dtype == np.int32
        np.asarray(outputs[0])[...] = np.asarray(x) * pads.sum()

    x = random(2, 3)
    from onnx import numpy_helper

    for value in ([1, 2], numpy_helper.from_array(np.array([1, 2], np.int32))):
        node = helper.make_node(
            name, ["x"], ["y"], plugin_namespace=namespace, pads=value
        )
        assert np.array_equal(trt.compile(model_of(node), device="cpu")(x), x * 3)


# ---- Plugin files ----

SOURCE = """
import numpy as np
import rabbet.plugin as trtp

@trtp.register("files::scale")
def scale(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("files::scale")
def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    np.asarray(outputs[0])[...] = np.asarray(x) * FACTOR
"""


def test_plugin_files(tmp_path: Path) -> None:
    file = tmp_path / "scale_ops.py"
    node = helper.make_node("scale", ["x"], ["y"], plugin_namespace="files")
    x = random(2, 3)
    for factor in (2, 3):
        file.write_text(SOURCE.replace("FACTOR", str(factor)))
        model = trt.compile(model_of(node), plugins=[file], device="cpu")
        assert np.array_equal(model(x), x * factor)
    assert load_file(file) is load_file(str(file))
    assert sys.modules["rabbet_plugins.scale_ops"].__file__ == str(file)


def test_files_of_one_name(tmp_path: Path) -> None:
    modules = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "same_name.py"
        file.write_text(f"WHERE = '{folder}'\n")
        modules.append(load_file(file))
    assert [m.WHERE for m in modules] == ["a", "b"]
    assert modules[0].__name__ != modules[1].__name__


def test_wrong_plugin_files(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"absent\.py"):
        load_plugins([tmp_path / "absent.py"])
    with pytest.raises(ModuleNotFoundError):
        load_plugins("no_such_module_at_all")
    with pytest.raises(trt.Error, match=r"absent\.so"):
        load_plugins(tmp_path / "absent.so")
    with pytest.raises(TypeError, match="plugins: expected"):
        load_plugins([3])
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError) as caught:
        load_plugins(broken)
    assert "broken.py" in caught.value.__notes__[0]
    assert "rabbet_plugins.broken" not in sys.modules


def test_command_line_plugins() -> None:
    arguments = [
        "build",
        "m.onnx",
        "--plugins",
        "a.py",
        "--plugins=b.py",
        "--plugins=c.so",
    ]
    assert plugin_files(arguments) == ["a.py", "b.py"]
    assert plugin_files(["run", "--plugins"]) == []


# ---- What can be imported, and weights from elsewhere ----


def test_subgraphs() -> None:
    model = model_of(
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Reluu", ["a"], ["b"], name="bad"),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    )
    network = trt.Builder().create_network()
    parser = trt.OnnxParser(network, trt.Logger())
    assert not parser.supports_model_v2(model.SerializeToString())
    assert network.num_layers == 0
    # Neither run is known to be importable: their types come from the bad node or go to it.
    assert parser.num_subgraphs == 2
    parts = [(parser.get_subgraph_nodes(i), parser.is_subgraph_supported(i)) for i in range(2)]
    assert parts == [([0], False), ([2, 3], False)]
    answer, graphs = parser.supports_model(model.SerializeToString())
    assert answer is False
    assert isinstance(graphs, trt.SubGraphCollection)
    assert graphs == parts
    assert isinstance(graphs[0][0], trt.NodeIndices)
    with pytest.raises(IndexError, match="there are 2"):
        parser.is_subgraph_supported(3)
    good = model_of(helper.make_node("Relu", ["x"], ["y"], name="only"))
    assert parser.supports_model_v2(good.SerializeToString())
    assert parser.num_subgraphs == 1
    assert parser.is_subgraph_supported(0)
    assert parser.num_errors == 0
    assert network.num_layers == 0
    assert parser.parse_with_weight_descriptors(good.SerializeToString())
    assert parser.get_layer_output_tensor("only", 0).name == "y"  # type: ignore[union-attr]
    with pytest.raises(LookupError, match="'other'"):
        parser.get_layer_output_tensor("other", 0)
    assert parser.get_used_vc_plugin_libraries() == []
    assert not parser.supports_model_v2(b"\xff\xff")
    assert parser.num_subgraphs == 0


def supported_runs(parser: trt.OnnxParser, model: onnx.ModelProto) -> list[list[int]]:
    """As clients find them: a run that is not known to be importable is cut out, and asked
    about alone."""

    def divide(nodes: list[int]) -> list[list[int]]:
        part = onnx.ModelProto()
        part.CopyFrom(model)
        del part.graph.node[:]
        part.graph.node.extend(model.graph.node[i] for i in nodes)
        made = {name for node in part.graph.node for name in node.output}
        read = {name for node in part.graph.node for name in node.input}
        del part.graph.input[:], part.graph.output[:]
        shape = [2, 3]
        part.graph.input.extend(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name in sorted(read - made)
        )
        part.graph.output.extend(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name in sorted(made - read)
        )
        _, runs = parser.supports_model(part.SerializeToString())
        found = []
        for indices, good in runs:
            run = [nodes[i] for i in indices]
            found += [run] if good else divide(run)
        return found

    return divide(list(range(len(model.graph.node))))


def test_clients_divide_a_model() -> None:
    parser = trt.OnnxParser(trt.Builder().create_network(), trt.Logger())
    model = model_of(
        helper.make_node("Reluu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Cast", ["b"], ["c"], to=TensorProto.STRING),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Reluu", ["d"], ["e"]),
        helper.make_node("Reluuu", ["e"], ["y"]),
    )
    assert supported_runs(parser, model) == [[1], [3]]


def test_subgraphs_are_of_the_main_graph() -> None:
    """Of errors in functions, each call is one; their nodes have other indices."""
    body = [helper.make_node("Relu", ["i"], ["t"]), helper.make_node("Reluu", ["t"], ["o"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Inner", ["i"], ["o"], body, opsets)
    outer = helper.make_function(
        "local", "Outer", ["i"], ["o"],
        [helper.make_node("Inner", ["i"], ["o"], domain="local")], opsets,
    )  # fmt: skip
    model = model_of(
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Outer", ["b"], ["c"], domain="local"),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Outer", ["d"], ["e"], domain="local", name="again"),
        helper.make_node("Relu", ["e"], ["y"]),
    )
    model.opset_import.append(opsets[1])
    model.functions.extend([function, outer])
    parser = trt.OnnxParser(trt.Builder().create_network(), trt.Logger())
    answer, runs = parser.supports_model(model.SerializeToString())
    assert not answer
    assert [nodes for nodes, _ in runs] == [[0, 1], [3], [5]]
    assert parser.num_errors == 2
    assert "'Outer' has nodes that cannot be imported" in str(parser.get_error(1))
    assert parser.get_error(1).node_name() == "again"


def test_no_subgraph_of_a_model_that_is_wrong_as_a_whole() -> None:
    model = model_of(helper.make_node("Relu", ["x"], ["y"]))
    model.graph.output[0].name = "nothing"
    parser = trt.OnnxParser(trt.Builder().create_network(), trt.Logger())
    assert not parser.supports_model_v2(model.SerializeToString())
    assert parser.num_errors == 1
    assert parser.num_subgraphs == 0


def test_initializers_from_elsewhere() -> None:
    weights = random(2, 3)
    model = model_of(helper.make_node("Add", ["x", "w"], ["y"]))
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [2, 3], [0] * 6))
    data = model.SerializeToString()

    def add(give: Any) -> Any:
        network = trt.Builder().create_network()
        parser = trt.OnnxParser(network)
        assert parser.load_model_proto(data)
        give(parser)
        parser.parse_model_proto()
        return trt.compile(network, device="cpu")

    x = random(2, 3, seed=1)
    by_buffer = add(lambda parser: parser.load_initializer("w", weights, weights.nbytes))
    assert np.array_equal(by_buffer(x), x + weights)
    address = weights.ctypes.data
    by_address = add(lambda parser: parser.load_initializer("w", address, weights.nbytes))
    assert np.array_equal(by_address(x), x + weights)
    with pytest.raises(LookupError, match="'v', which the model's graph does not have"):
        add(lambda parser: parser.load_initializer("v", weights, weights.nbytes))
    with pytest.raises(ValueError, match="need 24 bytes, but it holds 8"):
        add(lambda parser: parser.load_initializer("w", weights[0, :2], 8))
    with pytest.raises(ValueError, match="their size as 5"):
        add(lambda parser: parser.load_initializer("w", weights, 5))
    with pytest.raises(trt.Error, match="call load_model_proto"):
        trt.OnnxParser(trt.Builder().create_network()).parse_model_proto()
