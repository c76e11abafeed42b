"""Enumerations, with the names and numbers of TensorRT 10.

Those that take part in arithmetic there (flags, formats) are integers here."""

from __future__ import annotations

import enum


class _Enum(enum.Enum):
    """A closed set of names; `int(x)` and `Class(number)` convert."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class _IntEnum(enum.IntEnum):
    """A closed set of names that are numbers as well."""

    __str__ = _Enum.__str__


class ActivationType(_Enum):
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
    RESIZABLE = 0


class APILanguage(_Enum):
    CPP = 0
    PYTHON = 1


class AttentionNormalizationOp(_Enum):
    NONE = 0
    SOFTMAX = 1


class CausalMaskKind(_Enum):
    """Of release 11: which corner of the scores the diagonal of a causal mask ends in,
    where there are more keys than queries, or fewer."""

    NONE = 0
    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class BoundingBoxFormat(_Enum):
    CORNER_PAIRS = 0
    CENTER_SIZES = 1


class BuilderFlag(_IntEnum):
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
    LEGACY_CALIBRATION = 0
    ENTROPY_CALIBRATION = 1
    ENTROPY_CALIBRATION_2 = 2
    MINMAX_CALIBRATION = 3


class CollectiveOperation(_Enum):
    ALL_REDUCE = 0
    ALL_GATHER = 1
    BROADCAST = 2
    REDUCE = 3
    REDUCE_SCATTER = 4


class CumulativeOperation(_Enum):
    SUM = 0


class DataType(_Enum):
    """Type of a tensor's elements."""

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

    @property
    def itemsize(self) -> float:
        """Bytes of one element; 0.5 where two share a byte."""
        return _ITEM_SIZES[self]


class DeviceType(_Enum):
    GPU = 0
    DLA = 1


class DimensionOperation(_IntEnum):
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
    STANDARD = 0
    SAFETY = 1
    DLA_STANDALONE = 2


class EngineStat(_IntEnum):
    TOTAL_WEIGHTS_SIZE = 0
    STRIPPED_WEIGHTS_SIZE = 1


class ErrorCode(_Enum):
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
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class FillOperation(_Enum):
    LINSPACE = 0
    RANDOM_UNIFORM = 1
    RANDOM_NORMAL = 2


class GatherMode(_Enum):
    DEFAULT = 0
    ELEMENT = 1
    ND = 2


class HardwareCompatibilityLevel(_Enum):
    NONE = 0
    AMPERE_PLUS = 1
    SAME_COMPUTE_CAPABILITY = 2


class Severity(_IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class InterpolationMode(_Enum):
    NEAREST = 0
    LINEAR = 1
    CUBIC = 2


class KVCacheMode(_Enum):
    LINEAR = 0


class LayerInformationFormat(_Enum):
    ONELINE = 0
    JSON = 1


class LayerType(_Enum):
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
    LAST_VALUE = 0
    CONCATENATE = 1
    REVERSE = 2


class MatrixOperation(_Enum):
    NONE = 0
    TRANSPOSE = 1
    VECTOR = 2


class MemoryPoolType(_Enum):
    WORKSPACE = 0
    DLA_MANAGED_SRAM = 1
    DLA_LOCAL_DRAM = 2
    DLA_GLOBAL_DRAM = 3
    TACTIC_DRAM = 4
    TACTIC_SHARED_MEMORY = 5


class MoEActType(_Enum):
    NONE = 0
    SILU = 1


class NetworkDefinitionCreationFlag(_IntEnum):
    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1
    PREFER_JIT_PYTHON_PLUGINS = 2
    PREFER_AOT_PYTHON_PLUGINS = 3


class OnnxParserFlag(_Enum):
    NATIVE_INSTANCENORM = 0
    ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA = 1
    REPORT_CAPABILITY_DLA = 2
    ENABLE_PLUGIN_OVERRIDE = 3
    ADJUST_FOR_DLA = 4


class PaddingMode(_Enum):
    EXPLICIT_ROUND_DOWN = 0
    EXPLICIT_ROUND_UP = 1
    SAME_UPPER = 2
    SAME_LOWER = 3


class PluginArgDataType(_IntEnum):
    INT8 = 0
    INT16 = 1
    INT32 = 2


class PluginArgType(_IntEnum):
    INT = 0


class PluginCapabilityType(_IntEnum):
    CORE = 0
    BUILD = 1
    RUNTIME = 2


class PluginCreatorVersion(_Enum):
    V1 = 0
    V1_PYTHON = 1


class PluginFieldType(_Enum):
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
    MAX = 0
    AVERAGE = 1
    MAX_AVERAGE_BLEND = 2


class PreviewFeature(_Enum):
    PROFILE_SHARING_0806 = 0
    ALIASED_PLUGIN_IO_10_03 = 1
    RUNTIME_ACTIVATION_RESIZE_10_10 = 2
    MULTIDEVICE_RUNTIME_10_16 = 3


class ProfilingVerbosity(_Enum):
    LAYER_NAMES_ONLY = 0
    NONE = 1
    DETAILED = 2


class QuantizationFlag(_IntEnum):
    CALIBRATE_BEFORE_FUSION = 0


class QuickPluginCreationRequest(_IntEnum):
    UNKNOWN = 0
    PREFER_JIT = 1
    PREFER_AOT = 2
    STRICT_JIT = 3
    STRICT_AOT = 4


class ReduceOperation(_Enum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    NONE = 5


class ResizeCoordinateTransformation(_Enum):
    ALIGN_CORNERS = 0
    ASYMMETRIC = 1
    HALF_PIXEL = 2


class ResizeRoundMode(_Enum):
    HALF_UP = 0
    HALF_DOWN = 1
    FLOOR = 2
    CEIL = 3


class ResizeSelector(_Enum):
    FORMULA = 0
    UPPER = 1


class RuntimePlatform(_Enum):
    SAME_AS_BUILD = 0
    WINDOWS_AMD64 = 1


class SampleMode(_Enum):
    STRICT_BOUNDS = 0
    WRAP = 1
    CLAMP = 2
    FILL = 3
    REFLECT = 4


class ScaleMode(_Enum):
    UNIFORM = 0
    CHANNEL = 1
    ELEMENTWISE = 2


class ScatterMode(_Enum):
    ELEMENT = 0
    ND = 1


class SeekPosition(_IntEnum):
    SET = 0
    CUR = 1
    END = 2


class SerializationFlag(_IntEnum):
    EXCLUDE_WEIGHTS = 0
    EXCLUDE_LEAN_RUNTIME = 1
    INCLUDE_REFIT = 2


class TacticSource(_IntEnum):
    CUBLAS = 0
    CUBLAS_LT = 1
    CUDNN = 2
    EDGE_MASK_CONVOLUTIONS = 3
    JIT_CONVOLUTIONS = 4


class TempfileControlFlag(_Enum):
    ALLOW_IN_MEMORY_FILES = 0
    ALLOW_TEMPORARY_FILES = 1


class TensorFormat(_IntEnum):
    """How a tensor's elements lie in memory."""

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
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(_Enum):
    DEVICE = 0
    HOST = 1


class TensorRTPhase(_IntEnum):
    BUILD = 0
    RUNTIME = 1


class TilingOptimizationLevel(_Enum):
    NONE = 0
    FAST = 1
    MODERATE = 2
    FULL = 3


class TopKOperation(_Enum):
    MAX = 0
    MIN = 1


class TripLimit(_Enum):
    COUNT = 0
    WHILE = 1


class UnaryOperation(_Enum):
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
    KERNEL = 0
    BIAS = 1
    SHIFT = 2
    SCALE = 3
    CONSTANT = 4
    ANY = 5


_ITEM_SIZES: dict[DataType, float] = {
    DataType.FLOAT: 4,
    DataType.HALF: 2,
    DataType.BF16: 2,
    DataType.INT8: 1,
    DataType.INT32: 4,
    DataType.INT64: 8,
    DataType.BOOL: 1,
    DataType.UINT8: 1,
    DataType.FP8: 1,
    DataType.INT4: 0.5,
    DataType.FP4: 0.5,
    DataType.E8M0: 1,
}

float32 = DataType.FLOAT
float16 = DataType.HALF
bfloat16 = DataType.BF16
int8 = DataType.INT8
int32 = DataType.INT32
int64 = DataType.INT64
bool = DataType.BOOL
uint8 = DataType.UINT8
fp8 = DataType.FP8
int4 = DataType.INT4
fp4 = DataType.FP4
e8m0 = DataType.E8M0

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
    "bfloat16",
    "bool",
    "e8m0",
    "float16",
    "float32",
    "fp4",
    "fp8",
    "int4",
    "int8",
    "int32",
    "int64",
    "uint8",
]
