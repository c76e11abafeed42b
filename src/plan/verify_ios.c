// Inputs, outputs, the conditions among them, and ranges of profiles.
#include <assert.h>
#include <string.h>

#include "base/map.h"
#include "plan/verify.h"

// ---- Inputs and outputs

// A dynamic dimension of an input is a symbol that stands for a dimension of an
// input, so that its value can be read off.
static rabbet_status_t verify_input_shape(
    const rabbet_plan_sequence_t* sequence, const rabbet_plan_value_t* value) {
  for (int32_t axis = 0; axis < value->shape.rank; ++axis) {
    const rabbet_expr_node_t* node =
        rabbet_expr_node(sequence->graph, value->shape.d[axis]);
    if (node->op == RABBET_EXPR_CONSTANT) continue;
    if (node->op != RABBET_EXPR_SYMBOL)
      return RABBET_DAMAGED("axis %d is neither a number nor a symbol", axis);
    const rabbet_symbol_t* symbol =
        rabbet_expr_symbol(sequence->graph, (size_t)node->a);
    const rabbet_plan_value_t* origin = &sequence->values[symbol->tensor];
    assert(symbol->index >= 0 && (symbol->kind != RABBET_SYMBOL_DIM ||
                                  symbol->index < origin->shape.rank));
    bool input = origin->storage == RABBET_PLAN_STORAGE_IO &&
                 origin->alias < 0 && sequence->ios[origin->io].is_input;
    if (symbol->kind != RABBET_SYMBOL_DIM || !input ||
        origin->shape.d[symbol->index] != value->shape.d[axis])
      return RABBET_DAMAGED("axis %d is a symbol of something else", axis);
  }
  return rabbet_ok();
}

static rabbet_status_t verify_shape_input(
    const rabbet_plan_sequence_t* sequence, const rabbet_plan_value_t* value) {
  if (!rabbet_shape_is_constant(sequence->graph, &value->shape) ||
      value->format != RABBET_FORMAT_LINEAR ||
      (value->dtype != RABBET_DTYPE_INT32 &&
       value->dtype != RABBET_DTYPE_INT64))
    return RABBET_DAMAGED(
        "a shape input must be a scalar or vector of INT32 or INT64, of "
        "constant length");
  rabbet_dims_t dims = rabbet_shape_dims(sequence->graph, &value->shape);
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  if (count > RABBET_OP_MAX_VALUES)
    return RABBET_DAMAGED(
        "a shape input has %lld elements; at most %d are "
        "possible",
        (long long)count, RABBET_OP_MAX_VALUES);
  return rabbet_ok();
}

static bool plan_is_checked(const rabbet_plan_sequence_t* sequence, size_t io) {
  for (size_t i = 0; i < sequence->check_count; ++i)
    if (sequence->checks[i].io == (int32_t)io) return true;
  return false;
}

static rabbet_status_t verify_io(const rabbet_plan_sequence_t* sequence,
                                 size_t number) {
  const rabbet_plan_io_t* io = &sequence->ios[number];
  if (io->is_input != (number < sequence->input_count))
    return RABBET_DAMAGED("inputs must come first");
  if (io->value < 0 || (size_t)io->value >= sequence->value_count)
    return RABBET_DAMAGED("it is value %d of %zu", io->value,
                          sequence->value_count);
  const rabbet_plan_value_t* value = &sequence->values[io->value];
  if (value->storage != RABBET_PLAN_STORAGE_IO || value->alias != -1 ||
      value->io != (int32_t)number)
    return RABBET_DAMAGED("its value %d ('%s') lies elsewhere", io->value,
                          value->name);
  if (io->aliased_input < -1 ||
      (io->aliased_input >= 0 &&
       (io->is_input || (size_t)io->aliased_input >= sequence->input_count)))
    return RABBET_DAMAGED("it is aliased to input %d of %zu", io->aliased_input,
                          sequence->input_count);
  if (number >= sequence->io_count - sequence->hidden_count && !io->is_debug &&
      !plan_is_checked(sequence, number))
    return RABBET_DAMAGED(
        "a hidden output must be a debug tensor or that of a check");
  if (io->is_shape_input && !io->is_input)
    return RABBET_DAMAGED("an output cannot be a shape input");
  if (!io->is_input) return rabbet_ok();
  if (io->is_shape_input)
    RABBET_RETURN_IF_ERROR(verify_shape_input(sequence, value));
  return verify_input_shape(sequence, value);
}

static rabbet_status_t verify_io_names(const rabbet_plan_sequence_t* sequence) {
  rabbet_map_t names;
  rabbet_map_initialize(sequence->plan->allocator, &names);
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < sequence->io_count && rabbet_is_ok(status); ++i) {
    const char* name = sequence->ios[i].name;
    if (!*name || rabbet_map_get_string(&names, name))
      status = RABBET_DAMAGED("two inputs or outputs are named '%s'", name);
    else
      status = rabbet_map_set(&names, name, strlen(name), &sequence->ios[i]);
  }
  rabbet_map_deinitialize(&names);
  return status;
}

rabbet_status_t rabbet_verify_ios(const rabbet_plan_sequence_t* sequence) {
  if (sequence->input_count > sequence->io_count)
    return RABBET_DAMAGED("%zu inputs among %zu inputs and outputs",
                          sequence->input_count, sequence->io_count);
  if (sequence->hidden_count > sequence->io_count - sequence->input_count)
    return RABBET_DAMAGED("%zu debug tensors among %zu outputs",
                          sequence->hidden_count,
                          sequence->io_count - sequence->input_count);
  for (size_t i = 0; i < sequence->io_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        verify_io(sequence, i), "%s '%s'",
        sequence->ios[i].is_input ? "input" : "output", sequence->ios[i].name));
  return verify_io_names(sequence);
}

// ---- Profiles

static rabbet_status_t verify_range(const rabbet_plan_sequence_t* sequence,
                                    const rabbet_plan_io_t* io,
                                    const rabbet_plan_range_t* range) {
  const rabbet_plan_value_t* value = &sequence->values[io->value];
  rabbet_dims_t dims = rabbet_shape_dims(sequence->graph, &value->shape);
  if (range->min.rank != dims.rank || range->opt.rank != dims.rank ||
      range->max.rank != dims.rank)
    return RABBET_DAMAGED("its range has another rank than %d", dims.rank);
  for (int32_t i = 0; i < dims.rank; ++i) {
    int64_t low = range->min.d[i], mid = range->opt.d[i],
            high = range->max.d[i];
    bool fits = dims.d[i] < 0 || (low == dims.d[i] && high == dims.d[i]);
    if (low < 0 || low > mid || mid > high || !fits)
      return RABBET_DAMAGED("axis %d has the range %lld, %lld, %lld", i,
                            (long long)low, (long long)mid, (long long)high);
  }
  int64_t count = 0;
  if (io->is_shape_input)
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  if (range->value_count != (size_t)count)
    return RABBET_DAMAGED("it has ranges for %zu values; expected %lld",
                          range->value_count, (long long)count);
  for (size_t i = 0; i < range->value_count; ++i) {
    if (range->min_values[i] > range->opt_values[i] ||
        range->opt_values[i] > range->max_values[i])
      return RABBET_DAMAGED("element %zu has the range %lld, %lld, %lld", i,
                            (long long)range->min_values[i],
                            (long long)range->opt_values[i],
                            (long long)range->max_values[i]);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_verify_ranges(const rabbet_plan_sequence_t* sequence) {
  for (size_t p = 0; p < sequence->profile_count; ++p) {
    for (size_t i = 0; i < sequence->input_count; ++i)
      RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
          verify_range(sequence, &sequence->ios[i],
                       &sequence->profiles[p * sequence->input_count + i]),
          "profile %zu, input '%s'", p, sequence->ios[i].name));
  }
  return rabbet_ok();
}

// ---- Checks

static bool verify_element(const rabbet_plan_sequence_t* sequence,
                           const rabbet_plan_value_t* value, int32_t index) {
  int64_t extent = 0;
  return value->dtype == RABBET_DTYPE_INT32 && value->shape.rank == 1 &&
         value->format == RABBET_FORMAT_LINEAR &&
         rabbet_expr_is_constant(sequence->graph, value->shape.d[0], &extent) &&
         index < extent;
}

static rabbet_status_t verify_check(const rabbet_plan_sequence_t* sequence,
                                    size_t number) {
  const rabbet_plan_check_t* check = &sequence->checks[number];
  if (check->io < 0 || (size_t)check->io >= sequence->io_count ||
      (size_t)check->io < sequence->io_count - sequence->hidden_count)
    return RABBET_DAMAGED("it is of output %d, which is not hidden", check->io);
  const rabbet_plan_value_t* value =
      &sequence->values[sequence->ios[check->io].value];
  bool fits = check->index < 0 ? check->index == -1 && value->host_values &&
                                     value->dtype == RABBET_DTYPE_BOOL
                               : verify_element(sequence, value, check->index);
  if (!fits)
    return RABBET_DAMAGED("element %d of value '%s' is not a condition",
                          check->index, value->name);
  const rabbet_plan_check_t* before = number > 0 ? check - 1 : NULL;
  if (before && before->index >= 0 && before->io != check->io)
    return RABBET_DAMAGED("elements of two outputs are checked");
  return rabbet_ok();
}

rabbet_status_t rabbet_verify_checks(const rabbet_plan_sequence_t* sequence) {
  for (size_t i = 0; i < sequence->check_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        verify_check(sequence, i), "check '%s'", sequence->checks[i].layer));
  return rabbet_ok();
}
