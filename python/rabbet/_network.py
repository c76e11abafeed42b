"""INetworkDefinition: a network under construction."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from . import _composites as composites
from . import _enums as e
from . import _rabbet
from ._arrays import dtype_of
from ._attention import IAttention
from ._branches import IIfConditional
from ._callbacks import IErrorRecorder, ILogger
from ._classes._bases import IPluginV3
from ._classes._layers import add_plugin_v2, add_plugin_v3
from ._dims import Dims, volume
from ._errors import NotFoundError
from ._flags import flag, integer
from ._layer import INTS, TENSOR, ILayer, ITensor, as_found
from ._layers import (
    IActivationLayer,
    IAssertionLayer,
    ICastLayer,
    IConcatenationLayer,
    IConstantLayer,
    IConvolutionLayer,
    ICumulativeLayer,
    IDeconvolutionLayer,
    IDequantizeLayer,
    IDynamicQuantizeLayer,
    IElementWiseLayer,
    IFillLayer,
    IGatherLayer,
    IGridSampleLayer,
    IIdentityLayer,
    IKVCacheUpdateLayer,
    IMatrixMultiplyLayer,
    IMoELayer,
    INMSLayer,
    INonZeroLayer,
    INormalizationLayer,
    IPoolingLayer,
    IQuantizeLayer,
    IReduceLayer,
    IResizeLayer,
    IReverseSequenceLayer,
    IScatterLayer,
    ISelectLayer,
    IShapeLayer,
    IShuffleLayer,
    ISliceLayer,
    ISoftMaxLayer,
    ITopKLayer,
    IUnaryLayer,
)
from ._loops import ILoop
from ._managed import Fixed, Managed
from ._plugin_base import LayerCall
from ._plugin_layers import IPluginV2Layer, IPluginV3Layer
from ._refused_layers import RefusedLayers
from ._rotary import IRotaryEmbeddingLayer, rotary_embedding
from ._weights import Weights, to_weights

Shape = Iterable[int]


def _dims(value: Any, what: str) -> tuple[int, ...]:
    try:
        return tuple(Dims(value))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected a str, got {value!r}")
    return value


# alpha and beta before they are set, of functions that would be constant with 0.
_ACTIVATION_PARAMETERS = {
    e.ActivationType.ELU: (1.0,),
    e.ActivationType.SELU: (1.6732632423543772, 1.0507009873554805),
    e.ActivationType.SOFTPLUS: (1.0, 1.0),
    e.ActivationType.HARD_SIGMOID: (0.2, 0.5),
    e.ActivationType.SCALED_TANH: (1.0, 1.0),
}


def _position(index: int, count: int, what: str) -> int:
    """A valid index of what a network has, negative ones counted from the end."""
    position = index + count if index < 0 else index
    if not 0 <= position < count:
        raise IndexError(f"{what} {index}: the network has {count}")
    return position


class INetworkDefinition(_rabbet.Network, RefusedLayers, Managed):
    """A network under construction: made by Builder.create_network."""

    error_recorder: IErrorRecorder | None = None
    has_implicit_batch_dimension = Fixed(False, "The batch is a dimension like others.")
    _creation_flags = 0
    _builder: Any = None
    _logger: ILogger | None = None
    # Names by address; tensors would make a cycle with their network.
    _given_weights: dict[int, str]
    _composites: dict[int, dict[str, Any]]  # by layer
    _conditionals: int

    def __new__(cls, flags: int = 0, logger: ILogger | None = None) -> Self:
        strong = flags >> e.NetworkDefinitionCreationFlag.STRONGLY_TYPED & 1
        self = super().__new__(cls, strong, logger)
        self._creation_flags = flags
        self._logger = logger
        self._given_weights = {}
        self._composites = {}
        self._conditionals = 0
        flag = e.NetworkDefinitionCreationFlag
        prefer_jit = flags >> flag.PREFER_JIT_PYTHON_PLUGINS & 1
        prefer_aot = flags >> flag.PREFER_AOT_PYTHON_PLUGINS & 1
        if prefer_jit and prefer_aot:
            raise ValueError(
                "a network can prefer one: PREFER_JIT_PYTHON_PLUGINS or "
                "PREFER_AOT_PYTHON_PLUGINS"
            )
        self._set_plugin_kinds(4 * prefer_jit + 8 * prefer_aot)
        return self

    # ---- Looking ----

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return self._input_count()

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return self._output_count()

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return self._layer_count()

    @property
    def flags(self) -> int:
        """Bits 1 << NetworkDefinitionCreationFlag."""
        return self._creation_flags

    def get_flag(self, flag: e.NetworkDefinitionCreationFlag) -> bool:
        """Whether it was made with that flag."""
        return bool(self._creation_flags >> int(flag) & 1)

    @property
    def builder(self) -> Any:
        """The Builder that made it."""
        return self._builder

    def get_input(self, index: int) -> ITensor:
        """An input."""
        return self._input(_position(index, self.num_inputs, "input"))

    def get_output(self, index: int) -> ITensor:
        """An output."""
        return self._output(_position(index, self.num_outputs, "output"))

    def get_layer(self, index: int) -> ILayer:
        """A layer, in the order in which they were added."""
        return self._as_found(self._layer(_position(index, self.num_layers, "layer")))

    _as_found = staticmethod(as_found)

    def __len__(self) -> int:
        return self.num_layers

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> ILayer:
        return self.get_layer(index)

    def __iter__(self) -> Iterator[ILayer]:
        return (self.get_layer(i) for i in range(self.num_layers))

    def validate(self) -> None:
        """Checks everything and infers types and shapes; errors name the layer."""
        self._validate()

    # ---- Inputs and outputs ----

    def add_input(self, name: str, dtype: Any, shape: Shape) -> ITensor:
        """A tensor that the caller supplies; -1 marks a dynamic dimension."""
        return self._add_input(
            _text(name, "name"), int(dtype_of(dtype)), _dims(shape, "shape")
        )

    def mark_output(self, tensor: ITensor) -> None:
        """Makes the tensor one that the caller gets."""
        self._mark_output(tensor)

    def unmark_output(self, tensor: ITensor) -> None:
        """Undoes mark_output."""
        self._unmark_output(tensor)

    def remove_tensor(self, tensor: ITensor) -> None:
        """Removes a tensor that nothing reads, with the layer that makes it."""
        self._remove_tensor(tensor)

    def mark_output_for_shapes(self, tensor: ITensor) -> bool:
        """mark_output, under the name for tensors whose values are shapes."""
        self._mark_output(tensor)
        return True

    def unmark_output_for_shapes(self, tensor: ITensor) -> bool:
        """Undoes mark_output_for_shapes."""
        self._unmark_output(tensor)
        return True

    # ---- Refitting ----

    def _named(self, name: str) -> ITensor:
        tensor = self._find_weights(name)
        if tensor is None:
            raise NotFoundError(f"the network has no weights named '{name}'")
        return tensor  # type: ignore[no-any-return]

    def set_weights_name(self, weights: Any, name: str) -> bool:
        """Names weights that were given to add_...: Weights, or the array itself."""
        address = to_weights(weights, "weights")._address
        old = self._given_weights.get(address)
        if old is None:
            raise NotFoundError(
                f"set_weights_name('{name}'): no layer was given these weights"
            )
        self._named(old).name = name
        self._given_weights[address] = name
        return True

    def mark_weights_refittable(self, name: str) -> bool:
        """Lets a Refitter replace weights (BuilderFlag.REFIT_INDIVIDUAL)."""
        self._named(name)._set_refittable(True)
        return True

    def unmark_weights_refittable(self, name: str) -> bool:
        """Undoes mark_weights_refittable."""
        self._named(name)._set_refittable(False)
        return True

    def are_weights_marked_refittable(self, name: str) -> bool:
        """Whether weights are marked."""
        return self._named(name)._is_refittable()  # type: ignore[no-any-return]

    # ---- Debug tensors ----

    def mark_debug(self, tensor: ITensor) -> bool:
        """Makes the tensor one that IDebugListeners can look at."""
        tensor._set_debug(True)
        return True

    def unmark_debug(self, tensor: ITensor) -> bool:
        """Undoes mark_debug."""
        tensor._set_debug(False)
        return True

    def is_debug_tensor(self, tensor: ITensor) -> bool:
        """Whether the tensor is marked."""
        return tensor._is_debug()

    def mark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Lets IDebugListeners look at all that lies between kernels."""
        self._set_unfused_debug(True)
        return True

    def unmark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Undoes mark_unfused_tensors_as_debug_tensors."""
        self._set_unfused_debug(False)
        return True

    # ---- Layers ----

    def _weights_tensor(self, weights: Weights, shape: Shape) -> ITensor | None:
        dims = tuple(shape)
        if weights.size == 0:
            return None
        if volume(dims) != weights.size:
            raise ValueError(
                f"{weights.size} weights do not fill shape {dims} "
                f"({volume(dims)} elements)"
            )
        address = weights._address
        tensor = self._add_weights(
            None, int(weights.dtype), address, weights.size, dims, weights
        )
        self._given_weights[address] = tensor.name
        return tensor  # type: ignore[no-any-return]

    def add_convolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Shape,
        kernel: Any = None,
        bias: Any = None,
    ) -> IConvolutionLayer:
        """Convolution over all axes after the second.

        kernel: Weights or an array [num_output_maps, channels / groups, *shape];
        None if set_input(1, tensor) will give it.
        """
        window = _dims(kernel_shape, "kernel_shape")
        weights = to_weights(kernel, "kernel")
        biases = to_weights(bias, "bias")
        each = integer(num_output_maps, "num_output_maps") * volume(window)
        if each <= 0 or weights.size % each:
            raise ValueError(
                f"kernel: {weights.size} weights are not a multiple of "
                f"{num_output_maps} output maps x kernel {window}"
            )
        shape = (num_output_maps, weights.size // each, *window)
        inputs = [
            input,
            self._weights_tensor(weights, shape),
            self._weights_tensor(biases, (num_output_maps,)),
        ]
        return self._add_layer("convolution", None, inputs, {})

    def add_deconvolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Shape,
        kernel: Any = None,
        bias: Any = None,
    ) -> IDeconvolutionLayer:
        """Deconvolution over all axes after the second.

        kernel: Weights or an array [channels, num_output_maps / groups, *shape];
        None if set_input(1, tensor) will give it. With groups, set num_groups next.
        """
        window = _dims(kernel_shape, "kernel_shape")
        weights = to_weights(kernel, "kernel")
        biases = to_weights(bias, "bias")
        channels = input.shape[1] if len(input.shape) > 1 else -1
        each = channels * volume(window)
        if weights.size and (each <= 0 or weights.size % each):
            raise ValueError(
                f"kernel: {weights.size} weights are not a multiple of "
                f"{channels} channels x kernel {window}"
            )
        if weights.size and num_output_maps % (weights.size // each):
            raise ValueError(
                f"kernel: {weights.size} weights make {weights.size // each} maps a "
                f"group of channels, which do not divide {num_output_maps} maps"
            )
        maps = weights.size // each if weights.size else num_output_maps
        inputs = [
            input,
            self._weights_tensor(weights, (channels, maps, *window)),
            self._weights_tensor(biases, (num_output_maps,)),
        ]
        return self._add_layer("deconvolution", None, inputs, {})

    def add_pooling_nd(
        self, input: ITensor, type: e.PoolingType, window_size: Shape
    ) -> IPoolingLayer:
        """Pooling over all axes after the second; stride defaults to the window."""
        window = (INTS, list(_dims(window_size, "window_size")))
        attrs = {"type": int(e.PoolingType(type)), "window_size_nd": window}
        return self._add_layer("pooling", None, [input], attrs)

    def add_activation(
        self, input: ITensor, type: e.ActivationType
    ) -> IActivationLayer:
        """A function of each element."""
        attrs: dict[str, Any] = {"type": int(e.ActivationType(type))}
        parameters = _ACTIVATION_PARAMETERS.get(e.ActivationType(type), ())
        attrs |= zip(("alpha", "beta"), parameters, strict=False)
        return self._add_layer("activation", None, [input], attrs)

    def add_elementwise(
        self, input1: ITensor, input2: ITensor, op: e.ElementWiseOperation
    ) -> IElementWiseLayer:
        """A function of two elements; extents of 1 are broadcast."""
        attrs = {"op": int(e.ElementWiseOperation(op))}
        return self._add_layer("elementwise", None, [input1, input2], attrs)

    def add_unary(self, input: ITensor, op: e.UnaryOperation) -> IUnaryLayer:
        """A function of each element."""
        attrs = {"op": int(e.UnaryOperation(op))}
        return self._add_layer("unary", None, [input], attrs)

    def add_matrix_multiply(
        self,
        input0: ITensor,
        op0: e.MatrixOperation,
        input1: ITensor,
        op1: e.MatrixOperation,
    ) -> IMatrixMultiplyLayer:
        """Product of the last two axes, batches broadcast."""
        attrs = {
            "op0": int(e.MatrixOperation(op0)),
            "op1": int(e.MatrixOperation(op1)),
        }
        return self._add_layer("matrix_multiply", None, [input0, input1], attrs)

    def add_softmax(self, input: ITensor) -> ISoftMaxLayer:
        """Softmax; set `axes` to 1 << axis (default: the third from the end)."""
        return self._add_layer("softmax", None, [input], {})

    def add_reduce(
        self, input: ITensor, op: e.ReduceOperation, axes: int, keep_dims: bool
    ) -> IReduceLayer:
        """Reduction over the axes whose bits are set."""
        attrs = {
            "op": int(e.ReduceOperation(op)),
            "axes": integer(axes, "axes"),
            "keep_dims": flag(keep_dims, "keep_dims"),
        }
        return self._add_layer("reduce", None, [input], attrs)

    def add_shuffle(self, input: ITensor) -> IShuffleLayer:
        """Transpose, reshape, transpose; input 1 may give the shape."""
        return self._add_layer("shuffle", None, [input], {})

    def add_slice(
        self, input: ITensor, start: Shape, shape: Shape, stride: Shape
    ) -> ISliceLayer:
        """A part of a tensor; inputs 1 to 5 may give start, shape, stride, the
        fill value and axes."""
        attrs = {
            "start": (INTS, list(_dims(start, "start"))),
            "shape": (INTS, list(_dims(shape, "shape"))),
            "stride": (INTS, list(_dims(stride, "stride"))),
        }
        return self._add_layer("slice", None, [input], attrs)

    def add_topk(
        self,
        input: ITensor,
        op: e.TopKOperation,
        k: int,
        axes: int,
        indices_type: Any = e.DataType.INT32,
    ) -> ITopKLayer:
        """The k largest or smallest elements along an axis; input 1 may give k.

        Outputs: the elements, best first; their indices.
        """
        attrs = {
            "op": int(e.TopKOperation(op)),
            "k": integer(k, "k"),
            "axes": integer(axes, "axes"),
            "indices_type": int(dtype_of(indices_type)),
        }
        return self._add_layer("topk", None, [input], attrs)

    def add_non_zero(
        self, input: ITensor, indices_type: Any = e.DataType.INT32
    ) -> INonZeroLayer:
        """Positions of the elements that are not zero, [rank, count] in row-major
        order; a run tells how many."""
        attrs = {"indices_type": int(dtype_of(indices_type))}
        return self._add_layer("non_zero", None, [input], attrs)

    def add_nms(
        self,
        boxes: ITensor,
        scores: ITensor,
        max_output_boxes_per_class: ITensor,
        indices_type: Any = e.DataType.INT32,
    ) -> INMSLayer:
        """Boxes [batch, boxes, (classes,) 4] that no better one of their class overlaps
        by much, by scores [batch, boxes, classes].

        Outputs: rows [count, 3] of (batch, class, box), best first within a batch; the
        count, which a run tells. Inputs 3 and 4 may give thresholds: boxes overlap by
        more than the first (intersection over union), scores are above the second; both
        are 0 unless given.
        """
        attrs = {"indices_type": int(dtype_of(indices_type))}
        inputs = [boxes, scores, max_output_boxes_per_class]
        return self._add_layer("nms", None, inputs, attrs)

    def add_reverse_sequence(
        self, input: ITensor, sequence_lens: ITensor
    ) -> IReverseSequenceLayer:
        """The first elements of each sequence, as many as it has, in reverse order;
        sequences lie on axis 0 and the batch on axis 1 until that is set."""
        return self._add_layer("reverse_sequence", None, [input, sequence_lens], {})

    def add_scatter(
        self, data: ITensor, indices: ITensor, updates: ITensor, mode: e.ScatterMode
    ) -> IScatterLayer:
        """A copy of data with updates where indices say."""
        attrs = {"mode": int(e.ScatterMode(mode))}
        return self._add_layer("scatter", None, [data, indices, updates], attrs)

    def add_kv_cache_update(
        self,
        cache: ITensor,
        update: ITensor,
        write_indices: ITensor,
        cache_mode: e.KVCacheMode,
    ) -> IKVCacheUpdateLayer:
        """Puts update [batch, heads, new, size] into cache [batch, heads, length, size]
        at write_indices [batch]. The output lies in the cache's memory: an input and an
        output of the network may have one address."""
        attrs = {"cache_mode": int(e.KVCacheMode(cache_mode))}
        inputs = [cache, update, write_indices]
        return self._add_layer("kv_cache_update", None, inputs, attrs)

    def add_moe(
        self,
        hidden_states: ITensor,
        selected_experts_for_tokens: ITensor,
        scores_for_selected_experts: ITensor,
    ) -> IMoELayer:
        """The networks of the experts chosen for each token, summed by scores:
        hidden_states [batch, tokens, hidden], the others [batch, tokens, chosen]. The
        layer's set_gated_weights gives the experts' weights."""
        inputs = [
            hidden_states,
            selected_experts_for_tokens,
            scores_for_selected_experts,
        ]
        return self._add_layer("moe", None, inputs, {})

    def add_cumulative(
        self,
        input: ITensor,
        axis: ITensor,
        op: e.CumulativeOperation,
        exclusive: bool,
        reverse: bool,
    ) -> ICumulativeLayer:
        """Running sums; axis is a constant of rank 0."""
        attrs = {
            "op": int(e.CumulativeOperation(op)),
            "exclusive": flag(exclusive, "exclusive"),
            "reverse": flag(reverse, "reverse"),
        }
        return self._add_layer("cumulative", None, [input, axis], attrs)

    def add_fill(
        self,
        shape: Shape,
        op: e.FillOperation,
        output_type: Any = e.DataType.FLOAT,
    ) -> IFillLayer:
        """Numbers in even steps, or random numbers."""
        attrs = {
            "operation": int(e.FillOperation(op)),
            "shape": (INTS, list(_dims(shape, "shape"))),
            "to_type": int(dtype_of(output_type)),
        }
        return self._add_layer("fill", None, [], attrs)

    def add_grid_sample(self, input: ITensor, grid: ITensor) -> IGridSampleLayer:
        """Samples of an image at points, whose coordinates run from -1 to 1."""
        return self._add_layer("grid_sample", None, [input, grid], {})

    def add_resize(self, input: ITensor) -> IResizeLayer:
        """The tensor in another size, which shape, scales or input 1 gives."""
        return self._add_layer("resize", None, [input], {})

    def add_concatenation(self, inputs: Sequence[ITensor]) -> IConcatenationLayer:
        """Tensors one after the other; default axis: the third from the end."""
        tensors = list(inputs) if isinstance(inputs, Iterable) else [inputs]
        if tensors == [inputs] or not all(isinstance(t, ITensor) for t in tensors):
            raise TypeError(
                f"add_concatenation takes a list of ITensors, got {inputs!r}"
            )
        if not tensors:
            raise ValueError("add_concatenation needs at least one tensor")
        attrs = {"axis": max(0, len(tensors[0].shape) - 3)}
        return self._add_layer("concatenation", None, tensors, attrs)

    def add_gather(self, input: ITensor, indices: ITensor, axis: int) -> IGatherLayer:
        """Elements chosen by indices along an axis."""
        return self._add_layer(
            "gather", None, [input, indices], {"axis": integer(axis, "axis")}
        )

    def add_gather_v2(
        self, input: ITensor, indices: ITensor, mode: e.GatherMode
    ) -> IGatherLayer:
        """Elements chosen by indices, in any mode."""
        attrs = {"mode": int(e.GatherMode(mode))}
        return self._add_layer("gather", None, [input, indices], attrs)

    def add_select(
        self, condition: ITensor, then_input: ITensor, else_input: ITensor
    ) -> ISelectLayer:
        """Elements of one of two tensors."""
        inputs = [condition, then_input, else_input]
        return self._add_layer("select", None, inputs, {})

    def add_cast(self, input: ITensor, to_type: Any) -> ICastLayer:
        """Conversion to another type."""
        attrs = {"to_type": int(dtype_of(to_type))}
        return self._add_layer("cast", None, [input], attrs)

    def add_quantize(
        self, input: ITensor, scale: ITensor, output_type: Any = e.DataType.INT8
    ) -> IQuantizeLayer:
        """input / scale to 8 bits: INT8, UINT8 or FP8; input 2 may give a zero
        point of that type. A scale of the input's rank has an element for each block."""
        attrs = {"to_type": int(dtype_of(output_type))}
        return self._add_layer("quantize", None, [input, scale], attrs)

    def add_dequantize(
        self, input: ITensor, scale: ITensor, output_type: Any = e.DataType.FLOAT
    ) -> IDequantizeLayer:
        """input * scale; input 2 may give the zero point that is taken away
        before."""
        attrs = {"to_type": int(dtype_of(output_type))}
        return self._add_layer("dequantize", None, [input, scale], attrs)

    def add_dynamic_quantize(
        self,
        input: ITensor,
        axis: int,
        block_size: int,
        output_type: Any,
        scale_type: Any,
    ) -> IDynamicQuantizeLayer:
        """input to 8 bits (INT8 or FP8) by scales that are computed for each block of
        block_size elements along an axis. Outputs: the numbers; the scales."""
        attrs = {
            "axis": integer(axis, "axis"),
            "block_size": integer(block_size, "block_size"),
            "to_type": int(dtype_of(output_type)),
            "scale_type": int(dtype_of(scale_type)),
        }
        return self._add_layer("dynamic_quantize", None, [input], attrs)

    def add_dynamic_quantize_v2(
        self, input: ITensor, block_shape: Shape, output_type: Any, scale_type: Any
    ) -> IDynamicQuantizeLayer:
        """The same for blocks that have an extent on each axis, -1: all of it."""
        attrs = {
            "block_shape": (INTS, list(_dims(block_shape, "block_shape"))),
            "to_type": int(dtype_of(output_type)),
            "scale_type": int(dtype_of(scale_type)),
        }
        return self._add_layer("dynamic_quantize", None, [input], attrs)

    def add_assertion(self, condition: ITensor, message: str) -> IAssertionLayer:
        """Demands that all elements of a BOOL tensor are true. What constants and
        shapes tell is checked when a plan is built and when shapes are set, the rest
        in runs."""
        attrs = {"message": _text(message, "message")}
        return self._add_layer("assertion", None, [condition], attrs)

    def add_identity(self, input: ITensor) -> IIdentityLayer:
        """A copy."""
        return self._add_layer("identity", None, [input], {})

    def add_shape(self, input: ITensor) -> IShapeLayer:
        """The dimensions of a tensor, INT64."""
        return self._add_layer("shape", None, [input], {})

    def add_constant(self, shape: Shape, weights: Any) -> IConstantLayer:
        """A tensor known now; the data are copied."""
        constant = to_weights(weights, "weights")
        dims = _dims(shape, "shape")
        if volume(dims) != constant.size:
            raise ValueError(
                f"{constant.size} weights do not fill shape {dims} "
                f"({volume(dims)} elements)"
            )
        data = constant.numpy().tobytes()
        value = (TENSOR, int(constant.dtype), dims, data)
        layer = self._add_layer("constant", None, [], {"weights": value})
        if constant.size:
            self._given_weights[constant._address] = layer.get_output(0).name
        return layer  # type: ignore[no-any-return]

    def _normalization(
        self, inputs: list[ITensor | None], axes: int, v2: bool
    ) -> INormalizationLayer:
        attrs = {"axes": integer(axes, "axes"), "is_v2": v2}
        return self._add_layer("normalization", None, inputs, attrs)

    def add_normalization(
        self,
        input: ITensor,
        scale: ITensor,
        bias: ITensor,
        axesMask: int,  # noqa: N803
    ) -> INormalizationLayer:
        """Normalization; with groups, scale and bias are by group."""
        return self._normalization([input, scale, bias], axesMask, False)

    def add_normalization_v2(
        self,
        input: ITensor,
        scale: ITensor,
        bias: ITensor,
        axesMask: int,  # noqa: N803
    ) -> INormalizationLayer:
        """Normalization; with groups, scale and bias are by channel."""
        return self._normalization([input, scale, bias], axesMask, True)

    def add_plugin_v2(self, inputs: Sequence[ITensor], plugin: Any) -> IPluginV2Layer:
        """A layer of a plugin of a class that derives from IPluginV2DynamicExt."""
        layer: IPluginV2Layer = add_plugin_v2(self, inputs, plugin)
        return layer

    def add_plugin_v3(
        self, inputs: Sequence[ITensor], shape_inputs: Sequence[ITensor], plugin: Any
    ) -> IPluginV3Layer:
        """A layer of a plugin of a class that derives from IPluginV3. shape_inputs are
        integers whose values its output shapes depend on."""
        layer: IPluginV3Layer = add_plugin_v3(self, inputs, shape_inputs, plugin)
        return layer

    # ---- Layers that are several (_composites.py) ----

    def add_scale(
        self,
        input: ITensor,
        mode: e.ScaleMode,
        shift: Any = None,
        scale: Any = None,
        power: Any = None,
    ) -> composites.IScaleLayer:
        """(input * scale + shift) ** power; channels are on axis 1."""
        return self.add_scale_nd(input, mode, shift, scale, power, 1)

    def add_scale_nd(
        self,
        input: ITensor,
        mode: e.ScaleMode,
        shift: Any = None,
        scale: Any = None,
        power: Any = None,
        channel_axis: int = 1,
    ) -> composites.IScaleLayer:
        """(input * scale + shift) ** power; weights that are left out change nothing."""
        given = {"scale": (scale, 1.0), "shift": (shift, 0.0), "power": (power, 1.0)}
        return composites.scale(self, input, mode, given, channel_axis)

    def add_padding_nd(
        self, input: ITensor, pre_padding: Shape, post_padding: Shape
    ) -> composites.IPaddingLayer:
        """Zeros around the last axes; negative padding takes elements away."""
        return composites.padding(self, input, pre_padding, post_padding)

    def add_squeeze(self, input: ITensor, axes: ITensor) -> composites.ISqueezeLayer:
        """Takes axes of extent 1 away; `axes` is a constant."""
        return composites.reshaping(self, composites.ISqueezeLayer, input, axes)

    def add_unsqueeze(
        self, input: ITensor, axes: ITensor
    ) -> composites.IUnsqueezeLayer:
        """Puts axes of extent 1 in; `axes` is a constant."""
        return composites.reshaping(self, composites.IUnsqueezeLayer, input, axes)

    def add_parametric_relu(
        self, input: ITensor, slopes: ITensor
    ) -> composites.IParametricReLULayer:
        """x where it is positive, slopes * x elsewhere."""
        return composites.parametric_relu(self, input, slopes)

    def add_one_hot(
        self, indices: ITensor, values: ITensor, depth: ITensor, axis: int
    ) -> composites.IOneHotLayer:
        """values[1] where indices say so along a new axis, values[0] elsewhere."""
        return composites.one_hot(self, indices, values, depth, axis)

    def add_lrn(
        self, input: ITensor, window: int, alpha: float, beta: float, k: float
    ) -> composites.ILRNLayer:
        """x / (k + alpha * mean of squares in a window of channels) ** beta."""
        return composites.lrn(self, input, window, alpha, beta, k)

    def add_ragged_softmax(
        self, input: ITensor, bounds: ITensor
    ) -> composites.IRaggedSoftMaxLayer:
        """Softmax of the first bounds[i] elements of each row; zeros behind."""
        return composites.ragged_softmax(self, input, bounds)

    def add_einsum(
        self, inputs: Sequence[ITensor], equation: str
    ) -> composites.IEinsumLayer:
        """Sums of products, as an equation says: "ij,jk->ik"."""
        return composites.einsum(self, inputs, equation)

    def add_rotary_embedding(
        self,
        input: ITensor,
        cos_cache: ITensor,
        sin_cache: ITensor,
        interleaved: bool,
        rotary_embedding_dim: int,
    ) -> IRotaryEmbeddingLayer:
        """Turns pairs of elements by angles whose cosines and sines are given."""
        caches = (cos_cache, sin_cache)
        return rotary_embedding(self, input, caches, interleaved, rotary_embedding_dim)

    def add_if_conditional(self) -> IIfConditional:
        """Chooses between results of two branches, both of which are computed."""
        self._conditionals += 1
        return IIfConditional(self, f"(Unnamed Conditional* {self._conditionals - 1})")

    def add_loop(self) -> ILoop:
        """A loop, which its recurrences, iterators, limits and outputs make."""
        return ILoop(self, self._add_loop())

    def add_attention(
        self,
        query: ITensor,
        key: ITensor,
        value: ITensor,
        norm_op: e.AttentionNormalizationOp,
        causal: bool,
    ) -> IAttention:
        """softmax(query key^T) value; `mask` of the result masks scores."""
        kinds = e.CausalMaskKind
        kind = kinds.UPPER_LEFT if flag(causal, "causal") else kinds.NONE
        return IAttention(self, (query, key, value), norm_op, kind)

    def add_attention_v2(
        self,
        query: ITensor,
        key: ITensor,
        value: ITensor,
        norm_op: e.AttentionNormalizationOp,
        causal_kind: e.CausalMaskKind,
    ) -> IAttention:
        """The same, with a choice of causal masks (of release 11)."""
        return IAttention(self, (query, key, value), norm_op, causal_kind)

    def add_plugin(
        self, func: Any = None, aot: bool | None = None, *, tuple: Any = None
    ) -> IPluginV3Layer:
        """A layer of a plugin: what rabbet.plugin.op.NAMESPACE.NAME(...) gives, or
        (inputs, shape inputs, plugin) for add_plugin_v3; `tuple` is the old name of
        `func`."""
        func = tuple if func is None else func
        is_triple = isinstance(func, builtins.tuple) and len(func) == 3
        if is_triple and isinstance(func[2], IPluginV3):
            return self.add_plugin_v3(*func)
        call = func[2] if is_triple else func
        if not isinstance(call, LayerCall):
            raise TypeError(
                "add_plugin takes what rabbet.plugin.op.NAMESPACE.NAME(tensors, "
                f"attributes) gives, got {func!r}"
            )
        request = (
            None
            if aot is None
            else (
                e.QuickPluginCreationRequest.STRICT_AOT
                if flag(aot, "aot")
                else e.QuickPluginCreationRequest.STRICT_JIT
            )
        )
        return call.add_to(self, request)
