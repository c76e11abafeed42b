// Constants on a device that cannot read the host's memory: all that steps
// read, in one allocation.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "runtime/runtime.h"

// For vectorised reads of kernels and the requirements of libraries.
#define RABBET_WEIGHT_ALIGNMENT 256

static bool step_reads(const rabbet_sequence_t* sequence, size_t step,
                       size_t input) {
  const rabbet_kernel_t* kernel = sequence->steps[step].kernel;
  return !kernel || input >= 64 || !(kernel->own_constants >> input & 1);
}

// Marks the constants that a step on the device reads.
static void mark_weights(const rabbet_sequence_t* sequence) {
  const rabbet_plan_sequence_t* plan = sequence->plan;
  size_t* offsets = sequence->weight_offsets;
  for (size_t v = 0; v < plan->value_count; ++v)
    offsets[v] = SIZE_MAX;
  for (size_t s = 0; s < plan->step_count; ++s) {
    const rabbet_plan_step_t* step = &plan->steps[s];
    for (size_t i = 0; i < step->group.input_count; ++i) {
      if (step_reads(sequence, s, i))
        offsets[step->values[step->group.inputs[i]]] = 0;
    }
    for (size_t i = 0; i < step->host_read_count; ++i)
      offsets[step->host_reads[i]] = 0;
  }
}

// The value as a constant that a step reads, else NULL.
static const rabbet_plan_value_t* marked_weights(
    const rabbet_sequence_t* sequence, size_t v) {
  const rabbet_plan_value_t* value = &sequence->plan->values[v];
  bool marked = value->storage == RABBET_PLAN_STORAGE_CONSTANT &&
                sequence->weight_offsets[v] != SIZE_MAX;
  return marked ? value : NULL;
}

// places[offset in the plan / 64]: the most bytes of the constants there.
static void measure_weights(const rabbet_sequence_t* sequence, size_t* places) {
  for (size_t v = 0; v < sequence->plan->value_count; ++v) {
    const rabbet_plan_value_t* value = marked_weights(sequence, v);
    if (!value) continue;
    // A stripped plan, whose constants may lie past its bytes, is not uploaded.
    assert(value->offset + value->size <= sequence->engine->plan->weights_size);
    size_t* place = &places[value->offset / RABBET_PLAN_ALIGNMENT];
    if (value->size > *place) *place = (size_t)value->size;
  }
}

// places[..]: the offset on the device, from 1; 0: none.
static void set_weight_offsets(const rabbet_sequence_t* sequence,
                               const size_t* places) {
  for (size_t v = 0; v < sequence->plan->value_count; ++v) {
    const rabbet_plan_value_t* value = marked_weights(sequence, v);
    if (!value) continue;
    size_t place = places[value->offset / RABBET_PLAN_ALIGNMENT];
    assert(place > 0 || value->size == 0);
    // An empty constant has an address too.
    sequence->weight_offsets[v] = place == 0 ? 0 : place - 1;
  }
}

// Gives a place to each marked constant; those at one place in the plan share
// one here.
static rabbet_status_t place_weights(rabbet_engine_t* engine,
                                     size_t* out_total) {
  const rabbet_plan_t* plan = engine->plan;
  size_t blocks = plan->weights_size / RABBET_PLAN_ALIGNMENT + 1;
  size_t* places = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      engine->allocator, blocks * sizeof(*places), (void**)&places));
  *out_total = 0;
  for (size_t i = 0; i < plan->sequence_count; ++i)
    measure_weights(&engine->sequences[i], places);
  for (size_t i = 0; i < blocks; ++i) {
    size_t size = places[i];
    if (size == 0) continue;
    places[i] = *out_total + 1;
    *out_total += rabbet_align_up(size, RABBET_WEIGHT_ALIGNMENT);
  }
  for (size_t i = 0; i < plan->sequence_count; ++i)
    set_weight_offsets(&engine->sequences[i], places);
  rabbet_free(engine->allocator, places);
  return rabbet_ok();
}

static rabbet_status_t copy_weights(const rabbet_sequence_t* sequence) {
  rabbet_engine_t* engine = sequence->engine;
  rabbet_device_t* device = engine->device;
  for (size_t v = 0; v < sequence->plan->value_count; ++v) {
    const rabbet_plan_value_t* value = marked_weights(sequence, v);
    if (!value || value->size == 0) continue;
    assert(sequence->weight_offsets[v] % RABBET_WEIGHT_ALIGNMENT == 0);
    RABBET_RETURN_IF_ERROR(device->vtable->copy_to_device(
        device, (uint8_t*)engine->device_weights + sequence->weight_offsets[v],
        engine->plan->weights + value->offset, (size_t)value->size, NULL));
  }
  return rabbet_ok();
}

static rabbet_status_t copy_all_weights(rabbet_engine_t* engine) {
  rabbet_device_t* device = engine->device;
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < engine->plan->sequence_count && rabbet_is_ok(status);
       ++i)
    status = copy_weights(&engine->sequences[i]);
  // Also after a failure: copies that were begun read the plan.
  return rabbet_status_join(status, device->vtable->synchronize(device, NULL));
}

// Again after a refit.
static rabbet_status_t find_weights(rabbet_engine_t* engine) {
  for (size_t i = 0; i < engine->plan->sequence_count; ++i) {
    rabbet_sequence_t* sequence = &engine->sequences[i];
    if (!sequence->weight_offsets)
      RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
          &engine->arena, sequence->plan->value_count,
          sizeof(*sequence->weight_offsets),
          (void**)&sequence->weight_offsets));
    mark_weights(sequence);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_engine_upload_weights(rabbet_engine_t* engine) {
  rabbet_device_t* device = engine->device;
  size_t total = 0;
  if (device->host_memory || rabbet_plan_step_count(engine->plan) == 0)
    return rabbet_ok();
  rabbet_memory_free(device, &engine->device_allocator, engine->device_weights,
                     NULL);
  engine->device_weights = NULL;
  RABBET_RETURN_IF_ERROR(find_weights(engine));
  RABBET_RETURN_IF_ERROR(place_weights(engine, &total));
  if (total == 0) total = RABBET_WEIGHT_ALIGNMENT;
  rabbet_status_t status = rabbet_memory_allocate(
      device, &engine->device_allocator, total, NULL, &engine->device_weights);
  if (rabbet_is_ok(status)) status = copy_all_weights(engine);
  return RABBET_ANNOTATE(status, "copying %zu bytes of weights to '%s'", total,
                         device->name);
}
