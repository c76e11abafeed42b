#include "ortep/ort.h"

rabbet_ort_t rabbet_ort;

rabbet_status_t rabbet_ort_open(const OrtApiBase* base) {
  const OrtApi* api = base->GetApi(ORT_INTERFACE_VERSION);
  if (!api)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "ONNX Runtime is version %s; Rabbet's execution "
                         "provider needs 1.%d or newer",
                         base->GetVersionString(), ORT_INTERFACE_VERSION);
  rabbet_ort.api = api;
  rabbet_ort.ep = api->GetEpApi();
  rabbet_ort.editor = api->GetModelEditorApi();
  return rabbet_ok();
}

// ---- Statuses

// Not EP_FAIL: Python sessions answer it by a silent change to the CPU's
// provider.
OrtStatus* rabbet_ort_error(rabbet_status_t status) {
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
  OrtStatus* error =
      rabbet_ort.api->CreateStatus(code, rabbet_status_message(status));
  rabbet_status_free(status);
  return error;
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
