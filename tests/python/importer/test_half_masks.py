"""Masks of attention, as exporters write them, in networks that may be computed in FP16
or BF16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import rabbet as trt

ROWS, KEYS, WIDTH = 12, 16, 32
MASKS = {
    "chosen": "a = Where(m, zero, low)  s = Add(t, a)",
    "multiplied": "f = Cast<to=1>(m)  n = Sub(one, f)  a = Mul(n, low)  s = Add(t, a)",
    "replaced": "s = Where(m, t, low)",
    "bounded": "a = Where(m, zero, low)  b = Add(t, a)  s = Max(b, low)",
    "summed": "a = Where(m, zero, low)  c = Add(bias, a)  s = Add(t, c)",
    "constant": "s = Add(t, causal)",
    "given": "s = Add(t, m)",
}
GIVEN = {"given": "float"}
LOWEST = float(np.finfo(np.float32).min)


def _file(path: Path, kind: str, low: float) -> Path:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,2,{ROWS},{WIDTH}] q, float[2,2,{WIDTH},{KEYS}] k,
           float[2,2,{KEYS},{WIDTH}] v, {GIVEN.get(kind, "bool")}[2,1,{ROWS},{KEYS}] m)
          => (float[2,2,{ROWS},{WIDTH}] y) {{
          r = MatMul(q, k)
          t = Mul(r, scale)
          {MASKS[kind]}
          p = Softmax<axis=-1>(s)
          y = MatMul(p, v)
        }}""")
    constants = {name: np.float32(value) for name, value in
                 [("scale", 0.125), ("zero", 0), ("one", 1), ("low", low)]}  # fmt: skip
    causal = np.where(_kept()[:1], np.float32(0), np.float32(low))
    constants |= {"causal": causal, "bias": np.full((1, 2, ROWS, KEYS), 0.5, np.float32)}
    used = {name for node in model.graph.node for name in node.input}
    for name, value in constants.items():
        if name in used:
            tensor = onnx.numpy_helper.from_array(np.asarray(value), name)
            model.graph.initializer.append(tensor)
    onnx.save(model, path)
    return path


def _kept() -> np.ndarray:
    """Causal; the first rows look at nothing, as those of padding on the left."""
    kept = np.tril(np.ones((ROWS, KEYS), bool))[None, None].repeat(2, 0)
    kept[..., :4] = False
    return kept


def check(
    path: Path, kind: str, low: float, device: str, narrow: str, levels: tuple[int, ...] = (0, 3)
) -> None:
    """Rows that look at something are right, and the others finite."""
    rng = np.random.default_rng(0)
    shapes = {"q": (ROWS, WIDTH), "k": (WIDTH, KEYS), "v": (KEYS, WIDTH)}
    x = {n: rng.standard_normal((2, 2, *s)).astype(np.float32) for n, s in shapes.items()}
    # Scores of padding are low as well, and sums with the mask still are numbers.
    x["q"][:, :, :4] = 8
    x["k"][...] -= 1.5
    kept = _kept()
    scores = np.where(kept, x["q"] @ x["k"] / 8, -1e30)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ x["v"]
    names = {i.name for i in onnx.load(_file(path, kind, low)).graph.input}
    m = np.where(kept, np.float32(0), np.float32(low)) if kind in GIVEN else kept
    given = {name: value for name, value in (x | {"m": m}).items() if name in names}
    for level in levels:
        options = {narrow: True, "optimization_level": level}
        y = np.asarray(trt.compile(path, device=device, **options)(**given))
        assert np.isfinite(y).all()
        some = np.broadcast_to(kept.any(-1, keepdims=True), y.shape)
        limit = 1e-2 if narrow == "fp16" else 1e-1
        np.testing.assert_allclose(y[some], expected[some], atol=limit)


@pytest.mark.parametrize(
    ("low", "narrow"), [(LOWEST, "fp16"), (-1e9, "fp16"), (LOWEST, "bf16")]
)
@pytest.mark.parametrize("kind", MASKS)
def test_rows_that_look_at_nothing_are_finite(tmp_path, kind, low, narrow):
    # Times decide for one of the three alone.
    levels = (0, 3) if (low, narrow) == (LOWEST, "fp16") else (0,)
    check(tmp_path / "m.onnx", kind, low, "cpu", narrow, levels)
