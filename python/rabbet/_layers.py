"""Layers of a network: a class for each operator, made of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _enums as e
from . import _rabbet
from ._arrays import dtype_of, from_bytes
from ._dims import Dims, volume
from ._layer import (
    LAYER_CLASSES,
    TENSOR,
    ILayer,
    ITensor,
    _Attribute,
    _choice,
    _dims,
    _flag,
    _float,
    _floats,
    _ints,
    _number,
    _order,
    _Spatial,
    _string,
)
from ._managed import Fixed
from ._weights import to_weights

_BLOCKS = (
    "Elements on each axis that share a scale, -1: all; empty: as the scale's shape tells."
)


class _Padded(ILayer):
    __slots__ = ()
    pre_padding = _Spatial("pre_padding", 0, "Padding before each spatial axis.")
    post_padding = _Spatial("post_padding", 0, "Padding after each spatial axis.")
    stride_nd = _Spatial("stride_nd", 1, "Step of the window on each spatial axis.")
    padding_mode = _choice("padding_mode", e.PaddingMode, "How extents are rounded.")

    @property
    def padding_nd(self) -> Dims:
        """Padding on both sides of each spatial axis."""
        before, after = self.pre_padding, self.post_padding
        if list(before) != list(after):
            raise ValueError(
                f"layer '{self.name}' pads {before} before and {after} after: read "
                "pre_padding and post_padding"
            )
        return before

    @padding_nd.setter
    def padding_nd(self, padding: Iterable[int]) -> None:
        values = Dims(padding)
        self.pre_padding = values
        self.post_padding = values


class _Convolving(_Padded):
    __slots__ = ()
    dilation_nd = _Spatial("dilation_nd", 1, "Distance between the kernel's elements.")
    num_groups = _number("num_groups", "Groups of channels that are taken apart.")

    def _maps(self) -> int:
        raise NotImplementedError

    @property
    def num_output_maps(self) -> int:
        """Channels of the output."""
        return self._maps()

    @num_output_maps.setter
    def num_output_maps(self, count: int) -> None:
        self._follows("num_output_maps", self.num_output_maps, count)

    @property
    def kernel_size_nd(self) -> Dims:
        """Extent of the kernel on each spatial axis."""
        return Dims(self.get_input(1).shape[2:])  # type: ignore[union-attr]

    @kernel_size_nd.setter
    def kernel_size_nd(self, size: Iterable[int]) -> None:
        self._follows("kernel_size_nd", self.kernel_size_nd, Dims(size))

    def _follows(self, name: str, now: Any, wanted: Any) -> None:
        if now != wanted:
            raise ValueError(
                f"{name} of layer '{self.name}' is {now}, as its kernel has it; set "
                f"another kernel to make it {wanted}"
            )

    def _constant(self, index: int) -> Any:
        tensor = self.get_input(index)
        data = tensor._weights() if tensor is not None else None
        if tensor is None or data is None:
            return None
        return from_bytes(data[0], data[1], tuple(tensor.shape))

    @property
    def kernel(self) -> Any:
        """The kernel as an array; None if it is no constant."""
        return self._constant(1)

    @kernel.setter
    def kernel(self, weights: Any) -> None:
        self._replace(1, weights)

    @property
    def bias(self) -> Any:
        """The bias as an array; None if there is none or it is no constant."""
        return self._constant(2)

    @bias.setter
    def bias(self, weights: Any) -> None:
        self._replace(2, weights)

    def _replace(self, index: int, weights: Any) -> None:
        """New weights of the old shape; a bias may also come or go."""
        new = to_weights(weights, ("input", "kernel", "bias")[index])
        old = self.get_input(index)
        shape = tuple(old.shape) if old is not None else (self.num_output_maps,)
        self.set_input(index, self._network()._weights_tensor(new, shape))


class IConvolutionLayer(_Convolving):
    """Convolution with grouped channels."""

    __slots__ = ()
    _type = e.LayerType.CONVOLUTION

    def _maps(self) -> int:
        return self.get_input(1).shape[0]  # type: ignore[union-attr]


class IDeconvolutionLayer(_Convolving):
    """Deconvolution (transposed convolution) with grouped channels."""

    __slots__ = ()
    _type = e.LayerType.DECONVOLUTION
    output_padding = _Spatial(
        "output_padding", 0, "Elements added after each spatial axis of the output."
    )

    def _maps(self) -> int:
        return self.get_input(1).shape[1] * self.num_groups  # type: ignore[union-attr]


class IPoolingLayer(_Padded):
    """Largest or average value of a window."""

    __slots__ = ()
    _type = e.LayerType.POOLING
    type = _choice("type", e.PoolingType, "What is taken.")  # type: ignore[assignment]
    window_size_nd = _dims(
        "window_size_nd", "Extent of the window on each spatial axis."
    )
    blend_factor = _float("blend_factor", "Share of the average in a blend.")
    average_count_excludes_padding = _flag(
        "average_count_excludes_padding", "Divide by the elements inside the input."
    )


class IActivationLayer(ILayer):
    """A function of each element."""

    __slots__ = ()
    _type = e.LayerType.ACTIVATION
    type = _choice("type", e.ActivationType, "The function.")  # type: ignore[assignment]
    alpha = _float("alpha", "First parameter of the function.")
    beta = _float("beta", "Second parameter of the function.")


class IElementWiseLayer(ILayer):
    """A function of two elements, with broadcasting."""

    __slots__ = ()
    _type = e.LayerType.ELEMENTWISE
    op = _choice("op", e.ElementWiseOperation, "The operation.")


class IUnaryLayer(ILayer):
    """A function of each element."""

    __slots__ = ()
    _type = e.LayerType.UNARY
    op = _choice("op", e.UnaryOperation, "The function.")


class IMatrixMultiplyLayer(ILayer):
    """Products of matrices and vectors, batches broadcast."""

    __slots__ = ()
    _type = e.LayerType.MATRIX_MULTIPLY
    op0 = _choice("op0", e.MatrixOperation, "How input 0 is read.")
    op1 = _choice("op1", e.MatrixOperation, "How input 1 is read.")


class ISoftMaxLayer(ILayer):
    """Exponentials along an axis, scaled to sum 1."""

    __slots__ = ()
    _type = e.LayerType.SOFTMAX
    axes = _number("axes", "1 << axis.")


class IReduceLayer(ILayer):
    """Sum, product, extreme or mean over some axes."""

    __slots__ = ()
    _type = e.LayerType.REDUCE
    op = _choice("op", e.ReduceOperation, "The reduction.")
    axes = _number("axes", "Bit i is set to reduce over axis i.")
    keep_dims = _flag("keep_dims", "Keep reduced axes, of extent 1.")


class IShuffleLayer(ILayer):
    """Transpose, reshape, transpose."""

    __slots__ = ()
    _type = e.LayerType.SHUFFLE
    first_transpose = _order("first_transpose", "Order of axes before the reshape.")
    second_transpose = _order("second_transpose", "Order of axes after the reshape.")
    zero_is_placeholder = _flag("zero_is_placeholder", "0 copies a dimension.")

    @property
    def reshape_dims(self) -> Dims:
        """The new shape; one -1 is inferred."""
        return Dims(self._attr("reshape_dims"))

    @reshape_dims.setter
    def reshape_dims(self, dims: Iterable[int]) -> None:
        values = _ints(dims)
        self._set_attrs({"reshape_dims": values, "reshape_to_scalar": not values[1]})


class ITopKLayer(ILayer):
    """The largest or smallest elements along an axis, and their indices."""

    __slots__ = ()
    _type = e.LayerType.TOPK
    op = _choice("op", e.TopKOperation, "Which are chosen.")
    k = _number("k", "How many, unless input 1 tells.")
    axes = _number("axes", "The axis, as a bit.")
    indices_type = _choice("indices_type", e.DataType, "Type of the indices.")


class INonZeroLayer(ILayer):
    """Positions of the elements that are not zero."""

    __slots__ = ()
    _type = e.LayerType.NON_ZERO
    indices_type = _choice("indices_type", e.DataType, "Type of the indices.")


class INMSLayer(ILayer):
    """Boxes that no better one of their class overlaps by much."""

    __slots__ = ()
    _type = e.LayerType.NMS
    bounding_box_format = _choice(
        "bounding_box_format", e.BoundingBoxFormat, "What a box's numbers are."
    )
    topk_box_limit = _number(
        "topk_box_limit", "Best boxes that are looked at in each batch; 0: all."
    )
    indices_type = _choice("indices_type", e.DataType, "Type of the indices.")


class IReverseSequenceLayer(ILayer):
    """The first elements of each sequence, as many as it has, in reverse order."""

    __slots__ = ()
    _type = e.LayerType.REVERSE_SEQUENCE
    batch_axis = _number("batch_axis", "The axis along which lengths differ.")
    sequence_axis = _number("sequence_axis", "The axis that is reversed.")


class IScatterLayer(ILayer):
    """Elements put where indices say."""

    __slots__ = ()
    _type = e.LayerType.SCATTER
    mode = _choice("mode", e.ScatterMode, "How indices are read.")
    axis = _number("axis", "The axis, of elements.")


class IKVCacheUpdateLayer(ILayer):
    """New elements in a cache, whose memory the output shares. Inputs: cache, update,
    write_indices; set_input replaces them."""

    __slots__ = ()
    _type = e.LayerType.KV_CACHE_UPDATE
    cache_mode = _choice(
        "cache_mode", e.KVCacheMode, "What becomes of what lies beyond the end."
    )


class ICumulativeLayer(ILayer):
    """Running sums along an axis."""

    __slots__ = ()
    _type = e.LayerType.CUMULATIVE
    op = _choice("op", e.CumulativeOperation, "What is running.")
    exclusive = _flag("exclusive", "An element is not part of its own sum.")
    reverse = _flag("reverse", "From the end.")


class IGridSampleLayer(ILayer):
    """Samples of an image at the points of a grid."""

    __slots__ = ()
    _type = e.LayerType.GRID_SAMPLE
    interpolation_mode = _choice(
        "interpolation_mode", e.InterpolationMode, "How elements are made."
    )
    align_corners = _flag(
        "align_corners", "-1 and 1 are the centres of the first and last elements."
    )
    sample_mode = _choice("sample_mode", e.SampleMode, "What lies outside the input.")


class IFillLayer(ILayer):
    """Numbers in even steps, or random numbers; inputs 0 to 2 may give shape, alpha
    and beta."""

    __slots__ = ()
    _type = e.LayerType.FILL
    shape = _dims("shape", "The output's shape.")
    operation = _choice("operation", e.FillOperation, "Which numbers.")
    alpha = _float("alpha", "First number, least number, or mean.")
    beta = _float("beta", "Step, largest number, or standard deviation.")
    to_type = _choice("to_type", e.DataType, "The output's type.")
    seed = _number("seed", "Of random numbers, which are the same in each run.")

    def is_alpha_beta_int64(self) -> bool:
        """Whether alpha and beta count as integers of 64 bits."""
        return self.to_type is e.DataType.INT64


class IResizeLayer(ILayer):
    """Elements between elements: chosen or interpolated."""

    __slots__ = ()
    _type = e.LayerType.RESIZE
    shape = _dims("shape", "Extent of the output on each axis.")
    scales = _floats("scales", "What each axis is scaled by, where no shape is given.")
    resize_mode = _choice("resize_mode", e.InterpolationMode, "How elements are made.")
    coordinate_transformation = _choice(
        "coordinate_transformation",
        e.ResizeCoordinateTransformation,
        "Where in the input an element of the output lies.",
    )
    selector_for_single_pixel = _choice(
        "selector_for_single_pixel",
        e.ResizeSelector,
        "Where the only element of an axis lies.",
    )
    nearest_rounding = _choice(
        "nearest_rounding", e.ResizeRoundMode, "How positions are rounded."
    )
    exclude_outside = _flag("exclude_outside", "What lies outside has no weight.")
    cubic_coeff = _float("cubic_coeff", "Coefficient of cubic weights.")


class ISliceLayer(ILayer):
    """A part of a tensor, with steps and ways to go outside."""

    __slots__ = ()
    _type = e.LayerType.SLICE
    start = _dims("start", "First element on each axis.")
    shape = _dims("shape", "Extent of the output on each axis.")
    stride = _dims("stride", "Step on each axis.")
    axes = _dims("axes", "Axes that the others are for; empty: all.")
    mode = _choice("mode", e.SampleMode, "What lies outside the input.")


class IConcatenationLayer(ILayer):
    """Tensors one after the other along an axis."""

    __slots__ = ()
    _type = e.LayerType.CONCATENATION
    axis = _number("axis", "The axis.")


class IGatherLayer(ILayer):
    """Elements chosen by indices."""

    __slots__ = ()
    _type = e.LayerType.GATHER
    axis = _number("axis", "The axis that is indexed.")
    num_elementwise_dims = _number(
        "num_elementwise_dims", "Leading axes that data and indices share."
    )
    mode = _choice("mode", e.GatherMode, "How indices are read.")


class ISelectLayer(ILayer):
    """Elements of one of two tensors."""

    __slots__ = ()
    _type = e.LayerType.SELECT


class ICastLayer(ILayer):
    """Conversion to another type."""

    __slots__ = ()
    _type = e.LayerType.CAST
    to_type = _choice("to_type", e.DataType, "The output's type.")


class IQuantizeLayer(ILayer):
    """Division by a scale, rounded to 8 bits."""

    __slots__ = ()
    _type = e.LayerType.QUANTIZE
    axis = _number("axis", "The axis that scales of rank 1 are for.")
    block_shape = _dims("block_shape", _BLOCKS)
    to_type = _choice("to_type", e.DataType, "The output's type.")


class IDequantizeLayer(ILayer):
    """Quantized numbers times their scale."""

    __slots__ = ()
    _type = e.LayerType.DEQUANTIZE
    axis = _number("axis", "The axis that scales of rank 1 are for.")
    block_shape = _dims("block_shape", _BLOCKS)
    to_type = _choice("to_type", e.DataType, "The output's type.")


class IDynamicQuantizeLayer(ILayer):
    """Quantization by scales of blocks, which output 1 gives; input 1 may give a number
    that scales are divided by before they are rounded."""

    __slots__ = ()
    _type = e.LayerType.DYNAMIC_QUANTIZE
    axis = _number("axis", "The axis that block_size is for.")
    block_size = _number("block_size", "Elements that share a scale, -1: all.")
    block_shape = _dims("block_shape", "The same for each axis; empty: block_size.")
    to_type = _choice("to_type", e.DataType, "The output's type.")
    scale_type = _choice("scale_type", e.DataType, "The scales' type.")


class IAssertionLayer(ILayer):
    """All elements of a condition must be true."""

    __slots__ = ()
    _type = e.LayerType.ASSERTION
    message = _Attribute("message", str, _string, "The error message if the condition is false.")


class IIdentityLayer(ILayer):
    """A copy."""

    __slots__ = ()
    _type = e.LayerType.IDENTITY


class IShapeLayer(ILayer):
    """The dimensions of a tensor."""

    __slots__ = ()
    _type = e.LayerType.SHAPE


class IConstantLayer(ILayer):
    """A tensor known when the network is made."""

    __slots__ = ()
    _type = e.LayerType.CONSTANT

    @property
    def shape(self) -> Dims:
        """Its dimensions."""
        return Dims(self._attr("weights")[1])

    @shape.setter
    def shape(self, dims: Iterable[int]) -> None:
        dtype, _, data = self._attr("weights")
        self._put(dtype, data, tuple(Dims(dims)))

    @property
    def weights(self) -> Any:
        """Its values as an array."""
        dtype, dims, data = self._attr("weights")
        return from_bytes(dtype, data, dims)

    @weights.setter
    def weights(self, weights: Any) -> None:
        new = to_weights(weights, "weights")
        self._put(new.dtype, new.numpy().tobytes(), tuple(self.shape))

    def _put(self, dtype: e.DataType, data: bytes, dims: tuple[int, ...]) -> None:
        if int(volume(dims) * dtype.itemsize) != len(data):
            raise ValueError(
                f"constant '{self.name}': {len(data)} bytes do not fill shape {dims} of "
                f"{dtype}"
            )
        self._set_attrs({"weights": (TENSOR, int(dtype), dims, data)})


class IMoELayer(ILayer):
    """A mixture of experts. Inputs: hidden_states, selected_experts_for_tokens and
    scores_for_selected_experts, then what the methods below give."""

    __slots__ = ()
    _type = e.LayerType.MOE
    activation_type = _choice("activation_type", e.MoEActType, "Function of the gate.")
    swiglu_param_limit = _float(
        "swiglu_param_limit", "What the gate's and the other factor are cut off at."
    )
    swiglu_param_alpha = _float(
        "swiglu_param_alpha", "SILU: factor inside the sigmoid."
    )
    swiglu_param_beta = _float("swiglu_param_beta", "Added to the other factor.")
    quantization_to_type = _choice(
        "quantization_to_type",
        e.DataType,
        "What the last product's rows are rounded to; FLOAT: nothing.",
    )
    quantization_block_shape = _dims(
        "quantization_block_shape",
        "Elements of a row that share a scale, which is found; empty: it is given.",
    )
    dyn_q_output_scale_type = _choice(
        "dyn_q_output_scale_type", e.DataType, "Type of scales that are found."
    )

    def _set_inputs(self, first: int, tensors: Iterable[ITensor]) -> None:
        for i, tensor in enumerate(tensors):
            self.set_input(first + i, tensor)

    def set_gated_weights(
        self,
        fc_gate_weights: ITensor,
        fc_up_weights: ITensor,
        fc_down_weights: ITensor,
        activation_type: e.MoEActType,
    ) -> None:
        """Weights [experts, hidden, inner], twice, and [experts, inner, hidden]."""
        self.activation_type = activation_type
        self._set_inputs(3, (fc_gate_weights, fc_up_weights, fc_down_weights))

    def set_gated_biases(
        self, fc_gate_biases: ITensor, fc_up_biases: ITensor, fc_down_biases: ITensor
    ) -> None:
        """Biases [experts, inner], twice, and [experts, hidden]."""
        self._set_inputs(6, (fc_gate_biases, fc_up_biases, fc_down_biases))

    def set_swiglu_params(self, limit: float, alpha: float, beta: float) -> None:
        """Sets the three properties."""
        self.swiglu_param_limit = limit
        self.swiglu_param_alpha = alpha
        self.swiglu_param_beta = beta

    def set_quantization_static(
        self, fc_down_activation_scale: ITensor, data_type: Any
    ) -> None:
        """Rounds the last product's rows to INT8 or FP8, with one scale."""
        self.quantization_to_type = dtype_of(data_type)
        self.quantization_block_shape = ()  # type: ignore[assignment]
        self.set_input(9, fc_down_activation_scale)

    def set_quantization_dynamic_dbl_q(
        self,
        fc_down_activation_dbl_q_scale: ITensor,
        data_type: Any,
        block_shape: Iterable[int],
        dyn_q_output_scale_type: Any,
    ) -> None:
        """The same with a scale for each block of a row, which is found, divided by a
        number and rounded to its type."""
        self.quantization_to_type = dtype_of(data_type)
        self.quantization_block_shape = block_shape  # type: ignore[assignment]
        self.dyn_q_output_scale_type = dtype_of(dyn_q_output_scale_type)
        self.set_input(9, fc_down_activation_dbl_q_scale)


class INormalizationLayer(ILayer):
    """Layer, instance and group normalization."""

    __slots__ = ()
    _type = e.LayerType.NORMALIZATION
    axes = _number("axes", "Bit i is set to take mean and variance over axis i.")
    epsilon = _float("epsilon", "Added to the variance.")
    num_groups = _number("num_groups", "Groups of channels.")
    is_v2 = _flag("is_v2", "With groups: scale and bias are by channel.")
    compute_precision = Fixed(e.DataType.FLOAT, "Mean and variance are taken in FLOAT.")


class _PluginLayer(ILayer):
    __slots__ = ()

    def _put_name(self, name: str) -> None:
        _rabbet.NetworkLayer.name.__set__(self, name)  # type: ignore[attr-defined]
        calls = getattr(self._instance, "calls", None)
        if calls is not None:  # a class, whose errors tell the layer
            calls.layer = name

    name = property(
        lambda self: _rabbet.NetworkLayer.name.__get__(self),  # type: ignore[attr-defined]
        _put_name,
        doc="Name.",
    )

    @property
    def plugin(self) -> Any:
        """The plugin object that the network holds; None for one of a library."""
        return getattr(self._instance, "plugin", self._instance)


class IPluginV3Layer(_PluginLayer):
    """An operator that a plugin computes."""

    __slots__ = ()
    _type = e.LayerType.PLUGIN_V3


class IPluginV2Layer(_PluginLayer):
    """An operator that a plugin of class IPluginV2DynamicExt computes."""

    __slots__ = ()
    _type = e.LayerType.PLUGIN_V2


LAYER_CLASSES.update(
    {
        "activation": IActivationLayer,
        "assertion": IAssertionLayer,
        "cast": ICastLayer,
        "concatenation": IConcatenationLayer,
        "constant": IConstantLayer,
        "convolution": IConvolutionLayer,
        "cumulative": ICumulativeLayer,
        "deconvolution": IDeconvolutionLayer,
        "dequantize": IDequantizeLayer,
        "dynamic_quantize": IDynamicQuantizeLayer,
        "elementwise": IElementWiseLayer,
        "fill": IFillLayer,
        "gather": IGatherLayer,
        "grid_sample": IGridSampleLayer,
        "identity": IIdentityLayer,
        "kv_cache_update": IKVCacheUpdateLayer,
        "matrix_multiply": IMatrixMultiplyLayer,
        "moe": IMoELayer,
        "nms": INMSLayer,
        "non_zero": INonZeroLayer,
        "normalization": INormalizationLayer,
        "plugin": IPluginV3Layer,
        "pooling": IPoolingLayer,
        "quantize": IQuantizeLayer,
        "reduce": IReduceLayer,
        "resize": IResizeLayer,
        "reverse_sequence": IReverseSequenceLayer,
        "scatter": IScatterLayer,
        "select": ISelectLayer,
        "shape": IShapeLayer,
        "shuffle": IShuffleLayer,
        "slice": ISliceLayer,
        "softmax": ISoftMaxLayer,
        "topk": ITopKLayer,
        "unary": IUnaryLayer,
    }
)
