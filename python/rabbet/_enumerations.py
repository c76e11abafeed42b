"""Enumerations, with the names and numbers of TensorRT 10.

Written by tools/operators.py from src/ops and python/enumerations.txt; not
edited by hand."""

from __future__ import annotations

from ._enum import _DataType, _Enum, _IntEnum


class ActivationType(_Enum):
    """Functions of each element x, with parameters alpha and beta.

    RELU: max(x, 0).
    SIGMOID: 1 / (1 + exp(-x)).
    TANH: tanh(x).
    LEAKY_RELU: x where x >= 0, else alpha * x.
    ELU: x where x >= 0, else alpha * (exp(x) - 1).
    SELU: beta * x where x > 0, else beta * (alpha * exp(x) - alpha).
    SOFTSIGN: x / (1 + |x|).
    SOFTPLUS: alpha * log(exp(beta * x) + 1).
    CLIP: x, at least alpha and at most beta.
    HARD_SIGMOID: alpha * x + beta, at least 0 and at most 1.
    SCALED_TANH: alpha * tanh(beta * x).
    THRESHOLDED_RELU: x where x > alpha, else 0.
    GELU_ERF: x * (1 + erf(x / sqrt(2))) / 2.
    GELU_TANH: GELU approximated by tanh.
    """

    RELU = 0
    SIGMOID = 1
    TANH = 2
    LEAKY_RELU = 3
    ELU = 4
    SELU = 5
    SOFTSIGN = 6
    SOFTPLUS = 7
    CLIP = 8
    HARD_SIGMOID = 9
    SCALED_TANH = 10
    THRESHOLDED_RELU = 11
    GELU_ERF = 12
    GELU_TANH = 13


class AllocatorFlag(_IntEnum):
    """Flags of an allocation, for a caller's allocator of device memory.

    RESIZABLE: The memory may be resized later.
    """

    RESIZABLE = 0


class APILanguage(_Enum):
    """Language of a versioned interface.

    CPP: C++.
    PYTHON: Python.
    """

    CPP = 0
    PYTHON = 1


class AttentionNormalizationOp(_Enum):
    """How attention normalizes its scores.

    NONE: Not at all.
    SOFTMAX: By softmax along the keys.
    """

    NONE = 0
    SOFTMAX = 1


class BoundingBoxFormat(_Enum):
    """How boxes are given to non-maximum suppression.

    CORNER_PAIRS: (x1, y1, x2, y2), two opposite corners.
    CENTER_SIZES: (x centre, y centre, width, height).
    """

    CORNER_PAIRS = 0
    CENTER_SIZES = 1


class BuilderFlag(_IntEnum):
    """Permissions and options of a build.

    FP16: Layers may compute in FP16.
    INT8: Layers may compute in INT8, where ranges are known.
    DEBUG: No effect: errors always name the layer.
    GPU_FALLBACK: No effect: there is no DLA to fall back from.
    REFIT: The weights of the engine can be replaced.
    DISABLE_TIMING_CACHE: Measured times are neither read nor kept.
    TF32: Products of FP32 may round their factors to TF32 (GPU); on at first.
    SPARSE_WEIGHTS: No effect: there are no kernels for sparse weights.
    SAFETY_SCOPE: No effect: there are no safety engines.
    OBEY_PRECISION_CONSTRAINTS: No effect: precisions that are set are always kept.
    PREFER_PRECISION_CONSTRAINTS: No effect: precisions that are set are always kept.
    DIRECT_IO: No effect: inputs and outputs always have the formats that are set.
    REJECT_EMPTY_ALGORITHMS: A build fails where an algorithm selector returns nothing.
    VERSION_COMPATIBLE: No effect: a plan is for the release that wrote it.
    EXCLUDE_LEAN_RUNTIME: No effect: plans hold no runtime.
    FP8: No effect: FP8 is used where the network quantizes to it.
    ERROR_ON_TIMING_CACHE_MISS: A build fails where the timing cache lacks a time.
    BF16: Layers may compute in BF16.
    DISABLE_COMPILATION_CACHE: No effect: no such cache is kept.
    WEIGHTLESS: The older name of STRIP_PLAN.
    STRIP_PLAN: The plan has no weights; a refit puts them back.
    REFIT_IDENTICAL: The weights can be replaced by the same ones alone.
    WEIGHT_STREAMING: No effect: weights stay on the device.
    INT4: No effect: no kernel computes in INT4.
    REFIT_INDIVIDUAL: Those weights can be replaced that were marked.
    STRICT_NANS: No effect: no kernel depends on it.
    MONITOR_MEMORY: No effect: the verbose log prints memory.
    FP4: No effect: no kernel computes in FP4.
    EDITABLE_TIMING_CACHE: No effect: timing caches can always be edited.
    DISTRIBUTIVE_INDEPENDENCE: No effect: no result depends on other elements of a
        batch.
    """

    FP16 = 0
    INT8 = 1
    DEBUG = 2
    GPU_FALLBACK = 3
    REFIT = 4
    DISABLE_TIMING_CACHE = 5
    TF32 = 6
    SPARSE_WEIGHTS = 7
    SAFETY_SCOPE = 8
    OBEY_PRECISION_CONSTRAINTS = 9
    PREFER_PRECISION_CONSTRAINTS = 10
    DIRECT_IO = 11
    REJECT_EMPTY_ALGORITHMS = 12
    VERSION_COMPATIBLE = 13
    EXCLUDE_LEAN_RUNTIME = 14
    FP8 = 15
    ERROR_ON_TIMING_CACHE_MISS = 16
    BF16 = 17
    DISABLE_COMPILATION_CACHE = 18
    WEIGHTLESS = 19
    STRIP_PLAN = 19
    REFIT_IDENTICAL = 20
    WEIGHT_STREAMING = 21
    INT4 = 22
    REFIT_INDIVIDUAL = 23
    STRICT_NANS = 24
    MONITOR_MEMORY = 25
    FP4 = 26
    EDITABLE_TIMING_CACHE = 27
    DISTRIBUTIVE_INDEPENDENCE = 28


class CalibrationAlgoType(_Enum):
    """How a calibrator finds the ranges of 8-bit tensors.

    LEGACY_CALIBRATION: By a quantile of the values, and a cut-off.
    ENTROPY_CALIBRATION: By the least loss of information.
    ENTROPY_CALIBRATION_2: The same, as later releases of TensorRT do it.
    MINMAX_CALIBRATION: From the least value to the largest.
    """

    LEGACY_CALIBRATION = 0
    ENTROPY_CALIBRATION = 1
    ENTROPY_CALIBRATION_2 = 2
    MINMAX_CALIBRATION = 3


class CausalMaskKind(_Enum):
    """Which corner a causal mask is aligned to.

    NONE: No mask is causal.
    UPPER_LEFT: The first query sees the first key.
    LOWER_RIGHT: The last query sees the last key.
    """

    NONE = 0
    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CollectiveOperation(_Enum):
    """Exchanges between ranks.

    ALL_REDUCE: Each gets the reduction of all inputs.
    ALL_GATHER: Each gets all inputs, one behind the other.
    BROADCAST: Each gets the root's input.
    REDUCE: The root gets the reduction of all inputs.
    REDUCE_SCATTER: Each gets its block of the reduction of all inputs.
    ALL_TO_ALL: Each gets its block of each input, one behind the other.
    GATHER: The root gets all inputs, one behind the other.
    SCATTER: Each gets its block of the root's input.
    """

    ALL_REDUCE = 0
    ALL_GATHER = 1
    BROADCAST = 2
    REDUCE = 3
    REDUCE_SCATTER = 4
    ALL_TO_ALL = 5
    GATHER = 6
    SCATTER = 7


class CumulativeOperation(_Enum):
    """Operations of a cumulative layer along an axis.

    SUM: Sums.
    """

    SUM = 0


class DataType(_DataType):
    """Type of a tensor's elements.

    FLOAT: FP32: 32-bit floating point.
    HALF: FP16: 16-bit floating point, up to 65504.
    INT8: 8-bit integers, or quantized values.
    INT32: 32-bit integers.
    BOOL: Truth values, a byte each.
    UINT8: 8-bit integers from 0 to 255.
    FP8: 8-bit floating point, E4M3.
    BF16: bfloat16: the range of FP32 with 8 bits of precision.
    INT64: 64-bit integers.
    INT4: 4-bit integers, two to a byte; for weights.
    FP4: 4-bit floating point, E2M1, two to a byte; for weights.
    E8M0: Powers of two, for scales of blocks.
    DOUBLE: FP64: 64-bit floating point, on the CPU.
    NF4: 4 bits, two to a byte: quantiles of a normal distribution; for weights.
    """

    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8
    INT4 = 9
    FP4 = 10
    E8M0 = 11
    DOUBLE = 12
    NF4 = 13


class DeviceType(_Enum):
    """Where a layer shall run.

    GPU: The device of the build.
    DLA: A deep learning accelerator; there is none.
    """

    GPU = 0
    DLA = 1


class DimensionOperation(_IntEnum):
    """Operations of expressions of dimensions.

    SUM: a + b.
    PROD: a * b.
    MAX: The larger.
    MIN: The smaller.
    SUB: a - b.
    EQUAL: 1 where a == b, else 0.
    LESS: 1 where a < b, else 0.
    FLOOR_DIV: a / b, rounded down.
    CEIL_DIV: a / b, rounded up.
    """

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    EQUAL = 5
    LESS = 6
    FLOOR_DIV = 7
    CEIL_DIV = 8


class ElementWiseOperation(_Enum):
    """Operations on two elements a and b; shapes are broadcast.

    SUM: a + b.
    PROD: a * b.
    MAX: The larger.
    MIN: The smaller.
    SUB: a - b.
    DIV: a / b.
    POW: a to the power of b.
    FLOOR_DIV: a / b, rounded down.
    AND: Both are true; of integers, both bits are set.
    OR: One is true; of integers, one bit is set.
    XOR: Exactly one is true; of integers, exactly one bit is set.
    EQUAL: a == b.
    GREATER: a > b.
    LESS: a < b.
    """

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    DIV = 5
    POW = 6
    FLOOR_DIV = 7
    AND = 8
    OR = 9
    XOR = 10
    EQUAL = 11
    GREATER = 12
    LESS = 13


class EngineCapability(_IntEnum):
    """Uses of an engine.

    STANDARD: Any use.
    SAFETY: A runtime for functional safety; there is none.
    DLA_STANDALONE: A DLA alone; there is none.
    """

    STANDARD = 0
    SAFETY = 1
    DLA_STANDALONE = 2


class EngineStat(_IntEnum):
    """Figures that get_engine_stat gives.

    TOTAL_WEIGHTS_SIZE: Bytes of the weights.
    STRIPPED_WEIGHTS_SIZE: Bytes of the weights that were left out of the plan.
    """

    TOTAL_WEIGHTS_SIZE = 0
    STRIPPED_WEIGHTS_SIZE = 1


class ErrorCode(_Enum):
    """Why an ONNX model was not imported.

    SUCCESS: It was.
    INTERNAL_ERROR: A fault of the importer.
    MEM_ALLOC_FAILED: There is not enough memory.
    MODEL_DESERIALIZE_FAILED: The file is no ONNX model, or damaged.
    INVALID_VALUE: A value is out of range.
    INVALID_GRAPH: The graph is not well-formed.
    INVALID_NODE: A node is not well-formed.
    UNSUPPORTED_GRAPH: The graph has something that is not imported.
    UNSUPPORTED_NODE: The operator is not imported.
    UNSUPPORTED_NODE_ATTR: An attribute of the node is not imported.
    UNSUPPORTED_NODE_INPUT: An input of the node is not imported.
    UNSUPPORTED_NODE_DATATYPE: A type of the node is not imported.
    UNSUPPORTED_NODE_DYNAMIC: The node is not imported with dynamic sizes.
    UNSUPPORTED_NODE_SHAPE: A shape of the node is not imported.
    REFIT_FAILED: Weights could not be replaced.
    """

    SUCCESS = 0
    INTERNAL_ERROR = 1
    MEM_ALLOC_FAILED = 2
    MODEL_DESERIALIZE_FAILED = 3
    INVALID_VALUE = 4
    INVALID_GRAPH = 5
    INVALID_NODE = 6
    UNSUPPORTED_GRAPH = 7
    UNSUPPORTED_NODE = 8
    UNSUPPORTED_NODE_ATTR = 9
    UNSUPPORTED_NODE_INPUT = 10
    UNSUPPORTED_NODE_DATATYPE = 11
    UNSUPPORTED_NODE_DYNAMIC = 12
    UNSUPPORTED_NODE_SHAPE = 13
    REFIT_FAILED = 14


class ErrorCodeTRT(_IntEnum):
    """Kinds of errors, for an error recorder.

    SUCCESS: None.
    UNSPECIFIED_ERROR: Of no other kind.
    INTERNAL_ERROR: A fault of the library.
    INVALID_ARGUMENT: A wrong argument.
    INVALID_CONFIG: Settings that do not go together.
    FAILED_ALLOCATION: There is not enough memory.
    FAILED_INITIALIZATION: A device or library could not be opened.
    FAILED_EXECUTION: A run failed.
    FAILED_COMPUTATION: A computation has no result.
    INVALID_STATE: The call came at a wrong time.
    UNSUPPORTED_STATE: The state is not supported.
    """

    SUCCESS = 0
    UNSPECIFIED_ERROR = 1
    INTERNAL_ERROR = 2
    INVALID_ARGUMENT = 3
    INVALID_CONFIG = 4
    FAILED_ALLOCATION = 5
    FAILED_INITIALIZATION = 6
    FAILED_EXECUTION = 7
    FAILED_COMPUTATION = 8
    INVALID_STATE = 9
    UNSUPPORTED_STATE = 10


class ExecutionContextAllocationStrategy(_IntEnum):
    """When a context gets its memory.

    STATIC: When it is made, for the largest shapes of all profiles.
    ON_PROFILE_CHANGE: When its profile is set, for the profile's largest shapes.
    USER_MANAGED: Never: the caller gives it (set_device_memory).
    """

    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class FillOperation(_Enum):
    """Contents that a fill layer makes.

    LINSPACE: Numbers in equal steps: a start and a step for each axis.
    RANDOM_UNIFORM: Random numbers, equally likely between two limits.
    RANDOM_NORMAL: Random numbers with a mean and a deviation.
    """

    LINSPACE = 0
    RANDOM_UNIFORM = 1
    RANDOM_NORMAL = 2


class GatherMode(_Enum):
    """How indices choose.

    DEFAULT: Whole slices along one axis.
    ELEMENT: An element for each index, along one axis.
    ND: A slice for each tuple of indices.
    """

    DEFAULT = 0
    ELEMENT = 1
    ND = 2


class HardwareCompatibilityLevel(_Enum):
    """Which other GPUs a plan is for.

    NONE: None.
    AMPERE_PLUS: Ampere and later.
    SAME_COMPUTE_CAPABILITY: Those of the same compute capability.
    """

    NONE = 0
    AMPERE_PLUS = 1
    SAME_COMPUTE_CAPABILITY = 2


class InterpolationMode(_Enum):
    """How values between elements are found.

    NEAREST: That of the nearest element.
    LINEAR: Linearly, of the elements around.
    CUBIC: By a cubic polynomial of the elements around.
    """

    NEAREST = 0
    LINEAR = 1
    CUBIC = 2


class KVCacheMode(_Enum):
    """How a cache of keys and values is laid out.

    LINEAR: As one tensor, position after position.
    """

    LINEAR = 0


class LayerInformationFormat(_Enum):
    """How the inspector prints.

    ONELINE: A line for a layer.
    JSON: JSON.
    """

    ONELINE = 0
    JSON = 1


class LayerType(_Enum):
    """Kinds of layers.

    CONVOLUTION: IConvolutionLayer.
    CAST: ICastLayer.
    ACTIVATION: IActivationLayer.
    POOLING: IPoolingLayer.
    LRN: ILRNLayer.
    SCALE: IScaleLayer.
    SOFTMAX: ISoftMaxLayer.
    DECONVOLUTION: IDeconvolutionLayer.
    CONCATENATION: IConcatenationLayer.
    ELEMENTWISE: IElementWiseLayer.
    PLUGIN: A plugin of TensorRT's first interface.
    UNARY: IUnaryLayer.
    PADDING: IPaddingLayer.
    SHUFFLE: IShuffleLayer.
    REDUCE: IReduceLayer.
    TOPK: ITopKLayer.
    GATHER: IGatherLayer.
    MATRIX_MULTIPLY: IMatrixMultiplyLayer.
    RAGGED_SOFTMAX: IRaggedSoftMaxLayer.
    CONSTANT: IConstantLayer.
    IDENTITY: IIdentityLayer.
    PLUGIN_V2: IPluginV2Layer.
    SLICE: ISliceLayer.
    SHAPE: IShapeLayer.
    PARAMETRIC_RELU: IParametricReLULayer.
    RESIZE: IResizeLayer.
    TRIP_LIMIT: ITripLimitLayer.
    RECURRENCE: IRecurrenceLayer.
    ITERATOR: IIteratorLayer.
    LOOP_OUTPUT: ILoopOutputLayer.
    SELECT: ISelectLayer.
    FILL: IFillLayer.
    QUANTIZE: IQuantizeLayer.
    DEQUANTIZE: IDequantizeLayer.
    CONDITION: IConditionLayer.
    CONDITIONAL_INPUT: IIfConditionalInputLayer.
    CONDITIONAL_OUTPUT: IIfConditionalOutputLayer.
    SCATTER: IScatterLayer.
    EINSUM: IEinsumLayer.
    ASSERTION: IAssertionLayer.
    ONE_HOT: IOneHotLayer.
    NON_ZERO: INonZeroLayer.
    GRID_SAMPLE: IGridSampleLayer.
    NMS: INMSLayer.
    REVERSE_SEQUENCE: IReverseSequenceLayer.
    NORMALIZATION: INormalizationLayer.
    PLUGIN_V3: IPluginV3Layer.
    SQUEEZE: ISqueezeLayer.
    UNSQUEEZE: IUnsqueezeLayer.
    CUMULATIVE: ICumulativeLayer.
    DYNAMIC_QUANTIZE: IDynamicQuantizeLayer.
    ATTENTION_INPUT: IAttentionInputLayer.
    ATTENTION_OUTPUT: IAttentionOutputLayer.
    ROTARY_EMBEDDING: IRotaryEmbeddingLayer.
    KV_CACHE_UPDATE: IKVCacheUpdateLayer.
    MOE: IMoELayer.
    DIST_COLLECTIVE: IDistCollectiveLayer.
    """

    CONVOLUTION = 0
    CAST = 1
    ACTIVATION = 2
    POOLING = 3
    LRN = 4
    SCALE = 5
    SOFTMAX = 6
    DECONVOLUTION = 7
    CONCATENATION = 8
    ELEMENTWISE = 9
    PLUGIN = 10
    UNARY = 11
    PADDING = 12
    SHUFFLE = 13
    REDUCE = 14
    TOPK = 15
    GATHER = 16
    MATRIX_MULTIPLY = 17
    RAGGED_SOFTMAX = 18
    CONSTANT = 19
    IDENTITY = 20
    PLUGIN_V2 = 21
    SLICE = 22
    SHAPE = 23
    PARAMETRIC_RELU = 24
    RESIZE = 25
    TRIP_LIMIT = 26
    RECURRENCE = 27
    ITERATOR = 28
    LOOP_OUTPUT = 29
    SELECT = 30
    FILL = 31
    QUANTIZE = 32
    DEQUANTIZE = 33
    CONDITION = 34
    CONDITIONAL_INPUT = 35
    CONDITIONAL_OUTPUT = 36
    SCATTER = 37
    EINSUM = 38
    ASSERTION = 39
    ONE_HOT = 40
    NON_ZERO = 41
    GRID_SAMPLE = 42
    NMS = 43
    REVERSE_SEQUENCE = 44
    NORMALIZATION = 45
    PLUGIN_V3 = 46
    SQUEEZE = 47
    UNSQUEEZE = 48
    CUMULATIVE = 49
    DYNAMIC_QUANTIZE = 50
    ATTENTION_INPUT = 51
    ATTENTION_OUTPUT = 52
    ROTARY_EMBEDDING = 53
    KV_CACHE_UPDATE = 54
    MOE = 55
    DIST_COLLECTIVE = 56


class LoopOutput(_Enum):
    """Outputs of a loop for a tensor of its body.

    LAST_VALUE: That of the last iteration.
    CONCATENATE: Those of all iterations, in order.
    REVERSE: Those of all iterations, the last one first.
    """

    LAST_VALUE = 0
    CONCATENATE = 1
    REVERSE = 2


class MatrixOperation(_Enum):
    """How a factor of a product is read.

    NONE: As it is.
    TRANSPOSE: With its last two axes exchanged.
    VECTOR: As vectors along its last axis.
    """

    NONE = 0
    TRANSPOSE = 1
    VECTOR = 2


class MemoryPoolType(_Enum):
    """Memory that a build may be limited in.

    WORKSPACE: Scratch memory of a kernel, in bytes.
    DLA_MANAGED_SRAM: Of a DLA; there is none.
    DLA_LOCAL_DRAM: Of a DLA; there is none.
    DLA_GLOBAL_DRAM: Of a DLA; there is none.
    TACTIC_DRAM: Memory of the device while kernels are tried.
    TACTIC_SHARED_MEMORY: Shared memory of a block of threads.
    """

    WORKSPACE = 0
    DLA_MANAGED_SRAM = 1
    DLA_LOCAL_DRAM = 2
    DLA_GLOBAL_DRAM = 3
    TACTIC_DRAM = 4
    TACTIC_SHARED_MEMORY = 5


class MoEActType(_Enum):
    """The activation between the products of experts.

    NONE: None.
    SILU: x / (1 + exp(-x)).
    """

    NONE = 0
    SILU = 1


class NetworkDefinitionCreationFlag(_IntEnum):
    """How a network is.

    EXPLICIT_BATCH: The batch is a dimension like others; always so.
    STRONGLY_TYPED: Types follow from the inputs' and from casts; no layer chooses its
        own.
    PREFER_JIT_PYTHON_PLUGINS: Python plugins run by impl where they have kernels made
        ahead, too.
    PREFER_AOT_PYTHON_PLUGINS: Python plugins run by kernels made ahead of time where
        they have impl, too.
    """

    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1
    PREFER_JIT_PYTHON_PLUGINS = 2
    PREFER_AOT_PYTHON_PLUGINS = 3


class OnnxParserFlag(_Enum):
    """How ONNX models are imported.

    NATIVE_INSTANCENORM: No effect: InstanceNorm is built in.
    ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA: No effect: there is no DLA.
    REPORT_CAPABILITY_DLA: No effect: there is no DLA.
    ENABLE_PLUGIN_OVERRIDE: A plugin wins over an operator of its name.
    ADJUST_FOR_DLA: No effect: there is no DLA.
    """

    NATIVE_INSTANCENORM = 0
    ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA = 1
    REPORT_CAPABILITY_DLA = 2
    ENABLE_PLUGIN_OVERRIDE = 3
    ADJUST_FOR_DLA = 4


class PaddingMode(_Enum):
    """Where windows lie at the borders.

    EXPLICIT_ROUND_DOWN: By the padding that is given; windows that do not fit are left
        out.
    EXPLICIT_ROUND_UP: The same, but a last window may reach beyond.
    SAME_UPPER: Padding so that the size is the input's by stride, the odd one at the
        end.
    SAME_LOWER: The same, the odd one at the beginning.
    """

    EXPLICIT_ROUND_DOWN = 0
    EXPLICIT_ROUND_UP = 1
    SAME_UPPER = 2
    SAME_LOWER = 3


class PluginArgDataType(_IntEnum):
    """Type of an argument of a kernel made ahead of time.

    INT8: 8 bits.
    INT16: 16 bits.
    INT32: 32 bits.
    """

    INT8 = 0
    INT16 = 1
    INT32 = 2


class PluginArgType(_IntEnum):
    """Kind of an argument of a kernel made ahead of time.

    INT: An integer.
    """

    INT = 0


class PluginCapabilityType(_IntEnum):
    """Interface of a plugin of version 3.

    CORE: Its name and version.
    BUILD: What a build asks.
    RUNTIME: What a run asks.
    """

    CORE = 0
    BUILD = 1
    RUNTIME = 2


class PluginCreatorVersion(_Enum):
    """Interface of a plugin's creator.

    V1: As of C++.
    V1_PYTHON: As of Python.
    """

    V1 = 0
    V1_PYTHON = 1


class PluginFieldType(_Enum):
    """Type of a plugin's field.

    FLOAT16: FP16.
    FLOAT32: FP32.
    FLOAT64: FP64.
    INT8: 8-bit integers.
    INT16: 16-bit integers.
    INT32: 32-bit integers.
    CHAR: Text.
    DIMS: Dimensions.
    UNKNOWN: Bytes.
    BF16: BF16.
    INT64: 64-bit integers.
    FP8: FP8.
    INT4: 4-bit integers.
    FP4: 4-bit floating point.
    """

    FLOAT16 = 0
    FLOAT32 = 1
    FLOAT64 = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    CHAR = 6
    DIMS = 7
    UNKNOWN = 8
    BF16 = 9
    INT64 = 10
    FP8 = 11
    INT4 = 12
    FP4 = 13


class PoolingType(_Enum):
    """Results of pooling for a window.

    MAX: The largest element.
    AVERAGE: The mean.
    MAX_AVERAGE_BLEND: Of both, by blend_factor.
    """

    MAX = 0
    AVERAGE = 1
    MAX_AVERAGE_BLEND = 2


class PreviewFeature(_Enum):
    """Features of TensorRT that can be tried before they are on.

    PROFILE_SHARING_0806: No effect: previews are always on.
    ALIASED_PLUGIN_IO_10_03: No effect: previews are always on.
    RUNTIME_ACTIVATION_RESIZE_10_10: No effect: memory always fits the shapes.
    MULTIDEVICE_RUNTIME_10_16: No effect: a plan runs on one device.
    """

    PROFILE_SHARING_0806 = 0
    ALIASED_PLUGIN_IO_10_03 = 1
    RUNTIME_ACTIVATION_RESIZE_10_10 = 2
    MULTIDEVICE_RUNTIME_10_16 = 3


class ProfilingVerbosity(_Enum):
    """Details of its layers that a plan keeps.

    LAYER_NAMES_ONLY: Their names.
    NONE: Nothing.
    DETAILED: Everything, with tactics and times.
    """

    LAYER_NAMES_ONLY = 0
    NONE = 1
    DETAILED = 2


class QuantizationFlag(_IntEnum):
    """When calibration is done.

    CALIBRATE_BEFORE_FUSION: Before layers are fused.
    """

    CALIBRATE_BEFORE_FUSION = 0


class QuickPluginCreationRequest(_IntEnum):
    """Which of its two ways a plugin shall run.

    UNKNOWN: Either.
    PREFER_JIT: By impl, if it has one.
    PREFER_AOT: By kernels made ahead of time, if it has them.
    STRICT_JIT: By impl alone.
    STRICT_AOT: By kernels made ahead of time alone.
    """

    UNKNOWN = 0
    PREFER_JIT = 1
    PREFER_AOT = 2
    STRICT_JIT = 3
    STRICT_AOT = 4


class ReduceOperation(_Enum):
    """Operations along the axes that are reduced.

    SUM: The sum.
    PROD: The product.
    MAX: The largest element.
    MIN: The smallest element.
    AVG: The mean.
    NONE: Nothing: for collective layers.
    """

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    NONE = 5


class ResizeCoordinateTransformation(_Enum):
    """Which place of the input an index of the output stands for.

    ALIGN_CORNERS: The first and the last elements lie on one another.
    ASYMMETRIC: index / scale.
    HALF_PIXEL: (index + 0.5) / scale - 0.5.
    """

    ALIGN_CORNERS = 0
    ASYMMETRIC = 1
    HALF_PIXEL = 2


class ResizeRoundMode(_Enum):
    """How NEAREST rounds.

    HALF_UP: To the nearest; halves up.
    HALF_DOWN: To the nearest; halves down.
    FLOOR: Down.
    CEIL: Up.
    """

    HALF_UP = 0
    HALF_DOWN = 1
    FLOOR = 2
    CEIL = 3


class ResizeSelector(_Enum):
    """The source of an output of a single element.

    FORMULA: What the transformation says.
    UPPER: The first element.
    """

    FORMULA = 0
    UPPER = 1


class RuntimePlatform(_Enum):
    """Where a plan shall run.

    SAME_AS_BUILD: Where it was built.
    WINDOWS_AMD64: Windows.
    """

    SAME_AS_BUILD = 0
    WINDOWS_AMD64 = 1


class SampleMode(_Enum):
    """Elements beyond the input.

    STRICT_BOUNDS: Nothing: indices must lie within.
    WRAP: The input again.
    CLAMP: The border's elements.
    FILL: A value that is given, or 0.
    REFLECT: The input, mirrored.
    """

    STRICT_BOUNDS = 0
    WRAP = 1
    CLAMP = 2
    FILL = 3
    REFLECT = 4


class ScaleMode(_Enum):
    """Granularities of a scale layer's weights.

    UNIFORM: One for all elements.
    CHANNEL: One for each channel.
    ELEMENTWISE: One for each element.
    """

    UNIFORM = 0
    CHANNEL = 1
    ELEMENTWISE = 2


class ScatterMode(_Enum):
    """Where updates go.

    ELEMENT: An element for each index, along one axis.
    ND: A slice for each tuple of indices.
    """

    ELEMENT = 0
    ND = 1


class SeekPosition(_IntEnum):
    """Origins from which a position of a stream is counted.

    SET: The beginning.
    CUR: Where it is.
    END: The end.
    """

    SET = 0
    CUR = 1
    END = 2


class SerializationFlag(_IntEnum):
    """Contents of a serialized engine.

    EXCLUDE_WEIGHTS: No weights that a refit can put back.
    EXCLUDE_LEAN_RUNTIME: No effect: plans hold no runtime.
    INCLUDE_REFIT: What was stripped can be put back again and again.
    """

    EXCLUDE_WEIGHTS = 0
    EXCLUDE_LEAN_RUNTIME = 1
    INCLUDE_REFIT = 2


class Severity(_IntEnum):
    """How urgent a message is.

    INTERNAL_ERROR: A fault of the library.
    ERROR: A call failed.
    WARNING: Something may be other than was meant.
    INFO: What is going on.
    VERBOSE: Details of it.
    """

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class TacticSource(_IntEnum):
    """Libraries whose kernels a build may use.

    CUBLAS: cuBLAS.
    CUBLAS_LT: cuBLASLt.
    CUDNN: cuDNN.
    EDGE_MASK_CONVOLUTIONS: No effect: Rabbet's own kernels are always tried.
    JIT_CONVOLUTIONS: No effect: Rabbet's own kernels are always tried.
    """

    CUBLAS = 0
    CUBLAS_LT = 1
    CUDNN = 2
    EDGE_MASK_CONVOLUTIONS = 3
    JIT_CONVOLUTIONS = 4


class TempfileControlFlag(_Enum):
    """Where files may be made that a plan needs.

    ALLOW_IN_MEMORY_FILES: In memory.
    ALLOW_TEMPORARY_FILES: In a folder of temporary files.
    """

    ALLOW_IN_MEMORY_FILES = 0
    ALLOW_TEMPORARY_FILES = 1


class TensorFormat(_IntEnum):
    """How elements lie in memory. Blocks of channels may be padded.

    LINEAR: Row-major.
    CHW2: [N, C/2, H, W, 2].
    HWC8: [N, H, W, C], C padded to a multiple of 8.
    CHW4: [N, C/4, H, W, 4].
    CHW16: [N, C/16, H, W, 16].
    CHW32: [N, C/32, H, W, 32].
    DHWC8: [N, D, H, W, C], C padded to a multiple of 8.
    CDHW32: [N, C/32, D, H, W, 32].
    HWC: [N, H, W, C].
    DLA_LINEAR: Of a DLA; there is none.
    DLA_HWC4: Of a DLA; there is none.
    HWC16: [N, H, W, C], C padded to a multiple of 16.
    DHWC: [N, D, H, W, C].
    CHW8: [N, C/8, H, W, 8].
    """

    LINEAR = 0
    CHW2 = 1
    HWC8 = 2
    CHW4 = 3
    CHW16 = 4
    CHW32 = 5
    DHWC8 = 6
    CDHW32 = 7
    HWC = 8
    DLA_LINEAR = 9
    DLA_HWC4 = 10
    HWC16 = 11
    DHWC = 12
    CHW8 = 64


class TensorIOMode(_Enum):
    """Roles of a tensor in an engine.

    NONE: Neither input nor output.
    INPUT: An input.
    OUTPUT: An output.
    """

    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(_Enum):
    """Where a tensor's memory is.

    DEVICE: On the device.
    HOST: On the host.
    """

    DEVICE = 0
    HOST = 1


class TensorRTPhase(_IntEnum):
    """When a plugin is made.

    BUILD: For a build.
    RUNTIME: For a plan that is loaded.
    """

    BUILD = 0
    RUNTIME = 1


class TilingOptimizationLevel(_Enum):
    """How long a build looks for tilings.

    NONE: Not at all.
    FAST: Shortly.
    MODERATE: A while.
    FULL: As long as it takes.
    """

    NONE = 0
    FAST = 1
    MODERATE = 2
    FULL = 3


class TopKOperation(_Enum):
    """Which elements are looked for.

    MAX: The largest.
    MIN: The smallest.
    """

    MAX = 0
    MIN = 1


class TripLimit(_Enum):
    """Limits that end a loop.

    COUNT: A number of iterations.
    WHILE: A condition that does not hold any more.
    """

    COUNT = 0
    WHILE = 1


class UnaryOperation(_Enum):
    """Functions of each element.

    EXP: e to its power.
    LOG: The natural logarithm.
    SQRT: The square root.
    RECIP: 1 / x.
    ABS: The absolute value.
    NEG: -x.
    SIN: The sine.
    COS: The cosine.
    TAN: The tangent.
    SINH: The hyperbolic sine.
    COSH: The hyperbolic cosine.
    ASIN: The arc sine.
    ACOS: The arc cosine.
    ATAN: The arc tangent.
    ASINH: The inverse hyperbolic sine.
    ACOSH: The inverse hyperbolic cosine.
    ATANH: The inverse hyperbolic tangent.
    CEIL: Rounded up.
    FLOOR: Rounded down.
    ERF: The error function.
    NOT: Whether it is false.
    SIGN: -1, 0 or 1.
    ROUND: Rounded to the nearest integer, halves to even.
    ISINF: Whether it is infinite.
    ISNAN: Whether it is NaN.
    """

    EXP = 0
    LOG = 1
    SQRT = 2
    RECIP = 3
    ABS = 4
    NEG = 5
    SIN = 6
    COS = 7
    TAN = 8
    SINH = 9
    COSH = 10
    ASIN = 11
    ACOS = 12
    ATAN = 13
    ASINH = 14
    ACOSH = 15
    ATANH = 16
    CEIL = 17
    FLOOR = 18
    ERF = 19
    NOT = 20
    SIGN = 21
    ROUND = 22
    ISINF = 23
    ISNAN = 24


class WeightsRole(_Enum):
    """Roles of the weights of a layer.

    KERNEL: Its kernel.
    BIAS: Its bias.
    SHIFT: The shift of a scale layer.
    SCALE: The scale of a scale layer.
    CONSTANT: The values of a constant.
    ANY: Any.
    """

    KERNEL = 0
    BIAS = 1
    SHIFT = 2
    SCALE = 3
    CONSTANT = 4
    ANY = 5


__all__ = [
    "APILanguage",
    "ActivationType",
    "AllocatorFlag",
    "AttentionNormalizationOp",
    "BoundingBoxFormat",
    "BuilderFlag",
    "CalibrationAlgoType",
    "CausalMaskKind",
    "CollectiveOperation",
    "CumulativeOperation",
    "DataType",
    "DeviceType",
    "DimensionOperation",
    "ElementWiseOperation",
    "EngineCapability",
    "EngineStat",
    "ErrorCode",
    "ErrorCodeTRT",
    "ExecutionContextAllocationStrategy",
    "FillOperation",
    "GatherMode",
    "HardwareCompatibilityLevel",
    "InterpolationMode",
    "KVCacheMode",
    "LayerInformationFormat",
    "LayerType",
    "LoopOutput",
    "MatrixOperation",
    "MemoryPoolType",
    "MoEActType",
    "NetworkDefinitionCreationFlag",
    "OnnxParserFlag",
    "PaddingMode",
    "PluginArgDataType",
    "PluginArgType",
    "PluginCapabilityType",
    "PluginCreatorVersion",
    "PluginFieldType",
    "PoolingType",
    "PreviewFeature",
    "ProfilingVerbosity",
    "QuantizationFlag",
    "QuickPluginCreationRequest",
    "ReduceOperation",
    "ResizeCoordinateTransformation",
    "ResizeRoundMode",
    "ResizeSelector",
    "RuntimePlatform",
    "SampleMode",
    "ScaleMode",
    "ScatterMode",
    "SeekPosition",
    "SerializationFlag",
    "Severity",
    "TacticSource",
    "TempfileControlFlag",
    "TensorFormat",
    "TensorIOMode",
    "TensorLocation",
    "TensorRTPhase",
    "TilingOptimizationLevel",
    "TopKOperation",
    "TripLimit",
    "UnaryOperation",
    "WeightsRole",
]
