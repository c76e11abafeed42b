// ONNX Runtime's tables of functions, and its statuses, logger and types of
// elements beside ours.
#ifndef RABBET_SRC_ORTEP_ORT_H_
#define RABBET_SRC_ORTEP_ORT_H_

#include "ortep/interface.h"
#include "rabbet/logger.h"
#include "rabbet/status.h"
#include "rabbet/types.h"

#define RABBET_ORT_EP_NAME "RabbetExecutionProvider"

typedef struct rabbet_ort_t {
  const OrtApi* api;
  const OrtEpApi* ep;
  const OrtModelEditorApi* editor;
} rabbet_ort_t;
// Set once, when ONNX Runtime opens the library; a process has one of it.
extern rabbet_ort_t rabbet_ort;
// INCOMPATIBLE names the running version, if it is too old, or if another ONNX
// Runtime has opened the library.
rabbet_status_t rabbet_ort_open(const OrtApiBase* base);
// Takes the status of that, which any version can be told.
OrtStatus* rabbet_ort_open_error(const OrtApiBase* base,
                                 rabbet_status_t status);

// Takes either.
OrtStatus* rabbet_ort_error(rabbet_status_t status);
rabbet_status_t rabbet_ort_status(OrtStatus* error);
// Calls a function of the table; a status.
#define ORT(function, ...) \
  rabbet_ort_status(rabbet_ort.api->function(__VA_ARGS__))
#define ORT_EP(function, ...) \
  rabbet_ort_status(rabbet_ort.ep->function(__VA_ARGS__))

// The logger must outlive its user.
rabbet_logger_t rabbet_ort_logger(const OrtLogger* logger);

// NONE for types that no input or output of a plan has.
rabbet_dtype_t rabbet_ort_dtype(ONNXTensorElementDataType type);
// UNDEFINED for those that ONNX Runtime lacks.
ONNXTensorElementDataType rabbet_ort_type(rabbet_dtype_t dtype);

#endif  // RABBET_SRC_ORTEP_ORT_H_
