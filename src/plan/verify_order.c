// Whether steps and the host read only what was written before, and each value
// is written once.
#include <assert.h>
#include <stdlib.h>

#include "plan/verify.h"

// ---- Parts of a value

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
static rabbet_status_t list_parts(rabbet_verify_t* verify) {
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
static bool parts_there(const rabbet_verify_t* verify, int32_t v,
                        int32_t step) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  const rabbet_plan_value_t* value = &sequence->values[v];
  size_t bytes = 0, at = (size_t)value->offset;
  assert(verify->first_in[verify->analysis.roots[v]] ==
         verify->analysis.roots[v]);
  if (!rabbet_shape_is_constant(sequence->graph, &value->shape)) return false;
  rabbet_status_ignore(rabbet_verify_bytes(sequence, v, &bytes));
  size_t end = at + bytes;
  for (int32_t p = verify->first_in[verify->analysis.roots[v]];
       p >= 0 && at < end && sequence->values[p].offset <= at;
       p = verify->next_in[p]) {
    const rabbet_plan_value_t* part = &sequence->values[p];
    int32_t producer = verify->analysis.producers[p];
    if (producer < 0 || producer >= step ||
        !rabbet_shape_is_constant(sequence->graph, &part->shape))
      continue;
    rabbet_status_ignore(rabbet_verify_bytes(sequence, p, &bytes));
    if (part->offset + bytes > at) at = (size_t)part->offset + bytes;
  }
  return at >= end;
}

// ---- Steps

// A value is available if it, or the owner of its memory, is a constant, an
// input, written by an earlier step, or known to the host.
static bool value_there(const rabbet_verify_t* verify, int32_t v, int32_t step,
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
static bool output_there(const rabbet_verify_t* verify, int32_t v,
                         const bool* written) {
  const rabbet_plan_sequence_t* sequence = verify->sequence;
  return value_there(verify, v, (int32_t)sequence->step_count, written) ||
         (sequence->values[v].host_values && !verify->analysis.written[v]);
}

static rabbet_status_t verify_known(const rabbet_verify_t* verify, int32_t v,
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

// A call's output is kept until the next segment has memory for it, if the call
// ends its segment and no bound of the output's own size is known before.
static bool tells_late(const rabbet_verify_t* verify, size_t s, int32_t v) {
  const rabbet_plan_analysis_t* analysis = &verify->analysis;
  const rabbet_shape_t* shape = &verify->sequence->values[v].shape;
  int32_t segment = analysis->step_segments[s], stage = 0;
  for (int32_t axis = 0; axis < shape->rank; ++axis)
    if (analysis->expr_bound_stages[shape->d[axis]] > stage)
      stage = analysis->expr_bound_stages[shape->d[axis]];
  return verify->sequence->steps[s].call_count > 0 && stage > segment &&
         analysis->segment_ends[segment] == (int32_t)s + 1;
}

static rabbet_status_t verify_host_read(const rabbet_verify_t* verify,
                                        int32_t v, bool* read) {
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

static rabbet_status_t verify_step_order(const rabbet_verify_t* verify,
                                         size_t s, bool* written) {
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
        verify_known(verify, v, segment + tells_late(verify, s, v), true));
    written[verify->analysis.roots[v]] = true;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_verify_order(rabbet_verify_t* verify) {
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
