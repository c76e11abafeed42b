"""Plans kept in models (EPContext), and what damages them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.python.support import onnx_text, provider

RNG = np.random.default_rng(3)
WEIGHTS = RNG.standard_normal((8, 5)).astype(np.float32)


def _model(rows: str = "4") -> onnx.ModelProto:
    model = onnx_text.model_of(
        f"float[{rows},8] x, float[8,5] w", "float[a,b] y", "z = MatMul(x, w)\ny = Relu(z)", 17, 10)
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "w"))
    return model


def _made(folder: Path, embed: bool, rows: str = "4", **options: Any) -> Path:
    """A model with the plans in it, or beside it."""
    source, target = folder / "model.onnx", folder / "model_ctx.onnx"
    onnx.save(_model(rows), source)
    provider.session(source, {
        "ep.context_enable": "1",
        "ep.context_file_path": str(target),
        "ep.context_embed_mode": str(int(embed)),
    }, **options)
    return target


def _check(path: Path, rows: int = 4) -> None:
    session = provider.session(path)
    x = RNG.standard_normal((rows, 8)).astype(np.float32)
    provider.same(session.run(None, {"x": x}), [np.maximum(x @ WEIGHTS, 0)])
    assert provider.parts(session) == [["EPContext"]]


@pytest.mark.parametrize("embed", [True, False])
def test_made_and_loaded(tmp_path: Path, embed: bool) -> None:
    path = _made(tmp_path, embed)
    (tmp_path / "model.onnx").unlink()
    node = onnx.load(path).graph.node[0]
    assert (node.op_type, node.domain) == ("EPContext", "com.microsoft")
    assert next(x for x in node.attribute if x.name == "source").s == provider.NAME.encode()
    assert len(list(tmp_path.glob("*.plan"))) == (0 if embed else 1)
    _check(path)


def test_models_of_a_folder_have_plans_of_their_own(tmp_path: Path) -> None:
    """ONNX Runtime gives the nodes of models one name that differ in their weights alone."""
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    paths = []
    for factor in (1, 2):
        model = _model()
        model.graph.initializer[0].CopyFrom(
            numpy_helper.from_array(WEIGHTS * np.float32(factor), "w"))
        paths.append(tmp_path / f"times..{factor}.onnx")
        provider.session(model.SerializeToString(), {
            "ep.context_enable": "1", "ep.context_file_path": str(paths[-1])})
    assert len(list(tmp_path.glob("times..*.plan"))) == 2
    for factor, path in zip((1, 2), paths, strict=True):
        got = provider.session(path).run(None, {"x": x})
        provider.same(got, [np.maximum(x @ WEIGHTS * np.float32(factor), 0)])


def _branch(op_type: str, name: str) -> onnx.GraphProto:
    """Nodes of which the importer refuses the last."""
    nodes = [
        helper.make_node(op_type, ["x", "k"], [f"{name}0"]),
        helper.make_node("Cast", [f"{name}0"], [f"{name}1"], to=TensorProto.INT64),
        helper.make_node(
            "TfIdfVectorizer", [f"{name}1"], [name], max_gram_length=1, max_skip_count=0,
            min_gram_length=1, mode="TF", ngram_counts=[0], ngram_indexes=[0, 1, 2],
            pool_int64s=[0, 1, 2]),
    ]
    return helper.make_graph(
        nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["A", "B"])],
        [numpy_helper.from_array(np.array([1, 2, 3, 1.5], np.float32), "k")])


@pytest.mark.parametrize("embed", ["0", "1"])
def test_graphs_within_nodes(tmp_path: Path, embed: str) -> None:
    """ONNX Runtime puts no plans into them: what is not taken whole is left to it."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node(
            "If", ["c"], ["b"], then_branch=_branch("Add", "t"), else_branch=_branch("Mul", "e")),
        helper.make_node("ReduceSum", ["b"], ["s"]),
        helper.make_node("Add", ["a", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4]),
                     helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    path = tmp_path / "model_ctx.onnx"
    provider.session(model, {"ep.context_enable": "1", "ep.context_file_path": str(path),
                             "ep.context_embed_mode": embed})
    session, reference = provider.session(path), provider.reference(model)
    assert ["EPContext"] in provider.parts(session)
    for chosen in (True, False):
        feed = {"x": np.arange(12, dtype=np.float32).reshape(3, 4) / 4, "c": np.array(chosen)}
        provider.same(session.run(None, feed), reference.run(None, feed))


def test_all_sizes(tmp_path: Path) -> None:
    path = _made(tmp_path, True, "N")
    for rows in (1, 4, 33):
        _check(path, rows)


def test_ranges_of_options(tmp_path: Path) -> None:
    path = _made(tmp_path, True, "N", dims="N=2:4:8")
    _check(path, 8)
    x = np.zeros((9, 8), np.float32)
    with pytest.raises(Exception, match=r"'x' has shape \(9, 8\); the plan takes \(2, 8\) to"):
        provider.session(path).run(None, {"x": x})


def _damaged(path: Path, change: Any) -> bytes:
    model = onnx.load(path)
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "ep_cache_context":
            attribute.s = change(attribute.s)
    return model.SerializeToString()


@pytest.mark.parametrize("change", [
    lambda plan: b"",
    lambda plan: plan[: len(plan) // 2],
    lambda plan: plan[:100] + bytes([plan[100] ^ 1]) + plan[101:],
    lambda plan: plan[:-1] + bytes([plan[-1] ^ 1]),
    lambda plan: b"x" * len(plan),
])  # fmt: skip
def test_damaged_plans_are_refused(tmp_path: Path, change: Any) -> None:
    path = _made(tmp_path, True)
    with pytest.raises(Exception, match="plan of node 'Rabbet"):
        provider.session(_damaged(path, change))


@pytest.mark.parametrize("name", ["/etc/passwd", "../model.plan", "a/../../b", "a/..", ""])
def test_files_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    path = _made(tmp_path, False)
    path.write_bytes(_damaged(path, lambda _: name.encode()))
    with pytest.raises(Exception, match="is not beside the model"):
        provider.session(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = _made(tmp_path, False)
    next(iter(tmp_path.glob("*.plan"))).unlink()
    with pytest.raises(Exception, match=r"\.plan"):
        provider.session(path)


def test_another_plan_is_refused(tmp_path: Path) -> None:
    """Names and types of the node's inputs and outputs are those of the plan."""
    path = _made(tmp_path, True)
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    with pytest.raises(Exception, match="input 'x' is FLOAT; the model has type 6"):
        provider.session(model.SerializeToString())
    model = onnx.load(path)
    model.graph.input[0].name = model.graph.node[0].input[0] = "other"
    with pytest.raises(Exception, match="the plan has no input 'other'"):
        provider.session(model.SerializeToString())


def test_with_the_compile_interface(tmp_path: Path) -> None:
    import rabbet.onnxruntime

    source, target = tmp_path / "model.onnx", tmp_path / "compiled.onnx"
    onnx.save(_model(), source)
    options = provider.options_of()
    rabbet.onnxruntime.add_provider(options, threads=1, optimization_level=0)
    ort.ModelCompiler(options, str(source), embed_compiled_data_into_model=True).compile_to_file(
        str(target))
    _check(target)
