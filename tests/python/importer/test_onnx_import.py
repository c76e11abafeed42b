"""The ONNX importer against ONNX Runtime, on the reference kernels.

The operators' own tests are in test_onnx_nodes.py; here are dynamic shapes,
shape arithmetic, old operator sets, external data, files as exporters write
them.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
import rabbet
from onnx import TensorProto, helper, numpy_helper, parser

from tests.models import cache
from tests.python.support import onnx_evaluate as reference


def model_of(body, opset=17, ir=8):
    """A model in the ONNX text format: `graph (inputs) => (outputs) {...}`."""
    return parser.parse_model(
        f'<ir_version: {ir}, opset_import: ["" : {opset}, "local" : 1]> {body}')


def expected(model, inputs):
    data = model if isinstance(model, str) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        data, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def check(model, inputs, folder, rtol=1e-5, atol=1e-5):
    found = reference.run(model, inputs, folder)
    for one, other in zip(found, expected(model, inputs), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# ---- Einsum ------------------------------------------------------------------

EXTENTS = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 2}


@pytest.mark.parametrize("equation", [
    "ab,bc->ac", "abc,acd->abd", "abcd,abed->abce", "ab->ba", "ab->", "ab->b",
    "a,b->ab", "a,a->", "ab,ab->ab", "abc,cd,de->abe", "abc,ac->abc", "ab,bc",
    "ab,b->a", "abc,c", "abcd,bd->ca", "aa->a", "aa->", "aa", "bab->ab", "abab->ba", "aaa->a",
    "aab,bb->a", "aab,ab",
])
def test_einsum(equation, tmp_path):
    terms = equation.split("->")[0].split(",")
    inputs = [numbers(*(EXTENTS[c] for c in term), seed=i)
              for i, term in enumerate(terms)]
    infos = [helper.make_tensor_value_info(f"x{i}", 1, x.shape)
             for i, x in enumerate(inputs)]
    node = helper.make_node("Einsum", [i.name for i in infos], ["y"], equation=equation)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                              ir_version=8)
    found = reference.run(model, inputs, tmp_path)[0]
    correct = np.einsum(equation, *inputs)
    assert found.shape == correct.shape
    np.testing.assert_allclose(found, correct, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shapes", [
    ((2, 3, 4, 5), (2, 3, 5, 6)), ((2, 3, 4, 5), (5, 6)), ((2, 1, 4, 5), (3, 5, 6)),
], ids=str)
def test_einsum_spreads_what_an_ellipsis_stands_for(shapes, tmp_path):
    model = model_of("""agraph (float[] a, float[] b) => (float[] y) {
        y = Einsum<equation="...ij,...jk->...ik">(a, b) }""")
    for info, shape in zip(model.graph.input, shapes, strict=True):
        info.CopyFrom(helper.make_tensor_value_info(info.name, 1, shape))
    inputs = [numbers(*shape, seed=i) for i, shape in enumerate(shapes)]
    found = reference.run(model, inputs, tmp_path)[0]
    correct = np.einsum("...ij,...jk->...ik", *inputs)
    assert found.shape == correct.shape
    np.testing.assert_allclose(found, correct, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("equation", "message"), [
    ("ab->aa", "names 'a' twice in its result"), ("ab,b->a", "another number of terms"),
    ("abc->a", "does not fit input 0"), ("a+b->a", "not part of an equation"),
    ("ab->c", "a label that no term has"), ("aa->a", "axes 0 and 1 of 'x' have one label"),
])
def test_einsum_says_what_is_wrong(equation, message, tmp_path):
    model = model_of(f"""agraph (float[2,3] x) => (float[] y) {{
        y = Einsum<equation="{equation}">(x) }}""")
    with pytest.raises(reference.ImportFailed, match=message):
        reference.run(model, [numbers(2, 3)], tmp_path)


# ---- The table ---------------------------------------------------------------


@pytest.mark.parametrize(("domain", "macros"), [("", "OP|LIST_OP"), ("ai.onnx.ml", "ML_OP")])
def test_versions_are_those_of_the_onnx_package(domain, macros):
    """A new version of an operator in the package shows up here."""
    history = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == domain:
            history.setdefault(schema.name, set()).add(schema.since_version)
    newest = max(max(versions) for versions in history.values())
    for name, since in reference.operators(macros).items():
        assert [v for v in since if v <= newest] == sorted(history[name]), name


# ---- Dynamic shapes ----------------------------------------------------------

X = [numbers(2, 3, 4, 6), numbers(5, 3, 4, 6, seed=1)]
DYNAMIC = {
    "flatten": "graph (float[n,3,h,6] x) => (float[a,b] y) { y = Flatten<axis=2>(x) }",
    "flatten_all":
        "graph (float[n,3,h,w] x) => (float[a,b] y) { y = Flatten<axis=4>(x) }",
    "keep_batch": """graph (float[n,3,h,w] x) => (float[a,b] y) {
        s = Shape(x)  zero = Constant<value_ints=[0]>()
        b = Gather(s, zero)  rest = Constant<value_ints=[-1]>()
        t = Concat<axis=0>(b, rest)  y = Reshape(x, t) }""",
    "shape_product": """graph (float[n,3,h,w] x) => (float[a,b] y) {
        s = Shape<start=0, end=2>(x)  p = ReduceProd<keepdims=1>(s)
        rest = Constant<value_ints=[-1]>()
        t = Concat<axis=0>(p, rest)  y = Reshape(x, t) }""",
    "slice_ends": """graph (float[n,3,h,w] x) => (float[a,3,b,c] y) {
        st = Constant<value_ints=[1,-3,-1]>()
        en = Constant<value_ints=[9223372036854775807,-1,-9223372036854775807]>()
        ax = Constant<value_ints=[0,2,3]>()  sp = Constant<value_ints=[1,1,-2]>()
        y = Slice(x, st, en, ax, sp) }""",
    "slice_computed": """graph (float[n,3,h,w] x) => (float[a,3,h,w] y) {
        s = Shape<start=0, end=1>(x)  two = Constant<value_ints=[2]>()
        half = Div(s, two)  zero = Constant<value_ints=[0]>()
        y = Slice(x, zero, half, zero) }""",
    "split": """graph (float[n,3,h,w] x) => (float[n,3,a,w] p, float[n,3,b,w] q) {
        p, q = Split<axis=2>(x) }""",
    "split_sizes": """graph (float[n,3,h,w] x) => (float[n,1,h,w] p, float[n,2,h,w] q)
        { sizes = Constant<value_ints=[1,2]>()  p, q = Split<axis=1>(x, sizes) }""",
    "expand": """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        s = Shape(x)  v = Constant<value_float=2.0>()  e = Expand(v, s)
        y = Mul(x, e) }""",
    "expand_ones": """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        one = Constant<value_ints=[1,3,1,1]>()  y = Expand(x, one) }""",
    # A product sums over repetitions along its last axes: they are no copies to drop.
    "product_of_filled": """graph (float[n,3,h,w] x) => (float[n,2,5] y, float[n,2,4] z) {
        b = Shape<start=0, end=1>(x)  ac = Constant<value_ints=[2,3]>()
        as = Concat<axis=0>(b, ac)  a = ConstantOfShape<value = float[1] {1.5}>(as)
        k = Constant<value = float[3,5] {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6}>()
        p = MatMul(a, k)
        dv = Constant<value = float[2,1] {0.5, 0.25}>()  d = Expand(dv, as)
        ec = Constant<value_ints=[3,4]>()  es = Concat<axis=0>(b, ec)
        ev = Constant<value = float[1,4] {1,2,3,4}>()  e = Expand(ev, es)
        q = MatMul(d, e)
        m = ReduceMean<axes=[1,2,3], keepdims=0>(x)
        ua = Constant<value_ints=[1,2]>()  u = Unsqueeze(m, ua)
        y = Add(p, u)  z = Add(q, u) }""",
    "tile": """graph (float[n,3,h,w] x) => (float[n,3,a,b] y) {
        r = Constant<value_ints=[1,1,2,3]>()  y = Tile(x, r) }""",
    "pad_wrap": """graph (float[n,3,h,w] x) => (float[n,3,a,b] y) {
        p = Constant<value_ints=[0,0,1,2,0,0,3,0]>()
        y = Pad<mode="wrap">(x, p) }""",
    "pad_negative": """graph (float[n,3,h,w] x) => (float[n,3,a,b] y) {
        p = Constant<value_ints=[0,0,-1,2,0,0,1,-1]>()
        v = Constant<value_float=7.0>()  y = Pad(x, p, v) }""",
    "unsqueeze": """graph (float[n,3,h,w] x) => (float[a,b,c,d,e,f] y) {
        ax = Constant<value_ints=[1,-1]>()  y = Unsqueeze(x, ax) }""",
    "squeeze": """graph (float[n,3,h,w] x) => (float[h,w] y) {
        s = Constant<value_ints=[0,0]>() e = Constant<value_ints=[1,1]>()
        ax = Constant<value_ints=[0,1]>() part = Slice(x, s, e, ax)
        y = Squeeze(part, ax) }""",
    "broadcast": """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        m = ReduceMean<axes=[0,1], keepdims=0>(x)  y = Sub(x, m) }""",
    "depth_to_space": """graph (float[n,3,h,w] x) => (float[n,12,a,b] y) {
        y = SpaceToDepth<blocksize=2>(x) }""",
    "conv": """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        k = Constant<value = float[3,1,3,3] {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,
            1,2,3,4,5,6,7,8,9, -1,0,1,-1,0,1,-1,0,1}>()
        y = Conv<auto_pad="SAME_UPPER", group=3, strides=[2,1]>(x, k) }""",
    "max_pool_ceil": """graph (float[n,3,h,w] x) => (float[n,3,a,b] y) {
        y = MaxPool<kernel_shape=[2,2], strides=[3,3], pads=[0,0,1,1],
                    ceil_mode=1>(x) }""",
    "size": "graph (float[n,3,h,w] x) => (int64 y) { y = Size(x) }",
    "constant_of_shape": """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        s = Shape(x)  y = ConstantOfShape<value = float[1] {3}>(s) }""",
    "log_softmax":
        "graph (float[n,3,h,w] x) => (float[n,3,h,w] y) { y = LogSoftmax<axis=1>(x) }",
    "negative_index": """graph (float[n,3,h,w] x) => (float[n,3,h] y) {
        i = Constant<value_int=-1>()  y = Gather<axis=3>(x, i) }""",
    "where": """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        z = Constant<value_float=0.0>()  c = Greater(x, z)
        y = Where(c, x, z) }""",
    "clip_computed": """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        hi = ReduceMean<keepdims=0>(x)  lo = Constant<value_float=-0.5>()
        y = Clip(x, lo, hi) }""",
}


@pytest.mark.parametrize("name", sorted(DYNAMIC))
def test_dynamic_shapes(name, tmp_path):
    model = model_of(DYNAMIC[name], opset=19 if name == "pad_wrap" else 17)
    for x in X:
        check(model, [x], tmp_path)


@pytest.mark.parametrize("name", sorted(DYNAMIC))
def test_dynamic_shapes_compiled(name):
    """One plan for all shapes, through builder, plan and runtime."""
    model = model_of(DYNAMIC[name], opset=19 if name == "pad_wrap" else 17)
    shapes = [x.shape for x in X]
    run = rabbet.compile(
        model.SerializeToString(), device="cpu", threads=1, optimization_level=0,
        shapes={"x": (tuple(map(min, *shapes)), X[0].shape, tuple(map(max, *shapes)))})
    for x in [*X, X[0]]:
        found = run(x)
        found = found if isinstance(found, tuple) else [found]
        for one, other in zip(found, expected(model, [x]), strict=True):
            assert np.asarray(one).shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_slices_backwards_of_nothing():
    model = model_of("""graph (float[n,3] x) => (float[n,3] y, float[m,3] z) {
        s = Constant<value_ints=[-1]>()  e = Constant<value_ints=[-9000000000]>()
        ax = Constant<value_ints=[0]>()  two = Constant<value_ints=[-2]>()
        y = Slice(x, s, e, ax, s)  z = Slice(x, s, e, ax, two) }""")
    run = rabbet.compile(model.SerializeToString(), device="cpu", threads=1,
                         shapes={"x": ((0, 3), (4, 3), (5, 3))})
    for count in (4, 0, 5, 1):
        x = numbers(count, 3)
        for one, other in zip(run(x), (x[::-1], x[::-2]), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_computed_shape_is_an_output_too():
    """Its elements, which the host knows, are read by a layer and by the caller."""
    model = model_of("""g (float[n,4,m] x) => (int64[3] shape, float[a,b,c] y)
        <int64[2] places = {0, 2}, int64[1] minus = {-1}> {
          whole = Shape(x)
          part = Gather(whole, places)
          shape = Concat<axis=0>(part, minus)
          y = Reshape(x, shape)
        }""")
    shapes = {"x": ((1, 4, 1), (2, 4, 3), (5, 4, 6))}
    found = rabbet.compile(model, device="cpu", shapes=shapes)
    for n, m in ((2, 3), (5, 6), (1, 1), (2, 3)):
        x = numbers(n, 4, m)
        shape, y = found(x)
        np.testing.assert_array_equal(shape, [n, m, -1])
        assert shape.dtype == np.int64
        np.testing.assert_array_equal(y, x.reshape(n, m, -1))


def test_expressions_describe_shapes(tmp_path):
    """Extents that only a run tells are -1; known ones stay known."""
    network = reference.describe(model_of(DYNAMIC["keep_batch"]), tmp_path)
    assert network.outputs[0].dims == (-1, -1)
    network = reference.describe(model_of(DYNAMIC["depth_to_space"]), tmp_path)
    assert network.outputs[0].dims == (-1, 12, -1, -1)
    network = reference.describe(model_of(DYNAMIC["unsqueeze"]), tmp_path)
    assert network.outputs[0].dims == (-1, 1, 3, -1, -1, 1)


@pytest.mark.parametrize(("a", "b"), [
    ((5,), (5,)), ((5,), (5, 6)), ((4, 5), (5,)), ((2, 3, 4, 5), (5, 6)),
    ((5,), (2, 3, 5, 6)), ((3, 4, 5), (2, 1, 5, 6)), ((2, 3, 4, 5), (5,)),
])
@pytest.mark.parametrize("dynamic", [False, True])
def test_matmul_ranks(a, b, dynamic, tmp_path):
    def dims(shape, letter):
        return [f"{letter}{i}" for i in range(len(shape))] if dynamic else shape

    rank = len(np.matmul(np.zeros(a), np.zeros(b)).shape)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])], "g",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, dims(a, "a")),
         helper.make_tensor_value_info("b", TensorProto.FLOAT, dims(b, "b"))],
        [helper.make_tensor_value_info(
            "y", TensorProto.FLOAT, [f"y{i}" for i in range(rank)])])
    model = helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    check(model, [numbers(*a), numbers(*b, seed=1)], tmp_path)


# ---- Old operator sets -------------------------------------------------------

OLD = {
    "slice_9": (9, """graph (float[n,3,h,w] x) => (float[a,3,b,w] y) {
        y = Slice<axes=[0,2], starts=[-2,1], ends=[100,-1]>(x) }"""),
    "softmax_11": (11, """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        y = Softmax<axis=2>(x) }"""),
    "log_softmax_9": (9, """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        y = LogSoftmax(x) }"""),
    "pad_9": (9, """graph (float[n,3,h,w] x) => (float[n,3,a,b] y) {
        y = Pad<pads=[0,0,1,0,0,0,0,2], value=1.5>(x) }"""),
    "clip_9": (9, """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        y = Clip<min=-0.1>(x) }"""),
    "split_11": (11, """graph (float[n,3,h,w] x) => (float[n,1,h,w] p, float[n,2,h,w] q)
        { p, q = Split<axis=1, split=[1,2]>(x) }"""),
    "reduce_11": (11, """graph (float[n,3,h,w] x) => (float[n,h] y) {
        y = ReduceSum<axes=[1,3], keepdims=0>(x) }"""),
    "dropout_9": (9, """graph (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        y = Dropout<ratio=0.5>(x) }"""),
}


@pytest.mark.parametrize("name", sorted(OLD))
def test_old_operator_sets(name, tmp_path):
    opset, body = OLD[name]
    check(model_of(body, opset=opset, ir=4), [X[0]], tmp_path)


# ---- Files as they are -------------------------------------------------------


def test_initializers_that_are_listed_as_inputs(tmp_path):
    model = model_of("graph (float[2] x, float[2] w) => (float[2] y) { y = Mul(x, w) }",
                     opset=9, ir=3)
    model.graph.initializer.append(
        numpy_helper.from_array(np.array([2, 3], np.float32), "w"))
    assert [i.name for i in reference.describe(model, tmp_path).inputs] == ["x"]
    (y,) = reference.run(model, [np.array([1, 1], np.float32)], tmp_path)
    np.testing.assert_array_equal(y, [2, 3])


def test_odd_names(tmp_path):
    model = model_of("graph (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.input[0].name = "image:0 / ünï \t"
    model.graph.node[0].input[0] = "image:0 / ünï \t"
    model.graph.node[0].output[0] = model.graph.output[0].name = "1"
    (y,) = reference.run(model, [np.array([-1, 1], np.float32)], tmp_path)
    np.testing.assert_array_equal(y, [0, 1])


def external_model(folder):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)], "g", [x], [y],
        [numpy_helper.from_array(numbers(64, 64), "w"),
         numpy_helper.from_array(numbers(64, seed=1), "b")])
    model = helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    path = folder / "external.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="w.bin",
                    size_threshold=0, convert_attribute=False)
    return path


def test_external_data(tmp_path):
    path = external_model(tmp_path)
    x = numbers(3, 64, seed=2)
    found = reference.run(path, [x], tmp_path)
    np.testing.assert_allclose(
        found[0], expected(str(path), [x])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("change", "message"), [
    (lambda f: (f / "w.bin").unlink(), "external data 'w.bin'"),
    (lambda f: (f / "w.bin").write_bytes(b"\0" * 100), "has only 100 bytes"),
])
def test_external_data_that_is_not_there(change, message, tmp_path):
    path = external_model(tmp_path)
    change(tmp_path)
    with pytest.raises(reference.ImportFailed, match=message):
        reference.describe(path, tmp_path)


def test_external_data_changed_before_the_build(tmp_path):
    builder = rabbet.Builder()
    network = builder.create_network()
    rabbet.OnnxParser(network).parse_from_file(external_model(tmp_path))
    data = tmp_path / "w.bin"
    with data.open("r+b") as file:
        file.truncate(data.stat().st_size - 8)
    with pytest.raises(rabbet.Error, match=r"w\.bin' was changed while it was in use"):
        builder.build_serialized_network(network, builder.create_builder_config())



def functions_model():
    model = model_of("""graph (float[n,4] x) => (float[n,4] y) {
            h = local.scaled<by=3.0>(x)
            y = local.scaled(h)
        }
        <domain: "local", opset_import: ["" : 17]>
        scaled <by: float=2.0> (a) => (b) {
            f = Constant<value_float: float = @by>()
            t = Mul(a, f)
            b = local.shift(t)
        }
        <domain: "local", opset_import: ["" : 17]>
        shift (a) => (b) { one = Constant<value_float=1.0>()  b = Add(a, one) }""")
    # The text format leaves out the set of the inner call.
    for function in model.functions:
        function.opset_import.append(helper.make_opsetid("local", 1))
    return model


def test_functions(tmp_path):
    x = numbers(2, 4)
    (y,) = reference.run(functions_model(), [x], tmp_path)
    np.testing.assert_allclose(y, (x * 3 + 1) * 2 + 1, rtol=1e-5)


def branch_model():
    """The condition follows from the rank, as torch's exporter writes it."""
    return model_of("""graph (float[n,4] x) => (float[n,4] y) {
        s = Shape(x)  r = Shape(s)  two = Constant<value_ints=[2]>()
        c = Equal(r, two)
        y = If (c) <
            then_branch = g () => (float[n,4] t) { t = Relu(x) },
            else_branch = h () => (float[n,4] e) { e = Neg(x) }> }""")


def test_decided_branch(tmp_path):
    x = numbers(2, 4)
    (y,) = reference.run(branch_model(), [x], tmp_path)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


@pytest.mark.parametrize(("start", "limit", "delta"), [
    (2**53, 2**53 + 3, 1), (2**60, 2**60 + 40, 10), (-(2**62), -(2**62) + 5, 2),
    (2**62, -(2**62), -(2**61)), (-(2**63), 2**63 - 1, 2**62), (7, 0, -3), (0, 7, 3),
    (5, 5, 1), (0, 5, -1),
])  # fmt: skip
def test_range_of_large_integers(start, limit, delta, tmp_path):
    parts = " ".join(
        f"{name} = Constant<value_int = {value}>()"
        for name, value in (("s", start), ("l", limit), ("d", delta))
    )
    body = f"graph (int64[1] x) => (int64[k] y) {{ {parts} r = Range(s, l, d) y = Add(r, x) }}"
    (y,) = reference.run(model_of(body), [np.zeros(1, np.int64)], tmp_path)
    np.testing.assert_array_equal(y, np.array(range(start, limit, delta), np.int64))


@pytest.mark.parametrize(("body", "message"), [
    ("graph (int64[1] x) => (int64[k] y) { s = Constant<value_int = -9223372036854775808>()"
     " l = Constant<value_int = 9223372036854775807>() d = Constant<value_int = 1>()"
     " r = Range(s, l, d) y = Add(r, x) }", "no valid length"),
    ("graph (int64[1] x) => (int64[k] y) { s = Constant<value_int = 1>()"
     " d = Constant<value_int = 0>() r = Range(s, s, d) y = Add(r, x) }",
     "from 1 to 1 by 0 has no valid length"),
    ("graph (seq(float[2]) x) => (float[2] y) { y = Relu(x) }", "not a tensor"),
    ("graph (string[2] x) => (string[2] y) { y = Identity(x) }", "STRING"),
    ("graph (float[2] x) => (float[2] y) { y = Reluu(x) }", "did you mean 'Relu'"),
    ("graph (float[2] x) => (float[2] y) { y = local.Norm(x) }",
     r"of the model\. For .*plugins= \(the command: --plugins\).*"
     r"no plugin 'Norm', .* namespace 'local'"),
    ("graph (float[2] x) => (float[2] y) { y = local.Relux(x) }",
     r"nor a local function of the model\. For an operator of your own"),
    ("graph (float[2] x) => (float[2] y) { y = local.Norm(x) }",
     r"node 0 '' \(Norm, domain 'local', opset 1\)"),
    ("graph (float[2,3] x, float[4] w) => (float[2,4] y) { y = Add(x, w) }",
     r"\(Add, .*\(2, 3\)"),
    ("graph (float[1,4,2,2] x) => (float[1,1,4,4] y) { y = DepthToSpace<blocksize=65536>(x) }",
     "'blocksize' is 65536; expected rank 4 and from 1 to 65535"),
])
def test_what_cannot_be_imported_is_explained(body, message, tmp_path):
    with pytest.raises(reference.ImportFailed, match=message):
        reference.describe(model_of(body), tmp_path)


def test_other_files(tmp_path):
    for data, message in [(b"", "empty"), (b"\x7fELF" * 50, "not an ONNX model"),
                          (b"#!/bin/sh\n", "not an ONNX model"),
                          (b"\x89RABBET\n" + bytes(64), "they are a plan, which"),
                          (b"ftrt" + bytes(64), "they are a TensorRT engine"),
                          (b"\x89RABBET", "not an ONNX model")]:
        with pytest.raises(reference.ImportFailed, match=message):
            reference.describe(data, tmp_path)
    with pytest.raises(reference.ImportFailed, match="not found"):
        reference.describe(tmp_path / "nothing.onnx", tmp_path)


# ---- Models ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert_base", "gpt2_small"])
def test_transformer(name, tmp_path):
    model = cache.make(name, layers=1, hidden=32, heads=2, ffn=64,
                       vocabulary=50)
    rng = np.random.default_rng(0)
    for shape in [(1, 5), (2, 9)]:
        inputs = [rng.integers(0, 50, shape)]
        if len(model.graph.input) > 1:
            mask = np.ones(shape, np.int64)
            mask[:, -2:] = 0
            inputs.append(mask)
        check(model, inputs, tmp_path, rtol=1e-3, atol=1e-4)


# ---- Operator sets 7 and 8 ---------------------------------------------------

OPSET_7 = {
    "Upsample": 'y = Upsample<mode = "nearest", scales = [1.0, 1.0, 2.0, 3.0]>(x)',
    "Upsample linear": 'y = Upsample<mode = "linear", scales = [1.0, 1.0, 2.0, 2.0]>(x)',
    "BatchNormalization":
        "c = Constant<value = float[3] {1.0, 2.0, 0.5}>()"
        " y = BatchNormalization<spatial = 1>(x, c, c, c, c)",
    "Dropout": "y, m = Dropout<ratio = 0.25>(x)",
    "Slice": "y = Slice<starts = [1, -3], ends = [9, -1], axes = [1, 3]>(x)",
    "Pad": 'y = Pad<pads = [0, 1, 0, 2, 1, 0, 0, -1], mode = "constant", value = 2.5>(x)',
    "TopK": "y, i = TopK<k = 2, axis = 3>(x)",
    "Clip": "y = Clip<min = -0.5, max = 0.5>(x)",
    "Softmax": "y = Softmax<axis = 2>(x)",
    "Split": "y, z = Split<axis = 1, split = [1, 2]>(x)",
    "Squeeze": "r = ReduceMean<axes = [2], keepdims = 1>(x) y = Squeeze<axes = [2]>(r)",
    "Unsqueeze": "y = Unsqueeze<axes = [0, 3]>(x)",
    "Max": "a = Relu(x) b = Neg(x) c = Max(a, b) d = Mean(a, b, c) e = Sum(a, d) y = Min(e, c)",
    "Cast": "i = Cast<to = 6>(x) y = Cast<to = 1>(i)",
    "Gemm": "f = Flatten<axis = 1>(x) t = Transpose(f) y = Gemm<alpha = 0.5>(f, t, s)",
    "PRelu": "a = Constant<value = float[3, 1, 1] {0.5, 0.1, 2.0}>() y = PRelu(x, a)",
    "MaxPool": "y = MaxPool<kernel_shape = [2, 2]>(x)",
    "Greater": "z = Neg(x) g = Greater(x, z) l = Less(x, z) o = Or(g, l) y = Cast<to = 1>(o)",
    "Add": "b = Constant<value = float[6] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>() y = Add(x, b)",
}  # fmt: skip


@pytest.mark.parametrize("opset", [7, 8])
@pytest.mark.parametrize("name", OPSET_7)
def test_operator_sets_7_and_8(name, opset, tmp_path):
    shape = {"Gemm": "[2,2]", "Unsqueeze": "[1,2,3,1,4,6]"}.get(name, "[a,b,c,d]")
    if name == "Squeeze":
        shape = "[a,b,d]"
    head = f"g (float[2,3,4,6] x) => (float{shape} y) <float s = {{0.5}}>"
    model = model_of(f"{head} {{ {OPSET_7[name]} }}", opset)
    check(model, [numbers(2, 3, 4, 6)], tmp_path)


def test_batch_normalization_of_the_batch(tmp_path):
    """Weights are standardised so; statistics that are asked for are updated."""
    model = model_of("""g (float[4,3,5] x) => (float[4,3,5] y, float[3] m, float[3] v) {
        s = Constant<value = float[3] {1.0, 2.0, 0.5}>()
        y, m, v = BatchNormalization<training_mode = 1, momentum = 0.75>(x, s, s, s, s) }""")
    check(model, [numbers(4, 3, 5)], tmp_path)


def test_names_of_what_is_left_out(tmp_path):
    """Tensors and nodes that do nothing keep their names, for those who ask by name."""
    model = model_of("""g (float[n,3] x) => (float[n,3] y) {
        a = Identity(x) b, m = Dropout(a) c = Cast<to = 1>(b) d = Relu(c) e = Identity(d)
        k = Constant<value_float = 2.0>() y = Mul(e, k) }""")
    for i, node in enumerate(model.graph.node):
        node.name = f"node{i}"
    log = rabbet.Logger(rabbet.Logger.ERROR)
    builder = rabbet.Builder(log)
    network = builder.create_network()
    assert rabbet.OnnxParser(network, log).parse(model.SerializeToString())
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    tensors = {t.name: t for layer in layers
               for t in [layer.get_output(k) for k in range(layer.num_outputs)]}
    assert {"a", "b", "c", "d", "e", "y"} <= tensors.keys()
    assert {"node0", "node1", "node2", "node4"} <= {layer.name for layer in layers}
    for name in "abe":
        network.mark_output(tensors[name])
    x = numbers(4, 3)
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (4, 3), (4, 3), (4, 3))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    found = rabbet.Model(rabbet.Runtime(log).deserialize_cuda_engine(plan)).run({"x": x})
    for name, want in {"a": x, "b": x, "e": np.maximum(x, 0), "y": 2 * np.maximum(x, 0)}.items():
        np.testing.assert_array_equal(np.asarray(found[name]), want)


@pytest.mark.parametrize("name", ["?", "None", "-1", ""])
def test_names_that_stand_for_unknown_dimensions(name: str) -> None:
    """paddle2onnx and keras2onnx write one name for all of them."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [name, 3, name, name])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    shapes = {"x": ((1, 3, 4, 8), (2, 3, 6, 9), (4, 3, 8, 32))}
    compiled = rabbet.compile(model, device="cpu", shapes=shapes)
    value = np.random.default_rng(0).standard_normal((2, 3, 5, 11)).astype(np.float32)
    np.testing.assert_array_equal(compiled(value), np.maximum(value, 0))


def test_a_tensor_that_is_an_output_twice() -> None:
    """torch's exporters write so what a module returns twice."""
    float32 = TensorProto.FLOAT
    x, *outputs = (
        helper.make_tensor_value_info(name, float32, [2, 3]) for name in "xyzyxy"
    )
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "g", [x], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    value = numbers(2, 3)
    found = rabbet.compile(model, device="cpu").run({"x": value})
    assert list(found) == ["y", "z", "y.output2", "x.output", "y.output3"]
    y = np.maximum(value, 0)
    for got, want in zip(found.values(), (y, -y, y, value, y), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("sizes", [
    "s = Constant<value_ints=[2,1]>()",
    "n = Shape<start=0, end=1>(x)  two = Constant<value_ints=[2]>()  h = Div(n, two)"
    "  s = Concat<axis=0>(h, h)",
], ids=["fixed", "computed"])  # fmt: skip
def test_parts_that_leave_a_rest(sizes: str) -> None:
    """Exporters write the sizes of their example's parts, which cut off the rest of others."""
    model = model_of(
        "graph (float[n,4] x) => (float[a,4] y, float[b,4] z) "
        f"{{ {sizes}  y, z = Split<axis=0>(x, s) }}")
    compiled = rabbet.compile(model, device="cpu", shapes={"x": ((1, 4), (4, 4), (6, 4))})
    right, wrong = ((3,), (2, 5)) if "value_ints=[2,1]" in sizes else ((4, 2), (3,))
    for rows in right:
        x = numbers(rows, 4)
        y, z = compiled(x)
        np.testing.assert_array_equal(np.concatenate([y, z]), x)
    for rows in wrong:
        with pytest.raises(rabbet.FailedPreconditionError, match="do not add up to axis 0 of 'x'"):
            compiled(numbers(rows, 4))
