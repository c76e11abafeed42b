"""Windows, strides, padding, dilations and ceil_mode of all pooling operators."""

from __future__ import annotations

import numpy as np
import pytest
import rabbet as trt

from tests.python.randomized.random_pools import difference, expected, model_of


@pytest.mark.parametrize("dynamic", [False, True])
def test_random_pools(dynamic: bool) -> None:
    for seed in range(30):
        assert not difference(seed, "cpu", seed % 2 * 2, dynamic)


@pytest.mark.parametrize("dilations", [None, [2, 1]])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_partial_windows(p: int, dilations: list[int] | None) -> None:
    """The last window of ceil_mode has fewer elements; one in the padding alone is
    dropped."""
    x = np.random.default_rng(p).standard_normal((2, 3, 10, 9)).astype(np.float32)
    for kernel, strides, pads in (
        ([3, 2], [2, 3], [0, 0, 0, 0]),
        ([3, 3], [4, 4], [1, 1, 1, 1]),
        ([2, 1], [3, 4], [1, 0, 0, 0]),
    ):
        given = {"kernel_shape": kernel, "strides": strides, "pads": pads, "p": p,
                 "ceil_mode": 1}  # fmt: skip
        if dilations:
            given["dilations"] = dilations
        found = trt.compile(model_of("LpPool", given, x.shape), device="cpu")(x)
        want = expected("LpPool", given, x)
        assert found.shape == want.shape
        np.testing.assert_allclose(found, want, rtol=1e-4)
