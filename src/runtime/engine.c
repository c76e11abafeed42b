#include <string.h>

#include "base/file.h"
#include "base/math.h"
#include "base/struct.h"
#include "runtime/runtime.h"

// ---- Making an engine

static rabbet_status_t rabbet_engine_open_device(
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

static int32_t rabbet_first_segment(const rabbet_engine_t* engine,
                                    int32_t value) {
  int32_t root = engine->analysis.roots[value];
  int32_t step = engine->analysis.first_steps[root];
  return step < (int32_t)engine->plan->sequences[0].step_count
             ? engine->analysis.step_segments[step]
             : 0;
}

static rabbet_status_t rabbet_engine_list_ios(rabbet_engine_t* engine) {
  const rabbet_plan_t* plan = engine->plan;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&engine->arena, plan->sequences[0].io_count,
                                  sizeof(*engine->ios), (void**)&engine->ios));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &engine->arena, plan->sequences[0].io_count, sizeof(*engine->io_segments),
      (void**)&engine->io_segments));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &engine->arena, plan->sequences[0].io_count,
      sizeof(*engine->io_alignments), (void**)&engine->io_alignments));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &engine->arena, plan->sequences[0].input_count,
      sizeof(*engine->key_offsets), (void**)&engine->key_offsets));
  for (size_t i = 0; i < plan->sequences[0].io_count; ++i) {
    const rabbet_plan_io_t* from = &plan->sequences[0].ios[i];
    const rabbet_plan_value_t* value = &plan->sequences[0].values[from->value];
    rabbet_io_t* io = &engine->ios[i];
    io->name = from->name;
    io->is_input = from->is_input;
    io->is_shape_input = from->is_shape_input;
    io->dtype = value->dtype;
    io->format = value->format;
    io->dims = rabbet_shape_dims(plan->sequences[0].graph, &value->shape);
    io->aliased_input = from->aliased_input;
    memcpy(io->dim_names, from->dim_names, sizeof(io->dim_names));
    if (!from->is_input) {
      engine->io_segments[i] = rabbet_first_segment(engine, from->value);
      engine->has_written_outputs |= !engine->analysis.written[from->value];
      continue;
    }
    engine->key_offsets[i] = engine->key_size;
    engine->key_size += (size_t)value->shape.rank;
    if (from->is_shape_input) {
      engine->key_size += plan->profiles[i].value_count;
      engine->has_shape_inputs = true;
    }
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_engine_list_slots(rabbet_engine_t* engine) {
  const rabbet_plan_t* plan = engine->plan;
  for (size_t s = 0; s < plan->sequences[0].step_count; ++s) {
    const rabbet_group_t* group = &plan->sequences[0].steps[s].group;
    engine->steps[s].first_slot = engine->slot_count;
    engine->slot_count += group->input_count + group->output_count;
  }
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &engine->arena, engine->slot_count, sizeof(*engine->slot_values),
      (void**)&engine->slot_values));
  for (size_t s = 0; s < plan->sequences[0].step_count; ++s) {
    const rabbet_plan_step_t* step = &plan->sequences[0].steps[s];
    int32_t* slots = engine->slot_values + engine->steps[s].first_slot;
    for (size_t i = 0; i < step->group.input_count; ++i)
      *slots++ = step->values[step->group.inputs[i]];
    for (size_t i = 0; i < step->group.output_count; ++i)
      *slots++ = step->values[step->group.outputs[i]];
  }
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &engine->arena, engine->slot_count, sizeof(*engine->io_slots),
      (void**)&engine->io_slots));
  for (size_t i = 0; i < engine->slot_count; ++i) {
    if (plan->sequences[0].values[engine->slot_values[i]].storage ==
        RABBET_PLAN_STORAGE_IO)
      engine->io_slots[engine->io_slot_count++] = i;
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_engine_initialize(
    rabbet_engine_t* engine, const rabbet_engine_options_t* options) {
  rabbet_status_t status = rabbet_plan_analyse(
      &engine->plan->sequences[0], &engine->arena, &engine->analysis);
  if (rabbet_is_ok(status)) status = rabbet_engine_list_ios(engine);
  if (rabbet_is_ok(status)) status = rabbet_engine_fix_shapes(engine);
  if (!rabbet_is_ok(status) || options->inspect_only) return status;
  status = rabbet_engine_open_device(engine, options);
  if (rabbet_is_ok(status))
    status = rabbet_arena_allocate_array(
        &engine->arena, engine->plan->sequences[0].step_count,
        sizeof(*engine->steps), (void**)&engine->steps);
  if (rabbet_is_ok(status)) status = rabbet_engine_list_slots(engine);
  if (rabbet_is_ok(status))
    status = rabbet_engine_open_carried(engine, options);
  // A stripped plan gets its kernels together with its weights.
  engine->lacks_weights = engine->plan->weights_size < engine->plan->full_size;
  if (!rabbet_is_ok(status) || engine->lacks_weights) return status;
  status = rabbet_engine_create_steps(engine);
  if (rabbet_is_ok(status)) status = rabbet_engine_upload_weights(engine);
  return status;
}

static void rabbet_engine_destroy(rabbet_engine_t* engine) {
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
static rabbet_status_t rabbet_engine_create(
    const void* data, size_t size, rabbet_file_map_t* file,
    const rabbet_engine_options_t* given, rabbet_allocator_t allocator,
    rabbet_engine_t** out_engine) {
  rabbet_engine_options_t options;
  rabbet_engine_t* engine = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_STRUCT_READ(rabbet_engine_options_t, given,
                                            struct_size, &options));
  if (options.untrusted && options.host_code_allowed)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a plan is not trusted, and the code that it carries "
                         "may run: only one of both can be");
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*engine), (void**)&engine));
  engine->allocator = allocator;
  engine->logger = options.logger;
  engine->device_allocator = options.device_allocator;
  engine->untrusted = options.untrusted;
  engine->data = data;
  engine->size = size;
  rabbet_refcount_initialize(&engine->references);
  pthread_mutex_init(&engine->contexts_lock, NULL);
  rabbet_arena_initialize(allocator, &engine->arena);
  rabbet_status_t status =
      rabbet_plan_read(data, size, file, allocator, &engine->plan);
  if (rabbet_is_ok(status)) status = rabbet_engine_initialize(engine, &options);
  if (!rabbet_is_ok(status)) {
    rabbet_engine_destroy(engine);
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
    status = rabbet_engine_create(rabbet_file_map_data(file),
                                  rabbet_file_map_size(file), file, options,
                                  allocator, out_engine);
    rabbet_file_map_release(file);
  }
  return RABBET_ANNOTATE(status, "loading plan '%s'", path);
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
      rabbet_engine_create(copy, size, NULL, options, allocator, out_engine);
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
    rabbet_engine_destroy(engine);
}

// ---- Properties

void rabbet_engine_plan(const rabbet_engine_t* engine, const void** out_data,
                        size_t* out_size) {
  *out_data = engine->data;
  *out_size = engine->size;
}

size_t rabbet_engine_io_count(const rabbet_engine_t* engine) {
  return engine->plan->sequences[0].io_count -
         engine->plan->sequences[0].hidden_count;
}

const rabbet_io_t* rabbet_engine_io(const rabbet_engine_t* engine,
                                    size_t index) {
  return index < rabbet_engine_io_count(engine) ? &engine->ios[index] : NULL;
}

int32_t rabbet_engine_find_io(const rabbet_engine_t* engine, const char* name) {
  for (size_t i = 0; i < rabbet_engine_io_count(engine); ++i) {
    if (strcmp(engine->ios[i].name, name) == 0) return (int32_t)i;
  }
  return -1;
}

size_t rabbet_engine_profile_count(const rabbet_engine_t* engine) {
  return engine->plan->profile_count;
}

static rabbet_status_t rabbet_engine_range(const rabbet_engine_t* engine,
                                           size_t profile, size_t io,
                                           const rabbet_plan_range_t** out) {
  const rabbet_plan_t* plan = engine->plan;
  if (profile >= plan->profile_count)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "profile %zu does not exist; the plan has %zu",
                         profile, plan->profile_count);
  if (io >= plan->sequences[0].input_count)
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "%zu is not an input; the plan has %zu, which come first", io,
        plan->sequences[0].input_count);
  *out = &plan->profiles[profile * plan->sequences[0].input_count + io];
  return rabbet_ok();
}

rabbet_status_t rabbet_engine_profile_shape(const rabbet_engine_t* engine,
                                            size_t profile, size_t io,
                                            rabbet_dims_t* out_min,
                                            rabbet_dims_t* out_opt,
                                            rabbet_dims_t* out_max) {
  const rabbet_plan_range_t* range = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_engine_range(engine, profile, io, &range));
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
  RABBET_RETURN_IF_ERROR(rabbet_engine_range(engine, profile, io, &range));
  *out_min = range->min_values;
  *out_opt = range->opt_values;
  *out_max = range->max_values;
  *out_count = range->value_count;
  return rabbet_ok();
}

size_t rabbet_engine_layer_count(const rabbet_engine_t* engine) {
  return engine->plan->sequences[0].step_count;
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
