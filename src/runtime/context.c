#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/struct.h"
#include "base/thread.h"
#include "runtime/runtime.h"

// ---- Making a context

static rabbet_status_t context_make_frames(rabbet_context_t* context) {
  rabbet_engine_t* engine = context->engine;
  size_t count = engine->plan->sequence_count;
  rabbet_frame_t* frames = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &context->arena, count, sizeof(*frames), (void**)&frames));
  for (size_t i = 0; i < count; ++i) {
    frames[i].context = context;
    frames[i].sequence = &engine->sequences[i];
    RABBET_RETURN_IF_ERROR(rabbet_frame_initialize(&frames[i]));
  }
  context->frames = frames;
  context->main = &frames[engine->plan->entries[0]];
  return rabbet_ok();
}

static rabbet_status_t context_allocate(rabbet_context_t* context) {
  const rabbet_sequence_t* sequence = rabbet_engine_main(context->engine);
  const rabbet_plan_sequence_t* plan = sequence->plan;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &context->arena, plan->input_count, sizeof(*context->shape_set),
      (void**)&context->shape_set));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &context->arena, plan->input_count, sizeof(*context->shape_is_new),
      (void**)&context->shape_is_new));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &context->arena, plan->io_count, sizeof(*context->host_ios),
      (void**)&context->host_ios));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &context->arena, context->engine->place_count, sizeof(*context->memory),
      (void**)&context->memory));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &context->arena, context->engine->place_count,
      sizeof(*context->memory_bytes), (void**)&context->memory_bytes));
  context->memory_generation = 1;
  return context_make_frames(context);
}

// Inputs without dynamic dimensions have their shape from the start.
static void context_reset_shapes(rabbet_context_t* context) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  for (size_t i = 0; i < sequence->plan->input_count; ++i) {
    const rabbet_dims_t* dims = &sequence->ios[i].dims;
    context->shape_set[i] = true;
    assert(sequence->key_offsets[i] + (size_t)dims->rank <= sequence->key_size);
    for (int32_t axis = 0; axis < dims->rank; ++axis) {
      context->main->key[sequence->key_offsets[i] + (size_t)axis] =
          dims->d[axis];
      if (dims->d[axis] < 0) context->shape_set[i] = false;
    }
  }
  context->main->current = NULL;
  context->main->last = NULL;
  context->is_unprepared = true;
}

rabbet_status_t rabbet_context_create(rabbet_engine_t* engine,
                                      rabbet_allocator_t allocator,
                                      rabbet_context_t** out_context) {
  *out_context = NULL;
  if (!engine->device) {
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the plan was loaded only to be inspected; load it "
                         "without inspect_only to run it");
  }
  RABBET_RETURN_IF_ERROR(rabbet_engine_check_weights(engine));
  rabbet_context_t* context = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*context), (void**)&context));
  context->allocator = allocator;
  rabbet_arena_initialize(allocator, &context->arena);
  context->engine = engine;
  context->iteration_limit = engine->iteration_limit;
  rabbet_engine_retain(engine);
  rabbet_engine_add_context(engine, context);
  rabbet_status_t status = context_allocate(context);
  if (!rabbet_is_ok(status)) {
    rabbet_context_destroy(context);
    return status;
  }
  context_reset_shapes(context);
  *out_context = context;
  return rabbet_ok();
}

void rabbet_context_forget(rabbet_context_t* context) {
  rabbet_device_t* device = context->engine->device;
  size_t roots = 0;
  for (size_t i = 0; i < rabbet_context_frame_count(context); ++i)
    roots += rabbet_context_frame(context, i)->roots.count;
  // Waits for the whole device: the stream of the last run may be gone. A
  // failure here has already been reported.
  if (device->vtable->synchronize_all && roots > 0)
    rabbet_status_ignore(device->vtable->synchronize_all(device));
  context->is_unprepared = true;
  for (size_t i = 0; i < rabbet_context_frame_count(context); ++i)
    rabbet_frame_forget(rabbet_context_frame(context, i));
}

void rabbet_context_destroy(rabbet_context_t* context) {
  if (!context) return;
  rabbet_engine_t* engine = context->engine;
  rabbet_engine_remove_context(engine, context);
  rabbet_context_forget(context);
  rabbet_exchange_close(context);
  rabbet_context_free_host_ios(context);
  rabbet_context_free_memory(context);
  for (size_t i = 0; i < rabbet_context_frame_count(context); ++i)
    rabbet_frame_deinitialize(rabbet_context_frame(context, i));
  void* streams[] = {context->record_stream, context->loop_streams[0],
                     context->loop_streams[1]};
  for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); ++i)
    if (streams[i])
      engine->device->vtable->destroy_stream(engine->device, streams[i]);
  rabbet_finite_destroy(context);
  rabbet_arena_deinitialize(&context->arena);
  rabbet_free(context->allocator, context);
  rabbet_engine_release(engine);
}

rabbet_engine_t* rabbet_context_engine(const rabbet_context_t* context) {
  return context->engine;
}

// ---- Threads and profile

int rabbet_context_actual_threads(const rabbet_context_t* context) {
  if (context->threads > 0) return context->threads;
  if (context->engine->plan->threads > 0) return context->engine->plan->threads;
  int threads = 0;
  rabbet_status_ignore(rabbet_device_default_threads(&threads));
  return threads;
}

rabbet_status_t rabbet_context_set_threads(rabbet_context_t* context,
                                           int threads) {
  if (threads < 0 || threads > RABBET_MAX_THREADS)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "%d threads; expected 1 to %d, or 0 for the plan's number", threads,
        RABBET_MAX_THREADS);
  int before = rabbet_context_actual_threads(context);
  context->threads = threads;
  if (rabbet_context_actual_threads(context) != before)
    rabbet_context_forget(context);
  return rabbet_ok();
}

int rabbet_context_threads(const rabbet_context_t* context) {
  return rabbet_context_actual_threads(context);
}

// Addresses and output allocators are the caller's; all entries have the same
// inputs and outputs.
static void context_enter(rabbet_context_t* context, rabbet_frame_t* frame) {
  rabbet_frame_t* before = context->main;
  const rabbet_plan_sequence_t* plan = frame->sequence->plan;
  size_t visible = plan->io_count - plan->hidden_count;
  if (frame == before) return;
  for (size_t i = 0; i < visible; ++i) {
    rabbet_frame_store_address(frame, i, before->addresses[i]);
    frame->output_allocators[i] = before->output_allocators[i];
  }
  frame->allocator_count = before->allocator_count;
  context->main = frame;
}

rabbet_status_t rabbet_context_set_profile(rabbet_context_t* context,
                                           size_t profile) {
  size_t count = context->engine->plan->profile_count;
  if (profile >= count)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "profile %zu does not exist; the plan has %zu",
                         profile, count);
  if (profile == context->profile) return rabbet_ok();
  context->profile = profile;
  context_enter(context,
                rabbet_context_frame(
                    context, (size_t)context->engine->plan->entries[profile]));
  context_reset_shapes(context);
  return rabbet_ok();
}

size_t rabbet_context_profile(const rabbet_context_t* context) {
  return context->profile;
}

// ---- Shapes

static rabbet_status_t context_check_io(const rabbet_context_t* context,
                                        size_t io, bool want_input) {
  const rabbet_plan_sequence_t* plan = context->main->sequence->plan;
  if (io >= plan->io_count)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "%zu is not an input or output; the plan has %zu", io,
                         plan->io_count);
  if (want_input && io >= plan->input_count)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "'%s' is an output: its shape follows from the inputs",
                         plan->ios[io].name);
  return rabbet_ok();
}

static const rabbet_plan_range_t* context_range(const rabbet_context_t* context,
                                                size_t input) {
  const rabbet_plan_sequence_t* plan = context->main->sequence->plan;
  size_t profile = rabbet_plan_entry_profile(plan->plan, context->profile);
  assert(profile < plan->profile_count && input < plan->input_count);
  return &plan->profiles[profile * plan->input_count + input];
}

static rabbet_status_t context_check_shape(const rabbet_context_t* context,
                                           size_t io,
                                           const rabbet_dims_t* dims) {
  const rabbet_io_t* input = &context->main->sequence->ios[io];
  const rabbet_plan_range_t* range = context_range(context, io);
  char text[192], expected[192];
  if (dims->rank != input->dims.rank)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "input '%s' has shape %s, that is rank %d; it cannot be %s",
        input->name,
        rabbet_dims_print(&input->dims, expected, sizeof(expected)),
        input->dims.rank, rabbet_dims_print(dims, text, sizeof(text)));
  for (int32_t axis = 0; axis < dims->rank; ++axis) {
    int64_t size = dims->d[axis];
    if (input->dims.d[axis] >= 0 && size != input->dims.d[axis])
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "dimension %d of input '%s' is %lld; it must be "
                           "%lld",
                           axis, input->name, (long long)size,
                           (long long)input->dims.d[axis]);
    if (size < range->min.d[axis] || size > range->max.d[axis])
      return RABBET_STATUS(
          RABBET_STATUS_OUT_OF_RANGE,
          "dimension %d of input '%s' is %lld; profile %zu allows %lld to %lld",
          axis, input->name, (long long)size, context->profile,
          (long long)range->min.d[axis], (long long)range->max.d[axis]);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_context_set_input_shape(rabbet_context_t* context,
                                               size_t io,
                                               const rabbet_dims_t* dims) {
  RABBET_RETURN_IF_ERROR(context_check_io(context, io, true));
  RABBET_RETURN_IF_ERROR(context_check_shape(context, io, dims));
  int64_t* key = context->main->key + context->main->sequence->key_offsets[io];
  size_t bytes = (size_t)dims->rank * sizeof(*key);
  bool same = context->shape_set[io] &&
              (bytes == 0 || memcmp(key, dims->d, bytes) == 0);
  context->shape_is_new[io] = true;
  if (!same) {
    memcpy(key, dims->d, bytes);
    context->shape_set[io] = true;
    context->main->current = NULL;
    context->main->last = NULL;
    context->is_unprepared = true;
  }
  return rabbet_ok();
}

bool rabbet_context_is_missing(const rabbet_context_t* context, size_t io) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  if (io >= sequence->plan->input_count) return false;
  bool values = sequence->ios[io].is_shape_input &&
                sequence->plan->profiles[io].value_count > 0;
  return !context->shape_set[io] || (values && !context->main->addresses[io]);
}

// First input whose shape or values are missing, or -1.
static int32_t context_missing(const rabbet_context_t* context) {
  for (size_t i = 0; i < context->main->sequence->plan->input_count; ++i)
    if (rabbet_context_is_missing(context, i)) return (int32_t)i;
  return -1;
}

static rabbet_status_t context_missing_error(const rabbet_context_t* context,
                                             int32_t input) {
  assert(input >= 0 &&
         (size_t)input < context->main->sequence->plan->input_count);
  const char* name = context->main->sequence->ios[input].name;
  if (!context->shape_set[input])
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the shape of input '%s' is not set", name);
  return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                       "the address of shape input '%s' is not set: its values "
                       "are needed to know the shapes",
                       name);
}

// Reads shape inputs. If any value differs from last time, the known shapes are
// dropped, also on failure.
static rabbet_status_t context_read_values(rabbet_context_t* context) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  for (size_t i = 0; i < sequence->plan->input_count; ++i) {
    const rabbet_io_t* io = &sequence->ios[i];
    if (!io->is_shape_input) continue;
    const rabbet_plan_range_t* range = context_range(context, i);
    assert(context->main->addresses[i] || range->value_count == 0);
    int64_t* key =
        context->main->key + sequence->key_offsets[i] + io->dims.rank;
    for (size_t k = 0; k < range->value_count; ++k) {
      int64_t value =
          rabbet_load_int64(io->dtype, context->main->addresses[i], (int64_t)k);
      if (value < range->min_values[k] || value > range->max_values[k])
        return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                             "element %zu of shape input '%s' is %lld; profile "
                             "%zu allows %lld to %lld",
                             k, io->name, (long long)value, context->profile,
                             (long long)range->min_values[k],
                             (long long)range->max_values[k]);
      if (key[k] == value) continue;
      key[k] = value;
      context->main->current = NULL;
      context->main->last = NULL;
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_context_select(rabbet_context_t* context,
                                      rabbet_prepared_t** out_prepared) {
  const rabbet_sequence_t* sequence = context->main->sequence;
  if (!context->main->current || sequence->has_shape_inputs) {
    int32_t missing = context_missing(context);
    if (missing >= 0) return context_missing_error(context, missing);
  }
  if (sequence->has_shape_inputs)
    RABBET_RETURN_IF_ERROR(context_read_values(context));
  if (!context->main->current) {
    context->main->last = NULL;
    RABBET_RETURN_IF_ERROR(
        rabbet_prepared_lookup(context->main, NULL, context->main->key,
                               sequence->key_size, &context->main->current));
  }
  assert(context->main->current->segment == 0);
  *out_prepared = context->main->current;
  return rabbet_ok();
}

rabbet_status_t rabbet_context_infer_shapes(rabbet_context_t* context,
                                            int32_t* out_missing) {
  rabbet_prepared_t* prepared = NULL;
  int32_t missing = context_missing(context);
  if (out_missing) *out_missing = missing;
  return rabbet_context_select(context, &prepared);
}

rabbet_status_t rabbet_context_shape(rabbet_context_t* context, size_t io,
                                     rabbet_dims_t* out_dims) {
  *out_dims = (rabbet_dims_t){.rank = -1};
  RABBET_RETURN_IF_ERROR(context_check_io(context, io, false));
  const rabbet_sequence_t* sequence = context->main->sequence;
  *out_dims = sequence->ios[io].dims;
  if (io < sequence->plan->input_count) {
    if (context->shape_set[io] && out_dims->rank > 0)
      memcpy(out_dims->d, context->main->key + sequence->key_offsets[io],
             (size_t)out_dims->rank * sizeof(int64_t));
    return rabbet_ok();
  }
  if (context_missing(context) >= 0) return rabbet_ok();
  rabbet_prepared_t* prepared = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_context_select(context, &prepared));
  if (context->main->last) prepared = context->main->last;
  *out_dims = prepared->dims[sequence->plan->ios[io].value];
  return rabbet_ok();
}

rabbet_status_t rabbet_context_bytes(rabbet_context_t* context, size_t io,
                                     size_t* out_bytes) {
  *out_bytes = 0;
  RABBET_RETURN_IF_ERROR(context_check_io(context, io, false));
  const rabbet_io_t* tensor = &context->main->sequence->ios[io];
  if (tensor->is_input) {
    rabbet_dims_t dims;
    RABBET_RETURN_IF_ERROR(rabbet_context_shape(context, io, &dims));
    if (!context->shape_set[io])
      return context_missing_error(context, (int32_t)io);
    return RABBET_ANNOTATE(
        rabbet_tensor_bytes(tensor->dtype, tensor->format, &dims, out_bytes),
        "input '%s'", tensor->name);
  }
  rabbet_prepared_t* prepared = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_context_select(context, &prepared));
  size_t bytes = prepared->bytes[context->main->sequence->plan->ios[io].value];
  if (bytes == RABBET_BYTES_UNKNOWN)
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the size of output '%s' has no bound before the run; "
                         "set an output allocator for it",
                         tensor->name);
  *out_bytes = bytes;
  return rabbet_ok();
}

// ---- Addresses

void rabbet_frame_store_address(rabbet_frame_t* frame, size_t io,
                                void* address) {
  assert(io < frame->sequence->plan->io_count);
  if (frame->addresses[io] == address) return;
  frame->addresses[io] = address;
  ++frame->io_generation;
}

rabbet_status_t rabbet_context_set_address(rabbet_context_t* context, size_t io,
                                           void* address) {
  RABBET_RETURN_IF_ERROR(context_check_io(context, io, false));
  const rabbet_io_t* tensor = &context->main->sequence->ios[io];
  uintptr_t element = (uintptr_t)rabbet_dtype_bits(tensor->dtype) / 8;
  if (element > 1 && (uintptr_t)address % element != 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the address of '%s' is %p; %s needs a multiple of "
                         "%zu",
                         tensor->name, address,
                         rabbet_dtype_name(tensor->dtype), (size_t)element);
  assert(!context->host_ios[io].host || context->host_io_count > 0);
  context->host_io_count -= context->host_ios[io].host != NULL;
  context->host_ios[io].host = NULL;
  rabbet_frame_store_address(context->main, io, address);
  return rabbet_ok();
}

void* rabbet_context_address(const rabbet_context_t* context, size_t io) {
  return io < context->main->sequence->plan->io_count
             ? context->main->addresses[io]
             : NULL;
}

rabbet_status_t rabbet_context_set_output_allocator(
    rabbet_context_t* context, size_t io, rabbet_output_allocator_t allocator) {
  RABBET_RETURN_IF_ERROR(context_check_io(context, io, false));
  if (context->main->sequence->ios[io].is_input)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "'%s' is an input; output allocators are for outputs",
                         context->main->sequence->ios[io].name);
  assert(!context->main->output_allocators[io].reallocate ||
         context->main->allocator_count > 0);
  context->main->allocator_count -=
      context->main->output_allocators[io].reallocate != NULL;
  context->main->allocator_count += allocator.reallocate != NULL;
  context->main->output_allocators[io] = allocator;
  return rabbet_ok();
}

rabbet_status_t rabbet_context_set_profiler(rabbet_context_t* context,
                                            rabbet_profiler_t profiler) {
  if (profiler.report)
    for (size_t i = 0; i < rabbet_context_frame_count(context); ++i)
      RABBET_RETURN_IF_ERROR(
          rabbet_frame_time_steps(rabbet_context_frame(context, i)));
  context->profiler = profiler;
  return rabbet_ok();
}

rabbet_status_t rabbet_context_set_consumed_event(rabbet_context_t* context,
                                                  void* event) {
  const rabbet_device_t* device = context->engine->device;
  if (event && !device->vtable->record_event)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "device '%s' has no events: its runs are done when "
                         "they return, and inputs may be written then",
                         device->name);
  context->consumed_event = event;
  return rabbet_ok();
}

// ---- Graphs

void rabbet_context_set_graphs(rabbet_context_t* context, bool on) {
  context->use_graphs = on;
}

bool rabbet_context_graphs(const rabbet_context_t* context) {
  return context->use_graphs;
}

void rabbet_context_graph_info(const rabbet_context_t* context,
                               rabbet_graph_info_t* out_info) {
  rabbet_struct_write(&context->graph_info, sizeof(context->graph_info),
                      out_info);
}
