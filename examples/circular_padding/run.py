"""Pads arrays by the operators beside this file, and compares with NumPy.

python run.py                          all that can run here, on a GPU where there is one
python run.py --device cpu             on the CPU
python run.py circ_pad_triton.py       one of them
python run.py LIBRARY.so               a plugin library (../plugin_library_c, _cuda)
"""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import rabbet as trt
import rabbet.plugin as trtp

HERE = Path(__file__).resolve().parent
PAD = 3
# Operators whose code, in C or Numba, is for FP32 only.
FP32_ONLY = {
    ("circ_pad_numba.py", "cpu"),
    ("circ_pad_ctypes.py", "cpu"),
    ("circ_pad_v2.py", "cpu"),
}
# The devices that each operator runs on, and the modules that it needs there.
OPERATORS: dict[str, dict[str, tuple[str, ...]]] = {
    "circ_pad_numpy.py": {"cpu": ()},
    "circ_pad_numba.py": {"cpu": ("numba",)},
    "circ_pad_ctypes.py": {"cpu": ()},
    "circ_pad_torch.py": {"cpu": ("torch",), "cuda": ("torch",)},
    "circ_pad_triton.py": {"cuda": ("torch", "triton")},
    "circ_pad_cupy.py": {"cuda": ("cupy",)},
    "circ_pad_numba_cuda.py": {"cuda": ("numba_cuda",)},
    "circ_pad_nvrtc.py": {"cuda": ("cuda.bindings",)},
    "circ_pad_aot_nvrtc.py": {"cuda": ()},
    "circ_pad_aot_triton.py": {"cuda": ("triton",)},
    "circ_pad_v3.py": {"cpu": (), "cuda": ("cupy",)},
    "circ_pad_v2.py": {"cpu": (), "cuda": ("cuda.bindings",)},
    "circ_pad_quick.py": {"cpu": (), "cuda": ("cupy",)},
}


def add_padding(network: trt.INetworkDefinition, tensor: trt.ITensor) -> trt.ILayer:
    """The operator as a layer, in whichever way it was written."""
    if hasattr(trtp.op, "example"):  # by decorators
        return network.add_plugin(trtp.op.example.circ_pad_plugin(tensor, pad=PAD))
    registry = trt.get_plugin_registry()
    creator = registry.get_creator("circ_pad_plugin", "1", "example")
    field = trt.PluginField(
        "pad", np.array([PAD], np.int32), trt.PluginFieldType.INT32
    )
    fields = trt.PluginFieldCollection([field])
    if isinstance(creator, trt.IPluginCreator):
        return network.add_plugin_v2([tensor], creator.create_plugin("pad", fields))
    build = trt.TensorRTPhase.BUILD
    if isinstance(creator, trt.IPluginCreatorV3One):
        plugin = creator.create_plugin("pad", fields, build)
    else:
        request = trt.QuickPluginCreationRequest.UNKNOWN
        plugin = creator.create_plugin("pad", "example", fields, build, request)
    return network.add_plugin_v3([tensor], [], plugin)


def pad_by_network(x: np.ndarray, device: str) -> trt.Model:
    """A network of the one operator, made through the object interface."""
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    network = builder.create_network(
        1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    )
    dtype = trt.float16 if x.dtype == np.float16 else trt.float32
    tensor = network.add_input("x", dtype, (-1, *x.shape[1:]))
    network.mark_output(add_padding(network, tensor).get_output(0))
    sizes = [(batch, *x.shape[1:]) for batch in (1, 2, 8)]
    return trt.compile(network, device=device, shapes={"x": sizes})


def pad_by_onnx(x: np.ndarray, device: str) -> trt.Model:
    """An ONNX model with a node that names the operator."""
    from onnx import helper

    shape = list(x.shape)
    padded = [*shape[:-2], shape[-2] + 2 * PAD, shape[-1] + 2 * PAD]
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node(
        "circ_pad_plugin", ["x"], ["y"], plugin_namespace="example", pad=PAD
    )
    graph = helper.make_graph(
        [node],
        "padding",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, padded)],
    )
    model = helper.make_model(
        graph, ir_version=9, opset_imports=[helper.make_opsetid("", 19)]
    )
    return trt.compile(model, device=device)


def check(model: trt.Model, x: np.ndarray) -> None:
    """Runs the model several times, so that runs on a GPU are also recorded and
    replayed."""
    out = None
    for _ in range(5):
        x[...] = np.random.default_rng().normal(size=x.shape)
        expected = np.pad(x, ((0, 0), (0, 0), (PAD, PAD), (PAD, PAD)), mode="wrap")
        out = model(x) if out is None else model(x, out=out)
        np.testing.assert_array_equal(out, expected)


def run(operator: Path, device: str) -> None:
    """One operator in this process; they share a name."""
    trt.load_plugins(operator)
    workflows = [pad_by_network]
    if importlib.util.find_spec("onnx"):
        workflows.append(pad_by_onnx)
    for make in workflows:
        for dtype in (np.float32, np.float16):
            if dtype == np.float16 and (operator.name, device) in FP32_ONLY:
                continue
            x = np.empty((2, 3, 60, 75), dtype)
            model = make(x, device)
            check(model, x)
            name = make.__name__.removeprefix("pad_by_")
            print(f"{operator.name} on {device}: {name}, {x.dtype}, equal to numpy.pad")


def found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of its package
        return False


def run_all(device: str) -> None:
    """Runs each operator in a process of its own."""
    failed = []
    for name, devices in OPERATORS.items():
        if device not in devices:
            continue
        missing = [module for module in devices[device] if not found(module)]
        if missing:
            print(f"{name}: skipped, {', '.join(missing)} is not installed")
            continue
        command = [sys.executable, __file__, str(HERE / name), "--device", device]
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def default_device() -> str:
    """The default device of models: a GPU if there is one, else the CPU."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (1,))
    network.mark_output(network.add_identity(x).get_output(0))
    return trt.compile(network).engine.device.partition(":")[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("operator", nargs="?", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    arguments = parser.parse_args()
    device = arguments.device or default_device()
    if arguments.operator is None:
        run_all(device)
    else:
        run(arguments.operator, device)


if __name__ == "__main__":
    main()
