"""Addition in place as a class of TensorRT's kind IPluginV3: the output is the input's
memory (aliased I/O, IPluginV3OneBuildV2).

python inplace_add_v3.py
python inplace_add_v3.py --device cuda    (with CuPy)
"""

import argparse
import ctypes
import functools

import numpy as np
import rabbet as trt

NAME, NAMESPACE = "inplace_add_class", "example"
SOURCE = """
extern "C" __global__ void add(float* x, int count, float value) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] += value;
}
"""


@functools.cache
def kernel():
    import cupy

    return cupy.RawKernel(SOURCE, "add")


class InplaceAdd(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime
):
    capturable = True  # it only enqueues work, the same for the same shapes

    def __init__(self, value: float):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuildV2.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version = NAME, "1"
        self.plugin_namespace = NAMESPACE
        self.num_outputs = 1
        self.value = value

    def get_capability_interface(self, type):
        return self

    def clone(self):
        cloned = InplaceAdd(self.value)
        cloned.__dict__.update(self.__dict__)
        return cloned

    # Called while the network is built

    def get_aliased_input(self, output_index):
        return 0  # the output is an alias of this input

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [trt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and desc.type == trt.float32

    def configure_plugin(self, inp, out):
        pass

    # Called by execution contexts

    def attach_to_context(self, resource_context):
        return self.clone()

    def set_tactic(self, tactic):
        pass

    def on_shape_change(self, inp, out):
        self.count = int(np.prod(inp[0].dims))

    def get_fields_to_serialize(self):
        value = np.array([self.value], np.float32)
        return trt.PluginFieldCollection(
            [trt.PluginField("value", value, trt.PluginFieldType.FLOAT32)]
        )

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        assert outputs[0] == inputs[0]
        if input_desc[0].device == "cpu":
            memory = (ctypes.c_float * self.count).from_address(inputs[0])
            np.frombuffer(memory, np.float32)[...] += np.float32(self.value)
        else:
            # On CuPy's current stream, which is the engine's.
            arguments = (np.uint64(inputs[0]), np.int32(self.count), np.float32(self.value))
            kernel()((-(-self.count // 128),), (128,), arguments)


class InplaceAddCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version = NAME, "1"
        self.plugin_namespace = NAMESPACE
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("value", np.array([]), trt.PluginFieldType.FLOAT32)]
        )

    def create_plugin(self, name, field_collection, phase):
        fields = {field.name: field.data for field in field_collection}
        return InplaceAdd(float(fields["value"][0]))


trt.get_plugin_registry().register_creator(InplaceAddCreator(), NAMESPACE)


def make_model(device: str = "cpu") -> trt.Model:
    """y = x + 1 + 2, z = x * 10: x has a second reader, so that it is copied once."""
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    y = x
    for value in (1.0, 2.0):
        y = network.add_plugin_v3([y], [], InplaceAdd(value)).get_output(0)
    y.name = "y"
    ten = network.add_constant((1, 1), np.full((1, 1), 10, np.float32)).get_output(0)
    z = network.add_elementwise(x, ten, trt.ElementWiseOperation.PROD).get_output(0)
    z.name = "z"
    network.mark_output(y)
    network.mark_output(z)
    return trt.compile(network, device=device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    model = make_model(parser.parse_args().device)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for _ in range(4):  # on a GPU, as kernels and by a graph
        y, z = model(x)
        np.testing.assert_array_equal(y, np.arange(6).reshape(2, 3) + 3)
        np.testing.assert_array_equal(z, x * 10)
        np.testing.assert_array_equal(x, np.arange(6).reshape(2, 3))
    print("inplace_add_v3: x + 3 and 10 x, and x is as it was")


if __name__ == "__main__":
    main()
