#include "plan/analysis.h"

#include <assert.h>

#include "base/math.h"

#define RABBET_ANALYSIS_ARRAY(arena, count, out) \
  rabbet_arena_allocate_array((arena), (count), sizeof(**(out)), (void**)(out))

static rabbet_status_t analysis_allocate(const rabbet_plan_sequence_t* sequence,
                                         rabbet_arena_t* arena,
                                         rabbet_plan_analysis_t* out) {
  size_t steps = sequence->step_count, values = sequence->value_count;
  size_t exprs = rabbet_expr_node_count(sequence->graph);
  rabbet_status_t status =
      RABBET_ANALYSIS_ARRAY(arena, steps + 1, &out->segment_ends);
#define RABBET_NEXT(count, field) \
  if (rabbet_is_ok(status))       \
  status = RABBET_ANALYSIS_ARRAY(arena, (count), &out->field)
  RABBET_NEXT(steps + 1, segment_reads);
  RABBET_NEXT(steps, step_segments);
  RABBET_NEXT(rabbet_expr_symbol_count(sequence->graph), sources);
  RABBET_NEXT(exprs, expr_stages);
  RABBET_NEXT(exprs, expr_bound_stages);
  RABBET_NEXT(values, producers);
  RABBET_NEXT(values, roots);
  RABBET_NEXT(values, dim_stages);
  RABBET_NEXT(values, first_steps);
  RABBET_NEXT(values, last_steps);
  RABBET_NEXT(values, memory_stages);
  RABBET_NEXT(values, written);
  RABBET_NEXT(values, materialized);
#undef RABBET_NEXT
  return status;
}

// ---- Segments and symbols

// Elements of a value whose shape is constant, as the values that the host
// reads have.
static int64_t constant_count(const rabbet_plan_sequence_t* sequence,
                              int32_t value) {
  assert(value >= 0 && (size_t)value < sequence->value_count);
  rabbet_dims_t dims =
      rabbet_shape_dims(sequence->graph, &sequence->values[value].shape);
  int64_t count = 0;
  rabbet_status_ignore(rabbet_dims_count(&dims, &count));
  return count;
}

// Whether a symbol stands for an extent that only the step's run tells.
static bool step_tells(const rabbet_plan_sequence_t* sequence,
                       const rabbet_plan_step_t* step) {
  for (size_t i = 0;
       step->call_count > 0 && i < rabbet_expr_symbol_count(sequence->graph);
       ++i) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(sequence->graph, i);
    for (size_t k = 0;
         symbol->kind == RABBET_SYMBOL_DIM && k < step->group.output_count; ++k)
      if (step->values[step->group.outputs[k]] == symbol->tensor) return true;
  }
  return false;
}

// Elements that the host reads after the step, then all extents of its outputs
// if a run of it tells some.
static size_t count_reads(const rabbet_plan_sequence_t* sequence,
                          const rabbet_plan_step_t* step) {
  size_t count = 0;
  for (size_t i = 0; i < step->host_read_count; ++i)
    count += (size_t)constant_count(sequence, step->host_reads[i]);
  for (size_t i = 0; step_tells(sequence, step) && i < step->group.output_count;
       ++i)
    count += (size_t)sequence->values[step->values[step->group.outputs[i]]]
                 .shape.rank;
  return count;
}

static void analyse_segments(const rabbet_plan_sequence_t* sequence,
                             rabbet_plan_analysis_t* out) {
  int32_t segment = 0;
  for (size_t s = 0; s < sequence->step_count; ++s) {
    const rabbet_plan_step_t* step = &sequence->steps[s];
    out->step_segments[s] = segment;
    if (step->host_read_count == 0 && !step_tells(sequence, step)) continue;
    out->segment_reads[segment] = count_reads(sequence, step);
    assert(segment == 0 || out->segment_ends[segment - 1] <= (int32_t)s);
    out->segment_ends[segment++] = (int32_t)s + 1;
  }
  out->segment_ends[segment] = (int32_t)sequence->step_count;
  out->segment_count = (size_t)segment + 1;
  assert(out->segment_count <= sequence->step_count + 1);
}

static bool find_read(const rabbet_plan_sequence_t* sequence,
                      const rabbet_plan_analysis_t* analysis,
                      const rabbet_symbol_t* symbol,
                      rabbet_plan_source_t* out_source) {
  for (size_t s = 0; s < sequence->step_count; ++s) {
    const rabbet_plan_step_t* step = &sequence->steps[s];
    int64_t before = 0;
    *out_source =
        (rabbet_plan_source_t){.read = analysis->step_segments[s], .input = -1};
    for (size_t i = 0; i < step->host_read_count; ++i) {
      out_source->index = (int32_t)(before + symbol->index);
      if (symbol->kind == RABBET_SYMBOL_VALUE &&
          step->host_reads[i] == symbol->tensor)
        return true;
      before += constant_count(sequence, step->host_reads[i]);
    }
    for (size_t i = 0; step->call_count > 0 && i < step->group.output_count;
         ++i) {
      int32_t output = step->values[step->group.outputs[i]];
      out_source->index = (int32_t)(before + symbol->index);
      if (symbol->kind == RABBET_SYMBOL_DIM && output == symbol->tensor)
        return true;
      before += sequence->values[output].shape.rank;
    }
  }
  return false;
}

static rabbet_status_t analyse_symbols(const rabbet_plan_sequence_t* sequence,
                                       rabbet_plan_analysis_t* out) {
  for (size_t i = 0; i < rabbet_expr_symbol_count(sequence->graph); ++i) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(sequence->graph, i);
    const rabbet_plan_value_t* value = &sequence->values[symbol->tensor];
    assert(symbol->tensor >= 0 &&
           (size_t)symbol->tensor < sequence->value_count);
    if (find_read(sequence, out, symbol, &out->sources[i])) continue;
    bool input = value->storage == RABBET_PLAN_STORAGE_IO && value->alias < 0 &&
                 sequence->ios[value->io].is_input;
    if (!input || (symbol->kind == RABBET_SYMBOL_VALUE &&
                   !sequence->ios[value->io].is_shape_input))
      return RABBET_STATUS(
          RABBET_STATUS_DATA_LOSS,
          "symbol %zu stands for %s of value %d ('%s'), which is neither an "
          "input nor read by the host",
          i, symbol->kind == RABBET_SYMBOL_DIM ? "a dimension" : "an element",
          symbol->tensor, value->name);
    out->sources[i] = (rabbet_plan_source_t){
        .read = -1, .input = value->io, .index = symbol->index};
  }
  return rabbet_ok();
}

static void analyse_exprs(const rabbet_plan_sequence_t* sequence,
                          rabbet_plan_analysis_t* out) {
  for (size_t i = 0; i < rabbet_expr_node_count(sequence->graph); ++i) {
    const rabbet_expr_node_t* node =
        rabbet_expr_node(sequence->graph, (rabbet_expr_t)i);
    int32_t stage = 0, bound = 0;
    if (node->op == RABBET_EXPR_SYMBOL) {
      const rabbet_symbol_t* symbol =
          rabbet_expr_symbol(sequence->graph, (size_t)node->a);
      assert(symbol->upper < (int32_t)i);
      stage = out->sources[node->a].read + 1;
      bound = symbol->upper == RABBET_EXPR_NONE
                  ? stage
                  : out->expr_bound_stages[symbol->upper];
      if (bound > stage) bound = stage;
    } else if (node->op != RABBET_EXPR_CONSTANT) {
      assert(node->a < (int32_t)i && node->b < (int32_t)i);
      stage = out->expr_stages[node->a];
      if (out->expr_stages[node->b] > stage) stage = out->expr_stages[node->b];
      bound = out->expr_bound_stages[node->a];
      if (out->expr_bound_stages[node->b] > bound)
        bound = out->expr_bound_stages[node->b];
    }
    out->expr_stages[i] = stage;
    assert(bound <= stage);
    out->expr_bound_stages[i] = bound;
  }
}

// ---- Values

static void analyse_use(rabbet_plan_analysis_t* out, int32_t value,
                        int32_t step) {
  int32_t root = out->roots[value];
  assert(out->roots[root] == root);
  if (step < out->first_steps[root]) out->first_steps[root] = step;
  if (step > out->last_steps[root]) out->last_steps[root] = step;
}

static void analyse_shapes(const rabbet_plan_sequence_t* sequence,
                           rabbet_plan_analysis_t* out) {
  for (size_t v = 0; v < sequence->value_count; ++v) {
    const rabbet_plan_value_t* value = &sequence->values[v];
    assert(value->alias < 0 || sequence->values[value->alias].alias < 0);
    out->producers[v] = -1;
    out->roots[v] = value->alias >= 0 ? value->alias : (int32_t)v;
    out->first_steps[v] = INT32_MAX;
    out->last_steps[v] = -1;
    for (int32_t axis = 0; axis < value->shape.rank; ++axis) {
      rabbet_expr_t dim = value->shape.d[axis];
      assert(dim >= 0 && (size_t)dim < rabbet_expr_node_count(sequence->graph));
      if (out->expr_stages[dim] > out->dim_stages[v])
        out->dim_stages[v] = out->expr_stages[dim];
    }
  }
}

bool rabbet_plan_is_view(const rabbet_plan_sequence_t* sequence,
                         const rabbet_plan_analysis_t* analysis, int32_t v) {
  const rabbet_plan_value_t* value = &sequence->values[v];
  if (value->alias < 0 || analysis->producers[v] >= 0 || value->host_values ||
      value->offset != 0)
    return false;
  assert(analysis->roots[v] == value->alias);
  const rabbet_plan_value_t* root = &sequence->values[value->alias];
  return value->dtype == root->dtype && value->format == root->format &&
         value->format == RABBET_FORMAT_LINEAR;
}

static void analyse_memory(const rabbet_plan_sequence_t* sequence,
                           rabbet_plan_analysis_t* out) {
  for (size_t v = 0; v < sequence->value_count; ++v) {
    const rabbet_shape_t* shape = &sequence->values[v].shape;
    int32_t* stage = &out->memory_stages[out->roots[v]];
    if (rabbet_plan_is_view(sequence, out, (int32_t)v)) continue;
    for (int32_t axis = 0; axis < shape->rank; ++axis)
      if (out->expr_bound_stages[shape->d[axis]] > *stage)
        *stage = out->expr_bound_stages[shape->d[axis]];
    assert((size_t)*stage < out->segment_count);
  }
}

// The runtime writes a value from its host values if a step reads it, but no
// step writes it or anything in the same memory.
static void analyse_materialized(const rabbet_plan_sequence_t* sequence,
                                 rabbet_plan_analysis_t* out) {
  for (size_t v = 0; v < sequence->value_count; ++v) {
    if (out->producers[v] >= 0) out->written[out->roots[v]] = true;
  }
  for (size_t s = 0; s < sequence->step_count; ++s) {
    const rabbet_plan_step_t* step = &sequence->steps[s];
    for (size_t i = 0; i < step->group.input_count; ++i) {
      int32_t root = out->roots[step->values[step->group.inputs[i]]];
      const rabbet_plan_value_t* value = &sequence->values[root];
      out->materialized[root] = value->host_values && !out->written[root] &&
                                value->storage == RABBET_PLAN_STORAGE_ARENA;
    }
  }
}

static void analyse_lifetimes(const rabbet_plan_sequence_t* sequence,
                              rabbet_plan_analysis_t* out) {
  for (size_t s = 0; s < sequence->step_count; ++s) {
    const rabbet_plan_step_t* step = &sequence->steps[s];
    for (size_t i = 0; i < step->group.output_count; ++i) {
      int32_t value = step->values[step->group.outputs[i]];
      assert(value >= 0);
      out->producers[value] = (int32_t)s;
      analyse_use(out, value, (int32_t)s);
    }
    for (size_t i = 0; i < step->group.input_count; ++i)
      analyse_use(out, step->values[step->group.inputs[i]], (int32_t)s);
    for (size_t i = 0; i < step->host_read_count; ++i)
      analyse_use(out, step->host_reads[i], (int32_t)s);
  }
  analyse_materialized(sequence, out);
}

rabbet_status_t rabbet_plan_analyse(const rabbet_plan_sequence_t* sequence,
                                    rabbet_arena_t* arena,
                                    rabbet_plan_analysis_t* out_analysis) {
  *out_analysis = (rabbet_plan_analysis_t){0};
  RABBET_RETURN_IF_ERROR(analysis_allocate(sequence, arena, out_analysis));
  analyse_segments(sequence, out_analysis);
  RABBET_RETURN_IF_ERROR(analyse_symbols(sequence, out_analysis));
  analyse_exprs(sequence, out_analysis);
  analyse_shapes(sequence, out_analysis);
  analyse_lifetimes(sequence, out_analysis);
  analyse_memory(sequence, out_analysis);
  return rabbet_ok();
}
