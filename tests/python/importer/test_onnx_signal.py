"""Fourier transforms, windows and mel filters, compared with NumPy and ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
import rabbet
from onnx import TensorProto, helper, numpy_helper

CASES = range(24)


def build(model, **options):
    return rabbet.compile(model.SerializeToString(), device="cpu",
                          optimization_level=0, **options)


def model_of(node, inputs, constants=(), opset=20, dtype=TensorProto.FLOAT):
    """A model of one node; `inputs`: name -> shape, `constants`: name -> array."""
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(node.output[0], dtype, None)],
        [numpy_helper.from_array(a, n) for n, a in dict(constants).items()])
    return helper.make_model(graph, ir_version=8,
                             opset_imports=[helper.make_opsetid("", opset)])


def complex_of(x):
    return x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)


def pair_of(z):
    return np.stack([z.real, z.imag], -1).astype(np.float32)


def transform(x, length, axis, inverse, half):
    z = complex_of(x)
    axis = axis if axis >= 0 else axis + x.ndim
    if inverse and half:
        return np.fft.irfft(z, length, axis)[..., None].astype(np.float32)
    z = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis)
    if half:
        z = np.take(z, np.arange(z.shape[axis] // 2 + 1), axis)
    return pair_of(z)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("seed", CASES)
def test_dft(seed, dynamic):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(2, 5))
    opset = int(rng.choice([17, 20]))
    shape = (*rng.integers(2, 7, rank - 1), int(rng.integers(1, 3)))
    shape = tuple(int(n) for n in shape)
    inverse, half = bool(rng.integers(2)), bool(rng.integers(2))
    axis = int(rng.integers(-rank, -1))
    length = int(rng.integers(1, 9)) if rng.integers(2) else None
    x = rng.standard_normal(shape, np.float32)
    constants = {}
    if length is not None:
        constants["length"] = np.array(length)
    elif inverse and half:
        length = 2 * (shape[axis] - 1)
    if opset == 20:
        constants["axis"] = np.array(axis)
    names = ["x", "length" if "length" in constants else "",
             *(["axis"] if opset == 20 else [])]
    more = {} if opset == 20 else {"axis": axis}
    node = helper.make_node("DFT", names, ["y"], inverse=inverse, onesided=half, **more)
    given = (*[None] * (rank - 1), shape[-1]) if dynamic else shape
    model = model_of(node, {"x": given}, constants, opset)
    options = {}
    if dynamic:
        least = (*[2] * (rank - 1), shape[-1])
        options = {"shapes": {"x": (least, shape, (*[7] * (rank - 1), shape[-1]))}}
    found = build(model, **options)(x)
    expected = transform(x, length, axis, inverse, half)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


def test_dft_of_no_signals():
    node = helper.make_node("DFT", ["x"], ["y"], onesided=1)
    model = model_of(node, {"x": (None, 6, 1)})
    run = build(model, shapes={"x": ((0, 6, 1), (2, 6, 1), (4, 6, 1))})
    assert run(np.zeros((0, 6, 1), np.float32)).shape == (0, 4, 2)


@pytest.mark.parametrize("seed", CASES)
def test_stft(seed):
    rng = np.random.default_rng(seed)
    length, step = int(rng.integers(1, 12)), int(rng.integers(1, 6))
    parts = int(rng.integers(1, 3))
    half = parts == 1 and bool(rng.integers(2))
    count = length + int(rng.integers(0, 20))
    x = rng.standard_normal((2, count, parts), np.float32)
    window = rng.standard_normal(length, np.float32)
    way = int(rng.integers(3))  # a window, a length, or both
    constants = {"step": np.array(step)}
    if way > 0:
        constants["length"] = np.array(length)
    dynamic = way != 1 and bool(rng.integers(2))
    inputs = {"x": (None, None, parts)}
    if way != 1 and dynamic:
        inputs["window"] = (length,)
    elif way != 1:
        constants["window"] = window
    names = ["x", "step", "window" if way != 1 else "", *(["length"] if way else [])]
    node = helper.make_node("STFT", names, ["y"], onesided=int(half))
    model = model_of(node, inputs, constants, 17)
    run = build(model, shapes={"x": ((1, length, parts), (2, count, parts), (3, 99, parts))})
    frames = [x[:, i:i + length] for i in range(0, count - length + 1, step)]
    weight = np.ones_like(window) if way == 1 else window
    expected = np.stack([
        transform(f * weight[:, None], length, 1, False, half) for f in frames], 1)
    found = run(x, window) if dynamic else run(x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_stft_of_a_signal_without_an_axis_of_parts():
    """As torch exports it."""
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"])
    constants = {"step": np.int64(4), "window": np.hanning(16).astype(np.float32)}
    model = model_of(node, {"x": (2, 64)}, constants)
    x = np.random.default_rng(4).standard_normal((2, 64)).astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(x, 16, 1)[:, ::4] * constants["window"]
    (y,) = build(model).run({"x": x}).values()
    np.testing.assert_allclose(y, pair_of(np.fft.rfft(frames)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("name", ["Hann", "Hamming", "Blackman"])
def test_windows(name, periodic, dynamic):
    node = helper.make_node(f"{name}Window", ["n"], ["y"], periodic=periodic)
    for size in (2, 5, 16):
        constant = model_of(node, {}, {"n": np.array(size)}, 17)
        session = onnxruntime.InferenceSession(
            constant.SerializeToString(), providers=["CPUExecutionProvider"])
        model = constant
        if dynamic:
            model = model_of(node, {}, {}, 17)
            model.graph.input.append(
                helper.make_tensor_value_info("n", TensorProto.INT64, ()))
        run = build(model)
        found = run(np.array(size)) if dynamic else run()
        np.testing.assert_allclose(found, session.run(None, {})[0], atol=2e-6)


@pytest.mark.parametrize(("bins", "length", "rate", "low", "high"), [
    (8, 64, 8192, 0.0, 4096.0), (40, 400, 16000, 20.0, 7600.0), (3, 2, 100, 10.0, 20.0)])
def test_mel_filters(bins, length, rate, low, high):
    constants = {"bins": np.array(bins), "length": np.array(length), "rate": np.array(rate),
                 "low": np.float32(low), "high": np.float32(high)}
    constants = {n: np.asarray(a) for n, a in constants.items()}
    node = helper.make_node("MelWeightMatrix", list(constants), ["y"])
    model = model_of(node, {}, constants, 17)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(build(model)(), session.run(None, {})[0], atol=1e-6)


WRONG = [
    (("DFT", ["x"]), {"x": (3, 4)}, {}, "the last axis of input 0 .'x'. has 4 elements"),
    (("DFT", ["x"]), {"x": (3,)}, {}, "input 0 has rank 1; expected 2 or more"),
    (("DFT", ["x", "", "a"]), {"x": (3, 4, 1)}, {"a": np.array(2)}, "the axis is the last one"),
    (("DFT", ["x", "n"]), {"x": (3, 4, 1)}, {"n": np.array(0)}, "the transform has length 0"),
    (("STFT", ["x", "s", "w", "n"]), {"x": (3, 9, 1), "w": (4,)},
     {"s": np.array(1), "n": np.array(5)}, "has 4 elements; expected 5"),
    (("STFT", ["x", "s", "w"]), {"x": (3, 9, 1), "w": (4,)}, {"s": np.array(0)},
     "must be positive"),
    (("HannWindow", ["n"]), {}, {"n": np.array(-1)}, "'size'. is -1; expected 0 or more"),
]


@pytest.mark.parametrize(("op", "inputs", "constants", "message"), WRONG)
def test_what_is_wrong(op, inputs, constants, message):
    model = model_of(helper.make_node(*op, ["y"]), inputs, constants)
    with pytest.raises(rabbet.Error, match=message):
        build(model)


# ---- Long transforms ---------------------------------------------------------

LONG = [521, 600, 1021, 1024, 2310, 4096, 7919, 8192, 10007, 16381, 16384]


@pytest.mark.parametrize("form", ["complex", "real", "half", "inverse", "inverse of half"])
@pytest.mark.parametrize("seed", range(2))
def test_dft_of_long_signals(seed, form):
    """Lengths with small factors, with large primes, and primes."""
    rng = np.random.default_rng([seed, len(form)])
    length = int(rng.choice(LONG) if seed == 0 else rng.integers(400, 16385))
    inverse, half = form.startswith("inverse"), "half" in form
    bins = length // 2 + 1 if inverse and half else length
    x = rng.standard_normal((2, bins, 2 if inverse or form == "complex" else 1), np.float32)
    node = helper.make_node("DFT", ["x", "n", "a"], ["y"], inverse=inverse, onesided=half)
    model = model_of(node, {"x": x.shape}, {"n": np.array(length), "a": np.array(1)})
    found = np.asarray(build(model)(x))
    expected = transform(x.astype(np.float64), length, 1, inverse, half)
    assert found.shape == expected.shape
    scale = np.sqrt(np.mean(expected**2))
    assert abs(found - expected).max() < 2e-5 * scale * np.log2(length)


@pytest.mark.parametrize("length", [700, 1031])
def test_dft_of_a_signal_that_is_cut_or_padded(length):
    x = np.random.default_rng(length).standard_normal((900, 2), np.float32)
    node = helper.make_node("DFT", ["x", "n", "a"], ["y"])
    model = model_of(node, {"x": x.shape}, {"n": np.array(length), "a": np.array(0)})
    expected = transform(x, length, 0, False, False)
    np.testing.assert_allclose(build(model)(x), expected, atol=1e-2)
