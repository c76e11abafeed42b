// Requests: read, put into groups, answered.
#include <string.h>

#include "triton/batch.h"
#include "triton/report.h"

// ---- Reading

static rabbet_status_t serve_read_input(rabbet_triton_request_t* request,
                                        const rabbet_io_t* io, bool batched,
                                        rabbet_triton_tensor_t* tensor) {
  const int64_t* dims = NULL;
  uint32_t rank = 0;
  uint64_t size = 0;
  char text[128];
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_RequestInput(request->handle, io->name, &tensor->input)));
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(TRITONBACKEND_InputProperties(
      tensor->input, NULL, NULL, &dims, &rank, &size, &tensor->buffer_count)));
  if (rank != (uint32_t)io->dims.rank)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "input '%s' has %u dimensions; expected %d", io->name,
                         rank, io->dims.rank);
  tensor->dims.rank = io->dims.rank;
  if (rank) memcpy(tensor->dims.d, dims, rank * sizeof(*dims));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(io->dtype, io->format,
                                             &tensor->dims, &tensor->bytes));
  if (size != tensor->bytes)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "input '%s' has %llu bytes; %s of shape %s has %zu", io->name,
        (unsigned long long)size, rabbet_dtype_name(io->dtype),
        rabbet_dims_print(&tensor->dims, text, sizeof(text)), tensor->bytes);
  if (!batched) return rabbet_ok();
  if (request->rows && request->rows != tensor->dims.d[0])
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "input '%s' has batch %lld, other inputs %lld",
                         io->name, (long long)tensor->dims.d[0],
                         (long long)request->rows);
  request->rows = tensor->dims.d[0];
  return rabbet_ok();
}

static rabbet_status_t serve_read_outputs(rabbet_triton_instance_t* instance,
                                          size_t index) {
  const rabbet_triton_model_t* model = instance->model;
  TRITONBACKEND_Request* request = instance->requests[index].handle;
  uint32_t count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_status(TRITONBACKEND_RequestOutputCount(request, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_triton_status(
        TRITONBACKEND_RequestOutputName(request, i, &name)));
    int32_t io = rabbet_engine_find_io(model->plan.engine, name);
    if (io < (int32_t)model->plan.input_count)
      return RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                           "the plan has no output '%s'", name);
    rabbet_triton_instance_tensor(instance, index, (size_t)io)->wanted = true;
  }
  return rabbet_ok();
}

static rabbet_status_t serve_read(rabbet_triton_instance_t* instance,
                                  size_t index) {
  const rabbet_triton_plan_t* plan = &instance->model->plan;
  rabbet_triton_request_t* request = &instance->requests[index];
  bool batched = instance->model->config.max_batch_size > 0;
  bool is_cancelled = false;
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_ResponseNew(&request->response, request->handle)));
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_RequestIsCancelled(request->handle, &is_cancelled)));
  if (is_cancelled)
    return RABBET_STATUS(RABBET_STATUS_CANCELLED, "the request was cancelled");
  for (size_t io = 0; io < plan->input_count; ++io)
    RABBET_RETURN_IF_ERROR(
        serve_read_input(request, rabbet_triton_plan_io(plan, io), batched,
                         rabbet_triton_instance_tensor(instance, index, io)));
  if (!batched) request->rows = 1;
  return serve_read_outputs(instance, index);
}

// ---- Groups

static bool serve_can_join(rabbet_triton_instance_t* instance, size_t first,
                           size_t other) {
  const rabbet_triton_plan_t* plan = &instance->model->plan;
  if (instance->model->config.max_batch_size == 0) return false;
  for (size_t io = 0; io < plan->input_count; ++io) {
    rabbet_dims_t a = rabbet_triton_instance_tensor(instance, first, io)->dims;
    rabbet_dims_t b = rabbet_triton_instance_tensor(instance, other, io)->dims;
    a.d[0] = b.d[0];
    if (memcmp(a.d, b.d, (size_t)a.rank * sizeof(*a.d)) != 0) return false;
  }
  return true;
}

// Those from `first` on that can run together with it.
static size_t serve_group(rabbet_triton_instance_t* instance, size_t first,
                          size_t count) {
  size_t size = 0;
  int64_t rows = 0, limit = instance->model->config.max_batch_size;
  for (size_t i = first; i < count; ++i) {
    rabbet_triton_request_t* request = &instance->requests[i];
    if (request->done) continue;
    if (i > first &&
        (rows + request->rows > limit || !serve_can_join(instance, first, i)))
      continue;
    rows += request->rows;
    request->done = true;
    instance->group[size++] = (uint32_t)i;
  }
  return size;
}

static void serve_report_batch(const rabbet_triton_instance_t* instance,
                               const uint32_t* group, size_t count,
                               uint64_t begin) {
  const rabbet_triton_request_t* first = &instance->requests[group[0]];
  int64_t rows = 0;
  for (size_t i = 0; i < count; ++i)
    rows += instance->requests[group[i]].rows;
  rabbet_triton_log_failure(
      rabbet_triton_status(TRITONBACKEND_ModelInstanceReportBatchStatistics(
          instance->handle, (uint64_t)rows, begin, first->compute_begin,
          first->compute_end, rabbet_triton_now())));
}

// A batch that fails is run again, request by request, so that those fail that
// are the reason, and no other.
static void serve_run(rabbet_triton_instance_t* instance, const uint32_t* group,
                      size_t count, uint64_t begin) {
  rabbet_status_t status = rabbet_triton_batch_run(instance, group, count);
  if (rabbet_is_ok(status)) {
    serve_report_batch(instance, group, count, begin);
  } else if (count == 1) {
    instance->requests[*group].status = status;
  } else {
    rabbet_status_free(status);
    for (size_t i = 0; i < count; ++i)
      serve_run(instance, group + i, 1, rabbet_triton_now());
  }
}

// ---- Answering

static void serve_send(rabbet_triton_request_t* request) {
  if (!request->response) return;
  // The status stays for the statistics.
  rabbet_status_t copy = rabbet_status_clone(request->status);
  TRITONSERVER_Error* error = rabbet_triton_error(copy);
  rabbet_triton_log_failure(rabbet_triton_status(TRITONBACKEND_ResponseSend(
      request->response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error)));
  if (error) TRITONSERVER_ErrorDelete(error);
}

static void serve_release(rabbet_triton_instance_t* instance,
                          rabbet_triton_request_t* request, uint64_t begin,
                          uint64_t end) {
  rabbet_triton_log_failure(
      rabbet_triton_status(TRITONBACKEND_ModelInstanceReportStatistics(
          instance->handle, request->handle, rabbet_is_ok(request->status),
          begin, request->compute_begin, request->compute_end, end)));
  rabbet_triton_log_failure(rabbet_triton_status(TRITONBACKEND_RequestRelease(
      request->handle, TRITONSERVER_REQUEST_RELEASE_ALL)));
  if (!request->response)
    rabbet_triton_log_failure(request->status);
  else
    rabbet_status_free(request->status);
}

rabbet_status_t rabbet_triton_instance_serve(rabbet_triton_instance_t* instance,
                                             TRITONBACKEND_Request** requests,
                                             size_t count) {
  uint64_t begin = rabbet_triton_now();
  RABBET_RETURN_IF_ERROR(rabbet_triton_instance_reserve(instance, count));
  for (size_t i = 0; i < count; ++i) {
    rabbet_triton_request_t* request = &instance->requests[i];
    request->handle = requests[i];
    request->status = serve_read(instance, i);
    request->done = !rabbet_is_ok(request->status);
  }
  for (size_t i = 0; i < count; ++i) {
    if (instance->requests[i].done) continue;
    size_t size = serve_group(instance, i, count);
    serve_run(instance, instance->group, size, begin);
  }
  for (size_t i = 0; i < count; ++i)
    serve_send(&instance->requests[i]);
  uint64_t end = rabbet_triton_now();
  for (size_t i = 0; i < count; ++i)
    serve_release(instance, &instance->requests[i], begin, end);
  return rabbet_ok();
}
