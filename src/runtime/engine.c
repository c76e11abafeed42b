#include <assert.h>
#include <string.h>

#include "base/file.h"
#include "base/math.h"
#include "base/struct.h"
#include "runtime/runtime.h"
#include "runtime/share.h"

// ---- Making an engine

static rabbet_status_t engine_open_device(
    rabbet_engine_t* engine, const rabbet_engine_options_t* options) {
  const rabbet_plan_t* plan = engine->plan;
  const char* name =
      options->device && *options->device ? options->device : plan->device;
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_device_create(name, engine->allocator, &engine->device),
      "the plan was built for device '%s'", plan->device));
  if (strcmp(engine->device->kind, plan->device) != 0)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "the plan was built for device '%s' and cannot run on "
                         "'%s'; build the model again for it",
                         plan->device, engine->device->name);
  const char* signature = engine->device->vtable->signature(engine->device);
  if (strcmp(signature, plan->device_signature) != 0)
    rabbet_log(engine->logger, RABBET_SEVERITY_WARNING,
               "the plan was tuned on another machine (%s) than this one (%s): "
               "it works, but other choices may be faster here",
               plan->device_signature, signature);
  return rabbet_ok();
}

static int32_t first_segment(const rabbet_sequence_t* sequence, int32_t value) {
  int32_t root = sequence->analysis.roots[value];
  int32_t step = sequence->analysis.first_steps[root];
  assert(step >= 0);
  int32_t segment = step < (int32_t)sequence->plan->step_count
                        ? sequence->analysis.step_segments[step]
                        : 0;
  // A call's output without a bound is kept for the next segment.
  int32_t stage = sequence->analysis.memory_stages[root];
  return sequence->analysis.written[root] && stage > segment ? stage : segment;
}

static rabbet_status_t sequence_list_ios(rabbet_sequence_t* sequence) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->engine->arena, plan->io_count, sizeof(*sequence->ios),
      (void**)&sequence->ios));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->engine->arena, plan->io_count, sizeof(*sequence->io_segments),
      (void**)&sequence->io_segments));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->engine->arena, plan->io_count,
      sizeof(*sequence->io_alignments), (void**)&sequence->io_alignments));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->engine->arena, plan->input_count,
      sizeof(*sequence->key_offsets), (void**)&sequence->key_offsets));
  for (size_t i = 0; i < plan->io_count; ++i) {
    const rabbet_plan_io_t* from = &plan->ios[i];
    const rabbet_plan_value_t* value = &plan->values[from->value];
    rabbet_io_t* io = &sequence->ios[i];
    io->name = from->name;
    io->is_input = from->is_input;
    io->is_shape_input = from->is_shape_input;
    io->dtype = value->dtype;
    io->format = value->format;
    io->dims = rabbet_shape_dims(plan->graph, &value->shape);
    io->aliased_input = from->aliased_input;
    memcpy(io->dim_names, from->dim_names, sizeof(io->dim_names));
    assert(from->is_input == (i < plan->input_count));
    if (!from->is_input) {
      sequence->io_segments[i] = first_segment(sequence, from->value);
      sequence->has_written_outputs |= !sequence->analysis.written[from->value];
      continue;
    }
    sequence->key_offsets[i] = sequence->key_size;
    sequence->key_size += (size_t)value->shape.rank;
    if (from->is_shape_input) {
      int64_t count = 0;
      assert(rabbet_shape_is_constant(plan->graph, &value->shape));
      RABBET_RETURN_IF_ERROR(rabbet_dims_count(&io->dims, &count));
      sequence->key_size += (size_t)count;
      sequence->has_shape_inputs = true;
    }
  }
  return rabbet_ok();
}

static rabbet_status_t sequence_list_slots(rabbet_sequence_t* sequence) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  for (size_t s = 0; s < plan->step_count; ++s) {
    const rabbet_group_t* group = &plan->steps[s].group;
    sequence->steps[s].first_slot = sequence->slot_count;
    sequence->slot_count += group->input_count + group->output_count;
  }
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->engine->arena, sequence->slot_count,
      sizeof(*sequence->slot_values), (void**)&sequence->slot_values));
  for (size_t s = 0; s < plan->step_count; ++s) {
    const rabbet_plan_step_t* step = &plan->steps[s];
    int32_t* slots = sequence->slot_values + sequence->steps[s].first_slot;
    for (size_t i = 0; i < step->group.input_count; ++i)
      *slots++ = step->values[step->group.inputs[i]];
    for (size_t i = 0; i < step->group.output_count; ++i)
      *slots++ = step->values[step->group.outputs[i]];
    assert((size_t)(slots - sequence->slot_values) <= sequence->slot_count);
  }
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->engine->arena, sequence->slot_count,
      sizeof(*sequence->io_slots), (void**)&sequence->io_slots));
  for (size_t i = 0; i < sequence->slot_count; ++i) {
    if (plan->values[sequence->slot_values[i]].storage ==
        RABBET_PLAN_STORAGE_IO)
      sequence->io_slots[sequence->io_slot_count++] = i;
  }
  return rabbet_ok();
}

static rabbet_status_t sequence_initialize(rabbet_sequence_t* sequence,
                                           bool inspect_only) {
  rabbet_arena_t* arena = &sequence->engine->arena;
  RABBET_RETURN_IF_ERROR(
      rabbet_plan_analyse(sequence->plan, arena, &sequence->analysis));
  RABBET_RETURN_IF_ERROR(sequence_list_ios(sequence));
  RABBET_RETURN_IF_ERROR(rabbet_sequence_fix_shapes(sequence));
  if (inspect_only) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, sequence->plan->step_count, sizeof(*sequence->steps),
      (void**)&sequence->steps));
  return sequence_list_slots(sequence);
}

static rabbet_status_t engine_create_sequences(rabbet_engine_t* engine,
                                               bool inspect_only) {
  size_t count = engine->plan->sequence_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &engine->arena, count, sizeof(*engine->sequences),
      (void**)&engine->sequences));
  for (size_t i = 0; i < count; ++i) {
    rabbet_sequence_t* sequence = &engine->sequences[i];
    sequence->engine = engine;
    sequence->plan = &engine->plan->sequences[i];
    RABBET_RETURN_IF_ERROR(sequence_initialize(sequence, inspect_only));
  }
  rabbet_engine_join_shapes(engine);
  return rabbet_engine_place_memory(engine);
}

static rabbet_status_t engine_initialize(
    rabbet_engine_t* engine, const rabbet_engine_options_t* options) {
  RABBET_RETURN_IF_ERROR(
      engine_create_sequences(engine, options->inspect_only));
  if (options->inspect_only) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(engine_open_device(engine, options));
  RABBET_RETURN_IF_ERROR(rabbet_engine_open_carried(engine, options));
  // A stripped plan gets its kernels together with its weights.
  engine->lacks_weights = engine->plan->weights_size < engine->plan->full_size;
  if (engine->lacks_weights) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_engine_find_lent(engine, options));
  RABBET_RETURN_IF_ERROR(rabbet_engine_create_steps(engine));
  return rabbet_engine_upload_weights(engine);
}

static void engine_destroy(rabbet_engine_t* engine) {
  rabbet_allocator_t allocator = engine->allocator;
  rabbet_engine_destroy_steps(engine);
  rabbet_engine_close_carried(engine);
  if (engine->device && engine->device_weights)
    rabbet_memory_free(engine->device, &engine->device_allocator,
                       engine->device_weights, NULL);
  rabbet_device_release(engine->device);
  rabbet_plan_destroy(engine->plan);
  rabbet_free_aligned(allocator, engine->refitted, RABBET_PLAN_ALIGNMENT);
  pthread_mutex_destroy(&engine->contexts_lock);
  rabbet_arena_deinitialize(&engine->arena);
  rabbet_free(allocator, engine);
}

// `data` is aligned; the plan keeps it through `file`, or the caller through
// plan->copy.
static rabbet_status_t engine_create(const void* data, size_t size,
                                     rabbet_file_map_t* file,
                                     const rabbet_engine_options_t* given,
                                     rabbet_allocator_t allocator,
                                     rabbet_engine_t** out_engine) {
  rabbet_engine_options_t options;
  rabbet_engine_t* engine = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_STRUCT_READ(rabbet_engine_options_t, given,
                                            struct_size, &options));
  if (options.untrusted && options.host_code_allowed)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a plan is not trusted, and the code that it carries "
                         "may run: only one of both can be");
  RABBET_RETURN_IF_ERROR(rabbet_check_iteration_limit(options.iteration_limit));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*engine), (void**)&engine));
  engine->allocator = allocator;
  engine->logger = options.logger;
  engine->device_allocator = options.device_allocator;
  engine->untrusted = options.untrusted;
  engine->iteration_limit = options.iteration_limit;
  engine->data = data;
  engine->size = size;
  rabbet_refcount_initialize(&engine->references);
  pthread_mutex_init(&engine->contexts_lock, NULL);
  rabbet_arena_initialize(allocator, &engine->arena);
  rabbet_status_t status =
      rabbet_plan_read(data, size, file, allocator, &engine->plan);
  if (rabbet_is_ok(status)) status = engine_initialize(engine, &options);
  if (!rabbet_is_ok(status)) {
    engine_destroy(engine);
    return status;
  }
  *out_engine = engine;
  return rabbet_ok();
}

rabbet_status_t rabbet_engine_load(const char* path,
                                   const rabbet_engine_options_t* options,
                                   rabbet_allocator_t allocator,
                                   rabbet_engine_t** out_engine) {
  *out_engine = NULL;
  rabbet_file_map_t* file = NULL;
  rabbet_status_t status = rabbet_file_map_create(path, allocator, &file);
  if (rabbet_is_ok(status)) {
    status =
        engine_create(rabbet_file_map_data(file), rabbet_file_map_size(file),
                      file, options, allocator, out_engine);
    rabbet_file_map_release(file);
  }
  return RABBET_ANNOTATE(status, "loading plan '%s'", path);
}

rabbet_status_t rabbet_engine_share(rabbet_file_map_t* plan,
                                    const rabbet_engine_options_t* options,
                                    rabbet_allocator_t allocator,
                                    rabbet_engine_t** out_engine) {
  *out_engine = NULL;
  size_t size = rabbet_file_map_size(plan);
  return RABBET_ANNOTATE(engine_create(rabbet_file_map_data(plan), size, plan,
                                       options, allocator, out_engine),
                         "loading a plan of %zu bytes", size);
}

rabbet_file_map_t* rabbet_engine_map(const rabbet_engine_t* engine) {
  return engine->plan->file;
}

rabbet_status_t rabbet_engine_deserialize(
    const void* data, size_t size, const rabbet_engine_options_t* options,
    rabbet_allocator_t allocator, rabbet_engine_t** out_engine) {
  *out_engine = NULL;
  if (!data || size == 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "there are no bytes to load a plan from");
  void* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate_aligned(allocator, size, RABBET_PLAN_ALIGNMENT, &copy));
  memcpy(copy, data, size);
  rabbet_status_t status =
      engine_create(copy, size, NULL, options, allocator, out_engine);
  if (rabbet_is_ok(status))
    (*out_engine)->plan->copy = copy;
  else
    rabbet_free_aligned(allocator, copy, RABBET_PLAN_ALIGNMENT);
  return RABBET_ANNOTATE(status, "loading a plan of %zu bytes", size);
}

void rabbet_engine_retain(rabbet_engine_t* engine) {
  rabbet_refcount_retain(&engine->references);
}

void rabbet_engine_release(rabbet_engine_t* engine) {
  if (engine && rabbet_refcount_release(&engine->references))
    engine_destroy(engine);
}

// ---- Properties

void rabbet_engine_plan(const rabbet_engine_t* engine, const void** out_data,
                        size_t* out_size) {
  *out_data = engine->data;
  *out_size = engine->size;
}

size_t rabbet_engine_io_count(const rabbet_engine_t* engine) {
  const rabbet_sequence_t* sequence = rabbet_engine_main(engine);
  return sequence->plan->io_count - sequence->plan->hidden_count;
}

const rabbet_io_t* rabbet_engine_io(const rabbet_engine_t* engine,
                                    size_t index) {
  const rabbet_sequence_t* sequence = rabbet_engine_main(engine);
  return index < rabbet_engine_io_count(engine) ? &sequence->ios[index] : NULL;
}

int32_t rabbet_engine_find_io(const rabbet_engine_t* engine, const char* name) {
  const rabbet_sequence_t* sequence = rabbet_engine_main(engine);
  for (size_t i = 0; i < rabbet_engine_io_count(engine); ++i) {
    if (strcmp(sequence->ios[i].name, name) == 0) return (int32_t)i;
  }
  return -1;
}

size_t rabbet_engine_profile_count(const rabbet_engine_t* engine) {
  return engine->plan->profile_count;
}

static rabbet_status_t engine_range(const rabbet_engine_t* engine,
                                    size_t profile, size_t io,
                                    const rabbet_plan_range_t** out) {
  const rabbet_plan_t* plan = engine->plan;
  const rabbet_plan_sequence_t* sequence = NULL;
  size_t inputs = rabbet_engine_main(engine)->plan->input_count;
  if (profile >= plan->profile_count)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "profile %zu does not exist; the plan has %zu",
                         profile, plan->profile_count);
  if (io >= inputs)
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "%zu is not an input; the plan has %zu, which come first", io, inputs);
  sequence = rabbet_engine_entry(engine, profile)->plan;
  profile = rabbet_plan_entry_profile(plan, profile);
  *out = &sequence->profiles[profile * inputs + io];
  return rabbet_ok();
}

rabbet_status_t rabbet_engine_profile_shape(const rabbet_engine_t* engine,
                                            size_t profile, size_t io,
                                            rabbet_dims_t* out_min,
                                            rabbet_dims_t* out_opt,
                                            rabbet_dims_t* out_max) {
  const rabbet_plan_range_t* range = NULL;
  RABBET_RETURN_IF_ERROR(engine_range(engine, profile, io, &range));
  *out_min = range->min;
  *out_opt = range->opt;
  *out_max = range->max;
  return rabbet_ok();
}

rabbet_status_t rabbet_engine_profile_values(const rabbet_engine_t* engine,
                                             size_t profile, size_t io,
                                             const int64_t** out_min,
                                             const int64_t** out_opt,
                                             const int64_t** out_max,
                                             size_t* out_count) {
  const rabbet_plan_range_t* range = NULL;
  RABBET_RETURN_IF_ERROR(engine_range(engine, profile, io, &range));
  *out_min = range->min_values;
  *out_opt = range->opt_values;
  *out_max = range->max_values;
  *out_count = range->value_count;
  return rabbet_ok();
}

size_t rabbet_engine_layer_count(const rabbet_engine_t* engine) {
  return rabbet_engine_main(engine)->plan->step_count;
}

const rabbet_carried_t* rabbet_engine_carried(const rabbet_engine_t* engine,
                                              size_t index) {
  return index < engine->plan->carried_count ? &engine->plan->carried[index]
                                             : NULL;
}

const char* rabbet_engine_name(const rabbet_engine_t* engine) {
  return engine->plan->name;
}

const char* rabbet_engine_device(const rabbet_engine_t* engine) {
  return engine->device ? engine->device->name : engine->plan->device;
}
