#include "triton/report.h"

static const struct {
  rabbet_status_code_t status;
  TRITONSERVER_Error_Code error;
} report_codes[] = {
    {RABBET_STATUS_INTERNAL, TRITONSERVER_ERROR_INTERNAL},
    {RABBET_STATUS_NOT_FOUND, TRITONSERVER_ERROR_NOT_FOUND},
    {RABBET_STATUS_INVALID_ARGUMENT, TRITONSERVER_ERROR_INVALID_ARG},
    {RABBET_STATUS_OUT_OF_RANGE, TRITONSERVER_ERROR_INVALID_ARG},
    {RABBET_STATUS_FAILED_PRECONDITION, TRITONSERVER_ERROR_INVALID_ARG},
    {RABBET_STATUS_DATA_LOSS, TRITONSERVER_ERROR_INVALID_ARG},
    {RABBET_STATUS_INCOMPATIBLE, TRITONSERVER_ERROR_INVALID_ARG},
    {RABBET_STATUS_UNAVAILABLE, TRITONSERVER_ERROR_UNAVAILABLE},
    {RABBET_STATUS_OUT_OF_MEMORY, TRITONSERVER_ERROR_UNAVAILABLE},
    {RABBET_STATUS_UNSUPPORTED, TRITONSERVER_ERROR_UNSUPPORTED},
    {RABBET_STATUS_ALREADY_EXISTS, TRITONSERVER_ERROR_ALREADY_EXISTS},
    {RABBET_STATUS_CANCELLED, TRITONSERVER_ERROR_CANCELLED},
};
enum { REPORT_CODE_COUNT = sizeof(report_codes) / sizeof(*report_codes) };

// Codes without an entry (IO, PLUGIN) are the server's INTERNAL.
TRITONSERVER_Error* rabbet_triton_error(rabbet_status_t status) {
  if (rabbet_is_ok(status)) return NULL;
  TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_INTERNAL;
  for (int i = 0; i < REPORT_CODE_COUNT; ++i) {
    if (report_codes[i].status == rabbet_status_code(status))
      code = report_codes[i].error;
  }
  TRITONSERVER_Error* error =
      TRITONSERVER_ErrorNew(code, rabbet_status_message(status));
  rabbet_status_free(status);
  return error;
}

rabbet_status_t rabbet_triton_status(TRITONSERVER_Error* error) {
  if (!error) return rabbet_ok();
  rabbet_status_code_t code = RABBET_STATUS_INTERNAL;
  for (int i = REPORT_CODE_COUNT - 1; i >= 0; --i) {
    if (report_codes[i].error == TRITONSERVER_ErrorCode(error))
      code = report_codes[i].status;
  }
  rabbet_status_t status =
      RABBET_STATUS(code, "%s", TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return status;
}

// A log that cannot be written has nobody to be told.
static void report_write(TRITONSERVER_LogLevel level, const char* message) {
  TRITONSERVER_Error* error =
      TRITONSERVER_LogMessage(level, "rabbet", 0, message);
  if (error) TRITONSERVER_ErrorDelete(error);
}

void rabbet_triton_log_failure(rabbet_status_t status) {
  if (rabbet_is_ok(status)) return;
  report_write(TRITONSERVER_LOG_ERROR, rabbet_status_message(status));
  rabbet_status_free(status);
}

static void report_log(void* user_data, rabbet_severity_t severity,
                       const char* message) {
  (void)user_data;
  report_write(severity <= RABBET_SEVERITY_ERROR     ? TRITONSERVER_LOG_ERROR
               : severity == RABBET_SEVERITY_WARNING ? TRITONSERVER_LOG_WARN
               : severity == RABBET_SEVERITY_INFO    ? TRITONSERVER_LOG_INFO
                                                     : TRITONSERVER_LOG_VERBOSE,
               message);
}

rabbet_logger_t rabbet_triton_logger(void) {
  return (rabbet_logger_t){
      .log = report_log,
      .verbosity = TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE)
                       ? RABBET_SEVERITY_VERBOSE
                       : RABBET_SEVERITY_INFO,
  };
}
