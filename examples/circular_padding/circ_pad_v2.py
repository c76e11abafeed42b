"""Circular padding of the last two axes as a class of TensorRT's kind
IPluginV2DynamicExt.

On the CPU it calls C through ctypes (FP32), on a GPU NVIDIA's own Python bindings
(cuda-python) compile and launch CUDA C++."""

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import rabbet as trt

NAME, VERSION, NAMESPACE = "circ_pad_plugin", "1", "example"
FOLDER = Path(__file__).parent
THREADS, UNROLL = 256, 4  # threads of a block, pieces of 16 bytes in each
TYPES = (ctypes.c_void_p, *[ctypes.c_int] * 4, ctypes.c_void_p)


@functools.cache
def library():
    """circ_pad.c, compiled."""
    path = Path(tempfile.mkdtemp()) / "circ_pad.so"
    source = FOLDER / "circ_pad.c"
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", source, "-o", path], check=True)
    circ_pad = ctypes.CDLL(str(path)).circ_pad
    circ_pad.restype = None
    circ_pad.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 4
    return circ_pad


def check(answer):
    """What a function of cuda-python gave besides its status."""
    error, *values = answer
    if int(error) != 0:
        raise RuntimeError(str(error))
    return values[0] if len(values) == 1 else values


@functools.cache
def kernel(item: int):
    """circ_pad.cu as PTX, loaded. Rabbet's context is current while plugins run."""
    from cuda.bindings import driver, nvrtc

    source = (FOLDER / "circ_pad.cu").read_bytes()
    program = check(nvrtc.nvrtcCreateProgram(source, b"circ_pad.cu", 0, None, None))
    options = [f"-DITEM={item}".encode(), f"-DUNROLL={UNROLL}".encode()]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(error) != 0:
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    code = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, code))
    check(nvrtc.nvrtcDestroyProgram(program))
    module = check(driver.cuModuleLoadData(code))
    return check(driver.cuModuleGetFunction(module, b"circ_pad"))


class CircPad(trt.IPluginV2DynamicExt):
    capturable = True  # it only enqueues work, the same for the same shapes

    def __init__(self, pad: int):
        trt.IPluginV2DynamicExt.__init__(self)
        self.plugin_type, self.plugin_version = NAME, VERSION
        self.plugin_namespace = NAMESPACE
        self.num_outputs = 1
        self.pad = pad

    def clone(self):
        cloned = CircPad(self.pad)
        cloned.__dict__.update(self.__dict__)
        return cloned

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, expr_builder):
        dims = trt.DimsExprs(inputs[0])
        both = expr_builder.constant(2 * self.pad)
        for axis in (-2, -1):
            dims[axis] = expr_builder.operation(
                trt.DimensionOperation.SUM, dims[axis], both
            )
        return dims

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos]
        return (
            desc.format == trt.TensorFormat.LINEAR
            and desc.type in (trt.float32, trt.float16)
            and desc.type == in_out[0].type
        )

    def configure_plugin(self, inp, out):
        pass

    def serialize(self):
        return str(self.pad).encode()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        *planes, height, width = input_desc[0].dims
        tall, wide = tuple(output_desc[0].dims)[-2:]
        item, count = input_desc[0].type.itemsize, int(np.prod(planes))
        if input_desc[0].device == "cpu":
            if item != 4:
                raise TypeError(f"circ_pad.c takes FP32, not {input_desc[0].type}")
            library()(inputs[0], outputs[0], count, height, width, self.pad)
            return
        from cuda.bindings import driver

        piece = 16 // item
        # (The first piece begins before a plane that is not aligned.)
        blocks = -(-(tall * wide + piece) // (piece * THREADS * UNROLL))
        values = (inputs[0], height, width, self.pad, blocks, outputs[0])
        check(
            driver.cuLaunchKernel(
                kernel(item), count * blocks, 1, 1, THREADS, 1, 1, 0, stream,
                (values, TYPES), 0,
            )
        )  # fmt: skip


class CircPadCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_version = NAME, VERSION
        self.plugin_namespace = NAMESPACE
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pad", np.array([]), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name, field_collection):
        fields = {field.name: field.data for field in field_collection}
        return CircPad(int(fields["pad"][0]))

    def deserialize_plugin(self, name, data):
        return CircPad(int(data))


trt.get_plugin_registry().register_creator(CircPadCreator(), NAMESPACE)
