"""Layers of a network: a class for each operator.

Written by tools/operators.py from src/ops; not edited by hand."""

from __future__ import annotations

from .. import _enums as e
from ._layer import (
    LAYER_CLASSES,
    ILayer,
    _choice,
    _dims,
    _flag,
    _float,
    _floats,
    _number,
    _order,
    _Spatial,
    _text,
)
from ._layer_parts import (
    _Constant,
    _Convolution,
    _Deconvolution,
    _DistCollective,
    _Fill,
    _MoE,
    _Normalization,
    _Pooling,
    _Shuffle,
)


class IActivationLayer(ILayer):
    """A function of each element."""

    __slots__ = ()
    _type = e.LayerType.ACTIVATION
    type = _choice(  # type: ignore[assignment]
        "type", e.ActivationType, "The function."
    )
    alpha = _float(
        "alpha",
        "Slope of LEAKY_RELU; scale of ELU, SELU (inner), SOFTPLUS, SCALED_TANH; "
        "factor of HARD_SIGMOID; lower bound of CLIP; THRESHOLDED_RELU's bound.",
    )
    beta = _float(
        "beta",
        "Outer scale of SELU; inner of SOFTPLUS, SCALED_TANH; offset of "
        "HARD_SIGMOID; upper bound of CLIP.",
    )


class IAssertionLayer(ILayer):
    """All elements of a condition must be true."""

    __slots__ = ()
    _type = e.LayerType.ASSERTION
    message = _text("message", "The error message if the condition is false.")


class ICastLayer(ILayer):
    """Conversion to another type."""

    __slots__ = ()
    _type = e.LayerType.CAST
    to_type = _choice("to_type", e.DataType, "The output's type.")


class IConcatenationLayer(ILayer):
    """Tensors one after the other along an axis."""

    __slots__ = ()
    _type = e.LayerType.CONCATENATION
    axis = _number(
        "axis",
        "The axis along which inputs follow each other; negative counts from the "
        "last.",
    )


class IConstantLayer(_Constant):
    """A tensor known when the network is made."""

    __slots__ = ()
    _type = e.LayerType.CONSTANT


class IConvolutionLayer(_Convolution):
    """Grouped convolution in one to three dimensions. Inputs: input, kernel, bias."""

    __slots__ = ()
    _type = e.LayerType.CONVOLUTION
    stride_nd = _Spatial("stride_nd", 1, "Step of the window on each spatial axis.")
    dilation_nd = _Spatial("dilation_nd", 1, "Distance between the window's elements.")
    pre_padding = _Spatial("pre_padding", 0, "Zeros before each spatial axis.")
    post_padding = _Spatial("post_padding", 0, "Zeros after each spatial axis.")
    padding_mode = _choice(
        "padding_mode",
        e.PaddingMode,
        "How the output's extent is rounded, or padding found from it.",
    )
    num_groups = _number("num_groups", "Groups of channels that are convolved apart.")


class ICumulativeLayer(ILayer):
    """Running sums along an axis. Inputs: input, axis."""

    __slots__ = ()
    _type = e.LayerType.CUMULATIVE
    op = _choice("op", e.CumulativeOperation, "What is running.")
    exclusive = _flag("exclusive", "An element is not part of its own sum.")
    reverse = _flag("reverse", "From the end.")


class IDeconvolutionLayer(_Deconvolution):
    """Grouped deconvolution (transposed convolution) in one to three dimensions.
    Inputs: input, kernel, bias."""

    __slots__ = ()
    _type = e.LayerType.DECONVOLUTION
    stride_nd = _Spatial(
        "stride_nd", 1, "Step of the window over the output on each spatial axis."
    )
    dilation_nd = _Spatial("dilation_nd", 1, "Distance between the window's elements.")
    pre_padding = _Spatial(
        "pre_padding", 0, "Elements cut off before each spatial axis of the output."
    )
    post_padding = _Spatial(
        "post_padding", 0, "Elements cut off after each spatial axis of the output."
    )
    padding_mode = _choice(
        "padding_mode",
        e.PaddingMode,
        "Padding as given, or found so that the output has stride_nd times the "
        "input's extent.",
    )
    num_groups = _number("num_groups", "Groups of channels that are deconvolved apart.")


class IDequantizeLayer(ILayer):
    """Multiplication of a quantized tensor by its scale. Inputs: input, scale,
    zero_point."""

    __slots__ = ()
    _type = e.LayerType.DEQUANTIZE
    axis = _number(
        "axis",
        "The axis that scales of rank 1 are for; negative: counted from the last.",
    )
    to_type = _choice("to_type", e.DataType, "The output's type.")
    block_shape = _dims(
        "block_shape",
        "Elements that share a scale on each axis, -1: all; empty: as scales of "
        "the input's rank tell.",
    )


class IDistCollectiveLayer(_DistCollective):
    """An exchange between the devices of several processes (ranks), which run the
    network at the same time, each with its own input. Inputs: input, after."""

    __slots__ = ()
    _type = e.LayerType.DIST_COLLECTIVE


class IDynamicQuantizeLayer(ILayer):
    """Quantization with scales of blocks that are computed from the input. Output 1
    gives them; input 1 may give a number that they are divided by before they are
    rounded. Inputs: input, double_quant_scale."""

    __slots__ = ()
    _type = e.LayerType.DYNAMIC_QUANTIZE
    axis = _number("axis", "The axis that block_size is for.")
    block_size = _number(
        "block_size", "Elements along the axis that share a scale; -1: all."
    )
    block_shape = _dims(
        "block_shape",
        "Elements that share a scale on each axis, in place of axis and "
        "block_size; -1: all.",
    )
    to_type = _choice("to_type", e.DataType, "The output's type.")
    scale_type = _choice("scale_type", e.DataType, "The scales' type.")


class IElementWiseLayer(ILayer):
    """A function of two elements, with broadcasting. Inputs: input1, input2."""

    __slots__ = ()
    _type = e.LayerType.ELEMENTWISE
    op = _choice("op", e.ElementWiseOperation, "The operation.")


class IFillLayer(_Fill):
    """Numbers in even steps, or random numbers; inputs may give shape, alpha and beta.
    Inputs: shape, alpha, beta."""

    __slots__ = ()
    _type = e.LayerType.FILL
    operation = _choice(
        "operation",
        e.FillOperation,
        "Which numbers: in even steps, evenly or normally distributed.",
    )
    shape = _dims("shape", "The output's shape (unless input 0 gives it).")
    alpha = _float(
        "alpha", "First number, least number, or mean (unless input 1 gives it)."
    )
    beta = _float(
        "beta", "Step, largest number, or standard deviation (unless input 2 gives it)."
    )
    to_type = _choice("to_type", e.DataType, "Type of the output.")


class IGatherLayer(ILayer):
    """Elements chosen by indices. Inputs: data, indices."""

    __slots__ = ()
    _type = e.LayerType.GATHER
    axis = _number("axis", "The axis that is indexed (DEFAULT, ELEMENT).")
    num_elementwise_dims = _number(
        "num_elementwise_dims",
        "Leading axes that data and indices share (DEFAULT, ND).",
    )
    mode = _choice("mode", e.GatherMode, "How indices are read.")


class IGridSampleLayer(ILayer):
    """Samples of an image at the points of a grid. Inputs: input, grid."""

    __slots__ = ()
    _type = e.LayerType.GRID_SAMPLE
    interpolation_mode = _choice(
        "interpolation_mode", e.InterpolationMode, "Interpolation between elements."
    )
    sample_mode = _choice(
        "sample_mode", e.SampleMode, "Elements outside the input; FILL: zeros."
    )
    align_corners = _flag(
        "align_corners",
        "-1 and 1 are the centres of the first and last elements, not their ends.",
    )


class IIdentityLayer(ILayer):
    """A copy; in a weakly typed network also a cast to the output's type."""

    __slots__ = ()
    _type = e.LayerType.IDENTITY


class IKVCacheUpdateLayer(ILayer):
    """New elements, written into a cache at given positions. The output shares the
    cache's memory. Inputs: cache, update, write_indices."""

    __slots__ = ()
    _type = e.LayerType.KV_CACHE_UPDATE
    cache_mode = _choice(
        "cache_mode", e.KVCacheMode, "Treatment of rows beyond the cache's end."
    )


class IMatrixMultiplyLayer(ILayer):
    """Products of matrices and vectors, batches broadcast. Inputs: input0, input1."""

    __slots__ = ()
    _type = e.LayerType.MATRIX_MULTIPLY
    op0 = _choice("op0", e.MatrixOperation, "How input 0 is read.")
    op1 = _choice("op1", e.MatrixOperation, "How input 1 is read.")


class IMoELayer(_MoE):
    """A mixture of experts: each token goes through the experts chosen for it. Inputs:
    hidden_states, selected_experts_for_tokens, scores_for_selected_experts,
    fc_gate_weights, fc_up_weights, fc_down_weights, fc_gate_biases, fc_up_biases,
    fc_down_biases, fc_down_activation_scale."""

    __slots__ = ()
    _type = e.LayerType.MOE
    activation_type = _choice("activation_type", e.MoEActType, "Function of the gate.")
    swiglu_param_limit = _float(
        "swiglu_param_limit", "Limit of the gate and of the other factor."
    )
    swiglu_param_alpha = _float(
        "swiglu_param_alpha", "SILU: factor inside the sigmoid."
    )
    swiglu_param_beta = _float("swiglu_param_beta", "Added to the other factor.")
    quantization_to_type = _choice(
        "quantization_to_type",
        e.DataType,
        "Type that the last product's rows are rounded to; FLOAT: none.",
    )
    quantization_block_shape = _dims(
        "quantization_block_shape",
        "Elements of a row that share a computed scale; empty: the scale is given.",
    )
    dyn_q_output_scale_type = _choice(
        "dyn_q_output_scale_type", e.DataType, "Type of computed scales."
    )


class INMSLayer(ILayer):
    """Non-maximum suppression: boxes that no better box of their class overlaps by more
    than a threshold. Inputs: boxes, scores, max_output_boxes_per_class, iou_threshold,
    score_threshold."""

    __slots__ = ()
    _type = e.LayerType.NMS
    bounding_box_format = _choice(
        "bounding_box_format",
        e.BoundingBoxFormat,
        "Whether boxes are two corners, or centre and size.",
    )
    topk_box_limit = _number(
        "topk_box_limit", "Number of best boxes considered in each batch; 0: all."
    )
    indices_type = _choice("indices_type", e.DataType, "Type of the indices.")


class INonZeroLayer(ILayer):
    """Positions of the elements that are not zero, a column for each."""

    __slots__ = ()
    _type = e.LayerType.NON_ZERO
    indices_type = _choice("indices_type", e.DataType, "Type of the indices.")


class INormalizationLayer(_Normalization):
    """Layer, instance, group and RMS normalization. Inputs: input, scale, bias."""

    __slots__ = ()
    _type = e.LayerType.NORMALIZATION
    axes = _number("axes", "Bit i is set to take mean and variance over axis i.")
    epsilon = _float("epsilon", "Added to the variance.")
    num_groups = _number("num_groups", "Groups of channels (axis 1).")
    is_v2 = _flag("is_v2", "With groups: scale and bias are by channel, else by group.")


class IPoolingLayer(_Pooling):
    """Maximum or average of sliding windows."""

    __slots__ = ()
    _type = e.LayerType.POOLING
    type = _choice("type", e.PoolingType, "What is taken.")  # type: ignore[assignment]
    window_size_nd = _dims(
        "window_size_nd", "Extent of the window on each spatial axis."
    )
    stride_nd = _Spatial("stride_nd", 1, "Step of the window on each spatial axis.")
    pre_padding = _Spatial("pre_padding", 0, "Padding before each spatial axis.")
    post_padding = _Spatial("post_padding", 0, "Padding after each spatial axis.")
    padding_mode = _choice(
        "padding_mode",
        e.PaddingMode,
        "How the output's extent is rounded, or padding found from it.",
    )
    blend_factor = _float("blend_factor", "Share of the average in MAX_AVERAGE_BLEND.")
    average_count_excludes_padding = _flag(
        "average_count_excludes_padding",
        "Divide by the number of input elements in the window, not by its size.",
    )


class IQuantizeLayer(ILayer):
    """Division by a scale, rounding to nearest even, saturation. Inputs: input, scale,
    zero_point."""

    __slots__ = ()
    _type = e.LayerType.QUANTIZE
    axis = _number(
        "axis",
        "The axis that scales of rank 1 are for; negative: counted from the last.",
    )
    to_type = _choice("to_type", e.DataType, "The output's type.")
    block_shape = _dims(
        "block_shape",
        "Elements that share a scale on each axis, -1: all; empty: as scales of "
        "the input's rank tell.",
    )


class IReduceLayer(ILayer):
    """Sum, product, extreme or mean over some axes."""

    __slots__ = ()
    _type = e.LayerType.REDUCE
    op = _choice("op", e.ReduceOperation, "The reduction.")
    axes = _number("axes", "Bit i is set to reduce over axis i.")
    keep_dims = _flag("keep_dims", "Keep reduced axes, of extent 1.")


class IResizeLayer(ILayer):
    """Resizing by choosing the nearest element, or by linear or cubic interpolation.
    Inputs: input, shape, scales."""

    __slots__ = ()
    _type = e.LayerType.RESIZE
    shape = _dims(
        "shape", "Extent of the output on each axis (unless input 1 gives it)."
    )
    scales = _floats(
        "scales", "The scale of each axis; with a shape, only where elements are found."
    )
    resize_mode = _choice(
        "resize_mode", e.InterpolationMode, "Interpolation between elements."
    )
    coordinate_transformation = _choice(
        "coordinate_transformation",
        e.ResizeCoordinateTransformation,
        "Where in the input an element of the output lies.",
    )
    selector_for_single_pixel = _choice(
        "selector_for_single_pixel",
        e.ResizeSelector,
        "UPPER: an axis resized to one element takes the first.",
    )
    nearest_rounding = _choice(
        "nearest_rounding", e.ResizeRoundMode, "NEAREST: how positions are rounded."
    )
    exclude_outside = _flag(
        "exclude_outside", "CUBIC: what lies outside the input has no weight."
    )
    cubic_coeff = _float("cubic_coeff", "CUBIC: coefficient of the weights.")


class IReverseSequenceLayer(ILayer):
    """The first elements of each sequence, as many as it has, in reverse order. Inputs:
    input, sequence_lens."""

    __slots__ = ()
    _type = e.LayerType.REVERSE_SEQUENCE
    batch_axis = _number("batch_axis", "The axis along which lengths differ.")
    sequence_axis = _number("sequence_axis", "The axis that is reversed.")


class IScatterLayer(ILayer):
    """Elements written at positions given by indices. Inputs: data, indices,
    updates."""

    __slots__ = ()
    _type = e.LayerType.SCATTER
    mode = _choice("mode", e.ScatterMode, "How indices are read.")
    axis = _number("axis", "ELEMENT: the axis.")


class ISelectLayer(ILayer):
    """Each element chosen from one of two tensors by a condition. Inputs: condition,
    then_input, else_input."""

    __slots__ = ()
    _type = e.LayerType.SELECT


class IShapeLayer(ILayer):
    """The input's dimensions as a vector."""

    __slots__ = ()
    _type = e.LayerType.SHAPE


class IShuffleLayer(_Shuffle):
    """Transpose, reshape, transpose. Inputs: input, shape."""

    __slots__ = ()
    _type = e.LayerType.SHUFFLE
    first_transpose = _order(
        "first_transpose",
        "Axis i of the result is axis first_transpose[i]; empty: none.",
    )
    second_transpose = _order(
        "second_transpose", "A transpose after the reshape; empty: none."
    )
    zero_is_placeholder = _flag(
        "zero_is_placeholder",
        "0 in the new shape copies a dimension, else it is an empty one.",
    )


class ISliceLayer(ILayer):
    """A strided window, with padding by wrapping, clamping, filling or reflecting.
    Inputs: input, start, shape, stride, fill_value, axes."""

    __slots__ = ()
    _type = e.LayerType.SLICE
    start = _dims("start", "First element on each axis (unless input 1 gives it).")
    shape = _dims(
        "shape", "Extent of the output on each axis (unless input 2 gives it)."
    )
    stride = _dims(
        "stride",
        "Step on each axis, possibly negative; default 1 (unless input 3 gives "
        "it).",
    )
    mode = _choice("mode", e.SampleMode, "What lies outside the input.")
    axes = _dims(
        "axes",
        "The axes that start, shape and stride are for; default all (unless input "
        "5 gives them).",
    )


class ISoftMaxLayer(ILayer):
    """Exponentials of an axis, scaled to sum 1."""

    __slots__ = ()
    _type = e.LayerType.SOFTMAX
    axes = _number("axes", "1 << axis; 0: the third axis from the end, or the first.")


class ITopKLayer(ILayer):
    """The largest or smallest elements along an axis, and their indices. Inputs: input,
    k."""

    __slots__ = ()
    _type = e.LayerType.TOPK
    op = _choice("op", e.TopKOperation, "Which are chosen.")
    k = _number("k", "How many (unless input 1 tells).")
    axes = _number("axes", "1 << axis.")
    indices_type = _choice("indices_type", e.DataType, "Type of the indices.")


class IUnaryLayer(ILayer):
    """A mathematical function of each element."""

    __slots__ = ()
    _type = e.LayerType.UNARY
    op = _choice("op", e.UnaryOperation, "The function.")


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
        "dist_collective": IDistCollectiveLayer,
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

__all__ = [
    "IActivationLayer",
    "IAssertionLayer",
    "ICastLayer",
    "IConcatenationLayer",
    "IConstantLayer",
    "IConvolutionLayer",
    "ICumulativeLayer",
    "IDeconvolutionLayer",
    "IDequantizeLayer",
    "IDistCollectiveLayer",
    "IDynamicQuantizeLayer",
    "IElementWiseLayer",
    "IFillLayer",
    "IGatherLayer",
    "IGridSampleLayer",
    "IIdentityLayer",
    "IKVCacheUpdateLayer",
    "IMatrixMultiplyLayer",
    "IMoELayer",
    "INMSLayer",
    "INonZeroLayer",
    "INormalizationLayer",
    "IPoolingLayer",
    "IQuantizeLayer",
    "IReduceLayer",
    "IResizeLayer",
    "IReverseSequenceLayer",
    "IScatterLayer",
    "ISelectLayer",
    "IShapeLayer",
    "IShuffleLayer",
    "ISliceLayer",
    "ISoftMaxLayer",
    "ITopKLayer",
    "IUnaryLayer",
]
