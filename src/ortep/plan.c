#include "ortep/plan.h"

#include <string.h>

#include "ortep/gpu.h"

#define PLAN_ALIGNMENT 64
// Idle contexts whose last run was on other streams; the oldest goes.
#define PLAN_MOST_IDLE 16

// Memory of an output whose size a run tells.
typedef struct plan_told_t {
  const struct rabbet_ort_lease_t* lease;
  void* memory;
  size_t size;
  rabbet_dims_t dims;
  bool is_set;  // the context asks for it
} plan_told_t;

typedef struct rabbet_ort_lease_t {
  struct rabbet_ort_lease_t* next;
  const rabbet_ort_plan_t* plan;
  rabbet_context_t* context;
  void* stream;            // of its last run
  bool has_shapes;         // `input_dims` are those of the context
  bool has_output_shapes;  // `output_dims` follow from them
  rabbet_dims_t* input_dims;
  rabbet_dims_t* output_dims;  // -1: a run tells
  plan_told_t* told;           // of each output
  int64_t** values;            // of each input: the host's copy, or NULL
} rabbet_ort_lease_t;

// ---- The engine's inputs and outputs

static rabbet_status_t plan_check_io(const rabbet_ort_plan_t* plan,
                                     const char* name, bool is_input,
                                     const ONNXTensorElementDataType* type,
                                     size_t* out_io) {
  const char* kind = is_input ? "input" : "output";
  const int32_t index = rabbet_engine_find_io(plan->engine, name);
  const rabbet_io_t* io =
      index < 0 ? NULL : rabbet_engine_io(plan->engine, (size_t)index);
  if (!io || io->is_input != is_input)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE, "the plan has no %s '%s'",
                         kind, name);
  if (io->format != RABBET_FORMAT_LINEAR)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "the plan's %s '%s' has format %s; expected LINEAR",
                         kind, name, rabbet_format_name(io->format));
  if (type && rabbet_ort_type(io->dtype) != *type)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "the plan's %s '%s' is %s; the model has type %d of "
                         "ONNX",
                         kind, name, rabbet_dtype_name(io->dtype), *type);
  *out_io = (size_t)index;
  return rabbet_ok();
}

static rabbet_status_t plan_read_bounds(rabbet_ort_plan_t* plan, size_t input) {
  rabbet_ort_bounds_t* bounds = &plan->bounds[input];
  const size_t index = plan->input_ios[input];
  const rabbet_io_t* io = rabbet_engine_io(plan->engine, index);
  plan->shapes_depend_on_values |= io->is_shape_input;
  if (rabbet_engine_profile_count(plan->engine) == 0) {
    bounds->min = bounds->opt = bounds->max = io->dims;
    return rabbet_ok();
  }
  return rabbet_engine_profile_shape(plan->engine, 0, index, &bounds->min,
                                     &bounds->opt, &bounds->max);
}

static rabbet_status_t plan_find_ios(rabbet_ort_plan_t* plan,
                                     const ONNXTensorElementDataType* types) {
  const rabbet_ort_names_t* names = plan->names;
  const rabbet_allocator_t allocator = plan->session->allocator;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, names->input_count * sizeof(*plan->bounds),
                      (void**)&plan->bounds));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, names->input_count * sizeof(*plan->input_ios),
                      (void**)&plan->input_ios));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, names->output_count * sizeof(*plan->output_ios),
      (void**)&plan->output_ios));
  for (size_t i = 0; i < names->input_count; ++i) {
    RABBET_RETURN_IF_ERROR(plan_check_io(plan, names->inputs[i], true,
                                         types ? &types[i] : NULL,
                                         &plan->input_ios[i]));
    RABBET_RETURN_IF_ERROR(plan_read_bounds(plan, i));
  }
  for (size_t i = 0; i < names->output_count; ++i)
    RABBET_RETURN_IF_ERROR(plan_check_io(
        plan, names->outputs[i], false,
        types ? &types[names->input_count + i] : NULL, &plan->output_ios[i]));
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_plan_take_engine(
    const rabbet_ort_session_t* session, const rabbet_ort_names_t* names,
    const ONNXTensorElementDataType* types, rabbet_engine_t* engine,
    rabbet_ort_plan_t** out_plan) {
  rabbet_ort_plan_t* plan = NULL;
  *out_plan = NULL;
  rabbet_status_t status =
      rabbet_allocate(session->allocator, sizeof(*plan), (void**)&plan);
  if (!rabbet_is_ok(status)) {
    rabbet_engine_release(engine);
    return status;
  }
  plan->session = session;
  plan->names = names;
  plan->engine = engine;
  pthread_mutex_init(&plan->lock, NULL);
  status = plan_find_ios(plan, types);
  if (rabbet_is_ok(status))
    *out_plan = plan;
  else
    rabbet_ort_plan_destroy(plan);
  return status;
}

bool rabbet_ort_plan_covers(const rabbet_ort_plan_t* plan,
                            const rabbet_ort_feed_t* feeds) {
  for (size_t i = 0; i < plan->names->input_count; ++i) {
    const rabbet_ort_bounds_t* bounds = &plan->bounds[i];
    const rabbet_dims_t* dims = &feeds[i].dims;
    if (dims->rank != bounds->opt.rank) return false;
    for (int32_t axis = 0; axis < dims->rank; ++axis)
      if (dims->d[axis] < bounds->min.d[axis] ||
          dims->d[axis] > bounds->max.d[axis])
        return false;
  }
  return true;
}

// ---- Contexts

static void plan_destroy_lease(rabbet_ort_lease_t* lease) {
  const rabbet_ort_names_t* names = lease->plan->names;
  const rabbet_allocator_t allocator = lease->plan->session->allocator;
  rabbet_context_destroy(lease->context);
  for (size_t i = 0; lease->told && i < names->output_count; ++i)
    rabbet_free_aligned(allocator, lease->told[i].memory, PLAN_ALIGNMENT);
  for (size_t i = 0; lease->values && i < names->input_count; ++i)
    rabbet_free(allocator, lease->values[i]);
  rabbet_free(allocator, lease->input_dims);
  rabbet_free(allocator, lease->output_dims);
  rabbet_free(allocator, lease->told);
  rabbet_free(allocator, lease->values);
  rabbet_free(allocator, lease);
}

static rabbet_status_t plan_fill_lease(rabbet_ort_lease_t* lease) {
  const rabbet_ort_plan_t* plan = lease->plan;
  const rabbet_allocator_t allocator = plan->session->allocator;
  const size_t inputs = plan->names->input_count;
  const size_t outputs = plan->names->output_count;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator,
                                         inputs * sizeof(*lease->input_dims),
                                         (void**)&lease->input_dims));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, inputs * sizeof(*lease->values), (void**)&lease->values));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator,
                                         outputs * sizeof(*lease->output_dims),
                                         (void**)&lease->output_dims));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, outputs * sizeof(*lease->told), (void**)&lease->told));
  RABBET_RETURN_IF_ERROR(
      rabbet_context_create(plan->engine, allocator, &lease->context));
  const int64_t threads = plan->session->options.threads;
  return threads ? rabbet_context_set_threads(lease->context, (int)threads)
                 : rabbet_ok();
}

// A run is still under way on its stream when its context is given back. So a
// context stays with its stream; NULL if none is idle. *out_surplus is one of
// another stream that is to be destroyed, which waits for the device.
static rabbet_ort_lease_t* plan_take_idle(rabbet_ort_plan_t* plan, void* stream,
                                          rabbet_ort_lease_t** out_surplus) {
  rabbet_ort_lease_t** at = &plan->idle;
  rabbet_ort_lease_t** oldest = NULL;
  size_t count = 0;
  *out_surplus = NULL;
  for (; *at && (*at)->stream != stream; at = &(*at)->next) {
    oldest = at;
    ++count;
  }
  rabbet_ort_lease_t* lease = *at;
  if (lease) {
    *at = lease->next;
  } else if (count >= PLAN_MOST_IDLE) {
    *out_surplus = *oldest;
    *oldest = NULL;
  }
  return lease;
}

static rabbet_status_t plan_borrow(rabbet_ort_plan_t* plan, void* stream,
                                   rabbet_ort_lease_t** out_lease) {
  rabbet_ort_lease_t* surplus = NULL;
  pthread_mutex_lock(&plan->lock);
  rabbet_ort_lease_t* lease = plan_take_idle(plan, stream, &surplus);
  pthread_mutex_unlock(&plan->lock);
  if (surplus) plan_destroy_lease(surplus);
  *out_lease = lease;
  if (lease) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_allocate(plan->session->allocator,
                                         sizeof(*lease), (void**)&lease));
  lease->plan = plan;
  lease->stream = stream;
  rabbet_status_t status = plan_fill_lease(lease);
  if (rabbet_is_ok(status))
    *out_lease = lease;
  else
    plan_destroy_lease(lease);
  return status;
}

static void plan_give_back(rabbet_ort_plan_t* plan, rabbet_ort_lease_t* lease) {
  pthread_mutex_lock(&plan->lock);
  lease->next = plan->idle;
  plan->idle = lease;
  pthread_mutex_unlock(&plan->lock);
}

void rabbet_ort_plan_destroy(rabbet_ort_plan_t* plan) {
  if (!plan) return;
  const rabbet_allocator_t allocator = plan->session->allocator;
  for (rabbet_ort_lease_t *lease = plan->idle, *next; lease; lease = next) {
    next = lease->next;
    plan_destroy_lease(lease);
  }
  pthread_mutex_destroy(&plan->lock);
  rabbet_engine_release(plan->engine);
  rabbet_free(allocator, plan->bounds);
  rabbet_free(allocator, plan->input_ios);
  rabbet_free(allocator, plan->output_ios);
  rabbet_free(allocator, plan);
}

// ---- Inputs

// Values of shape inputs are read on the host.
static rabbet_status_t plan_fetch_values(rabbet_ort_lease_t* lease,
                                         size_t input, const void* data,
                                         void* stream) {
  const rabbet_ort_plan_t* plan = lease->plan;
  size_t size = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_context_bytes(lease->context, plan->input_ios[input], &size));
  RABBET_RETURN_IF_ERROR(rabbet_reallocate(plan->session->allocator,
                                           size ? size : 1,
                                           (void**)&lease->values[input]));
  return rabbet_engine_copy_to_host(plan->engine, lease->values[input], data,
                                    size, stream);
}

static rabbet_status_t plan_set_input(rabbet_ort_lease_t* lease, size_t input,
                                      const rabbet_ort_feed_t* feed,
                                      void* stream) {
  static char nothing[PLAN_ALIGNMENT];  // an empty tensor's place
  const rabbet_ort_plan_t* plan = lease->plan;
  const size_t index = plan->input_ios[input];
  const rabbet_io_t* io = rabbet_engine_io(plan->engine, index);
  void* data = feed->data ? (void*)feed->data : nothing;
  if (feed->is_on_host || !feed->data)
    return io->is_shape_input
               ? rabbet_context_set_address(lease->context, index, data)
               : rabbet_context_set_host_address(lease->context, index, data);
  if (!io->is_shape_input)
    return rabbet_context_set_address(lease->context, index, data);
  RABBET_RETURN_IF_ERROR(plan_fetch_values(lease, input, data, stream));
  return rabbet_context_set_address(lease->context, index,
                                    lease->values[input]);
}

static rabbet_status_t plan_set_inputs(rabbet_ort_lease_t* lease,
                                       const rabbet_ort_feed_t* feeds,
                                       void* stream) {
  const rabbet_ort_plan_t* plan = lease->plan;
  for (size_t i = 0; i < plan->names->input_count; ++i) {
    const rabbet_dims_t* dims = &feeds[i].dims;
    if (!lease->has_shapes ||
        memcmp(dims->d, lease->input_dims[i].d,
               (size_t)dims->rank * sizeof(*dims->d)) != 0) {
      lease->has_output_shapes = false;
      RABBET_RETURN_IF_ERROR(rabbet_context_set_input_shape(
          lease->context, plan->input_ios[i], dims));
      lease->input_dims[i] = *dims;
    }
    RABBET_RETURN_IF_ERROR(plan_set_input(lease, i, &feeds[i], stream));
  }
  lease->has_shapes = true;
  return rabbet_ok();
}

// ---- Outputs

static void* plan_told_reallocate(void* user_data, const char* name,
                                  void* current, size_t size, size_t alignment,
                                  void* stream) {
  plan_told_t* told = user_data;
  const rabbet_allocator_t allocator = told->lease->plan->session->allocator;
  (void)name, (void)current, (void)alignment, (void)stream;
  if (told->size >= size) return told->memory;
  rabbet_free_aligned(allocator, told->memory, PLAN_ALIGNMENT);
  told->memory = NULL;
  told->size = 0;
  // The run reports that there is none.
  rabbet_status_t status =
      rabbet_allocate_aligned(allocator, size, PLAN_ALIGNMENT, &told->memory);
  if (rabbet_is_ok(status)) told->size = size;
  rabbet_status_ignore(status);
  return told->memory;
}

static void plan_told_notify(void* user_data, const char* name,
                             const rabbet_dims_t* dims) {
  plan_told_t* told = user_data;
  (void)name;
  told->dims = *dims;
}

static bool plan_is_told(const rabbet_dims_t* dims) {
  for (int32_t axis = 0; axis < dims->rank; ++axis)
    if (dims->d[axis] < 0) return true;
  return false;
}

static rabbet_status_t plan_find_output_shapes(rabbet_ort_lease_t* lease) {
  const rabbet_ort_plan_t* plan = lease->plan;
  if (lease->has_output_shapes && !plan->shapes_depend_on_values)
    return rabbet_ok();
  for (size_t i = 0; i < plan->names->output_count; ++i) {
    const size_t io = plan->output_ios[i];
    plan_told_t* told = &lease->told[i];
    RABBET_RETURN_IF_ERROR(
        rabbet_context_shape(lease->context, io, &lease->output_dims[i]));
    // Stays so: after a run the context knows the sizes of that run.
    if (told->is_set || !plan_is_told(&lease->output_dims[i])) continue;
    told->lease = lease;
    told->is_set = true;
    const rabbet_output_allocator_t allocator = {
        .user_data = told,
        .reallocate = plan_told_reallocate,
        .notify_shape = plan_told_notify,
        .host = true,
    };
    RABBET_RETURN_IF_ERROR(
        rabbet_context_set_output_allocator(lease->context, io, allocator));
  }
  lease->has_output_shapes = true;
  return rabbet_ok();
}

// An output's memory, of the node; NULL if it is empty.
static rabbet_status_t plan_take_output(const rabbet_ort_plan_t* plan,
                                        OrtKernelContext* kernel, size_t output,
                                        const rabbet_dims_t* dims,
                                        void** out_data, bool* out_is_on_host) {
  OrtValue* value = NULL;
  *out_data = NULL;
  *out_is_on_host = true;
  RABBET_RETURN_IF_ERROR(ORT(KernelContext_GetOutput, kernel,
                             plan->names->output_slots[output], dims->d,
                             (size_t)dims->rank, &value));
  if (plan->session->on_device)
    RABBET_RETURN_IF_ERROR(rabbet_ort_gpu_find_place(
        plan->session->ordinal, value, "output", plan->names->outputs[output],
        out_is_on_host));
  return ORT(GetTensorMutableData, value, out_data);
}

static rabbet_status_t plan_set_outputs(rabbet_ort_lease_t* lease,
                                        OrtKernelContext* kernel) {
  static char nothing[PLAN_ALIGNMENT];
  const rabbet_ort_plan_t* plan = lease->plan;
  RABBET_RETURN_IF_ERROR(plan_find_output_shapes(lease));
  for (size_t i = 0; i < plan->names->output_count; ++i) {
    const size_t io = plan->output_ios[i];
    void* data = NULL;
    bool is_on_host = false;
    if (lease->told[i].is_set) continue;
    RABBET_RETURN_IF_ERROR(plan_take_output(
        plan, kernel, i, &lease->output_dims[i], &data, &is_on_host));
    RABBET_RETURN_IF_ERROR(
        is_on_host || !data
            ? rabbet_context_set_host_address(lease->context, io,
                                              data ? data : nothing)
            : rabbet_context_set_address(lease->context, io, data));
  }
  return rabbet_ok();
}

// Copies the outputs whose sizes the run has told.
static rabbet_status_t plan_copy_told(rabbet_ort_lease_t* lease,
                                      OrtKernelContext* kernel, void* stream) {
  const rabbet_ort_plan_t* plan = lease->plan;
  for (size_t i = 0; i < plan->names->output_count; ++i) {
    const plan_told_t* told = &lease->told[i];
    const rabbet_io_t* io = rabbet_engine_io(plan->engine, plan->output_ios[i]);
    void* data = NULL;
    bool is_on_host = false;
    size_t size = 0;
    if (!told->is_set) continue;
    RABBET_RETURN_IF_ERROR(
        plan_take_output(plan, kernel, i, &told->dims, &data, &is_on_host));
    RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(io->dtype, RABBET_FORMAT_LINEAR,
                                               &told->dims, &size));
    if (!size) continue;
    if (is_on_host)
      memcpy(data, told->memory, size);
    else
      RABBET_RETURN_IF_ERROR(rabbet_engine_copy_to_device(
          plan->engine, data, told->memory, size, stream));
  }
  return rabbet_ok();
}

// ---- A run

static rabbet_status_t plan_run(rabbet_ort_lease_t* lease,
                                const rabbet_ort_feed_t* feeds,
                                OrtKernelContext* kernel) {
  RABBET_RETURN_IF_ERROR(plan_set_inputs(lease, feeds, lease->stream));
  RABBET_RETURN_IF_ERROR(plan_set_outputs(lease, kernel));
  RABBET_RETURN_IF_ERROR(rabbet_context_execute(lease->context, lease->stream));
  return plan_copy_told(lease, kernel, lease->stream);
}

rabbet_status_t rabbet_ort_plan_run(rabbet_ort_plan_t* plan,
                                    const rabbet_ort_feed_t* feeds,
                                    OrtKernelContext* kernel) {
  rabbet_ort_lease_t* lease = NULL;
  void* stream = NULL;  // NULL on the CPU
  if (plan->session->on_device)
    RABBET_RETURN_IF_ERROR(
        ORT(KernelContext_GetGPUComputeStream, kernel, &stream));
  RABBET_RETURN_IF_ERROR(plan_borrow(plan, stream, &lease));
  rabbet_status_t status = plan_run(lease, feeds, kernel);
  // What a failed run has set is not known.
  if (!rabbet_is_ok(status)) lease->has_shapes = false;
  plan_give_back(plan, lease);
  return status;
}
