"""Circular padding of the last two axes as a class of TensorRT's kind IPluginV3.

On the CPU it runs in NumPy, on a GPU in CUDA C++ that CuPy compiles."""

import ctypes
import functools
from pathlib import Path

import numpy as np
import rabbet as trt

NAME, VERSION, NAMESPACE = "circ_pad_plugin", "1", "example"
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
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    capturable = True  # it only enqueues work, the same for the same shapes

    def __init__(self, pad: int):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version = NAME, VERSION
        self.plugin_namespace = NAMESPACE
        self.num_outputs = 1
        self.timing_cache_id = ""
        self.pad = pad

    def get_capability_interface(self, type):
        return self

    def clone(self):
        cloned = CircPad(self.pad)
        cloned.__dict__.update(self.__dict__)
        return cloned

    # Called while the network is built

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        dims = trt.DimsExprs(inputs[0])
        both = expr_builder.constant(2 * self.pad)
        for axis in (-2, -1):
            dims[axis] = expr_builder.operation(
                trt.DimensionOperation.SUM, dims[axis], both
            )
        return [dims]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return (
            desc.format == trt.TensorFormat.LINEAR
            and desc.type in (trt.float32, trt.float16)
            and desc.type == in_out[0].desc.type
        )

    def configure_plugin(self, inp, out):
        pass

    def get_valid_tactics(self):
        return list(TACTICS)

    # Called by execution contexts

    def attach_to_context(self, resource_context):
        return self.clone()

    def set_tactic(self, tactic):
        self.tactic = tactic

    def on_shape_change(self, inp, out):
        (self.tall, self.wide) = tuple(out[0].dims)[-2:]
        self.planes = int(np.prod(tuple(out[0].dims)[:-2]))

    def get_fields_to_serialize(self):
        pad = np.array([self.pad], np.int32)
        return trt.PluginFieldCollection(
            [trt.PluginField("pad", pad, trt.PluginFieldType.INT32)]
        )

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        if input_desc[0].device == "cpu":
            x, y = array(inputs[0], input_desc[0]), array(outputs[0], output_desc[0])
            pad = self.pad
            y[..., pad:-pad, pad:-pad] = x
            y[..., :pad, pad:-pad] = x[..., -pad:, :]
            y[..., -pad:, pad:-pad] = x[..., :pad, :]
            y[..., :pad] = y[..., -2 * pad : -pad]
            y[..., -pad:] = y[..., pad : 2 * pad]
        else:
            self.launch(input_desc[0].type.itemsize, inputs[0], outputs[0])

    def launch(self, item: int, source: int, target: int):
        height, width = self.tall - 2 * self.pad, self.wide - 2 * self.pad
        piece = 16 // item
        # (The first piece begins before a plane that is not aligned.)
        size = self.tall * self.wide + piece
        blocks = -(-size // (piece * THREADS * TACTICS[self.tactic]))
        numbers = [np.int32(n) for n in (height, width, self.pad, blocks)]
        # On CuPy's current stream, which is the engine's.
        kernel(item, TACTICS[self.tactic])(
            (self.planes * blocks,),
            (THREADS,),
            (np.uint64(source), *numbers, np.uint64(target)),
        )


class CircPadCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version = NAME, VERSION
        self.plugin_namespace = NAMESPACE
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pad", np.array([]), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name, field_collection, phase):
        fields = {field.name: field.data for field in field_collection}
        return CircPad(int(fields["pad"][0]))


trt.get_plugin_registry().register_creator(CircPadCreator(), NAMESPACE)
