"""Calibration of INT8 and ranges of tensors, against NumPy and ONNX Runtime."""

from __future__ import annotations

import ctypes
import json
import struct

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import rabbet as trt
from onnx import TensorProto, helper, numpy_helper
from rabbet._calibration import cache_bytes, read_cache
from rabbet._histograms import BINS, LEVELS, Histogram, dump, load

from tests.python.support.timed import fill_cache

BATCH, SAMPLES = 4, 16
REPORT = [""]  # of the last build
PRODUCTS = (trt.LayerType.CONVOLUTION, trt.LayerType.MATRIX_MULTIPLY)
BASES = {
    "EntropyCalibration2": trt.IInt8EntropyCalibrator2,
    "EntropyCalibration": trt.IInt8EntropyCalibrator,
    "MinMaxCalibration": trt.IInt8MinMaxCalibrator,
    "LegacyCalibration": trt.IInt8LegacyCalibrator,
}


# ---- Histograms


def test_counts() -> None:
    random = np.random.default_rng(0)
    histogram = Histogram()
    arrays = [random.standard_normal((3, 70000)) * s for s in (0.01, 1, 0.3)]
    for array in arrays:
        histogram.add(np.maximum(array, 0).astype(np.float32))
    values = np.concatenate([a.ravel() for a in arrays]).astype(np.float32)
    values = values[values > 0].astype(np.float64)
    assert histogram.extreme() == values.max()
    assert values.max() <= histogram.limit < 2 * values.max()
    expected, edges = np.histogram(values, BINS, (0, histogram.limit))
    # Values on an edge may lie on either side.
    assert np.abs(expected - histogram.counts).sum() < 20
    assert histogram.counts.sum() == values.size
    at = histogram.quantile(0.99, 1.0)
    assert abs(at - np.quantile(values, 0.99)) <= 2 * edges[1]
    assert histogram.quantile(1.0, 0.25) == 0.25 * values.max()


def slow_entropy(counts, limit):
    """The best range, level by level."""
    counts = counts.astype(np.float64)
    best, found = np.inf, 0
    for i in range(LEVELS, BINS + 1):
        p = counts[:i].copy()
        p[-1] += counts[i:].sum()
        used = p > 0
        bounds = i * np.arange(LEVELS + 1) // LEVELS
        sums = np.add.reduceat(counts[:i], bounds[:-1])
        shares = np.maximum(np.add.reduceat(used.astype(np.int64), bounds[:-1]), 1)
        q = np.where(used, np.repeat(sums / shares, np.diff(bounds)), 0)
        if (q[used] == 0).any():
            continue
        terms = p[used] / p.sum() * np.log(p[used] / p.sum() / (q[used] / q.sum()))
        if terms.sum() < best - 1e-12:
            best, found = terms.sum(), i
    return found * limit / BINS


@pytest.mark.parametrize("seed", range(4))
def test_entropy(seed) -> None:
    random = np.random.default_rng(seed)
    kinds = [
        lambda: random.standard_normal(200000),
        lambda: random.laplace(size=50000) ** 3,
        lambda: random.exponential(size=3000),
        lambda: np.concatenate((random.standard_normal(10000), [40, 50, 50, 90])),
    ]
    histogram = Histogram()
    histogram.add(kinds[seed]().astype(np.float32))
    expected = slow_entropy(histogram.counts, histogram.limit)
    assert histogram.entropy() == pytest.approx(
        min(expected, histogram.extreme()), rel=1e-6
    )
    if seed == 3:
        assert histogram.entropy() < 50  # a few numbers far away do not count


def test_histograms_of_little() -> None:
    histogram = Histogram()
    histogram.add(np.zeros((3, 4), np.float32))
    assert histogram.entropy() == histogram.quantile(0.5, 0.5) == 0
    histogram.add(np.array([np.inf, -np.inf, np.nan], np.float32))
    assert histogram.extreme() == 0
    assert not histogram.is_finite
    histogram.add(np.array([np.inf, -2.5], np.float32))
    assert histogram.extreme() == histogram.entropy() == 2.5
    histogram.add(np.float32([1e-42]))
    assert histogram.extreme() == 2.5
    again = load(dump({"t": histogram}))["t"]
    assert again.entropy() == 2.5
    assert (again.counts == histogram.counts).all()
    kinds = b'{"kind": "others"}', b'{"kind": "rabbet histograms 1"}'
    for bad in (b"", b"{", b"[" * 100000, *kinds):
        with pytest.raises(ValueError, match="hold no histograms"):
            load(bad)


# ---- A small CNN


def model() -> onnx.ModelProto:
    """Convolutions with a residual block, pooling, and a matrix product."""
    random = np.random.default_rng(1)

    def weights(name, *shape):
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        data = random.standard_normal(shape) * scale
        return numpy_helper.from_array(data.astype(np.float32), name)

    def conv(x, number, y, **attributes):
        inputs = [x, f"w{number}", f"b{number}"]
        return helper.make_node("Conv", inputs, [y], pads=[1, 1, 1, 1], **attributes)

    graph = helper.make_graph(
        [
            conv("x", 0, "c0"), helper.make_node("Relu", ["c0"], ["r0"]),
            conv("r0", 1, "c1"), helper.make_node("Relu", ["c1"], ["r1"]),
            conv("r1", 2, "c2"), helper.make_node("Add", ["c2", "r0"], ["s"]),
            helper.make_node("Relu", ["s"], ["r2"]),
            conv("r2", 3, "c3", strides=[2, 2]), helper.make_node("Relu", ["c3"], ["r3"]),
            helper.make_node("GlobalAveragePool", ["r3"], ["p"]),
            helper.make_node("Flatten", ["p"], ["f"]),
            helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], transB=1),
        ],
        "cnn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        [
            weights("w0", 16, 3, 3, 3), weights("w1", 16, 16, 3, 3),
            weights("w2", 16, 16, 3, 3), weights("w3", 32, 16, 3, 3), weights("w4", 10, 32),
            *(weights(f"b{i}", c) for i, c in enumerate((16, 16, 16, 32, 10))),
        ],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


def samples() -> np.ndarray:
    random = np.random.default_rng(2)
    return random.standard_normal((SAMPLES, 3, 16, 16)).astype(np.float32)


def everything(x, proto=None) -> dict[str, np.ndarray]:
    """All tensors by ONNX Runtime."""
    original, proto = proto or model(), onnx.ModelProto()
    proto.CopyFrom(original)
    names = [name for node in proto.graph.node for name in node.output]
    del proto.graph.output[:]
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names)
    session = ort.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return {"x": x, **dict(zip(names, session.run(names, {"x": x}), strict=True))}


class Batches:
    """The samples in batches; derived together with a calibrator's class."""

    def __init__(self, cache=None) -> None:
        super().__init__()
        self.cache, self.calls, self.data = cache, 0, samples()

    def get_batch_size(self):
        return BATCH

    def get_batch(self, names):
        assert names == ["x"]
        start, self.calls = self.calls * BATCH, self.calls + 1
        if start >= SAMPLES:
            return None
        self.batch = np.ascontiguousarray(self.data[start : start + BATCH])
        return [self.batch.ctypes.data]

    def read_calibration_cache(self):
        return self.cache

    def write_calibration_cache(self, cache):
        self.cache = bytes(cache)

    def get_quantile(self):
        return 0.999

    def get_regression_cutoff(self):
        return 1.0


def calibrator(name="EntropyCalibration2", base=Batches, **extra):
    return type("Given", (base, BASES[name]), extra)()


class Log(trt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity, msg) -> None:
        if severity <= trt.ILogger.WARNING:
            self.lines.append(msg)


def build(
    given=None, *, int8=True, before=False, profile=None, log=None, change=None, level=3
):
    """(plan, network, log lines) of the CNN."""
    log = log or Log()
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    assert parser.parse(model().SerializeToString())
    config = builder.create_builder_config()
    config.device, config.threads = "cpu", 1
    config.builder_optimization_level = level
    if int8:
        config.set_flag(trt.BuilderFlag.INT8)
    if before:
        config.set_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    tail = (3, 16, 16)
    usual = builder.create_optimization_profile()
    usual.set_shape("x", (1, *tail), (8, *tail), (SAMPLES, *tail))
    config.add_optimization_profile(usual)
    if profile:
        own = builder.create_optimization_profile()
        own.set_shape("x", *((n, *tail) for n in profile))
        config.set_calibration_profile(own)
        assert config.get_calibration_profile() is own
    config.int8_calibrator = given
    assert config.int8_calibrator is given
    if change:
        change(network, config)
    plan = (
        fill_cache(builder, network, config)
        if config.get_timing_cache()
        else builder.build_serialized_network(network, config)
    )
    REPORT[:] = [builder.report_json]
    return plan, network, log.lines


def run(plan, x) -> np.ndarray:
    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    y = np.empty((len(x), 10), np.float32)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)
    return y


def fresh(count=SAMPLES) -> np.ndarray:
    """Inputs that calibration did not see."""
    random = np.random.default_rng(3)
    return random.standard_normal((count, 3, 16, 16)).astype(np.float32)


def error(found, expected) -> float:
    return float(np.sqrt(((found - expected) ** 2).sum() / (expected**2).sum()))


def int8_steps() -> int:
    """Steps of the last build that read 8 bits."""
    steps = json.loads(REPORT[0])["steps"]
    return sum(step["types"].startswith("INT8") for step in steps)


@pytest.mark.parametrize("name", BASES)
def test_accuracy(name) -> None:
    given, caches = calibrator(name), []

    def same_timings(_, config):
        known = caches[0].serialize() if caches else b""
        caches.append(config.create_timing_cache(known))
        assert config.set_timing_cache(caches[-1], False)

    plan, network, lines = build(given, change=same_timings)
    assert not lines
    x = fresh()
    expected = everything(x)["y"]
    found = run(plan, x)
    assert error(found, expected) < 0.03
    assert (found.argmax(1) == expected.argmax(1)).mean() > 0.9
    assert given.calls == SAMPLES // BATCH + 1
    # The network is as it was.
    assert all(t.dynamic_range is None for layer in network
               for t in [layer.get_output(0)])  # fmt: skip
    assert not any(network.is_debug_tensor(layer.get_output(0)) for layer in network)

    head, ranges = read_cache(given.cache)
    assert head == name
    assert given.cache.decode().splitlines()[0] == f"TRT-101600-{name}"
    # Again, from the cache alone; other kernels might round other ties.
    again = calibrator(name, cache=given.cache)
    again.cache = given.cache
    np.testing.assert_array_equal(run(build(again, change=same_timings)[0], x), found)
    assert again.calls == 0
    seen = everything(samples())
    for tensor, size in ranges.items():
        if tensor not in seen:
            continue  # what the importer makes of a Gemm
        extreme = np.abs(seen[tensor]).max()
        if name == "MinMaxCalibration":
            assert size == pytest.approx(extreme, rel=1e-4)
        elif name == "LegacyCalibration":
            values = np.abs(seen[tensor][seen[tensor] != 0])
            assert size == pytest.approx(np.quantile(values, 0.999), rel=0.02)
        else:
            assert 0.3 * extreme < size <= extreme * 1.0001


def test_8_bits_are_computed() -> None:
    """Asked for, they are; the result is what ONNX Runtime says of the same numbers."""
    given = calibrator("MinMaxCalibration")
    asked = {"count": 0}

    def change(network, config):
        for layer in network:
            if layer.type in PRODUCTS:
                layer.precision = trt.int8
                asked["count"] += 1
                layer.set_output_type(0, trt.int8)

    plan, network, _ = build(given, change=change)
    assert asked["count"] == 5
    assert int8_steps() >= 5  # each of five tensors is read as 8 bits
    convolution = next(x for x in network if x.type == trt.LayerType.CONVOLUTION)
    assert convolution.precision is trt.int8
    assert convolution.output_type_is_set(0)
    _, ranges = read_cache(given.cache)
    x = fresh()
    expected = emulated(x, ranges)
    found = run(plan, x)
    assert error(found, expected) < 2e-3  # now and then a tie goes the other way
    assert error(found, everything(x)["y"]) > 1e-3


def emulated(x, ranges, proto=None) -> np.ndarray:
    """With 8 bits as the builder puts them: before products, and where the residual
    is added."""
    original, proto = proto or model(), onnx.ModelProto()
    proto.CopyFrom(original)
    given = {i.name: numpy_helper.to_array(i) for i in proto.graph.initializer}
    nodes, constants, made = [], list(proto.graph.initializer), set()

    def pair(name, axis=None):
        scale = np.float32(ranges[name] / 127) if axis is None else None
        if axis is not None:
            size = np.abs(given[name]).reshape(len(given[name]), -1).max(1)
            scale = (size / np.float32(127)).astype(np.float32)
        if name not in made:
            made.add(name)
            zero = np.zeros(np.shape(scale), np.int8)
            constants.append(numpy_helper.from_array(np.asarray(scale), f"{name}.s"))
            constants.append(numpy_helper.from_array(zero, f"{name}.z"))
            more = {} if axis is None else {"axis": axis}
            names = [f"{name}.s", f"{name}.z"]
            nodes.append(helper.make_node(
                "QuantizeLinear", [name, *names], [f"{name}.q"], **more))  # fmt: skip
            nodes.append(helper.make_node(
                "DequantizeLinear", [f"{name}.q", *names], [f"{name}.d"], **more))  # fmt: skip
        return f"{name}.d"

    for node in proto.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            node.input[0] = pair(node.input[0])
            node.input[1] = pair(node.input[1], 0)
        elif node.op_type == "Add":
            node.input[1] = pair(node.input[1])
        nodes.append(node)
    graph = helper.make_graph(
        nodes, "emulated", proto.graph.input, proto.graph.output, constants
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        helper.make_model(
            graph, opset_imports=proto.opset_import, ir_version=9
        ).SerializeToString(),
        options, providers=["CPUExecutionProvider"],
    )  # fmt: skip
    return session.run(None, {"x": x})[0]


class Real(trt.IAlgorithmSelector):
    """Takes no algorithm that reads or makes 8 bits."""

    def select_algorithms(self, context, choices):
        count = context.num_inputs + context.num_outputs
        return [
            i for i, choice in enumerate(choices)
            if all(choice.get_algorithm_io_info(k).dtype is not trt.int8
                   for k in range(count))
        ]  # fmt: skip

    def report_algorithms(self, contexts, choices):
        self.names = [choice.algorithm_variant.name for choice in choices]


@pytest.mark.parametrize("level", [0, 3, 5])
def test_left_out(level) -> None:
    """Without 8 bits it is the network in floating point, weights and all."""
    selector = Real()

    def change(network, config):
        config.algorithm_selector = selector
        config.builder_optimization_level = level

    plan, _, _ = build(calibrator("MinMaxCalibration"), change=change)
    assert int8_steps() == 0
    assert selector.names.count("view") >= 8  # four tensors, and who reads them
    x = fresh()
    np.testing.assert_allclose(run(plan, x), everything(x)["y"], rtol=1e-4, atol=1e-5)


def test_own_ranges_go_before() -> None:
    """A range that was set is kept; far too small, it shows in the result."""
    given = calibrator("MinMaxCalibration")

    def change(network, config):
        network.get_input(0).set_dynamic_range(-0.01, 0.01)
        for layer in network:
            if layer.type in PRODUCTS:
                layer.precision = trt.int8

    plan, network, _ = build(given, change=change)
    assert network.get_input(0).dynamic_range == pytest.approx((-0.01, 0.01))
    _, ranges = read_cache(given.cache)
    x = fresh()
    expected = emulated(x, {**ranges, "x": 0.01})
    assert error(run(plan, x), expected) < 5e-3
    assert error(expected, everything(x)["y"]) > 0.1


@pytest.mark.parametrize("name", ["EntropyCalibration", "LegacyCalibration"])
def test_before_fusion(name) -> None:
    """Without the flag only what fusion leaves is looked at."""
    after, before = calibrator(name), calibrator(name)
    build(after, level=0)
    build(before, before=True, level=0)
    few, all_ = read_cache(after.cache)[1], read_cache(before.cache)[1]
    assert {"x", "r0", "r1", "r2"} <= few.keys() < all_.keys()
    assert {"c0", "c1", "c2", "s", "c3"} <= all_.keys()
    assert not {"c0", "c1"} & few.keys()


def test_calibration_profile() -> None:
    """Its usual shape where the batch's size does not fit."""
    shapes = []

    class Looks(Batches):
        def get_batch_size(self):
            return 3

        def get_batch(self, names):
            return None if shapes else [self.data.ctypes.data]

    class Counts(Histogram):
        def add(self, values):
            shapes.append(values.size)
            super().add(values)

    import rabbet._calibration as calibration

    original, calibration.Histogram = calibration.Histogram, Counts
    try:
        for profile, expected in ((None, 3), ((5, 6, 7), 6), ((2, 6, 7), 3)):
            shapes.clear()
            build(calibrator(base=Looks), profile=profile, level=0)
            assert shapes[0] == expected * 3 * 16 * 16, profile
    finally:
        calibration.Histogram = original


def test_histogram_cache() -> None:
    """Other quantiles of kept histograms need no batches."""
    kept = {}

    def write(self, ptr, length):
        kept["data"] = ctypes.string_at(ptr, length)

    def read(self):
        return kept.get("data")

    first = calibrator(
        "LegacyCalibration", write_histogram_cache=write, read_histogram_cache=read
    )
    build(first, level=0)
    second = calibrator(
        "LegacyCalibration", write_histogram_cache=write, get_quantile=lambda self: 0.9,
        # As TensorRT calls it, with a length.
        read_histogram_cache=lambda self, length: kept.get("data"),
    )  # fmt: skip
    build(second, level=0)
    assert first.calls
    assert not second.calls
    wide, narrow = read_cache(first.cache)[1], read_cache(second.cache)[1]
    assert wide.keys() == narrow.keys()
    assert all(narrow[name] < wide[name] for name in wide)


# ---- Refitting


def refittable(ask, *flags):
    """An engine of the CNN with ranges of min-max calibration, and these."""

    def change(network, config):
        for flag in flags:
            config.set_flag(flag)
        for layer in network:
            if ask and layer.type in PRODUCTS:
                layer.precision = trt.int8

    given = calibrator("MinMaxCalibration")
    plan, _, _ = build(given, change=change)
    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)
    return engine, read_cache(given.cache)[1]


def test_refit_of_ranges() -> None:
    engine, ranges = refittable(True, trt.BuilderFlag.REFIT)
    refitter = trt.Refitter(engine, trt.Logger(trt.Logger.ERROR))
    names = set(refitter.get_tensors_with_dynamic_range())
    assert {"x", "r0", "r1", "r2"} < names
    assert len(names) == 5
    for name in names & ranges.keys():
        expected = (-ranges[name], ranges[name])
        assert refitter.get_dynamic_range(name) == pytest.approx(expected, rel=1e-5)
    x = fresh()
    first = run(engine.serialize(), x)
    assert error(first, emulated(x, ranges)) < 2e-3
    changed = {**ranges, "x": 1.5, "r1": 0.9}
    assert refitter.set_dynamic_range("x", (-1.5, 0.7))
    assert refitter.set_dynamic_range("r1", (-0.1, 0.9))
    assert refitter.get_dynamic_range("r1") == pytest.approx((-0.9, 0.9))
    assert refitter.refit_cuda_engine()
    assert refitter.get_dynamic_range("x") == pytest.approx((-1.5, 1.5))
    assert error(run(engine.serialize(), x), emulated(x, changed)) < 4e-3
    assert error(emulated(x, changed), first) > 0.05
    with pytest.raises(trt.NotFoundError, match="does not read tensor 'c0' as 8 bits"):
        refitter.get_dynamic_range("c0")
    with pytest.raises(trt.NotFoundError, match="'nobody'"):
        refitter.set_dynamic_range("nobody", (-1, 1))
    with pytest.raises(ValueError, match=r"'x': \[1, -1\] is not a range"):
        refitter.set_dynamic_range("x", (1, -1))
    with pytest.raises(TypeError, match=r"expected \(min, max\), got 4"):
        refitter.set_dynamic_range("x", 4)


@pytest.mark.parametrize("ask", [False, True], ids=["offered", "asked"])
@pytest.mark.parametrize("strip", [False, True], ids=["whole", "stripped"])
def test_refit_of_weights(ask, strip) -> None:
    """Their 8 bits, and the scales of these, are made anew; so is what is left out."""
    flags = [trt.BuilderFlag.REFIT] + [trt.BuilderFlag.STRIP_PLAN] * strip
    engine, ranges = refittable(ask, *flags)
    proto = model()
    random = np.random.default_rng(11)
    for initializer in proto.graph.initializer:
        data = numpy_helper.to_array(initializer)
        other = (data * random.uniform(0.2, 1.1, data.shape)).astype(np.float32)
        initializer.CopyFrom(numpy_helper.from_array(other, initializer.name))
    refitter = trt.Refitter(engine, trt.Logger(trt.Logger.ERROR))
    assert "x" not in refitter.get_all_weights()
    parser = trt.OnnxParserRefitter(refitter, trt.Logger(trt.Logger.ERROR))
    assert parser.refit_from_bytes(proto.SerializeToString())
    assert refitter.refit_cuda_engine()
    x = fresh()
    found = run(engine.serialize(), x)
    exact = everything(x, proto)["y"]
    assert error(found, exact) < 0.05
    assert error(everything(x)["y"], exact) > 0.1
    if ask:
        assert error(found, emulated(x, ranges, proto)) < 3e-3


def test_engines_without_ranges() -> None:
    plan, _, _ = build(None, change=lambda n, c: c.set_flag(trt.BuilderFlag.REFIT))
    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)
    refitter = trt.Refitter(engine, trt.Logger(trt.Logger.ERROR))
    assert refitter.get_tensors_with_dynamic_range() == []
    with pytest.raises(trt.NotFoundError, match="'x' as 8 bits; it reads 0 so"):
        refitter.get_dynamic_range("x")


# ---- The cache


def test_cache_text() -> None:
    kind = trt.CalibrationAlgoType.ENTROPY_CALIBRATION_2
    text = cache_bytes(kind, {"a: b": 127.0, "c": 1.0})
    assert text == b"TRT-101600-EntropyCalibration2\na: b: 3f800000\nc: 3c010204\n"
    assert struct.unpack(">f", bytes.fromhex("3c010204"))[0] == np.float32(1 / 127)
    name, ranges = read_cache(text)
    assert name == "EntropyCalibration2"
    assert ranges == {"a: b": 127.0, "c": pytest.approx(1.0)}
    # As other releases and others write it.
    old = b"TRT-8601-MinMaxCalibration\nx: 3c010a14\n(Unnamed Layer* 1) [Shuffle]: 0\n"
    with pytest.raises(ValueError, match="line 3: expected 'tensor: 8 hex"):
        read_cache(old)
    assert read_cache(old.replace(b": 0\n", b": 00000000\n"))[1].keys() == {
        "x", "(Unnamed Layer* 1) [Shuffle]",
    }  # fmt: skip
    with pytest.raises(ValueError, match="line 1: expected 'TRT-RELEASE-ALGORITHM'"):
        read_cache(b"hello\n")
    with pytest.raises(ValueError, match="line 1"):
        read_cache(b"")
    with pytest.raises(ValueError, match="is text"):
        read_cache(b"\xff\xfe")


def test_cache_of_another_algorithm() -> None:
    given = calibrator("MinMaxCalibration")
    given.cache = b"TRT-8601-EntropyCalibration2\nx: 3f800000\n"
    _, _, lines = build(given)
    assert any("is of EntropyCalibration2, the calibrator of MinMax" in x for x in lines)
    assert given.calls
    assert given.cache.startswith(b"TRT-101600-MinMaxCalibration\n")


def test_cache_of_some_tensors() -> None:
    """Tensors that it lacks stay in floating point, and the log says so."""
    given = calibrator()
    given.cache = b"TRT-8601-EntropyCalibration2\nx: 3d0a0000\nnobody: 3d0a0000\n"
    plan, _, lines = build(given)
    assert any("INT8: 4 layers stay in floating point" in line for line in lines)
    x = fresh()
    assert error(run(plan, x), everything(x)["y"]) < 0.03


# ---- Mistakes


class Bare(trt.IInt8EntropyCalibrator2):
    pass


def test_what_must_be_defined() -> None:
    with pytest.raises(NotImplementedError, match=r"Bare must define get_batch_size\(\)"):
        build(Bare())
    sized = type("Sized", (Bare,), {"get_batch_size": lambda self: 1})
    with pytest.raises(NotImplementedError, match=r"Sized must define get_batch\(names\)"):
        build(sized())
    with pytest.raises(NotImplementedError, match=r"IInt8Calibrator must .* get_algorithm"):
        build(trt.IInt8Calibrator())
    legacy = type("Old", (trt.IInt8LegacyCalibrator,), {
        "get_batch_size": lambda self: 1, "get_batch": Batches.get_batch, "calls": 0,
        "data": samples()})  # fmt: skip
    with pytest.raises(NotImplementedError, match=r"Old must define get_quantile\(\)"):
        build(legacy())


@pytest.mark.parametrize(("methods", "message"), [
    ({"get_batch_size": lambda s: 0}, "get_batch_size: expected an int of at least 1"),
    ({"get_batch_size": lambda s: "4"}, "expected an int of at least 1, got '4'"),
    ({"get_batch": lambda s, names: []}, "Given.get_batch gave no batch"),
    ({"get_batch": lambda s, names: [1, 2]}, "gave 2 addresses for 1 inputs: x"),
    ({"get_batch": lambda s, names: ["x"]}, "address of input 'x' on device 'cpu'"),
    ({"get_batch": lambda s, names: [0]}, "as an int, got 0"),
    ({"get_batch": lambda s, names: [64.5]}, r"as an int, got 64\.5"),
    ({"get_batch": lambda s, names: ["64"]}, "as an int, got '64'"),
    ({"get_batch": lambda s, names: [1 << 64]}, "as an int, got 18446744073709551616"),
    ({"read_calibration_cache": lambda s: "text"}, "cache: expected bytes or None, got 't"),
    ({"read_calibration_cache": lambda s: 5}, "expected bytes or None, got 5"),
    ({"read_calibration_cache": lambda s: b"junk"}, "calibration cache, line 1"),
    ({"get_quantile": lambda s: 1.5}, "Given.get_quantile: expected a number above 0"),
    ({"get_regression_cutoff": lambda s: None}, "get_regression_cutoff: expected a"),
    ({"read_histogram_cache": lambda s: b"junk"}, "hold no histograms"),
    ({"get_algorithm": lambda s: 9}, "9 is not a valid CalibrationAlgoType"),
])  # fmt: skip
def test_mistakes(methods, message) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        build(calibrator("LegacyCalibration", **methods))


def test_what_a_calibrator_raises() -> None:
    def get_batch(self, names):
        raise KeyError("mine")

    network = []
    with pytest.raises(KeyError, match="mine"):
        build(
            calibrator(get_batch=get_batch), change=lambda net, config: network.append(net)
        )
    assert not any(network[0].is_debug_tensor(x.get_output(0)) for x in network[0])


def test_where_it_has_no_place() -> None:
    config = trt.Builder().create_builder_config()
    with pytest.raises(TypeError, match="int8_calibrator: expected an IInt8Calibrator"):
        config.int8_calibrator = object()
    with pytest.raises(TypeError, match="expected an IOptimizationProfile, got 1"):
        config.set_calibration_profile(1)
    with pytest.raises(ValueError, match="not bits 1 << QuantizationFlag"):
        config.quantization_flags = 2
    given = calibrator()
    _plan, _, lines = build(given, int8=False)
    assert any("no effect without BuilderFlag.INT8" in line for line in lines)
    assert not given.calls
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    strong = builder.create_network(
        1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    )
    x = strong.add_input("x", trt.float32, (1,))
    strong.mark_output(strong.add_identity(x).get_output(0))
    config.set_flag(trt.BuilderFlag.INT8)
    config.int8_calibrator = given
    with pytest.raises(trt.FailedPreconditionError, match="strongly typed"):
        builder.build_serialized_network(strong, config)


def test_flags_and_ranges_as_properties() -> None:
    config = trt.Builder().create_builder_config()
    flag = trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION
    assert config.quantization_flags == 0
    config.set_quantization_flag(flag)
    assert config.quantization_flags == 1
    assert config.get_quantization_flag(flag)
    config.clear_quantization_flag(flag)
    assert not config.get_quantization_flag(flag)
    config.quantization_flags = 1
    config.int8_calibrator = calibrator()
    config.reset()
    assert config.quantization_flags == 0
    assert config.int8_calibrator is None

    tensor = trt.Builder().create_network().add_input("x", trt.float32, (1,))
    assert tensor.dynamic_range is None
    tensor.dynamic_range = (-1, 2)
    assert tensor.dynamic_range == (-1.0, 2.0)
    assert tensor.set_dynamic_range(-3, 3)
    assert tensor.dynamic_range == (-3.0, 3.0)
    tensor.reset_dynamic_range()
    assert tensor.dynamic_range is None
    with pytest.raises(ValueError, match=r"'x': \[2, -2\] is not a range"):
        tensor.set_dynamic_range(2, -2)
    with pytest.raises(TypeError, match=r"expected \(min, max\), got 3"):
        tensor.dynamic_range = 3


def test_loops() -> None:
    """Values of all iterations of a loop count, and all have the range."""
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    random = np.random.default_rng(8)
    w = random.standard_normal((8, 8)).astype(np.float32)
    x = network.add_input("x", trt.float32, (2, 8))
    loop = network.add_loop()
    count = network.add_constant((), np.array(3, np.int32)).get_output(0)
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    state.get_output(0).name = "state"
    factor = network.add_constant((8, 8), w).get_output(0)
    none = trt.MatrixOperation.NONE
    product = network.add_matrix_multiply(state.get_output(0), none, factor, none)
    product.precision = trt.int8
    state.set_input(1, product.get_output(0))
    out = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
    out.get_output(0).name = "y"
    network.mark_output(out.get_output(0))
    data = random.standard_normal((2, 8)).astype(np.float32)

    class Once(Batches):
        def get_batch(self, names):
            self.calls += 1
            return [data.ctypes.data] if self.calls == 1 else None

    given = calibrator("MinMaxCalibration", Once)
    config = builder.create_builder_config()
    config.device = "cpu"
    config.set_flag(trt.BuilderFlag.INT8)
    config.int8_calibrator = given
    plan = builder.build_serialized_network(network, config)
    _, ranges = read_cache(given.cache)
    assert "state" not in ranges  # it is the one or the other
    later = ranges[product.get_output(0).name]
    seen = [data @ w, data @ w @ w, data @ w @ w @ w]
    assert ranges["x"] == pytest.approx(np.abs(data).max(), rel=1e-5)
    assert later == pytest.approx(max(np.abs(s).max() for s in seen), rel=1e-4)

    def bytes_of(values, scale):
        return np.clip(np.rint(values / scale), -127, 127) * scale

    expected, wq = data, bytes_of(w, np.abs(w).max(0, keepdims=True) / 127)
    for size in (ranges["x"], later, later):
        expected = bytes_of(expected, size / 127) @ wq
    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    y = np.empty((2, 8), np.float32)
    context.set_tensor_address("x", data.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)
    assert error(y, expected) < 1e-2
