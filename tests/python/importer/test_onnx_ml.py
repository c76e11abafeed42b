"""Operators of ai.onnx.ml against ONNX Runtime: models made at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
from onnx import helper, numpy_helper

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def model_of(
    operator: str, inputs: list[Any], outputs: list[str], version: int = 3, **attributes: Any
) -> onnx.ModelProto:
    """A node of ai.onnx.ml; rows (axis 0 of inputs of rank 2) are dynamic."""
    kinds = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(operator, names, outputs, domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(
            name, kind, ["n", *x.shape[1:]] if x.ndim == 2 else x.shape)
         for name, kind, x in zip(names, kinds, inputs, strict=True)],
        [helper.make_tensor_value_info(
            name, INT64 if name == "labels" else onnx.TensorProto.UNDEFINED, None)
         for name in outputs])  # fmt: skip
    for value in graph.output:
        if value.name != "labels":
            value.type.tensor_type.elem_type = FLOAT
    return helper.make_model(
        graph, ir_version=9,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)])


def expect(model: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in model.graph.input]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def found_by(compiled: Any, inputs: list[Any]) -> list[Any]:
    found = compiled(*inputs)
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def compare(
    model: onnx.ModelProto, inputs: list[Any], device: str = "cpu", expected: Any = None
) -> None:
    shapes = {
        value.name: ((0, *x.shape[1:]), x.shape, (999, *x.shape[1:]))
        for value, x in zip(model.graph.input, inputs, strict=True)
        if value.type.tensor_type.shape.dim[0].dim_param
    }
    compiled = rabbet.compile(
        model.SerializeToString(), device=device, threads=2, optimization_level=0, shapes=shapes)
    found = found_by(compiled, inputs)
    for one, correct in zip(found, expected or expect(model, inputs), strict=True):
        assert one.dtype == correct.dtype
        assert one.shape == correct.shape
        if one.dtype.kind == "i":
            np.testing.assert_array_equal(one, correct)
        else:
            np.testing.assert_allclose(one, correct, rtol=1e-4, atol=1e-5)


# ---- Trees -------------------------------------------------------------------


def grow(rng: Any, depth: int, features: int, modes: list[str]) -> list[dict[str, Any]]:
    """Nodes of a tree of random shape; children are indices."""
    nodes: list[dict[str, Any]] = [{}]
    open_nodes = [(0, depth)]
    while open_nodes:
        at, left = open_nodes.pop()
        if left == 0 or rng.random() < 0.2:
            nodes[at] = {"mode": "LEAF", "true": 0, "false": 0, "feature": 0, "value": 0.0}
            continue
        children = [len(nodes), len(nodes) + 1]
        nodes += [{}, {}]
        rng.shuffle(children)
        nodes[at] = {
            "mode": rng.choice(modes), "true": children[0], "false": children[1],
            "feature": int(rng.integers(features)), "value": float(rng.integers(-3, 4)) / 2,
        }  # fmt: skip
        open_nodes += [(child, left - 1) for child in children]
    return nodes


def tree_attributes(
    rng: Any, prefix: str, ids: list[int], trees: int = 7, features: int = 5,
    modes: list[str] | None = None, missing: bool = False, low: float = -1.0,
) -> dict[str, Any]:  # fmt: skip
    """Attributes of trees whose leaves have weights for `ids`."""
    lists: dict[str, list[Any]] = {}

    def add(**values: Any) -> None:
        for name, value in values.items():
            lists.setdefault(name, []).append(value)

    for tree in range(trees):
        nodes = grow(rng, int(rng.integers(0, 6)), features, modes or MODES)
        names = rng.permutation(len(nodes))
        for index, node in enumerate(nodes):
            add(nodes_treeids=tree, nodes_nodeids=int(names[index]),
                nodes_featureids=node["feature"], nodes_modes=str(node["mode"]),
                nodes_values=node["value"], nodes_truenodeids=int(names[node["true"]]),
                nodes_falsenodeids=int(names[node["false"]]))
            if missing:
                add(nodes_missing_value_tracks_true=int(rng.integers(2)))
            if node["mode"] == "LEAF":
                for target in ids:
                    add(**{f"{prefix}_treeids": tree, f"{prefix}_nodeids": int(names[index]),
                           f"{prefix}_ids": target,
                           f"{prefix}_weights": float(rng.uniform(low, 1))})
    return lists


def rows_of(rng: Any, rows: int, features: int = 5, nan: bool = False) -> Any:
    x = (rng.integers(-4, 5, (rows, features)) / 2).astype(np.float32)
    if nan:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("seed", range(24))
def test_trees_that_predict_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets = int(rng.choice([1, 1, 3]))
    transform = rng.choice(["NONE", "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
    attributes = tree_attributes(
        rng, "target", list(range(targets)), trees=int(rng.choice([1, 5, 90])),
        missing=seed % 2 == 0, modes=[[MODES[0]], [MODES[1]], MODES][seed % 3])
    if rng.random() < 0.5:
        attributes["base_values"] = rng.standard_normal(targets).tolist()
    x = rows_of(rng, int(rng.choice([1, 3, 20, 200])), nan=seed % 2 == 0)
    model = model_of(
        "TreeEnsembleRegressor", [x], ["y"], n_targets=targets, post_transform=str(transform),
        aggregate_function=str(rng.choice(["SUM", "AVERAGE", "MIN", "MAX"])), **attributes)
    compare(model, [x])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("low", [-1.0, 0.01])
@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("ids", [[0], [1], [0, 1, 2]])
def test_trees_that_predict_classes(
    ids: list[int], base: int, low: float, transform: str
) -> None:
    rng = np.random.default_rng(len(transform))
    classes = max(len(ids), 2)
    if ids == [1] and base:
        pytest.skip("refused")
    attributes = tree_attributes(rng, "class", ids, low=low)
    if base:
        attributes["base_values"] = rng.standard_normal(len(ids)).tolist()
    x = rows_of(rng, 30)
    model = model_of(
        "TreeEnsembleClassifier", [x], ["labels", "scores"], post_transform=transform,
        classlabels_int64s=[7, 5, 9][:classes], **attributes)
    compare(model, [x])


def test_probit_of_trees() -> None:
    rng = np.random.default_rng(2)
    attributes = tree_attributes(rng, "target", [0, 1], trees=1, low=0.01)
    x = rows_of(rng, 9)
    model = model_of(
        "TreeEnsembleRegressor", [x], ["y"], n_targets=2, post_transform="PROBIT", **attributes)
    compare(model, [x])


def test_two_classes_with_weights_have_the_label_of_the_greater_score() -> None:
    """ONNX Runtime takes the second one wherever its score is positive."""
    rng = np.random.default_rng(4)
    x = rows_of(rng, 50)
    attributes = tree_attributes(rng, "class", [0, 1], trees=1, low=0.01)
    model = model_of(
        "TreeEnsembleClassifier", [x], ["labels", "scores"], classlabels_int64s=[0, 1],
        **attributes)
    scores = expect(model, [x])[1]
    assert 0 < scores.argmax(1).sum() < 50
    compare(model, [x], expected=[scores.argmax(1), scores])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_trees_take_integers(dtype: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-3, 3, (12, 5)).astype(dtype)
    model = model_of(
        "TreeEnsembleClassifier", [x], ["labels", "scores"], classlabels_int64s=[0, 1, 2],
        **tree_attributes(rng, "class", [0, 1, 2]))
    compare(model, [x])


def test_a_vector_is_one_row() -> None:
    rng = np.random.default_rng(3)
    x = rows_of(rng, 1)[0]
    model = model_of(
        "TreeEnsembleRegressor", [x], ["y"], n_targets=1,
        **tree_attributes(np.random.default_rng(9), "target", [0]))
    rows = model_of(
        "TreeEnsembleRegressor", [x[None]], ["y"], n_targets=1,
        **tree_attributes(np.random.default_rng(9), "target", [0]))
    compare(model, [x], expected=expect(rows, [x[None]]))


def test_no_rows() -> None:
    rng = np.random.default_rng(3)
    x = rows_of(rng, 0)
    model = model_of(
        "TreeEnsembleRegressor", [x], ["y"], n_targets=2,
        **tree_attributes(rng, "target", [0, 1]))
    compare(model, [x], expected=[np.zeros((0, 2), np.float32)])


def ensemble_attributes(rng: Any, features: int, members: bool) -> dict[str, Any]:
    """Attributes of a TreeEnsemble, whose leaves have a list of their own."""
    roots, nodes, leaves, sets = [], [], [], []
    for _ in range(6):
        roots.append(len(nodes))
        tree = grow(rng, 5, features, MODES)
        if tree[0]["mode"] == "LEAF":  # both children of the root are one leaf
            tree = [dict(tree[0], mode="BRANCH_LEQ", true=1, false=1), dict(tree[0])]
        places: dict[int, tuple[int, int]] = {}
        inner = 0
        for index, node in enumerate(tree):
            if node["mode"] == "LEAF":
                places[index] = (1, len(leaves))
                leaves.append((int(rng.integers(3)), float(rng.standard_normal())))
            else:
                places[index] = (0, roots[-1] + inner)
                inner += 1
        for node in tree:
            if node["mode"] == "LEAF":
                continue
            mode = MODES.index(node["mode"])
            if members and rng.random() < 0.4:
                mode = 6
                sets += [*rng.permutation(8)[: rng.integers(1, 4)].tolist(), np.nan]
            nodes.append((node["feature"], mode, node["value"], *places[node["true"]],
                          *places[node["false"]]))
    columns = list(zip(*nodes, strict=True))
    attributes = {
        "n_targets": 3, "tree_roots": roots, "nodes_featureids": columns[0],
        "nodes_modes": numpy_helper.from_array(np.array(columns[1], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array(columns[2], np.float32)),
        "nodes_trueleafs": columns[3], "nodes_truenodeids": columns[4],
        "nodes_falseleafs": columns[5], "nodes_falsenodeids": columns[6],
        "leaf_targetids": [target for target, _ in leaves],
        "leaf_weights": numpy_helper.from_array(
            np.array([weight for _, weight in leaves], np.float32)),
    }  # fmt: skip
    if sets:
        attributes["membership_values"] = numpy_helper.from_array(np.array(sets, np.float32))
    return attributes


@pytest.mark.parametrize("seed", range(6))
def test_tree_ensembles_of_opset_5(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 8, (40, 5)).astype(np.float32)
    model = model_of(
        "TreeEnsemble", [x], ["y"], version=5, aggregate_function=seed % 4,
        **ensemble_attributes(rng, 5, members=seed > 1))
    compare(model, [x])


@pytest.mark.parametrize(("change", "message"), [
    ({"nodes_truenodeids": [0, 0, 0]}, "its own descendant"),
    ({"nodes_truenodeids": [8, 0, 0]}, "tree 0 has no node 8"),
    ({"nodes_modes": ["BRANCH_XX", "LEAF", "LEAF"]}, "is 'BRANCH_XX'; expected LEAF or"),
    ({"nodes_featureids": [0, 0]}, "'nodes_featureids' has 2 elements; expected 3"),
    ({"nodes_featureids": [-1, 0, 0]}, "compares feature -1"),
    ({"target_ids": [4, 0]}, "is for target 4"),
    ({"target_nodeids": [1, 5]}, "node 5 of tree 0, which does not exist"),
    ({"base_values": [1.0, 2.0]}, "'base_values' has 2 elements; expected 1"),
    ({"post_transform": "ODD"}, "'ODD'; expected NONE"),
    ({"aggregate_function": "ODD"}, "'ODD'; expected AVERAGE"),
])  # fmt: skip
def test_trees_that_are_wrong(change: dict[str, Any], message: str) -> None:
    attributes: dict[str, Any] = {
        "n_targets": 1, "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.0, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2],
        "target_ids": [0, 0], "target_weights": [1.0, 2.0], **change,
    }  # fmt: skip
    model = model_of(
        "TreeEnsembleRegressor", [np.zeros((2, 3), np.float32)], ["y"], **attributes)
    with pytest.raises(rabbet.Error, match=message):
        rabbet.compile(model.SerializeToString(), device="cpu")


# ---- What converters write ---------------------------------------------------


def pipeline(rng: Any, zipmap: bool, strings: bool = False) -> onnx.ModelProto:
    """A scaler, an imputer and a classifier, as skl2onnx exports a pipeline."""
    labels = {"classlabels_strings": ["a", "b", "c"]} if strings else {
        "classlabels_int64s": [0, 1, 2]}
    kinds = [onnx.TensorProto.STRING if strings else INT64, FLOAT]
    nodes = [
        helper.make_node("Imputer", ["x"], ["filled"], domain="ai.onnx.ml",
                         imputed_value_floats=[0.5, 1.0, -1.0, 0.0, 2.0],
                         replaced_value_float=float("nan")),
        helper.make_node("Scaler", ["filled"], ["scaled"], domain="ai.onnx.ml",
                         offset=[0.1, 0.2, 0.3, 0.4, 0.5], scale=[1.0, 2.0, 0.5, 1.5, 1.0]),
        helper.make_node("TreeEnsembleClassifier", ["scaled"], ["label", "probabilities"],
                         domain="ai.onnx.ml", name="Trees", **labels,
                         **tree_attributes(rng, "class", [0, 1, 2], modes=MODES[:1], low=0.01)),
    ]  # fmt: skip
    outputs = [helper.make_tensor_value_info("probabilities", FLOAT, None)]
    if not strings or zipmap:
        outputs.insert(0, helper.make_tensor_value_info("label", kinds[0], None))
    if zipmap:
        nodes.append(helper.make_node(
            "ZipMap", ["probabilities"], ["maps"], domain="ai.onnx.ml", **labels))
    graph = helper.make_graph(
        nodes, "pipeline", [helper.make_tensor_value_info("x", FLOAT, ["n", 5])], outputs)
    return helper.make_model(
        graph, ir_version=9,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)])


@pytest.mark.parametrize("strings", [False, True])
def test_a_pipeline(strings: bool) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((20, 5)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    compare(pipeline(rng, False, strings), [x])


def zipped(labels: list[Any], wide: bool = True) -> onnx.ModelProto:
    """Scores, and maps of them as the last node's output."""
    kind = "strings" if isinstance(labels[0], str) else "int64s"
    nodes = [
        helper.make_node("Softmax", ["x"], ["scores"]),
        helper.make_node("ZipMap", ["scores"], ["maps"], name="Maps", domain="ai.onnx.ml",
                         **{f"classlabels_{kind}": labels}),
    ]  # fmt: skip
    key = onnx.TensorProto.STRING if kind == "strings" else INT64
    maps = helper.make_sequence_type_proto(
        helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, [])))
    shape: list[Any] = ["n", 3] if wide else [3]
    graph = helper.make_graph(
        nodes, "zipped", [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_value_info("maps", maps)])
    return helper.make_model(
        graph, ir_version=9,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)])


class Warnings(rabbet.ILogger):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        if severity == rabbet.ILogger.WARNING:
            self.messages.append(message)


@pytest.mark.parametrize(
    ("labels", "wide"), [([0, 1, 2], True), (["a", "b", "c"], True), ([0, 1, 2], False)])
def test_maps_of_scores_are_a_tensor_of_them(labels: list[Any], wide: bool) -> None:
    model = zipped(labels, wide).SerializeToString()
    x = np.random.default_rng(3).standard_normal((4, 3) if wide else (3,)).astype(np.float32)
    maps = onnxruntime.InferenceSession(model).run(None, {"x": x})[0]
    logger = Warnings()
    shapes = {"x": ((1, 3), (2, 3), (9, 3))} if wide else None
    scores = rabbet.compile(model, device="cpu", shapes=shapes, logger=logger).run({"x": x})
    expected = [[row[label] for label in labels] for row in maps]
    np.testing.assert_allclose(scores["maps"], expected, rtol=1e-5)
    shown = ", ".join(map(repr, labels))
    assert any("'maps' is a sequence of maps" in m and m.endswith(f"the labels {shown}")
               for m in logger.messages)  # fmt: skip


def test_many_labels_are_not_all_shown() -> None:
    labels = [f"class {i}" for i in range(3)] + ["x" * 2000]
    model = zipped(labels)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    logger = Warnings()
    rabbet.compile(model.SerializeToString(), device="cpu", logger=logger,
                   shapes={"x": ((1, 4), (2, 4), (9, 4))})
    assert any("'class 2', 'xxx" in m for m in logger.messages)


def test_maps_whose_labels_are_other_indices_are_refused() -> None:
    """scores[i][2] would be the scores of 3."""
    with pytest.raises(rabbet.Error, match=r"label 3 \(of 1, 2, 3\).*options=\{'zipmap': False\}"):
        rabbet.compile(zipped([1, 2, 3]).SerializeToString(), device="cpu")


def test_maps_that_a_node_reads_are_refused() -> None:
    model = zipped([0, 1, 2])
    model.graph.node.append(helper.make_node("SequenceLength", ["maps"], ["count"]))
    model.graph.output.append(helper.make_tensor_value_info("count", INT64, []))
    with pytest.raises(rabbet.Error, match=r"Maps.*\('maps'\) is a sequence of maps.*may read it"):
        rabbet.compile(model.SerializeToString(), device="cpu")


@pytest.mark.parametrize("read", ["scores", "maps"])
def test_graphs_in_nodes_may_read_other_tensors(read: str) -> None:
    """Converters of nearest neighbours write a Scan beside the ZipMap."""
    model = zipped([0, 1, 2])
    kind = "Identity" if read == "scores" else "SequenceLength"
    body = helper.make_graph(
        [helper.make_node(kind, [read], ["r"])], "body", [],
        [helper.make_tensor_value_info("r", FLOAT if read == "scores" else INT64, None)])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["flag"], to=onnx.TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body),
    ]
    model.graph.node.extend(nodes)
    model.graph.output.append(helper.make_tensor_value_info("y", FLOAT, None))
    if read == "scores":
        x = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)
        compiled = rabbet.compile(
            model.SerializeToString(), device="cpu", shapes={"x": ((1, 3), (2, 3), (9, 3))})
        scores, y = compiled(x)
        np.testing.assert_array_equal(scores, y)
        expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        np.testing.assert_allclose(scores, expected, rtol=1e-5)
    else:
        with pytest.raises(rabbet.Error, match=r"is a sequence of maps.*may read it"):
            rabbet.compile(model.SerializeToString(), device="cpu")


def test_maps_of_other_counts_are_refused() -> None:
    with pytest.raises(rabbet.Error, match="2 labels for 3 columns"):
        rabbet.compile(zipped([0, 1]).SerializeToString(), device="cpu")


def test_labels_that_are_strings_are_refused_where_they_are_read() -> None:
    model = pipeline(np.random.default_rng(7), True, strings=True)
    del model.graph.node[-1]
    with pytest.raises(rabbet.Error, match=r"output 0 \('label'\) holds labels that are strings"):
        rabbet.compile(model.SerializeToString(), device="cpu")


@pytest.mark.parametrize("operator", [
    "CastMap", "DictVectorizer", "CategoryMapper",
])  # fmt: skip
def test_operators_on_maps_and_strings_are_refused_by_name(operator: str) -> None:
    model = model_of(operator, [np.zeros((2, 3), np.float32)], ["y"])
    with pytest.raises(rabbet.Error, match=f"\\({operator}, .*(map|strings)"):
        rabbet.compile(model.SerializeToString(), device="cpu")


# ---- Others ------------------------------------------------------------------

TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(targets: int, transform: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6, 4)).astype(np.float32)
    compare(model_of(
        "LinearRegressor", [x], ["y"], version=1, targets=targets, post_transform=transform,
        coefficients=rng.standard_normal(4 * targets).tolist(),
        intercepts=rng.standard_normal(targets).tolist()), [x])


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(("scores", "labels"), [(1, 2), (2, 2), (3, 3)])
def test_linear_classifier(scores: int, labels: int, transform: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6, 4)).astype(np.float32)
    compare(model_of(
        "LinearClassifier", [x], ["labels", "scores"], version=1, post_transform=transform,
        coefficients=rng.standard_normal(4 * scores).tolist(), multi_class=1,
        intercepts=rng.standard_normal(scores).tolist(),
        classlabels_ints=[4, 2, 9][:labels]), [x])


def svm_attributes(rng: Any, classes: int, features: int = 4) -> dict[str, Any]:
    counts = rng.integers(1, 5, classes).tolist()
    pairs = classes * (classes - 1) // 2
    return {
        "vectors_per_class": counts,
        "support_vectors": rng.standard_normal(sum(counts) * features).tolist(),
        "coefficients": rng.standard_normal((classes - 1) * sum(counts)).tolist(),
        "rho": rng.standard_normal(pairs).tolist(),
        "classlabels_ints": [4, 2, 9, 7, 5][:classes],
        "kernel_params": [0.3, 0.1, 2.0],
    }


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("kernel", ["LINEAR", "RBF"])
def test_svm_classifier(classes: int, transform: str, kernel: str) -> None:
    rng = np.random.default_rng(classes)
    x = rng.standard_normal((9, 4)).astype(np.float32)
    compare(model_of(
        "SVMClassifier", [x], ["labels", "scores"], version=1, post_transform=transform,
        kernel_type=kernel, **svm_attributes(rng, classes)), [x])


@pytest.mark.parametrize("rows", [1, 50])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_svm_probabilities(classes: int, rows: int) -> None:
    """Iterations end at a tolerance, in each row at another one."""
    rng = np.random.default_rng(classes)
    x = rng.standard_normal((rows, 4)).astype(np.float32)
    pairs = classes * (classes - 1) // 2
    a, b = rng.uniform(-2, -0.5, pairs), rng.uniform(-0.3, 0.3, pairs)
    compare(model_of(
        "SVMClassifier", [x], ["labels", "scores"], version=1, kernel_type="RBF",
        prob_a=a.tolist(), prob_b=b.tolist(), **svm_attributes(rng, classes)), [x])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_svm_classifier(classes: int, sign: int) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((9, 4)).astype(np.float32)
    compare(model_of(
        "SVMClassifier", [x], ["labels", "scores"], version=1, rho=[0.2], kernel_params=[0.0] * 3,
        coefficients=(sign * rng.uniform(0, 1, 4 * classes)).tolist(),
        classlabels_ints=[4, 2, 9][:classes]), [x])


def test_svm_classifier_checks_its_attributes() -> None:
    x = np.zeros((2, 4), np.float32)
    attributes = svm_attributes(np.random.default_rng(0), 3)
    attributes["rho"] = [0.0]
    model = model_of("SVMClassifier", [x], ["labels", "scores"], version=1, **attributes)
    with pytest.raises(rabbet.Error, match="'rho' has 1 elements; expected 3"):
        rabbet.compile(model.SerializeToString(), device="cpu")
    nothing = {"rho": [0.0] * 3, "vectors_per_class": [0, 0, 0], "classlabels_ints": [1, 2, 3]}
    model = model_of("SVMClassifier", [x], ["labels", "scores"], version=1, **nothing)
    with pytest.raises(rabbet.Error, match="'vectors_per_class' has 3 zeros; expected 1 vector"):
        rabbet.compile(model.SerializeToString(), device="cpu")


ROWS = np.array([[1, -4, 2, 0], [0, 0, 0, 0], [-3, -1, -2, -1], [1, 3, 7, 9]], np.float32)
WITH_NAN = np.where(ROWS == 0, np.nan, ROWS)
INTS = ROWS.astype(np.int64)

CASES: dict[str, Any] = {
    "Scaler": ("Scaler", [ROWS], {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5] * 4}),
    "Scaler of integers": ("Scaler", [INTS], {"offset": [1.0], "scale": [0.5]}),
    "Normalizer MAX": ("Normalizer", [ROWS], {"norm": "MAX"}),
    "Normalizer L1": ("Normalizer", [ROWS], {"norm": "L1"}),
    "Normalizer L2": ("Normalizer", [ROWS], {"norm": "L2"}),
    "Imputer": ("Imputer", [ROWS], {"imputed_value_floats": [9.0], "replaced_value_float": 1.0}),
    "Imputer of NaN": ("Imputer", [WITH_NAN], {
        "imputed_value_floats": [9.0, 8.0, 7.0, 6.0], "replaced_value_float": float("nan")}),
    "Imputer of integers": ("Imputer", [INTS], {
        "imputed_value_int64s": [9, 8, 7, 6], "replaced_value_int64": -1}),
    "Binarizer": ("Binarizer", [ROWS], {"threshold": 1.5}),
    "ArrayFeatureExtractor": (
        "ArrayFeatureExtractor", [ROWS, np.array([3, 0, 3], np.int64)], {}),
    "ArrayFeatureExtractor of a vector": (
        "ArrayFeatureExtractor", [ROWS[3], np.array([2, 1], np.int64)], {}),
    "FeatureVectorizer": ("FeatureVectorizer", [ROWS, ROWS[:, :2]], {"inputdimensions": [4, 2]}),
    "OneHotEncoder": ("OneHotEncoder", [INTS], {"cats_int64s": [0, 1, 3, -4]}),
    "OneHotEncoder of numbers": ("OneHotEncoder", [ROWS], {"cats_int64s": [0, 1, 3, -4]}),
    "LabelEncoder": ("LabelEncoder", [INTS], {
        "keys_int64s": [0, 1, 3], "values_int64s": [10, 11, 13], "default_int64": -7}),
    "LabelEncoder to FLOAT": ("LabelEncoder", [INTS], {
        "keys_int64s": [0, 1, 3], "values_floats": [0.5, 1.5, 2.5], "default_float": 9.5}),
    "LabelEncoder of FLOAT": ("LabelEncoder", [WITH_NAN], {
        "keys_floats": [float("nan"), 1.0, 3.0], "values_int64s": [10, 11, 13]}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_others(name: str) -> None:
    operator, inputs, attributes = CASES[name]
    version = 4 if operator == "LabelEncoder" else 1
    model = model_of(operator, inputs, ["y"], version=version, **attributes)
    integer = name in ("LabelEncoder", "LabelEncoder of FLOAT", "Imputer of integers")
    model.graph.output[0].type.tensor_type.elem_type = INT64 if integer else FLOAT
    compare(model, inputs)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_support_vector_regressor(one_class: int, kernel: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((7, 4)).astype(np.float32)
    compare(model_of(
        "SVMRegressor", [x], ["y"], version=1, kernel_type=kernel, one_class=one_class,
        n_supports=6, support_vectors=rng.standard_normal(24).tolist(), rho=[0.1],
        coefficients=rng.standard_normal(6).tolist(), kernel_params=[0.3, 0.2, 3.0]), [x])


def test_linear_support_vector_regressor() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((7, 4)).astype(np.float32)
    compare(model_of(
        "SVMRegressor", [x], ["y"], version=1, kernel_type="LINEAR", n_supports=0, rho=[0.1],
        coefficients=rng.standard_normal(4).tolist(), kernel_params=[0.3, 0.2, 3.0]), [x])


def test_one_hot_encoder_of_values_without_a_category() -> None:
    """Of which the attribute makes an error, as sklearn's encoder does by default."""
    known = np.array([[0, 3], [-4, 1], [1, 1]], np.int64)
    model = model_of("OneHotEncoder", [known], ["y"], cats_int64s=[0, 1, 3, -4], zeros=0)
    compare(model, [known])
    shapes = {"x0": ((1, 2), (3, 2), (4, 2))}
    compiled = rabbet.compile(model, device="cpu", threads=1, shapes=shapes)
    with pytest.raises(rabbet.Error, match="is one of the categories"):
        compiled(np.array([[0, 3], [2, 1], [1, 1]], np.int64))
