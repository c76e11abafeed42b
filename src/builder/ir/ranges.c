// Profiles -> the range of every expression.

#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "base/strbuf.h"
#include "builder/build.h"
#include "builder/ir/estimates.h"
#include "core/view.h"

// The ranges of one profile, for each input and each symbol.
typedef struct profile_range_t {
  const rabbet_profile_t* profile;  // NULL: the network is static
  size_t number;
  bool is_first;  // of the build
  rabbet_plan_range_t* inputs;
  int64_t *low, *opt, *high;  // of symbols
} profile_range_t;

static bool range_is_static(const rabbet_dims_t* dims) {
  for (int32_t i = 0; i < dims->rank; ++i)
    if (dims->d[i] < 0) return false;
  return true;
}

static rabbet_status_t range_check_dims(const profile_range_t* p,
                                        const rabbet_ir_value_t* input,
                                        const rabbet_dims_t* dims,
                                        const rabbet_plan_range_t* range) {
  char text[160];
  if (range->min.rank != dims->rank)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "profile %zu gives input '%s' rank %d; its shape is %s", p->number,
        input->name, range->min.rank,
        rabbet_dims_print(dims, text, sizeof(text)));
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (dims->d[i] < 0 ||
        (range->min.d[i] == dims->d[i] && range->max.d[i] == dims->d[i]))
      continue;
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "profile %zu gives dimension %d of input '%s' the range %lld to %lld; "
        "its shape %s fixes it at %lld",
        p->number, i, input->name, (long long)range->min.d[i],
        (long long)range->max.d[i], rabbet_dims_print(dims, text, sizeof(text)),
        (long long)dims->d[i]);
  }
  return rabbet_ok();
}

// Whether the profile has a range for the values of a shape input.
static bool range_has_values(const rabbet_profile_t* profile,
                             const rabbet_ir_value_t* input) {
  const int64_t *min = NULL, *opt = NULL, *max = NULL;
  size_t count = 0;
  if (!profile) return false;
  rabbet_status_t status =
      rabbet_profile_values(profile, input->name, &min, &opt, &max, &count);
  bool found = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  return found;
}

bool rabbet_ranges_symbol_is_data_dependent(const rabbet_build_t* build,
                                            size_t symbol) {
  const rabbet_symbol_t* s = rabbet_expr_symbol(build->ir.graph, symbol);
  const rabbet_ir_value_t* value = rabbet_ir_value(&build->ir, s->tensor);
  if (value->input < 0) return true;
  uint64_t told = build->told ? build->told[value->input] : 0;
  if (told & (s->kind == RABBET_SYMBOL_VALUE ? RABBET_BUILD_TOLD_VALUES
                                             : UINT64_C(1) << s->index))
    return true;
  return s->kind == RABBET_SYMBOL_VALUE &&
         !range_has_values(rabbet_builder_config_profile(build->config, 0),
                           value);
}

static rabbet_status_t range_of_shape(const rabbet_build_t* build,
                                      const profile_range_t* p,
                                      const rabbet_ir_value_t* input,
                                      rabbet_plan_range_t* range) {
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, input);
  rabbet_status_t status =
      p->profile ? rabbet_profile_shape(p->profile, input->name, &range->min,
                                        &range->opt, &range->max)
                 : RABBET_STATUS(RABBET_STATUS_NOT_FOUND, "no profile");
  if (rabbet_is_ok(status)) return range_check_dims(p, input, &dims, range);
  if (rabbet_status_code(status) != RABBET_STATUS_NOT_FOUND) return status;
  rabbet_status_ignore(status);
  char text[160];
  if (!range_is_static(&dims))
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "input '%s' has dynamic dimensions, %s, but %s: give its minimum, "
        "optimum and maximum shape in a profile (rabbet.compile: shapes=, the "
        "command: --shapes)",
        input->name, rabbet_dims_print(&dims, text, sizeof(text)),
        p->profile ? "a profile lacks it" : "there is no optimization profile");
  range->min = range->opt = range->max = dims;
  return rabbet_ok();
}

// The range of all values, for a shape input without a range in the profile.
// The optimum is 1, which most shape rules accept.
static rabbet_status_t range_of_any_values(rabbet_build_t* build,
                                           const char* name, size_t count,
                                           rabbet_plan_range_t* range) {
  static const int64_t numbers[] = {INT64_MIN, 1, INT64_MAX};
  const int64_t** lists[] = {&range->min_values, &range->opt_values,
                             &range->max_values};
  range->value_count = count;
  for (size_t k = 0; k < 3; ++k) {
    int64_t* list = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, count, sizeof(*list), (void**)&list));
    for (size_t i = 0; i < count; ++i)
      list[i] = numbers[k];
    *lists[k] = list;
  }
  rabbet_log(
      build->logger, RABBET_SEVERITY_WARNING,
      "sizes are computed from the values of input '%s', and no profile gives "
      "their range (rabbet.compile: values=, the command: --shapes): kernels "
      "are timed for values of 1, and runs allocate memory as they need it",
      name);
  return rabbet_ok();
}

static rabbet_status_t range_of_values(rabbet_build_t* build,
                                       const profile_range_t* p,
                                       const rabbet_ir_value_t* input,
                                       rabbet_plan_range_t* range) {
  if (!input->is_read_by_host) return rabbet_ok();
  const int64_t *min = NULL, *opt = NULL, *max = NULL;
  size_t count = 0;
  int64_t expected = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&range->opt, &expected));
  if (!range_has_values(p->profile, input))
    return range_of_any_values(build, input->name, (size_t)expected, range);
  RABBET_RETURN_IF_ERROR(
      rabbet_profile_values(p->profile, input->name, &min, &opt, &max, &count));
  if ((int64_t)count != expected)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "input '%s' is a shape input of %lld value%s, for which profile %zu "
        "gives %zu",
        input->name, (long long)expected, rabbet_plural((size_t)expected),
        p->number, count);
  range->value_count = count;
  const size_t bytes = count * sizeof(int64_t);
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&build->arena, min, bytes, (void**)&range->min_values));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&build->arena, opt, bytes, (void**)&range->opt_values));
  return rabbet_arena_copy(&build->arena, max, bytes,
                           (void**)&range->max_values);
}

// Inputs whose dimensions share a name share a symbol, and so a range.
static rabbet_status_t range_check_shared(const rabbet_build_t* build,
                                          const profile_range_t* p,
                                          size_t input) {
  const rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_value(ir, ir->inputs[input]);
  const rabbet_plan_range_t* range = &p->inputs[input];
  for (int32_t i = 0; i < value->shape.rank; ++i) {
    const rabbet_expr_node_t* node =
        rabbet_expr_node(ir->graph, value->shape.d[i]);
    if (node->op != RABBET_EXPR_SYMBOL) continue;
    int32_t s = node->a;
    if (p->low[s] == range->min.d[i] && p->opt[s] == range->opt.d[i] &&
        p->high[s] == range->max.d[i])
      continue;
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(ir->graph, (size_t)s);
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "profile %zu: dimension %d of input '%s' and dimension %d of input "
        "'%s' share the name '%s' and must have the same range",
        p->number, i, value->name, symbol->index,
        rabbet_ir_value(ir, symbol->tensor)->name,
        symbol->name ? symbol->name : "?");
  }
  return rabbet_ok();
}

static void range_of_input_symbol(const rabbet_build_t* build,
                                  profile_range_t* p, size_t s,
                                  const rabbet_symbol_t* symbol) {
  const rabbet_ir_value_t* value = rabbet_ir_value(&build->ir, symbol->tensor);
  assert(value->input >= 0 && (size_t)value->input < build->ir.input_count);
  const rabbet_plan_range_t* range = &p->inputs[value->input];
  if (symbol->kind == RABBET_SYMBOL_DIM) {
    p->low[s] = range->min.d[symbol->index];
    p->opt[s] = range->opt.d[symbol->index];
    p->high[s] = range->max.d[symbol->index];
  } else if ((size_t)symbol->index < range->value_count) {
    int64_t low = range->min_values[symbol->index];
    int64_t high = range->max_values[symbol->index];
    p->low[s] = rabbet_max_i64(low, INT32_MIN);
    p->opt[s] = range->opt_values[symbol->index];
    p->high[s] = rabbet_min_i64(high, INT32_MAX);
  }
}

// The range of a data-dependent symbol. Its estimate and bound depend only on
// earlier symbols, whose ranges are set.
static rabbet_status_t range_of_run_symbol(rabbet_build_t* build,
                                           profile_range_t* p, size_t s,
                                           const rabbet_symbol_t* symbol,
                                           int64_t* scratch, bool* valid) {
  const rabbet_expr_graph_t* graph = build->ir.graph;
  size_t count = rabbet_expr_node_count(graph);
  p->low[s] = symbol->upper >= 0 ? 0 : INT32_MIN;
  p->opt[s] = 1;
  p->high[s] = INT32_MAX;
  if (symbol->opt >= 0) {
    RABBET_RETURN_IF_ERROR(rabbet_expr_evaluate(graph, p->opt, scratch, valid));
    if (valid[symbol->opt]) p->opt[s] = scratch[symbol->opt];
  }
  if (symbol->upper >= 0) {
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_bounds(graph, p->low, p->high, scratch, scratch + count));
    p->high[s] = scratch[count + (size_t)symbol->upper];
  }
  return rabbet_ok();
}

static rabbet_status_t range_symbols(rabbet_build_t* build,
                                     profile_range_t* p) {
  const rabbet_expr_graph_t* graph = build->ir.graph;
  size_t nodes = rabbet_expr_node_count(graph);
  int64_t* scratch = NULL;
  bool* valid = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, nodes, 2 * sizeof(int64_t), (void**)&scratch));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, nodes, sizeof(bool), (void**)&valid));
  for (size_t s = 0; s < rabbet_expr_symbol_count(graph); ++s) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(graph, s);
    if (rabbet_ir_value(&build->ir, symbol->tensor)->input >= 0)
      range_of_input_symbol(build, p, s, symbol);
    else
      RABBET_RETURN_IF_ERROR(
          range_of_run_symbol(build, p, s, symbol, scratch, valid));
  }
  return rabbet_ok();
}

// Skips empty problems: their time says nothing about a kernel, and libraries
// reject them.
static void range_not_empty(const rabbet_build_t* build, profile_range_t* p) {
  for (size_t s = 0; s < rabbet_expr_symbol_count(build->ir.graph); ++s)
    if (rabbet_expr_symbol(build->ir.graph, s)->kind == RABBET_SYMBOL_DIM &&
        p->opt[s] == 0 && p->high[s] > 0)
      p->opt[s] = 1;
}

static rabbet_status_t range_initialize(rabbet_build_t* build,
                                        profile_range_t* p) {
  size_t symbols = rabbet_expr_symbol_count(build->ir.graph);
  int64_t** tables[] = {&p->low, &p->opt, &p->high};
  for (size_t i = 0; i < 3; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, symbols, sizeof(int64_t), (void**)tables[i]));
  const rabbet_ir_t* ir = &build->ir;
  for (size_t i = 0; i < ir->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_value(ir, ir->inputs[i]);
    RABBET_RETURN_IF_ERROR(range_of_shape(build, p, input, &p->inputs[i]));
    RABBET_RETURN_IF_ERROR(range_of_values(build, p, input, &p->inputs[i]));
  }
  RABBET_RETURN_IF_ERROR(range_symbols(build, p));
  for (size_t i = 0; i < ir->input_count; ++i)
    RABBET_RETURN_IF_ERROR(range_check_shared(build, p, i));
  range_not_empty(build, p);
  if (!p->is_first) return rabbet_ok();
  build->ranges.symbol_low = p->low;
  build->ranges.symbol_opt = p->opt;
  build->ranges.symbol_high = p->high;
  return rabbet_estimates_fit(build, p->low, p->high, p->opt);
}

// Widens the ranges of expressions by one profile's.
static rabbet_status_t range_merge(rabbet_build_t* build,
                                   const profile_range_t* p) {
  rabbet_ranges_t* ranges = &build->ranges;
  int64_t* bounds = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, ranges->count, 2 * sizeof(int64_t), (void**)&bounds));
  int64_t *low = bounds, *high = bounds + ranges->count;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_bounds(build->ir.graph, p->low, p->high, low, high));
  for (size_t i = 0; i < ranges->count; ++i) {
    assert(low[i] <= high[i]);
    if (p->is_first || low[i] < ranges->low[i]) ranges->low[i] = low[i];
    if (p->is_first || high[i] > ranges->high[i]) ranges->high[i] = high[i];
  }
  if (!p->is_first) return rabbet_ok();
  return rabbet_expr_evaluate(build->ir.graph, p->opt, ranges->opt,
                              ranges->valid);
}

static rabbet_status_t ranges_allocate(rabbet_build_t* build) {
  rabbet_ranges_t* ranges = &build->ranges;
  size_t profiles = build->config->profiles.count;
  ranges->profile_count = profiles > 0 ? profiles : 1;
  ranges->count = rabbet_expr_node_count(build->ir.graph);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, ranges->profile_count * (build->ir.input_count + 1),
      sizeof(rabbet_plan_range_t), (void**)&ranges->profiles));
  int64_t** tables[] = {&ranges->opt, &ranges->low, &ranges->high};
  for (size_t i = 0; i < 3; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, ranges->count, sizeof(int64_t), (void**)tables[i]));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&build->arena, ranges->count, sizeof(bool),
                                  (void**)&ranges->data_dependent));
  return rabbet_arena_allocate_array(&build->arena, ranges->count, sizeof(bool),
                                     (void**)&ranges->valid);
}

static void ranges_mark_data_dependent(rabbet_build_t* build) {
  const rabbet_ir_t* ir = &build->ir;
  bool* data_dependent = build->ranges.data_dependent;
  for (size_t i = 0; i < build->ranges.count; ++i) {
    const rabbet_expr_node_t* node =
        rabbet_expr_node(ir->graph, (rabbet_expr_t)i);
    if (node->op == RABBET_EXPR_SYMBOL)
      data_dependent[i] =
          rabbet_ranges_symbol_is_data_dependent(build, (size_t)node->a);
    else if (node->op != RABBET_EXPR_CONSTANT)  // operands are before it
      data_dependent[i] = data_dependent[node->a] || data_dependent[node->b];
  }
}

bool rabbet_ranges_is_data_dependent(const rabbet_build_t* build,
                                     const rabbet_shape_t* shape) {
  for (int32_t i = 0; i < shape->rank; ++i)
    if (build->ranges.data_dependent[shape->d[i]]) return true;
  return false;
}

rabbet_status_t rabbet_ranges_compute(rabbet_build_t* build) {
  RABBET_RETURN_IF_ERROR(ranges_allocate(build));
  ranges_mark_data_dependent(build);
  rabbet_ranges_t* ranges = &build->ranges;
  for (size_t i = 0; i < ranges->profile_count; ++i) {
    profile_range_t p = {
        .profile = rabbet_builder_config_profile(build->config, i),
        .number = rabbet_build_profile(build, i),
        .is_first = i == 0,
        .inputs = ranges->profiles + i * build->ir.input_count,
    };
    RABBET_RETURN_IF_ERROR(range_initialize(build, &p));
    RABBET_RETURN_IF_ERROR(range_merge(build, &p));
  }
  return rabbet_ok();
}

// An estimate, limited to the range of sizes. An invalid one counts as 1.
static int64_t ranges_estimated_size(const rabbet_ranges_t* ranges,
                                     rabbet_expr_t expr, bool valid,
                                     int64_t opt) {
  int64_t low = rabbet_max_i64(ranges->low[expr], 0);
  int64_t high = rabbet_max_i64(ranges->high[expr], low);
  return rabbet_min_i64(rabbet_max_i64(valid ? opt : 1, low), high);
}

rabbet_status_t rabbet_ranges_dims(const rabbet_build_t* build,
                                   const rabbet_estimates_t* estimates,
                                   const rabbet_ir_value_t* value,
                                   rabbet_dims_t* out_opt,
                                   rabbet_dims_t* out_min,
                                   rabbet_dims_t* out_max) {
  const rabbet_ranges_t* ranges = &build->ranges;
  const int64_t* opt = estimates ? estimates->opt : ranges->opt;
  const bool* valid = estimates ? estimates->valid : ranges->valid;
  bool data_dependent = false;
  int64_t count = 0;
  out_opt->rank = out_min->rank = out_max->rank = value->shape.rank;
  for (int32_t i = 0; i < value->shape.rank; ++i) {
    rabbet_expr_t expr = value->shape.d[i];
    data_dependent |= ranges->data_dependent[expr];
    if (!ranges->data_dependent[expr] && (!valid[expr] || opt[expr] < 0))
      return RABBET_STATUS(
          RABBET_STATUS_INVALID_ARGUMENT,
          "dimension %d of tensor '%s' %s at the optimum of profile %zu", i,
          value->name,
          valid[expr] ? "is negative"
                      : "divides by 0, overflows or does not broadcast",
          rabbet_build_profile(build, 0));
    out_opt->d[i] =
        ranges->data_dependent[expr]
            ? ranges_estimated_size(ranges, expr, valid[expr], opt[expr])
            : opt[expr];
    out_min->d[i] = ranges->low[expr] < 0 ? 0 : ranges->low[expr];
    out_max->d[i] = ranges->high[expr];
  }
  rabbet_status_t status = rabbet_dims_count(out_opt, &count);
  if (rabbet_is_ok(status) || !data_dependent)
    return RABBET_ANNOTATE(status, "tensor '%s'", value->name);
  rabbet_status_ignore(status);
  for (int32_t i = 0; i < value->shape.rank; ++i)
    if (ranges->data_dependent[value->shape.d[i]])
      out_opt->d[i] = out_min->d[i];
  return rabbet_ok();
}

rabbet_status_t rabbet_ranges_host_values(rabbet_build_t* build,
                                          const rabbet_estimates_t* estimates,
                                          const rabbet_ir_value_t* value,
                                          int64_t** out_values) {
  *out_values = NULL;
  size_t count = value->value_count;
  if (!value->values) {
    rabbet_dims_t dims = rabbet_ir_dims(&build->ir, value);
    int64_t elements = 0;
    bool is_integer = rabbet_dtype_is_integer(value->dtype) ||
                      value->dtype == RABBET_DTYPE_BOOL;
    if (!value->constant || !is_integer) return rabbet_ok();
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &elements));
    if (elements > RABBET_OP_MAX_VALUES) return rabbet_ok();
    count = (size_t)elements;
  }
  int64_t* values = NULL;
  const int64_t* opt = estimates ? estimates->opt : build->ranges.opt;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, count + 1, sizeof(int64_t), (void**)&values));
  for (size_t i = 0; i < count; ++i)
    values[i] = value->values ? opt[value->values[i]]
                              : rabbet_load_int64(value->dtype, value->constant,
                                                  (int64_t)i);
  *out_values = values;
  return rabbet_ok();
}
