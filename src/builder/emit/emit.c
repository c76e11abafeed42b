#include "builder/emit/emit.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/math.h"
#include "builder/emit/artifacts.h"
#include "builder/emit/emit_plugin.h"
#include "builder/propose/propose.h"
#include "builder/report.h"
#include "core/attr_set.h"

// State that the sequences of a plan share.
typedef struct emit_shared_t {
  rabbet_emitted_t* out;
  rabbet_map_t constants;  // by hash
  uint64_t weights_size;
  const void** refitted;  // [weights to refit]: the network's constant
} emit_shared_t;

typedef struct emitter_t {
  emit_shared_t* shared;
  const rabbet_emit_sequence_t* from;
  rabbet_build_t* build;
  const rabbet_layout_t* layout;
  rabbet_plan_t* plan;
  rabbet_plan_sequence_t* sequence;
  int32_t* values;         // plan value of each slot, or -1
  int32_t* made;           // first plan value of each IR value, or -1
  bool* is_shape_operand;  // of each IR value
  rabbet_expr_t* exprs;    // IR expression -> plan expression
} emitter_t;

static rabbet_status_t emit_each(emitter_t* emitters, size_t count,
                                 rabbet_status_t (*emit)(emitter_t* emitter)) {
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(emit(&emitters[i]));
  return rabbet_ok();
}

// ---- Numbers of values ------------------------------------------------------

static size_t emit_boundary(const rabbet_layout_step_t* step) {
  return step->pick.unit->group.input_count +
         step->pick.unit->group.output_count;
}

static bool emit_is_view(const rabbet_layout_step_t* step) {
  return !step->pick.choice->candidate.kernel;
}

// Numbers the used slots.
static rabbet_status_t emit_number(emitter_t* emitter) {
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  const rabbet_layout_t* layout = emitter->layout;
  rabbet_arena_t* arena = &emitter->build->arena;
  size_t count = layout->slots.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(int32_t), (void**)&emitter->values));
  for (size_t s = 0; s < layout->steps.count; ++s)
    for (size_t i = 0; i < emit_boundary(&layout->steps.data[s]); ++i)
      emitter->values[layout->steps.data[s].slots[i]] = 1;
  for (size_t i = 0; i < emitter->build->ir.output_count; ++i) {
    assert(layout->outputs[i] >= 0 && (size_t)layout->outputs[i] < count);
    emitter->values[layout->outputs[i]] = 1;
  }
  int32_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const rabbet_slot_t* slot = &layout->slots.data[i];
    assert(slot->alias < 0 || layout->slots.data[slot->alias].alias < 0);
    if (slot->alias >= 0 && emitter->values[i])
      emitter->values[slot->alias] = 1;
    if (slot->input >= 0) emitter->values[i] = 1;
  }
  for (size_t i = 0; i < count; ++i)
    emitter->values[i] = emitter->values[i] ? next++ : -1;
  sequence->value_count = (size_t)next;
  return rabbet_arena_allocate_array(&emitter->plan->arena, (size_t)next,
                                     sizeof(rabbet_plan_value_t),
                                     (void**)&sequence->values);
}

// Finds the plan's value to which symbols refer for each IR value.
static rabbet_status_t emit_find_made(emitter_t* emitter) {
  const rabbet_layout_t* layout = emitter->layout;
  const rabbet_ir_t* ir = &emitter->build->ir;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&emitter->build->arena, ir->values.count,
                                  sizeof(int32_t), (void**)&emitter->made));
  for (size_t i = 0; i < ir->values.count; ++i)
    emitter->made[i] = -1;
  for (size_t i = 0; i < layout->slots.count; ++i) {
    int32_t* made = &emitter->made[layout->slots.data[i].value];
    if (*made < 0) *made = emitter->values[i];
  }
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &emitter->build->arena, ir->values.count, sizeof(bool),
      (void**)&emitter->is_shape_operand));
  for (size_t n = 0; n < ir->nodes.count; ++n)
    for (size_t i = 0; i < ir->nodes.data[n]->input_count; ++i)
      if (ir->nodes.data[n]->inputs[i] >= 0 &&
          rabbet_ir_is_shape_operand(ir->nodes.data[n], i))
        emitter->is_shape_operand[ir->nodes.data[n]->inputs[i]] = true;
  return rabbet_ok();
}

// ---- Expressions ------------------------------------------------------------

static rabbet_status_t emit_symbol(void* context, rabbet_expr_graph_t* target,
                                   const rabbet_symbol_t* symbol,
                                   rabbet_expr_t* out_expr) {
  emitter_t* emitter = context;
  rabbet_symbol_t copy = *symbol;
  copy.tensor = emitter->made[symbol->tensor];
  if (copy.tensor < 0)
    return RABBET_STATUS(
        RABBET_STATUS_INTERNAL,
        "a shape depends on tensor '%s', which the plan does not hold",
        rabbet_ir_value(&emitter->build->ir, symbol->tensor)->name);
  return rabbet_expr_of_symbol(target, &copy, out_expr);
}

static void emit_need_value(const rabbet_ir_value_t* value, bool* needed) {
  for (int32_t i = 0; i < value->shape.rank; ++i)
    needed[value->shape.d[i]] = true;
  for (size_t i = 0; value->values && i < value->value_count; ++i)
    needed[value->values[i]] = true;
}

static rabbet_status_t emit_exprs(emitter_t* emitter) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  rabbet_arena_t* arena = &emitter->build->arena;
  size_t count = rabbet_expr_node_count(ir->graph);
  bool* needed = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(arena, count, sizeof(bool), (void**)&needed));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(rabbet_expr_t), (void**)&emitter->exprs));
  for (size_t i = 0; i < emitter->layout->slots.count; ++i)
    if (emitter->values[i] >= 0)
      emit_need_value(rabbet_ir_value(ir, emitter->layout->slots.data[i].value),
                      needed);
  for (size_t s = 0; s < emitter->layout->steps.count; ++s) {
    const rabbet_unit_t* unit = emitter->layout->steps.data[s].pick.unit;
    for (size_t i = 0; i < unit->group.value_count; ++i)
      emit_need_value(rabbet_ir_value(ir, unit->values[i]), needed);
  }
  rabbet_ir_close_exprs(ir->graph, needed);
  return rabbet_ir_copy_exprs(ir->graph, needed, emit_symbol, emitter,
                              emitter->sequence->graph, emitter->exprs);
}

static rabbet_shape_t emit_shape(const emitter_t* emitter,
                                 const rabbet_shape_t* shape) {
  rabbet_shape_t out = {.rank = shape->rank};
  for (int32_t i = 0; i < shape->rank; ++i) {
    out.d[i] = emitter->exprs[shape->d[i]];
    assert(out.d[i] >= 0);  // emit_exprs has marked it as needed
  }
  return out;
}

// ---- Values -----------------------------------------------------------------

// Equal bytes are stored once.
static rabbet_status_t emit_constant(emitter_t* emitter,
                                     const rabbet_slot_t* slot,
                                     rabbet_plan_value_t* out) {
  rabbet_build_t* build = emitter->build;
  const void* data = NULL;
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_constant_convert(build, rabbet_ir_value(&build->ir, slot->value),
                              slot->type, &data, &bytes));
  out->storage = RABBET_PLAN_STORAGE_CONSTANT;
  out->size = bytes;
  if (bytes == 0) return rabbet_ok();
  rabbet_hash_t hash = rabbet_hash128(data, bytes);
  // Weights that can be refitted do not share their bytes.
  const rabbet_ir_value_t* value = rabbet_ir_value(&build->ir, slot->value);
  bool shared =
      !value->is_refittable && !(value->scale_of && build->ir.refit_flags);
  size_t known = shared ? (size_t)(uintptr_t)rabbet_map_get(
                              &emitter->shared->constants, (const char*)&hash,
                              sizeof(hash))
                        : 0;
  if (known > 0) {
    const rabbet_emitted_t* emitted = emitter->shared->out;
    assert(known <= emitted->blobs.count);
    const rabbet_plan_blob_t* blob = &emitted->blobs.data[known - 1];
    out->offset = blob->offset;
    if (blob->size == bytes && memcmp(blob->data, data, bytes) == 0)
      return rabbet_ok();
  }
  assert(emitter->shared->weights_size % RABBET_PLAN_ALIGNMENT == 0);
  out->offset = emitter->shared->weights_size;
  emitter->shared->weights_size +=
      rabbet_align_up(bytes, RABBET_PLAN_ALIGNMENT);
  rabbet_plan_blob_t blob = {out->offset, data, bytes};
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(build->allocator, &emitter->shared->out->blobs, blob));
  if (!shared) return rabbet_ok();
  void* key = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&build->arena, &hash, sizeof(hash), &key));
  return rabbet_map_set(&emitter->shared->constants, key, sizeof(hash),
                        (void*)(uintptr_t)emitter->shared->out->blobs.count);
}

static rabbet_status_t emit_name(emitter_t* emitter, const rabbet_slot_t* slot,
                                 const char** out_name) {
  const rabbet_ir_value_t* value =
      rabbet_ir_value(&emitter->build->ir, slot->value);
  rabbet_arena_t* arena = &emitter->plan->arena;
  if (slot->type.dtype == value->dtype &&
      slot->type.format == RABBET_FORMAT_LINEAR)
    return rabbet_arena_strdup(arena, value->name, out_name);
  return rabbet_arena_printf(arena, out_name, "%s (%s %s)", value->name,
                             rabbet_dtype_name(slot->type.dtype),
                             rabbet_format_name(slot->type.format));
}

static rabbet_status_t emit_host_values(emitter_t* emitter,
                                        const rabbet_ir_value_t* value,
                                        rabbet_plan_value_t* out) {
  rabbet_expr_t* exprs = NULL;
  if (value->values) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate_array(&emitter->plan->arena, value->value_count,
                                    sizeof(*exprs), (void**)&exprs));
    for (size_t i = 0; i < value->value_count; ++i)
      exprs[i] = emitter->exprs[value->values[i]];
    out->host_values = exprs;
    out->host_value_count = value->value_count;
    return rabbet_ok();
  }
  if (!value->constant || !emitter->is_shape_operand[value->id])
    return rabbet_ok();
  int64_t* numbers = NULL;
  int64_t count = 0;
  rabbet_dims_t dims = rabbet_ir_dims(&emitter->build->ir, value);
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_ranges_host_values(emitter->build, NULL, value, &numbers));
  if (!numbers) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &emitter->plan->arena, (size_t)count, sizeof(*exprs), (void**)&exprs));
  for (int64_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(emitter->sequence->graph, numbers[i], &exprs[i]));
  out->host_values = exprs;
  out->host_value_count = (size_t)count;
  return rabbet_ok();
}

static rabbet_status_t emit_value(emitter_t* emitter, size_t index) {
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  const rabbet_slot_t* slot = &emitter->layout->slots.data[index];
  const rabbet_ir_value_t* value =
      rabbet_ir_value(&emitter->build->ir, slot->value);
  assert(emitter->values[index] >= 0 &&
         (size_t)emitter->values[index] < sequence->value_count);
  rabbet_plan_value_t* out = &sequence->values[emitter->values[index]];
  *out = (rabbet_plan_value_t){
      .dtype = slot->type.dtype,
      .format = slot->type.format,
      .shape = emit_shape(emitter, &value->shape),
      .io = -1,
      .alias = slot->alias < 0 ? -1 : emitter->values[slot->alias],
      .offset = slot->alias < 0 ? 0 : slot->offset,
  };
  RABBET_RETURN_IF_ERROR(emit_name(emitter, slot, &out->name));
  const rabbet_slot_t* root =
      slot->alias < 0 ? slot : &emitter->layout->slots.data[slot->alias];
  if (root->input >= 0 || root->output >= 0) {
    out->storage = RABBET_PLAN_STORAGE_IO;
    out->io = root->input >= 0
                  ? root->input
                  : (int32_t)emitter->build->ir.input_count + root->output;
  } else if (root->is_constant && slot->alias >= 0) {
    const rabbet_plan_value_t* bytes = &sequence->values[out->alias];
    out->storage = bytes->storage;
    out->offset = bytes->offset;
    out->size = bytes->size;
  } else if (root->is_constant) {
    RABBET_RETURN_IF_ERROR(emit_constant(emitter, root, out));
  }
  // Elements of values in other formats are not kept for the host.
  if (slot->type.format != RABBET_FORMAT_LINEAR) return rabbet_ok();
  return emit_host_values(emitter, value, out);
}

static bool emit_is_refittable(const emitter_t* emitter, size_t index) {
  const rabbet_slot_t* slot = &emitter->layout->slots.data[index];
  const rabbet_slot_t* root =
      slot->alias < 0 ? slot : &emitter->layout->slots.data[slot->alias];
  return root->is_constant &&
         rabbet_ir_value(&emitter->build->ir, root->value)->is_refittable;
}

// Emits values with memory of their own first, then those that share it.
static rabbet_status_t emit_values_of(emitter_t* emitter, bool refittable) {
  size_t count = emitter->layout->slots.count;
  for (int shared = 0; shared < 2; ++shared)
    for (size_t i = 0; i < count; ++i)
      if (emitter->values[i] >= 0 &&
          emit_is_refittable(emitter, i) == refittable &&
          (emitter->layout->slots.data[i].alias >= 0) == shared)
        RABBET_RETURN_IF_ERROR(emit_value(emitter, i));
  return rabbet_ok();
}

// ---- Weights that can be refitted -------------------------------------------

// The plan's value, numbered through all sequences, of the next slot, from *at
// on, that holds this constant, or -1; *at: the slot after it.
static int32_t emit_next_constant(const emitter_t* emitter, int32_t value,
                                  size_t* at) {
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

static int32_t emit_a_constant(const emitter_t* emitter, int32_t value) {
  size_t at = 0;
  return emit_next_constant(emitter, value, &at);
}

// Lists pairs of quantized values and scales that were computed from the
// weights.
static rabbet_status_t emit_bytes(emitter_t* emitter, int32_t weights,
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

static rabbet_status_t emit_weights_name(emitter_t* emitter,
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
static rabbet_plan_weights_t* emit_find_weights(const emit_shared_t* shared,
                                                const rabbet_tensor_t* tensor,
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

static rabbet_status_t emit_weights(emitter_t* emitter,
                                    const rabbet_tensor_t* tensor) {
  emit_shared_t* shared = emitter->shared;
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

static rabbet_status_t emit_scale(emitter_t* emitter,
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
static rabbet_status_t emit_scales(emitter_t* emitter) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  for (size_t i = 0; i < ir->values.count; ++i)
    if (ir->values.data[i]->scale_of)
      RABBET_RETURN_IF_ERROR(emit_scale(emitter, ir->values.data[i]));
  return rabbet_ok();
}

static rabbet_status_t emit_refits_of(emitter_t* emitter) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  const rabbet_network_t* network = emitter->from->network;
  for (size_t i = 0; i < network->tensors.count; ++i)
    if (rabbet_ir_value(ir, (int32_t)i)->is_refittable)
      RABBET_RETURN_IF_ERROR(emit_weights(emitter, network->tensors.data[i]));
  return emit_scales(emitter);
}

static rabbet_status_t emit_refits(emitter_t* emitters, size_t count) {
  emit_shared_t* shared = emitters[0].shared;
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
  return emit_each(emitters, count, emit_refits_of);
}

// ---- Steps ------------------------------------------------------------------

static rabbet_status_t emit_ids(rabbet_arena_t* arena, const int32_t** ids,
                                size_t count) {
  return rabbet_arena_copy(arena, *ids, count * sizeof(int32_t), (void**)ids);
}

static rabbet_status_t emit_node(emitter_t* emitter, rabbet_plan_step_t* step,
                                 rabbet_group_node_t* node) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  rabbet_attr_t* attrs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(arena, node->name, &node->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_attrs_copy(arena, node->attrs, node->op->attr_count, &attrs));
  node->attrs = attrs;
  RABBET_RETURN_IF_ERROR(emit_ids(arena, &node->inputs, node->input_count));
  RABBET_RETURN_IF_ERROR(emit_ids(arena, &node->outputs, node->output_count));
  if (node->aliased)
    RABBET_RETURN_IF_ERROR(emit_ids(arena, &node->aliased, node->output_count));
  if (!node->plugin) return rabbet_ok();
  const rabbet_plugin_layer_t layer = {node->plugin, node,
                                       emitter->build->device->kind};
  node->plugin = NULL;  // a plan names it
  return RABBET_ANNOTATE(
      rabbet_emit_plugin(emitter->plan, emitter->build->allocator, &layer,
                         step),
      "layer '%s'", node->name);
}

static rabbet_status_t emit_group_values(emitter_t* emitter,
                                         const rabbet_layout_step_t* from,
                                         rabbet_plan_step_t* step) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  const rabbet_unit_t* unit = from->pick.unit;
  rabbet_group_t* group = &step->group;
  int32_t* values = NULL;
  rabbet_shape_t* shapes = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, group->value_count, sizeof(int32_t), (void**)&values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, group->value_count, sizeof(*shapes), (void**)&shapes));
  for (size_t i = 0; i < group->value_count; ++i) {
    values[i] = -1;
    group->values[i].constant = NULL;
    shapes[i] = emit_shape(
        emitter, &rabbet_ir_value(&emitter->build->ir, unit->values[i])->shape);
  }
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t number = rabbet_group_boundary(group, i);
    assert(number >= 0 && (size_t)number < group->value_count);
    assert(emitter->values[from->slots[i]] >= 0);
    values[number] = emitter->values[from->slots[i]];
    shapes[number].rank = -1;
  }
  step->values = values;
  step->inner_shapes = shapes;
  return rabbet_ok();
}

static rabbet_status_t emit_group(emitter_t* emitter,
                                  const rabbet_layout_step_t* from,
                                  rabbet_plan_step_t* step) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  rabbet_group_t group;
  RABBET_RETURN_IF_ERROR(rabbet_unit_instantiate(
      emitter->build, from->pick.unit, from->pick.choice, &group));
  step->group = group;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      arena, group.values, group.value_count * sizeof(*group.values),
      (void**)&step->group.values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      arena, group.nodes, group.node_count * sizeof(*group.nodes),
      (void**)&step->group.nodes));
  RABBET_RETURN_IF_ERROR(
      emit_ids(arena, &step->group.inputs, group.input_count));
  RABBET_RETURN_IF_ERROR(
      emit_ids(arena, &step->group.outputs, group.output_count));
  RABBET_RETURN_IF_ERROR(emit_group_values(emitter, from, step));
  for (size_t i = 0; i < group.node_count; ++i)
    RABBET_RETURN_IF_ERROR(emit_node(emitter, step, &step->group.nodes[i]));
  return rabbet_ok();
}

// The step's input that is the node's.
static int32_t emit_find_input(const rabbet_group_t* group, int32_t input) {
  int32_t i = 0;
  while (group->inputs[i] != group->nodes[0].inputs[input])
    ++i;
  return i;
}

static rabbet_status_t emit_calls(emitter_t* emitter,
                                  const rabbet_layout_step_t* from,
                                  rabbet_plan_step_t* step) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  const rabbet_branches_t* branches = from->pick.unit->nodes[0]->branches;
  rabbet_plan_call_t* calls = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(arena, 2, sizeof(*calls), (void**)&calls));
  for (size_t k = 0; k < 2; ++k) {
    const rabbet_branch_t* branch = &branches->list[k];
    size_t count = branch->network->inputs.count;
    int32_t* inputs = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        arena, count, sizeof(*inputs), (void**)&inputs));
    for (size_t i = 0; i < count; ++i)
      inputs[i] = emit_find_input(&step->group, branch->inputs[i]);
    calls[k] = (rabbet_plan_call_t){
        .sequence = rabbet_emit_find(emitter->from, branch->network),
        .inputs = inputs,
        .input_count = count};
  }
  step->calls = calls;
  step->call_count = 2;
  return rabbet_ok();
}

static rabbet_status_t emit_step(emitter_t* emitter,
                                 const rabbet_layout_step_t* from,
                                 rabbet_plan_step_t* step) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  const rabbet_choice_t* choice = from->pick.choice;
  const rabbet_candidate_t* candidate = &choice->candidate;
  bool calls = candidate->kernel == &rabbet_branches_class;
  assert(candidate->kernel);
  step->tactic = candidate->tactic;
  step->time_us = calls ? -1.0f : (float)choice->us;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, from->pick.unit->name, &step->name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
      arena, calls ? "" : candidate->kernel->name, &step->kernel));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, candidate->tactic_name, &step->tactic_name));
  RABBET_RETURN_IF_ERROR(emit_group(emitter, from, step));
  if (calls) return emit_calls(emitter, from, step);
  int64_t verbosity = emitter->build->config
                          ->options[RABBET_BUILDER_OPTION_PROFILING_VERBOSITY];
  if (verbosity != RABBET_PROFILING_DETAILED) return rabbet_ok();
  return rabbet_report_alternatives(emitter->build, &from->pick, arena,
                                    &step->report_json);
}

// Whether the plan's graph has a symbol for elements of the value.
static bool emit_is_read(const emitter_t* emitter, int32_t value) {
  const rabbet_expr_graph_t* graph = emitter->sequence->graph;
  for (size_t i = 0; i < rabbet_expr_symbol_count(graph); ++i) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(graph, i);
    if (symbol->kind == RABBET_SYMBOL_VALUE && symbol->tensor == value)
      return true;
  }
  return false;
}

// Lists the values that the host reads after a step. Those of a view are read
// after the step before it.
static rabbet_status_t emit_host_reads(emitter_t* emitter,
                                       const rabbet_layout_step_t* from,
                                       rabbet_plan_step_t* step) {
  size_t inputs = from->pick.unit->group.input_count;
  size_t outputs = from->pick.unit->group.output_count;
  int32_t* reads = NULL;
  size_t count = step->host_read_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &emitter->plan->arena, count + outputs, sizeof(int32_t), (void**)&reads));
  if (count > 0) memcpy(reads, step->host_reads, count * sizeof(int32_t));
  for (size_t i = 0; i < outputs; ++i) {
    const rabbet_slot_t* slot =
        &emitter->layout->slots.data[from->slots[inputs + i]];
    int32_t value = emitter->values[from->slots[inputs + i]];
    if (emitter->made[slot->value] == value && emit_is_read(emitter, value))
      reads[count++] = value;
  }
  assert(count <= step->host_read_count + outputs);
  step->host_reads = reads;
  step->host_read_count = count;
  return rabbet_ok();
}

static rabbet_status_t emit_steps(emitter_t* emitter) {
  const rabbet_layout_t* layout = emitter->layout;
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, layout->steps.count, sizeof(rabbet_plan_step_t),
      (void**)&sequence->steps));
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_layout_step_t* from = &layout->steps.data[s];
    if (!emit_is_view(from)) {
      rabbet_plan_step_t* step = &sequence->steps[sequence->step_count++];
      RABBET_RETURN_IF_ERROR(emit_step(emitter, from, step));
    }
    if (sequence->step_count > 0)
      RABBET_RETURN_IF_ERROR(emit_host_reads(
          emitter, from, &sequence->steps[sequence->step_count - 1]));
  }
  return rabbet_ok();
}

// ---- The whole --------------------------------------------------------------

static rabbet_status_t emit_io(emitter_t* emitter, size_t number,
                               int32_t slot) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  const rabbet_ir_value_t* value =
      rabbet_ir_value(ir, emitter->layout->slots.data[slot].value);
  assert(number < emitter->sequence->io_count && slot >= 0);
  rabbet_plan_io_t* io = &emitter->sequence->ios[number];
  io->is_input = number < ir->input_count;
  io->value = emitter->values[slot];
  io->is_shape_input =
      io->is_input && emit_is_read(emitter, emitter->values[slot]);
  io->aliased_input =
      io->is_input ? -1
                   : emitter->layout->aliased_inputs[number - ir->input_count];
  for (int i = 0; value->dim_names && i < RABBET_MAX_RANK; ++i)
    if (value->dim_names[i])
      RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
          &emitter->plan->arena, value->dim_names[i], &io->dim_names[i]));
  return rabbet_arena_strdup(&emitter->plan->arena, value->name, &io->name);
}

static rabbet_status_t emit_ios(emitter_t* emitter) {
  const rabbet_ir_t* ir = &emitter->build->ir;
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  sequence->input_count = ir->input_count;
  sequence->io_count = ir->input_count + ir->output_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, sequence->io_count, sizeof(rabbet_plan_io_t),
      (void**)&sequence->ios));
  // Slots of network inputs are the first ones.
  for (size_t i = 0; i < ir->input_count; ++i) {
    assert(emitter->layout->slots.data[i].input == (int32_t)i);
    RABBET_RETURN_IF_ERROR(emit_io(emitter, i, (int32_t)i));
  }
  for (size_t i = 0; i < ir->output_count; ++i)
    RABBET_RETURN_IF_ERROR(
        emit_io(emitter, ir->input_count + i, emitter->layout->outputs[i]));
  sequence->hidden_count = ir->debug_count + ir->check_count;
  return rabbet_ok();
}

static void emit_debug(emitter_t* emitter, const rabbet_network_t* network) {
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  size_t inputs = network->inputs.count, outputs = network->outputs.count;
  size_t checks = emitter->build->ir.check_count;
  for (size_t i = 0; i < sequence->io_count; ++i)
    sequence->ios[i].is_debug =
        i < inputs             ? network->inputs.data[i]->is_debug
        : i < inputs + outputs ? network->outputs.data[i - inputs]->is_debug
                               : i + checks < sequence->io_count;
}

static rabbet_status_t emit_checks(emitter_t* emitter,
                                   const rabbet_network_t* network) {
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  size_t io = sequence->io_count - emitter->build->ir.check_count;
  sequence->check_count = network->checks.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, sequence->check_count, sizeof(*sequence->checks),
      (void**)&sequence->checks));
  for (size_t i = 0; i < sequence->check_count; ++i) {
    const rabbet_network_check_t* from = &network->checks.data[i];
    rabbet_plan_check_t* to = &sequence->checks[i];
    to->io = (int32_t)(from->index <= 0 ? io++ : io - 1);
    to->index = from->index;
    assert((size_t)to->io < sequence->io_count);
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(&sequence->plan->arena, from->layer, &to->layer));
    RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(&sequence->plan->arena,
                                               from->message, &to->message));
  }
  return rabbet_ok();
}

static rabbet_status_t emit_profiles(emitter_t* emitter) {
  const rabbet_ranges_t* ranges = &emitter->build->ranges;
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  size_t count = sequence->plan->profile_count * sequence->input_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      &sequence->plan->arena, ranges->profiles,
      count * sizeof(rabbet_plan_range_t), (void**)&sequence->profiles));
  for (size_t i = 0; i < count; ++i) {
    rabbet_plan_range_t* range = &sequence->profiles[i];
    const int64_t** values[] = {&range->min_values, &range->opt_values,
                                &range->max_values};
    // A shape input on which no shape depends any more has no range.
    if (!sequence->ios[i % sequence->input_count].is_shape_input)
      range->value_count = 0;
    for (size_t k = 0; k < 3 && range->value_count > 0; ++k)
      RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
          &sequence->plan->arena, *values[k],
          range->value_count * sizeof(int64_t), (void**)values[k]));
  }
  return rabbet_ok();
}

static rabbet_status_t emit_header(emitter_t* emitter) {
  rabbet_build_t* build = emitter->build;
  rabbet_plan_t* plan = emitter->plan;
  rabbet_arena_t* arena = &plan->arena;
  const char* name = emitter->from->network->name;
  plan->threads = build->threads;
  plan->profile_count = build->ranges.profile_count;
  plan->unfused_debug = emitter->from->network->unfused_debug;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, name ? name : "", &plan->name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
      arena, "rabbet " RABBET_VERSION_STRING, &plan->producer));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, build->device->kind, &plan->device));
  plan->carried = build->carried.data;
  plan->carried_count = build->carried.count;
  return rabbet_arena_strdup(arena,
                             build->device->vtable->signature(build->device),
                             &plan->device_signature);
}

static rabbet_status_t emit_exprs_and_values(emitter_t* emitter) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
      &emitter->plan->arena, emitter->from->name, &emitter->sequence->name));
  RABBET_RETURN_IF_ERROR(emit_number(emitter));
  RABBET_RETURN_IF_ERROR(emit_find_made(emitter));
  RABBET_RETURN_IF_ERROR(emit_exprs(emitter));
  return emit_values_of(emitter, false);
}

static rabbet_status_t emit_steps_and_ios(emitter_t* emitter) {
  RABBET_RETURN_IF_ERROR(emit_steps(emitter));
  RABBET_RETURN_IF_ERROR(emit_ios(emitter));
  emit_debug(emitter, emitter->from->network);
  RABBET_RETURN_IF_ERROR(emit_checks(emitter, emitter->from->network));
  return emit_profiles(emitter);
}

static rabbet_status_t emit_refittable(emitter_t* emitter) {
  return emit_values_of(emitter, true);
}

static rabbet_status_t emit_all(emitter_t* emitters, size_t count) {
  emit_shared_t* shared = emitters[0].shared;
  rabbet_plan_t* plan = emitters[0].plan;
  RABBET_RETURN_IF_ERROR(emit_header(&emitters[0]));
  RABBET_RETURN_IF_ERROR(emit_each(emitters, count, emit_exprs_and_values));
  // Weights that can be refitted lie behind the others, where a plan can be
  // cut.
  shared->out->kept_blobs = shared->out->blobs.count;
  plan->kept_size = shared->weights_size;
  RABBET_RETURN_IF_ERROR(emit_each(emitters, count, emit_refittable));
  RABBET_RETURN_IF_ERROR(emit_refits(emitters, count));
  RABBET_RETURN_IF_ERROR(emit_each(emitters, count, emit_steps_and_ios));
  return rabbet_artifacts_collect(emitters[0].from, count, plan);
}

static rabbet_status_t emit_sequences(const rabbet_emit_sequence_t* sequences,
                                      size_t count, emit_shared_t* shared) {
  rabbet_build_t* build = sequences[0].build;
  rabbet_plan_t* plan = shared->out->plan;
  emitter_t* emitters = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_plan_make_sequences(plan, count));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, count, sizeof(*emitters), (void**)&emitters));
  for (size_t i = 0; i < count; ++i)
    emitters[i] = (emitter_t){.shared = shared,
                              .from = &sequences[i],
                              .build = sequences[i].build,
                              .layout = sequences[i].layout,
                              .plan = plan,
                              .sequence = &plan->sequences[i]};
  return emit_all(emitters, count);
}

int32_t rabbet_emit_find(const rabbet_emit_sequence_t* caller,
                         const rabbet_network_t* network) {
  const rabbet_emit_sequence_t* at = caller;
  while (at->network != network)
    ++at;
  return caller->number + (int32_t)(at - caller);
}

rabbet_status_t rabbet_emit(const rabbet_emit_sequence_t* sequences,
                            size_t count, rabbet_emitted_t* out_emitted) {
  rabbet_build_t* build = sequences[0].build;
  memset(out_emitted, 0, sizeof(*out_emitted));
  RABBET_RETURN_IF_ERROR(
      rabbet_plan_create(build->allocator, &out_emitted->plan));
  emit_shared_t shared = {.out = out_emitted};
  rabbet_map_initialize(build->allocator, &shared.constants);
  rabbet_status_t status = emit_sequences(sequences, count, &shared);
  rabbet_map_deinitialize(&shared.constants);
  if (!rabbet_is_ok(status)) rabbet_emitted_deinitialize(build, out_emitted);
  return status;
}

void rabbet_emitted_deinitialize(rabbet_build_t* build,
                                 rabbet_emitted_t* emitted) {
  rabbet_vec_free(build->allocator, &emitted->blobs);
  rabbet_plan_destroy(emitted->plan);
  emitted->plan = NULL;
}
