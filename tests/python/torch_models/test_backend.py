"""torch.compile(module, backend="rabbet") gives what the module gives."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

torch = pytest.importorskip("torch")

import rabbet.torch  # noqa: E402

from tests.python.support.plugins import new_id  # noqa: E402
from tests.python.torch_models import modules  # noqa: E402
from tests.python.torch_models.test_compile import assert_same  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

OPTIONS = {"device": "cpu", "optimization_level": 0}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def compiled(module: Any, **given: Any) -> Any:
    return torch.compile(module, backend="rabbet", options=OPTIONS, **given)


def left(since: int) -> set[str]:
    return {each.op for report in rabbet.torch.reports()[since:] for each in report.left}


# Many operators each, which test_compile.py has from the same table.
LONG = ("activations", "bags", "complex", "images", "indexed", "numbers", "products")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if name in LONG else ())
        for name in modules.CASES
        if name != "recurrent"  # torch.compile leaves it to Python
    ],
)
def test_modules(name: str) -> None:
    module, case = modules.made(name)
    before = len(rabbet.torch.reports())
    fast = compiled(copy.deepcopy(module))
    with torch.no_grad():
        for sizes in modules.SIZES:
            args = case.args(*sizes)
            mine = copy.deepcopy(args)
            expected = module(*args, **case.kwargs)
            assert_same(fast(*mine, **case.kwargs), expected)
            assert_same(mine, args)
    reports = rabbet.torch.reports()[before:]
    assert 1 <= len(reports) <= 2  # one for the first sizes, one for all others
    assert all(report.engines for report in reports)


EXAMPLE = Path(__file__).resolve().parents[3] / "examples/torch_modules/torch_modules.py"


def test_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, which has torch's compiler in it already."""
    spec = importlib.util.spec_from_file_location("torch_modules_example", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = len(rabbet.torch.reports())
    module.main(tmp_path)
    (report,) = rabbet.torch.reports()[before:]
    assert "0 in torch" in str(report)
    assert "agree with the module" in capsys.readouterr().out
    assert (tmp_path / "encoder.plan.torch").exists()


class Mixed(torch.nn.Module):
    """An operator that plans lack, between others; one on DOUBLE."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        """Three parts."""
        y = torch.relu(self.first(x)) + 1
        y = torch.linalg.svd(y)[1][:, None] * y
        return torch.tanh(self.second(y)) * 2, x.double().exp() - 1


def test_what_is_refused_runs_in_torch_and_is_reported() -> None:
    module = Mixed().eval()
    before = len(rabbet.torch.reports())
    with torch.no_grad():
        fast = compiled(module)
        for n in (2, 3, 4):
            x = torch.randn(n, 6)
            assert_same(fast(x), module(x))
    report = rabbet.torch.reports()[before]
    assert report.engines == 2
    reasons = {each.op: each.reason for each in report.left}
    assert "no such operator" in reasons["aten._linalg_svd.default"]
    assert "torch.float64" in reasons["aten.exp.default"]
    assert "2 engines" in str(report)


class Views(torch.nn.Module):
    """Results that share memory, and that are not row-major."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, image: Any, x: Any) -> Any:
        """Two families of results that share memory, and a broken graph between."""
        y = self.conv(image.to(memory_format=torch.channels_last)) + 1
        z = self.linear(x).transpose(0, 1)
        torch._dynamo.graph_break()
        flat = z.as_strided((z.shape[1] * 6,), (1,))  # reads memory as it lies
        return y, y[:, 0], y.flatten(2), z, z[1:], z.mT.view(-1), flat, z.unbind(1)[0]


class Solved(torch.nn.Module):
    """Random numbers, and a matrix that has an inverse or not."""

    def forward(self, x: Any) -> Any:
        noise = torch.rand_like(x) + torch.bernoulli(torch.sigmoid(x * 2))
        return torch.linalg.inv(x * 3) * 2 + 1, noise.exp() * 2


def test_torch_draws_numbers_and_checks_matrices() -> None:
    module, fast, x = Solved(), compiled(Solved()), torch.eye(3) + torch.ones(2, 3, 3)
    before = len(rabbet.torch.reports())
    with torch.no_grad():
        torch.manual_seed(3)
        expected = module(x)
        torch.manual_seed(3)
        torch.testing.assert_close(fast(x), expected)
        assert {"aten.rand_like.default", "with_effects"} <= left(before)
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            fast(torch.ones(2, 3, 3))


def test_results_lie_in_memory_as_torch_has_them() -> None:
    module = Views().eval()
    fast = compiled(module)
    with torch.no_grad():
        for n in (2, 3, 5):
            given = torch.randn(n, 3, 4, 6), torch.randn(n, 6)
            ours, theirs = fast(*given), module(*given)
            assert_same(ours, theirs)
            assert [t.stride() for t in ours] == [t.stride() for t in theirs]
            ours[3].add_(1)
            theirs[3].add_(1)
            assert_same(ours, theirs)


def test_a_size_that_no_input_has_is_given() -> None:
    def function(x: Any, n: int) -> Any:
        y = torch.linalg.pinv(x.reshape(-1, 2)).relu() + 1  # between two engines
        return y * 2 + y.new_ones(n).sum() - x.shape[0] * 0.5, y[:, : x.shape[0]] / n

    fast = compiled(function, dynamic=True)
    since = len(rabbet.torch.reports())
    for n in (2, 3, 6):
        x = torch.randn(n, 4)
        assert_same(fast(x, n + 3), function(x, n + 3))
    assert len(rabbet.torch.reports()) == since + 1


def test_sizes_in_range_do_not_trace_again() -> None:
    module, case = modules.made("transformer")
    fast = compiled(module, dynamic=True)
    before = len(rabbet.torch.reports())
    with torch.no_grad():
        for sizes in ((3, 6), (2, 11), (5, 4), (7, 9)):
            args = case.args(*sizes)
            assert_same(fast(*args), module(*args))
    assert len(rabbet.torch.reports()) == before + 1


def test_parameters_that_change() -> None:
    module = torch.nn.Linear(4, 3).eval()
    fast = compiled(module)
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert_same(fast(x), module(x))
        module.weight.mul_(3)  # in place
        assert_same(fast(x), module(x))
        module.bias = torch.nn.Parameter(torch.randn(3))  # another one
        assert_same(fast(x), module(x))
        module.load_state_dict(torch.nn.Linear(4, 3).state_dict())
        assert_same(fast(x), module(x))


def test_gradients_stay_with_torch(caplog: pytest.LogCaptureFixture) -> None:
    module = torch.nn.Linear(4, 3)
    before = len(rabbet.torch.reports())
    result = compiled(module)(torch.randn(2, 4))
    result.sum().backward()
    assert module.weight.grad is not None
    assert left(before) == {"the whole graph"}
    assert "torch.no_grad()" in caplog.text
    with torch.inference_mode():
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(module)(x), module(x))


def test_breaks_numbers_and_containers() -> None:
    def function(x: Any, more: dict[str, Any], n: int) -> Any:
        y = torch.relu(x) * n + more["y"]
        if y.sum() > 0:  # a break
            y = y.view(y.shape[0], -1) + y.shape[0]
        return {"y": y, "parts": (y[:1], None, y.shape), "n": n}

    fast = compiled(function)
    for n, size in ((1, 3), (2, 5), (3, 4), (4, 6)):
        x, more = torch.rand(size, 2, 2), {"y": torch.rand(2)}
        assert_same(fast(x, more, n), function(x, more, n))


def test_options_are_checked() -> None:
    fast = torch.compile(lambda x: x + 1, backend="rabbet", options={"fp61": True})
    with pytest.raises(Exception, match=r"options has 'fp61'; there are .*fp16"):
        fast(torch.ones(2))


def test_operators_of_plugins_go_through_both() -> None:
    plugin_id = new_id("front")

    @trtp.register(plugin_id, torch=True)
    def described(x: trtp.TensorDesc, sides: list[int], factor: float) -> trtp.TensorDesc:
        y = x.like()
        y.shape_expr[0] += sides[0] + sides[1]
        return y

    @trtp.impl(plugin_id)
    def run(x: Any, sides: Any, factor: Any, outputs: Any) -> None:
        wide = np.pad(np.from_dlpack(x), [tuple(sides), (0, 0)], mode="wrap")
        np.from_dlpack(outputs[0])[...] = wide * factor

    namespace, name = plugin_id.split("::")
    made = getattr(getattr(torch.ops, namespace), name)

    class Padded(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            """An operator between others."""
            return torch.relu(made(torch.sin(x) + 1, [1, 2], 0.5)) - 1

    module = Padded()
    n = torch.export.Dim("n", min=3, max=9)
    example = (torch.randn(4, 3),)
    model = trt.compile(module, example, dynamic_shapes={"x": {0: n}}, device="cpu")
    before = len(rabbet.torch.reports())
    fast = compiled(module)
    for rows in (3, 5, 7):
        x = torch.randn(rows, 3)
        assert_same(model(x), module(x))
        assert_same(fast(x), module(x))
    assert left(before) == set()


class Scaled(torch.nn.Module):
    """Numbers that torch makes inputs of DOUBLE where sizes vary."""

    def __init__(self) -> None:
        super().__init__()
        self.epsilon, self.scale = 1e-5, 0.3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.scale
        return x


class Numbers(torch.nn.Module):
    """Tensors that the code writes, alike as far as torch prints them."""

    def forward(self, x: Any) -> Any:
        a, b = torch.tensor(0.12345678), torch.tensor(0.12345111)
        return torch.relu(x + (a - b) * 1e6).exp()


def test_tensors_in_the_code() -> None:
    module, x = Numbers(), torch.rand(3, 4) + 1
    assert_same(compiled(module)(x), module(x))


def test_a_number_of_a_module_is_converted_once() -> None:
    module, since = Scaled().eval(), len(rabbet.torch.reports())
    fast = compiled(module, dynamic=True)
    with torch.no_grad():
        for count in (2, 3):
            x = torch.randn(count, 5, 8)
            torch.testing.assert_close(fast(x), module(x))
    (report,) = rabbet.torch.reports()[since:]
    assert len(report.left) == 2, report


def test_results_for_training() -> None:
    """An operator whose further results are read stays with torch, with all of them."""

    def bags(weight: Any, index: Any, offsets: Any) -> Any:
        return torch.embedding_bag(weight * 2 + 1, index, offsets, mode=1)[:2]

    args = torch.randn(7, 3), torch.tensor([1, 2, 5, 0]), torch.tensor([0, 0, 3])
    before = len(rabbet.torch.reports())
    with torch.no_grad():
        assert_same(compiled(bags)(*args), bags(*args))
    assert any("embedding_bag" in name for name in left(before))
