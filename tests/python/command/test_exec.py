"""`rabbet exec`: trtexec's flags, and results in its form."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import rabbet as trt
from onnx import TensorProto, helper

from tests.python.support.command import command, save_model

QUICK = ["--duration=0", "--warmUp=0", "--iterations=3"]
LINE = re.compile(
    r"\[I\] (Latency|Enqueue Time|GPU Compute Time): min = (\S+) ms, max = (\S+) ms, "
    r"mean = (\S+) ms, median = (\S+) ms((?:, percentile\([\d.]+%\) = \S+ ms)*)\n"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights = {"w": np.arange(8, dtype=np.float32).reshape(4, 2)}
    save_model(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
            helper.make_node("Relu", ["a"], ["y"], name="relu"),
        ],
        {"x": (TensorProto.FLOAT, ["n", 4])},
        {"y": (TensorProto.FLOAT, ["n", 2])},
        weights,
    )
    return tmp_path


def run(folder: Path, *flags: str, code: int = 0) -> str:
    done = command("exec", *flags, cwd=folder, env={"RABBET_DEVICE": "cpu"}, code=code)
    words = "PASSED" if code == 0 else "FAILED"
    assert done.stdout.startswith("&&&& RUNNING rabbet.exec")
    assert done.stdout.splitlines()[-1].startswith(f"&&&& {words} rabbet.exec")
    return done.stdout


def test_build_and_time(model: Path) -> None:
    text = run(
        *(model, "--onnx=m.onnx", *QUICK, "--percentile=50,99.5"),
        *("--minShapes=x:1x4", "--optShapes=x:2x4", "--maxShapes=x:8x4"),
        *("--saveEngine=m.plan", "--exportTimes=t.json", "--exportOutput=y.npz"),
    )
    found = {name: values for name, *values in LINE.findall(text)}
    assert set(found) == {"Latency", "Enqueue Time", "GPU Compute Time"}
    low, high, mean, median, percentiles = found["Latency"]
    assert 0 < float(low) <= float(mean) <= float(high)
    assert float(low) <= float(median) <= float(high)
    assert re.findall(r"percentile\((.*?)%\)", percentiles) == ["50", "99.5"]
    assert float(re.search(r"\[I\] Throughput: (\S+) qps\n", text)[1]) > 0  # type: ignore[index]
    times = json.loads((model / "t.json").read_text())
    assert len(times) == 3
    assert all(0 < t["enqueueMs"] <= t["latencyMs"] for t in times)
    # At the usual shapes.
    assert np.load(model / "y.npz")["y"].shape == (2, 2)
    engine = trt.Runtime(trt.Logger()).load_cuda_engine(str(model / "m.plan"))
    assert engine.get_tensor_profile_shape("x", 0) == [(1, 4), (2, 4), (8, 4)]


def test_load_inputs_and_reports(model: Path) -> None:
    run(
        model,
        "--onnx=m.onnx",
        "--shapes=x:3x4",
        "--skipInference",
        "--saveEngine=m.plan",
    )
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    (model / "x.raw").write_bytes(x.tobytes())
    text = run(
        *(model, "--loadEngine=m.plan", "--loadInputs=x:x.raw", "--exportOutput=y.npz"),
        *("--dumpProfile", "--exportProfile=p.json", "--dumpLayerInfo", *QUICK),
        *("--exportLayerInfo=l.json", "--dumpOptimizationProfile", "--dumpOutput"),
    )
    w = np.arange(8, dtype=np.float32).reshape(4, 2)
    want = np.maximum(x @ w, 0)
    np.testing.assert_allclose(
        np.load(model / "y.npz")["y"], want, rtol=1e-5, atol=1e-5
    )
    assert "x: min (3, 4), opt (3, 4), max (3, 4)" in text
    assert "=== Layer information ===" in text
    assert "Time(%)   Layer" in text
    layers = json.loads((model / "l.json").read_text())["Layers"]
    profile = json.loads((model / "p.json").read_text())
    assert [p["name"] for p in profile[1:]] == [layer["Name"] for layer in layers]
    assert sum(p["percentage"] for p in profile[1:]) == pytest.approx(100, abs=0.1)
    (model / "short.raw").write_bytes(b"1234")
    text = run(model, "--loadEngine=m.plan", "--loadInputs=x:short.raw", code=3)
    assert "'short.raw' has 4 bytes; input 'x' needs 48" in text


def test_several_profiles(model: Path) -> None:
    run(
        *(model, "--onnx=m.onnx", "--skipInference", "--saveEngine=m.plan"),
        *("--profile=0", "--optShapes=x:2x4", "--profile=1", "--minShapes=x:4x4"),
        *("--optShapes=x:5x4", "--maxShapes=x:6x4"),
    )
    engine = trt.Runtime(trt.Logger()).load_cuda_engine(str(model / "m.plan"))
    assert engine.num_optimization_profiles == 2
    assert engine.get_tensor_profile_shape("x", 0) == [(2, 4)] * 3
    assert engine.get_tensor_profile_shape("x", 1) == [(4, 4), (5, 4), (6, 4)]
    run(model, "--loadEngine=m.plan", "--useProfile=1", "--shapes=x:6x4", *QUICK)
    text = run(model, "--onnx=m.onnx", "--profile=2", "--optShapes=x:2x4", code=2)
    assert "--profile=2: expected 0 to 0" in text


def test_weights_come_back(model: Path) -> None:
    text = run(
        *(model, "--onnx=m.onnx", "--shapes=x:2x4", "--stripWeights", "--dumpRefit"),
        *("--saveEngine=m.plan", "--exportOutput=a.npz", *QUICK),
    )
    assert "w: FLOAT (4, 2)" in text
    assert "Engine refitted in" in text
    text = run(model, "--loadEngine=m.plan", *QUICK, code=1)
    assert "lacks" in text
    run(
        model,
        "--loadEngine=m.plan",
        "--refitFromOnnx=m.onnx",
        "--exportOutput=b.npz",
        *QUICK,
    )
    assert np.array_equal(np.load(model / "a.npz")["y"], np.load(model / "b.npz")["y"])


def test_settings_of_the_build(model: Path) -> None:
    run(
        *(
            model,
            "--onnx=m.onnx",
            "--shapes=x:2x4",
            "--skipInference",
            "--saveEngine=m.plan",
        ),
        *("--fp16", "--layerPrecisions=prod*:fp16", "--inputIOFormats=fp16:chw"),
        *(
            "--memPoolSize=workspace:1M",
            "--markDebug=a",
            "--avgTiming=2",
            "--maxTactics=3",
        ),
        *("--profilingVerbosity=detailed", "--builderOptimizationLevel=2"),
        *("--timingCacheFile=t.cache", "--noTF32"),
    )
    assert (model / "t.cache").stat().st_size > 32
    engine = trt.Runtime(trt.Logger()).load_cuda_engine(str(model / "m.plan"))
    assert engine.is_debug_tensor("a")
    assert engine.get_tensor_dtype("x") is trt.float16
    assert 'created with "rabbet' in run(
        model, "--loadEngine=m.plan", "--getPlanVersionOnly"
    )
    again = ["--onnx=m.onnx", "--shapes=x:2x4", "--skipInference"]
    for flag, message in (
        ("--layerPrecisions=q:fp16", "the model has no layer 'q'"),
        ("--layerPrecisions=product:fp17", "fp17"),
        ("--layerOutputTypes=product:fp16+fp16", "layer 'product' has 1 outputs"),
        ("--markDebug=q", "the model has no tensor 'q'"),
        ("--memPoolSize=dlaSRAM:1M", "pool 'dlaSRAM' does not exist"),
        ("--memPoolSize=workspace:1X", "'1X' is not a size"),
        ("--inputIOFormats=fp16:chw,fp16:chw", "the model has only 1 inputs"),
        ("--profilingVerbosity=much", "expected layer_names_only"),
        ("--avgTiming=0", "--avgTiming: '0' is not a number from 1 to 1000"),
    ):
        assert message in run(model, *again, flag, code=2)


def test_flags_without_effect_are_named(model: Path) -> None:
    text = run(
        *(model, "--onnx=m.onnx", "--shapes=x:2x4", "--skipInference"),
        *("--useSpinWait", "--maxAuxStreams=2", "--fp8"),
    )
    for flag in ("--useSpinWait", "--maxAuxStreams", "--fp8"):
        assert re.search(rf"\[W\] {flag} has no effect: \w+", text)


@pytest.mark.parametrize(
    ("flags", "message", "code"),
    [
        (["--safe"], "--safe: there are no safety engines", 4),
        (["--onnx=m.onnx", "--useDLACore=0"], "--useDLACore: no DLA", 4),
        (
            ["--iteration=3"],
            "there is no flag '--iteration'; did you mean '--iterations'",
            2,
        ),
        (["--iterations"], "--iterations needs a value", 2),
        (["--fp16=1"], "--fp16 takes no value", 2),
        ([], None, 0),
        (["--fp16"], "give either --onnx=MODEL.onnx or --loadEngine=PLAN", 2),
        (["--onnx=m.onnx", "--loadEngine=p"], "give either", 2),
        (["--onnx=none.onnx"], "none.onnx", 3),
        (["--onnx=m.onnx"], "input 'x' has dynamic dimensions", 2),
        (
            ["--onnx=m.onnx", "--shapes=x:2x4", "--warmUp=x"],
            "--warmUp: 'x' is not a number",
            2,
        ),
    ],
)
def test_mistakes(
    model: Path, flags: list[str], message: str | None, code: int
) -> None:
    if message is None:
        assert "without effect:" in command("exec").stdout
    else:
        assert message in run(model, *flags, code=code)


def test_help_lists_all_flags() -> None:
    text = command("exec", "--help").stdout
    flags = re.findall(r"^  (--?\w+)", text, re.M)
    # trtexec's and --allowHostCode.
    assert len(flags) == len(set(flags)) == 127


# ---- Calibration caches


def test_calibration_cache(model: Path) -> None:
    def line(name: str, size: float) -> str:
        return f"{name}: {struct.pack('>f', size / 127).hex()}\n"

    cache = "TRT-8601-EntropyCalibration2\n" + line("x", 2.0) + line("nobody", 1.0)
    (model / "c.cache").write_text(cache)
    flags = ["--onnx=m.onnx", "--skipInference", "--saveEngine=m.plan", "--shapes=x:4x4"]
    text = run(model, *flags, "--int8", "--calib=c.cache", "--layerPrecisions=*:int8")
    assert "Calibration cache: ranges of 1 tensors" in text
    assert "names in the calibration cache without a tensor in the model: 1" in text
    engine = trt.Runtime(trt.Logger()).load_cuda_engine(str(model / "m.plan"))
    context = engine.create_execution_context()
    x = np.random.default_rng(0).uniform(-3, 3, (4, 4)).astype(np.float32)
    y = np.empty((4, 2), np.float32)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)

    def rounded(values: object, scale: object) -> object:
        return np.clip(np.rint(values / scale), -128, 127) * scale

    w = np.arange(8, dtype=np.float32).reshape(4, 2)
    expected = rounded(x, np.float32(2 / 127)) @ rounded(w, w.max(0) / np.float32(127))
    np.testing.assert_allclose(y, np.maximum(expected, 0), rtol=1e-5, atol=1e-5)

    text = run(model, *flags, "--calib=c.cache", code=2)
    assert "--calib=c.cache is for --int8, which is not given" in text
    (model / "c.cache").write_text("hello\n")
    text = run(model, *flags, "--int8", "--calib=c.cache", code=2)
    assert "line 1: expected 'TRT-RELEASE-ALGORITHM'" in text
    (model / "c.cache").write_text(cache + "x: 12\n")
    text = run(model, *flags, "--int8", "--calib=c.cache", code=2)
    assert "line 4: expected 'tensor: 8 hexadecimal digits', found 'x: 12'" in text
    text = run(model, *flags, "--int8", "--calib=none.cache", code=3)
    assert "none.cache" in text


def test_tactic_sources(model: Path) -> None:
    flags = ["--onnx=m.onnx", "--skipInference", "--saveEngine=m.plan", "--shapes=x:4x4"]
    run(model, *flags, "--tacticSources=-CUDNN,+CUBLAS_LT")
    text = run(model, *flags, "--tacticSources=CUDNN", code=2)
    assert "'CUDNN': expected + or - and CUBLAS, CUBLAS_LT, CUDNN" in text
