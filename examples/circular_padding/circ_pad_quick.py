"""Circular padding of the last two axes as a class of TensorRT's kind
IPluginCreatorV3Quick, which is what the decorators of rabbet.plugin stand for.

On the CPU it runs in NumPy, on a GPU in CUDA C++ that CuPy compiles."""

import ctypes
import functools
from pathlib import Path

import numpy as np
import rabbet as trt

NAME, NAMESPACE = "circ_pad_plugin", "example"
SOURCE = Path(__file__).with_name("circ_pad.cu").read_text()
THREADS = 256  # of a block
TACTICS = {1: 4, 2: 2}  # pieces of 16 bytes in flight in each thread


@functools.cache
def kernel(item: int, unroll: int):
    import cupy

    return cupy.RawKernel(SOURCE, "circ_pad", (f"-DITEM={item}", f"-DUNROLL={unroll}"))


def array(address: int, desc) -> np.ndarray:
    """The memory of a tensor on the CPU."""
    dtype = np.dtype(trt.nptype(desc.type))
    size = int(np.prod(desc.dims)) * dtype.itemsize
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, dtype).reshape(tuple(desc.dims))


class CircPad(
    trt.IPluginV3,
    trt.IPluginV3QuickCore,
    trt.IPluginV3QuickBuild,
    trt.IPluginV3QuickRuntime,
):
    capturable = True  # it only enqueues work, the same for the same shapes

    def __init__(self, pad: int):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3QuickCore.__init__(self)
        trt.IPluginV3QuickBuild.__init__(self)
        trt.IPluginV3QuickRuntime.__init__(self)
        self.plugin_name, self.plugin_version = NAME, "1"
        self.plugin_namespace = NAMESPACE
        self.pad = pad

    def get_capability_interface(self, type):
        return self

    def clone(self):
        cloned = CircPad(self.pad)
        cloned.__dict__.update(self.__dict__)
        return cloned

    # Called while the network is built

    def get_num_outputs(self):
        return 1

    def get_output_data_types(self, input_types, ranks):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        dims = trt.DimsExprs(inputs[0])
        both = expr_builder.constant(2 * self.pad)
        for axis in (-2, -1):
            dims[axis] = expr_builder.operation(
                trt.DimensionOperation.SUM, dims[axis], both
            )
        return [dims]

    def get_supported_format_combinations(self, in_out, num_inputs):
        found = []
        for dtype in (trt.float32, trt.float16):
            for _ in in_out:
                desc = trt.PluginTensorDesc()
                desc.type, desc.format = dtype, trt.TensorFormat.LINEAR
                found.append(desc)
        return found

    def configure_plugin(self, inp, out):
        pass

    def get_valid_tactics(self):
        return list(TACTICS)

    def get_timing_cache_id(self):
        return ""

    # Called by execution contexts

    def set_tactic(self, tactic):
        self.tactic = tactic

    def get_fields_to_serialize(self):
        pad = np.array([self.pad], np.int32)
        return trt.PluginFieldCollection(
            [trt.PluginField("pad", pad, trt.PluginFieldType.INT32)]
        )

    def enqueue(
        self, input_desc, output_desc, inputs, outputs, in_strides, out_strides, stream
    ):
        if input_desc[0].device == "cpu":
            x, y = array(inputs[0], input_desc[0]), array(outputs[0], output_desc[0])
            around = [(0, 0)] * (x.ndim - 2) + [(self.pad, self.pad)] * 2
            y[...] = np.pad(x, around, mode="wrap")
        else:
            self.launch(input_desc[0], inputs[0], outputs[0])

    def launch(self, desc, source: int, target: int):
        *planes, height, width = desc.dims
        item = desc.type.itemsize
        piece = 16 // item
        # (The first piece begins before a plane that is not aligned.)
        size = (height + 2 * self.pad) * (width + 2 * self.pad) + piece
        blocks = -(-size // (piece * THREADS * TACTICS[self.tactic]))
        numbers = [np.int32(n) for n in (height, width, self.pad, blocks)]
        # On CuPy's current stream, which is the engine's.
        kernel(item, TACTICS[self.tactic])(
            (int(np.prod(planes)) * blocks,),
            (THREADS,),
            (np.uint64(source), *numbers, np.uint64(target)),
        )


class CircPadCreator(trt.IPluginCreatorV3Quick):
    def __init__(self):
        trt.IPluginCreatorV3Quick.__init__(self)
        self.name, self.plugin_version = NAME, "1"
        self.plugin_namespace = NAMESPACE
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pad", np.array([]), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name, namespace, field_collection, phase, request):
        fields = {field.name: field.data for field in field_collection}
        return CircPad(int(fields["pad"][0]))


trt.get_plugin_registry().register_creator(CircPadCreator(), NAMESPACE)
