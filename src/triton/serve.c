// Requests: read, put into groups, answered.
#include <string.h>

#include "triton/batch.h"
#include "triton/ragged.h"
#include "triton/report.h"

// ---- Reading

static rabbet_status_t serve_read_input(rabbet_triton_request_t* request,
                                        const rabbet_io_t* io,
                                        int32_t expected_rank, bool batched,
                                        rabbet_triton_tensor_t* tensor) {
  const int64_t* dims = NULL;
  uint32_t rank = 0;
  uint64_t size = 0;
  char text[128];
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_RequestInput(request->handle, io->name, &tensor->input)));
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(TRITONBACKEND_InputProperties(
      tensor->input, NULL, NULL, &dims, &rank, &size, &tensor->buffer_count)));
  if (rank != (uint32_t)expected_rank)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "input '%s' has %u dimensions; expected %d", io->name,
                         rank, expected_rank);
  tensor->dims.rank = expected_rank;
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
  const rabbet_triton_use_t* uses = instance->model->config.uses;
  rabbet_triton_request_t* request = &instance->call->requests[index];
  bool batched = instance->model->config.max_batch_size > 0;
  bool is_cancelled = false;
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_RequestIsCancelled(request->handle, &is_cancelled)));
  if (is_cancelled)
    return RABBET_STATUS(RABBET_STATUS_CANCELLED, "the request was cancelled");
  for (size_t io = 0; io < plan->input_count; ++io) {
    if (uses[io].role != RABBET_TRITON_BATCH_INPUT)
      RABBET_RETURN_IF_ERROR(serve_read_input(
          request, rabbet_triton_plan_io(plan, io), uses[io].rank, batched,
          rabbet_triton_call_tensor(instance->call, index, io)));
  }
  if (!batched) request->rows = 1;
  return serve_read_outputs(instance, index);
}

// ---- Groups

// Whether two requests' shapes of an input are equal where the plan's has one
// for all requests.
static bool serve_is_alike(rabbet_triton_instance_t* instance, size_t first,
                           size_t other, size_t io) {
  const rabbet_triton_use_t* use = &instance->model->config.uses[io];
  const rabbet_dims_t* a =
      &rabbet_triton_call_tensor(instance->call, first, io)->dims;
  const rabbet_dims_t* b =
      &rabbet_triton_call_tensor(instance->call, other, io)->dims;
  int32_t rank = rabbet_triton_plan_io(&instance->model->plan, io)->dims.rank;
  int32_t skip = use->rank - rank + 1;
  if (use->role == RABBET_TRITON_BATCH_INPUT) return true;
  return memcmp(a->d + skip, b->d + skip, (size_t)(rank - 1) * sizeof(*a->d)) ==
         0;
}

// Whether a profile allows the group, of which single requests may differ.
static bool serve_fits(const rabbet_triton_instance_t* instance) {
  rabbet_triton_call_t* call = instance->call;
  const rabbet_triton_model_t* model = instance->model;
  for (size_t io = 0; io < model->plan.input_count; ++io)
    rabbet_triton_joined_dims(model, call, call->group, call->group_count, io,
                              &call->dims[io]);
  return rabbet_triton_plan_profile(&model->plan, call->dims) >= 0;
}

// Whether a request can run together with the group, which has one at least.
static bool serve_can_join(rabbet_triton_instance_t* instance, size_t other) {
  rabbet_triton_call_t* call = instance->call;
  if (instance->model->config.max_batch_size == 0) return false;
  for (size_t io = 0; io < instance->model->plan.input_count; ++io) {
    if (!serve_is_alike(instance, call->group[0], other, io)) return false;
  }
  if (!instance->model->config.is_ragged) return true;
  call->group[call->group_count++] = (uint32_t)other;
  bool fits = serve_fits(instance);
  --call->group_count;
  return fits;
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
        (rows + request->rows > limit || !serve_can_join(instance, i)))
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
