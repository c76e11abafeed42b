#include "ortep/ort.h"

#include <assert.h>

// ---- Places in the tables, as ONNX Runtime's documentation of version 24 has
// them: the function behind each gap, and the last one

#define ORT_PLACE(table, function, place)                             \
  static_assert(offsetof(table, function) == (place) * sizeof(void*), \
                #function " is elsewhere")
ORT_PLACE(OrtApi, CreateCustomOpDomain, 26);
ORT_PLACE(OrtApi, GetTensorMutableData, 51);
ORT_PLACE(OrtApi, CastTypeInfoToTensorInfo, 55);
ORT_PLACE(OrtApi, CreateTensorTypeAndShapeInfo, 57);
ORT_PLACE(OrtApi, GetTensorTypeAndShape, 65);
ORT_PLACE(OrtApi, KernelContext_GetInput, 90);
ORT_PLACE(OrtApi, ReleaseStatus, 93);
ORT_PLACE(OrtApi, ReleaseValue, 96);
ORT_PLACE(OrtApi, ReleaseTensorTypeAndShapeInfo, 99);
ORT_PLACE(OrtApi, ReleaseCustomOpDomain, 101);
ORT_PLACE(OrtApi, KernelContext_GetGPUComputeStream, 193);
ORT_PLACE(OrtApi, CreateOpAttr, 211);
ORT_PLACE(OrtApi, Logger_LogMessage, 247);
ORT_PLACE(OrtApi, ShapeInferContext_GetInputCount, 267);
ORT_PLACE(OrtApi, GetValueInfoName, 289);
ORT_PLACE(OrtApi, CreateKeyValuePairs, 295);
ORT_PLACE(OrtApi, ReleaseKeyValuePairs, 300);
ORT_PLACE(OrtApi, HardwareDevice_Type, 307);
ORT_PLACE(OrtApi, GetEpApi, 317);
ORT_PLACE(OrtApi, CreateMemoryInfo_V2, 320);
ORT_PLACE(OrtApi, ValueInfo_GetInitializerValue, 326);
ORT_PLACE(OrtApi, ValueInfo_IsGraphOutput, 330);
ORT_PLACE(OrtApi, Graph_GetModelPath, 334);
ORT_PLACE(OrtApi, Node_GetName, 349);
ORT_PLACE(OrtApi, Node_GetNumInputs, 353);
ORT_PLACE(OrtApi, GetTensorData, 378);
ORT_PLACE(OrtApi, TensorTypeAndShape_HasShape, 390);
ORT_PLACE(OrtEpApi, EpGraphSupportInfo_AddNodesToFuse, 2);
ORT_PLACE(OrtEpApi, EpDevice_AddAllocatorInfo, 5);
ORT_PLACE(OrtEpApi, MemoryDevice_GetDeviceType, 9);
ORT_PLACE(OrtEpApi, CreateHardwareDevice, 16);
ORT_PLACE(OrtEpApi, GetEnvConfigEntries, 49);
ORT_PLACE(OrtModelEditorApi, CreateNode, 6);
ORT_PLACE(OrtEp, IsConcurrentRunSupported, 14);
ORT_PLACE(OrtEpFactory, GetCustomOpDomains, 17);
ORT_PLACE(OrtCustomOp, GetEndVersion, 21);

rabbet_ort_t rabbet_ort;

rabbet_status_t rabbet_ort_open(const OrtApiBase* base) {
  const OrtApi* api = base->GetApi(ORT_INTERFACE_VERSION);
  if (!api)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "ONNX Runtime is version %s; Rabbet's execution "
                         "provider needs 1.%d or newer",
                         base->GetVersionString(), ORT_INTERFACE_VERSION);
  // Objects of both would meet the functions of one.
  if (rabbet_ort.api && rabbet_ort.api != api)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "another ONNX Runtime in this process has Rabbet's "
                         "execution provider; this one is version %s",
                         base->GetVersionString());
  rabbet_ort.api = api;
  rabbet_ort.ep = api->GetEpApi();
  rabbet_ort.editor = api->GetModelEditorApi();
  return rabbet_ok();
}

// ---- Statuses

// Not EP_FAIL: Python sessions answer it by a silent change to the CPU's
// provider.
static OrtStatus* ort_error(const OrtApi* api, rabbet_status_t status) {
  if (rabbet_is_ok(status)) return NULL;
  OrtErrorCode code = ORT_FAIL;
  switch (rabbet_status_code(status)) {
    case RABBET_STATUS_INVALID_ARGUMENT:
    case RABBET_STATUS_OUT_OF_RANGE:
      code = ORT_INVALID_ARGUMENT;
      break;
    case RABBET_STATUS_UNSUPPORTED:
      code = ORT_NOT_IMPLEMENTED;
      break;
    default:
      break;
  }
  OrtStatus* error = api->CreateStatus(code, rabbet_status_message(status));
  rabbet_status_free(status);
  return error;
}

OrtStatus* rabbet_ort_error(rabbet_status_t status) {
  return ort_error(rabbet_ort.api, status);
}

OrtStatus* rabbet_ort_open_error(const OrtApiBase* base,
                                 rabbet_status_t status) {
  return ort_error(base->GetApi(1), status);
}

rabbet_status_t rabbet_ort_status(OrtStatus* error) {
  if (!error) return rabbet_ok();
  const OrtErrorCode code = rabbet_ort.api->GetErrorCode(error);
  rabbet_status_t status = RABBET_STATUS(
      code == ORT_INVALID_ARGUMENT  ? RABBET_STATUS_INVALID_ARGUMENT
      : code == ORT_NOT_IMPLEMENTED ? RABBET_STATUS_UNSUPPORTED
                                    : RABBET_STATUS_INTERNAL,
      "%s", rabbet_ort.api->GetErrorMessage(error));
  rabbet_ort.api->ReleaseStatus(error);
  return status;
}

// ---- The logger

static void ort_log(void* user_data, rabbet_severity_t severity,
                    const char* message) {
  const OrtLoggingLevel level =
      severity <= RABBET_SEVERITY_ERROR     ? ORT_LOGGING_LEVEL_ERROR
      : severity == RABBET_SEVERITY_WARNING ? ORT_LOGGING_LEVEL_WARNING
      : severity == RABBET_SEVERITY_INFO    ? ORT_LOGGING_LEVEL_INFO
                                            : ORT_LOGGING_LEVEL_VERBOSE;
  // A message that cannot be logged has no other place to go.
  rabbet_status_ignore(
      ORT(Logger_LogMessage, user_data, level, message, "rabbet", 0, ""));
}

rabbet_logger_t rabbet_ort_logger(const OrtLogger* logger) {
  OrtLoggingLevel level = ORT_LOGGING_LEVEL_WARNING;
  rabbet_status_ignore(ORT(Logger_GetLoggingSeverityLevel, logger, &level));
  return (rabbet_logger_t){
      .user_data = (void*)logger,
      .log = ort_log,
      .verbosity = level == ORT_LOGGING_LEVEL_VERBOSE ? RABBET_SEVERITY_VERBOSE
                   : level == ORT_LOGGING_LEVEL_INFO  ? RABBET_SEVERITY_INFO
                   : level == ORT_LOGGING_LEVEL_WARNING
                       ? RABBET_SEVERITY_WARNING
                       : RABBET_SEVERITY_ERROR,
  };
}

// ---- Types of elements

static const struct {
  ONNXTensorElementDataType type;
  rabbet_dtype_t dtype;
} ort_types[] = {
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, RABBET_DTYPE_FLOAT},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, RABBET_DTYPE_HALF},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, RABBET_DTYPE_BF16},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, RABBET_DTYPE_DOUBLE},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, RABBET_DTYPE_INT8},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, RABBET_DTYPE_UINT8},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, RABBET_DTYPE_INT32},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, RABBET_DTYPE_INT64},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, RABBET_DTYPE_BOOL},
};
enum { ORT_TYPE_COUNT = sizeof(ort_types) / sizeof(*ort_types) };

rabbet_dtype_t rabbet_ort_dtype(ONNXTensorElementDataType type) {
  for (int i = 0; i < ORT_TYPE_COUNT; ++i)
    if (ort_types[i].type == type) return ort_types[i].dtype;
  return RABBET_DTYPE_NONE;
}

ONNXTensorElementDataType rabbet_ort_type(rabbet_dtype_t dtype) {
  for (int i = 0; i < ORT_TYPE_COUNT; ++i)
    if (ort_types[i].dtype == dtype) return ort_types[i].type;
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}
