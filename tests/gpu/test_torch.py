"""torch's front door with modules and tensors on the GPU."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import rabbet as trt

torch = pytest.importorskip("torch")

import rabbet.torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from tests.python.torch_models import modules  # noqa: E402
from tests.python.torch_models.test_compile import (  # noqa: E402
    assert_same,
    calls,
    export_shapes,
)

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
    pytest.mark.filterwarnings("ignore"),
]

# Sums in another order, and functions of the GPU's own.
CLOSE = {"rtol": 1e-3, "atol": 1e-3}
FORMS = pytest.mark.parametrize("name", modules.CASES)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def exportable_shapes(module: Any, case: modules.Case, example: Any) -> Any:
    """The case's dynamic dimensions; none where this release of torch derives a guard
    for them that it cannot prove."""
    shapes = export_shapes(module, case)
    try:
        torch.export.export(module, example, case.kwargs, dynamic_shapes=shapes, strict=False)
    except torch._dynamo.exc.UserError:
        return None
    return shapes


def on_gpu(tree: Any) -> Any:
    """A copy of the tree with its tensors on the GPU."""
    return pytree.tree_map(
        lambda leaf: leaf.cuda() if isinstance(leaf, torch.Tensor) else copy.copy(leaf), tree
    )


@FORMS
@pytest.mark.parametrize("weights", ["weights on the GPU", "weights on the host"])
def test_modules(name: str, weights: str, tmp_path: Path) -> None:
    module, case = modules.made(name)
    theirs = copy.deepcopy(module).cuda()
    example = case.args(*modules.SIZES[0])
    if weights == "weights on the GPU":
        module, example = theirs, on_gpu(example)
    shapes = exportable_shapes(copy.deepcopy(module), case, example)
    model = trt.compile(
        copy.deepcopy(module), example, case.kwargs or None, device="cuda", tf32=False,
        dynamic_shapes=shapes, optimization_level=0,
    )  # fmt: skip
    model.save(tmp_path / "model.plan")
    loaded = trt.load(tmp_path / "model.plan")
    theirs = copy.deepcopy(theirs)
    with torch.no_grad():
        for host in calls(case) if shapes else [case.args(*modules.SIZES[0])] * 2:
            args, mine, again = on_gpu(host), on_gpu(host), on_gpu(host)
            expected = theirs(*args, **case.kwargs)
            found = model(*mine, **case.kwargs)
            assert_same(found, expected, **CLOSE)
            assert_same(mine, args, **CLOSE)
            assert_same(loaded(*again, **case.kwargs), expected, **CLOSE)
            for leaf in pytree.tree_leaves(found):
                assert not isinstance(leaf, torch.Tensor) or leaf.is_cuda


@pytest.mark.parametrize("name", [name for name in modules.CASES if name != "recurrent"])
def test_backend(name: str) -> None:
    module, case = modules.made(name)
    module = module.cuda()
    options = {"optimization_level": 0, "tf32": False}
    fast = torch.compile(copy.deepcopy(module), backend="rabbet", options=options)
    before = len(rabbet.torch.reports())
    with torch.no_grad():
        for sizes in modules.SIZES:
            args = on_gpu(case.args(*sizes))
            mine = copy.deepcopy(args)
            expected = module(*args, **case.kwargs)
            assert_same(fast(*mine, **case.kwargs), expected, **CLOSE)
            assert_same(mine, args, **CLOSE)
    reports = rabbet.torch.reports()[before:]
    assert reports
    assert all(report.engines for report in reports)


def test_a_call_follows_torchs_stream() -> None:
    """Inputs of another stream's work are not read before it is done, nor outputs."""
    module = torch.nn.Linear(512, 512).cuda()
    model = trt.compile(module, (torch.randn(8, 512, device="cuda"),), tf32=False)
    large = torch.randn(4096, 4096, device="cuda")
    for stream in (torch.cuda.Stream(), torch.cuda.default_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(3):
                for _ in range(4):
                    large = torch.nn.functional.normalize(large @ large)
                x = large[:8, :512] * 1.0
                found = model(x) * 2.0
                assert_same(found, module(x) * 2.0, **CLOSE)
        stream.synchronize()


def test_inputs_on_the_host_are_moved_and_views_are_read() -> None:
    module = torch.nn.Linear(6, 4).cuda()
    model = trt.compile(module, (torch.randn(3, 6, device="cuda"),), tf32=False)
    wide = torch.randn(6, 3, device="cuda")
    with torch.no_grad():
        assert_same(model(wide.T), module(wide.T), **CLOSE)
        found = model(wide.T.cpu())
        assert_same(found.cuda(), module(wide.T), **CLOSE)
