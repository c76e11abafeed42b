"""rabbet.compile(module) gives what the module gives."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import rabbet as trt

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from tests.python.torch_models import modules  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def assert_same(
    found: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-4
) -> None:
    """Equal structures, types and shapes; close elements."""
    ours, theirs = pytree.tree_flatten(found), pytree.tree_flatten(expected)
    assert ours[1] == theirs[1]
    for index, (a, b) in enumerate(zip(ours[0], theirs[0], strict=True)):
        if not isinstance(b, torch.Tensor):
            assert a == b
            assert type(a) is type(b)
            continue
        assert not a.requires_grad
        torch.testing.assert_close(
            a, b, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, i=index: f"{i}: {m}"
        )


def export_shapes(module: Any, case: modules.Case) -> Any:
    """The case's dynamic dimensions: by name, as torch.export wants it beside keywords."""
    dims = {
        modules.B: torch.export.Dim("b", min=2, max=8),
        modules.S: torch.export.Dim("s", min=2, max=32),
    }
    dims["2s"] = 2 * dims[modules.S]
    shapes = tuple(
        None if axes is None else {axis: dims[name] for axis, name in axes.items()}
        for axes in case.dims
    )
    if not case.kwargs:
        return shapes
    names = module.forward.__code__.co_varnames[1:]
    return {**dict(zip(names, shapes, strict=False)), **dict.fromkeys(case.kwargs)}


def compiled(name: str, **options: Any) -> tuple[Any, Any, modules.Case]:
    module, case = modules.made(name)
    example = case.args(*modules.SIZES[0])
    model = trt.compile(
        copy.deepcopy(module), example, case.kwargs or None,
        dynamic_shapes=export_shapes(module, case), device="cpu", optimization_level=0,
        **options,
    )  # fmt: skip
    return model, module, case


def calls(case: modules.Case) -> Any:
    fixed = all(axes is None for axes in case.dims)
    for sizes in modules.SIZES[:1] * 2 if fixed else modules.SIZES:
        yield case.args(*sizes)


@pytest.mark.parametrize("name", modules.CASES)
def test_modules(name: str, tmp_path: Path) -> None:
    model, module, case = compiled(name)
    model.save(tmp_path / "model.plan")
    loaded = trt.load(tmp_path / "model.plan", device="cpu")
    with torch.no_grad():
        for args in calls(case):
            again, mine = copy.deepcopy(args), copy.deepcopy(args)
            expected = module(*args, **case.kwargs)
            assert_same(model(*mine, **case.kwargs), expected)
            assert_same(mine, args)  # what the call changed
            assert_same(loaded(*again, **case.kwargs), expected)


class Algebra(torch.nn.Module):
    """Operators that plans lack."""

    def forward(self, x: Any) -> Any:
        """Of two kinds."""
        return torch.linalg.qr(x)[0] + torch.linalg.eigvals(x).real


class Shifted(torch.nn.Module):
    """A weight with an address that shows whether it is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Any, by: float = 1.0) -> Any:
        """A product."""
        return x @ self.weight + by


class Smoothed(torch.nn.Module):
    """An interpolation whose positions no operator has."""

    def forward(self, x: Any) -> Any:
        """Half as wide."""
        return torch.nn.functional.interpolate(
            x, size=(3, 3), mode="bilinear", align_corners=True, antialias=True
        )


def test_what_is_refused_is_named() -> None:
    x = torch.eye(4)
    with pytest.raises(
        trt.UnsupportedError, match=r"aten.linalg_.*no such operator"
    ) as caught:
        trt.compile(Algebra(), (x,), device="cpu")
    assert "others: aten" in str(caught.value)
    assert "backend='rabbet'" in str(caught.value)
    assert "torch.linalg.qr(x)" in str(caught.value)
    with pytest.raises(
        trt.UnsupportedError, match=r"dropout in training; call eval\(\)"
    ):
        trt.compile(torch.nn.Dropout(0.5).train(), (x,), device="cpu")
    with pytest.raises(trt.UnsupportedError, match="antialias with align_corners"):
        varying = {"x": {2: torch.export.Dim("h", min=4, max=8)}}
        images = (torch.ones(1, 2, 6, 6),)
        trt.compile(Smoothed(), images, dynamic_shapes=varying, device="cpu")
    with pytest.raises(trt.InvalidArgumentError, match="args is the tuple"):
        trt.compile(Shifted(), x, device="cpu")
    with pytest.raises(trt.InvalidArgumentError, match="shapes is not for modules of torch"):
        trt.compile(Shifted(), (x,), device="cpu", shapes={"x": (4, 4)})
    with pytest.raises(trt.InvalidArgumentError, match="args is for modules of torch"):
        trt.compile(b"", (x,))
    program = torch.export.export(Shifted(), (x,))
    with pytest.raises(trt.InvalidArgumentError, match="has its example inputs"):
        trt.compile(program, (x,), device="cpu")


class Positions(torch.nn.Module):
    """Maxima of windows, and where they were."""

    def forward(self, x: Any) -> Any:
        """Of images, and of one image."""
        pooled, at = F.max_pool2d(x, 3, 2, 1, return_indices=True)
        kept, places = F.max_pool2d(x[0], 2, return_indices=True)
        whole = F.adaptive_max_pool2d(x, (2, 4), return_indices=True)
        return pooled, at, F.max_unpool2d(kept, places, 2), *whole


def test_positions_of_maxima() -> None:
    n = torch.export.Dim("n", min=1, max=5)
    x = torch.randn(3, 2, 8, 8)
    model = trt.compile(Positions(), (x,), dynamic_shapes={"x": {0: n}}, device="cpu")
    for count in (3, 1, 5):
        x = torch.randn(count, 2, 8, 8)
        torch.testing.assert_close(model(x), Positions()(x))


class Held(torch.nn.Module):
    """Moves and arithmetic of a type that plans hold in another one."""

    def forward(self, x: Any, y: Any) -> Any:
        """Of each kind, and a comparison."""
        return torch.cat([x, y]).T, x * y + x, x == y, x.float()


@pytest.mark.parametrize("dtype", [torch.int16, torch.int8, torch.uint8])
def test_integers_of_other_widths(dtype: Any) -> None:
    low = torch.iinfo(dtype).min
    x, y = (torch.randint(low, 127, (3, 4), dtype=dtype) * 9 for _ in range(2))
    model = trt.compile(Held(), (x, y), device="cpu")
    torch.testing.assert_close(model(x, y), Held()(x, y))


class Moved(torch.nn.Module):
    """Moves alone: torch has no more for these types."""

    def forward(self, x: Any) -> Any:
        """A transpose, and numbers."""
        return x.transpose(0, 1), x.to(torch.float32)


@pytest.mark.parametrize(
    "dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e5m2, torch.float8_e4m3fn]
)
def test_types_that_only_move(dtype: Any) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    model = trt.compile(Moved(), (x,), device="cpu")
    turned, numbers = model(x)
    assert turned.dtype is dtype
    torch.testing.assert_close(turned.to(torch.float32), x.to(torch.float32).T)
    torch.testing.assert_close(numbers, x.to(torch.float32))
    with pytest.raises(TypeError, match=r"float32"):
        model(x.to(torch.float32))


def test_calls_are_checked() -> None:
    module = Shifted()
    n = torch.export.Dim("n", min=2, max=5)
    shapes = {"x": {0: n}, "by": None}
    example = (torch.randn(3, 4), 2.0)
    model = trt.compile(module, example, dynamic_shapes=shapes, device="cpu")
    x = torch.randn(2, 4)
    expected = module(x, 2.0).detach()
    for found in (model(x, 2.0), model(x.double().float().T.contiguous().T, 2.0)):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match=r"'by' is 3\.0; the module was compiled for 2\.0"):
        model(x, 3.0)
    with pytest.raises(TypeError, match="another structure"):
        model(x)
    with pytest.raises(trt.OutOfRangeError, match="dimension 0 of input 'x' is 6"):
        model(torch.randn(6, 4), 2.0)
    with pytest.raises(TypeError, match=r"input 'x' is torch\.float16"):
        model(x.half(), 2.0)


def test_weights_are_lent_and_exported_programs_taken() -> None:
    from rabbet.torch import _building

    module = Shifted()
    program = torch.export.export(module, (torch.randn(3, 4),))
    seen = []
    original = _building.network_of

    def network_of(graph: Any, logger: Any) -> Any:
        seen.extend(view.ctypes.data for view in graph.weights.values())
        return original(graph, logger)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_building, "network_of", network_of)
        model = trt.compile(program, device="cpu", workspace=1 << 20)
    assert seen == [module.weight.data_ptr()]
    x = torch.randn(3, 4)
    torch.testing.assert_close(model(x), module(x).detach(), atol=1e-5, rtol=1e-5)
    assert "TorchModel" in repr(model)
    assert model.report


def test_double_stays_double() -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv1d(3, 8, 3), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(48, 5)
    ).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    model = trt.compile(module, (x,), device="cpu", optimization_level=0, double=True)
    assert_same(model(x), module(x).detach(), 1e-12, 1e-13)


class Blocks(torch.nn.Module):
    """Sizes of which the inputs' shapes have multiples alone."""

    def forward(self, x: Any, y: Any) -> Any:
        count, length = x.shape
        blocks = x.reshape(count, length // 8, 8).sum(2)
        return blocks, x.unfold(-1, 8, 4), x.new_zeros(length // 8) + y.shape[0]


def test_extents_that_are_multiples_of_a_dimension() -> None:
    n, m = torch.export.Dim("n", min=1, max=64), torch.export.Dim("m", min=2, max=64)
    x, y = torch.randn(3, 40), torch.randn(13)
    shapes = ({1: 8 * n}, {0: 3 * m + 1})
    program = torch.export.export(Blocks(), (x, y), dynamic_shapes=shapes)
    model = trt.compile(program, device="cpu", optimization_level=0)
    for blocks, others in ((5, 4), (9, 2), (2, 11)):
        args = torch.randn(3, 8 * blocks), torch.randn(3 * others + 1)
        for found, expected in zip(model(*args), Blocks()(*args), strict=True):
            assert torch.allclose(found, expected, atol=1e-5)


class FloatSteps(torch.nn.Module):
    """Relative positions, from the first to the last and back, with float steps."""

    def forward(self, x: Any) -> Any:
        n = x.shape[1]
        down = torch.arange(n - 1, -n, -1.0)
        return down, torch.arange(0, n, 2.0), torch.arange(1, n, 0.5), x + down.sum()


def test_sizes_of_ranges_with_float_steps() -> None:
    shapes = ({1: torch.export.Dim("n", min=3, max=64)},)
    program = torch.export.export(FloatSteps(), (torch.randn(2, 6),), dynamic_shapes=shapes)
    model = trt.compile(program, device="cpu", optimization_level=0)
    for n in (6, 3, 9, 64):
        x = torch.randn(2, n)
        for found, expected in zip(model(x), FloatSteps()(x), strict=True):
            assert torch.equal(found, expected)


class Named(torch.nn.Module):
    def forward(self, x: Any, *rest: Any, scale: Any, pair: Any) -> Any:
        return x.relu() * scale + pair["b"][0].sum() + rest[0].sum()


@pytest.mark.parametrize("least", [1, 2, 3])
def test_least_extents_that_are_stated(least: int) -> None:
    """torch's programs do not check a least extent of 2, which stands for none."""
    n = torch.export.Dim("n", min=least, max=9)
    m = torch.export.Dim("m", min=least, max=9)
    r = torch.randn
    model = trt.compile(
        Named(), (r(4, 3), r(5)), {"scale": r(3), "pair": {"b": [r(6)]}},
        dynamic_shapes={"x": {0: n}, "rest": ((torch.export.Dim.AUTO,),),
                        "scale": None, "pair": {"b": [(m,)]}},
        device="cpu", optimization_level=0,
    )  # fmt: skip

    def call(rows: int, others: int, free: int) -> Any:
        args, kwargs = (r(rows, 3), r(free)), {"scale": r(3), "pair": {"b": [r(others)]}}
        found = model(*args, **kwargs)
        assert torch.allclose(found, Named()(*args, **kwargs), atol=1e-5)

    call(least, least, 1)
    call(9, 9, 20)
    for rows, others in [(least - 1, 5), (5, least - 1)]:
        with pytest.raises(trt.Error, match=f"{least} to 9"):
            call(rows, others, 5)


class Experts(torch.nn.Module):
    """A mixture as transformers writes it: pairs sorted by expert, grouped products."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = torch.nn.Parameter(torch.randn(5, 16, 24).bfloat16())

    def forward(self, x: Any, experts: Any) -> Any:
        chosen, order = torch.sort(experts)
        count = torch.histc(chosen.float(), bins=5, min=0, max=4)
        ends = torch.cumsum(count, 0, dtype=torch.int32)
        found = torch._grouped_mm(x[order].bfloat16(), self.up, ends).float()
        return found[torch.argsort(order)], count


@pytest.mark.parametrize("path", ["compile", "backend"])
def test_products_of_experts(path: str) -> None:
    net, n = Experts(), torch.export.Dim("n", min=1, max=64)
    args = torch.randn(16, 16), torch.randint(0, 5, (16,))
    with torch.no_grad():
        if path == "compile":
            model = trt.compile(
                net, args, dynamic_shapes=({0: n}, {0: n}), device="cpu", optimization_level=0
            )
        else:
            torch._dynamo.reset()
            model = torch.compile(
                net, backend="rabbet", options={"device": "cpu", "optimization_level": 0},
                dynamic=True,
            )  # fmt: skip
        for rows in (16, 3, 40):
            x, experts = torch.randn(rows, 16), torch.randint(0, 5, (rows,))
            for found, expected in zip(model(x, experts), net(x, experts), strict=True):
                torch.testing.assert_close(found, expected, rtol=2e-2, atol=5e-2)


class Grouped(torch.nn.Module):
    def __init__(self, groups: int, k: int, n: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights = torch.nn.Parameter(torch.randn(groups, k, n).bfloat16())

    def forward(self, x: Any, ends: Any) -> Any:
        return torch._grouped_mm(x, self.weights, offs=ends)


def grouped(rows: Any, groups: int, k: int, n: int) -> tuple[Any, Any]:
    """A compiled grouped product, and the module."""
    net, dim = Grouped(groups, k, n), torch.export.Dim("rows", min=1, max=rows)
    ends = torch.arange(1, groups + 1, dtype=torch.int32) * 16 // groups
    args = torch.randn(16, k).bfloat16(), ends
    model = trt.compile(
        net, args, dynamic_shapes=({0: dim}, None), device="cpu", optimization_level=0
    )
    return model, net


@pytest.mark.parametrize(
    "ends",
    [(2, 2, 7, 9, 12), (0, 0, 12, 12, 12), (12, 12, 12, 12, 12), (0, 0, 0, 0, 40), (1, 2, 3, 4, 5)],
    ids=str,
)
def test_grouped_products(ends: Any) -> None:
    """Groups of many rows, of few and of none."""
    model, net = grouped(64, 5, 16, 24)
    args = torch.randn(ends[-1], 16).bfloat16(), torch.tensor(ends, dtype=torch.int32)
    with torch.no_grad():
        torch.testing.assert_close(model(*args), net(*args), rtol=2e-2, atol=5e-2)


def test_rows_behind_the_last_group_read_no_memory() -> None:
    model, net = grouped(64, 5, 16, 24)
    x, ends = torch.randn(9, 16).bfloat16(), torch.tensor([2, 2, 3, 5, 5], dtype=torch.int32)
    with torch.no_grad():
        found, expected = model(x, ends), net(x[:5], ends)
    torch.testing.assert_close(found[:5], expected, rtol=2e-2, atol=5e-2)
    assert torch.equal(found[5:], torch.zeros(4, 24).bfloat16())


def test_memory_of_grouped_products_is_that_of_rows() -> None:
    """A matrix for each row would be rows * k * n elements, 256 MiB."""
    rows, groups, k, n = 8192, 4, 128, 128
    model, _ = grouped(rows, groups, k, n)
    held = model.model.engine.device_memory_size_v2
    kept = 4096 * (k + n) * 4  # in FLOAT, of the rows that are computed at once
    counts = 6 * rows * 8  # INT64 numbers of a row
    assert 0 < held <= kept + counts + 2 * rows * (k + n) * 2


class Bins(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.histc(x, 7, -1, 1), torch.histc(x.flatten(), bins=3, min=0, max=2)


def test_histograms() -> None:
    x = torch.cat([torch.randn(5, 9), torch.tensor([[-1.0, 1, 0, 2, 3, -2, 0.5, 7, 1.9]])])
    model = trt.compile(Bins(), (x,), device="cpu", optimization_level=0)
    for found, expected in zip(model(x), Bins()(x), strict=True):
        assert torch.equal(found, expected)
