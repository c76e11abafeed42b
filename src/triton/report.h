// Rabbet's statuses and Triton's errors; messages for the server's log.
#ifndef RABBET_SRC_TRITON_REPORT_H_
#define RABBET_SRC_TRITON_REPORT_H_

#include "rabbet/logger.h"
#include "rabbet/status.h"
#include "triton/interface.h"

// Takes the status; NULL when it is OK.
TRITONSERVER_Error* rabbet_triton_error(rabbet_status_t status);
// Takes the error; OK when it is NULL.
RABBET_MUST_USE rabbet_status_t rabbet_triton_status(TRITONSERVER_Error* error);
// Into the server's log; takes the status. Nothing if it is OK.
void rabbet_triton_log_failure(rabbet_status_t status);
rabbet_logger_t rabbet_triton_logger(void);

#endif  // RABBET_SRC_TRITON_REPORT_H_
