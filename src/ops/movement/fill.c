// Tensors made from a shape: numbers in even steps, or random numbers.
//
// A random number depends on the seed and its position alone, so that each run
// makes the same numbers, on every device.
#include "ops/movement/fill.h"

#include <math.h>

#include "ops/movement/philox.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { SHAPE = 0, ALPHA = 1, BETA = 2 };

static const rabbet_op_enumerator_t fill_operations[] = {
    RABBET_FILLS(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t fill_types[] = {
    {"FLOAT", RABBET_DTYPE_FLOAT},
    {"HALF", RABBET_DTYPE_HALF},
    {"BF16", RABBET_DTYPE_BF16},
    {"INT32", RABBET_DTYPE_INT32},
    {"INT64", RABBET_DTYPE_INT64},
    {"DOUBLE", RABBET_DTYPE_DOUBLE},
    {NULL, 0}};

static bool fill_has(const rabbet_op_infer_t* infer, size_t index) {
  return index < infer->input_count && infer->inputs[index].present;
}

static rabbet_status_t fill_infer_types(const rabbet_op_infer_t* infer) {
  static const char* const names[] = {"shape", "alpha", "beta"};
  rabbet_dtype_t dtype = (rabbet_dtype_t)RABBET_OP_INT(infer, "to_type");
  int64_t operation = RABBET_OP_INT(infer, "operation");
  infer->outputs[0].dtype = dtype;
  if (operation != RABBET_FILL_LINSPACE &&
      !(RABBET_T_NARROW_FLOATS >> dtype & 1))
    return RABBET_OP_INVALID(
        "attribute 'to_type' is %s; random numbers are FLOAT, HALF or BF16",
        rabbet_dtype_name(dtype));
  for (size_t i = ALPHA; i <= BETA; ++i) {
    if (!fill_has(infer, i) || infer->inputs[i].dtype == dtype) continue;
    return RABBET_OP_INVALID(
        "input %zu ('%s') has type %s, the output %s", i, names[i],
        rabbet_dtype_name(infer->inputs[i].dtype), rabbet_dtype_name(dtype));
  }
  return rabbet_ok();
}

static rabbet_status_t fill_shape(const rabbet_op_infer_t* infer,
                                  rabbet_shape_t* shape) {
  const rabbet_expr_t* values = NULL;
  size_t count = 0;
  const int64_t* given = RABBET_OP_INTS(infer, "shape", &count);
  bool has_input = fill_has(infer, SHAPE);
  if (has_input)
    RABBET_RETURN_IF_ERROR(
        rabbet_op_operand_values(infer, SHAPE, &values, &count));
  if (count > RABBET_MAX_RANK)
    return RABBET_OP_INVALID("'shape' has %zu elements; at most %d", count,
                             RABBET_MAX_RANK);
  shape->rank = (int32_t)count;
  for (size_t i = 0; i < count; ++i) {
    if (has_input) {
      shape->d[i] = values[i];
      continue;
    }
    if (given[i] < 0)
      return RABBET_OP_INVALID(
          "element %zu of attribute 'shape' is %lld; expected 0 or more", i,
          (long long)given[i]);
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(infer->graph, given[i], &shape->d[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t fill_infer_shapes(const rabbet_op_infer_t* infer) {
  rabbet_shape_t* y = &infer->outputs[0].shape;
  RABBET_RETURN_IF_ERROR(fill_shape(infer, y));
  int64_t steps =
      RABBET_OP_INT(infer, "operation") == RABBET_FILL_LINSPACE ? y->rank : 1;
  if (fill_has(infer, ALPHA) &&
      rabbet_op_constant_count(infer, &infer->inputs[ALPHA].shape) != 1)
    return RABBET_OP_INVALID("input 1 ('alpha') must have one element");
  if (fill_has(infer, BETA) &&
      rabbet_op_constant_count(infer, &infer->inputs[BETA].shape) != steps)
    return RABBET_OP_INVALID(
        "input 2 ('beta') must have %lld elements: a step for each axis, or "
        "one "
        "number for random ones",
        (long long)steps);
  if (steps > 1 && !fill_has(infer, BETA))
    return RABBET_OP_INVALID(
        "LINSPACE of %d axes needs input 2 ('beta'), a step for each axis",
        y->rank);
  return rabbet_ok();
}

// ---- Elements --------------------------------------------------------------

void rabbet_fill_read(const rabbet_attr_t* attrs, size_t attr_count,
                      const rabbet_dims_t* out, rabbet_fill_plan_t* plan) {
  *plan = (rabbet_fill_plan_t){.rank = out->rank};
  plan->operation =
      (rabbet_fill_t)rabbet_attr_int(attrs, attr_count, "operation", 0);
  plan->seed = (uint64_t)rabbet_attr_int(attrs, attr_count, "seed", 0);
  plan->alpha = rabbet_attr_float(attrs, attr_count, "alpha", 0);
  plan->beta = rabbet_attr_float(attrs, attr_count, "beta", 1);
  for (int32_t i = 0; i < out->rank; ++i)
    plan->dims[i] = out->d[i];
}

static float fill_random(const rabbet_fill_plan_t* plan, float alpha,
                         float beta, int64_t at) {
  const float tau = 6.28318530717958648f;
  uint32_t words[4];
  rabbet_philox(plan->seed, (uint64_t)at, words);
  float unit = rabbet_philox_unit(words[0]);
  if (plan->operation == RABBET_FILL_RANDOM_UNIFORM)
    return alpha + (beta - alpha) * unit;
  // Box and Muller; 1 - unit is not 0.
  float radius = sqrtf(-2 * logf(1 - unit));
  return alpha + beta * radius * cosf(tau * rabbet_philox_unit(words[1]));
}

// Sum over the axes of index times step.
static void fill_linear(const rabbet_fill_plan_t* plan, rabbet_dtype_t dtype,
                        const void* alpha, const void* beta, int64_t beta_count,
                        void* data, int64_t at) {
  bool integer = rabbet_dtype_is_integer(dtype);
  double real = alpha ? rabbet_load_double(dtype, alpha, 0) : plan->alpha;
  int64_t number = !integer ? 0
                   : alpha  ? rabbet_load_int64(dtype, alpha, 0)
                            : (int64_t)plan->alpha;
  int64_t rest = at;
  for (int32_t i = plan->rank - 1; i >= 0; --i) {
    int64_t index = rest % plan->dims[i];
    rest /= plan->dims[i];
    bool given = beta && i < beta_count;
    real += (double)index *
            (given ? rabbet_load_double(dtype, beta, i) : plan->beta);
    if (integer)
      number += index * (given ? rabbet_load_int64(dtype, beta, i)
                               : (int64_t)plan->beta);
  }
  if (integer)
    rabbet_store_int64(dtype, data, at, number);
  else
    rabbet_store_double(dtype, data, at, real);
}

void rabbet_fill_run(const rabbet_fill_plan_t* plan, rabbet_dtype_t dtype,
                     const void* alpha, const void* beta, int64_t beta_count,
                     void* data, int64_t begin, int64_t end) {
  if (plan->operation == RABBET_FILL_LINSPACE) {
    for (int64_t i = begin; i < end; ++i)
      fill_linear(plan, dtype, alpha, beta, beta_count, data, i);
    return;
  }
  float a = (float)(alpha ? rabbet_load_double(dtype, alpha, 0) : plan->alpha);
  float b = (float)(beta ? rabbet_load_double(dtype, beta, 0) : plan->beta);
  for (int64_t i = begin; i < end; ++i)
    rabbet_store_double(dtype, data, i, (double)fill_random(plan, a, b, i));
}

static rabbet_status_t fill_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* y = &eval->outputs[0];
  rabbet_view_t none = {.dtype = RABBET_DTYPE_NONE};
  const rabbet_view_t* alpha =
      eval->input_count > ALPHA ? &eval->inputs[ALPHA] : &none;
  const rabbet_view_t* beta =
      eval->input_count > BETA ? &eval->inputs[BETA] : &none;
  rabbet_fill_plan_t plan;
  rabbet_fill_read(eval->attrs, eval->attr_count, &y->dims, &plan);
  rabbet_fill_run(
      &plan, y->dtype, alpha->dtype == RABBET_DTYPE_NONE ? NULL : alpha->data,
      beta->dtype == RABBET_DTYPE_NONE ? NULL : beta->data,
      rabbet_count_of(&beta->dims), y->data, 0, rabbet_count_of(&y->dims));
  return rabbet_ok();
}

#define FILL_TYPES (RABBET_T_FLOATS | RABBET_T_INDICES)
static const rabbet_op_operand_t fill_inputs[] = {
    {"shape", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE, RABBET_T_INDICES},
    {"alpha", RABBET_OPERAND_OPTIONAL, FILL_TYPES},
    {"beta", RABBET_OPERAND_OPTIONAL, FILL_TYPES},
};
static const rabbet_op_operand_t fill_outputs[] = {{"output", 0, FILL_TYPES}};
static const rabbet_op_attr_t fill_attrs[] = {
    {"operation", RABBET_ATTR_INT, true, 0, 0, fill_operations},
    {"shape", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"alpha", RABBET_ATTR_FLOAT, false, 0, 0, NULL},
    {"beta", RABBET_ATTR_FLOAT, false, 0, 1, NULL},
    {"to_type", RABBET_ATTR_INT, false, RABBET_DTYPE_FLOAT, 0, fill_types},
    {"seed", RABBET_ATTR_INT, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_fill = {
    .name = "fill",
    .layer_type = "FILL",
    .inputs = fill_inputs,
    .input_count = RABBET_OP_COUNT_OF(fill_inputs),
    .outputs = fill_outputs,
    .output_count = RABBET_OP_COUNT_OF(fill_outputs),
    .attrs = fill_attrs,
    .attr_count = RABBET_OP_COUNT_OF(fill_attrs),
    .infer_types = fill_infer_types,
    .infer_shapes = fill_infer_shapes,
    .reference = fill_reference,
};
