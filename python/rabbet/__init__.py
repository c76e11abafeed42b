"""Rabbet: an inference engine whose operators you can write in Python.

    model = rabbet.compile("model.onnx", plugins=["my_ops.py"], save="model.plan")
    y = model(x)
    model = rabbet.load("model.plan")

Under it lies the object interface (Builder, INetworkDefinition, ICudaEngine, ...)
with the names that users of TensorRT know: `import rabbet as trt`.
"""

from . import _enums, _layers, _openmp, _rabbet
from ._algorithms import (
    IAlgorithm,
    IAlgorithmContext,
    IAlgorithmIOInfo,
    IAlgorithmSelector,
    IAlgorithmVariant,
)
from ._allocators import (
    IGpuAllocator,
    IGpuAsyncAllocator,
)
from ._arrays import (
    nptype,
)
from ._attention import (
    IAttention,
    IAttentionBoundaryLayer,
    IAttentionInputLayer,
    IAttentionOutputLayer,
)
from ._branches import (
    IConditionLayer,
    IIfConditional,
    IIfConditionalBoundaryLayer,
    IIfConditionalInputLayer,
    IIfConditionalOutputLayer,
)
from ._builder import (
    Builder,
    IHostMemory,
)
from ._calibrators import (
    IInt8Calibrator,
    IInt8EntropyCalibrator,
    IInt8EntropyCalibrator2,
    IInt8LegacyCalibrator,
    IInt8MinMaxCalibrator,
)
from ._callbacks import (
    IDebugListener,
    IErrorRecorder,
    ILogger,
    IOutputAllocator,
    IProfiler,
    IProgressMonitor,
    IStreamReader,
    IStreamReaderV2,
    IStreamWriter,
    Logger,
    Profiler,
)
from ._classes._bases import (
    IPluginCapability,
    IPluginCreator,
    IPluginCreatorInterface,
    IPluginCreatorV3One,
    IPluginCreatorV3Quick,
    IPluginResource,
    IPluginResourceContext,
    IPluginV2,
    IPluginV2DynamicExt,
    IPluginV2DynamicExtBase,
    IPluginV2Ext,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    IPluginV3QuickAOTBuild,
    IPluginV3QuickBuild,
    IPluginV3QuickCore,
    IPluginV3QuickRuntime,
)
from ._classes._exprs import (
    DimsExprs,
    DynamicPluginTensorDesc,
    IDimensionExpr,
    IExprBuilder,
    PluginTensorDesc,
)
from ._classes._fields import (
    PluginField,
    PluginFieldCollection,
    PluginFieldCollection_,
)
from ._classes._registry import (
    IPluginRegistry,
    get_builder_plugin_registry,
    get_plugin_registry,
    init_libnvinfer_plugins,
)
from ._classes._sym import (
    ISymExpr,
    ISymExprs,
    KernelLaunchParams,
)
from ._compile import (
    compile,
    load,
)
from ._composites import (
    ILRNLayer,
    IOneHotLayer,
    IParametricReLULayer,
    IRaggedSoftMaxLayer,
    IScaleLayer,
)
from ._config import (
    IBuilderConfig,
    IOptimizationProfile,
)
from ._dims import (
    Dims,
    Dims2,
    Dims3,
    Dims4,
    DimsHW,
    Permutation,
    volume,
)
from ._einsum import IEinsumLayer
from ._engine import (
    EngineInspector,
    GraphInfo,
    ICudaEngine,
    IExecutionContext,
)
from ._engine_config import (
    IRuntimeConfig,
    ISerializationConfig,
)
from ._enums import *  # noqa: F403
from ._errors import STATUS_ERRORS as _STATUS_ERRORS
from ._errors import (
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    Error,
    FailedPreconditionError,
    IncompatibleError,
    InternalError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    OutOfMemoryError,
    OutOfRangeError,
    PluginError,
    UnavailableError,
    UnsupportedError,
)
from ._layer import LAYER_CLASSES as _LAYER_CLASSES
from ._layer import ILayer, ITensor
from ._layers import *  # noqa: F403
from ._loops import (
    IIteratorLayer,
    ILoop,
    ILoopBoundaryLayer,
    ILoopOutputLayer,
    IRecurrenceLayer,
    ITripLimitLayer,
)
from ._model import Model
from ._network import (
    INetworkDefinition,
)
from ._onnx import (
    NodeIndices,
    OnnxParser,
    ParserError,
    SubGraphCollection,
    get_nv_onnx_parser_version,
)
from ._plugin_layers import (
    IPluginV2Layer,
    IPluginV3Layer,
)
from ._plugins import load_plugins
from ._refitter import (
    OnnxParserRefitter,
    Refitter,
)
from ._refused_layers import (
    IDistCollectiveLayer,
)
from ._reshapes import (
    IPaddingLayer,
    ISqueezeLayer,
    IUnsqueezeLayer,
)
from ._rotary import IRotaryEmbeddingLayer
from ._runtime import Runtime
from ._timing_cache import (
    ITimingCache,
    TimingCacheKey,
    TimingCacheValue,
)
from ._versioned import (
    FallbackString,
    InterfaceInfo,
    IVersionedInterface,
)
from ._weights import (
    Weights,
)

__version__ = _rabbet.version()

_openmp.limit_spinning()

_rabbet.configure(
    _STATUS_ERRORS,
    ITensor,
    _LAYER_CLASSES,
    ILayer,
    tuple(sorted(_enums.DataType, key=int)),
    {int(f): f for f in _enums.TensorFormat},
)

__all__ = [
    "AlreadyExistsError",
    "Builder",
    "CancelledError",
    "DataLossError",
    "Dims",
    "Dims2",
    "Dims3",
    "Dims4",
    "DimsExprs",
    "DimsHW",
    "DynamicPluginTensorDesc",
    "EngineInspector",
    "Error",
    "FailedPreconditionError",
    "FallbackString",
    "GraphInfo",
    "IAlgorithm",
    "IAlgorithmContext",
    "IAlgorithmIOInfo",
    "IAlgorithmSelector",
    "IAlgorithmVariant",
    "IAttention",
    "IAttentionBoundaryLayer",
    "IAttentionInputLayer",
    "IAttentionOutputLayer",
    "IBuilderConfig",
    "IConditionLayer",
    "ICudaEngine",
    "IDebugListener",
    "IDimensionExpr",
    "IDistCollectiveLayer",
    "IEinsumLayer",
    "IErrorRecorder",
    "IExecutionContext",
    "IExprBuilder",
    "IGpuAllocator",
    "IGpuAsyncAllocator",
    "IHostMemory",
    "IIfConditional",
    "IIfConditionalBoundaryLayer",
    "IIfConditionalInputLayer",
    "IIfConditionalOutputLayer",
    "IInt8Calibrator",
    "IInt8EntropyCalibrator",
    "IInt8EntropyCalibrator2",
    "IInt8LegacyCalibrator",
    "IInt8MinMaxCalibrator",
    "IIteratorLayer",
    "ILRNLayer",
    "ILayer",
    "ILogger",
    "ILoop",
    "ILoopBoundaryLayer",
    "ILoopOutputLayer",
    "INetworkDefinition",
    "IOneHotLayer",
    "IOptimizationProfile",
    "IOutputAllocator",
    "IPaddingLayer",
    "IParametricReLULayer",
    "IPluginCapability",
    "IPluginCreator",
    "IPluginCreatorInterface",
    "IPluginCreatorV3One",
    "IPluginCreatorV3Quick",
    "IPluginRegistry",
    "IPluginResource",
    "IPluginResourceContext",
    "IPluginV2",
    "IPluginV2DynamicExt",
    "IPluginV2DynamicExtBase",
    "IPluginV2Ext",
    "IPluginV2Layer",
    "IPluginV3",
    "IPluginV3Layer",
    "IPluginV3OneBuild",
    "IPluginV3OneBuildV2",
    "IPluginV3OneCore",
    "IPluginV3OneRuntime",
    "IPluginV3QuickAOTBuild",
    "IPluginV3QuickBuild",
    "IPluginV3QuickCore",
    "IPluginV3QuickRuntime",
    "IProfiler",
    "IProgressMonitor",
    "IRaggedSoftMaxLayer",
    "IRecurrenceLayer",
    "IRotaryEmbeddingLayer",
    "IRuntimeConfig",
    "IScaleLayer",
    "ISerializationConfig",
    "ISqueezeLayer",
    "IStreamReader",
    "IStreamReaderV2",
    "IStreamWriter",
    "ISymExpr",
    "ISymExprs",
    "ITensor",
    "ITimingCache",
    "ITripLimitLayer",
    "IUnsqueezeLayer",
    "IVersionedInterface",
    "IncompatibleError",
    "InterfaceInfo",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "KernelLaunchParams",
    "Logger",
    "Model",
    "NodeIndices",
    "NotFoundError",
    "OnnxParser",
    "OnnxParserRefitter",
    "OutOfMemoryError",
    "OutOfRangeError",
    "ParserError",
    "Permutation",
    "PluginError",
    "PluginField",
    "PluginFieldCollection",
    "PluginFieldCollection_",
    "PluginTensorDesc",
    "Profiler",
    "Refitter",
    "Runtime",
    "SubGraphCollection",
    "TimingCacheKey",
    "TimingCacheValue",
    "UnavailableError",
    "UnsupportedError",
    "Weights",
    "__version__",
    "compile",
    "get_builder_plugin_registry",
    "get_nv_onnx_parser_version",
    "get_plugin_registry",
    "init_libnvinfer_plugins",
    "load",
    "load_plugins",
    "nptype",
    "volume",
]
__all__ += _enums.__all__
__all__ += _layers.__all__
