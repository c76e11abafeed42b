#include "builder/measure/cold_weights.h"

#include <assert.h>

#include "core/view.h"

// Smaller weights, in bytes, are not copied: their time does not matter.
#define COLD_LEAST ((size_t)64 << 10)

bool rabbet_cold_weights_apply(const rabbet_build_t* build) {
  size_t cache = build->device->cache_bytes, bytes = 0;
  for (size_t i = 0; cache > 0 && i < build->ir.values.count; ++i) {
    const rabbet_ir_value_t* value = build->ir.values.data[i];
    if (!value->constant || value->uses == 0) continue;
    const rabbet_dims_t dims = rabbet_ir_dims(&build->ir, value);
    size_t size = 0;
    rabbet_status_t status =
        rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR, &dims, &size);
    if (rabbet_is_ok(status)) bytes += size;
    rabbet_status_ignore(status);
  }
  return bytes > cache;
}

static rabbet_status_t cold_bytes(const rabbet_group_t* group, size_t input,
                                  size_t* out_bytes) {
  const rabbet_group_value_t* value = &group->values[group->inputs[input]];
  *out_bytes = 0;
  if (!value->constant) return rabbet_ok();
  return rabbet_tensor_bytes(value->dtype, value->format, &value->dims,
                             out_bytes);
}

static rabbet_status_t cold_find(const rabbet_group_t* group,
                                 const bool* written,
                                 rabbet_cold_weights_t* cold,
                                 size_t* out_bytes) {
  *out_bytes = 0;
  for (size_t i = 0; i < group->input_count; ++i) {
    size_t bytes = 0;
    RABBET_RETURN_IF_ERROR(cold_bytes(group, i, &bytes));
    if (bytes < COLD_LEAST || (written && written[i])) continue;
    assert(cold->weight_count < group->input_count);
    cold->weights[cold->weight_count++] = i;
    *out_bytes += bytes;
  }
  return rabbet_ok();
}

static rabbet_status_t cold_copy(rabbet_build_t* build,
                                 const rabbet_group_t* group,
                                 rabbet_cold_weights_t* cold, int turns) {
  assert(cold->weight_count > 0 && turns >= 2);
  rabbet_device_t* device = build->device;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, cold->weight_count * (size_t)turns, sizeof(void*),
      (void**)&cold->copies));
  for (size_t k = 0; k < cold->weight_count * (size_t)turns; ++k) {
    size_t input = cold->weights[k % cold->weight_count], bytes = 0;
    cold->copies[k] = cold->inputs[input];
    if (k < cold->weight_count) continue;
    RABBET_RETURN_IF_ERROR(cold_bytes(group, input, &bytes));
    RABBET_RETURN_IF_ERROR(rabbet_bench_acquire(build, RABBET_DTYPE_NONE, bytes,
                                                &cold->copies[k]));
    RABBET_RETURN_IF_ERROR(device->vtable->copy(
        device, cold->copies[k], cold->inputs[input], bytes, NULL));
  }
  RABBET_RETURN_IF_ERROR(device->vtable->synchronize(device, NULL));
  cold->turns = turns;
  return rabbet_ok();
}

rabbet_status_t rabbet_cold_weights_initialize(
    rabbet_build_t* build, const rabbet_group_t* group, const bool* written,
    void** inputs, rabbet_cold_weights_t* out_cold) {
  size_t bytes = 0;
  *out_cold = (rabbet_cold_weights_t){.inputs = inputs};
  if (!build->has_cold_weights) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&build->arena, group->input_count,
                                  sizeof(size_t), (void**)&out_cold->weights));
  RABBET_RETURN_IF_ERROR(cold_find(group, written, out_cold, &bytes));
  if (bytes == 0) return rabbet_ok();
  // 1.5 times the size of the cache is read before a copy is used again.
  size_t turns = build->device->cache_bytes * 3 / 2 / bytes + 1;
  if (turns > RABBET_COLD_WEIGHTS_MAX_TURNS)
    turns = RABBET_COLD_WEIGHTS_MAX_TURNS;
  size_t room = rabbet_bench_room(build->bench) / bytes;
  if (turns > room + 1) turns = room + 1;  // the first are there
  return turns < 2 ? rabbet_ok()
                   : cold_copy(build, group, out_cold, (int)turns);
}

void rabbet_cold_weights_turn(rabbet_cold_weights_t* cold) {
  if (cold->turns == 0) return;
  assert(cold->turn < cold->turns);
  cold->turn = (cold->turn + 1) % cold->turns;
  void** copies = cold->copies + (size_t)cold->turn * cold->weight_count;
  for (size_t i = 0; i < cold->weight_count; ++i)
    cold->inputs[cold->weights[i]] = copies[i];
}
