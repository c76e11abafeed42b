"""Class plugins in scripts that import tensorrt, in the form of the samples of both ages."""

from __future__ import annotations

from tests.python.compat.test_compat import alias

V2 = """
import ctypes, json
import numpy as np
import tensorrt as trt

class CircPadPlugin(trt.IPluginV2DynamicExt):
    def __init__(self, fc=None):
        trt.IPluginV2DynamicExt.__init__(self)
        self.pads = []
        self.X_shape = []
        self.num_outputs = 1
        self.plugin_namespace = ""
        self.plugin_type = "CircPadPlugin"
        self.plugin_version = "1"
        if fc is not None:
            assert fc[0].name == "pads"
            self.pads = fc[0].data.tolist()

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        output_dims = trt.DimsExprs(inputs[0])
        for i in range(np.size(self.pads) // 2):
            output_dims[len(output_dims) - i - 1] = exprBuilder.operation(
                trt.DimensionOperation.SUM,
                inputs[0][len(output_dims) - i - 1],
                exprBuilder.constant(self.pads[i * 2] + self.pads[i * 2 + 1]),
            )
        return output_dims

    def serialize(self):
        return json.dumps({"pads": self.pads})

    def configure_plugin(self, inp, out):
        X_dims = inp[0].desc.dims
        self.X_shape = np.zeros((len(X_dims),))
        for i in range(len(X_dims)):
            self.X_shape[i] = X_dims[i]

    def supports_format_combination(self, pos, in_out, num_inputs):
        assert num_inputs == 1
        assert pos < len(in_out)
        desc = in_out[pos]
        if desc.format != trt.TensorFormat.LINEAR:
            return False
        if pos == 0:
            return desc.type == trt.DataType.FLOAT or desc.type == trt.DataType.HALF
        if pos == 1:
            return in_out[0].type == desc.type
        assert False

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        inp_dtype = trt.nptype(input_desc[0].type)
        assert tuple(self.X_shape) == tuple(input_desc[0].dims)

        def at(address, desc):
            size = int(np.prod(desc.dims)) * np.dtype(inp_dtype).itemsize
            memory = (ctypes.c_char * size).from_address(address)
            return np.frombuffer(memory, inp_dtype).reshape(desc.dims)

        a, out = at(inputs[0], input_desc[0]), at(outputs[0], output_desc[0])
        p = self.pads
        out[...] = np.pad(a, ((0, 0), (0, 0), (p[2], p[3]), (p[0], p[1])), "wrap")
        return 0

    def clone(self):
        cloned_plugin = CircPadPlugin()
        cloned_plugin.__dict__.update(self.__dict__)
        return cloned_plugin

class CircPadPluginCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name = "CircPadPlugin"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name, fc):
        return CircPadPlugin(fc)

    def deserialize_plugin(self, name, data):
        j = dict(json.loads(data.decode("utf-8")))
        deserialized = CircPadPlugin()
        deserialized.__dict__.update(j)
        return deserialized

logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
assert trt.init_libnvinfer_plugins(logger, namespace="")
plg_registry = trt.get_plugin_registry()
my_plugin_creator = CircPadPluginCreator()
assert plg_registry.register_creator(my_plugin_creator, "") is True
assert plg_registry.register_creator(CircPadPluginCreator(), "") is False
assert trt.Builder(logger).get_plugin_registry() is plg_registry
assert plg_registry.get_plugin_creator("CircPadPlugin", "1", "") is my_plugin_creator
assert my_plugin_creator in plg_registry.plugin_creator_list

pads = np.array([1, 1, 2, 0], np.int32)
field = trt.PluginField("pads", pads, trt.PluginFieldType.INT32)
plugin = my_plugin_creator.create_plugin("CircPadPlugin", trt.PluginFieldCollection([field]))
builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
X = network.add_input("X", trt.float32, (-1, 3, 4, 5))
layer = network.add_plugin_v2([X], plugin)
layer.get_output(0).name = "Y"
network.mark_output(layer.get_output(0))
profile = builder.create_optimization_profile()
profile.set_shape("X", (1, 3, 4, 5), (2, 3, 4, 5), (4, 3, 4, 5))
config = builder.create_builder_config()
config.add_optimization_profile(profile)
plan = builder.build_serialized_network(network, config)
assert plan is not None
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
context = engine.create_execution_context()
x = np.random.default_rng(0).normal(size=(3, 3, 4, 5)).astype(np.float32)
y = np.empty((3, 3, 6, 7), np.float32)
assert context.set_input_shape("X", x.shape)
assert context.set_tensor_address("X", x.ctypes.data)
assert context.set_tensor_address("Y", y.ctypes.data)
assert context.execute_async_v3(0)
assert np.array_equal(y, np.pad(x, ((0, 0), (0, 0), (2, 0), (1, 1)), "wrap"))

# Failures take the known form.
CircPadPlugin.enqueue = lambda self, *args: 1 / 0
assert trt.Runtime(logger).deserialize_cuda_engine(plan) is not None
broken = trt.Runtime(logger).deserialize_cuda_engine(plan).create_execution_context()
broken.set_input_shape("X", x.shape)
broken.set_tensor_address("X", x.ctypes.data)
broken.set_tensor_address("Y", y.ctypes.data)
assert broken.execute_async_v3(0) is False
CircPadPlugin.get_output_dimensions = lambda self, *args: None
network = builder.create_network()
X = network.add_input("X", trt.float32, (1, 3, 4, 5))
layer = network.add_plugin_v2([X], plugin)
network.mark_output(layer.get_output(0))
assert builder.build_serialized_network(network, builder.create_builder_config()) is None
assert plg_registry.deregister_creator(my_plugin_creator)
assert trt.Runtime(logger).deserialize_cuda_engine(plan) is None
assert plg_registry.load_library("/gone.so") is None
print("done")
"""

V3 = """
import ctypes
import numpy as np
import tensorrt as trt

class NonZeroPlugin(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    def __init__(self, backend=None):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.num_outputs = 2
        self.plugin_namespace = ""
        self.plugin_name = "NonZeroPlugin"
        self.plugin_version = "1"
        if backend is not None:
            self.backend = backend.tobytes().decode("utf-8").rstrip("\\0")

    def get_capability_interface(self, type):
        return self

    def get_output_data_types(self, input_types):
        return [trt.DataType.INT32, trt.DataType.INT64]

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        output_dims = [trt.DimsExprs(2)]
        upper_bound = exprBuilder.operation(trt.DimensionOperation.PROD, inputs[0][0], inputs[0][1])
        opt_value = exprBuilder.operation(
            trt.DimensionOperation.FLOOR_DIV, upper_bound, exprBuilder.constant(2)
        )
        num_non_zero_size_tensor = exprBuilder.declare_size_tensor(1, opt_value, upper_bound)
        output_dims[0][0] = num_non_zero_size_tensor
        output_dims[0][1] = exprBuilder.constant(2)
        output_dims.append(trt.DimsExprs(0))
        return output_dims

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([
            trt.PluginField("backend", self.backend.encode(), trt.PluginFieldType.CHAR)
        ])

    def configure_plugin(self, inp, out):
        pass

    def on_shape_change(self, inp, out):
        pass

    def supports_format_combination(self, pos, in_out, num_inputs):
        assert num_inputs == 1
        assert pos < len(in_out)
        type_ok = False
        if pos == 0:
            type_ok = in_out[0].desc.type == trt.DataType.FLOAT
        elif pos == 1:
            type_ok = in_out[1].desc.type == trt.DataType.INT32
        else:
            type_ok = in_out[2].desc.type == trt.DataType.INT64
        return in_out[pos].desc.format == trt.TensorFormat.LINEAR and type_ok

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        def at(address, shape, dtype):
            size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
            memory = (ctypes.c_char * size).from_address(address)
            return np.frombuffer(memory, dtype, int(np.prod(shape))).reshape(shape)
        found = np.argwhere(at(inputs[0], input_desc[0].dims, np.float32))
        at(outputs[0], found.shape, np.int32)[...] = found
        at(outputs[1], (1,), np.int64)[0] = len(found)

    def attach_to_context(self, context):
        return self.clone()

    def set_tactic(self, tactic):
        pass

    def clone(self):
        cloned_plugin = NonZeroPlugin()
        cloned_plugin.__dict__.update(self.__dict__)
        return cloned_plugin

class NonZeroPluginCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name = "NonZeroPlugin"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("backend", np.array([]), trt.PluginFieldType.CHAR)]
        )

    def create_plugin(self, name, fc, phase):
        backend = None
        for f in fc:
            if f.name == "backend":
                backend = f.data[:-1] if f.data[-1] == 0 else f.data
        return NonZeroPlugin(backend)

logger = trt.Logger(trt.Logger.ERROR)
plg_registry = trt.get_plugin_registry()
plg_registry.register_creator(NonZeroPluginCreator(), "")
plg_creator = plg_registry.get_creator("NonZeroPlugin", "1", "")
builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
plugin_fields_list = [trt.PluginField("backend", b"numpy", trt.PluginFieldType.CHAR)]
plugin = plg_creator.create_plugin(
    "NonZeroPlugin", trt.PluginFieldCollection(plugin_fields_list), trt.TensorRTPhase.BUILD
)
X = network.add_input("X", trt.float32, (6, 7))
layer = network.add_plugin_v3(inputs=[X], shape_inputs=[], plugin=plugin)
layer.get_output(0).name = "Y"
network.mark_output(layer.get_output(0))
plan = builder.build_serialized_network(network, builder.create_builder_config())
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
context = engine.create_execution_context()

class Allocator(trt.IOutputAllocator):
    def __init__(self):
        super().__init__()
        self.memory = np.zeros(42 * 2, np.int32)
        self.shape = None
    def reallocate_output(self, tensor_name, memory, size, alignment):
        assert size <= self.memory.nbytes
        return self.memory.ctypes.data
    def notify_shape(self, tensor_name, shape):
        self.shape = tuple(shape)

allocator = Allocator()
x = (np.random.default_rng(0).normal(size=(6, 7)) > 0).astype(np.float32)
context.set_tensor_address("X", x.ctypes.data)
context.set_output_allocator("Y", allocator)
assert context.execute_async_v3(0)
expected = np.argwhere(x)
assert allocator.shape == expected.shape
assert np.array_equal(allocator.memory[: expected.size].reshape(-1, 2), expected)
print("done")
"""


def test_the_older_age() -> None:
    assert alias("-c", V2).endswith("done\n")


def test_the_newer_age() -> None:
    assert alias("-c", V3) == "done\n"
