"""Operators in torch, CuPy, Triton and Numba in CUDA graphs: what they allocate is kept,
what cannot be recorded runs outside. On a GPU with these libraries."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import call, new_id

from . import cuda_driver
from .test_arrays import imported
from .test_graphs import Log

pytestmark = pytest.mark.skipif(
    not cuda_driver.available() or cuda_driver.is_stand_in(), reason="no GPU"
)

SHAPE = (64, 96)


def make_model(body: Callable[..., None], log: Log, **options: Any) -> trt.Model:
    """Two layers of the plugin with one of Rabbet's own between them."""
    plugin_id = new_id("library")

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id, device="cuda", **options)
    def run(x, outputs, stream):
        body(x, outputs[0], stream)

    network = trt.Builder(log).create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    y = network.add_plugin(call(plugin_id)(x)).get_output(0)
    y = network.add_unary(y, trt.UnaryOperation.NEG).get_output(0)
    y = network.add_plugin(call(plugin_id)(y)).get_output(0)
    network.mark_output(y)
    return trt.compile(network, device="cuda", logger=log)


def disturb() -> None:
    """Others allocate, write and free while graphs wait for their next replay."""
    torch = imported("torch")
    for size in (SHAPE, (1 << 20,), (3, 5), SHAPE):
        torch.full(size, float("nan"), device="cuda")
    torch.cuda.empty_cache()


@pytest.mark.parametrize("capturable", [True, None])
def test_torch_operators(capturable: bool | None) -> None:
    torch = imported("torch")

    def body(x: Any, y: Any, stream: int) -> None:
        x = torch.as_tensor(x, device="cuda")
        parts = [torch.nn.functional.gelu(x * k) for k in (1.0, 2.0, 3.0)]
        torch.as_tensor(y, device="cuda").copy_(torch.stack(parts).sum(0))

    def expected(x: Any) -> Any:
        f = torch.nn.functional.gelu
        once = torch.stack([f(x * k) for k in (1.0, 2.0, 3.0)]).sum(0)
        return torch.stack([f(-once * k) for k in (1.0, 2.0, 3.0)]).sum(0)

    log = Log()
    model = make_model(body, log, capturable=capturable)
    x, y = torch.empty(SHAPE, device="cuda"), torch.empty(SHAPE, device="cuda")
    for seed in range(8):
        disturb()
        x.copy_(torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)))
        model(x, out=y)
        torch.testing.assert_close(y, expected(x), rtol=1e-5, atol=1e-5)
    assert not log.about_graphs()
    assert model.graph_info.other_steps == 0
    assert model.graph_info.replays > 0


def test_torch_matrix_products_and_their_workspaces() -> None:
    torch = imported("torch")
    weight = torch.randn(96, 96, device="cuda")

    def body(x: Any, y: Any, stream: int) -> None:
        torch.matmul(
            torch.as_tensor(x, device="cuda"), weight, out=torch.as_tensor(y, device="cuda")
        )

    models = [make_model(body, Log(), capturable=True) for _ in range(2)]
    x = torch.randn(SHAPE, device="cuda")
    outs = [torch.empty(SHAPE, device="cuda") for _ in models]
    wanted = torch.matmul(-torch.matmul(x, weight), weight)
    for _ in range(5):
        for model, out in zip(models, outs, strict=True):
            disturb()
            torch.testing.assert_close(model(x, out=out), wanted, rtol=1e-3, atol=1e-2)
        if len(models) == 2 and models[0].graph_info.replays > 1:
            del models[0], outs[0]  # the other's workspace is its own
            gc.collect()
            torch._C._cuda_clearCublasWorkspaces()
    assert models[-1].graph_info.other_steps == 0


def item(torch: Any, x: Any, y: Any) -> None:
    torch.mul(x, 1 + 0 * x.sum().item(), out=y)


def synchronize(torch: Any, x: Any, y: Any) -> None:
    torch.mul(x, 1, out=y)
    torch.cuda.synchronize()


def nonzero(torch: Any, x: Any, y: Any) -> None:
    y.copy_(x)
    torch.nonzero(x)


def through_the_host(torch: Any, x: Any, y: Any) -> None:
    y.copy_(x.cpu())


@pytest.mark.parametrize("body", [item, synchronize, nonzero, through_the_host])
@pytest.mark.parametrize("capturable", [True, None])
def test_torch_that_waits(body: Any, capturable: bool | None) -> None:
    torch = imported("torch")
    log = Log()
    model = make_model(
        lambda x, y, stream: body(
            torch, torch.as_tensor(x, device="cuda"), torch.as_tensor(y, device="cuda")
        ),
        log,
        capturable=capturable,
    )
    x, y = torch.empty(SHAPE, device="cuda"), torch.empty(SHAPE, device="cuda")
    for _ in range(6):
        x.normal_()
        assert torch.equal(model(x, out=y), -x)
    assert model.graph_info.other_steps == 2
    assert len(log.about_graphs()) == 2


def test_random_numbers_stay_random() -> None:
    torch = imported("torch")

    def body(x: Any, y: Any, stream: int) -> None:
        torch.as_tensor(y, device="cuda").uniform_()

    model = make_model(body, Log())
    x, y = torch.empty(SHAPE, device="cuda"), torch.empty(SHAPE, device="cuda")
    results = [model(x, out=y).clone() for _ in range(6)]
    for a, b in itertools.pairwise(results):
        assert not torch.equal(a, b)


def test_cupy_operators() -> None:
    cupy = imported("cupy")

    def body(x: Any, y: Any, stream: int) -> None:
        x = cupy.asarray(x)
        cupy.asarray(y)[...] = cupy.sqrt(cupy.abs(x)) + 2 * x

    log = Log()
    model = make_model(body, log)
    x, y = cupy.empty(SHAPE, cupy.float32), cupy.empty(SHAPE, cupy.float32)
    for seed in range(8):
        for size in (SHAPE, (1 << 20,), (3, 5)):
            cupy.full(size, cupy.nan, cupy.float32)
        x[...] = cupy.asarray(np.random.default_rng(seed).normal(size=SHAPE))
        model(x, out=y)
        once = -(cupy.sqrt(cupy.abs(x)) + 2 * x)
        cupy.testing.assert_allclose(y, cupy.sqrt(cupy.abs(once)) + 2 * once, rtol=1e-5)
    assert not log.about_graphs()
    assert model.graph_info.other_steps == 0


def test_numba_on_its_own_stream_and_on_the_engine_s() -> None:
    if not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # type: ignore[attr-defined]
    cuda = pytest.importorskip("numba.cuda")
    if not cuda.is_available():
        pytest.skip("Numba sees no GPU")

    @cuda.jit
    def twice(x: Any, y: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 2 * x[i]

    def flat(tensor: Any) -> Any:
        return cuda.as_cuda_array(tensor).reshape(-1)

    def legacy(x: Any, y: Any, stream: int) -> None:
        twice[48, 128](flat(x), flat(y))

    def ordered(x: Any, y: Any, stream: int) -> None:
        twice[48, 128, cuda.external_stream(stream)](flat(x), flat(y))

    for body, other_steps in ((legacy, 2), (ordered, 0)):
        model = make_model(body, Log())
        x, y = np.empty(SHAPE, np.float32), np.empty(SHAPE, np.float32)
        for seed in range(6):
            x[...] = np.random.default_rng(seed).normal(size=SHAPE)
            np.testing.assert_array_equal(model(x, out=y), -4 * x)
        assert model.graph_info.other_steps == other_steps


def test_memory_comes_back() -> None:
    torch = imported("torch")

    def body(x: Any, y: Any, stream: int) -> None:
        x = torch.as_tensor(x, device="cuda")
        big = x.repeat(4096, 1)  # 100 MB
        torch.as_tensor(y, device="cuda").copy_(big[: len(x)])

    model = make_model(body, Log(), capturable=True)
    x, y = torch.ones(SHAPE, device="cuda"), torch.empty(SHAPE, device="cuda")
    for _ in range(5):
        assert torch.equal(model(x, out=y), -x)
    assert model.graph_info.other_steps == 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    assert before > 90e6
    del model
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < before - 90e6
