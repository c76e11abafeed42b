"""Polygraphy on the alias, with its own CUDA: TrtRunner, the comparator, the commands."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import cuda_driver

pytestmark = [
    pytest.mark.skipif(
        not cuda_driver.available(), reason="no GPU and no stand-in for one"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("polygraphy") is None
        or importlib.util.find_spec("onnx") is None,
        reason="polygraphy is not installed (python -m pip install polygraphy)",
    ),
]

RUN = """
import numpy as np
from polygraphy.backend.common import BytesFromPath
from polygraphy.backend.trt import (
    CreateConfig, EngineFromBytes, EngineFromNetwork, EngineFromPath, NetworkFromOnnxPath,
    Profile, SaveEngine, TrtRunner,
)
from polygraphy.comparator import Comparator, CompareFunc, DataLoader

profile = Profile().add("x", (1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
config = CreateConfig(profiles=[profile], load_timing_cache="t.cache")
build = SaveEngine(EngineFromNetwork(NetworkFromOnnxPath("m.onnx"), config,
                                     save_timing_cache="t.cache"), "e.plan")
runners = [
    TrtRunner(build, "built"),
    TrtRunner(EngineFromBytes(BytesFromPath("e.plan")), "loaded"),
    TrtRunner(EngineFromPath("e.plan"), "read"),
]
results = Comparator.run(runners, data_loader=DataLoader(iterations=2, seed=1))
assert bool(Comparator.compare_accuracy(results, compare_func=CompareFunc.simple()))
weights = np.load("w.npy")
with TrtRunner(EngineFromPath("e.plan")) as runner:
    for n in (3, 1, 4):  # other shapes, larger and smaller memory
        x = np.random.default_rng(n).standard_normal((n, 3, 8, 8)).astype(np.float32)
        y = runner.infer({"x": x})["y"]
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        expected = np.maximum(np.einsum("nchwij,ocij->nohw", windows, weights), 0)
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)
    assert runner.last_inference_time() > 0
    # On the device, as the next runner would take it.
    kept = runner.infer({"x": x}, copy_outputs_to_host=False)["y"]
    np.testing.assert_array_equal(kept.numpy(), y)
print("done")
"""

# As the samples do it: addresses and streams of Polygraphy, no runner.
BY_HAND = """
import numpy as np
import tensorrt as trt
from polygraphy import cuda
from polygraphy.backend.trt import CreateConfig, create_network, engine_from_network

builder, network = create_network(strongly_typed=True)
x = network.add_input("x", trt.float32, (2, 3))
y = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
y.name = "y"
network.mark_output(y)
engine = engine_from_network((builder, network), CreateConfig())
context = engine.create_execution_context()
a = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
b = np.zeros_like(a)
with cuda.DeviceArray.raw((a.nbytes,)) as here, cuda.DeviceArray.raw((a.nbytes,)) as there:
    with cuda.Stream() as stream:
        here.copy_from(a.view(np.uint8).reshape(-1), stream)
        assert context.set_tensor_address("x", here.ptr)
        assert context.set_tensor_address("y", there.ptr)
        assert context.execute_async_v3(stream.ptr)
        there.copy_to(b.view(np.uint8).reshape(-1), stream)
        stream.synchronize()
assert np.array_equal(b, np.maximum(a, 0)), b
print("done")
"""

SHAPES = [
    *("--trt-min-shapes", "x:[1,3,8,8]"),
    *("--trt-opt-shapes", "x:[2,3,8,8]"),
    *("--trt-max-shapes", "x:[4,3,8,8]"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.python.support.convolution import convolution_model

    return convolution_model(tmp_path_factory.mktemp("model"))


def alias(code: str, *arguments: str, cwd: Path) -> str:
    """The output of a run of the alias, which must succeed."""
    paths = [os.path.abspath(path) for path in sys.path if path]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "RABBET_DEVICE": "cuda",
    }
    if cuda_driver.is_stand_in():
        stand_ins = Path(os.environ["RABBET_CUDA_DRIVER"]).parent
        environment["LD_LIBRARY_PATH"] = str(stand_ins / "cudart")
    done = subprocess.run(
        [sys.executable, "-m", "rabbet.compat", "-c", code, *arguments],
        capture_output=True, text=True, check=False, cwd=cwd, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def polygraphy(*arguments: str, cwd: Path) -> str:
    """A run of Polygraphy's command."""
    code = (
        "import sys; sys.argv[0] = 'polygraphy'; "
        "from polygraphy.tools import main; sys.exit(main())"
    )
    return alias(code, *arguments, cwd=cwd)


def test_runners_and_comparator(model: Path) -> None:
    assert alias(RUN, cwd=model).endswith("done\n")


def test_its_memory_and_streams(model: Path) -> None:
    assert alias(BY_HAND, cwd=model).endswith("done\n")


def test_run_against_onnxruntime(model: Path) -> None:
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    text = polygraphy("run", "m.onnx", "--trt", "--onnxrt", "--iterations", "2",
                      "--rtol", "1e-3", "--atol", "1e-3", *SHAPES, cwd=model)  # fmt: skip
    assert "PASSED" in text
    assert "FAILED" not in text


def test_convert_and_run_the_plan(model: Path) -> None:
    """tests/python/compat inspects one."""
    polygraphy(
        "convert", "m.onnx", "--convert-to", "trt", "-o", "c.plan", *SHAPES, cwd=model
    )
    text = polygraphy("run", "c.plan", "--trt", "--model-type", "engine",
                      "--save-outputs", "o.json", cwd=model)  # fmt: skip
    assert "PASSED" in text
    assert (model / "o.json").stat().st_size > 0
