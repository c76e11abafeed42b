#include "builder/emit/emitter.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/math.h"
#include "builder/ir/passes.h"
#include "core/view.h"

// ---- Numbers of values ------------------------------------------------------

static size_t emit_boundary(const rabbet_layout_step_t* step) {
  return step->pick.unit->group.input_count +
         step->pick.unit->group.output_count;
}

// Numbers the used slots.
static rabbet_status_t emit_number(rabbet_emitter_t* emitter) {
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
static rabbet_status_t emit_find_made(rabbet_emitter_t* emitter) {
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
  rabbet_emitter_t* emitter = context;
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

static rabbet_status_t emit_exprs(rabbet_emitter_t* emitter) {
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

rabbet_shape_t rabbet_emit_shape(const rabbet_emitter_t* emitter,
                                 const rabbet_shape_t* shape) {
  rabbet_shape_t out = {.rank = shape->rank};
  for (int32_t i = 0; i < shape->rank; ++i) {
    out.d[i] = emitter->exprs[shape->d[i]];
    assert(out.d[i] >= 0);  // emit_exprs has marked it as needed
  }
  return out;
}

bool rabbet_emit_is_read(const rabbet_emitter_t* emitter, int32_t value) {
  const rabbet_expr_graph_t* graph = emitter->sequence->graph;
  for (size_t i = 0; i < rabbet_expr_symbol_count(graph); ++i) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(graph, i);
    if (symbol->kind == RABBET_SYMBOL_VALUE && symbol->tensor == value)
      return true;
  }
  return false;
}

// ---- Values -----------------------------------------------------------------

static bool emit_is_converted(const rabbet_emit_constant_t* constant) {
  return constant->type.dtype != constant->value->dtype ||
         constant->type.format != RABBET_FORMAT_LINEAR;
}

// Of large weights a few pieces suffice, as equal keys are followed by a
// comparison: most weights are then read only when they are written.
#define EMIT_PIECE ((size_t)16 << 10)

static rabbet_hash_t emit_digest(const void* data, size_t bytes) {
  const uint8_t* at = data;
  rabbet_hash_t parts[4] = {{.low = bytes}};
  if (bytes <= 3 * EMIT_PIECE) return rabbet_hash128(data, bytes);
  parts[1] = rabbet_hash128(at, EMIT_PIECE);
  parts[2] = rabbet_hash128(at + bytes / 2, EMIT_PIECE);
  parts[3] = rabbet_hash128(at + bytes - EMIT_PIECE, EMIT_PIECE);
  return rabbet_hash128(parts, sizeof(parts));
}

// Weights that can be refitted share theirs with the same weights of other
// profiles alone.
static bool emit_is_refitted(const rabbet_emit_constant_t* constant) {
  return constant->value->is_refittable ||
         (constant->value->scale_of && constant->build->ir.refit_flags);
}

// Of the bytes before they are converted, and of all that tells how they are.
static rabbet_status_t emit_constant_key(const rabbet_emit_constant_t* constant,
                                         rabbet_hash_t* out_key) {
  const rabbet_ir_value_t* value = constant->value;
  size_t bytes = 0;
  struct {
    rabbet_hash_t data;
    rabbet_dims_t dims;
    int64_t from, to, format;
  } key;
  memset(&key, 0, sizeof(key));  // and what lies between the fields
  rabbet_dims_t dims = rabbet_ir_dims(&constant->build->ir, value);
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  const void* source[] = {constant->build->ir.values.data, value};
  bool refitted = emit_is_refitted(constant);
  key.data = refitted ? rabbet_hash128(source, sizeof(source))
                      : emit_digest(value->constant, bytes);
  *out_key = key.data;
  if (!emit_is_converted(constant) && !refitted) return rabbet_ok();
  key.dims.rank = dims.rank;
  memcpy(key.dims.d, dims.d, (size_t)dims.rank * sizeof(dims.d[0]));
  key.from = value->dtype;
  key.to = constant->type.dtype;
  key.format = constant->type.format;
  *out_key = rabbet_hash128(&key, sizeof(key));
  return rabbet_ok();
}

// Whether the bytes are those of a constant with an equal key.
static rabbet_status_t emit_is_same(const rabbet_emit_constant_t* a,
                                    const rabbet_emit_constant_t* b,
                                    bool* out_same) {
  rabbet_dims_t dims[2] = {rabbet_ir_dims(&a->build->ir, a->value),
                           rabbet_ir_dims(&b->build->ir, b->value)};
  size_t bytes[2] = {0};
  *out_same = false;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
      a->value->dtype, RABBET_FORMAT_LINEAR, &dims[0], &bytes[0]));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
      b->value->dtype, RABBET_FORMAT_LINEAR, &dims[1], &bytes[1]));
  bool alike = !emit_is_converted(a) && !emit_is_converted(b);
  if (!alike)
    alike = a->value->dtype == b->value->dtype &&
            a->type.dtype == b->type.dtype &&
            a->type.format == b->type.format &&
            rabbet_dims_equal(&dims[0], &dims[1]);
  const void *left = a->value->constant, *right = b->value->constant;
  *out_same = alike && bytes[0] == bytes[1] &&
              (left == right || memcmp(left, right, bytes[0]) == 0);
  return rabbet_ok();
}

static rabbet_status_t emit_blob(rabbet_emitter_t* emitter,
                                 const rabbet_emit_constant_t* constant,
                                 rabbet_plan_value_t* out) {
  rabbet_allocator_t allocator = emitter->build->allocator;
  rabbet_emit_shared_t* shared = emitter->shared;
  assert(shared->weights_size % RABBET_PLAN_ALIGNMENT == 0);
  out->offset = shared->weights_size;
  shared->weights_size += rabbet_align_up(out->size, RABBET_PLAN_ALIGNMENT);
  rabbet_plan_blob_t blob = {
      .offset = out->offset,
      .data = emit_is_converted(constant) ? NULL : constant->value->constant,
      .size = out->size};
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(allocator, &shared->out->blobs, blob));
  return RABBET_VEC_PUSH(allocator, &shared->out->constants, *constant);
}

// Equal bytes are stored once.
static rabbet_status_t emit_constant(rabbet_emitter_t* emitter,
                                     const rabbet_slot_t* slot,
                                     rabbet_plan_value_t* out) {
  rabbet_build_t* build = emitter->build;
  rabbet_emit_shared_t* shared = emitter->shared;
  rabbet_ir_value_t* value = rabbet_ir_value(&build->ir, slot->value);
  const rabbet_emit_constant_t constant = {build, value, slot->type};
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, value);
  rabbet_hash_t hash;
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(slot->type.dtype, slot->type.format, &dims, &bytes));
  out->storage = RABBET_PLAN_STORAGE_CONSTANT;
  out->size = bytes;
  if (bytes == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_fold_deferred(build, value));
  RABBET_RETURN_IF_ERROR(emit_constant_key(&constant, &hash));
  size_t known = (size_t)(uintptr_t)rabbet_map_get(
      &shared->constants, (const char*)&hash, sizeof(hash));
  if (known > 0) {
    bool same = false;
    assert(known <= shared->out->blobs.count);
    RABBET_RETURN_IF_ERROR(emit_is_same(&shared->out->constants.data[known - 1],
                                        &constant, &same));
    out->offset = shared->out->blobs.data[known - 1].offset;
    if (same) return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(emit_blob(emitter, &constant, out));
  void* key = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&build->arena, &hash, sizeof(hash), &key));
  return rabbet_map_set(&shared->constants, key, sizeof(hash),
                        (void*)(uintptr_t)shared->out->blobs.count);
}

static rabbet_status_t emit_name(rabbet_emitter_t* emitter,
                                 const rabbet_slot_t* slot,
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

static rabbet_status_t emit_host_values(rabbet_emitter_t* emitter,
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

static rabbet_status_t emit_value(rabbet_emitter_t* emitter, size_t index) {
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
      .shape = rabbet_emit_shape(emitter, &value->shape),
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

static bool emit_is_refittable(const rabbet_emitter_t* emitter, size_t index) {
  const rabbet_slot_t* slot = &emitter->layout->slots.data[index];
  const rabbet_slot_t* root =
      slot->alias < 0 ? slot : &emitter->layout->slots.data[slot->alias];
  return root->is_constant &&
         rabbet_ir_value(&emitter->build->ir, root->value)->is_refittable;
}

// Emits values with memory of their own first, then those that share it.
static rabbet_status_t emit_values(rabbet_emitter_t* emitter, bool refittable) {
  size_t count = emitter->layout->slots.count;
  for (int shared = 0; shared < 2; ++shared)
    for (size_t i = 0; i < count; ++i)
      if (emitter->values[i] >= 0 &&
          emit_is_refittable(emitter, i) == refittable &&
          (emitter->layout->slots.data[i].alias >= 0) == shared)
        RABBET_RETURN_IF_ERROR(emit_value(emitter, i));
  return rabbet_ok();
}

rabbet_status_t rabbet_emit_kept_values(rabbet_emitter_t* emitter) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
      &emitter->plan->arena, emitter->from->name, &emitter->sequence->name));
  RABBET_RETURN_IF_ERROR(emit_number(emitter));
  RABBET_RETURN_IF_ERROR(emit_find_made(emitter));
  RABBET_RETURN_IF_ERROR(emit_exprs(emitter));
  return emit_values(emitter, false);
}

rabbet_status_t rabbet_emit_refittable_values(rabbet_emitter_t* emitter) {
  return emit_values(emitter, true);
}
