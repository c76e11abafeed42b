"""The zoo (zoo/): small architectures against ONNX Runtime, and the parts it is made of."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from zoo import __main__ as main
from zoo import catalogue, check, export, feeds, jobs, kept, run, table, tf32, verdicts
from zoo import reference as references
from zoo.entries import FORMS, Entry, Input, usual_forms

SMALLEST = [
    ("torchvision/squeezenet1_1", "ts-dynamic"),
    ("torchvision/shufflenet_v2_x0_5", "ts-fixed"),
    ("torchvision/swin", "ts-fixed"),
    ("timm/test_vit2", "dynamo-fixed"),
    ("timm/convnext_atto", "ts-dynamic"),
    ("transformers/bert", "ts-dynamic"),
    ("transformers/gpt2", "ts-fixed"),
    ("transformers/llama_step", "ts-dynamic"),
    ("transformers/convnextv2", "ts-dynamic"),
    ("diffusers/vae_kl_decoder", "ts-dynamic"),
    ("diffusers/dit", "ts-fixed"),
    ("ultralytics/yolov8n-cls", "ts-fixed"),
    ("torch/lstm_crf_tagger", "ts-dynamic"),
    ("torch/transducer_greedy", "ts-dynamic"),
]


@pytest.mark.parametrize(("key", "form"), SMALLEST)
def test_small_architecture(key, form, tmp_path):
    for name in ("torch", key.split("/")[0]):
        pytest.importorskip(name)
    export.export(key, form, ["fp32"], str(tmp_path), "")
    spec = tmp_path / f"{export.stem(key, form, 'fp32')}.json"
    assert "error" not in json.loads(spec.read_text())
    result = tmp_path / "result.json"
    check.check(check.Task(str(spec), "fp32", str(result), "cpu", 1, False))
    found = json.loads(result.read_text())
    assert found.get("error") is None
    assert found["stage"] == "done"
    assert found["worst"] <= check.BOUNDS["fp32"]


def test_catalogue():
    entries = catalogue.entries()
    assert len(entries) > 300
    assert {e.library for e in entries.values()} == set(catalogue.LIBRARIES)
    for entry in entries.values():
        assert set(usual_forms(entry.key)) <= set(FORMS)
        for sizes in feeds.points(entry.dims).values():
            for one in entry.inputs:
                assert min(feeds.shape_at(one.shape, sizes), default=1) > 0
                assert one.kind in feeds.KINDS
        for low, usual, high in entry.dims.values():
            assert 0 < low <= usual <= high


def test_shapes_and_seeds():
    inputs = [
        Input("x", ("batch", 3, "8 * cells")),
        Input("ids", ("past + 1",), "ids", 9),
    ]
    sizes = {"batch": 2, "cells": 3, "past": 4}
    first, second = (feeds.arrays(inputs, sizes, seed) for seed in (1, 2))
    assert first["x"].shape == (2, 3, 24)
    assert first["ids"].shape == (5,)
    assert first["ids"].max() < 9
    assert not np.array_equal(first["x"], second["x"])
    np.testing.assert_array_equal(first["x"], feeds.arrays(inputs, sizes, 1)["x"])


@pytest.mark.parametrize(
    ("result", "reference", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([1.0, np.inf], [1.0, np.inf], 0),
        ([1.0, np.nan], [1.0, np.nan], 0),
        ([1.0, np.inf], [1.0, -np.inf], np.inf),
        ([1.0, np.nan], [1.0, np.inf], np.inf),
        ([1.0, 2.0], [1.0, np.inf], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
        ([1, 2, 3, 5], [1, 2, 3, 4], 0.25),
        ([0.5], [0.0], np.inf),
    ],
)
def test_errors(result, reference, expected):
    found = references.error(np.array(result), np.array(reference))
    assert found == pytest.approx(expected)


def _product(path: Path) -> Path:
    """y = (x w) w, the first product in a branch."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 8)).astype(np.float32)
    branch = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["t"])],
        "branch",
        [],
        [helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, [2, 8])],
    )
    nodes = [
        helper.make_node(
            "Constant", [], ["c"], value=numpy_helper.from_array(np.True_)
        ),
        helper.make_node("If", ["c"], ["t"], then_branch=branch, else_branch=branch),
        helper.make_node("MatMul", ["t", "w"], ["y"]),
    ]
    sides = [
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 8])] for n in "xy"
    ]
    graph = helper.make_graph(nodes, "g", *sides, [numpy_helper.from_array(w, "w")])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


def _tf32(x):
    """To nearest, as bits."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = bits + 0xFFF + (bits >> 13 & 1)
    return (bits >> 13 << 13).astype(np.uint32).view(np.float32)


def test_factors_are_rounded_to_tf32_in_all_graphs(tmp_path):
    path = _product(tmp_path / "product.onnx")
    model = onnx.load(path)
    w = onnx.numpy_helper.to_array(model.graph.initializer[0])
    x = np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)
    session = references.session(tf32.rounded(path), 1, optimized=False)
    (y,) = session.run(None, {"x": x})
    expected = _tf32(_tf32(x) @ _tf32(w)) @ _tf32(w)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert references.error(y, x @ w @ w) > 1e-4


def test_bounds_are_those_of_the_type_at_each_size(tmp_path, monkeypatch):
    path = _product(tmp_path / "product.onnx")
    inputs = [{"name": "x", "shape": (2, 8), "kind": "normal", "high": 1}]
    reference = references.make_reference({"inputs": inputs, "dims": {}}, path)
    half = check.Task("", "fp16", "", "cpu", 1, False, torch_errors={"usual": 0.04})
    for error, right in [(0.01, True), (0.07, True), (0.09, False)]:
        found = check.judge(half, reference, path, {"usual": [error]})
        assert found["right"] == right
    monkeypatch.setattr(check, "TF32_BOUND", 1e-6)
    whole = check.Task("", "fp32", "", "cuda", 1, False)
    inherent = check.judge(whole, reference, path, {"usual": [1.0]})["inherent"][
        "usual"
    ]
    assert 1e-5 < inherent < 1e-2
    for factor, right in [(1.9, True), (2.1, False)]:
        errors = {"usual": [factor * inherent]}
        assert check.judge(whole, reference, path, errors)["right"] == right


class _Sides:
    """y = 1 where the sum of x is over `bound`, else 2; `factor` is an error."""

    def __init__(self, bound, factor=1.0):
        self._bound, self._factor = bound, factor

    def run(self, arrays):
        y = np.float32(1 if arrays["x"].sum(dtype=np.float64) > self._bound else 2)
        return {"y": np.full((1,), y * self._factor, np.float32)}


def _over(path: Path, bound: float) -> Path:
    """The same as a model."""
    make, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [
        make("ReduceSum", ["x"], ["sum"], keepdims=0),
        make("Greater", ["sum", "bound"], ["over"]),
        make("Where", ["over", "one", "two"], ["y"]),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array(v, np.float32), n)
        for n, v in [("bound", bound), ("one", [1]), ("two", [2])]
    ]
    sides = [value("x", 1, [2, 8])], [value("y", 1, [1])]
    graph = onnx.helper.make_graph(nodes, "g", *sides, constants)
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


def test_where_the_reference_jumps_other_inputs_are_drawn(tmp_path):
    spec = _spec(2, 8)
    inputs = [Input(**{**i, "shape": tuple(i["shape"])}) for i in spec["inputs"]]
    edge = feeds.arrays(inputs, {}, references.SEED)["x"].sum(dtype=np.float64)
    at_edge = references.make_reference(spec, _over(tmp_path / "edge.onnx", edge))
    far = references.make_reference(spec, _over(tmp_path / "far.onnx", edge - 0.5))
    assert at_edge.jump("usual") >= 0.5
    assert far.jump("usual") == 0
    # On the other side of the edge, by less than a sum's rounding error.
    ours = 2 if at_edge.outputs["usual"][0][0] == 1 else 1
    near = _Sides(edge + (1e-7 if ours == 2 else -1e-7))
    errors = check.compare(near, at_edge)
    assert errors["usual"][0] >= 0.5
    assert check.again(near, at_edge, errors) == {"usual": [0.0]}
    wrong = _Sides(edge, factor=1.1)
    errors = check.again(wrong, at_edge, check.compare(wrong, at_edge))
    assert errors["usual"][0] == pytest.approx(0.1, rel=1e-3)
    wrong = _Sides(edge - 0.5, factor=1.1)
    assert check.again(wrong, far, check.compare(wrong, far)) == {}


def _file(path: Path, *nodes: onnx.NodeProto, kind: int, scale: int = 0) -> Path:
    """A model of `x` and `y`, of 2 by 8 elements of the type `kind`; `scale` is the type
    of a constant of that name."""
    values = [onnx.helper.make_tensor_value_info(n, kind, [2, 8]) for n in "xy"]
    constants = [onnx.helper.make_tensor("scale", scale or kind, [8], [1] * 8)]
    graph = onnx.helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


def _spec(*shape: int) -> dict[str, object]:
    inputs = [{"name": "x", "shape": shape, "kind": "normal", "high": 1}]
    return {"inputs": inputs, "dims": {}}


def test_what_draws_random_numbers_is_no_reference(tmp_path):
    node = onnx.helper.make_node
    nodes = [node("RandomUniformLike", ["x"], ["n"]), node("Add", ["x", "n"], ["y"])]
    path = _file(tmp_path / "random.onnx", *nodes, kind=onnx.TensorProto.FLOAT)
    with pytest.raises(references.RandomError, match="two runs"):
        references.make_reference(_spec(2, 8), path)
    path = _file(tmp_path / "same.onnx", node("Exp", ["x"], ["y"]), kind=1)
    assert references.make_reference(_spec(2, 8), path).outputs["usual"][0].shape == (
        2,
        8,
    )


@pytest.mark.parametrize(
    ("kind", "scale", "refused"),
    [("FLOAT16", "FLOAT16", None), ("FLOAT", "FLOAT16", "bound to different types"),
     ("BFLOAT16", "BFLOAT16", None)],
)  # fmt: skip
def test_files_in_half_are_those_that_onnx_runtime_takes(
    tmp_path, kind, scale, refused
):
    node = onnx.helper.make_node("LayerNormalization", ["x", "scale"], ["y"])
    types = [getattr(onnx.TensorProto, name) for name in (kind, scale)]
    path = _file(tmp_path / "half.onnx", node, kind=types[0], scale=types[1])
    if refused is None:
        export._load(path)
    else:
        with pytest.raises(Exception, match=refused):
            export._load(path)


def test_a_module_that_enlarges_rounding_is_unfit():
    torch = pytest.importorskip("torch")

    class Wild(torch.nn.Module):
        def forward(self, x):
            return torch.sin(1e5 * x)

    entry = Entry("torch", "wild", Wild, [Input("x", (2, 8))])
    with pytest.raises(export.UnfitError, match="a millionth off"):
        export._settled(entry, Wild)


def test_normalized_convolutions_are_exported_in_bf16(tmp_path):
    torch = pytest.importorskip("torch")

    def make() -> object:
        return torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4))

    entry = Entry("torch", "normalized", make, [Input("x", (1, 2, 8, 8))])
    module = make().eval().requires_grad_(False)
    first = [module(t) for t in export._tensors(entry, 1)]
    found = export._halves(entry, module, "dynamo-fixed", "bf16", first, tmp_path)
    model = onnx.load(tmp_path / found["file"])
    types = {i.data_type for i in model.graph.initializer}
    assert types == {onnx.TensorProto.BFLOAT16}


def test_the_fallback_has_the_same_weights():
    torch = pytest.importorskip("torch")

    def make() -> object:
        module = torch.nn.BatchNorm1d(4)
        module.register_buffer("table", torch.randn(3, 2), persistent=False)
        return module

    module = make()
    torch.nn.init.normal_(module.weight)
    entry = Entry("torch", "norm", make, [], fallback=make)
    other = export._written_out(entry, module)
    assert other is not module
    assert torch.equal(other.weight, module.weight)
    assert torch.equal(other.table, module.table)


# ---- Jobs in processes of their own ----


def crash() -> None:
    import ctypes

    ctypes.string_at(0)


def hang() -> None:
    time.sleep(60)


def grow() -> None:
    kept = np.ones(2**29, np.uint8)
    time.sleep(60)
    assert kept.any()


def note(path: str) -> None:
    Path(path).write_text("done")
    print("said")


def _job(name: str, tmp_path: Path, *arguments: str) -> jobs.Job:
    target = f"tests.python.project.test_zoo:{name}"
    log = tmp_path / f"{name}.log"
    seconds = 2 if name == "hang" else 30
    return jobs.Job(name, target, arguments, log, "check", seconds, 0.4)


def test_a_job_that_dies_is_an_outcome(tmp_path):
    pool = jobs.Pool({"check": 4})
    pool.add(_job("crash", tmp_path))
    pool.add(_job("hang", tmp_path))
    pool.add(_job("grow", tmp_path))
    pool.add(_job("note", tmp_path, str(tmp_path / "noted")))
    found = {}
    assert pool.run(
        lambda o: found.update({o.job.name: o.trouble}), time.monotonic() + 60
    )
    assert found == {
        "crash": "died of SIGSEGV",
        "hang": "took longer than 2 s",
        "grow": "took more than 0.4 GiB of memory",
        "note": None,
    }
    assert (tmp_path / "noted").read_text() == "done"
    assert "said" in (tmp_path / "note.log").read_text()
    assert "Segmentation fault" in (tmp_path / "crash.log").read_text()


def test_jobs_stop_when_the_time_is_over(tmp_path):
    pool = jobs.Pool({"check": 1})
    pool.add(_job("hang", tmp_path))
    end = time.monotonic() + 0.5
    assert not pool.run(lambda o: pytest.fail("it had an outcome"), end)
    (running,) = pool._running
    running.process.join(30)  # it would sleep for longer
    assert running.process.exitcode == -signal.SIGKILL


# ---- The table ----


OLD = {"when": "2026-01-02 03:04:05", "machine": "old", "commit": "abc"}
NEW = OLD | {"when": "2026-02-01 00:00:00", "machine": "new"}


def _result(key: str, **found: object) -> dict[str, object]:
    base = {"key": key, "form": "ts-dynamic", "type": "fp32", "device": "cpu"}
    return base | {"run": OLD} | found


RESULTS = [
    _result(
        "timm/a", stage="done", right=True, worst=1e-6, seconds=1.0, ort_seconds=2.0
    ),
    _result("timm/b", stage="done", right=False, worst=0.5),
    _result(
        "timm/c",
        stage="import",
        error="node 3 'x' (Foo, domain 'ai.onnx', opset 17): no 'y'",
    ),
    _result(
        "timm/d",
        stage="import",
        error="node 9 'z' (Foo, domain 'ai.onnx', opset 20): no 'w'",
    ),
    _result(
        "timm/e",
        stage="run",
        crash="died of SIGSEGV",
        error="the process died of SIGSEGV",
    ),
    _result("timm/f", stage="export", error="the exporter ended with 1"),
    _result("timm/g", stage="reference", error="ORT does not"),
]


def test_verdicts():
    late = _result("timm/a", stage="time", right=True, worst=0, error="no time")
    early = _result("timm/a", stage="start", crash="ended with 1", error="ended with 1")
    assert [verdicts.verdict(late), verdicts.verdict(early)] == ["right", "CRASH"]
    words = ["right", "WRONG", "NO IMPORT", "NO IMPORT", "CRASH", "no export", "no ORT"]
    assert [verdicts.verdict(r) for r in RESULTS] == words


def test_table():
    text = table.table(map(kept.finding, RESULTS))
    assert "| cpu | fp32 | 5 | 1 | 1 | 2 | 0 | 0 | 1 |" in text
    assert "| (1) | 2 | Foo: no '…' |" in text  # one cause, whatever the names
    assert "| a | dynamic: right 0.50 |" in text
    assert "| b | dynamic: **wrong** 5e-01 |" in text
    assert "| c | dynamic: no import (1) |" in text
    assert "| f | dynamic: not exported [2] |" in text
    assert "| [2] | 1 | the exporter ended with N |" in text
    assert "| 2026-01-02 | cpu | abc | old |  | 7 |" in text


def test_kept_results_say_what_those_of_the_run_did(tmp_path):
    path = tmp_path / "kept.jsonl"
    found = kept.newest(map(kept.finding, RESULTS))
    kept.write(path, found)
    assert kept.read(path) == found
    assert kept.read(tmp_path / "none.jsonl") == []
    assert len(path.read_text().splitlines()) == 1 + len({f.key for f in found})


def test_a_run_of_a_part_replaces_that_part(tmp_path, monkeypatch):
    """In whatever order the files of results are given, the newest result counts."""
    keys = ["timm/resnet18", "timm/test_vit2"]
    old = [_result(k, stage="done", right=True, worst=1e-6) for k in keys]
    new = _result(keys[1], stage="done", right=False, worst=0.5, run=NEW)
    gone = _result("timm/no_longer_there", stage="done", right=True, worst=0)
    names = ("cache/results.jsonl", "other.jsonl")
    (tmp_path / "cache").mkdir()
    for name, lines in zip(names, ([new], [*old, gone]), strict=True):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / name).write_text(text)
    options = ["zoo", "--table-only", "--cache", tmp_path / "cache"]
    options += ["--add", tmp_path / "other.jsonl", "--kept", tmp_path / "kept.jsonl"]
    options += ["--table", tmp_path / "models.md"]
    monkeypatch.setattr("sys.argv", list(map(str, options)))
    for _ in range(2):  # again, from what was kept
        assert main.main() == 0
        found = kept.read(tmp_path / "kept.jsonl")
        assert [(f.key, f.verdict, f.origin.machine) for f in found] == [
            (keys[0], "right", "old"),
            (keys[1], "WRONG", "new"),
        ]
        text = (tmp_path / "models.md").read_text()
        assert "| test_vit2 | dynamic: **wrong** 5e-01 |" in text


def test_the_table_is_that_of_the_kept_results():
    root = Path(__file__).parents[3]
    found = kept.read(root / "zoo" / "results.jsonl")
    assert (root / "docs" / "reference" / "models.md").read_text() == table.table(found)
    assert {f.key for f in found} <= set(catalogue.entries())


def test_results_are_read_back(tmp_path):
    path = tmp_path / "results.jsonl"
    lines = [*RESULTS, RESULTS[1] | {"right": True}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = run.read(path)
    assert len(found) == len(RESULTS)
    assert found["timm/b", "ts-dynamic", "fp32", "cpu"]["right"]


# ---- Weights ----


def test_weights_let_inputs_show():
    torch = pytest.importorskip("torch")
    from zoo.weights import difference, settle

    class Block(torch.nn.Module):
        """A residual branch behind a gain that starts near zero, and a last layer of zeros."""

        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(32)
            self.inner = torch.nn.Linear(32, 32)
            self.gain = torch.nn.Parameter(torch.full((32,), 1e-6))
            self.last = torch.nn.Linear(32, 4)
            torch.nn.init.zeros_(self.last.weight)

        def forward(self, x):
            return self.last(x + self.gain * self.inner(self.norm(x)).relu())

    module = Block().eval().requires_grad_(False)
    inputs = [torch.randn(8, 32) * 100 for _ in range(2)]
    assert difference([module(inputs[0])], [module(inputs[1])]) == [0.0]
    settle(module, lambda: module(inputs[0]))
    first, second = (module(x) for x in inputs)
    assert difference([first], [second])[0] > 0.5
    assert 0.3 < float(first.std()) < 3
    assert float(module.gain.mean()) > 0.1
    assert float(module.norm.running_var.mean()) > 1000
