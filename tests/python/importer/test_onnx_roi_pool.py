"""MaxRoiPool against ONNX Runtime."""

import numpy as np
import pytest

from tests.python.support import onnx_text


@pytest.mark.parametrize("scale", [1.0, 0.4])
@pytest.mark.parametrize("seed", range(4))
def test_max_roi_pool(seed, scale):
    """Regions of all sizes, some of which leave the image."""
    rng = np.random.default_rng(seed)
    rows, columns, count = 9, 12, 7
    corners = rng.uniform(-2, 12, (count, 2)) / scale
    sizes = rng.uniform(0, 8, (count, 2)) / scale
    rois = np.concatenate([rng.integers(0, 2, (count, 1)), corners, corners + sizes], 1)
    x = rng.standard_normal((2, 3, rows, columns), np.float32)
    model = onnx_text.model_of(
        "float[2,3,h,w] x, float[r,5] rois", "float[a,b,c,d] y",
        f"y = MaxRoiPool<pooled_shape=[{2 + seed},3], spatial_scale={scale}>(x, rois)")
    onnx_text.check(model, [{"x": x, "rois": rois.astype(np.float32)}])
