"""Sessions with Rabbet as the provider: options, threads, operators, errors, memory."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import rabbet.onnxruntime
import rabbet.plugin as trtp
from onnx import TensorProto, helper, numpy_helper

from tests.python.support import onnx_text, provider

RNG = np.random.default_rng(6)


def _perceptron(rows: str = "N", width: int = 48) -> onnx.ModelProto:
    model = onnx_text.model_of(
        f"float[{rows},{width}] x, float[{width},{width}] w", f"float[{rows},{width}] y",
        "a = MatMul(x, w) b = Relu(a) y = Softmax<axis = 1>(b)")
    del model.graph.input[1]
    w = RNG.standard_normal((width, width)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return model


def _rows(count: int, width: int = 48) -> Any:
    return RNG.standard_normal((count, width)).astype(np.float32)


# ---- Registration


def test_names() -> None:
    assert rabbet.onnxruntime.register() == rabbet.onnxruntime.get_ep_name() == provider.NAME
    assert rabbet.onnxruntime.register() in ort.get_available_providers()
    assert rabbet.onnxruntime.get_ep_names() == [provider.NAME]
    assert Path(rabbet.onnxruntime.get_library_path()).name == "libonnxruntime_ep_rabbet.so"
    devices = [each for each in ort.get_ep_devices() if each.ep_name == provider.NAME]
    assert devices
    assert devices[0].ep_vendor == "Rabbet"


_GET_API = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_uint32)
_GET_VERSION = ctypes.CFUNCTYPE(ctypes.c_size_t)
_CREATE_STATUS = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p)


@pytest.mark.parametrize(("newest", "text"), [
    (23, "ONNX Runtime is version 1.23.9; Rabbet's execution provider needs 1.24 or newer"),
    (24, "another ONNX Runtime in this process"),
])  # fmt: skip
def test_another_onnx_runtime_is_refused(newest: int, text: str) -> None:
    """One that is too old, and a second one of the process."""
    rabbet.onnxruntime.register()
    library = ctypes.CDLL(rabbet.onnxruntime.get_library_path())
    told: list[str] = []
    create_status = _CREATE_STATUS(lambda code, message: told.append(message.decode()) or 1)
    table = (ctypes.c_void_p * 500)(ctypes.cast(create_status, ctypes.c_void_p))
    get_api = _GET_API(lambda asked: ctypes.addressof(table) if asked <= newest else 0)
    version = ctypes.create_string_buffer(f"1.{newest}.9".encode())
    get_version = _GET_VERSION(lambda: ctypes.addressof(version))
    base = (ctypes.c_void_p * 2)(
        ctypes.cast(get_api, ctypes.c_void_p), ctypes.cast(get_version, ctypes.c_void_p))
    factory, count = ctypes.c_void_p(), ctypes.c_size_t(9)
    library.CreateEpFactories.restype = library.RegisterCustomOps.restype = ctypes.c_void_p
    assert library.CreateEpFactories(
        b"r", base, None, ctypes.byref(factory), ctypes.c_size_t(1), ctypes.byref(count))
    assert library.RegisterCustomOps(None, base)
    assert count.value == 0
    assert len(told) == 2
    assert all(text in each for each in told), told
    test_chosen_by_policy_or_device()


def test_other_sessions_stay_as_they_are() -> None:
    rabbet.onnxruntime.register()
    session = ort.InferenceSession(_perceptron().SerializeToString())
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_chosen_by_policy_or_device() -> None:
    model = _perceptron().SerializeToString()
    x = {"x": _rows(3)}
    want = provider.reference(model).run(None, x)
    options = provider.options_of()
    rabbet.onnxruntime.add_provider(options, threads=1, optimization_level=0, fp16=False)
    session = ort.InferenceSession(model, options)
    provider.same(session.run(None, x), want)
    assert provider.parts(session)


# ---- Options


@pytest.mark.parametrize(("key", "value", "text"), [
    ("thread", "2", "has no option 'thread'; did you mean 'threads'"),
    ("threads", "two", "option threads=two of RabbetExecutionProvider: expected a number"),
    ("threads", "-1", "expected a number from 0 to"),
    ("fp16", "yes", "option fp16=yes of RabbetExecutionProvider: expected 0 or 1"),
    ("optimization_level", "6", "expected a number from 0 to 5"),
    ("dims", "N", "option dims=N of RabbetExecutionProvider: expected NAME=EXTENT or"),
    ("dims", "N=1:2", "expected NAME=EXTENT"),
    ("dims", "N=4:2:8", "expected LEAST <= USUAL <= MOST"),
    ("dims", "N=1:2:3:4", "expected NAME=EXTENT"),
    ("device", "tpu", "tpu"),
    ("device", "cpu:7", "option device of RabbetExecutionProvider: device 'cpu:7'"),
    ("plugins", "/nowhere/ops.py", "/nowhere/ops.py"),
    ("timing_cache", __file__, "option timing_cache"),
])  # fmt: skip
def test_wrong_options_fail_the_session(key: str, value: str, text: str) -> None:
    """They raise, also in Python, where ONNX Runtime goes on without a provider that
    cannot be made, and before a first run builds."""
    for rows in ("4", "N"):
        with pytest.raises(Exception, match=text.replace("(", r"\(")):
            provider.session(_perceptron(rows).SerializeToString(), **{key: value})


def test_dims_build_at_once(tmp_path: Path) -> None:
    times = tmp_path / "times.bin"
    options = {"dims": "N=1:4:16", "timing_cache": times, "optimization_level": 1}
    session = provider.session(_perceptron().SerializeToString(), **options)
    assert times.stat().st_size > 0
    x = {"x": _rows(16)}
    provider.same(session.run(None, x), provider.reference(_model_of(session)).run(None, x))
    with pytest.raises(Exception, match=r"input 'x' has shape \(17, 48\); the plan takes"):
        session.run(None, {"x": _rows(17)})


def _model_of(session: Any) -> bytes:
    return session._model_bytes


def test_dims_of_an_axis() -> None:
    session = provider.session(_perceptron("?").SerializeToString(), dims="x[0]=2:3:4")
    assert session.run(None, {"x": _rows(2)})[0].shape == (2, 48)
    with pytest.raises(Exception, match="the plan takes"):
        session.run(None, {"x": _rows(5)})


_WARNED = """
import sys, onnxruntime
import rabbet.onnxruntime
options = onnxruntime.SessionOptions()
rabbet.onnxruntime.add_provider(options, threads=1, optimization_level=0, dims=sys.argv[2])
onnxruntime.InferenceSession(sys.argv[1], options)
"""


def test_dims_that_the_model_lacks_are_told(tmp_path: Path) -> None:
    onnx.save(_perceptron(), tmp_path / "model.onnx")
    command = [sys.executable, "-c", _WARNED, tmp_path / "model.onnx", "N=4,M=3,x[0]=4,x[1]=48"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = re.findall(r"the model has no open dimension '(.*?)'", done.stderr)
    assert told == ["M", "x[1]"], done.stderr


# ---- Runs


def test_threads() -> None:
    model = _perceptron().SerializeToString()
    session, reference = provider.session(model), provider.reference(model)
    feeds = [{"x": _rows(1 + i % 5)} for i in range(60)]
    want = [reference.run(None, feed) for feed in feeds]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(5):
            for got, one in zip(pool.map(lambda f: session.run(None, f), feeds), want, strict=True):
                provider.same(got, one)


def test_sessions_made_and_run_by_threads() -> None:
    models = [_perceptron(width=8 + i).SerializeToString() for i in range(6)]

    def work(model: bytes) -> None:
        width = ort.InferenceSession(model).get_inputs()[0].shape[1]
        x = {"x": RNG.standard_normal((3, width)).astype(np.float32)}
        provider.same(provider.session(model).run(None, x), provider.reference(model).run(None, x))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, models * 3))


def test_bound_outputs() -> None:
    model = _perceptron("4").SerializeToString()
    session, x = provider.session(model), _rows(4)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu")
    session.run_with_iobinding(binding)
    provider.same(binding.copy_outputs_to_cpu(), provider.reference(model).run(None, {"x": x}))


def test_errors_of_a_run() -> None:
    model = onnx_text.model_of("float[N] x, int64[1] shape", "float[M] y", "y = Reshape(x, shape)")
    session = provider.session(model.SerializeToString())
    with pytest.raises(Exception, match="numbers of elements differ"):
        session.run(None, {"x": np.ones(6, np.float32), "shape": np.array([7])})
    got = session.run(None, {"x": np.ones(6, np.float32), "shape": np.array([6])})
    provider.same(got, [np.ones(6, np.float32)])


def test_many_sessions_leak_nothing() -> None:
    model = _perceptron(width=400).SerializeToString()  # 640 KB of weights

    def use() -> None:
        session = provider.session(model)
        for rows in (1, 4, 2):
            session.run(None, {"x": _rows(rows, 400)})

    for _ in range(5):
        use()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(40):
        use()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024  # KiB


_RESIDENT = """
import sys, numpy, onnxruntime
import rabbet.onnxruntime

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

options = onnxruntime.SessionOptions()
rabbet.onnxruntime.add_provider(options, threads=1, optimization_level=0, dims=sys.argv[2])
before = resident()
session = onnxruntime.InferenceSession(sys.argv[1], options)
session.run(None, {"x": numpy.ones((4, 3072), "float32")})
print(resident() - before)
"""


@pytest.mark.parametrize("dims", ["", "N=1:4:8"])
def test_weights_are_held_once(tmp_path: Path, dims: str) -> None:
    """Neither ONNX Runtime nor the model of a plan to come keeps a copy."""
    path = tmp_path / "model.onnx"
    onnx.save(_perceptron(width=3072), path)  # 36 MiB
    command = [sys.executable, "-c", _RESIDENT, path, dims]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert 27 < float(done.stdout) < 60


# ---- Operators


@trtp.register("provider_test::Halves")
def _describe(x: trtp.TensorDesc, scale: float) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
    y, z = x.like(), x.like()
    z.shape_expr[0] = x.shape_expr[0] * 2
    return y, z


@trtp.impl("provider_test::Halves")
def _run(x: Any, scale: float, outputs: Any, stream: int) -> None:
    array = np.from_dlpack(x)
    if (array > 1e6).any():
        raise ValueError("values above a million have no halves")
    np.from_dlpack(outputs[0])[...] = array * scale
    np.from_dlpack(outputs[1])[...] = np.concatenate([array, -array])


def _with_operator(domain: str, **attributes: Any) -> bytes:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Halves", ["a"], ["b", "c"], domain=domain, scale=0.5, **attributes),
        helper.make_node("Neg", ["b"], ["y"]),
        helper.make_node("Abs", ["c"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"])
    opsets = [helper.make_opsetid(name, 17 if not name else 1) for name in {"", domain}]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def _check_operator(session: Any) -> None:
    assert [len(each.shape) for each in session.get_outputs()] == [2, 2]
    assert not provider.others(session)
    for rows in (3, 1):
        x = RNG.standard_normal((rows, 4)).astype(np.float32)
        relu = np.maximum(x, 0)
        provider.same(session.run(None, {"x": x}), [-relu / 2, np.concatenate([relu, relu])])


@pytest.mark.parametrize(("domain", "attributes"), [
    ("provider_test", {}),
    ("", {"plugin_namespace": "provider_test"}),
    ("trt.plugins", {"plugin_namespace": "provider_test", "plugin_version": "1"}),
])  # fmt: skip
def test_operators_in_python(domain: str, attributes: dict[str, str]) -> None:
    """No library of custom operators: the provider brings the schema."""
    options = provider.options_of()
    rabbet.onnxruntime.add_provider(options, threads=1, optimization_level=0)
    _check_operator(ort.InferenceSession(_with_operator(domain, **attributes), options))


def test_operators_with_the_provider_by_name() -> None:
    options = provider.options_of()
    rabbet.onnxruntime.register()
    options.register_custom_ops_library(rabbet.onnxruntime.get_library_path())
    session = ort.InferenceSession(
        _with_operator("provider_test"), options,
        providers=[(provider.NAME, {"optimization_level": "0"})])
    _check_operator(session)


def test_an_exception_in_an_operator_is_the_run_s() -> None:
    options = provider.options_of()
    rabbet.onnxruntime.add_provider(options, threads=1, optimization_level=0)
    session = ort.InferenceSession(_with_operator("provider_test"), options)
    x = np.ones((2, 4), np.float32)
    session.run(None, {"x": x})
    with pytest.raises(Exception, match="values above a million have no halves"):
        session.run(None, {"x": x * 1e7})
    session.run(None, {"x": x})


def test_an_operator_that_nobody_registered() -> None:
    model = onnx.load_from_string(_with_operator("provider_test"))
    model.graph.node[1].op_type = "Thirds"
    options = provider.options_of()
    rabbet.onnxruntime.add_provider(options)
    with pytest.raises(Exception, match="provider_test:Thirds"):
        ort.InferenceSession(model.SerializeToString(), options)


# ---- The end

_UNREGISTERED = """
import gc, sys, numpy, onnxruntime
import rabbet.onnxruntime

x = {"x": numpy.ones((3, 48), "float32")}
for _ in range(3):
    options = onnxruntime.SessionOptions()
    rabbet.onnxruntime.add_provider(options, threads=1, optimization_level=0)
    session = onnxruntime.InferenceSession(sys.argv[1], options)
    session.run(None, x)
    del options
    onnxruntime.unregister_execution_provider_library("rabbet")
    other = [numpy.full(size, -1, "int8") for size in range(16, 4096, 16)]
    assert session.run(None, {"x": x["x"][:2]})[0].shape == (2, 48)
    del session
    gc.collect()
print("done")
"""


def test_sessions_outlive_the_registration(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_perceptron(), path)
    command = [sys.executable, "-c", _UNREGISTERED, path]
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}  # freed memory is overwritten
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout.strip() == "done", done.stderr
    assert done.returncode == 0, done.stderr


# ---- Without Rabbet's package

_ALONE = """
import sys, numpy, onnxruntime
onnxruntime.register_execution_provider_library("r", sys.argv[1])
options = {"optimization_level": "0", "plugins": sys.argv[3]} if sys.argv[3] else {}
chosen = [("RabbetExecutionProvider", options)]
session = onnxruntime.InferenceSession(sys.argv[2], providers=chosen)
print(session.run(None, {"x": numpy.ones((2, 48), "float32")})[0].sum(), "rabbet" in sys.modules)
"""


@pytest.mark.parametrize("plugins", ["", "json"])
def test_library_alone(tmp_path: Path, plugins: str) -> None:
    """The library needs Rabbet's package for operators in Python only."""
    path = tmp_path / "model.onnx"
    onnx.save(_perceptron(), path)
    library = rabbet.onnxruntime.get_library_path()
    command = [sys.executable, "-c", _ALONE, library, path, plugins]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    total, imported = done.stdout.split()
    assert abs(float(total) - 2) < 1e-4
    assert imported == str(bool(plugins))
