"""register(..., torch=True): a plugin as an operator of torch."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import new_id

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.filterwarnings("ignore")


def operator(plugin_id: str) -> Any:
    """torch.ops.NAMESPACE.NAME."""
    namespace, name = plugin_id.split("::")
    return getattr(getattr(torch.ops, namespace), name)


def many(plugin_id: str) -> Any:
    """Two outputs, attributes of every type, one of them before a tensor."""

    @trtp.register(plugin_id, torch=True)
    def described(
        x: trtp.TensorDesc,
        factor: float,
        y: trtp.TensorDesc,
        block: int = 2,
        names: tuple[str, ...] = ("a", "b"),
        sides: list[int] = [1, 2],  # noqa: B006
        rates: list[float] = [0.5],  # noqa: B006
        flags: list[bool] = [True, False],  # noqa: B006
        mode: str = "wrap",
        on: bool = True,
    ) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        first = x.like()
        rows = x.shape_expr[0]
        first.shape_expr[0] = trtp.cdiv(rows, block) + (rows > 3) + sides[0]
        second = trtp.from_shape_expr(
            (trtp.max(y.shape_expr[0], 2), trtp.min(rows, 3)), trt.int32
        )
        return first, second

    @trtp.impl(plugin_id)
    def run(
        x: Any, factor: Any, y: Any, names: Any, rates: Any, flags: Any, mode: Any, on: Any,
        outputs: Any,
    ) -> None:  # fmt: skip
        assert (names, flags, mode, on) == (("a", "b"), [True, False], "wrap", True)
        outputs[0].numpy()[...] = factor * rates[0] + y.numpy().sum()
        outputs[1].numpy()[...] = 7

    return operator(plugin_id)


def sizes(rows: int, others: int) -> list[tuple[int, int]]:
    first = -(-rows // 2) + (rows > 3) + 1
    return [(first, 3), (max(others, 2), min(rows, 3))]


class Many(torch.nn.Module):
    """An operator between others."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        self.made = made

    def forward(self, x: Any, y: Any) -> Any:
        """Both outputs."""
        first, second = self.made(torch.relu(x), 3.0, y)
        return first + 1, second


def test_it_runs_and_torch_s_own_checks_pass() -> None:
    made = many(new_id("torch"))
    for rows, others in ((2, 1), (5, 4)):
        x, y = torch.ones(rows, 3), torch.ones(others)
        first, second = made(x, 3.0, y)
        assert [tuple(first.shape), tuple(second.shape)] == sizes(rows, others)
        assert (first == 1.5 + others).all()
        assert (second == 7).all()
        torch.library.opcheck(made.default, (x, 3.0, y), {"block": 2})
    with pytest.raises(RuntimeError, match="Expected a value of type 'float'"):
        made(x, "three", y)


def test_traced_shapes_stay_symbols() -> None:
    made = many(new_id("torch"))
    dims = {"x": {0: torch.export.Dim("rows", min=2)}, "y": {0: torch.export.Dim("n", min=2)}}
    program = torch.export.export(
        Many(made), (torch.ones(6, 3), torch.ones(4)), dynamic_shapes=dims
    )
    for rows, others in ((5, 3), (8, 9)):
        x, y = torch.ones(rows, 3), torch.ones(others)
        first, second = program.module()(x, y)
        assert [tuple(first.shape), tuple(second.shape)] == sizes(rows, others)


@pytest.mark.parametrize("dynamo", [True, False])
def test_both_exporters(dynamo: bool) -> None:
    module = Many(many(new_id("torch")))
    args = (torch.randn(6, 3), torch.ones(4))
    names = {"input_names": ["x", "y"], "verbose": False}
    if dynamo:
        rows = torch.export.Dim("rows", min=2)
        program = torch.onnx.export(
            module, args, dynamic_shapes={"x": {0: rows}, "y": None},
            custom_translation_table=trtp.torch_translations(), **names,
        )  # fmt: skip
        proto = program.model_proto
    else:
        file = io.BytesIO()
        with pytest.raises(trtp.DefinitionError, match=r"attribute 'names'.*dynamo=True"):
            torch.onnx.export(module, args, file, dynamo=False, **names)
        return
    (node,) = [n for n in proto.graph.node if n.domain == "test"]
    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert found["plugin_namespace"] == b"test"
    assert (found["sides"], found["flags"], found["on"]) == ([1, 2], [1, 0], 1)
    assert found["names"] == [b"a", b"b"]
    shapes = {"x": ((2, 3), (6, 3), (9, 3))}
    model = trt.compile(proto, device="cpu", shapes=shapes)
    for rows in (5, 9):
        x = torch.randn(rows, 3)
        for ours, theirs in zip(model(x, args[1]), module(x, args[1]), strict=True):
            assert torch.equal(ours, theirs)


def test_the_older_exporter_and_in_place_operators() -> None:
    plugin_id = new_id("torch")

    @trtp.register(plugin_id, torch=True)
    def described(x: trtp.TensorDesc, sides: list[int], by: float = 2.0) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x: Any, sides: Any, by: Any, outputs: Any) -> None:
        y = outputs[0].numpy()
        y *= by if sides == [1, 0] else 0

    class Twice(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return operator(plugin_id)(x, [1, 0]) + x

    x = torch.randn(4, 3)
    before = x.clone()
    assert torch.equal(Twice()(x), 3 * before)
    assert torch.equal(x, before)  # the operator of torch changes nothing in place
    file = io.BytesIO()
    torch.onnx.export(
        Twice(), (x,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
    )
    model = trt.compile(
        file.getvalue(), device="cpu", shapes={"x": ((1, 3), (4, 3), (8, 3))}
    )
    x = torch.randn(7, 3)
    assert torch.equal(model(x), 3 * x)


def test_sizes_that_runs_tell() -> None:
    plugin_id = new_id("torch")

    @trtp.register(plugin_id, torch=True)
    def positive(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        most = x.shape_expr.numel()
        count = trtp.size_tensor(opt=most // 2, upper_bound=most)
        return trtp.from_shape_expr((count.expr(),), x.dtype), count

    @trtp.impl(plugin_id)
    def run(x: Any, outputs: Any) -> None:
        found = x.numpy()[x.numpy() > 0]
        outputs[0].aliased(found.shape).numpy()[...] = found
        outputs[1].numpy()[...] = len(found)

    found, count = operator(plugin_id)(torch.tensor([1.0, -2, 3]))
    assert found.tolist() == [1, 3]
    assert int(count) == 2

    class Positive(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return operator(plugin_id)(x)[0] * 2

    program = torch.export.export(Positive(), (torch.randn(5),))
    assert program.module()(torch.tensor([1.0, -1, 2, 3, -4])).tolist() == [2, 4, 6]


def test_what_torch_has_no_type_for() -> None:
    plugin_id = new_id("torch")
    with pytest.raises(trtp.DefinitionError, match=r"torch=True.*attribute 'raw' \(bytes\)"):

        @trtp.register(plugin_id, torch=True)
        def with_bytes(x: trtp.TensorDesc, raw: bytes) -> trtp.TensorDesc:
            return x.like()

    with pytest.raises(trtp.DefinitionError, match="no such plugin is registered"):
        trtp.impl(plugin_id)(lambda x, outputs: None)

    with pytest.raises(trtp.DefinitionError, match=r"input 'times' is a ShapeInput"):

        @trtp.register(new_id("torch"), torch=True)
        def with_shape(x: trtp.TensorDesc, times: trtp.ShapeInput) -> trtp.TensorDesc:
            return x.like()


def test_a_cell_that_runs_again() -> None:
    plugin_id = new_id("torch")
    for factor in (2, 3):

        @trtp.register(plugin_id, torch=True)
        def described(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        def body(x: Any, outputs: Any, factor: int = factor) -> None:
            outputs[0].numpy()[...] = x.numpy() * factor

        @trtp.impl(plugin_id)
        def run(x: Any, outputs: Any) -> None:
            body(x, outputs)

        assert operator(plugin_id)(torch.ones(2)).tolist() == [factor, factor]


def test_models_of_operators_are_not_kept_for_ever() -> None:
    from rabbet.plugin import _torch

    made = many(new_id("torch"))
    for rows in range(1, 70):
        made(torch.ones(rows, 3), 3.0, torch.ones(1))
    assert len(_torch._models) == _torch._MAX_MODELS
    assert np.isfinite(made(torch.ones(1, 3), 3.0, torch.ones(1))[0].numpy()).all()


def norm(plugin_id: str) -> Any:
    """x * scale + bias, of which both may be absent."""

    @trtp.register(plugin_id, torch=True)
    def described(
        x: trtp.TensorDesc, scale: trtp.TensorDesc | None, bias: trtp.TensorDesc | None
    ) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: Any, scale: Any, bias: Any, outputs: Any) -> None:
        y = outputs[0].numpy()
        y[...] = x.numpy() if scale is None else x.numpy() * scale.numpy()
        if bias is not None:
            y += bias.numpy()

    return operator(plugin_id)


@pytest.mark.parametrize("dynamo", [True, False])
def test_inputs_that_may_be_absent(dynamo: bool) -> None:
    made = norm(new_id("torch"))

    class Module(torch.nn.Module):
        def forward(self, x: Any, bias: Any) -> Any:
            return made(made(x, None, bias), bias)

    x, bias = torch.randn(2, 3), torch.randn(3)
    expected = (x + bias) * bias
    assert torch.equal(Module()(x, bias), expected)
    file = io.BytesIO()
    table = {"custom_translation_table": trtp.torch_translations()} if dynamo else {}
    program = torch.onnx.export(
        Module(), (x, bias), None if dynamo else file, dynamo=dynamo,
        input_names=["x", "bias"], verbose=False, **table,
    )  # fmt: skip
    proto = program.model_proto if dynamo else onnx.load_from_string(file.getvalue())
    first = next(node for node in proto.graph.node if node.domain == "test")
    assert list(first.input) == ["x", "", "bias"]
    assert torch.equal(trt.compile(proto, device="cpu")(x, bias), expected)


def filled(plugin_id: str) -> Any:
    """Attributes whose defaults torch's schemas cannot write, or only as other types."""

    @trtp.register(plugin_id, torch=True)
    def described(
        x: trtp.TensorDesc,
        table: npt.NDArray[np.int64],
        quoted: str = 'it\'s "so"\n\\',
        plain: str = "a-b",
        most: float = float("inf"),
        tiny: float = 5e-324,
        step: float = np.float32(0.5),  # type: ignore[assignment]
        count: int = np.int64(3),  # type: ignore[assignment]
        rates: tuple[float, float] = (2**-30, float("-inf")),
        sides: npt.NDArray[np.int64] = np.array([[1, 2]]),  # noqa: B008
    ) -> trtp.TensorDesc:
        y = x.like()
        y.shape_expr[0] += int(table.sum())  # an array, as impl gets it
        return y

    @trtp.impl(plugin_id)
    def run(
        x: Any, table: Any, quoted: Any, plain: Any, most: Any, tiny: Any, step: Any,
        count: Any, rates: Any, sides: Any, outputs: Any,
    ) -> None:  # fmt: skip
        assert (quoted, plain) == ('it\'s "so"\n\\', "a-b")
        assert 0 <= tiny < 1e-300  # 0 in ONNX, whose attributes are FP32
        assert (most, step, count) == (float("inf"), 0.5, 3)
        assert rates == (2**-30, float("-inf"))
        assert sides.tolist() == [1, 2]
        outputs[0].numpy()[...] = table[0]

    return operator(plugin_id)


def test_any_default() -> None:
    made = filled(new_id("torch"))
    assert torch.equal(made(torch.ones(2), [3, 1]), torch.full((6,), 3.0))
    torch.library.opcheck(made.default, (torch.ones(2), [3, 1]))
    schema = str(made.default._schema)
    for part in ("str? quoted=None", 'str plain="a-b"', "float? most=None", "int count=3"):
        assert part in schema

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return made(x, [3, 1])

    for table in ({}, {"custom_translation_table": trtp.torch_translations()}):
        file = io.BytesIO()
        torch.onnx.export(
            Module(), (torch.ones(2),), file, dynamo=bool(table), verbose=False, **table
        )
        model = trt.compile(file.getvalue(), device="cpu")
        assert torch.equal(model(torch.ones(2)), torch.full((6,), 3.0))


def test_types_that_no_plugin_has() -> None:
    made = norm(new_id("torch"))
    with pytest.raises(TypeError, match=r"input 1 \('scale'\): no DataType.*complex64"):
        made(torch.ones(2), torch.ones(2, dtype=torch.complex64), None)
    with pytest.raises(TypeError, match=r"input 0 \('x'\): torch.sparse_coo; make it dense"):
        made(torch.eye(2).to_sparse(), None, None)
    with pytest.raises(Exception, match=r"torch\.ops\.test\..*, input 'x': no DataType"):
        made(torch.ones(2, dtype=torch.complex64, device="meta"), None, None)
