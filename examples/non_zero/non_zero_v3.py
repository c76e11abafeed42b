"""Non-zero as a class of TensorRT's kind IPluginV3: the number of rows of the output is
data-dependent (a size tensor).

python non_zero_v3.py
python non_zero_v3.py --device cuda    (with CuPy)
"""

import argparse
import ctypes
import functools

import numpy as np
import rabbet as trt

NAME, NAMESPACE = "non_zero_class", "example"
# The size tensor holds 0 when enqueue is called. Rows come in any order.
SOURCE = """
extern "C" __global__ void find(const float* x, int rows, int columns, int* found,
                                unsigned long long* count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns || x[i] == 0.0f) return;
  unsigned long long at = atomicAdd(count, 1ULL);
  found[2 * at] = i / columns;
  found[2 * at + 1] = i % columns;
}
"""


@functools.cache
def kernel():
    import cupy

    return cupy.RawKernel(SOURCE, "find")


def array(address: int, shape: tuple[int, ...], dtype) -> np.ndarray:
    """Memory on the CPU."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)


class NonZero(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    capturable = True  # it only enqueues work, the same for the same shapes

    def __init__(self):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version = NAME, "1"
        self.plugin_namespace = NAMESPACE
        self.num_outputs = 2

    def get_capability_interface(self, type):
        return self

    def clone(self):
        cloned = NonZero()
        cloned.__dict__.update(self.__dict__)
        return cloned

    # Called while the network is built

    def get_output_data_types(self, input_types):
        return [trt.int32, trt.int64]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        operation = trt.DimensionOperation
        most = expr_builder.operation(operation.PROD, inputs[0][0], inputs[0][1])
        half = expr_builder.operation(
            operation.FLOOR_DIV, most, expr_builder.constant(2)
        )
        # Output 1, which has no dimensions, tells the first extent of output 0.
        count = expr_builder.declare_size_tensor(1, half, most)
        return [trt.DimsExprs([count, expr_builder.constant(2)]), trt.DimsExprs(0)]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        wanted = (trt.float32, trt.int32, trt.int64)[pos]
        return desc.format == trt.TensorFormat.LINEAR and desc.type == wanted

    def configure_plugin(self, inp, out):
        pass

    # Called by execution contexts

    def attach_to_context(self, resource_context):
        return self.clone()

    def set_tactic(self, tactic):
        pass

    def on_shape_change(self, inp, out):
        pass

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        rows, columns = input_desc[0].dims
        if input_desc[0].device == "cpu":
            found = np.argwhere(array(inputs[0], (rows, columns), np.float32))
            array(outputs[0], found.shape, np.int32)[...] = found
            array(outputs[1], (), np.int64)[...] = len(found)
            return
        # On CuPy's current stream, which is the engine's.
        kernel()(
            (-(-rows * columns // 128),),
            (128,),
            (
                np.uint64(inputs[0]), np.int32(rows), np.int32(columns),
                np.uint64(outputs[0]), np.uint64(outputs[1]),
            ),
        )  # fmt: skip


class NonZeroCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version = NAME, "1"
        self.plugin_namespace = NAMESPACE
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, field_collection, phase):
        return NonZero()


trt.get_plugin_registry().register_creator(NonZeroCreator(), NAMESPACE)


def make_model(device: str = "cpu") -> trt.Model:
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (-1, 5))
    layer = network.add_plugin_v3([x], [], NonZero())
    network.mark_output(layer.get_output(0))
    shapes = {"x": ((1, 5), (4, 5), (64, 5))}
    return trt.compile(network, device=device, shapes=shapes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    model = make_model(parser.parse_args().device)
    random = np.random.default_rng(0)
    for rows in (1, 4, 33, 4):
        x = random.integers(0, 2, (rows, 5)).astype(np.float32)
        found = np.asarray(model(x))
        in_order = found[np.lexsort((found[:, 1], found[:, 0]))]
        np.testing.assert_array_equal(in_order, np.argwhere(x))
        print(f"non_zero_v3: {len(found)} of {x.size} elements")


if __name__ == "__main__":
    main()
