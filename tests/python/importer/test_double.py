"""DOUBLE computed as DOUBLE: operators, whole models, and who refuses it."""

import math
import re
import traceback

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
import rabbet.onnxruntime
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_resize

from tests.python.support import onnx_cases
from tests.python.support import onnx_evaluate as reference
from tests.python.support.doubles import as_double, of_double

# Random numbers and previews.
WITHOUT_REFERENCE = re.compile("test_(bernoulli|flexattention|ai_onnx_ml)")
# Node tests of FLOAT that are run in DOUBLE: one for each way to compute it.
TURNED = """
    add_bcast and_bcast3v1d argmax_keepdims_random attention_3d_gqa attention_4d_causal
    averagepool_2d_ceil averagepool_2d_precomputed_pads_count_include_pad averagepool_3d_default
    basic_conv_with_padding batchnorm_epsilon celu
    clip_example clip_default_min col2im_pads concat_3d_axis_1 constantofshape_float_ones
    conv_with_strides_and_asymmetric_padding convtranspose_1d convtranspose_dilations
    convtranspose_group_2 convtranspose_output_shape det_nd depthtospace_example dft
    einsum_batch_matmul elu expand_dim_changed eyelike_with_dtype gather_1 gather_elements_1
    gemm_all_attributes gemm_transposeB globalaveragepool globalmaxpool greater_bcast
    gru_defaults gru_seq_length instancenorm_epsilon isinf isnan
    l1normalization_axis_last l2normalization_axis_0 
    logsoftmax_axis_1 lppool_2d_pads lstm_with_peepholes matmul_4d matmul_bcast
    max_example maxpool_2d_ceil maxpool_2d_dilations maxpool_3d_default
    maxpool_with_argmax_2d_precomputed_pads maxunpool_export_with_output_shape mean_example
    mish mod_mixed_sign_float32 nonzero_example onehot_with_axis
    pow_bcast_array prelu_broadcast range_float_type_positive_delta reduce_l2_keep_dims_random
    reduce_log_sum_exp_keepdims_random reduce_max_keepdims_random
    reduce_mean_default_axes_keepdims_random
    reduce_prod_negative_axes_keepdims_random reduce_sum_square_keepdims_random
    reversesequence_time rms_normalization_3d_axis1_epsilon
    rnn_seq_length round scan9_sum scatter_elements_with_reduction_max
    scatternd_add selu shrink_soft sign simple_rnn_with_initial_bias slice softmax_axis_0
    softplus softsign split_equal_parts_2d swish tanh thresholdedrelu_default tile
    top_k tril triu where_example xor2d
""".split()


def evaluated(model, inputs):
    names = [value.name for value in model.graph.input]
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))


def as_array(value):
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value)


def compiled(model, **options):
    options = {"threads": 1, "optimization_level": 0, **options}
    return rabbet.compile(model, device="cpu", double=True, **options)


def check(found, wanted):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if found.dtype == np.float64:
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(found, wanted)


def frozen(model, inputs):
    """Integers behind the first input become initializers, as models have them."""
    made, kept = onnx.ModelProto(), []
    made.CopyFrom(model)
    del made.graph.input[:]
    for i, (value, array) in enumerate(zip(model.graph.input, inputs, strict=True)):
        if i > 0 and array.dtype.kind in "iu":
            made.graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            made.graph.input.append(value)
            kept.append(array)
    return made, kept


def check_case(model, inputs):
    model, inputs = frozen(model, inputs)
    found = compiled(model)(*inputs)
    wanted = evaluated(model, inputs)
    found = found if isinstance(found, tuple) else [found]
    for one, expected in zip(found, wanted, strict=True):
        check(one, expected)


def test_nodes():
    """Node tests that have DOUBLE themselves."""
    wrong, count = [], 0
    for name, case in onnx_cases.load_all().items():
        if WITHOUT_REFERENCE.match(name) or "DOUBLE" not in reference.element_types(case.model):
            continue
        inputs, _ = case.data_sets[0]
        count += 1
        try:
            check_case(case.model, [as_array(one) for one in inputs])
        except Exception:
            wrong.append(f"{name}: {traceback.format_exc()}")
    assert not wrong, "\n".join(wrong)
    assert count > 50


@pytest.mark.parametrize("name", TURNED)
def test_turned(name):
    case = onnx_cases.load_all()[f"test_{name}"]
    inputs, _ = case.data_sets[0]
    check_case(of_double(case.model), [as_double(one) for one in inputs])


# ---- Whole models

NETWORK = """
    <ir_version: 8, opset_import: ["": 17]>
    network (double[batch, 3, height, 9] x, double[batch] shift)
        => (double[batch, 5] y, int64[batch, 2] best, float[batch, 5] narrow) {
        c = Conv<pads = [1, 1, 1, 1]>(x, kernel)
        n = InstanceNormalization(c, scale, bias)
        e = Tanh(n)
        g = Mul(n, e)
        pooled = ReduceMean<axes = [2, 3], keepdims = 0>(g)
        z = Gemm<transB = 1>(pooled, dense)
        axes = Constant<value_ints = [1]>()
        column = Unsqueeze(shift, axes)
        moved = Add(z, column)
        y = LogSoftmax<axis = 1>(moved)
        two = Constant<value_ints = [2]>()
        largest, best = TopK<axis = 1>(y, two)
        narrow = Cast<to = 1>(y)
    }"""
WEIGHTS = {"kernel": (6, 3, 3, 3), "scale": 6, "bias": 6, "dense": (5, 6)}


def network():
    model = parser.parse_model(NETWORK)
    random = np.random.default_rng(3)
    for name, shape in WEIGHTS.items():
        weights = random.normal(size=shape)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    return model


def feed(batch, height):
    random = np.random.default_rng(batch + height)
    return random.normal(size=(batch, 3, height, 9)), random.normal(size=batch)


@pytest.fixture(scope="module")
def run():
    shapes = {"x": ((1, 3, 1, 9), (2, 3, 7, 9), (4, 3, 20, 9)), "shift": ((1,), (2,), (4,))}
    return compiled(network(), shapes=shapes, optimization_level=3)


@pytest.mark.parametrize("extents", [(1, 1), (2, 7), (4, 20)])
def test_network_of_open_shapes(run, extents):
    inputs = feed(*extents)
    for found, wanted in zip(run(*inputs), evaluated(network(), inputs), strict=True):
        check(found, wanted)


def test_a_plan_has_double_in_its_file(run, tmp_path):
    run.save(tmp_path / "m.plan")
    loaded = rabbet.load(tmp_path / "m.plan", device="cpu")
    assert [i.dtype for i in loaded.inputs] == [rabbet.DataType.DOUBLE] * 2
    inputs = feed(2, 7)
    for found, wanted in zip(loaded(*inputs), run(*inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_input_of_another_type_is_refused(run):
    x, shift = feed(2, 7)
    with pytest.raises(TypeError, match="input 'x' is float32, the model takes float64"):
        run(x.astype(np.float32), shift)


def test_without_the_option_double_is_float():
    model = rabbet.compile(network(), device="cpu", threads=1, optimization_level=0,
                           shapes={"x": (2, 3, 7, 9), "shift": (2,)})  # fmt: skip
    assert [i.dtype for i in model.inputs] == [rabbet.DataType.FLOAT] * 2


def test_the_session_has_double():
    session = rabbet.onnxruntime.InferenceSession(
        network().SerializeToString(), providers=["CPUExecutionProvider"], double=True,
        optimization_level=0)  # fmt: skip
    assert session.get_inputs()[0].type == "tensor(double)"
    x, shift = feed(2, 7)
    for found, wanted in zip(session.run(None, {"x": x, "shift": shift}),
                             evaluated(network(), (x, shift)), strict=True):  # fmt: skip
        check(found, wanted)


def test_refitted_weights_are_double():
    model = network()
    builder = rabbet.Builder()
    net = builder.create_network()
    onnx_parser = rabbet.OnnxParser(net)
    onnx_parser.double = True
    onnx_parser.parse(model.SerializeToString())
    config = builder.create_builder_config()
    config.device = "cpu"
    config.builder_optimization_level = 0
    config.set_flag(rabbet.BuilderFlag.REFIT)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", *[(2, 3, 7, 9)] * 3)
    profile.set_shape("shift", *[(2,)] * 3)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(net, config)
    engine = rabbet.Runtime().deserialize_cuda_engine(plan)
    refitter = rabbet.Refitter(engine)
    kernel = np.random.default_rng(9).normal(size=(6, 3, 3, 3))
    with pytest.raises((TypeError, rabbet.Error), match="DOUBLE"):
        refitter.set_named_weights("kernel", kernel.astype(np.float32))
    assert refitter.set_named_weights("kernel", kernel)
    assert refitter.refit_cuda_engine()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(kernel, "kernel"))
    inputs = feed(2, 7)
    for found, wanted in zip(rabbet.Model(engine)(*inputs), evaluated(model, inputs),
                             strict=True):  # fmt: skip
        check(found, wanted)


def test_parts_of_models_keep_double():
    """As plugins of TensorRT are added to a network."""
    part = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> part (double[3] x) => (double[3] y) '
        "<double[3] c = {0.1, 0.2, 0.3}> { y = Mul(x, c) }"
    )
    net = rabbet.Builder().create_network()
    x = net.add_input("x", rabbet.float64, (3,))
    (y,) = net._import_part(part.SerializeToString(), [x], 1)
    net.mark_output(y)
    given = np.array([1.1, 2.2, 3.3])
    check(compiled(net)(given), evaluated(part, [given])[0])


WINDOWS = """
    <ir_version: 8, opset_import: ["": 17]>
    windows () => (double[n] hann, double[n] hamming, double[n] blackman, double[b, m] mel) {
        size = Constant<value_int = 19>()
        hann = HannWindow<output_datatype = 11>(size)
        hamming = HammingWindow<output_datatype = 11, periodic = 0>(size)
        blackman = BlackmanWindow<output_datatype = 11>(size)
        bins = Constant<value_int = 8>()
        rate = Constant<value_int = 8192>()
        low = Constant<value_float = 0.0>()
        high = Constant<value_float = 4096.0>()
        mel = MelWeightMatrix<output_datatype = 11>(bins, size, rate, low, high)
    }"""


def test_windows_of_double():
    model = parser.parse_model(WINDOWS)
    for found, wanted in zip(compiled(model)(), evaluated(model, []), strict=True):
        check(found, wanted)


# ---- Products of all sizes

@pytest.mark.parametrize("sizes", [
    (1, 1, 1), (1, 300, 70), (2, 9, 2100), (7, 1, 5), (300, 40, 1), (13, 600, 33),
    (250, 3, 100), (6, 0, 4)])  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_products(sizes, turned):
    m, k, n = sizes
    random = np.random.default_rng(m + k + n)
    a, b = random.normal(size=(3, m, k)), random.normal(size=(3, k, n))
    net = rabbet.Builder().create_network()
    op = rabbet.MatrixOperation.TRANSPOSE if turned else rabbet.MatrixOperation.NONE
    given = [np.ascontiguousarray(x.transpose(0, 2, 1)) if turned else x for x in (a, b)]
    inputs = [net.add_input(name, rabbet.float64, x.shape)
              for name, x in zip("ab", given, strict=True)]  # fmt: skip
    net.mark_output(net.add_matrix_multiply(inputs[0], op, inputs[1], op).get_output(0))
    found = rabbet.compile(net, device="cpu", threads=2, optimization_level=0)(*given)
    np.testing.assert_allclose(found, a @ b, rtol=1e-12, atol=1e-12)


# ---- Element by element

UNARY = ["Exp", "Log", "Sqrt", "Reciprocal", "Abs", "Neg", "Sin", "Cos", "Tan", "Sinh", "Cosh",
         "Asin", "Acos", "Atan", "Asinh", "Atanh", "Ceil", "Floor", "Round", "Sign", "Sigmoid",
         "Tanh", "Softplus", "Softsign", "Elu", "Selu", "Relu", "Gelu", "HardSigmoid"]  # fmt: skip


def test_functions_in_one_pass():
    """Chains are computed together; ends of rows, and numbers that have no result, too."""
    nodes, outputs = [], []
    for op in UNARY:
        nodes.append(helper.make_node(op, ["x"], [f"{op}_y"]))
        outputs.append(helper.make_tensor_value_info(f"{op}_y", TensorProto.DOUBLE, None))
    nodes += [
        helper.make_node("Max", ["x", "row"], ["most"]),
        helper.make_node("Pow", ["most", "row"], ["power"]),
        helper.make_node("Greater", ["x", "row"], ["above"]),
        helper.make_node("Where", ["above", "power", "row"], ["chosen"]),
    ]
    outputs.append(helper.make_tensor_value_info("chosen", TensorProto.DOUBLE, None))
    inputs = [helper.make_tensor_value_info("x", TensorProto.DOUBLE, (37, 11)),
              helper.make_tensor_value_info("row", TensorProto.DOUBLE, (11,))]  # fmt: skip
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    random = np.random.default_rng(1)
    x = random.normal(size=(37, 11)) * 3
    x.flat[:8] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -1e-300, 0.5]
    row = random.uniform(0.1, 2, 11)
    with np.errstate(all="ignore"):
        wanted = dict(zip([o.name for o in outputs], evaluated(model, [x, row]), strict=True))
        wanted["Gelu_y"] = gelu(x)
        found = compiled(model)(x, row)
    for output, one in zip(outputs, found, strict=True):
        # 1 + erf(x) has no more digits.
        atol = 1e-15 if output.name == "Gelu_y" else 1e-300
        np.testing.assert_allclose(one, wanted[output.name], rtol=1e-13, atol=atol,
                                   err_msg=output.name)  # fmt: skip


def gelu(x):
    return np.array([v * 0.5 * (1 + math.erf(v * 0.5**0.5)) for v in x.flat]).reshape(x.shape)


# ---- Images, against ONNX Runtime where that has DOUBLE

RANDOM = np.random.default_rng(7)
IMAGE = RANDOM.normal(size=(2, 4, 7, 6))
GRID = RANDOM.uniform(-1.3, 1.3, (2, 3, 5, 2))
REGIONS = np.array([[0.3, 0.2, 5.1, 4.7], [-2, -3, 30, 40], [2, 2, 2.5, 2.1], [1, 1, 4, 6]])
WHERE = np.array([0, 1, 1, 0])
OFFSETS = RANDOM.normal(size=(2, 2 * 2 * 4, 6, 5))


def one_node(op, inputs, opset=22, domain="", **attrs):
    """A model of a node with inputs of these arrays."""
    values = [
        helper.make_tensor_value_info(
            f"x{i}", helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
        for i, one in enumerate(inputs)
    ]  # fmt: skip
    node = helper.make_node(op, [v.name for v in values], ["y"], domain=domain, **attrs)
    kind = TensorProto.FLOAT if domain else TensorProto.DOUBLE
    graph = helper.make_graph(
        [node], "g", values, [helper.make_tensor_value_info("y", kind, None)])  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def by_onnxruntime(model, inputs):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"])  # fmt: skip
    return session.run(None, {f"x{i}": one for i, one in enumerate(inputs)})[0]


SAMPLES = [
    *(("GridSample", (IMAGE, GRID), {"mode": m, "padding_mode": p, "align_corners": a})
      for m in ("linear", "nearest", "cubic") for p in ("zeros", "border", "reflection")
      for a in (0, 1)),
    ("GridSample", (IMAGE[:, :, None], np.insert(GRID, 2, 0.1, -1)[:, None]), {}),
    *(("RoiAlign", (IMAGE, REGIONS, WHERE),
       {"mode": m, "coordinate_transformation_mode": c, "sampling_ratio": n,
        "output_height": 3, "output_width": 2, "spatial_scale": 0.75, "opset": 16})
      for m in ("avg", "max") for c in ("half_pixel", "output_half_pixel") for n in (0, 2, 9)),
    ("DeformConv", (IMAGE, RANDOM.normal(size=(6, 2, 2, 2)), OFFSETS, RANDOM.normal(size=6),
                    RANDOM.uniform(size=(2, 2 * 4, 6, 5))), {"group": 2, "offset_group": 2}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(SAMPLES)))
def test_like_onnx_runtime(case):
    op, inputs, attrs = SAMPLES[case]
    model = one_node(op, inputs, **attrs)
    found, wanted = compiled(model)(*inputs), by_onnxruntime(model, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("length", [600, 1031])
def test_long_transforms(length):
    x = RANDOM.normal(size=(2, length, 2))
    numbers = x[..., 0] + 1j * x[..., 1]
    for inverse, transform in enumerate((np.fft.fft, np.fft.ifft)):
        model = one_node("DFT", (x,), 17, axis=1, inverse=inverse)
        found = compiled(model)(x)
        found = found[..., 0] + 1j * found[..., 1]
        np.testing.assert_allclose(found, transform(numbers), rtol=1e-10, atol=1e-11)


RESIZED = [
    {"mode": mode, "coordinate_transformation_mode": coordinate, **more}
    for mode in ("linear", "cubic")
    for coordinate in ("half_pixel", "align_corners", "asymmetric")
    for more in ({}, {"antialias": 1}, {"exclude_outside": 1})
    if (mode == "cubic" or "exclude_outside" not in more)
    and not (more.get("antialias") and coordinate == "align_corners")
]


@pytest.mark.parametrize("attrs", RESIZED, ids=lambda attrs: "-".join(map(str, attrs.values())))
def test_resize(attrs, monkeypatch):
    graph = "resize (double[2, 4, 7, 6] x) => (double[a, b, c, d] y) { sizes = Constant" \
        "<value = int64[4] {2, 4, 11, 4}>() y = Resize(x, , , sizes) }"  # fmt: skip
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 19]> {graph}')
    for name, value in attrs.items():
        model.graph.node[-1].attribute.append(helper.make_attribute(name, value))
    # An evaluator's coefficient is a FLOAT of NumPy, and so would its results be.
    for name in ("_cubic_coeffs", "_cubic_coeffs_antialias"):
        monkeypatch.setattr(op_resize, name, in_double(getattr(op_resize, name)))
    check(compiled(model)(IMAGE), evaluated(model, [IMAGE])[0])


def in_double(coefficients):
    return lambda ratio, scale, **a: coefficients(float(ratio), scale, float(*a.values()))


def test_max_roi_pool():
    rois = np.insert(np.array([[0, 0, 5, 4], [2, 1, 4, 6], [-3, -2, 2, 3.0]]), 0, [0, 1, 1], 1)
    model = one_node("MaxRoiPool", (IMAGE, rois), pooled_shape=[2, 3])
    wanted = np.zeros((3, 4, 2, 3))
    for r, (image, *box) in enumerate(rois.astype(int)):
        x, y, right, bottom = box
        for i, k in np.ndindex(2, 3):
            height, width = (bottom - y + 1) / 2, (right - x + 1) / 3
            rows = np.arange(math.floor(i * height), math.ceil((i + 1) * height)) + y
            columns = np.arange(math.floor(k * width), math.ceil((k + 1) * width)) + x
            rows, columns = rows[(rows >= 0) & (rows < 7)], columns[(columns >= 0) & (columns < 6)]
            part = IMAGE[image][:, rows][:, :, columns]
            wanted[r, :, i, k] = part.max((1, 2)) if part.size else 0
    np.testing.assert_array_equal(compiled(model)(IMAGE, rois), wanted)


@pytest.mark.parametrize(("op", "attrs"), [
    ("Scaler", {"offset": [0.1, 0.2, 1000.3, 0.4], "scale": [1.1, 1.2, 1.3, 1.4]}),
    ("Normalizer", {"norm": "L1"}),
    ("Normalizer", {"norm": "L2"}),
    ("FeatureVectorizer", {"inputdimensions": [4]}),
])  # fmt: skip
def test_ml(op, attrs):
    """Results are FLOAT; a scaler computes in DOUBLE."""
    x = RANDOM.normal(size=(3, 4)) * 1e3
    model = one_node(op, (x,), 17, "ai.onnx.ml", **attrs)
    found = compiled(model)(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_onnxruntime(model, (x,)), rtol=2e-7)
    if op == "Scaler":
        np.testing.assert_array_equal(found, by_onnxruntime(model, (x,)))


SPLITS = {"floats": np.float32([0.7, -0.2, 0, 0, 0]), "doubles": np.array([0.7, -0.2, 0, 0, 0])}


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_EQ"])
def test_trees(splits, mode):
    """Features beside a split by less than FLOAT can tell go their own ways."""
    values = SPLITS[splits]
    modes = [mode, mode, "LEAF", "LEAF", "LEAF"]
    attrs = {
        "nodes_treeids": [0] * 5, "nodes_nodeids": list(range(5)), "nodes_modes": modes,
        "nodes_featureids": [0, 1, 0, 0, 0], "nodes_truenodeids": [1, 2, 0, 0, 0],
        "nodes_falsenodeids": [4, 3, 0, 0, 0], "target_treeids": [0] * 3,
        "target_nodeids": [2, 3, 4], "target_ids": [0, 0, 0], "n_targets": 1,
    }  # fmt: skip
    lists = {"nodes_values": values, "target_weights": np.array([0.125, 2.5, -3.0]),
             "base_values": np.array([0.5])}  # fmt: skip
    for name, given in lists.items():
        if splits == "floats":
            attrs[name] = given.tolist()
        else:
            attrs[f"{name}_as_tensor"] = numpy_helper.from_array(given)
    steps = np.array([-1e-12, 0, 1e-12, np.nan])
    x = np.stack(np.meshgrid(values[0] + steps, values[1] + steps), -1).reshape(-1, 2)
    model = one_node("TreeEnsembleRegressor", (x,), 17, "ai.onnx.ml", **attrs)
    model.opset_import[1].version = 3
    found = compiled(model)(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_onnxruntime(model, (x,)), rtol=1e-6)


def test_a_tree_ensemble_gives_double():
    case = onnx_cases.load_all()["test_ai_onnx_ml_tree_ensemble_single_tree"]
    x = as_array(case.data_sets[0][0][0])
    assert x.dtype == np.float64
    session = onnxruntime.InferenceSession(case.model.SerializeToString())
    wanted = session.run(None, {case.model.graph.input[0].name: x})[0]
    check(compiled(case.model)(x), wanted)


# ---- Refusals

def test_layers_without_double_are_named():
    net = rabbet.Builder().create_network()
    boxes = net.add_input("boxes", rabbet.float64, (1, 5, 4))
    scores = net.add_input("scores", rabbet.float64, (1, 5, 1))
    most = net.add_constant((), np.array(3, np.int32)).get_output(0)
    layer = net.add_nms(boxes, scores, most)
    net.mark_output(layer.get_output(0))
    with pytest.raises(rabbet.Error, match=r"input 0 \('boxes'\) has type DOUBLE"):
        compiled(net)


def test_another_precision_is_refused():
    builder = rabbet.Builder()
    net = builder.create_network()
    x = net.add_input("x", rabbet.DataType.DOUBLE, (3,))
    layer = net.add_unary(x, rabbet.UnaryOperation.EXP)
    layer.precision = rabbet.DataType.FLOAT
    net.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.device = "cpu"
    with pytest.raises(rabbet.Error, match=": the types asked for rule out its candidates: cpu"):
        builder.build_serialized_network(net, config)
