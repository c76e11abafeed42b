// Computes the shapes, as far as they are known before a segment.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "runtime/graph.h"

#define RABBET_RESOLVE_ARRAY(prepared, count, field)       \
  rabbet_arena_allocate_array(&(prepared)->arena, (count), \
                              sizeof(*(prepared)->field),  \
                              (void**)&(prepared)->field)

static rabbet_status_t resolve_allocate(rabbet_prepared_t* prepared) {
  const rabbet_plan_sequence_t* plan = prepared->sequence->plan;
  size_t exprs = rabbet_expr_node_count(plan->graph);
  rabbet_status_t status = RABBET_RESOLVE_ARRAY(
      prepared, rabbet_expr_symbol_count(plan->graph), symbols);
  if (rabbet_is_ok(status))
    status = RABBET_RESOLVE_ARRAY(prepared, exprs, exprs);
  if (rabbet_is_ok(status))
    status = RABBET_RESOLVE_ARRAY(prepared, exprs, valid);
  if (rabbet_is_ok(status))
    status = RABBET_RESOLVE_ARRAY(prepared, plan->value_count, dims);
  if (rabbet_is_ok(status))
    status = RABBET_RESOLVE_ARRAY(prepared, plan->value_count, bytes);
  if (rabbet_is_ok(status))
    status = RABBET_RESOLVE_ARRAY(prepared, plan->value_count, host_values);
  if (rabbet_is_ok(status))
    status = RABBET_RESOLVE_ARRAY(prepared, plan->input_count, input_copied);
  if (prepared->sequence->analysis.segment_count == 1) return status;
  if (rabbet_is_ok(status)) status = RABBET_RESOLVE_ARRAY(prepared, exprs, low);
  if (rabbet_is_ok(status))
    status = RABBET_RESOLVE_ARRAY(prepared, exprs, high);
  return status;
}

// ---- Symbols

static void resolve_symbols(rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  const rabbet_expr_graph_t* graph = sequence->plan->graph;
  size_t count = rabbet_expr_symbol_count(graph);
  if (prepared->parent && count > 0)
    memcpy(prepared->symbols, prepared->parent->symbols,
           count * sizeof(*prepared->symbols));
  for (size_t i = 0; i < count; ++i) {
    const rabbet_plan_source_t* source = &sequence->analysis.sources[i];
    if (source->read + 1 != prepared->segment) continue;
    size_t at = (size_t)source->index;
    if (source->read < 0) {
      at += sequence->key_offsets[source->input];
      if (rabbet_expr_symbol(graph, i)->kind == RABBET_SYMBOL_VALUE)
        at += (size_t)sequence->ios[source->input].dims.rank;
    }
    assert(at < prepared->key_size);
    prepared->symbols[i] = prepared->key[at];
  }
}

// A number that the host has read must keep to the bound that memory was
// planned for.
static rabbet_status_t resolve_check_reads(const rabbet_prepared_t* prepared) {
  const rabbet_plan_sequence_t* plan = prepared->sequence->plan;
  if (prepared->segment == 0) return rabbet_ok();
  for (size_t i = 0; i < rabbet_expr_symbol_count(plan->graph); ++i) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(plan->graph, i);
    if (prepared->sequence->analysis.sources[i].read + 1 != prepared->segment ||
        symbol->upper == RABBET_EXPR_NONE)
      continue;
    assert(prepared->parent && prepared->parent->high);
    int64_t upper = prepared->parent->high[symbol->upper];
    if (prepared->symbols[i] < 0 || prepared->symbols[i] > upper)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "size tensor '%s' holds %lld; expected 0 to %lld, "
                           "the upper bound that was declared for it",
                           plan->values[symbol->tensor].name,
                           (long long)prepared->symbols[i], (long long)upper);
  }
  return rabbet_ok();
}

// ---- Expressions

static rabbet_status_t resolve_exprs(rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  const rabbet_expr_graph_t* graph = sequence->plan->graph;
  if (!prepared->parent)
    return rabbet_expr_evaluate(graph, prepared->symbols, prepared->exprs,
                                prepared->valid);
  size_t count = rabbet_expr_node_count(graph);
  memcpy(prepared->exprs, prepared->parent->exprs,
         count * sizeof(*prepared->exprs));
  memcpy(prepared->valid, prepared->parent->valid,
         count * sizeof(*prepared->valid));
  for (size_t i = 0; i < count; ++i) {
    if (sequence->analysis.expr_stages[i] != prepared->segment) continue;
    prepared->valid[i] =
        rabbet_expr_evaluate_node(graph, (rabbet_expr_t)i, prepared->symbols,
                                  prepared->exprs, prepared->valid);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_settle_bounds(const rabbet_sequence_t* sequence,
                                     int32_t segment, int64_t* symbol_low,
                                     int64_t* symbol_high, int64_t* low,
                                     int64_t* high) {
  const rabbet_expr_graph_t* graph = sequence->plan->graph;
  assert(segment >= 0);
  size_t count = rabbet_expr_symbol_count(graph);
  for (size_t i = 0; i < count; ++i) {
    if (sequence->analysis.sources[i].read < segment) continue;
    bool bounded = rabbet_expr_symbol(graph, i)->upper != RABBET_EXPR_NONE;
    symbol_low[i] = bounded ? 0 : INT64_MIN;
    symbol_high[i] = INT64_MAX;
  }
  // A size tensor's bound may depend on an earlier size tensor, so that this
  // takes as many rounds as there are unknown symbols at most.
  for (bool changed = true; changed;) {
    changed = false;
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_bounds(graph, symbol_low, symbol_high, low, high));
    for (size_t i = 0; i < count; ++i) {
      const rabbet_symbol_t* symbol = rabbet_expr_symbol(graph, i);
      if (sequence->analysis.sources[i].read < segment ||
          symbol->upper == RABBET_EXPR_NONE)
        continue;
      int64_t upper = rabbet_max_i64(high[symbol->upper], 0);
      changed |= upper < symbol_high[i];
      symbol_high[i] = rabbet_min_i64(symbol_high[i], upper);
    }
  }
  return rabbet_ok();
}

static rabbet_status_t resolve_bounds(rabbet_prepared_t* prepared) {
  size_t count = rabbet_expr_symbol_count(prepared->sequence->plan->graph);
  size_t bytes = count * sizeof(*prepared->symbols);
  if (!prepared->low) return rabbet_ok();
  int64_t *low = NULL, *high = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&prepared->arena, prepared->symbols,
                                           bytes, (void**)&low));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&prepared->arena, prepared->symbols,
                                           bytes, (void**)&high));
  return rabbet_settle_bounds(prepared->sequence, prepared->segment, low, high,
                              prepared->low, prepared->high);
}

// ---- Shapes

// The step that makes the value, or "".
static const char* resolve_maker(const rabbet_plan_sequence_t* plan,
                                 const char* value) {
  for (size_t s = 0; s < plan->step_count; ++s) {
    const rabbet_plan_step_t* step = &plan->steps[s];
    for (size_t i = 0; i < step->group.output_count; ++i) {
      int32_t v = step->values[step->group.outputs[i]];
      if (v >= 0 && !strcmp(plan->values[v].name, value)) return step->name;
    }
  }
  return "";
}

// The part of an expression without a value whose operands have one.
static const rabbet_expr_node_t* resolve_culprit(
    const rabbet_prepared_t* prepared, rabbet_expr_t expr) {
  const rabbet_expr_graph_t* graph = prepared->sequence->plan->graph;
  const rabbet_expr_node_t* node = rabbet_expr_node(graph, expr);
  while (node->op != RABBET_EXPR_CONSTANT && node->op != RABBET_EXPR_SYMBOL) {
    rabbet_expr_t inner = !prepared->valid[node->a]   ? node->a
                          : !prepared->valid[node->b] ? node->b
                                                      : RABBET_EXPR_NONE;
    if (inner == RABBET_EXPR_NONE) return node;
    node = rabbet_expr_node(graph, inner);
  }
  return NULL;
}

static rabbet_status_t resolve_no_value(const rabbet_prepared_t* prepared,
                                        const char* name, int32_t axis,
                                        rabbet_expr_t expr, const char* text) {
  const rabbet_expr_node_t* node = resolve_culprit(prepared, expr);
  const char* maker = resolve_maker(prepared->sequence->plan, name);
  char operands[64] = "";
  if (node)
    snprintf(operands, sizeof(operands), ", of %lld and %lld,",
             (long long)prepared->exprs[node->a],
             (long long)prepared->exprs[node->b]);
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "dimension %d of '%s'%s%s%s has no value: %s%s divides "
                       "by 0, overflows or does not broadcast for these input "
                       "shapes",
                       axis, name, *maker ? ", of step '" : "", maker,
                       *maker ? "'," : "", text, operands);
}

static rabbet_status_t resolve_bad_dim(const rabbet_prepared_t* prepared,
                                       const char* name, int32_t axis,
                                       rabbet_expr_t expr) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  char* text = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_expr_print(sequence->plan->graph, expr,
                                           sequence->engine->allocator, &text));
  rabbet_status_t status =
      prepared->valid[expr]
          ? RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                          "dimension %d of '%s' would be %lld: %s, for these "
                          "input shapes",
                          axis, name, (long long)prepared->exprs[expr], text)
          : resolve_no_value(prepared, name, axis, expr, text);
  rabbet_free(sequence->engine->allocator, text);
  return status;
}

rabbet_status_t rabbet_resolve_shape(const rabbet_prepared_t* prepared,
                                     const char* name,
                                     const rabbet_shape_t* shape,
                                     rabbet_dims_t* out_dims) {
  assert(shape->rank >= 0 && shape->rank <= RABBET_MAX_RANK);
  out_dims->rank = shape->rank;
  for (int32_t axis = 0; axis < shape->rank; ++axis) {
    rabbet_expr_t expr = shape->d[axis];
    out_dims->d[axis] = -1;
    if (prepared->sequence->analysis.expr_stages[expr] > prepared->segment)
      continue;
    if (!prepared->valid[expr] || prepared->exprs[expr] < 0)
      return resolve_bad_dim(prepared, name, axis, expr);
    out_dims->d[axis] = prepared->exprs[expr];
  }
  return rabbet_ok();
}

// Upper bound of the bytes of a value whose size is not known yet.
static size_t resolve_bytes(const rabbet_prepared_t* prepared,
                            const rabbet_plan_value_t* value,
                            const rabbet_dims_t* known) {
  rabbet_dims_t dims = *known;
  for (int32_t axis = 0; axis < dims.rank; ++axis) {
    // A plan of one segment knows all extents before its only run.
    assert(dims.d[axis] >= 0 || prepared->high);
    if (dims.d[axis] < 0)
      dims.d[axis] = rabbet_max_i64(prepared->high[value->shape.d[axis]], 0);
    if (dims.d[axis] == INT64_MAX) return RABBET_BYTES_UNKNOWN;
  }
  size_t bytes = 0;
  rabbet_status_t status =
      rabbet_tensor_bytes(value->dtype, value->format, &dims, &bytes);
  if (rabbet_is_ok(status)) return bytes;
  rabbet_status_ignore(status);
  return RABBET_BYTES_UNKNOWN;
}

// Values that share memory hold the same elements, except for parts, whose
// shapes are fixed: a reshaped tensor may have another number of elements.
static rabbet_status_t resolve_view(rabbet_prepared_t* prepared, size_t v) {
  const rabbet_plan_sequence_t* plan = prepared->sequence->plan;
  const int32_t* stages = prepared->sequence->analysis.dim_stages;
  const rabbet_plan_value_t* value = &plan->values[v];
  if (value->alias < 0) return rabbet_ok();
  const rabbet_plan_value_t* root = &plan->values[value->alias];
  int32_t stage =
      stages[v] > stages[value->alias] ? stages[v] : stages[value->alias];
  if (stage != prepared->segment ||
      (rabbet_shape_is_constant(plan->graph, &value->shape) &&
       rabbet_shape_is_constant(plan->graph, &root->shape)))
    return rabbet_ok();
  assert(root->alias < 0);
  rabbet_dims_t a, b;
  int64_t in = 0, out = 0;
  char text[2][192];
  RABBET_RETURN_IF_ERROR(
      rabbet_resolve_shape(prepared, root->name, &root->shape, &a));
  RABBET_RETURN_IF_ERROR(
      rabbet_resolve_shape(prepared, value->name, &value->shape, &b));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&a, &in));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&b, &out));
  if (in == out) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_OUT_OF_RANGE,
      "'%s' of shape %s and '%s' of shape %s are one tensor, reshaped, but the "
      "numbers of elements differ, for these input shapes",
      root->name, rabbet_dims_print(&a, text[0], sizeof(text[0])), value->name,
      rabbet_dims_print(&b, text[1], sizeof(text[1])));
}

static rabbet_status_t resolve_value(rabbet_prepared_t* prepared, size_t v) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  const rabbet_plan_value_t* value = &sequence->plan->values[v];
  int32_t root = sequence->analysis.roots[v];
  RABBET_RETURN_IF_ERROR(rabbet_resolve_shape(
      prepared, value->name, &value->shape, &prepared->dims[v]));
  prepared->bytes[v] = resolve_bytes(prepared, value, &prepared->dims[v]);
  bool known = sequence->analysis.dim_stages[v] <= prepared->segment;
  if (known && prepared->bytes[v] == RABBET_BYTES_UNKNOWN) {
    char text[192];
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "'%s' with shape %s does not fit into memory", value->name,
        rabbet_dims_print(&prepared->dims[v], text, sizeof(text)));
  }
  // Intermediate memory is as large as the largest of the values that share it;
  // memory of the caller or the plan cannot be enlarged. A value that no step
  // writes, whose shape is not known yet, is checked once it is known.
  bool view = sequence->analysis.producers[v] < 0 && !value->host_values;
  if (value->alias >= 0 && value->storage != RABBET_PLAN_STORAGE_ARENA &&
      (known || !view)) {
    RABBET_RETURN_IF_ERROR(rabbet_resolve_shape(
        prepared, sequence->plan->values[root].name,
        &sequence->plan->values[root].shape, &prepared->dims[root]));
    size_t room = resolve_bytes(prepared, &sequence->plan->values[root],
                                &prepared->dims[root]);
    size_t offset =
        value->storage == RABBET_PLAN_STORAGE_IO ? (size_t)value->offset : 0;
    if (offset > room || prepared->bytes[v] > room - offset)
      return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                           "'%s' needs %zu bytes but shares the %zu bytes of "
                           "'%s'",
                           value->name, prepared->bytes[v], room,
                           sequence->plan->values[root].name);
  }
  return rabbet_ok();
}

static rabbet_status_t resolve_values(rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  for (size_t v = 0; v < sequence->plan->value_count; ++v) {
    RABBET_RETURN_IF_ERROR(resolve_view(prepared, v));
    if (prepared->parent &&
        sequence->analysis.dim_stages[v] < prepared->segment) {
      assert(prepared->parent->bytes[v] != RABBET_BYTES_UNKNOWN);
      prepared->dims[v] = prepared->parent->dims[v];
      prepared->bytes[v] = prepared->parent->bytes[v];
      continue;
    }
    RABBET_RETURN_IF_ERROR(resolve_value(prepared, v));
  }
  return rabbet_ok();
}

static rabbet_status_t resolve_host_values(rabbet_prepared_t* prepared) {
  const rabbet_plan_sequence_t* plan = prepared->sequence->plan;
  for (size_t v = 0; v < plan->value_count; ++v) {
    const rabbet_plan_value_t* value = &plan->values[v];
    if (!value->host_values) continue;
    if (prepared->parent && prepared->parent->host_values[v]) {
      prepared->host_values[v] = prepared->parent->host_values[v];
      continue;
    }
    int64_t* values = NULL;
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate_array(&prepared->arena, value->host_value_count,
                                    sizeof(*values), (void**)&values));
    bool known = true;
    for (size_t i = 0; i < value->host_value_count && known; ++i) {
      rabbet_expr_t expr = value->host_values[i];
      known =
          prepared->sequence->analysis.expr_stages[expr] <= prepared->segment &&
          prepared->valid[expr];
      values[i] = prepared->exprs[expr];
    }
    if (known) prepared->host_values[v] = values;
  }
  return rabbet_ok();
}

// Inputs that share a named dimension must agree: the symbol has the value of
// the first of them.
static rabbet_status_t resolve_check_inputs(const rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  const rabbet_plan_sequence_t* plan = sequence->plan;
  if (prepared->segment > 0) return rabbet_ok();
  for (size_t i = 0; i < plan->input_count; ++i) {
    const rabbet_shape_t* shape = &plan->values[plan->ios[i].value].shape;
    for (int32_t axis = 0; axis < shape->rank; ++axis) {
      int64_t given = prepared->key[sequence->key_offsets[i] + (size_t)axis];
      if (given == prepared->exprs[shape->d[axis]]) continue;
      if (rabbet_expr_is_constant(plan->graph, shape->d[axis], NULL))
        return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                             "dimension %d of input '%s' is %lld; it must be "
                             "%lld",
                             axis, plan->ios[i].name, (long long)given,
                             (long long)prepared->exprs[shape->d[axis]]);
      assert(rabbet_expr_node(plan->graph, shape->d[axis])->op ==
             RABBET_EXPR_SYMBOL);
      const rabbet_symbol_t* symbol = rabbet_expr_symbol(
          plan->graph,
          (size_t)rabbet_expr_node(plan->graph, shape->d[axis])->a);
      return RABBET_STATUS(
          RABBET_STATUS_INVALID_ARGUMENT,
          "dimension %d of input '%s' is %lld and dimension %d of input '%s' "
          "is %lld, but both are named '%s' and must be equal",
          symbol->index, plan->values[symbol->tensor].name,
          (long long)prepared->exprs[shape->d[axis]], axis, plan->ios[i].name,
          (long long)given, symbol->name ? symbol->name : "?");
    }
  }
  return rabbet_ok();
}

static rabbet_status_t resolve(rabbet_prepared_t* prepared) {
  RABBET_RETURN_IF_ERROR(resolve_allocate(prepared));
  resolve_symbols(prepared);
  RABBET_RETURN_IF_ERROR(resolve_check_reads(prepared));
  RABBET_RETURN_IF_ERROR(resolve_exprs(prepared));
  RABBET_RETURN_IF_ERROR(resolve_check_inputs(prepared));
  RABBET_RETURN_IF_ERROR(resolve_bounds(prepared));
  RABBET_RETURN_IF_ERROR(resolve_values(prepared));
  RABBET_RETURN_IF_ERROR(resolve_host_values(prepared));
  return rabbet_prepared_check(prepared);
}

// ---- Nodes

rabbet_status_t rabbet_prepared_create(rabbet_frame_t* frame,
                                       rabbet_prepared_t* parent,
                                       const int64_t* key, size_t key_size,
                                       rabbet_prepared_t** out_prepared) {
  *out_prepared = NULL;
  assert(!parent || parent->sequence == frame->sequence);
  assert(key_size ==
         (parent ? frame->sequence->analysis.segment_reads[parent->segment]
                 : frame->sequence->key_size));
  rabbet_prepared_t* prepared = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(frame->context->allocator,
                                         sizeof(*prepared), (void**)&prepared));
  prepared->sequence = frame->sequence;
  prepared->parent = parent;
  prepared->segment = parent ? parent->segment + 1 : 0;
  prepared->key_size = key_size;
  prepared->number = ++frame->context->clock;
  rabbet_arena_initialize(frame->context->allocator, &prepared->arena);
  rabbet_status_t status = rabbet_arena_copy(
      &prepared->arena, key, key_size * sizeof(*key), (void**)&prepared->key);
  if (rabbet_is_ok(status)) status = resolve(prepared);
  if (!rabbet_is_ok(status)) {
    rabbet_prepared_destroy(prepared);
    return status;
  }
  *out_prepared = prepared;
  return rabbet_ok();
}

void rabbet_prepared_undo(rabbet_prepared_t* prepared) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  size_t begin = rabbet_segment_begin(sequence, prepared->segment);
  size_t end = rabbet_segment_end(sequence, prepared->segment);
  rabbet_graphs_destroy(prepared);
  for (size_t s = begin; prepared->states && s < end; ++s) {
    rabbet_kernel_t* kernel = sequence->steps[s].kernel;
    if (prepared->states[s - begin])
      kernel->kernel_class->destroy_state(kernel, prepared->states[s - begin]);
    prepared->states[s - begin] = NULL;
  }
  if (prepared->materialized)
    rabbet_memory_free(sequence->engine->device,
                       &sequence->engine->device_allocator,
                       prepared->materialized, NULL);
  prepared->materialized = NULL;
  rabbet_host_free(sequence->engine, prepared->staging);
  prepared->staging = NULL;
  prepared->run_count = 0;
}

void rabbet_prepared_destroy(rabbet_prepared_t* prepared) {
  if (!prepared) return;
  rabbet_prepared_cache_clear(&prepared->children);
  rabbet_prepared_undo(prepared);
  rabbet_allocator_t allocator = prepared->arena.allocator;
  rabbet_arena_deinitialize(&prepared->arena);
  rabbet_free(allocator, prepared);
}

void rabbet_prepared_cache_clear(rabbet_prepared_cache_t* cache) {
  for (size_t i = 0; i < cache->count; ++i)
    rabbet_prepared_destroy(cache->nodes[i]);
  *cache = (rabbet_prepared_cache_t){0};
}

// Work on the device may still use the evicted objects.
static rabbet_status_t prepared_evict(rabbet_frame_t* frame,
                                      rabbet_prepared_cache_t* cache) {
  assert(cache->count <= RABBET_PREPARED_MAX);
  if (cache->count < RABBET_PREPARED_MAX) return rabbet_ok();
  rabbet_device_t* device = frame->context->engine->device;
  if (device->vtable->synchronize_all)
    RABBET_RETURN_IF_ERROR(
        frame->context->running
            ? device->vtable->synchronize(device, frame->context->stream)
            : device->vtable->synchronize_all(device));
  size_t oldest = 0;
  for (size_t i = 1; i < cache->count; ++i) {
    if (cache->nodes[i]->used < cache->nodes[oldest]->used) oldest = i;
  }
  frame->last = NULL;  // it may lie below
  rabbet_prepared_destroy(cache->nodes[oldest]);
  cache->nodes[oldest] = cache->nodes[--cache->count];
  return rabbet_ok();
}

rabbet_status_t rabbet_prepared_lookup(rabbet_frame_t* frame,
                                       rabbet_prepared_t* parent,
                                       const int64_t* key, size_t key_size,
                                       rabbet_prepared_t** out_prepared) {
  rabbet_prepared_cache_t* cache = parent ? &parent->children : &frame->roots;
  // `current` must not be a root that is evicted below.
  assert(parent || !frame->current);
  for (size_t i = 0; i < cache->count; ++i) {
    rabbet_prepared_t* node = cache->nodes[i];
    assert(node->parent == parent && node->key_size == key_size);
    if (key_size > 0 && memcmp(node->key, key, key_size * sizeof(*key)) != 0)
      continue;
    node->used = ++frame->context->clock;
    *out_prepared = node;
    return rabbet_ok();
  }
  rabbet_prepared_t* node = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_prepared_create(frame, parent, key, key_size, &node));
  rabbet_status_t status = prepared_evict(frame, cache);
  if (!rabbet_is_ok(status)) {
    rabbet_prepared_destroy(node);
    return status;
  }
  node->used = ++frame->context->clock;
  assert(cache->count < RABBET_PREPARED_MAX);
  cache->nodes[cache->count++] = node;
  *out_prepared = node;
  return rabbet_ok();
}
