"""rabbet.plugin.call: operators on arrays alone, between guard bands."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.plugins.test_carried_libraries import (
    C_SOURCE,
    INCLUDE,
    compile_library,
)
from tests.python.support.class_plugins import PadV3, derived, pad, pads_field
from tests.python.support.class_plugins import register as register_class
from tests.python.support.plugins import call as operator
from tests.python.support.plugins import new_id, random


def define(
    body: Any,
    describe: Any = lambda x: x.like(),
    tactics: Any = None,
) -> str:
    """An operator of one input, one attribute and one output."""
    plugin_id = new_id("called")

    @trtp.register(plugin_id)
    def described(x: trtp.TensorDesc, mode: int = 0) -> trtp.TensorDesc:
        return describe(x)

    if tactics:

        @trtp.autotune(plugin_id)
        def tune(x: Any, outputs: Any) -> Any:
            types = "FP32|FP16|BF16, FP32|FP16|BF16"
            return [trtp.AutoTuneCombination(types, tactics=tactics)]

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, mode: int, outputs: Any, tactic: int) -> None:
        body(x, outputs[0], mode, tactic)

    return plugin_id


def copied(x: Any, y: Any, mode: int, tactic: int) -> None:
    ctypes.memmove(y.data_ptr, x.data_ptr, x.numel() * 4)


def written(where: Any, size: int = 4) -> Any:
    """Copies, and writes zeros at where(x, y)."""

    def body(x: Any, y: Any, mode: int, tactic: int) -> None:
        copied(x, y, mode, tactic)
        ctypes.memset(where(x, y), 0, size)

    return body


X = random(3, 4)


def test_results_are_of_the_first_input_s_library() -> None:
    torch = pytest.importorskip("torch")
    plugin_id = define(copied)
    found = trtp.call(plugin_id, X)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, X)
    found = trtp.call(operator(plugin_id), torch.from_numpy(X.copy()))
    assert torch.equal(found, torch.from_numpy(X))
    strided = random(4, 3).T
    np.testing.assert_array_equal(trtp.call(plugin_id, strided), strided)


def test_types_and_tactics() -> None:
    torch = pytest.importorskip("torch")

    def body(x: Any, y: Any, mode: int, tactic: int) -> None:
        torch.from_dlpack(y)[...] = torch.from_dlpack(x) * tactic + mode

    plugin_id = define(body, tactics=[3, 5])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.ones(2, 3, dtype=dtype)
        for tactic in (3, 5):
            y = trtp.call(plugin_id, x, tactic=tactic, mode=1)
            assert y.dtype == dtype
            assert torch.equal(y, x * (tactic + 1))
        assert torch.equal(trtp.call(plugin_id, x), x * 3)
    with pytest.raises(trtp.DefinitionError, match=r"tactic 4 is not offered.*there are 3, 5"):
        trtp.call(plugin_id, X, tactic=4)
    with pytest.raises(trt.UnsupportedError, match="none fits the network's types"):
        trtp.call(plugin_id, np.zeros((2, 3), np.int32))


END = 4 * X.size


@pytest.mark.parametrize(("body", "message"), [
    (written(lambda x, y: y.data_ptr + END, 8),
     r"output 0: 8 bytes behind it are overwritten, from 0 bytes past its end on"),
    (written(lambda x, y: y.data_ptr + END + 40),
     r"output 0: 4 bytes behind it are overwritten, from 40 bytes past its end on"),
    (written(lambda x, y: y.data_ptr - 4),
     r"output 0: 4 bytes before it are overwritten, from 4 bytes before its beginning on"),
    (written(lambda x, y: x.data_ptr + 20, 8),
     r"input 0 \('x'\): 2 of 12 elements, the first at \[1, 1\], are written;"),
    (written(lambda x, y: x.data_ptr + END),
     r"input 0 \('x'\): 4 bytes behind it are overwritten"),
    (lambda x, y, mode, tactic: ctypes.memset(y.data_ptr + 4, 0, 40),
     r"output 0: 2 of 12 elements, the first at \[0, 0\], are not written"),
    (lambda x, y, mode, tactic: None,
     r"output 0: 12 of 12 elements, the first at \[0, 0\], are not written"),
])  # fmt: skip
def test_what_an_operator_may_not_do(body: Any, message: str) -> None:
    plugin_id = define(body)
    with pytest.raises(trtp.CheckError, match=message) as raised:
        trtp.call(plugin_id, X)
    assert str(raised.value).startswith(f"plugin '{plugin_id}' on cpu:")
    trtp.call(plugin_id, X, check=False)


def test_unwritten_elements_hold_nan() -> None:
    plugin_id = define(lambda x, y, mode, tactic: ctypes.memset(y.data_ptr, 0, END - 4))
    found = trtp.call(plugin_id, X, check=False)
    assert np.isnan(found).tolist() == [[False] * 4, [False] * 4, [False] * 3 + [True]]


def test_integers_that_are_not_written() -> None:
    def described(x: Any) -> Any:
        y = x.like()
        y.dtype = trt.int32
        return y

    plugin_id = define(lambda x, y, mode, tactic: None, described)
    with pytest.raises(trtp.CheckError, match="12 of 12 elements"):
        trtp.call(plugin_id, X)


def test_in_place() -> None:
    def body(x: Any, y: Any, mode: int, tactic: int) -> None:
        assert y.data_ptr == x.data_ptr
        y.numpy()[0] += 1  # the rest holds what the input did

    given = X.copy()
    found = trtp.call(define(body, lambda x: x.aliased()), given)
    np.testing.assert_array_equal(given, X)
    np.testing.assert_array_equal(found, X + np.array([[1], [0], [0]], np.float32))


def test_nothing_and_scalars() -> None:
    plugin_id = define(copied)
    assert trtp.call(plugin_id, np.zeros((0, 4), np.float32)).shape == (0, 4)
    assert trtp.call(plugin_id, np.float32(3)).tolist() == 3


def test_inputs_that_are_shapes_and_sizes_that_runs_tell() -> None:
    tiled, positive = new_id("called"), new_id("called")

    @trtp.register(tiled)
    def tile(x: trtp.TensorDesc, times: trtp.ShapeInput) -> trtp.TensorDesc:
        y = x.like()
        for axis in range(x.ndim):
            y.shape_expr[axis] *= times[axis]
        return y

    @trtp.impl(tiled)
    def tile_impl(x: Any, times: Any, outputs: Any) -> None:
        outputs[0].numpy()[...] = np.tile(x.numpy(), times.numpy())

    @trtp.register(positive)
    def find(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        most = x.shape_expr.numel()
        count = trtp.size_tensor(opt=most // 2, upper_bound=most)
        return trtp.from_shape_expr((count.expr(),), x.dtype), count

    @trtp.impl(positive)
    def find_impl(x: Any, outputs: Any) -> None:
        found = x.numpy()[x.numpy() > 0]
        outputs[0].aliased(found.shape).numpy()[...] = found
        outputs[1].numpy()[...] = len(found)

    times = np.array([2, 1], np.int64)
    np.testing.assert_array_equal(trtp.call(tiled, X, times), np.tile(X, times))
    found, count = trtp.call(positive, X)
    np.testing.assert_array_equal(found, X[X > 0])
    assert count == len(found)


def test_classes() -> None:
    kind = derived(PadV3)
    register_class(kind)
    x = random(1, 2, 4, 5)
    found = trtp.call(f"test::{kind.name}", x, pads=[1, 2, 3, 1])
    np.testing.assert_array_equal(found, pad(x, (1, 2, 3, 1)))
    assert pads_field(1).name == "pads"


@pytest.mark.parametrize(("plugin", "inputs", "attributes", "error", "message"), [
    ("test::caled", (X,), {}, trtp.DefinitionError, r"no plugin 'test::caled' is registered"),
    ("called", (X,), {}, trtp.DefinitionError, r"'called'; expected the id of a plugin"),
    (None, (X.astype(np.complex64),), {}, TypeError,
     r"input 0 \('x'\): no DataType for dtype\('complex64'\).*convert it"),
    (None, (X, X), {}, trtp.DefinitionError, r"2 tensors given, it takes 1 \(x\)"),
    (None, (), {}, trtp.DefinitionError, r"input 'x' is missing"),
    (None, (None,), {}, trtp.DefinitionError, r"input 'x' is None, expected an array"),
    (None, (X,), {"x": X}, trtp.DefinitionError, r"input 'x' is given twice"),
    (None, (X,), {"attributes": 3}, TypeError, r"attributes is 3; expected {name: value}"),
    (3, (X,), {}, trtp.DefinitionError, r"plugin is 3; expected the id of a plugin"),
    (None, (X,), {"moed": 1}, trtp.DefinitionError, r"no attribute 'moed'; did you mean 'mode'"),
])  # fmt: skip
def test_wrong_calls(
    plugin: Any, inputs: Any, attributes: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        trtp.call(plugin or define(copied), *inputs, **attributes)


def test_inputs_by_name() -> None:
    np.testing.assert_array_equal(trtp.call(define(copied), x=X, mode=1), X)


def test_attributes_of_any_name() -> None:
    plugin_id = new_id("called")

    @trtp.register(plugin_id)
    def described(x: trtp.TensorDesc, check: int, device: str) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: Any, check: int, device: str, outputs: Any) -> None:
        outputs[0].numpy()[...] = check * len(device)

    y = trtp.call(plugin_id, X, attributes={"check": 3, "device": "ab"})
    assert (y == 6).all()


def test_the_errors_of_the_operator() -> None:
    def body(x: Any, y: Any, mode: int, tactic: int) -> None:
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        trtp.call(define(body), X)
    with pytest.raises(trtp.DefinitionError, match="no impl for device 'cpu'"):
        only_cuda = new_id("called")

        @trtp.register(only_cuda)
        def described(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.impl(only_cuda, device="cuda")
        def run(x: Any, outputs: Any) -> None:
            pass

        trtp.call(only_cuda, X)


def test_operators_in_c(tmp_path: Path) -> None:
    source = C_SOURCE.replace('"command", .origin = "triple.so"', '"called_c"')
    compile_library(source, tmp_path / "triple.so", f"-I{INCLUDE}")
    trt.load_plugins([tmp_path / "triple.so"])
    with pytest.raises(trtp.CheckError, match="6 of 12 elements"):  # it writes six
        trtp.call("called_c::Triple", X)
    x = random(2, 3)
    np.testing.assert_array_equal(trtp.call("called_c::Triple", x), 3 * x)
