"""Tensors that are written part by part are concatenations, by rabbet.compile and in ONNX
files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rabbet.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def _heads(a: Any, b: Any) -> Any:
    """DeepSeek: elements with places behind those without."""
    y = a.new_empty(2, 3, 4, 8)
    y[..., :6] = a
    y[..., 6:] = b
    return y


def _between(a: Any, b: Any) -> Any:
    y = torch.cat([a, b], -1) * 2
    y[:, 1:2] = a[:, :1, :, :1]
    y[:, :, -3:-1] = b[:, :, :2].sum(-1, keepdim=True)
    return y


def _box(a: Any, b: Any) -> Any:
    """Parts of two axes, of which TorchScript's exporter makes one of indices."""
    y = torch.cat([a, b], -1) * 2
    y[:, 1:2, :, :6] = a[:, :1]
    return y


def _rows(a: Any, b: Any) -> Any:
    y = a * 2
    y[:, 1] = a[:, 0]
    y[-1] = b[0, :, :, :1]
    return y


def _neighbours(a: Any, b: Any) -> Any:
    """Wan: even and odd places."""
    y = a.new_empty(2, 3, 4, 12)
    y[..., 0::2] = a
    y[..., 1::2] = -a
    return y


def _steps(a: Any, b: Any) -> Any:
    """Places that are no part, and no row of steps."""
    y = a * 2
    y[..., 1:5:3] = b
    y[..., 1::4] = a[..., :2]
    return y


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    f.__name__.lstrip("_"): f
    for f in (_heads, _between, _box, _rows, _neighbours, _steps)
}
STAY = {"steps"}
# Exported as indices that are no range of one axis, by one of the exporters.
STAY_IN_FILES = {False: {*STAY, "neighbours", "box"}, True: {*STAY, "neighbours"}}


class Written(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.form = FORMS[name]

    def forward(self, a: Any, b: Any) -> Any:
        return self.form(a, b)


def _given() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.randn(2, 3, 4, 6), torch.randn(2, 3, 4, 2)


@pytest.mark.parametrize("name", FORMS)
def test_compiled(name: str) -> None:
    given, net = _given(), Written(name).eval()
    model = rabbet.compile(net, given, device="cpu", optimization_level=0)
    torch.testing.assert_close(model(*given), net(*given))
    assert ("cpu.scatter" in model.report) == (name in STAY)


def test_varying_extent() -> None:
    """Behind the part lies a number of places that a call tells."""

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 2
            y[:, 1:3] = x[:, :2]
            return y

    x = torch.randn(2, 7)
    model = rabbet.compile(
        Net(), (x,), device="cpu", optimization_level=0,
        dynamic_shapes=({1: torch.export.Dim("n", min=4, max=20)},),
    )  # fmt: skip
    for extent in (4, 7, 20):
        x = torch.randn(2, extent)
        torch.testing.assert_close(model(x), Net()(x))


@pytest.mark.parametrize(
    ("name", "dynamo"),
    [(name, False) for name in FORMS]
    + [
        pytest.param(name, True, marks=[] if name == "box" else pytest.mark.full)
        for name in FORMS
    ],
)
def test_file(name: str, dynamo: bool, tmp_path: Path) -> None:
    if dynamo:
        pytest.importorskip("onnxscript")
    given, net, path = _given(), Written(name).eval(), tmp_path / "model.onnx"
    options: dict[str, Any] = {} if dynamo else {"opset_version": 17}
    torch.onnx.export(
        net, given, str(path), input_names=["a", "b"], dynamo=dynamo, **options
    )
    model = rabbet.compile(path, device="cpu", optimization_level=0)
    arrays = {"a": given[0].numpy(), "b": given[1].numpy()}
    found = model(*(arrays[info.name] for info in model.inputs))
    np.testing.assert_allclose(found, net(*given).numpy(), rtol=1e-6)
    assert ("cpu.scatter" in str(model.report)) == (name in STAY_IN_FILES[dynamo])
