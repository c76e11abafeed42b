// Whether a plan makes sense: all that the runtime relies on.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/thread.h"
#include "plan/analysis.h"
#include "plan/verify.h"

typedef struct verify_t {
  const rabbet_plan_sequence_t* sequence;
  uint64_t weights_size;
  rabbet_arena_t arena;
  rabbet_plan_analysis_t analysis;
  // [value]: the values in the memory of one that has parts are a list.
  int32_t *first_in, *next_in;
} verify_t;

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

static rabbet_status_t verify_constant(const verify_t* verify,
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

static rabbet_status_t constant_bytes(const rabbet_plan_sequence_t* sequence,
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
  RABBET_RETURN_IF_ERROR(constant_bytes(sequence, v, &bytes));
  RABBET_RETURN_IF_ERROR(constant_bytes(sequence, value->alias, &room));
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

static rabbet_status_t verify_value(const verify_t* verify, size_t number) {
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

static rabbet_status_t verify_values(const verify_t* verify) {
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

static rabbet_status_t verify_ios(const rabbet_plan_sequence_t* sequence) {
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

static rabbet_status_t verify_profiles(const rabbet_plan_sequence_t* sequence) {
  for (size_t p = 0; p < sequence->profile_count; ++p) {
    for (size_t i = 0; i < sequence->input_count; ++i)
      RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
          verify_range(sequence, &sequence->ios[i],
                       &sequence->profiles[p * sequence->input_count + i]),
          "profile %zu, input '%s'", p, sequence->ios[i].name));
  }
  return rabbet_ok();
}

// ---- Order

typedef struct part_t {
  int32_t value;
  uint64_t offset;
} part_t;

static int part_compare(const void* a, const void* b) {
  const part_t *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->value > y->value) - (x->value < y->value);
}

// Lists the values in the memory of a value with parts, by offset: the value
// itself first.
static rabbet_status_t list_parts(verify_t* verify) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  int32_t** lists[] = {&verify->first_in, &verify->next_in};
  for (int i = 0; i < 2; ++i) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate_array(&verify->arena, sequence->value_count,
                                    sizeof(int32_t), (void**)lists[i]));
    for (size_t v = 0; v < sequence->value_count; ++v)
      (*lists[i])[v] = -1;
  }
  for (size_t v = 0; v < sequence->value_count; ++v) {
    const rabbet_plan_value_t* value = &sequence->values[v];
    if (value->alias >= 0 && value->offset > 0 &&
        value->storage != RABBET_PLAN_STORAGE_CONSTANT)
      verify->first_in[value->alias] = value->alias;
  }
  part_t* parts = NULL;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &verify->arena, sequence->value_count, sizeof(*parts), (void**)&parts));
  for (size_t v = 0; v < sequence->value_count; ++v) {
    int32_t root = verify->analysis.roots[v];
    if (root != (int32_t)v && verify->first_in[root] >= 0)
      parts[count++] = (part_t){(int32_t)v, sequence->values[v].offset};
  }
  if (count > 0) qsort(parts, count, sizeof(*parts), part_compare);
  while (count > 0) {
    int32_t v = parts[--count].value, root = verify->analysis.roots[v];
    assert(verify->next_in[root] < 0 ||
           sequence->values[verify->next_in[root]].offset >=
               sequence->values[v].offset);
    verify->next_in[v] = verify->next_in[root];
    verify->next_in[root] = v;
  }
  return rabbet_ok();
}

// Whether earlier steps wrote all of a value by its parts.
static bool parts_there(const verify_t* verify, int32_t v, int32_t step) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  const rabbet_plan_value_t* value = &sequence->values[v];
  size_t bytes = 0, at = (size_t)value->offset;
  assert(verify->first_in[verify->analysis.roots[v]] ==
         verify->analysis.roots[v]);
  if (!rabbet_shape_is_constant(sequence->graph, &value->shape)) return false;
  rabbet_status_ignore(constant_bytes(sequence, v, &bytes));
  size_t end = at + bytes;
  for (int32_t p = verify->first_in[verify->analysis.roots[v]];
       p >= 0 && at < end && sequence->values[p].offset <= at;
       p = verify->next_in[p]) {
    const rabbet_plan_value_t* part = &sequence->values[p];
    int32_t producer = verify->analysis.producers[p];
    if (producer < 0 || producer >= step ||
        !rabbet_shape_is_constant(sequence->graph, &part->shape))
      continue;
    rabbet_status_ignore(constant_bytes(sequence, p, &bytes));
    if (part->offset + bytes > at) at = (size_t)part->offset + bytes;
  }
  return at >= end;
}

// A value is available if it, or the owner of its memory, is a constant, an
// input, written by an earlier step, or known to the host.
static bool value_there(const verify_t* verify, int32_t v, int32_t step,
                        const bool* written) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  const rabbet_plan_value_t* value = &sequence->values[v];
  if (value->storage == RABBET_PLAN_STORAGE_CONSTANT) return true;
  assert(step >= 0 && (size_t)step <= sequence->step_count);
  if (value->storage == RABBET_PLAN_STORAGE_IO &&
      sequence->ios[value->io].is_input)
    return true;
  if (verify->analysis.producers[v] >= 0)
    return verify->analysis.producers[v] < step;
  int32_t root = verify->analysis.roots[v];
  if (verify->analysis.materialized[root]) return true;
  return verify->first_in[root] < 0 ? written[root]
                                    : parts_there(verify, v, step);
}

// An output that no step writes is one that the host knows.
static bool output_there(const verify_t* verify, int32_t v,
                         const bool* written) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  return value_there(verify, v, (int32_t)sequence->step_count, written) ||
         (sequence->values[v].host_values && !verify->analysis.written[v]);
}

static rabbet_status_t verify_known(const verify_t* verify, int32_t v,
                                    int32_t segment, bool output) {
  const rabbet_plan_analysis_t* analysis = &verify->analysis;
  const char* name = verify->sequence->values[v].name;
  if (!output && analysis->dim_stages[v] > segment)
    return RABBET_DAMAGED(
        "the shape of '%s' is needed before the host reads "
        "the values that it depends on",
        name);
  int32_t root = analysis->roots[v];
  const rabbet_plan_value_t* written = &verify->sequence->values[root];
  assert(!analysis->materialized[root] || written->host_values);
  for (size_t i = 0;
       !output && analysis->materialized[root] && i < written->host_value_count;
       ++i) {
    if (analysis->expr_stages[written->host_values[i]] > segment)
      return RABBET_DAMAGED(
          "element %zu of '%s' is needed before the host reads "
          "the values that it depends on",
          i, written->name);
  }
  if (analysis->memory_stages[root] > segment)
    return RABBET_DAMAGED("the size of '%s' has no bound when it is written",
                          name);
  return rabbet_ok();
}

// A loop keeps an output until the next segment has memory for it.
static bool tells_late(const rabbet_plan_step_t* step) {
  return step->call_count > 0 && step->group.node_count == 1 &&
         rabbet_op_is(step->group.nodes[0].op, RABBET_OP_LOOP);
}

static rabbet_status_t verify_host_read(const verify_t* verify, int32_t v,
                                        bool* read) {
  const rabbet_plan_value_t* value = &verify->sequence->values[v];
  if (read[v]) return RABBET_DAMAGED("the host reads '%s' twice", value->name);
  read[v] = true;
  int64_t count = 0;
  rabbet_dims_t dims =
      rabbet_shape_dims(verify->sequence->graph, &value->shape);
  if (!rabbet_shape_is_constant(verify->sequence->graph, &value->shape) ||
      value->format != RABBET_FORMAT_LINEAR ||
      (value->dtype != RABBET_DTYPE_INT32 &&
       value->dtype != RABBET_DTYPE_INT64 && value->dtype != RABBET_DTYPE_BOOL))
    return RABBET_DAMAGED(
        "the host reads '%s', which is not a scalar or vector of INT32, INT64 "
        "or BOOL, of constant length",
        value->name);
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  if (count > RABBET_OP_MAX_VALUES)
    return RABBET_DAMAGED(
        "the host reads %lld elements of '%s'; at most %d "
        "are possible",
        (long long)count, value->name, RABBET_OP_MAX_VALUES);
  return rabbet_ok();
}

static rabbet_status_t verify_step_order(const verify_t* verify, size_t s,
                                         bool* written) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  const rabbet_plan_step_t* step = &sequence->steps[s];
  int32_t segment = verify->analysis.step_segments[s];
  for (size_t i = 0; i < step->group.input_count; ++i) {
    int32_t v = step->values[step->group.inputs[i]];
    if (!value_there(verify, v, (int32_t)s, written))
      return RABBET_DAMAGED("it reads '%s', which no earlier step writes",
                            sequence->values[v].name);
    RABBET_RETURN_IF_ERROR(verify_known(verify, v, segment, false));
  }
  for (size_t i = 0; i < step->group.output_count; ++i) {
    int32_t v = step->values[step->group.outputs[i]];
    const rabbet_plan_value_t* value = &sequence->values[v];
    assert(verify->analysis.producers[v] >= (int32_t)s);
    if (verify->analysis.producers[v] != (int32_t)s)
      return RABBET_DAMAGED("'%s' is written by two steps", value->name);
    if (value->storage == RABBET_PLAN_STORAGE_CONSTANT ||
        (value->storage == RABBET_PLAN_STORAGE_IO &&
         sequence->ios[value->io].is_input))
      return RABBET_DAMAGED("it writes '%s', which must not be written",
                            value->name);
    RABBET_RETURN_IF_ERROR(
        verify_known(verify, v, segment + tells_late(step), true));
    written[verify->analysis.roots[v]] = true;
  }
  return rabbet_ok();
}

static rabbet_status_t verify_order(verify_t* verify) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  bool *written = NULL, *read = NULL;
  RABBET_RETURN_IF_ERROR(list_parts(verify));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &verify->arena, sequence->value_count, (void**)&written));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &verify->arena, sequence->value_count, (void**)&read));
  for (size_t s = 0; s < sequence->step_count; ++s) {
    const rabbet_plan_step_t* step = &sequence->steps[s];
    rabbet_status_t status = verify_step_order(verify, s, written);
    for (size_t i = 0; i < step->host_read_count && rabbet_is_ok(status); ++i) {
      int32_t v = step->host_reads[i];
      status = verify_host_read(verify, v, read);
      if (rabbet_is_ok(status) &&
          !value_there(verify, v, (int32_t)s + 1, written))
        status = RABBET_DAMAGED("the host reads '%s' before it is written",
                                sequence->values[v].name);
    }
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(status, "step %zu ('%s')", s, step->name));
  }
  for (size_t i = sequence->input_count; i < sequence->io_count; ++i) {
    if (!output_there(verify, sequence->ios[i].value, written))
      return RABBET_DAMAGED("output '%s' is never written",
                            sequence->ios[i].name);
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

static rabbet_status_t verify_checks(const rabbet_plan_sequence_t* sequence) {
  for (size_t i = 0; i < sequence->check_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        verify_check(sequence, i), "check '%s'", sequence->checks[i].layer));
  return rabbet_ok();
}

// ---- All

static rabbet_status_t verify_sequence(verify_t* verify) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  if (sequence->value_count > INT32_MAX || sequence->io_count > INT32_MAX ||
      sequence->step_count >= INT32_MAX)
    return RABBET_DAMAGED("the plan has too many values or steps");
  RABBET_RETURN_IF_ERROR(verify_values(verify));
  RABBET_RETURN_IF_ERROR(verify_exprs(sequence));
  RABBET_RETURN_IF_ERROR(verify_ios(sequence));
  RABBET_RETURN_IF_ERROR(verify_checks(sequence));
  RABBET_RETURN_IF_ERROR(verify_profiles(sequence));
  for (size_t s = 0; s < sequence->step_count; ++s)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_verify_step(sequence, &sequence->steps[s], &verify->arena),
        "step %zu ('%s')", s, sequence->steps[s].name));
  RABBET_RETURN_IF_ERROR(
      rabbet_plan_analyse(sequence, &verify->arena, &verify->analysis));
  return verify_order(verify);
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
    verify_t verify = {.sequence = &plan->sequences[i],
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
