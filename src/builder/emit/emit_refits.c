#include "builder/emit/emitter.h"

#include <assert.h>
#include <string.h>

// The plan's value, numbered through all sequences, of the next slot, from *at
// on, that holds this constant, or -1; *at: the slot after it.
static int32_t emit_next_constant(const rabbet_emitter_t* emitter,
                                  int32_t value, size_t* at) {
  const rabbet_layout_t* layout = emitter->layout;
  int32_t first =
      (int32_t)rabbet_plan_first_value(emitter->plan, emitter->sequence);
  while (*at < layout->slots.count) {
    const rabbet_slot_t* slot = &layout->slots.data[(*at)++];
    int32_t found = emitter->values[*at - 1];
    bool same =
        slot->value == value ||
        rabbet_ir_value(&emitter->build->ir, slot->value)->copy_of == value;
    if (same && slot->is_constant && slot->alias < 0 && found >= 0)
      return first + found;
  }
  return -1;
}

static int32_t emit_a_constant(const rabbet_emitter_t* emitter, int32_t value) {
  size_t at = 0;
  return emit_next_constant(emitter, value, &at);
}

// Lists pairs of quantized values and scales that were computed from the
// weights.
static rabbet_status_t emit_bytes(rabbet_emitter_t* emitter, int32_t weights,
                                  rabbet_plan_weights_t* out) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  int32_t* pairs = NULL;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &emitter->plan->arena, emitter->layout->slots.count, 2 * sizeof(*pairs),
      (void**)&pairs));
  for (size_t i = 0; i < ir->values.count; ++i) {
    const rabbet_ir_value_t* value = ir->values.data[i];
    int32_t bytes = -1;
    if (value->bytes_of != weights) continue;
    int32_t scale = emit_a_constant(emitter, value->bytes_scale);
    for (size_t at = 0;
         (bytes = emit_next_constant(emitter, value->id, &at)) >= 0;) {
      pairs[2 * count] = bytes;
      pairs[2 * count++ + 1] = scale;
    }
  }
  out->bytes = pairs;
  out->byte_count = count;
  return rabbet_ok();
}

static rabbet_status_t emit_weights_name(rabbet_emitter_t* emitter,
                                         const rabbet_tensor_t* tensor,
                                         rabbet_plan_weights_t* out) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  const rabbet_layer_t* layer = rabbet_tensor_role(tensor, &out->role);
  rabbet_strbuf_t name;
  rabbet_strbuf_initialize(emitter->build->allocator, &name);
  rabbet_tensor_print_weights_name(tensor, &name);
  rabbet_status_t status = rabbet_strbuf_status(&name);
  if (rabbet_is_ok(status))
    status = rabbet_arena_strdup(arena, rabbet_strbuf_text(&name), &out->name);
  rabbet_strbuf_deinitialize(&name);
  RABBET_RETURN_IF_ERROR(status);
  return rabbet_arena_strdup(arena, layer ? layer->name : "", &out->layer);
}

// A branch reads weights by a copy of the network's tensor.
static rabbet_plan_weights_t* emit_find_weights(
    const rabbet_emit_shared_t* shared, const rabbet_tensor_t* tensor,
    const char* name) {
  const rabbet_plan_t* plan = shared->out->plan;
  for (size_t i = 0; i < plan->refit_count; ++i)
    if (shared->refitted[i] == tensor->constant &&
        plan->refits[i].dtype == tensor->dtype &&
        strcmp(plan->refits[i].name, name) == 0)
      return &plan->refits[i];
  return NULL;
}

static rabbet_status_t emit_join(rabbet_arena_t* arena, const int32_t** list,
                                 size_t* count, const int32_t* more,
                                 size_t more_count) {
  int32_t* joined = NULL;
  if (more_count == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, *count + more_count, sizeof(*joined), (void**)&joined));
  if (*count > 0) memcpy(joined, *list, *count * sizeof(*joined));
  memcpy(joined + *count, more, more_count * sizeof(*joined));
  *list = joined;
  *count += more_count;
  return rabbet_ok();
}

static rabbet_status_t emit_join_weights(rabbet_arena_t* arena,
                                         const rabbet_plan_weights_t* more,
                                         rabbet_plan_weights_t* out) {
  size_t bytes = 2 * out->byte_count;
  RABBET_RETURN_IF_ERROR(emit_join(arena, &out->values, &out->value_count,
                                   more->values, more->value_count));
  RABBET_RETURN_IF_ERROR(
      emit_join(arena, &out->bytes, &bytes, more->bytes, 2 * more->byte_count));
  out->byte_count = bytes / 2;
  return rabbet_ok();
}

static rabbet_status_t emit_weights(rabbet_emitter_t* emitter,
                                    const rabbet_tensor_t* tensor) {
  rabbet_emit_shared_t* shared = emitter->shared;
  rabbet_plan_t* plan = emitter->plan;
  const rabbet_layout_t* layout = emitter->layout;
  rabbet_plan_weights_t out = {.dtype = tensor->dtype};
  assert(rabbet_ir_value(&emitter->build->ir, tensor->id)->is_refittable);
  int32_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, layout->slots.count, sizeof(*values), (void**)&values));
  out.values = values;
  int32_t found = -1;
  for (size_t at = 0;
       (found = emit_next_constant(emitter, tensor->id, &at)) >= 0;)
    values[out.value_count++] = found;
  RABBET_RETURN_IF_ERROR(emit_bytes(emitter, tensor->id, &out));
  if (out.value_count + out.byte_count == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(emit_weights_name(emitter, tensor, &out));
  rabbet_plan_weights_t* known = emit_find_weights(shared, tensor, out.name);
  if (known) return emit_join_weights(&plan->arena, &out, known);
  shared->refitted[plan->refit_count] = tensor->constant;
  plan->refits[plan->refit_count++] = out;
  return rabbet_ok();
}

static rabbet_status_t emit_scale(rabbet_emitter_t* emitter,
                                  const rabbet_ir_value_t* value) {
  rabbet_plan_t* plan = emitter->plan;
  rabbet_plan_scale_t* out = plan->scales;
  rabbet_plan_scale_t* end = plan->scales + plan->scale_count;
  int32_t* values = NULL;
  int32_t found = -1;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&plan->arena, emitter->layout->slots.count,
                                  sizeof(*values), (void**)&values));
  for (size_t at = 0;
       (found = emit_next_constant(emitter, value->id, &at)) >= 0;)
    values[count++] = found;
  if (count == 0) return rabbet_ok();
  while (out < end && strcmp(out->tensor, value->scale_of) != 0)
    ++out;
  if (out == end) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(&plan->arena, value->scale_of, &out->tensor));
    ++plan->scale_count;
  }
  return emit_join(&plan->arena, &out->values, &out->value_count, values,
                   count);
}

// Lists scales that were computed from tensors' ranges.
static rabbet_status_t emit_scales(rabbet_emitter_t* emitter) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  for (size_t i = 0; i < ir->values.count; ++i)
    if (ir->values.data[i]->scale_of)
      RABBET_RETURN_IF_ERROR(emit_scale(emitter, ir->values.data[i]));
  return rabbet_ok();
}

static rabbet_status_t emit_refits_of(rabbet_emitter_t* emitter) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  const rabbet_network_t* network = emitter->from->network;
  for (size_t i = 0; i < network->tensors.count; ++i)
    if (rabbet_ir_value(ir, (int32_t)i)->is_refittable)
      RABBET_RETURN_IF_ERROR(emit_weights(emitter, network->tensors.data[i]));
  return emit_scales(emitter);
}

rabbet_status_t rabbet_emit_refits(rabbet_emitter_t* emitters, size_t count) {
  rabbet_emit_shared_t* shared = emitters[0].shared;
  rabbet_plan_t* plan = emitters[0].plan;
  size_t tensors = 0, values = 0;
  if (!emitters[0].build->ir.refit_flags) return rabbet_ok();
  plan->full_size = shared->weights_size;
  for (size_t i = 0; i < count; ++i) {
    tensors += emitters[i].from->network->tensors.count;
    values += emitters[i].build->ir.values.count;
  }
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, tensors, sizeof(*plan->refits), (void**)&plan->refits));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, values, sizeof(*plan->scales), (void**)&plan->scales));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &emitters[0].build->arena, tensors, sizeof(*shared->refitted),
      (void**)&shared->refitted));
  return rabbet_emit_each(emitters, count, emit_refits_of);
}
