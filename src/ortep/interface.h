// The part of ONNX Runtime's C interface for execution providers that Rabbet
// uses: version 24 of it, which every later ONNX Runtime has, as its tables are
// only ever appended to. Written from its documentation: its headers have half
// a megabyte. Nothing is linked: the program that opens the library hands over
// the tables.
//
// Objects are ONNX Runtime's. A function that returns a status returns NULL, or
// an error that the caller owns. Names, types and constants that are handed out
// live as long as the graph that they are of.
#ifndef RABBET_SRC_ORTEP_INTERFACE_H_
#define RABBET_SRC_ORTEP_INTERFACE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORT_INTERFACE_VERSION 24

typedef struct OrtStatus OrtStatus;
typedef struct OrtApiBase OrtApiBase;
typedef struct OrtApi OrtApi;
typedef struct OrtEpApi OrtEpApi;
typedef struct OrtModelEditorApi OrtModelEditorApi;
typedef struct OrtLogger OrtLogger;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtValue OrtValue;
typedef struct OrtValueInfo OrtValueInfo;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtGraph OrtGraph;
typedef struct OrtNode OrtNode;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtMemoryDevice OrtMemoryDevice;
typedef struct OrtHardwareDevice OrtHardwareDevice;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtEpGraphSupportInfo OrtEpGraphSupportInfo;
typedef struct OrtNodeComputeContext OrtNodeComputeContext;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtCustomOp OrtCustomOp;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtShapeInferContext OrtShapeInferContext;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtSyncStream OrtSyncStream;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtDataTransferImpl OrtDataTransferImpl;
typedef struct OrtSyncNotificationImpl OrtSyncNotificationImpl;
typedef struct OrtSyncStreamImpl OrtSyncStreamImpl;
typedef struct OrtEp OrtEp;
typedef struct OrtEpFactory OrtEpFactory;
typedef struct OrtNodeComputeInfo OrtNodeComputeInfo;
typedef struct OrtNodeFusionOptions OrtNodeFusionOptions;

typedef enum OrtErrorCode {
  ORT_FAIL = 1,
  ORT_INVALID_ARGUMENT = 2,
  ORT_NOT_IMPLEMENTED = 9,
} OrtErrorCode;

typedef enum OrtLoggingLevel {
  ORT_LOGGING_LEVEL_VERBOSE = 0,
  ORT_LOGGING_LEVEL_INFO = 1,
  ORT_LOGGING_LEVEL_WARNING = 2,
  ORT_LOGGING_LEVEL_ERROR = 3,
} OrtLoggingLevel;

typedef enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 = 2,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 = 3,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = 6,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = 7,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING = 8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL = 9,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 = 10,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE = 11,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 = 16,
} ONNXTensorElementDataType;

typedef enum OrtOpAttrType {
  ORT_OP_ATTR_UNDEFINED = 0,
  ORT_OP_ATTR_INT = 1,
  ORT_OP_ATTR_INTS = 2,
  ORT_OP_ATTR_FLOAT = 3,
  ORT_OP_ATTR_FLOATS = 4,
  ORT_OP_ATTR_STRING = 5,
  ORT_OP_ATTR_STRINGS = 6,
  ORT_OP_ATTR_GRAPH = 7,
  ORT_OP_ATTR_TENSOR = 8,
} OrtOpAttrType;

typedef enum OrtAllocatorType {
  OrtDeviceAllocator = 0,
} OrtAllocatorType;

typedef enum OrtDeviceMemoryType {
  OrtDeviceMemoryType_DEFAULT = 0,
  OrtDeviceMemoryType_HOST_ACCESSIBLE = 5,
} OrtDeviceMemoryType;

typedef enum OrtMemoryInfoDeviceType {
  OrtMemoryInfoDeviceType_CPU = 0,
  OrtMemoryInfoDeviceType_GPU = 1,
} OrtMemoryInfoDeviceType;

typedef enum OrtHardwareDeviceType {
  OrtHardwareDeviceType_CPU = 0,
  OrtHardwareDeviceType_GPU = 1,
} OrtHardwareDeviceType;

typedef enum OrtCustomOpInputOutputCharacteristic {
  INPUT_OUTPUT_VARIADIC = 2,
} OrtCustomOpInputOutputCharacteristic;

struct OrtApiBase {
  // NULL if the running ONNX Runtime is older.
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)(void);
};

// ---- Tables of ONNX Runtime's functions -------------------------------------

// Functions first to next - 1 of a table, which are in no use here.
#define ORT_UNUSED(first, next) void (*unused_##first[(next) - (first)])(void)

struct OrtApi {
  OrtStatus* (*CreateStatus)(OrtErrorCode code, const char* message);
  OrtErrorCode (*GetErrorCode)(const OrtStatus* status);
  const char* (*GetErrorMessage)(const OrtStatus* status);
  ORT_UNUSED(3, 26);
  OrtStatus* (*CreateCustomOpDomain)(const char* domain,
                                     OrtCustomOpDomain** out);
  OrtStatus* (*CustomOpDomain_Add)(OrtCustomOpDomain* domain,
                                   const OrtCustomOp* op);
  OrtStatus* (*AddCustomOpDomain)(OrtSessionOptions* options,
                                  OrtCustomOpDomain* domain);
  ORT_UNUSED(29, 51);
  OrtStatus* (*GetTensorMutableData)(OrtValue* value, void** out);
  ORT_UNUSED(52, 55);
  OrtStatus* (*CastTypeInfoToTensorInfo)(const OrtTypeInfo* type,
                                         const OrtTensorTypeAndShapeInfo** out);
  ORT_UNUSED(56, 57);
  OrtStatus* (*CreateTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo** out);
  OrtStatus* (*SetTensorElementType)(OrtTensorTypeAndShapeInfo* info,
                                     ONNXTensorElementDataType type);
  OrtStatus* (*SetDimensions)(OrtTensorTypeAndShapeInfo* info,
                              const int64_t* dims, size_t count);
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo* info,
                                     ONNXTensorElementDataType* out);
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo* info,
                                   size_t* out);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo* info,
                              int64_t* dims, size_t count);
  OrtStatus* (*GetSymbolicDimensions)(const OrtTensorTypeAndShapeInfo* info,
                                      const char** names, size_t count);
  ORT_UNUSED(64, 65);
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue* value,
                                      OrtTensorTypeAndShapeInfo** out);
  ORT_UNUSED(66, 90);
  OrtStatus* (*KernelContext_GetInput)(const OrtKernelContext* context,
                                       size_t index, const OrtValue** out);
  OrtStatus* (*KernelContext_GetOutput)(OrtKernelContext* context, size_t index,
                                        const int64_t* dims, size_t count,
                                        OrtValue** out);
  ORT_UNUSED(92, 93);
  void (*ReleaseStatus)(OrtStatus* status);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo* info);
  ORT_UNUSED(95, 96);
  void (*ReleaseValue)(OrtValue* value);
  ORT_UNUSED(97, 99);
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo* info);
  ORT_UNUSED(100, 101);
  void (*ReleaseCustomOpDomain)(OrtCustomOpDomain* domain);
  ORT_UNUSED(102, 193);
  OrtStatus* (*KernelContext_GetGPUComputeStream)(
      const OrtKernelContext* context, void** out);
  ORT_UNUSED(194, 211);
  OrtStatus* (*CreateOpAttr)(const char* name, const void* data, int size,
                             OrtOpAttrType type, OrtOpAttr** out);
  void (*ReleaseOpAttr)(OrtOpAttr* attribute);
  ORT_UNUSED(213, 247);
  OrtStatus* (*Logger_LogMessage)(const OrtLogger* logger,
                                  OrtLoggingLevel level, const char* message,
                                  const char* file, int line,
                                  const char* function);
  OrtStatus* (*Logger_GetLoggingSeverityLevel)(const OrtLogger* logger,
                                               OrtLoggingLevel* out);
  ORT_UNUSED(249, 267);
  OrtStatus* (*ShapeInferContext_GetInputCount)(
      const OrtShapeInferContext* context, size_t* out);
  OrtStatus* (*ShapeInferContext_GetInputTypeShape)(
      const OrtShapeInferContext* context, size_t index,
      OrtTensorTypeAndShapeInfo** out);
  OrtStatus* (*ShapeInferContext_GetAttribute)(
      const OrtShapeInferContext* context, const char* name,
      const OrtOpAttr** out);
  OrtStatus* (*ShapeInferContext_SetOutputTypeShape)(
      const OrtShapeInferContext* context, size_t index,
      const OrtTensorTypeAndShapeInfo* info);
  OrtStatus* (*SetSymbolicDimensions)(OrtTensorTypeAndShapeInfo* info,
                                      const char** names, size_t count);
  OrtStatus* (*ReadOpAttr)(const OrtOpAttr* attribute, OrtOpAttrType type,
                           void* data, size_t size, size_t* out);
  ORT_UNUSED(273, 289);
  OrtStatus* (*GetValueInfoName)(const OrtValueInfo* value, const char** out);
  OrtStatus* (*GetValueInfoTypeInfo)(const OrtValueInfo* value,
                                     const OrtTypeInfo** out);
  const OrtModelEditorApi* (*GetModelEditorApi)(void);
  ORT_UNUSED(292, 295);
  void (*CreateKeyValuePairs)(OrtKeyValuePairs** out);
  void (*AddKeyValuePair)(OrtKeyValuePairs* pairs, const char* key,
                          const char* value);
  const char* (*GetKeyValue)(const OrtKeyValuePairs* pairs, const char* key);
  void (*GetKeyValuePairs)(const OrtKeyValuePairs* pairs,
                           const char* const** keys, const char* const** values,
                           size_t* out_count);
  ORT_UNUSED(299, 300);
  void (*ReleaseKeyValuePairs)(OrtKeyValuePairs* pairs);
  ORT_UNUSED(301, 307);
  OrtHardwareDeviceType (*HardwareDevice_Type)(const OrtHardwareDevice* device);
  uint32_t (*HardwareDevice_VendorId)(const OrtHardwareDevice* device);
  ORT_UNUSED(309, 317);
  const OrtEpApi* (*GetEpApi)(void);
  OrtStatus* (*GetTensorSizeInBytes)(const OrtValue* value, size_t* out);
  ORT_UNUSED(319, 320);
  OrtStatus* (*CreateMemoryInfo_V2)(const char* name,
                                    OrtMemoryInfoDeviceType device,
                                    uint32_t vendor, int32_t id,
                                    OrtDeviceMemoryType memory,
                                    size_t alignment, OrtAllocatorType type,
                                    OrtMemoryInfo** out);
  ORT_UNUSED(321, 326);
  OrtStatus* (*ValueInfo_GetInitializerValue)(const OrtValueInfo* value,
                                              const OrtValue** out);
  ORT_UNUSED(327, 330);
  OrtStatus* (*ValueInfo_IsGraphOutput)(const OrtValueInfo* value, bool* out);
  OrtStatus* (*ValueInfo_IsConstantInitializer)(const OrtValueInfo* value,
                                                bool* out);
  ORT_UNUSED(332, 334);
  OrtStatus* (*Graph_GetModelPath)(const OrtGraph* graph, const char** out);
  OrtStatus* (*Graph_GetOnnxIRVersion)(const OrtGraph* graph, int64_t* out);
  OrtStatus* (*Graph_GetNumOperatorSets)(const OrtGraph* graph, size_t* out);
  OrtStatus* (*Graph_GetOperatorSets)(const OrtGraph* graph,
                                      const char** domains, int64_t* versions,
                                      size_t count);
  OrtStatus* (*Graph_GetNumInputs)(const OrtGraph* graph, size_t* out);
  OrtStatus* (*Graph_GetInputs)(const OrtGraph* graph,
                                const OrtValueInfo** inputs, size_t count);
  OrtStatus* (*Graph_GetNumOutputs)(const OrtGraph* graph, size_t* out);
  OrtStatus* (*Graph_GetOutputs)(const OrtGraph* graph,
                                 const OrtValueInfo** outputs, size_t count);
  OrtStatus* (*Graph_GetNumInitializers)(const OrtGraph* graph, size_t* out);
  OrtStatus* (*Graph_GetInitializers)(const OrtGraph* graph,
                                      const OrtValueInfo** initializers,
                                      size_t count);
  OrtStatus* (*Graph_GetNumNodes)(const OrtGraph* graph, size_t* out);
  OrtStatus* (*Graph_GetNodes)(const OrtGraph* graph, const OrtNode** nodes,
                               size_t count);
  OrtStatus* (*Graph_GetParentNode)(const OrtGraph* graph, const OrtNode** out);
  ORT_UNUSED(347, 349);
  OrtStatus* (*Node_GetName)(const OrtNode* node, const char** out);
  OrtStatus* (*Node_GetOperatorType)(const OrtNode* node, const char** out);
  OrtStatus* (*Node_GetDomain)(const OrtNode* node, const char** out);
  ORT_UNUSED(352, 353);
  OrtStatus* (*Node_GetNumInputs)(const OrtNode* node, size_t* out);
  OrtStatus* (*Node_GetInputs)(const OrtNode* node, const OrtValueInfo** inputs,
                               size_t count);
  OrtStatus* (*Node_GetNumOutputs)(const OrtNode* node, size_t* out);
  OrtStatus* (*Node_GetOutputs)(const OrtNode* node,
                                const OrtValueInfo** outputs, size_t count);
  OrtStatus* (*Node_GetNumImplicitInputs)(const OrtNode* node, size_t* out);
  OrtStatus* (*Node_GetImplicitInputs)(const OrtNode* node,
                                       const OrtValueInfo** inputs,
                                       size_t count);
  OrtStatus* (*Node_GetNumAttributes)(const OrtNode* node, size_t* out);
  OrtStatus* (*Node_GetAttributes)(const OrtNode* node,
                                   const OrtOpAttr** attributes, size_t count);
  OrtStatus* (*Node_GetAttributeByName)(const OrtNode* node, const char* name,
                                        const OrtOpAttr** out);
  OrtStatus* (*OpAttr_GetTensorAttributeAsOrtValue)(const OrtOpAttr* attribute,
                                                    OrtValue** out);
  OrtStatus* (*OpAttr_GetType)(const OrtOpAttr* attribute, OrtOpAttrType* out);
  OrtStatus* (*OpAttr_GetName)(const OrtOpAttr* attribute, const char** out);
  OrtStatus* (*Node_GetNumSubgraphs)(const OrtNode* node, size_t* out);
  OrtStatus* (*Node_GetSubgraphs)(const OrtNode* node, const OrtGraph** graphs,
                                  size_t count, const char** attributes);
  OrtStatus* (*Node_GetGraph)(const OrtNode* node, const OrtGraph** out);
  OrtStatus* (*Node_GetEpName)(const OrtNode* node, const char** out);
  ORT_UNUSED(369, 378);
  OrtStatus* (*GetTensorData)(const OrtValue* value, const void** out);
  OrtStatus* (*GetSessionOptionsConfigEntries)(const OrtSessionOptions* options,
                                               OrtKeyValuePairs** out);
  ORT_UNUSED(380, 390);
  bool (*TensorTypeAndShape_HasShape)(const OrtTensorTypeAndShapeInfo* info);
};

struct OrtEpApi {
  OrtStatus* (*CreateEpDevice)(OrtEpFactory* factory,
                               const OrtHardwareDevice* device,
                               const OrtKeyValuePairs* metadata,
                               const OrtKeyValuePairs* options,
                               OrtEpDevice** out);
  ORT_UNUSED(1, 2);
  OrtStatus* (*EpGraphSupportInfo_AddNodesToFuse)(
      OrtEpGraphSupportInfo* info, const OrtNode* const* nodes, size_t count,
      const OrtNodeFusionOptions* options);
  ORT_UNUSED(3, 5);
  OrtStatus* (*EpDevice_AddAllocatorInfo)(OrtEpDevice* device,
                                          const OrtMemoryInfo* info);
  const OrtMemoryDevice* (*MemoryInfo_GetMemoryDevice)(
      const OrtMemoryInfo* info);
  const OrtMemoryDevice* (*Value_GetMemoryDevice)(const OrtValue* value);
  ORT_UNUSED(8, 9);
  OrtMemoryInfoDeviceType (*MemoryDevice_GetDeviceType)(
      const OrtMemoryDevice* device);
  OrtDeviceMemoryType (*MemoryDevice_GetMemoryType)(
      const OrtMemoryDevice* device);
  uint32_t (*MemoryDevice_GetVendorId)(const OrtMemoryDevice* device);
  uint32_t (*MemoryDevice_GetDeviceId)(const OrtMemoryDevice* device);
  const OrtSyncStreamImpl* (*SyncStream_GetImpl)(const OrtSyncStream* stream);
  ORT_UNUSED(14, 16);
  OrtStatus* (*CreateHardwareDevice)(OrtHardwareDeviceType type,
                                     uint32_t vendor, uint32_t device,
                                     const char* vendor_name,
                                     const OrtKeyValuePairs* metadata,
                                     OrtHardwareDevice** out);
  void (*ReleaseHardwareDevice)(OrtHardwareDevice* device);
  ORT_UNUSED(18, 49);
  OrtStatus* (*GetEnvConfigEntries)(OrtKeyValuePairs** out);
};

struct OrtModelEditorApi {
  ORT_UNUSED(0, 6);
  // Takes the attributes.
  OrtStatus* (*CreateNode)(const char* op_type, const char* domain,
                           const char* name, const char* const* inputs,
                           size_t input_count, const char* const* outputs,
                           size_t output_count, OrtOpAttr** attributes,
                           size_t attribute_count, OrtNode** out);
};

// ---- Structures that a provider fills ---------------------------------------

struct OrtNodeFusionOptions {
  uint32_t ort_version_supported;
  // Constants are not inputs of the fused node; they may go after Compile.
  bool drop_constant_initializers;
};

struct OrtNodeComputeInfo {
  uint32_t ort_version_supported;
  OrtStatus* (*CreateState)(OrtNodeComputeInfo* self,
                            OrtNodeComputeContext* context, void** out_state);
  OrtStatus* (*Compute)(OrtNodeComputeInfo* self, void* state,
                        OrtKernelContext* context);
  void (*ReleaseState)(OrtNodeComputeInfo* self, void* state);
};

struct OrtEp {
  uint32_t ort_version_supported;
  const char* (*GetName)(const OrtEp* self);
  OrtStatus* (*GetCapability)(OrtEp* self, const OrtGraph* graph,
                              OrtEpGraphSupportInfo* info);
  OrtStatus* (*Compile)(OrtEp* self, const OrtGraph** graphs,
                        const OrtNode** fused_nodes, size_t count,
                        OrtNodeComputeInfo** out_infos,
                        OrtNode** out_context_nodes);
  void (*ReleaseNodeComputeInfos)(OrtEp* self, OrtNodeComputeInfo** infos,
                                  size_t count);
  // GetPreferredDataLayout, ShouldConvertDataLayoutForOp, SetDynamicOptions,
  // OnRunStart, OnRunEnd
  void (*left_out_0[5])(void);
  OrtStatus* (*CreateAllocator)(OrtEp* self, const OrtMemoryInfo* info,
                                OrtAllocator** out);
  OrtStatus* (*CreateSyncStreamForDevice)(OrtEp* self,
                                          const OrtMemoryDevice* device,
                                          OrtSyncStreamImpl** out);
  // GetCompiledModelCompatibilityInfo, GetKernelRegistry
  void (*left_out_1[2])(void);
  OrtStatus* (*IsConcurrentRunSupported)(OrtEp* self, bool* out);
};

struct OrtEpFactory {
  uint32_t ort_version_supported;
  const char* (*GetName)(const OrtEpFactory* self);
  const char* (*GetVendor)(const OrtEpFactory* self);
  OrtStatus* (*GetSupportedDevices)(OrtEpFactory* self,
                                    const OrtHardwareDevice* const* devices,
                                    size_t count, OrtEpDevice** out_devices,
                                    size_t capacity, size_t* out_count);
  OrtStatus* (*CreateEp)(OrtEpFactory* self,
                         const OrtHardwareDevice* const* devices,
                         const OrtKeyValuePairs* const* metadata, size_t count,
                         const OrtSessionOptions* options,
                         const OrtLogger* logger, OrtEp** out);
  void (*ReleaseEp)(OrtEpFactory* self, OrtEp* ep);
  uint32_t (*GetVendorId)(const OrtEpFactory* self);
  const char* (*GetVersion)(const OrtEpFactory* self);
  void (*left_out_0[1])(void);  // ValidateCompiledModelCompatibilityInfo
  OrtStatus* (*CreateAllocator)(OrtEpFactory* self, const OrtMemoryInfo* info,
                                const OrtKeyValuePairs* options,
                                OrtAllocator** out);
  void (*ReleaseAllocator)(OrtEpFactory* self, OrtAllocator* allocator);
  OrtStatus* (*CreateDataTransfer)(OrtEpFactory* self,
                                   OrtDataTransferImpl** out);
  bool (*IsStreamAware)(const OrtEpFactory* self);
  OrtStatus* (*CreateSyncStreamForDevice)(OrtEpFactory* self,
                                          const OrtMemoryDevice* device,
                                          const OrtKeyValuePairs* options,
                                          OrtSyncStreamImpl** out);
  // GetHardwareDeviceIncompatibilityDetails,
  // CreateExternalResourceImporterForDevice
  void (*left_out_1[2])(void);
  OrtStatus* (*GetNumCustomOpDomains)(OrtEpFactory* self, size_t* out);
  OrtStatus* (*GetCustomOpDomains)(OrtEpFactory* self, OrtCustomOpDomain** out,
                                   size_t count);
};

struct OrtAllocator {
  uint32_t version;
  void* (*Alloc)(OrtAllocator* self, size_t size);
  void (*Free)(OrtAllocator* self, void* memory);
  const OrtMemoryInfo* (*Info)(const OrtAllocator* self);
  void* (*Reserve)(OrtAllocator* self, size_t size);
  OrtStatus* (*GetStats)(const OrtAllocator* self, OrtKeyValuePairs** out);
  void* (*AllocOnStream)(OrtAllocator* self, size_t size,
                         OrtSyncStream* stream);
};

struct OrtDataTransferImpl {
  uint32_t ort_version_supported;
  void (*Release)(OrtDataTransferImpl* self);
  bool (*CanCopy)(const OrtDataTransferImpl* self,
                  const OrtMemoryDevice* source, const OrtMemoryDevice* target);
  OrtStatus* (*CopyTensors)(OrtDataTransferImpl* self, const OrtValue** sources,
                            OrtValue** targets, OrtSyncStream** streams,
                            size_t count);
};

struct OrtSyncNotificationImpl {
  uint32_t ort_version_supported;
  void (*Release)(OrtSyncNotificationImpl* self);
  OrtStatus* (*Activate)(OrtSyncNotificationImpl* self);
  OrtStatus* (*WaitOnDevice)(OrtSyncNotificationImpl* self,
                             OrtSyncStream* consumer);
  OrtStatus* (*WaitOnHost)(OrtSyncNotificationImpl* self);
};

struct OrtSyncStreamImpl {
  uint32_t ort_version_supported;
  void (*Release)(OrtSyncStreamImpl* self);
  void* (*GetHandle)(OrtSyncStreamImpl* self);
  OrtStatus* (*CreateNotification)(OrtSyncStreamImpl* self,
                                   OrtSyncNotificationImpl** out);
  OrtStatus* (*Flush)(OrtSyncStreamImpl* self);
  OrtStatus* (*OnSessionRunEnd)(OrtSyncStreamImpl* self);
};

// A custom operator: here one that a model is checked against, and that never
// runs by itself.
struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp* self, const OrtApi* api,
                        const OrtKernelInfo* info);
  const char* (*GetName)(const OrtCustomOp* self);
  const char* (*GetExecutionProviderType)(const OrtCustomOp* self);
  ONNXTensorElementDataType (*GetInputType)(const OrtCustomOp* self,
                                            size_t index);
  size_t (*GetInputTypeCount)(const OrtCustomOp* self);
  ONNXTensorElementDataType (*GetOutputType)(const OrtCustomOp* self,
                                             size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp* self);
  void (*KernelCompute)(void* kernel, OrtKernelContext* context);
  void (*KernelDestroy)(void* kernel);
  OrtCustomOpInputOutputCharacteristic (*GetInputCharacteristic)(
      const OrtCustomOp* self, size_t index);
  OrtCustomOpInputOutputCharacteristic (*GetOutputCharacteristic)(
      const OrtCustomOp* self, size_t index);
  int (*GetInputMemoryType)(const OrtCustomOp* self, size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp* self);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp* self);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp* self);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp* self);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp* self, const OrtApi* api,
                               const OrtKernelInfo* info, void** out_kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext* context);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp* self,
                                   OrtShapeInferContext* context);
  int (*GetStartVersion)(const OrtCustomOp* self);
  int (*GetEndVersion)(const OrtCustomOp* self);
  // GetMayInplace, ReleaseMayInplace, GetAliasMap, ReleaseAliasMap
  void (*left_out[4])(void);
};

#endif  // RABBET_SRC_ORTEP_INTERFACE_H_
