"""Decoders on a GPU: two profiles in one plan, caches in place, tokens chosen there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.interface import test_profile_kernels as profiles

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)


def test_each_profile_runs_its_kernels(tmp_path: Any) -> None:
    plan = profiles.build(
        [profiles.LONG, profiles.ONE], profiles.ByRows(), device="cuda"
    )
    (tmp_path / "two.plan").write_bytes(plan)
    model = trt.load(tmp_path / "two.plan", device="cuda")
    assert "OtherProfiles" in model.inspect_json()
    for count in (64, 1, 3, 1, 64):
        x = profiles.rows(count)
        np.testing.assert_allclose(model(x), profiles.expected(x), 5e-3, 1e-3)


def test_tokens_are_those_without_a_cache() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    from tests.python.torch_models.decoder_model import check_greedy, check_sampling

    check_greedy("cuda", tf32=False)
    check_sampling("cuda", tf32=False)


APART = ("cuda.rotation", "cuda.kv_cache", "cuda.shuffle")
STEPS = (
    (2, 128, 4, 2, 192, 300, 2, 40, "fp16"), (1, 96, 3, 3, 160, 40, 1, 9, "fp16"),
    (1, 64, 2, 1, 96, 50, 16, 40, "fp16"), (1, 128, 4, 2, 192, 300, 3, 40, "int4"),
    (1, 128, 4, 1, 64, 30, 1, 40, "fp8"), (2, 128, 4, 2, 192, 300, 2, 40, "fp16", 4),
    (1, 64, 2, 1, 96, 50, 3, 33, "fp16", 33), (1, 128, 4, 2, 192, 300, 1, 40, "int4", 24),
)  # fmt: skip


@pytest.mark.parametrize("sizes", STEPS)
def test_a_step_with_shared_heads_and_caches_in_place(sizes: tuple[Any, ...]) -> None:
    torch = pytest.importorskip("torch")
    from bench import decoder

    shape = decoder.Shape(*sizes)
    source = decoder.Weights(shape, torch)
    drawn = decoder.Drawn.of(shape, source)
    flag = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network(flag)
    decoder.Network(network, drawn).make()
    model = trt.compile(network, device="cuda", optimization_level=1)
    kernels = str(model.inspect_json())
    assert kernels.count("cuda.attention.tiles") == shape.layers
    assert kernels.count("'cuda.cached_rotation'") == shape.layers
    assert not [name for name in APART if f"'{name}'" in kernels]
    generator = torch.Generator().manual_seed(3)
    caches = [
        torch.randn(shape.cache_shape(), generator=generator).half()
        for _ in decoder.names(shape)
    ]
    rows = torch.arange(shape.batch)
    steps = torch.arange(shape.tokens) * 11
    token = (rows[:, None] * 37 + steps) % shape.vocabulary
    # A prompt begins its caches.
    start = rows * (7 if shape.tokens == 1 else 0) % shape.room
    given = {"token": token.numpy(), "start": start.numpy()}
    given |= {
        n: c.numpy().copy() for n, c in zip(decoder.names(shape), caches, strict=True)
    }
    found = model.run(given)
    expected = decoder.Torch(source, drawn, "cpu").step(token, start, caches).numpy()
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found["logits"] / largest, expected / largest, 0, 1e-2)
    for name, cache in zip(decoder.names(shape), caches, strict=True):
        np.testing.assert_allclose(found[f"{name}.out"], cache.numpy(), 0, 1e-2)
