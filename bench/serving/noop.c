// A backend of Triton Inference Server that computes nothing: each request is
// answered with the beginning of its input, `x`, as `y`. What a server reaches
// with it bounds every backend. bench/README.md tells how to run it.
#include <string.h>
#include <time.h>

#include "triton/interface.h"

enum { NOOP_COLUMNS = 16 };

static uint64_t noop_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_BackendAttribute* attribute) {
  (void)backend;
  return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
      attribute, TRITONSERVER_INSTANCEGROUPKIND_CPU, 1, NULL, 0);
}

static TRITONSERVER_Error* noop_answer(TRITONBACKEND_Request* request,
                                       TRITONBACKEND_Response* response) {
  static const int64_t dims[] = {1, NOOP_COLUMNS};
  TRITONBACKEND_Input* input = NULL;
  TRITONBACKEND_Output* output = NULL;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  TRITONSERVER_Error* error = TRITONBACKEND_RequestInput(request, "x", &input);
  const void* from = NULL;
  void* to = NULL;
  uint64_t size = 0;
  int64_t id = 0;
  if (!error)
    error = TRITONBACKEND_InputBuffer(input, 0, &from, &size, &type, &id);
  if (!error)
    error = TRITONBACKEND_ResponseOutput(response, &output, "y",
                                         TRITONSERVER_TYPE_FP32, dims, 2);
  type = TRITONSERVER_MEMORY_CPU;
  if (!error)
    error = TRITONBACKEND_OutputBuffer(
        output, &to, NOOP_COLUMNS * sizeof(float), &type, &id);
  if (!error) memcpy(to, from, NOOP_COLUMNS * sizeof(float));
  return error;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
    uint32_t count) {
  uint64_t begin = noop_now();
  TRITONSERVER_Error* failure = NULL;
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Response* response = NULL;
    TRITONSERVER_Error* error =
        TRITONBACKEND_ResponseNew(&response, requests[i]);
    if (!error) error = noop_answer(requests[i], response);
    if (response) {
      failure = TRITONBACKEND_ResponseSend(
          response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error);
      if (failure) TRITONSERVER_ErrorDelete(failure);
    }
    if (error) TRITONSERVER_ErrorDelete(error);
    failure = TRITONBACKEND_RequestRelease(requests[i],
                                           TRITONSERVER_REQUEST_RELEASE_ALL);
    if (failure) TRITONSERVER_ErrorDelete(failure);
  }
  uint64_t end = noop_now();
  failure = TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance, count, begin, begin, end, end);
  if (failure) TRITONSERVER_ErrorDelete(failure);
  return NULL;
}
