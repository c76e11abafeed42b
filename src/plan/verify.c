// Whether a plan makes sense: all that the runtime relies on.
#include <assert.h>

#include "base/thread.h"
#include "plan/verify.h"

static bool dtype_valid(int dtype) {
  return dtype >= 0 && dtype < RABBET_DTYPE_COUNT;
}

static bool expr_valid(const rabbet_plan_sequence_t* sequence,
                       rabbet_expr_t expr) {
  return expr >= 0 && (size_t)expr < rabbet_expr_node_count(sequence->graph);
}

// ---- Expressions

static rabbet_status_t verify_symbol(const rabbet_plan_sequence_t* sequence,
                                     size_t i) {
  const rabbet_symbol_t* symbol = rabbet_expr_symbol(sequence->graph, i);
  if (symbol->tensor < 0 || (size_t)symbol->tensor >= sequence->value_count)
    return RABBET_DAMAGED("symbol %zu stands for value %d of %zu", i,
                          symbol->tensor, sequence->value_count);
  const rabbet_shape_t* shape = &sequence->values[symbol->tensor].shape;
  int64_t limit = shape->rank;
  if (symbol->kind == RABBET_SYMBOL_VALUE) {
    rabbet_dims_t dims = rabbet_shape_dims(sequence->graph, shape);
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(rabbet_dims_count(&dims, &limit), "symbol %zu", i));
  }
  if (symbol->index < 0 || symbol->index >= limit)
    return RABBET_DAMAGED(
        "symbol %zu stands for %s %d of value '%s', which has %lld", i,
        symbol->kind == RABBET_SYMBOL_DIM ? "axis" : "element", symbol->index,
        sequence->values[symbol->tensor].name, (long long)limit);
  return rabbet_ok();
}

// Operands and hints are in order by the graph itself, which refuses others.
static rabbet_status_t verify_exprs(const rabbet_plan_sequence_t* sequence) {
  for (size_t i = 0; i < rabbet_expr_symbol_count(sequence->graph); ++i)
    RABBET_RETURN_IF_ERROR(verify_symbol(sequence, i));
  return rabbet_ok();
}

static rabbet_status_t verify_shape(const rabbet_plan_sequence_t* sequence,
                                    const rabbet_shape_t* shape) {
  if (shape->rank < 0 || shape->rank > RABBET_MAX_RANK)
    return RABBET_DAMAGED("rank %d; expected 0 to %d", shape->rank,
                          RABBET_MAX_RANK);
  for (int32_t i = 0; i < shape->rank; ++i) {
    int64_t constant = 0;
    if (!expr_valid(sequence, shape->d[i]))
      return RABBET_DAMAGED("axis %d refers to expression %d of %zu", i,
                            shape->d[i],
                            rabbet_expr_node_count(sequence->graph));
    if (rabbet_expr_is_constant(sequence->graph, shape->d[i], &constant) &&
        constant < 0)
      return RABBET_DAMAGED("axis %d is %lld", i, (long long)constant);
  }
  return rabbet_ok();
}

static rabbet_status_t verify_tensor(const rabbet_plan_sequence_t* sequence,
                                     int dtype, int format,
                                     const rabbet_shape_t* shape) {
  if (!dtype_valid(dtype))
    return RABBET_DAMAGED("%d is not a data type", dtype);
  const rabbet_format_info_t* info =
      rabbet_format_info((rabbet_format_t)format);
  if (!info) return RABBET_DAMAGED("%d is not a tensor format", format);
  RABBET_RETURN_IF_ERROR(verify_shape(sequence, shape));
  if (shape->rank < info->min_rank)
    return RABBET_DAMAGED("format %s needs rank %d, found %d", info->name,
                          info->min_rank, shape->rank);
  return rabbet_ok();
}

// ---- Values

static rabbet_status_t verify_constant(const rabbet_verify_t* verify,
                                       const rabbet_plan_value_t* value) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  if (!rabbet_shape_is_constant(sequence->graph, &value->shape))
    return RABBET_DAMAGED("a constant has a dynamic shape");
  rabbet_dims_t dims = rabbet_shape_dims(sequence->graph, &value->shape);
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(value->dtype, value->format, &dims, &bytes));
  if (value->size != bytes)
    return RABBET_DAMAGED(
        "its data has %llu bytes; its shape and type need "
        "%zu",
        (unsigned long long)value->size, bytes);
  if (value->offset % RABBET_PLAN_ALIGNMENT != 0 ||
      value->offset > verify->weights_size ||
      value->size > verify->weights_size - value->offset)
    return RABBET_DAMAGED(
        "its data lies at %llu with %llu bytes, the weights "
        "have %llu",
        (unsigned long long)value->offset, (unsigned long long)value->size,
        (unsigned long long)verify->weights_size);
  return rabbet_ok();
}

static rabbet_status_t verify_alias(const rabbet_plan_sequence_t* sequence,
                                    size_t number) {
  const rabbet_plan_value_t* value = &sequence->values[number];
  if (value->alias < 0) {
    if (value->alias != -1) return RABBET_DAMAGED("alias %d", value->alias);
    return rabbet_ok();
  }
  if ((size_t)value->alias >= sequence->value_count ||
      (size_t)value->alias == number)
    return RABBET_DAMAGED("it shares the memory of value %d of %zu",
                          value->alias, sequence->value_count);
  const rabbet_plan_value_t* root = &sequence->values[value->alias];
  if (root->alias != -1 || root->storage != value->storage ||
      (root->storage == RABBET_PLAN_STORAGE_IO && root->io != value->io))
    return RABBET_DAMAGED(
        "it shares the memory of value %d ('%s'), which is "
        "kept otherwise",
        value->alias, root->name);
  if (value->storage == RABBET_PLAN_STORAGE_CONSTANT &&
      (value->offset != root->offset || value->size > root->size))
    return RABBET_DAMAGED(
        "it shares the memory of the constant '%s' but lies "
        "elsewhere",
        root->name);
  return rabbet_ok();
}

// ---- Parts of other values

rabbet_status_t rabbet_verify_bytes(const rabbet_plan_sequence_t* sequence,
                                    int32_t v, size_t* out_bytes) {
  const rabbet_plan_value_t* value = &sequence->values[v];
  rabbet_dims_t dims = rabbet_shape_dims(sequence->graph, &value->shape);
  return rabbet_tensor_bytes(value->dtype, value->format, &dims, out_bytes);
}

// Requires that all values have been verified by themselves.
static rabbet_status_t verify_part(const rabbet_plan_sequence_t* sequence,
                                   int32_t v) {
  const rabbet_plan_value_t* value = &sequence->values[v];
  if (value->storage == RABBET_PLAN_STORAGE_CONSTANT || value->offset == 0)
    return rabbet_ok();
  if (value->alias < 0)
    return RABBET_DAMAGED("it has an offset but memory of its own");
  const rabbet_plan_value_t* root = &sequence->values[value->alias];
  assert(root->alias < 0 && root->storage == value->storage);
  if (!rabbet_shape_is_constant(sequence->graph, &value->shape) ||
      !rabbet_shape_is_constant(sequence->graph, &root->shape))
    return RABBET_DAMAGED(
        "it is a part of '%s', but their shapes are not both constant",
        root->name);
  size_t bytes = 0, room = 0;
  RABBET_RETURN_IF_ERROR(rabbet_verify_bytes(sequence, v, &bytes));
  RABBET_RETURN_IF_ERROR(rabbet_verify_bytes(sequence, value->alias, &room));
  if (value->offset % RABBET_PLAN_ALIGNMENT != 0 || value->offset > room ||
      bytes > room - value->offset)
    return RABBET_DAMAGED("it lies at %llu with %zu bytes, '%s' has %zu",
                          (unsigned long long)value->offset, bytes, root->name,
                          room);
  return rabbet_ok();
}

static rabbet_status_t verify_host_values(
    const rabbet_plan_sequence_t* sequence, const rabbet_plan_value_t* value) {
  if (!value->host_values) return rabbet_ok();
  rabbet_dims_t dims = rabbet_shape_dims(sequence->graph, &value->shape);
  int64_t count = 0;
  if (!rabbet_shape_is_constant(sequence->graph, &value->shape) ||
      value->format != RABBET_FORMAT_LINEAR ||
      (!rabbet_dtype_is_integer(value->dtype) &&
       value->dtype != RABBET_DTYPE_BOOL))
    return RABBET_DAMAGED(
        "a value that the host knows must be LINEAR, of integers or BOOL, and "
        "of constant shape");
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  if ((uint64_t)count != value->host_value_count)
    return RABBET_DAMAGED("it has %lld elements but %zu host values",
                          (long long)count, value->host_value_count);
  for (size_t i = 0; i < value->host_value_count; ++i) {
    if (!expr_valid(sequence, value->host_values[i]))
      return RABBET_DAMAGED("host value %zu is expression %d of %zu", i,
                            value->host_values[i],
                            rabbet_expr_node_count(sequence->graph));
  }
  return rabbet_ok();
}

static rabbet_status_t verify_value(const rabbet_verify_t* verify,
                                    size_t number) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  const rabbet_plan_value_t* value = &sequence->values[number];
  RABBET_RETURN_IF_ERROR(
      verify_tensor(sequence, value->dtype, value->format, &value->shape));
  switch (value->storage) {
    case RABBET_PLAN_STORAGE_ARENA:
      break;
    case RABBET_PLAN_STORAGE_CONSTANT:
      RABBET_RETURN_IF_ERROR(verify_constant(verify, value));
      break;
    case RABBET_PLAN_STORAGE_IO:
      if (value->io < 0 || (size_t)value->io >= sequence->io_count)
        return RABBET_DAMAGED("it is input or output %d of %zu", value->io,
                              sequence->io_count);
      if (value->alias < 0 && sequence->ios[value->io].value != (int32_t)number)
        return RABBET_DAMAGED("input or output '%s' is another value",
                              sequence->ios[value->io].name);
      break;
    default:
      return RABBET_DAMAGED("%d is not a storage", (int)value->storage);
  }
  RABBET_RETURN_IF_ERROR(verify_alias(sequence, number));
  return verify_host_values(sequence, value);
}

static rabbet_status_t verify_values(const rabbet_verify_t* verify) {
  for (size_t i = 0; i < verify->sequence->value_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(verify_value(verify, i),
                                           "value %zu ('%s')", i,
                                           verify->sequence->values[i].name));
  for (size_t i = 0; i < verify->sequence->value_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        verify_part(verify->sequence, (int32_t)i), "value %zu ('%s')", i,
        verify->sequence->values[i].name));
  return rabbet_ok();
}

// ---- All

static rabbet_status_t verify_sequence(rabbet_verify_t* verify) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  if (sequence->value_count > INT32_MAX || sequence->io_count > INT32_MAX ||
      sequence->step_count >= INT32_MAX)
    return RABBET_DAMAGED("the plan has too many values or steps");
  RABBET_RETURN_IF_ERROR(verify_values(verify));
  RABBET_RETURN_IF_ERROR(verify_exprs(sequence));
  RABBET_RETURN_IF_ERROR(rabbet_verify_ios(sequence));
  RABBET_RETURN_IF_ERROR(rabbet_verify_checks(sequence));
  RABBET_RETURN_IF_ERROR(rabbet_verify_ranges(sequence));
  for (size_t s = 0; s < sequence->step_count; ++s)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_verify_step(sequence, &sequence->steps[s], &verify->arena),
        "step %zu ('%s')", s, sequence->steps[s].name));
  RABBET_RETURN_IF_ERROR(
      rabbet_plan_analyse(sequence, &verify->arena, &verify->analysis));
  return rabbet_verify_order(verify);
}

// Errors of other layers' helpers mean here that the plan is damaged.
rabbet_status_t rabbet_plan_as_damage(rabbet_status_t status) {
  rabbet_status_code_t code = rabbet_status_code(status);
  if (code != RABBET_STATUS_INVALID_ARGUMENT &&
      code != RABBET_STATUS_OUT_OF_RANGE && code != RABBET_STATUS_UNSUPPORTED &&
      code != RABBET_STATUS_NOT_FOUND)
    return status;
  rabbet_status_t damage = RABBET_DAMAGED("%s", rabbet_status_message(status));
  rabbet_status_free(status);
  return damage;
}

static rabbet_status_t verify_all(const rabbet_plan_t* plan,
                                  uint64_t weights_size) {
  if (plan->threads < 0 || plan->threads > RABBET_MAX_THREADS)
    return RABBET_DAMAGED("it was tuned for %d threads; expected 0 to %d",
                          plan->threads, RABBET_MAX_THREADS);
  RABBET_RETURN_IF_ERROR(rabbet_verify_profiles(plan));
  RABBET_RETURN_IF_ERROR(rabbet_verify_artifacts(plan));
  RABBET_RETURN_IF_ERROR(rabbet_verify_carried(plan));
  for (size_t i = 0; i < plan->sequence_count; ++i) {
    rabbet_verify_t verify = {.sequence = &plan->sequences[i],
                              .weights_size = weights_size};
    rabbet_arena_initialize(plan->allocator, &verify.arena);
    rabbet_status_t status = verify_sequence(&verify);
    rabbet_arena_deinitialize(&verify.arena);
    RABBET_RETURN_IF_ERROR(i == 0
                               ? status
                               : RABBET_ANNOTATE(status, "sequence %zu ('%s')",
                                                 i, plan->sequences[i].name));
  }
  RABBET_RETURN_IF_ERROR(rabbet_verify_calls(plan));
  RABBET_RETURN_IF_ERROR(rabbet_verify_entries(plan));
  return rabbet_verify_refits(plan);
}

rabbet_status_t rabbet_plan_verify(const rabbet_plan_t* plan,
                                   uint64_t weights_size) {
  return rabbet_plan_as_damage(verify_all(plan, weights_size));
}
