// Constants on a device that cannot read the host's memory: all that steps
// read, in one allocation.
#include <assert.h>
#include <stdlib.h>
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

// Bytes of the plan that constants lie in, and their place on the device.
typedef struct place_t {
  uint64_t offset, size;
  size_t place;
} place_t;

static int compare_places(const void* a, const void* b) {
  uint64_t left = ((const place_t*)a)->offset;
  uint64_t right = ((const place_t*)b)->offset;
  return (left > right) - (left < right);
}

// The marked constants of all sequences; `places` NULL: counts them.
static size_t list_weights(const rabbet_engine_t* engine, place_t* places) {
  size_t count = 0;
  for (size_t i = 0; i < engine->plan->sequence_count; ++i) {
    const rabbet_sequence_t* sequence = &engine->sequences[i];
    for (size_t v = 0; v < sequence->plan->value_count; ++v) {
      const rabbet_plan_value_t* value = marked_weights(sequence, v);
      if (!value) continue;
      // A stripped plan, whose constants may lie past its bytes, is not
      // uploaded.
      assert(value->offset + value->size <= engine->plan->weights_size);
      if (places)
        places[count] = (place_t){.offset = value->offset, .size = value->size};
      ++count;
    }
  }
  return count;
}

// One for each offset, as large as the largest constant there. Returns their
// number.
static size_t join_places(place_t* places, size_t count, size_t* out_total) {
  size_t joined = 0;
  if (count > 0) qsort(places, count, sizeof(*places), compare_places);
  for (size_t i = 0; i < count; ++i) {
    place_t* last = joined > 0 ? &places[joined - 1] : NULL;
    if (!last || last->offset != places[i].offset)
      places[joined++] = places[i];
    else if (last->size < places[i].size)
      last->size = places[i].size;
  }
  *out_total = 0;
  for (size_t i = 0; i < joined; ++i) {
    places[i].place = *out_total;
    *out_total +=
        rabbet_align_up((size_t)places[i].size, RABBET_WEIGHT_ALIGNMENT);
  }
  return joined;
}

static void set_weight_offsets(const rabbet_sequence_t* sequence,
                               const place_t* places, size_t count) {
  for (size_t v = 0; v < sequence->plan->value_count; ++v) {
    const rabbet_plan_value_t* value = marked_weights(sequence, v);
    if (!value) continue;
    const place_t key = {.offset = value->offset};
    const place_t* found =
        bsearch(&key, places, count, sizeof(*places), compare_places);
    assert(found);
    // An empty constant has an address too.
    sequence->weight_offsets[v] = value->size > 0 ? found->place : 0;
  }
}

// Gives a place to each marked constant; those at one place in the plan share
// one here.
static rabbet_status_t place_weights(rabbet_engine_t* engine,
                                     size_t* out_total) {
  size_t count = list_weights(engine, NULL);
  place_t* places = NULL;
  *out_total = 0;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      engine->allocator, (count + 1) * sizeof(*places), (void**)&places));
  list_weights(engine, places);
  count = join_places(places, count, out_total);
  for (size_t i = 0; i < engine->plan->sequence_count; ++i)
    set_weight_offsets(&engine->sequences[i], places, count);
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
  rabbet_file_map_drop(engine->plan->file, engine->plan->weights,
                       (size_t)engine->plan->weights_size);
  return RABBET_ANNOTATE(status, "copying %zu bytes of weights to '%s'", total,
                         device->name);
}
