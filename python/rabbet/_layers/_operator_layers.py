"""The methods of networks that add layers of one operator each."""

from __future__ import annotations

from typing import Any

from .. import _enums as e
from .. import _rabbet
from .._checked import Constants, DType, Integers, Shape, Tensors, checks_arguments
from .._dims import volume
from .._numbers import Attr
from .._weights import Weights
from ._layer import ITensor
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
    IDistCollectiveLayer,
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

# Defaults of alpha and beta, for functions that would be constant with zeros.
_ACTIVATION_PARAMETERS = {
    e.ActivationType.ELU: (1.0,),
    e.ActivationType.SELU: (1.6732632423543772, 1.0507009873554805),
    e.ActivationType.SOFTPLUS: (1.0, 1.0),
    e.ActivationType.HARD_SIGMOID: (0.2, 0.5),
    e.ActivationType.SCALED_TANH: (1.0, 1.0),
}


def _filled(shape: Shape, weights: Weights) -> tuple[int, ...]:
    """The shape as a tuple. Raises unless it has as many elements as the weights."""
    dims = tuple(shape)
    if volume(dims) != weights.size:
        raise ValueError(
            f"{weights.size} weights do not fill shape {dims} ({volume(dims)} elements)"
        )
    return dims


def _rest(kernel: Weights, first: int, what: str, window: Shape) -> int:
    """The second extent of a kernel [first, rest, *window], from its size."""
    each = first * volume(window)
    if each <= 0 or kernel.size % each:
        raise ValueError(
            f"kernel: {kernel.size} weights are not a multiple of {first} {what} x "
            f"kernel {tuple(window)}"
        )
    return kernel.size // each


@checks_arguments
class OperatorLayers(_rabbet.Network):
    """A network with the methods that add layers of one operator."""

    __slots__ = ()
    # Names of constants by the address of their weights; references to tensors would
    # make a cycle with the network.
    _given_weights: dict[int, str]
    _composites: dict[int, dict[str, Any]]  # by layer

    def _weights_tensor(self, weights: Weights, shape: Shape) -> ITensor | None:
        if weights.size == 0:
            return None
        dims = _filled(shape, weights)
        address = weights._address
        tensor = self._add_weights(
            None, int(weights.dtype), address, weights.size, dims, weights
        )
        self._given_weights[address] = tensor.name
        return tensor  # type: ignore[no-any-return]

    def _with_weights(
        self, input: ITensor, kernel: Weights, shape: Shape, bias: Weights, maps: int
    ) -> list[ITensor | None]:
        """Inputs of a convolution or deconvolution."""
        weights = self._weights_tensor(kernel, shape)
        return [input, weights, self._weights_tensor(bias, (maps,))]

    def add_convolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Shape,
        kernel: Constants = None,
        bias: Constants = None,
    ) -> IConvolutionLayer:
        """Convolution over all axes after the second.

        kernel: Weights or an array [num_output_maps, channels / groups, *shape];
        None if set_input(1, tensor) will give it.
        """
        channels = _rest(kernel, num_output_maps, "output maps", kernel_shape)
        shape = (num_output_maps, channels, *kernel_shape)
        inputs = self._with_weights(input, kernel, shape, bias, num_output_maps)
        return self._add_layer("convolution", None, inputs, {})

    def add_deconvolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Shape,
        kernel: Constants = None,
        bias: Constants = None,
    ) -> IDeconvolutionLayer:
        """Deconvolution over all axes after the second.

        kernel: Weights or an array [channels, num_output_maps / groups, *shape];
        None if set_input(1, tensor) will give it. With groups, set num_groups next.
        """
        channels = input.shape[1] if len(input.shape) > 1 else -1
        maps = _rest(kernel, channels, "channels", kernel_shape) if kernel.size else 0
        if kernel.size and num_output_maps % maps:
            raise ValueError(
                f"kernel: {kernel.size} weights make {maps} maps a group of channels, "
                f"which do not divide {num_output_maps} maps"
            )
        shape = (channels, maps, *kernel_shape)
        inputs = self._with_weights(input, kernel, shape, bias, num_output_maps)
        return self._add_layer("deconvolution", None, inputs, {})

    def add_pooling_nd(
        self, input: ITensor, type: e.PoolingType, window_size: Shape
    ) -> IPoolingLayer:
        """Pooling over all axes after the second; stride defaults to the window."""
        window = (Attr.INTS, list(window_size))
        attrs = {"type": int(type), "window_size_nd": window}
        return self._add_layer("pooling", None, [input], attrs)

    def add_activation(
        self, input: ITensor, type: e.ActivationType
    ) -> IActivationLayer:
        """A function of each element."""
        attrs: dict[str, Any] = {"type": int(type)}
        parameters = _ACTIVATION_PARAMETERS.get(type, ())
        attrs |= zip(("alpha", "beta"), parameters, strict=False)
        return self._add_layer("activation", None, [input], attrs)

    def add_elementwise(
        self, input1: ITensor, input2: ITensor, op: e.ElementWiseOperation
    ) -> IElementWiseLayer:
        """A function of two elements; extents of 1 are broadcast."""
        attrs = {"op": int(op)}
        return self._add_layer("elementwise", None, [input1, input2], attrs)

    def add_unary(self, input: ITensor, op: e.UnaryOperation) -> IUnaryLayer:
        """A function of each element."""
        attrs = {"op": int(op)}
        return self._add_layer("unary", None, [input], attrs)

    def add_matrix_multiply(
        self,
        input0: ITensor,
        op0: e.MatrixOperation,
        input1: ITensor,
        op1: e.MatrixOperation,
    ) -> IMatrixMultiplyLayer:
        """Product of the last two axes, batches broadcast."""
        attrs = {"op0": int(op0), "op1": int(op1)}
        return self._add_layer("matrix_multiply", None, [input0, input1], attrs)

    def add_softmax(self, input: ITensor) -> ISoftMaxLayer:
        """Softmax; set `axes` to 1 << axis (default: the third from the end)."""
        return self._add_layer("softmax", None, [input], {})

    def add_reduce(
        self, input: ITensor, op: e.ReduceOperation, axes: int, keep_dims: bool
    ) -> IReduceLayer:
        """Reduction over the axes whose bits are set."""
        attrs = {"op": int(op), "axes": axes, "keep_dims": keep_dims}
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
            "start": (Attr.INTS, list(start)),
            "shape": (Attr.INTS, list(shape)),
            "stride": (Attr.INTS, list(stride)),
        }
        return self._add_layer("slice", None, [input], attrs)

    def add_topk(
        self,
        input: ITensor,
        op: e.TopKOperation,
        k: int,
        axes: int,
        indices_type: DType = e.DataType.INT32,
    ) -> ITopKLayer:
        """The k largest or smallest elements along an axis; input 1 may give k.

        Outputs: the elements, best first; their indices.
        """
        attrs = {
            "op": int(op),
            "k": k,
            "axes": axes,
            "indices_type": int(indices_type),
        }
        return self._add_layer("topk", None, [input], attrs)

    def add_non_zero(
        self, input: ITensor, indices_type: DType = e.DataType.INT32
    ) -> INonZeroLayer:
        """Positions of the elements that are not zero, [rank, count] in row-major
        order. The count is known after a run."""
        attrs = {"indices_type": int(indices_type)}
        return self._add_layer("non_zero", None, [input], attrs)

    def add_nms(
        self,
        boxes: ITensor,
        scores: ITensor,
        max_output_boxes_per_class: ITensor,
        indices_type: DType = e.DataType.INT32,
    ) -> INMSLayer:
        """Non-maximum suppression: of boxes [batch, boxes, (classes,) 4] with scores
        [batch, boxes, classes], those that overlap no better kept box of their class.

        Outputs: rows [count, 3] of (batch, class, box), best first within a batch, and
        the count, which is known after a run. Input 3 may give the intersection over
        union above which boxes overlap, input 4 the score that boxes must exceed. The
        default of both is 0.
        """
        attrs = {"indices_type": int(indices_type)}
        inputs = [boxes, scores, max_output_boxes_per_class]
        return self._add_layer("nms", None, inputs, attrs)

    def add_reverse_sequence(
        self, input: ITensor, sequence_lens: ITensor
    ) -> IReverseSequenceLayer:
        """Reverses the first sequence_lens[b] elements of each sequence b. By default
        axis 0 is the sequence's and axis 1 the batch's."""
        return self._add_layer("reverse_sequence", None, [input, sequence_lens], {})

    def add_scatter(
        self, data: ITensor, indices: ITensor, updates: ITensor, mode: e.ScatterMode
    ) -> IScatterLayer:
        """A copy of data with updates at the positions that indices give."""
        attrs = {"mode": int(mode)}
        return self._add_layer("scatter", None, [data, indices, updates], attrs)

    def add_dist_collective(
        self,
        input: ITensor,
        dist_collective_op: e.CollectiveOperation,
        reduce_op: e.ReduceOperation = e.ReduceOperation.NONE,
        root: int = -1,
        groups: Integers | None = None,
    ) -> IDistCollectiveLayer:
        """An exchange with the other processes (ranks) that run the network. Set the
        layer's num_ranks, which shapes depend on.

        reduce_op: of ALL_REDUCE, REDUCE and REDUCE_SCATTER, else NONE; root: the rank
        that BROADCAST and SCATTER send from and REDUCE and GATHER send to, else -1;
        groups: the communicator's ranks that take part, in the order of their blocks;
        None: all."""
        attrs = {
            "operation": int(dist_collective_op),
            "reduce_op": int(reduce_op),
            "root": root,
            "groups": (Attr.INTS, list(groups or ())),
        }
        return self._add_layer("dist_collective", None, [input], attrs)

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
        attrs = {"cache_mode": int(cache_mode)}
        inputs = [cache, update, write_indices]
        return self._add_layer("kv_cache_update", None, inputs, attrs)

    def add_moe(
        self,
        hidden_states: ITensor,
        selected_experts_for_tokens: ITensor,
        scores_for_selected_experts: ITensor,
    ) -> IMoELayer:
        """A mixture of experts: the results of the experts that are selected for each
        token, summed with their scores as weights. hidden_states is [batch, tokens,
        hidden], the other inputs are [batch, tokens, chosen]. The layer's
        set_gated_weights sets the experts' weights."""
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
        attrs = {"op": int(op), "exclusive": exclusive, "reverse": reverse}
        return self._add_layer("cumulative", None, [input, axis], attrs)

    def add_fill(
        self,
        shape: Shape,
        op: e.FillOperation,
        output_type: DType = e.DataType.FLOAT,
    ) -> IFillLayer:
        """Numbers in even steps, or random numbers."""
        attrs = {
            "operation": int(op),
            "shape": (Attr.INTS, list(shape)),
            "to_type": int(output_type),
        }
        return self._add_layer("fill", None, [], attrs)

    def add_grid_sample(self, input: ITensor, grid: ITensor) -> IGridSampleLayer:
        """Samples of an image at points, whose coordinates run from -1 to 1."""
        return self._add_layer("grid_sample", None, [input, grid], {})

    def add_resize(self, input: ITensor) -> IResizeLayer:
        """The tensor in another size, which shape, scales or input 1 gives."""
        return self._add_layer("resize", None, [input], {})

    def add_concatenation(self, inputs: Tensors) -> IConcatenationLayer:
        """Tensors one after the other; default axis: the third from the end."""
        attrs = {"axis": max(0, len(inputs[0].shape) - 3)}
        return self._add_layer("concatenation", None, list(inputs), attrs)

    def add_gather(self, input: ITensor, indices: ITensor, axis: int) -> IGatherLayer:
        """Elements chosen by indices along an axis."""
        return self._add_layer("gather", None, [input, indices], {"axis": axis})

    def add_gather_v2(
        self, input: ITensor, indices: ITensor, mode: e.GatherMode
    ) -> IGatherLayer:
        """Elements chosen by indices, in any mode."""
        attrs = {"mode": int(mode)}
        return self._add_layer("gather", None, [input, indices], attrs)

    def add_select(
        self, condition: ITensor, then_input: ITensor, else_input: ITensor
    ) -> ISelectLayer:
        """Elements of one of two tensors."""
        inputs = [condition, then_input, else_input]
        return self._add_layer("select", None, inputs, {})

    def add_cast(self, input: ITensor, to_type: DType) -> ICastLayer:
        """Conversion to another type."""
        attrs = {"to_type": int(to_type)}
        return self._add_layer("cast", None, [input], attrs)

    def add_quantize(
        self, input: ITensor, scale: ITensor, output_type: DType = e.DataType.INT8
    ) -> IQuantizeLayer:
        """input / scale to 8 bits: INT8, UINT8 or FP8; input 2 may give a zero
        point of that type. A scale of the input's rank has an element for each block."""
        attrs = {"to_type": int(output_type)}
        return self._add_layer("quantize", None, [input, scale], attrs)

    def add_dequantize(
        self, input: ITensor, scale: ITensor, output_type: DType = e.DataType.FLOAT
    ) -> IDequantizeLayer:
        """input * scale; input 2 may give the zero point that is taken away
        before."""
        attrs = {"to_type": int(output_type)}
        return self._add_layer("dequantize", None, [input, scale], attrs)

    def add_dynamic_quantize(
        self,
        input: ITensor,
        axis: int,
        block_size: int,
        output_type: DType,
        scale_type: DType,
    ) -> IDynamicQuantizeLayer:
        """input to 8 bits (INT8 or FP8) by scales that are computed for each block of
        block_size elements along an axis. Outputs: the numbers; the scales."""
        attrs = {
            "axis": axis,
            "block_size": block_size,
            "to_type": int(output_type),
            "scale_type": int(scale_type),
        }
        return self._add_layer("dynamic_quantize", None, [input], attrs)

    def add_dynamic_quantize_v2(
        self, input: ITensor, block_shape: Shape, output_type: DType, scale_type: DType
    ) -> IDynamicQuantizeLayer:
        """The same for blocks that have an extent on each axis, -1: all of it."""
        attrs = {
            "block_shape": (Attr.INTS, list(block_shape)),
            "to_type": int(output_type),
            "scale_type": int(scale_type),
        }
        return self._add_layer("dynamic_quantize", None, [input], attrs)

    def add_assertion(self, condition: ITensor, message: str) -> IAssertionLayer:
        """Demands that all elements of a BOOL tensor are true. Conditions that
        follow from constants and shapes are checked when a plan is built and when
        shapes are set, others in runs."""
        attrs = {"message": message}
        return self._add_layer("assertion", None, [condition], attrs)

    def add_identity(self, input: ITensor) -> IIdentityLayer:
        """A copy."""
        return self._add_layer("identity", None, [input], {})

    def add_shape(self, input: ITensor) -> IShapeLayer:
        """The shape of a tensor, as a tensor of INT64."""
        return self._add_layer("shape", None, [input], {})

    def add_constant(self, shape: Shape, weights: Constants) -> IConstantLayer:
        """A constant. The data are copied."""
        dims = _filled(shape, weights)
        value = (Attr.TENSOR, int(weights.dtype), dims, weights._row_major())
        layer = self._add_layer("constant", None, [], {"weights": value})
        if weights.size:
            self._given_weights[weights._address] = layer.get_output(0).name
        return layer  # type: ignore[no-any-return]

    def _normalization(
        self, inputs: list[ITensor | None], axes: int, v2: bool
    ) -> INormalizationLayer:
        attrs = {"axes": axes, "is_v2": v2}
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
