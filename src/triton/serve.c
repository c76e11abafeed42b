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
  TRITONBACKEND_Request* request = instance->call->requests[index].handle;
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
    rabbet_triton_call_tensor(instance->call, index, (size_t)io)->wanted = true;
  }
  return rabbet_ok();
}

static rabbet_status_t serve_read(rabbet_triton_instance_t* instance,
                                  size_t index) {
  const rabbet_triton_plan_t* plan = &instance->model->plan;
  rabbet_triton_request_t* request = &instance->call->requests[index];
  bool batched = instance->model->config.max_batch_size > 0;
  bool is_cancelled = false;
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_RequestIsCancelled(request->handle, &is_cancelled)));
  if (is_cancelled)
    return RABBET_STATUS(RABBET_STATUS_CANCELLED, "the request was cancelled");
  for (size_t io = 0; io < plan->input_count; ++io)
    RABBET_RETURN_IF_ERROR(
        serve_read_input(request, rabbet_triton_plan_io(plan, io), batched,
                         rabbet_triton_call_tensor(instance->call, index, io)));
  if (!batched) request->rows = 1;
  return serve_read_outputs(instance, index);
}

// ---- Groups

static bool serve_can_join(rabbet_triton_instance_t* instance, size_t first,
                           size_t other) {
  const rabbet_triton_plan_t* plan = &instance->model->plan;
  if (instance->model->config.max_batch_size == 0) return false;
  for (size_t io = 0; io < plan->input_count; ++io) {
    rabbet_dims_t a =
        rabbet_triton_call_tensor(instance->call, first, io)->dims;
    rabbet_dims_t b =
        rabbet_triton_call_tensor(instance->call, other, io)->dims;
    a.d[0] = b.d[0];
    if (memcmp(a.d, b.d, (size_t)a.rank * sizeof(*a.d)) != 0) return false;
  }
  return true;
}

// Those from `first` on that can run together with it.
static void serve_group(rabbet_triton_instance_t* instance, size_t first) {
  rabbet_triton_call_t* call = instance->call;
  int64_t rows = 0, limit = instance->model->config.max_batch_size;
  call->group_count = 0;
  for (size_t i = first; i < call->count; ++i) {
    rabbet_triton_request_t* request = &call->requests[i];
    if (request->done) continue;
    if (i > first &&
        (rows + request->rows > limit || !serve_can_join(instance, first, i)))
      continue;
    rows += request->rows;
    request->done = true;
    call->group[call->group_count++] = (uint32_t)i;
  }
}

// Whether the group is all that the call has to run, so that its outputs may
// stay where they were computed. States are needed at once.
static bool serve_may_divide_later(const rabbet_triton_instance_t* instance) {
  const rabbet_triton_call_t* call = instance->call;
  size_t valid = 0;
  for (size_t i = 0; i < call->count; ++i)
    valid += rabbet_is_ok(call->requests[i].status);
  return instance->answers.thread_count > 0 && call->count > 1 &&
         call->group_count == valid && !instance->model->config.has_states;
}

// A batch that fails is run again, request by request, so that those fail that
// are the reason, and no other.
static void serve_run(rabbet_triton_instance_t* instance, const uint32_t* group,
                      size_t count) {
  rabbet_triton_call_t* call = instance->call;
  rabbet_status_t status =
      rabbet_triton_batch_run(instance, group, count, true);
  if (rabbet_is_ok(status)) {
    rabbet_triton_batch_report(instance, call, group, count);
  } else if (count == 1) {
    call->requests[*group].status = status;
  } else {
    rabbet_status_free(status);
    for (size_t i = 0; i < count; ++i)
      serve_run(instance, group + i, 1);
  }
}

static void serve_run_group(rabbet_triton_instance_t* instance) {
  rabbet_triton_call_t* call = instance->call;
  if (serve_may_divide_later(instance)) {
    rabbet_status_t status = rabbet_triton_batch_run(instance, call->group,
                                                     call->group_count, false);
    call->is_undivided = rabbet_is_ok(status);
    rabbet_status_free(status);
    if (call->is_undivided) return;
  }
  serve_run(instance, call->group, call->group_count);
}

rabbet_status_t rabbet_triton_instance_serve(rabbet_triton_instance_t* instance,
                                             TRITONBACKEND_Request** requests,
                                             size_t count) {
  uint64_t begin = rabbet_triton_now();
  rabbet_triton_call_t* call = rabbet_triton_answers_take_call(instance);
  rabbet_status_t status =
      rabbet_triton_call_reserve(instance->model->allocator, count, call);
  if (!rabbet_is_ok(status)) {
    rabbet_triton_answers_free_call(instance, call);
    return status;
  }
  instance->call = call;
  call->begin = begin;
  for (size_t i = 0; i < count; ++i) {
    rabbet_triton_request_t* request = &call->requests[i];
    request->handle = requests[i];
    request->status = serve_read(instance, i);
    request->done = !rabbet_is_ok(request->status);
  }
  for (size_t i = 0; i < count; ++i) {
    if (call->requests[i].done) continue;
    serve_group(instance, i);
    serve_run_group(instance);
  }
  rabbet_triton_answers_give(instance, call);
  return rabbet_ok();
}
