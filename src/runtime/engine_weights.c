// Constants on a device that cannot read the host's memory: all that steps
// read, in one allocation.
#include <string.h>

#include "base/math.h"
#include "runtime/runtime.h"

// For vectorised reads of kernels and the requirements of libraries.
#define RABBET_WEIGHT_ALIGNMENT 256

static bool rabbet_step_reads(const rabbet_engine_t* engine, size_t step,
                              size_t input) {
  return input >= 64 ||
         !(engine->steps[step].kernel->own_constants >> input & 1);
}

// Marks the constants that something on the device reads.
static void rabbet_mark_weights(const rabbet_engine_t* engine,
                                size_t* offsets) {
  const rabbet_plan_t* plan = engine->plan;
  for (size_t v = 0; v < plan->sequences[0].value_count; ++v)
    offsets[v] = SIZE_MAX;
  for (size_t s = 0; s < plan->sequences[0].step_count; ++s) {
    const rabbet_plan_step_t* step = &plan->sequences[0].steps[s];
    for (size_t i = 0; i < step->group.input_count; ++i) {
      if (rabbet_step_reads(engine, s, i))
        offsets[step->values[step->group.inputs[i]]] = 0;
    }
    for (size_t i = 0; i < step->host_read_count; ++i)
      offsets[step->host_reads[i]] = 0;
  }
}

// Gives a place to each marked constant; those at one place in the plan share
// one here.
static rabbet_status_t rabbet_place_weights(rabbet_engine_t* engine,
                                            size_t* offsets,
                                            size_t* out_total) {
  const rabbet_plan_t* plan = engine->plan;
  size_t blocks = plan->weights_size / RABBET_PLAN_ALIGNMENT + 1;
  size_t* places = NULL;  // [offset in the plan / 64], 0: unused
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      engine->allocator, blocks * sizeof(*places), (void**)&places));
  *out_total = 0;
  for (size_t v = 0; v < plan->sequences[0].value_count; ++v) {
    const rabbet_plan_value_t* value = &plan->sequences[0].values[v];
    if (value->storage != RABBET_PLAN_STORAGE_CONSTANT ||
        offsets[v] == SIZE_MAX)
      continue;
    size_t* place = &places[value->offset / RABBET_PLAN_ALIGNMENT];
    // Several sizes at one place: the largest counts.
    if (value->size > *place) *place = (size_t)value->size;
  }
  for (size_t i = 0; i < blocks; ++i) {
    size_t size = places[i];
    if (size == 0) continue;
    places[i] = *out_total + 1;
    *out_total += rabbet_align_up(size, RABBET_WEIGHT_ALIGNMENT);
  }
  for (size_t v = 0; v < plan->sequences[0].value_count; ++v) {
    const rabbet_plan_value_t* value = &plan->sequences[0].values[v];
    if (value->storage != RABBET_PLAN_STORAGE_CONSTANT ||
        offsets[v] == SIZE_MAX)
      continue;
    size_t place = places[value->offset / RABBET_PLAN_ALIGNMENT];
    // An empty constant has an address too.
    offsets[v] = place == 0 ? 0 : place - 1;
  }
  rabbet_free(engine->allocator, places);
  return rabbet_ok();
}

static rabbet_status_t rabbet_copy_weights(rabbet_engine_t* engine,
                                           const size_t* offsets) {
  const rabbet_plan_t* plan = engine->plan;
  rabbet_device_t* device = engine->device;
  rabbet_status_t status = rabbet_ok();
  for (size_t v = 0; v < plan->sequences[0].value_count && rabbet_is_ok(status);
       ++v) {
    const rabbet_plan_value_t* value = &plan->sequences[0].values[v];
    if (value->storage != RABBET_PLAN_STORAGE_CONSTANT ||
        offsets[v] == SIZE_MAX || value->size == 0)
      continue;
    status = device->vtable->copy_to_device(
        device, (uint8_t*)engine->device_weights + offsets[v],
        plan->weights + value->offset, (size_t)value->size, NULL);
  }
  // Also after a failure: copies that were begun read the plan.
  return rabbet_status_join(status, device->vtable->synchronize(device, NULL));
}

rabbet_status_t rabbet_engine_upload_weights(rabbet_engine_t* engine) {
  rabbet_device_t* device = engine->device;
  size_t total = 0;
  if (device->host_memory || engine->plan->sequences[0].value_count == 0)
    return rabbet_ok();
  // Again after a refit.
  if (!engine->weight_offsets)
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &engine->arena, engine->plan->sequences[0].value_count,
        sizeof(*engine->weight_offsets), (void**)&engine->weight_offsets));
  rabbet_memory_free(device, &engine->device_allocator, engine->device_weights,
                     NULL);
  engine->device_weights = NULL;
  rabbet_mark_weights(engine, engine->weight_offsets);
  RABBET_RETURN_IF_ERROR(
      rabbet_place_weights(engine, engine->weight_offsets, &total));
  if (total == 0) total = RABBET_WEIGHT_ALIGNMENT;
  rabbet_status_t status = rabbet_memory_allocate(
      device, &engine->device_allocator, total, NULL, &engine->device_weights);
  if (rabbet_is_ok(status))
    status = rabbet_copy_weights(engine, engine->weight_offsets);
  return RABBET_ANNOTATE(status, "copying %zu bytes of weights to '%s'", total,
                         device->name);
}
