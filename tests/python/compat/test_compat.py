"""The alias: scripts that import tensorrt, in processes of their own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rabbet.compat

from tests.python.support.convolution import convolution_model

SCRIPT = """
import sys
import numpy as np
import tensorrt as trt
import tensorrt.plugin as trtp
from tensorrt import DataType

assert sys.argv[1:] == ["one", "two"], sys.argv
major = int(trt.__version__.split(".")[0])
assert major == 10
assert trtp.register and trt.plugin is trtp
logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
config = builder.create_builder_config()
config.device = "cpu"
x = network.add_input("x", trt.float32, (2, 3))
y = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
y.name = "y"
network.mark_output(y)
plan = builder.build_serialized_network(network, config)
assert plan
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
assert isinstance(engine, trt.ICudaEngine)
context = engine.create_execution_context()
assert isinstance(context, trt.IExecutionContext)
a = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
b = np.zeros_like(a)
assert context.set_tensor_address("x", a.ctypes.data)
assert context.set_tensor_address("y", b.ctypes.data)
assert context.execute_async_v3(0)
assert np.array_equal(b, np.maximum(a, 0))
print("done")
"""

FAILURES = """
import numpy as np
import tensorrt as trt

class Log(trt.ILogger):
    def __init__(self):
        super().__init__()
        self.lines = []

    def log(self, severity, msg):
        if severity <= trt.ILogger.ERROR:
            self.lines.append(msg)

log = Log()

def failed(answer, expected, *words):
    assert answer == expected or answer is expected, answer
    line = log.lines.pop()
    assert not log.lines, log.lines
    for word in words:
        assert word in line, (word, line)

builder = trt.Builder(log)
network = builder.create_network()
config = builder.create_builder_config()
config.device = "cpu"
failed(builder.build_serialized_network(network, config), None,
       "Builder::build_serialized_network", "no outputs")
failed(builder.build_engine_with_config(network, config), None, "no outputs")
failed(trt.Runtime(log).deserialize_cuda_engine(b"no plan"), None,
       "Runtime::deserialize_cuda_engine", "not a plan")
x = network.add_input("x", trt.float32, (-1, 3))
failed(network.add_concatenation([]), None, "add_concatenation", "at least one")
y = network.add_identity(x).get_output(0)
y.name = "y"
network.mark_output(y)
config.DLA_core = 0
failed(None, None, "DLA_core", "cannot be 0")
try:
    config.no_such_option = 1
    raise SystemExit("an unknown option was taken")
except AttributeError:
    pass
try:
    builder.build_serialized_network()
    raise SystemExit("a call without arguments")
except TypeError:
    pass
try:
    network.add_input("z", "no type", (1,))
    raise SystemExit("a type that is none")
except TypeError:
    pass
failed(config.get_memory_pool_limit(trt.MemoryPoolType.DLA_LOCAL_DRAM) or
       config.set_memory_pool_limit(trt.MemoryPoolType.DLA_LOCAL_DRAM, 1), None, "DLA_LOCAL_DRAM")
profile = builder.create_optimization_profile()
profile.set_shape("x", (1, 3), (2, 3), (4, 3))
config.add_optimization_profile(profile)
engine = builder.build_engine_with_config(network, config)
context = engine.create_execution_context()
failed(context.set_input_shape("x", (5, 3)), False, "set_input_shape", "1 to 4")
failed(context.set_input_shape("q", (5, 3)), False, "'q'")
failed(context.set_tensor_address("q", 0), False, "'q'")
failed(engine.get_tensor_shape("q"), (), "'q'")
failed(context.execute_async_v3(0), False, "execute_async_v3", "'x'")
parser = trt.OnnxParser(builder.create_network(), log)
failed(parser.parse(b"nothing"), False, "OnnxParser::parse")
assert parser.num_errors == 1
failed(parser.parse_from_file("/no/such/file"), False, "/no/such/file")

class Raising(trt.IOutputAllocator):
    def reallocate_output(self, name, memory, size, alignment):
        raise AttributeError("typo in the allocator")

a = np.ones((2, 3), np.float32)
assert context.set_input_shape("x", a.shape)
assert context.set_tensor_address("x", a.ctypes.data)
assert context.set_output_allocator("y", Raising())
failed(context.execute_async_v3(0), False, "AttributeError: typo in the allocator")
print("done")
"""


def alias(*arguments: str | Path, cwd: Path | None = None) -> str:
    """The output of a run of the alias, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "rabbet.compat", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    import os

    paths = [os.path.abspath(path) for path in sys.path if path]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "RABBET_DEVICE": "cpu"}


def test_a_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    assert alias(tmp_path / "script.py", "one", "two") == "done\n"
    # As a module, and as code.
    assert alias("-m", "script", "one", "two", cwd=tmp_path) == "done\n"
    assert alias("-c", SCRIPT, "one", "two") == "done\n"


def test_failures_are_logged_and_answered() -> None:
    assert alias("-c", FAILURES) == "done\n"


def test_the_log_has_the_known_form() -> None:
    code = "import tensorrt as trt; trt.Runtime(trt.Logger()).deserialize_cuda_engine(b'x')"
    lines = alias("-c", code).splitlines()
    assert len(lines) == 1
    assert "] [TRT] [E] Runtime::deserialize_cuda_engine: " in lines[0]


@pytest.mark.parametrize("arguments", [[], ["-m"], ["-c"], ["--install", "--uninstall"]])
def test_usage(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rabbet.compat", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    assert done.returncode == 2
    assert "usage: python -m rabbet.compat" in done.stderr
    assert "usage" in alias("--help")


def test_a_script_that_is_not_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rabbet.compat", "no_such_program", "run"],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    assert done.returncode == 2
    assert done.stderr == (
        "rabbet.compat: there is no file 'no_such_program', and no program of that "
        "name on PATH\n"
    )


def test_install() -> None:
    code = """
import sys, types
import rabbet, rabbet.compat
assert "tensorrt" not in sys.modules
made = rabbet.compat.install()
assert rabbet.compat.install() is made
import tensorrt
assert tensorrt is made
assert issubclass(tensorrt.Builder, rabbet.Builder) and tensorrt.Builder is not rabbet.Builder
assert tensorrt.DataType is rabbet.DataType
# The package itself raises as ever.
try:
    rabbet.Runtime().deserialize_cuda_engine(b"x")
    raise SystemExit("no error")
except rabbet.Error:
    pass
sys.modules["tensorrt"] = types.ModuleType("tensorrt")
try:
    rabbet.compat.install()
    raise SystemExit("no error")
except rabbet.FailedPreconditionError as error:
    assert "imported already" in str(error)
"""
    done = subprocess.run([sys.executable, "-c", code], env=_environment(), check=False)
    assert done.returncode == 0


def test_the_runtime_library_of_wheels_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polygraphy looks for it in LD_LIBRARY_PATH and in toolkits alone."""
    needs("polygraphy")
    from rabbet.compat import _cudart

    wheels = tmp_path / "site" / "nvidia" / "cu13" / "lib"
    wheels.mkdir(parents=True)
    (wheels / "libcudart.so.13").touch()
    toolkit = tmp_path / "toolkit"
    toolkit.mkdir()
    monkeypatch.setattr(_cudart, "_TOOLKITS", (str(toolkit),))
    # Before wheels that are installed here.
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    monkeypatch.delenv("RABBET_CUDA_PATH", raising=False)
    import os

    for _ in range(2):  # again is fine
        _cudart.offer_runtime_library()
        assert os.environ["LD_LIBRARY_PATH"] == f"/nowhere:{wheels}"
    # A folder of libraries by itself, for Rabbet, too.
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path / "site")])
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setenv("RABBET_CUDA_PATH", str(wheels))
    _cudart.offer_runtime_library()
    assert os.environ["LD_LIBRARY_PATH"] == str(wheels)
    # A library that Polygraphy finds by itself stays the first.
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    (toolkit / "libcudart.so").touch()
    _cudart.offer_runtime_library()
    assert os.environ["LD_LIBRARY_PATH"] == "/nowhere"


# ---- Tools from the package index, where they are installed

POLYGRAPHY = """
import numpy as np
from polygraphy.backend.common import BytesFromPath
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.backend.trt import (
    CreateConfig, EngineFromBytes, EngineFromNetwork, EngineFromPath, NetworkFromOnnxPath,
    Profile, SaveEngine,
)
from polygraphy.comparator import Comparator, CompareFunc, DataLoader
from rabbet.compat.polygraphy import CpuRunner

profile = Profile().add("x", (1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
config = CreateConfig(profiles=[profile], load_timing_cache="t.cache")
build = SaveEngine(EngineFromNetwork(NetworkFromOnnxPath("m.onnx"), config,
                                     save_timing_cache="t.cache"), "e.plan")
runners = [
    CpuRunner(build),
    OnnxrtRunner(SessionFromOnnx("m.onnx")),
    CpuRunner(EngineFromBytes(BytesFromPath("e.plan"))),
    CpuRunner(EngineFromPath("e.plan")),
]
results = Comparator.run(runners, data_loader=DataLoader(iterations=2, seed=1))
simple = CompareFunc.simple(rtol=1e-4, atol=1e-5)
assert bool(Comparator.compare_accuracy(results, compare_func=simple))
with CpuRunner(EngineFromPath("e.plan")) as runner:
    y = runner.infer({"x": np.ones((3, 3, 8, 8), np.float32)})["y"]
    assert y.shape == (3, 4, 8, 8)
    assert runner.last_inference_time() > 0
print("done")
"""

REPLAY = """
from polygraphy.backend.trt import (
    CreateConfig, EngineFromNetwork, NetworkFromOnnxPath, Profile, TacticRecorder,
    TacticReplayer,
)

profile = Profile().add("x", (1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
for kind in (TacticRecorder, TacticReplayer):
    # The replayer ends the build where another tactic was taken.
    selector = kind("t.json")
    config = CreateConfig(profiles=[profile], algorithm_selector=selector)
    assert EngineFromNetwork(NetworkFromOnnxPath("m.onnx"), config)() is not None
assert selector.data
print("done")
"""

SURGEON = """
import numpy as np, onnx
import onnx_graphsurgeon as gs
import tensorrt as trt

graph = gs.import_onnx(onnx.load("m.onnx"))
relu = next(node for node in graph.nodes if node.op == "Relu")
relu.op = "Tanh"
onnx.save(gs.export_onnx(graph.cleanup()), "s.onnx")
logger = trt.Logger()
network = trt.Builder(logger).create_network()
assert trt.OnnxParser(network, logger).parse_from_file("s.onnx")
assert {layer.type for layer in network} >= {trt.LayerType.ACTIVATION}
print("done")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convolution_model(tmp_path_factory.mktemp("model"))


def needs(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed (python -m pip install {name})")


def polygraphy(*arguments: str, cwd: Path) -> str:
    """A run of Polygraphy's command on the alias."""
    spec = importlib.util.find_spec("polygraphy")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    code = (
        "import sys; sys.argv[0] = 'polygraphy'; "
        "from polygraphy.tools import main; sys.exit(main())"
    )
    return alias("-c", code, *arguments, cwd=cwd)


SHAPES = [
    *("--trt-min-shapes", "x:[1,3,8,8]"),
    *("--trt-opt-shapes", "x:[2,3,8,8]"),
    *("--trt-max-shapes", "x:[4,3,8,8]"),
]


def test_polygraphy_runs(model: Path) -> None:
    needs("polygraphy")
    assert "done" in alias("-c", POLYGRAPHY, cwd=model)


def test_polygraphy_records_and_replays_tactics(model: Path) -> None:
    needs("polygraphy")
    assert "done" in alias("-c", REPLAY, cwd=model)


def test_polygraphy_converts_and_inspects(model: Path) -> None:
    needs("polygraphy")
    polygraphy(
        "convert", "m.onnx", "--convert-to", "trt", "-o", "c.plan", *SHAPES, cwd=model
    )
    shown = polygraphy(
        *("inspect", "model", "c.plan", "--model-type", "engine"),
        *("--show", "layers", "attrs"),
        cwd=model,
    )
    assert "CONVOLUTION" in shown
    assert "x          (Input)" in " ".join(shown.split()).replace(
        "x (Input)", "x          (Input)"
    )
    assert "fully supported" in polygraphy("inspect", "capability", "m.onnx", cwd=model)


def test_graph_surgeon(model: Path) -> None:
    needs("onnx_graphsurgeon")
    assert "done" in alias("-c", SURGEON, cwd=model)


def test_layers_are_viewed_as_their_kind() -> None:
    """Layers are found as ILayers; scripts set `__class__` for more."""
    trt = rabbet.compat.module()
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (1, 2, 4, 4))
    made = network.add_convolution_nd(x, 3, (3, 3), np.ones((3, 2, 3, 3), np.float32))
    padded = network.add_padding_nd(made.get_output(0), (1, 1), (2, 2))
    assert {type(layer) for layer in network} == {trt.ILayer}
    found = network[0]
    assert found == made
    assert found.type is trt.LayerType.CONVOLUTION
    assert not hasattr(found, "kernel_size_nd")
    found.__class__ = trt.IConvolutionLayer
    found.stride_nd = (2, 2)
    assert made.stride_nd == (2, 2)
    last = network.get_layer(-1)
    last.__class__ = trt.IPaddingLayer
    assert last == padded
    assert last.post_padding_nd == padded.post_padding_nd == (2, 2)
    # The layer found is another object than the layer made.
    assert type(padded) is trt.IPaddingLayer
    assert type(made) is trt.IConvolutionLayer
    with pytest.raises(TypeError, match="expected a class of layers"):
        made._as(int)
