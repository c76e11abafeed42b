#define _GNU_SOURCE
#include "triton/batch.h"

#include <string.h>
#include <time.h>

#include "triton/report.h"

typedef struct batch_t {
  rabbet_triton_instance_t* instance;
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
  return rabbet_triton_instance_tensor(b->instance, b->group[index], io);
}

static rabbet_triton_request_t* batch_request(const batch_t* b, size_t index) {
  return &b->instance->requests[b->group[index]];
}

// ---- Memory

static bool place_is_gpu(rabbet_triton_place_t place) {
  return place.type == TRITONSERVER_MEMORY_GPU;
}

// Where we wish memory of the server to be.
static rabbet_triton_place_t batch_wish(const batch_t* b) {
  bool gpu = b->instance->gpu >= 0;
  return (rabbet_triton_place_t){
      .type = gpu ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU,
      .id = gpu ? b->instance->gpu : 0};
}

static rabbet_status_t batch_check_place(const batch_t* b, size_t io,
                                         rabbet_triton_place_t place) {
  if (!place_is_gpu(place) || b->instance->gpu >= 0) return rabbet_ok();
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "%s '%s' is in memory of GPU %lld, and the plan is for "
                       "the device '%s'",
                       info->is_input ? "input" : "output", info->name,
                       (long long)place.id,
                       rabbet_engine_device(b->instance->engine));
}

// Copies into and out of the device's memory are ordered on the stream; one
// within it is done once the stream was waited for.
static rabbet_status_t batch_copy(const batch_t* b, rabbet_triton_place_t to,
                                  rabbet_triton_place_t from, size_t size) {
  rabbet_engine_t* engine = b->instance->engine;
  void* stream = b->instance->stream;
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
  rabbet_triton_place_t place = batch_wish(b);
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_InputBuffer(batch_tensor(b, index, io)->input, buffer,
                                &data, &size, &place.type, &place.id)));
  place.data = (void*)data;
  *out_place = place;
  *out_size = (size_t)size;
  return batch_check_place(b, io, place);
}

// The buffers of all requests, one after the other.
static rabbet_status_t batch_join(const batch_t* b, size_t io, bool on_device) {
  rabbet_triton_place_t all, to, from;
  size_t bytes = 0, size = 0;
  for (size_t i = 0; i < b->count; ++i)
    bytes += batch_tensor(b, i, io)->bytes;
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_instance_stage(b->instance, io, on_device, bytes, &all));
  to = all;
  for (size_t i = 0; i < b->count; ++i) {
    for (uint32_t j = 0; j < batch_tensor(b, i, io)->buffer_count; ++j) {
      RABBET_RETURN_IF_ERROR(batch_input(b, i, io, j, &from, &size));
      RABBET_RETURN_IF_ERROR(batch_copy(b, to, from, size));
      to.data = (char*)to.data + size;
    }
  }
  return batch_bind(b, io, all);
}

static rabbet_status_t batch_put_input(const batch_t* b, size_t io) {
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  bool gpu = false;
  rabbet_triton_place_t place = {0};
  size_t size = 0, buffers = 0;
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

// The part of a request in a tensor of all.
static void batch_cut(const batch_t* b, size_t index, size_t io) {
  rabbet_triton_tensor_t* tensor = batch_tensor(b, index, io);
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  int64_t rows = batch_request(b, index)->rows;
  tensor->dims = b->instance->dims[io];
  if (b->batched) tensor->dims.d[0] = rows;
  tensor->bytes = 0;
  // It is not larger than the whole, which was computed.
  rabbet_status_ignore(rabbet_tensor_bytes(info->dtype, info->format,
                                           &tensor->dims, &tensor->bytes));
}

static rabbet_status_t batch_open_output(const batch_t* b, size_t index,
                                         size_t io,
                                         rabbet_triton_place_t* out_place) {
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  const rabbet_triton_tensor_t* tensor = batch_tensor(b, index, io);
  TRITONBACKEND_Output* output = NULL;
  if (out_place->data) return rabbet_ok();  // before the run
  *out_place = batch_wish(b);
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(TRITONBACKEND_ResponseOutput(
      batch_request(b, index)->response, &output, info->name,
      rabbet_triton_type(info->dtype), tensor->dims.d,
      (uint32_t)tensor->dims.rank)));
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_OutputBuffer(output, &out_place->data, tensor->bytes,
                                 &out_place->type, &out_place->id)));
  return batch_check_place(b, io, *out_place);
}

static rabbet_status_t batch_open_state(const batch_t* b, size_t index,
                                        size_t io,
                                        rabbet_triton_place_t* out_place) {
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  rabbet_triton_tensor_t* tensor = batch_tensor(b, index, io);
  if (out_place->data) return rabbet_ok();
  *out_place = batch_wish(b);
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_StateNew(&tensor->state, batch_request(b, index)->handle,
                             info->name, rabbet_triton_type(info->dtype),
                             tensor->dims.d, (uint32_t)tensor->dims.rank)));
  RABBET_RETURN_IF_ERROR(rabbet_triton_status(
      TRITONBACKEND_StateBuffer(tensor->state, &out_place->data, tensor->bytes,
                                &out_place->type, &out_place->id)));
  return batch_check_place(b, io, *out_place);
}

static bool batch_is_state(const batch_t* b, size_t io) {
  return b->instance->model->config.roles[io] == RABBET_TRITON_STATE;
}

// Whether an output of several requests is better computed into the device's
// memory: the server wants it there, or nobody wants it.
static bool batch_wants_device(const batch_t* b, size_t io) {
  const char* name = rabbet_triton_plan_io(b->plan, io)->name;
  rabbet_triton_place_t place = batch_wish(b);
  if (!place_is_gpu(place)) return false;
  if (batch_is_state(b, io) || !batch_tensor(b, 0, io)->wanted) return true;
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
  const rabbet_io_t* info = rabbet_triton_plan_io(b->plan, io);
  rabbet_triton_tensor_t* first = batch_tensor(b, 0, io);
  size_t bytes = 0;
  instance->direct[io] = false;
  if (b->plan->data_dependent[io]) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_context_shape(b->context, io, &instance->dims[io]));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(info->dtype, info->format,
                                             &instance->dims[io], &bytes));
  bool state = batch_is_state(b, io);
  if (b->count == 1 && bytes > 0 && state != first->wanted) {
    batch_cut(b, 0, io);
    RABBET_RETURN_IF_ERROR(state ? batch_open_state(b, 0, io, &first->place)
                                 : batch_open_output(b, 0, io, &first->place));
    instance->direct[io] = batch_is_aligned(info, first->place.data);
    if (instance->direct[io]) return batch_bind(b, io, first->place);
  }
  RABBET_RETURN_IF_ERROR(rabbet_triton_instance_stage(
      instance, io, batch_wants_device(b, io), bytes, &instance->places[io]));
  return batch_bind(b, io, instance->places[io]);
}

// Copies a request's part of an output to where it belongs.
static rabbet_status_t batch_give(const batch_t* b, size_t index, size_t io,
                                  rabbet_triton_place_t from) {
  rabbet_triton_tensor_t* tensor = batch_tensor(b, index, io);
  bool state = batch_is_state(b, io);
  if (state) {
    rabbet_triton_place_t to =
        tensor->wanted ? (rabbet_triton_place_t){0} : tensor->place;
    RABBET_RETURN_IF_ERROR(batch_open_state(b, index, io, &to));
    RABBET_RETURN_IF_ERROR(batch_copy(b, to, from, tensor->bytes));
  }
  if (!tensor->wanted) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(batch_open_output(b, index, io, &tensor->place));
  return batch_copy(b, tensor->place, from, tensor->bytes);
}

static void batch_fail(const batch_t* b, size_t index, rabbet_status_t status) {
  rabbet_triton_request_t* request = batch_request(b, index);
  request->status = rabbet_status_join(request->status, status);
}

static rabbet_status_t batch_divide(const batch_t* b, size_t io) {
  rabbet_triton_instance_t* instance = b->instance;
  const rabbet_dims_t* dims = &instance->dims[io];
  rabbet_triton_place_t from = instance->places[io];
  if (instance->direct[io]) return rabbet_ok();
  if (b->batched && (dims->rank < 1 || dims->d[0] != b->rows)) {
    char text[128];
    return RABBET_STATUS(
        RABBET_STATUS_INTERNAL,
        "output '%s' has shape %s after a run of batch %lld: it cannot be "
        "divided among requests",
        rabbet_triton_plan_io(b->plan, io)->name,
        rabbet_dims_print(dims, text, sizeof(text)), (long long)b->rows);
  }
  for (size_t i = 0; i < b->count; ++i) {
    batch_cut(b, i, io);
    // A failed request's part is passed over.
    if (rabbet_is_ok(batch_request(b, i)->status))
      batch_fail(b, i, batch_give(b, i, io, from));
    from.data = (char*)from.data + batch_tensor(b, i, io)->bytes;
  }
  return rabbet_ok();
}

static rabbet_status_t batch_keep_states(const batch_t* b, size_t index) {
  for (size_t io = b->plan->input_count; io < b->plan->io_count; ++io) {
    if (batch_is_state(b, io))
      RABBET_RETURN_IF_ERROR(rabbet_triton_status(
          TRITONBACKEND_StateUpdate(batch_tensor(b, index, io)->state)));
  }
  return rabbet_ok();
}

// ---- The run

static rabbet_status_t batch_set_shapes(batch_t* b) {
  rabbet_triton_instance_t* instance = b->instance;
  for (size_t io = 0; io < b->plan->input_count; ++io) {
    instance->dims[io] = batch_tensor(b, 0, io)->dims;
    if (b->batched) instance->dims[io].d[0] = b->rows;
  }
  int32_t profile = 0;
  if (b->plan->profile_count > 1)
    profile = rabbet_triton_plan_profile(b->plan, instance->dims);
  // The first one then tells what does not fit.
  if (profile < 0) profile = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_triton_instance_context(instance, (size_t)profile, &b->context));
  for (size_t io = 0; io < b->plan->input_count; ++io)
    RABBET_RETURN_IF_ERROR(
        rabbet_context_set_input_shape(b->context, io, &instance->dims[io]));
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
                                        const uint32_t* group, size_t count) {
  batch_t b = {.instance = instance,
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
    status = batch_divide(&b, io);
  // Copies within the device's memory.
  if (rabbet_is_ok(status) && instance->gpu >= 0)
    status = rabbet_engine_synchronize(instance->engine, instance->stream);
  for (size_t i = 0; i < count; ++i) {
    rabbet_triton_request_t* request = batch_request(&b, i);
    if (!rabbet_is_ok(status))
      batch_fail(&b, i, rabbet_status_clone(status));
    else if (rabbet_is_ok(request->status))
      batch_fail(&b, i, batch_keep_states(&b, i));
  }
  rabbet_status_free(status);
  return rabbet_ok();
}
