#define _GNU_SOURCE
#include "triton/batch.h"

#include <string.h>
#include <time.h>

#include "triton/ragged.h"
#include "triton/report.h"

typedef struct batch_t {
  rabbet_triton_instance_t* instance;
  rabbet_triton_call_t* call;
  const rabbet_triton_plan_t* plan;
  rabbet_context_t* context;
  const uint32_t* group;
  size_t count;
  int64_t rows;
  bool batched;
} batch_t;

uint64_t rabbet_triton_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static rabbet_triton_tensor_t* batch_tensor(const batch_t* b, size_t index,
                                            size_t io) {
  return rabbet_triton_call_tensor(b->call, b->group[index], io);
}

static rabbet_triton_request_t* batch_request(const batch_t* b, size_t index) {
  return &b->call->requests[b->group[index]];
}

// ---- Memory

static bool place_is_gpu(rabbet_triton_place_t place) {
  return place.type == TRITONSERVER_MEMORY_GPU;
}

// Where we wish memory of the server to be.
static rabbet_triton_place_t batch_wish(
    const rabbet_triton_instance_t* instance) {
  bool gpu = instance->gpu >= 0;
  return (rabbet_triton_place_t){
      .type = gpu ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU,
      .id = gpu ? instance->gpu : 0};
}

static rabbet_status_t batch_check_place(
    const rabbet_triton_instance_t* instance, size_t io,
    rabbet_triton_place_t place) {
  if (!place_is_gpu(place) || instance->gpu >= 0) return rabbet_ok();
  const rabbet_io_t* info = rabbet_triton_plan_io(&instance->model->plan, io);
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "%s '%s' is in memory of GPU %lld, and the plan is for "
                       "the device '%s'",
                       info->is_input ? "input" : "output", info->name,
                       (long long)place.id,
                       rabbet_engine_device(instance->engine));
}

// Copies into and out of the device's memory are ordered on the stream; one
// within it is done once the stream was waited for.
static rabbet_status_t batch_copy(const rabbet_triton_instance_t* instance,
                                  void* stream, rabbet_triton_place_t to,
                                  rabbet_triton_place_t from, size_t size) {
  rabbet_engine_t* engine = instance->engine;
  if (size == 0) return rabbet_ok();
  if (place_is_gpu(to) && place_is_gpu(from))
    return rabbet_engine_copy(engine, to.data, from.data, size, stream);
  if (place_is_gpu(to))
    return rabbet_engine_copy_to_device(engine, to.data, from.data, size,
                                        stream);
  if (place_is_gpu(from))
    return rabbet_engine_copy_to_host(engine, to.data, from.data, size, stream);
  memcpy(to.data, from.data, size);
  return rabbet_ok();
}

static bool batch_is_aligned(const rabbet_io_t* io, const void* data) {
  uintptr_t element = (uintptr_t)rabbet_dtype_bits(io->dtype) / 8;
  return (uintptr_t)data % (element ? element : 1) == 0;
}

static rabbet_status_t batch_bind(const batch_t* b, size_t io,
                                  rabbet_triton_place_t place) {
  return place_is_gpu(place)
             ? rabbet_context_set_address(b->context, io, place.data)
             : rabbet_context_set_host_address(b->context, io, place.data);
}

// ---- Inputs

static rabbet_status_t batch_input(const batch_t* b, size_t index, size_t io,
                                   uint32_t buffer,
                                   rabbet_triton_place_t* out_place,
                                   size_t* out_size) {
  const void* data = NULL;
  uint64_t size = 0;
  rabbet_triton_place_t place = batch_wish(b->instance);
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_InputBuffer(batch_tensor(b, index, io)->input, buffer,
                                &data, &size, &place.type, &place.id)));
  place.data = (void*)data;
  *out_place = place;
  *out_size = (size_t)size;
  return batch_check_place(b->instance, io, place);
}

// The buffers of all requests, one after the other.
static rabbet_status_t batch_join(const batch_t* b, size_t io, bool on_device) {
  rabbet_triton_place_t all, to, from;
  size_t bytes = 0, size = 0;
  for (size_t i = 0; i < b->count; ++i)
    bytes += batch_tensor(b, i, io)->bytes;
  RABBET_RETURN_IF_ERROR(rabbet_triton_instance_stage(
      b->instance, &b->instance->staging[io], on_device, bytes, &all));
  to = all;
  for (size_t i = 0; i < b->count; ++i) {
    for (uint32_t j = 0; j < batch_tensor(b, i, io)->buffer_count; ++j) {
      RABBET_RETURN_IF_ERROR(batch_input(b, i, io, j, &from, &size));
      RABBET_RETURN_IF_ERROR(
          batch_copy(b->instance, b->instance->stream, to, from, size));
      to.data = (char*)to.data + size;
    }
  }
  return batch_bind(b, io, all);
}

static rabbet_status_t batch_put_batch_input(const batch_t* b, size_t io) {
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  rabbet_triton_place_t place;
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(info->dtype, info->format,
                                             &b->call->dims[io], &bytes));
  RABBET_RETURN_IF_ERROR(rabbet_triton_instance_stage(
      b->instance, &b->instance->staging[io], false, bytes, &place));
  // Of some only the size is defined.
  memset(place.data, 0, bytes);
  RABBET_RETURN_IF_ERROR(rabbet_triton_ragged_fill(
      b->instance->model, b->call, b->group, b->count, io, place.data));
  return batch_bind(b, io, place);
}

static rabbet_status_t batch_put_input(const batch_t* b, size_t io) {
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  bool gpu = false;
  rabbet_triton_place_t place = {0};
  size_t size = 0, buffers = 0;
  if (b->instance->model->config.uses[io].role == RABBET_TRITON_BATCH_INPUT)
    return batch_put_batch_input(b, io);
  for (size_t i = 0; i < b->count; ++i) {
    uint32_t count = batch_tensor(b, i, io)->buffer_count;
    for (uint32_t j = 0; j < count; ++j) {
      RABBET_RETURN_IF_ERROR(batch_input(b, i, io, j, &place, &size));
      gpu |= place_is_gpu(place);
    }
    buffers += count;
  }
  // Values of shape inputs are read on the host.
  if (info->is_shape_input) return batch_join(b, io, false);
  // An empty tensor may have no memory.
  bool here = buffers == 1 && place.data &&
              batch_is_aligned(info, place.data) &&
              (!gpu || place.id == b->instance->gpu);
  return here ? batch_bind(b, io, place) : batch_join(b, io, gpu);
}

// ---- Outputs

rabbet_status_t rabbet_triton_batch_response(rabbet_triton_request_t* request) {
  return request->response ? rabbet_ok()
                           : rabbet_triton_status(TRITONBACKEND_ResponseNew(
                                 &request->response, request->handle));
}

// The part of a request in a tensor of all.
static void batch_cut(const batch_t* b, size_t index, size_t io) {
  rabbet_triton_tensor_t* tensor = batch_tensor(b, index, io);
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  const rabbet_triton_use_t* use = &b->instance->model->config.uses[io];
  tensor->dims = b->call->dims[io];
  if (use->is_scattered)
    rabbet_triton_scattered_dims(use, b->call, b->group[index], &tensor->dims);
  else if (b->batched)
    tensor->dims.d[0] = batch_request(b, index)->rows;
  tensor->bytes = 0;
  // What is larger than the whole, which was computed, does not fit.
  rabbet_status_ignore(rabbet_tensor_bytes(info->dtype, info->format,
                                           &tensor->dims, &tensor->bytes));
}

static rabbet_status_t batch_open_output(
    const rabbet_triton_instance_t* instance, rabbet_triton_request_t* request,
    rabbet_triton_tensor_t* tensor, size_t io,
    rabbet_triton_place_t* out_place) {
  const rabbet_io_t* info = rabbet_triton_plan_io(&instance->model->plan, io);
  TRITONBACKEND_Output* output = NULL;
  if (out_place->data) return rabbet_ok();  // before the run
  *out_place = batch_wish(instance);
  RABBET_RETURN_IF_ERROR(rabbet_triton_batch_response(request));
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(TRITONBACKEND_ResponseOutput(
      request->response, &output, info->name, rabbet_triton_type(info->dtype),
      tensor->dims.d, (uint32_t)tensor->dims.rank)));
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_OutputBuffer(output, &out_place->data, tensor->bytes,
                                 &out_place->type, &out_place->id)));
  return batch_check_place(instance, io, *out_place);
}

static rabbet_status_t batch_open_state(
    const rabbet_triton_instance_t* instance, rabbet_triton_request_t* request,
    rabbet_triton_tensor_t* tensor, size_t io,
    rabbet_triton_place_t* out_place) {
  const rabbet_io_t* info = rabbet_triton_plan_io(&instance->model->plan, io);
  if (out_place->data) return rabbet_ok();
  *out_place = batch_wish(instance);
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_StateNew(&tensor->state, request->handle, info->name,
                             rabbet_triton_type(info->dtype), tensor->dims.d,
                             (uint32_t)tensor->dims.rank)));
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_StateBuffer(tensor->state, &out_place->data, tensor->bytes,
                                &out_place->type, &out_place->id)));
  return batch_check_place(instance, io, *out_place);
}

static bool batch_is_state(const rabbet_triton_instance_t* instance,
                           size_t io) {
  return instance->model->config.uses[io].role == RABBET_TRITON_STATE;
}

// Whether an output of several requests is better computed into the device's
// memory: the server wants it there, or nobody wants it.
static bool batch_wants_device(const batch_t* b, size_t io) {
  const char* name = rabbet_triton_plan_io(b->plan, io)->name;
  rabbet_triton_place_t place = batch_wish(b->instance);
  if (!place_is_gpu(place)) return false;
  if (batch_is_state(b->instance, io) || !batch_tensor(b, 0, io)->wanted)
    return true;
  TRITONSERVER_Error* error = TRITONBACKEND_RequestOutputBufferProperties(
      batch_request(b, 0)->handle, name, NULL, &place.type, &place.id);
  bool known = !error;
  rabbet_status_ignore(rabbet_triton_status(error));
  return known && place_is_gpu(place);
}

// Gives an output memory before the run: a single request's own, if only the
// response or only the sequence wants it, and it can be used.
static rabbet_status_t batch_put_output(const batch_t* b, size_t io) {
  rabbet_triton_instance_t* instance = b->instance;
  rabbet_triton_call_t* call = b->call;
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  rabbet_triton_tensor_t* first = batch_tensor(b, 0, io);
  size_t bytes = 0;
  call->direct[io] = false;
  if (b->plan->data_dependent[io]) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_context_shape(b->context, io, &call->dims[io]));
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(info->dtype, info->format, &call->dims[io], &bytes));
  bool state = batch_is_state(instance, io);
  if (b->count == 1 && bytes > 0 && state != first->wanted) batch_cut(b, 0, io);
  if (b->count == 1 && bytes > 0 && state != first->wanted &&
      first->bytes == bytes) {
    RABBET_RETURN_IF_ERROR((state ? batch_open_state : batch_open_output)(
        instance, batch_request(b, 0), first, io, &first->place));
    call->direct[io] = batch_is_aligned(info, first->place.data);
    if (call->direct[io]) return batch_bind(b, io, first->place);
  }
  RABBET_RETURN_IF_ERROR(rabbet_triton_instance_stage(
      instance, &call->staging[io], batch_wants_device(b, io), bytes,
      &call->places[io]));
  return batch_bind(b, io, call->places[io]);
}

// ---- Outputs of each request

// Where each request's part of an output lies.
static rabbet_status_t batch_place_parts(const batch_t* b, size_t io) {
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  const rabbet_dims_t* dims = &b->call->dims[io];
  size_t offset = 0, whole = 0;
  char text[128];
  bool needed = batch_is_state(b->instance, io);
  for (size_t i = 0; i < b->count; ++i)
    needed |= batch_tensor(b, i, io)->wanted;
  if (!needed || b->call->direct[io]) return rabbet_ok();
  for (size_t i = 0; i < b->count; ++i) {
    batch_cut(b, i, io);
    batch_tensor(b, i, io)->offset = offset;
    offset += batch_tensor(b, i, io)->bytes;
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(info->dtype, info->format, dims, &whole));
  bool fits = b->instance->model->config.uses[io].is_scattered
                  ? offset == whole
                  : !b->batched || (dims->rank > 0 && dims->d[0] == b->rows);
  if (fits) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                       "output '%s' has shape %s after a run of batch %lld: it "
                       "cannot be divided among requests",
                       info->name, rabbet_dims_print(dims, text, sizeof(text)),
                       (long long)b->rows);
}

// Copies a request's part of an output to where it belongs.
static rabbet_status_t batch_give(rabbet_triton_instance_t* instance,
                                  rabbet_triton_call_t* call, size_t index,
                                  size_t io) {
  rabbet_triton_request_t* request = &call->requests[index];
  rabbet_triton_tensor_t* tensor = rabbet_triton_call_tensor(call, index, io);
  rabbet_triton_place_t from = call->places[io];
  void* stream = instance->answer_stream;
  if (call->direct[io]) return rabbet_ok();
  from.data = (char*)from.data + tensor->offset;
  if (batch_is_state(instance, io)) {
    rabbet_triton_place_t to =
        tensor->wanted ? (rabbet_triton_place_t){0} : tensor->place;
    RABBET_RETURN_IF_ERROR(
        batch_open_state(instance, request, tensor, io, &to));
    RABBET_RETURN_IF_ERROR(
        batch_copy(instance, stream, to, from, tensor->bytes));
  }
  if (!tensor->wanted) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      batch_open_output(instance, request, tensor, io, &tensor->place));
  return batch_copy(instance, stream, tensor->place, from, tensor->bytes);
}

static void batch_give_outputs(rabbet_triton_instance_t* instance,
                               rabbet_triton_call_t* call, size_t index) {
  const rabbet_triton_plan_t* plan = &instance->model->plan;
  rabbet_triton_request_t* request = &call->requests[index];
  for (size_t io = plan->input_count;
       rabbet_is_ok(request->status) && io < plan->io_count; ++io)
    request->status = batch_give(instance, call, index, io);
}

// For copies within the device's memory.
static rabbet_status_t batch_wait(const rabbet_triton_instance_t* instance) {
  return instance->gpu >= 0 ? rabbet_engine_synchronize(instance->engine,
                                                        instance->answer_stream)
                            : rabbet_ok();
}

void rabbet_triton_batch_divide(rabbet_triton_instance_t* instance,
                                rabbet_triton_call_t* call, size_t begin,
                                size_t end) {
  for (size_t i = begin; i < end; ++i)
    batch_give_outputs(instance, call, i);
  rabbet_status_t status = batch_wait(instance);
  for (size_t i = begin; i < end; ++i)
    call->requests[i].status = rabbet_status_join(call->requests[i].status,
                                                  rabbet_status_clone(status));
  rabbet_status_free(status);
}

static rabbet_status_t batch_keep_states(const batch_t* b, size_t index) {
  for (size_t io = b->plan->input_count; io < b->plan->io_count; ++io) {
    if (batch_is_state(b->instance, io))
      RABBET_RETURN_IF_ERROR(rabbet_triton_status(
          TRITONBACKEND_StateUpdate(batch_tensor(b, index, io)->state)));
  }
  return rabbet_ok();
}

// The server may run a sequence's next request as soon as this call returns, so
// that states are not left for later.
static void batch_finish(const batch_t* b) {
  for (size_t i = 0; i < b->count; ++i)
    batch_give_outputs(b->instance, b->call, b->group[i]);
  rabbet_status_t status = batch_wait(b->instance);
  for (size_t i = 0; i < b->count; ++i) {
    rabbet_triton_request_t* request = batch_request(b, i);
    request->status =
        rabbet_status_join(request->status, rabbet_status_clone(status));
    if (rabbet_is_ok(request->status))
      request->status = batch_keep_states(b, i);
  }
  rabbet_status_free(status);
}

void rabbet_triton_batch_report(const rabbet_triton_instance_t* instance,
                                const rabbet_triton_call_t* call,
                                const uint32_t* group, size_t count) {
  const rabbet_triton_request_t* first = &call->requests[group[0]];
  int64_t rows = 0;
  for (size_t i = 0; i < count; ++i)
    rows += call->requests[group[i]].rows;
  rabbet_triton_log_failure(
      rabbet_triton_status(TRITONBACKEND_ModelInstanceReportBatchStatistics(
          instance->handle, (uint64_t)rows, call->begin, first->compute_begin,
          first->compute_end, rabbet_triton_now())));
}

// ---- The run

static rabbet_status_t batch_set_shapes(batch_t* b) {
  rabbet_triton_instance_t* instance = b->instance;
  for (size_t io = 0; io < b->plan->input_count; ++io) {
    rabbet_triton_joined_dims(instance->model, b->call, b->group, b->count, io,
                              &b->call->dims[io]);
  }
  int32_t profile = 0;
  if (b->plan->profile_count > 1)
    profile = rabbet_triton_plan_profile(b->plan, b->call->dims);
  // The first one then tells what does not fit.
  if (profile < 0) profile = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_instance_context(instance, (size_t)profile, &b->context));
  for (size_t io = 0; io < b->plan->input_count; ++io)
    RABBET_RETURN_IF_ERROR(
        rabbet_context_set_input_shape(b->context, io, &b->call->dims[io]));
  return rabbet_ok();
}

static rabbet_status_t batch_compute(batch_t* b) {
  rabbet_triton_instance_t* instance = b->instance;
  RABBET_RETURN_IF_ERROR(batch_set_shapes(b));
  for (size_t io = 0; io < b->plan->input_count; ++io)
    RABBET_RETURN_IF_ERROR(batch_put_input(b, io));
  for (size_t io = b->plan->input_count; io < b->plan->io_count; ++io)
    RABBET_RETURN_IF_ERROR(batch_put_output(b, io));
  uint64_t begin = rabbet_triton_now();
  RABBET_RETURN_IF_ERROR(rabbet_context_execute(b->context, instance->stream));
  if (instance->gpu >= 0) {
    RABBET_RETURN_IF_ERROR(
        rabbet_engine_synchronize(instance->engine, instance->stream));
    RABBET_RETURN_IF_ERROR(rabbet_context_check(b->context, instance->stream));
  }
  uint64_t end = rabbet_triton_now();
  for (size_t i = 0; i < b->count; ++i) {
    batch_request(b, i)->compute_begin = begin;
    batch_request(b, i)->compute_end = end;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_triton_batch_run(rabbet_triton_instance_t* instance,
                                        const uint32_t* group, size_t count,
                                        bool divide) {
  rabbet_triton_call_t* call = instance->call;
  batch_t b = {.instance = instance,
               .call = call,
               .plan = &instance->model->plan,
               .group = group,
               .count = count,
               .batched = instance->model->config.max_batch_size > 0};
  for (size_t i = 0; i < count; ++i)
    b.rows += batch_request(&b, i)->rows;
  RABBET_RETURN_IF_ERROR(batch_compute(&b));
  rabbet_status_t status = rabbet_ok();
  for (size_t io = b.plan->input_count;
       rabbet_is_ok(status) && io < b.plan->io_count; ++io)
    status = batch_place_parts(&b, io);
  for (size_t i = 0; i < count; ++i)
    batch_request(&b, i)->status = rabbet_status_clone(status);
  rabbet_status_free(status);
  if (divide) batch_finish(&b);
  return rabbet_ok();
}
