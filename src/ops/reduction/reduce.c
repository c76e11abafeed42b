// Reductions over a set of axes. Of no elements: SUM 0, PROD 1, MAX and MIN the
// type's least and greatest (infinities), AVG NaN (0 for integers).
#include <assert.h>
#include <math.h>

#include "ops/enums.h"
#include "ops/fraction.h"
#include "ops/rules.h"
#include "ops/walk.h"

static const rabbet_op_enumerator_t reduce_ops[] = {
    RABBET_REDUCES(RABBET_ENUMERATOR){NULL, 0}};

static rabbet_status_t reduce_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* input = &infer->inputs[0].shape;
  int64_t mask = RABBET_OP_INT(infer, "axes");
  bool keep = RABBET_OP_INT(infer, "keep_dims");
  RABBET_RETURN_IF_ERROR(rabbet_op_axes_mask(infer, mask, input->rank));
  rabbet_shape_t shape = {0};
  for (int32_t i = 0; i < input->rank; ++i) {
    if (!(mask >> i & 1)) {
      shape.d[shape.rank++] = input->d[i];
    } else if (keep) {
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_constant(infer->graph, 1, &shape.d[shape.rank++]));
    }
  }
  infer->outputs[0].shape = shape;
  return rabbet_ok();
}

// Strides that take a walk over the input to the element that it goes into.
static void reduce_strides(const rabbet_dims_t* in, int64_t mask,
                           int64_t strides[RABBET_MAX_RANK]) {
  int64_t stride = 1;
  for (int32_t i = in->rank - 1; i >= 0; --i) {
    strides[i] = mask >> i & 1 ? 0 : stride;
    if (!(mask >> i & 1)) stride *= in->d[i];
  }
}

// ---- Values ----------------------------------------------------------------

static const int64_t reduce_steps[] = {
    RABBET_ELEMENTWISE_SUM, RABBET_ELEMENTWISE_PROD, RABBET_ELEMENTWISE_MAX,
    RABBET_ELEMENTWISE_MIN};

static rabbet_status_t reduce_infer_values(const rabbet_op_infer_t* infer) {
  const rabbet_op_value_t* input = &infer->inputs[0];
  int64_t op = RABBET_OP_INT(infer, "op");
  // A reduction of no elements is left to the kernel.
  if (!input->values || input->value_count == 0 || op == RABBET_REDUCE_AVG) {
    return rabbet_ok();
  }
  int64_t count = rabbet_op_constant_count(infer, &infer->outputs[0].shape);
  rabbet_fractions_t made;
  RABBET_RETURN_IF_ERROR(rabbet_fractions_new(infer, (size_t)count, &made));
  for (int64_t i = 0; i < count; ++i)
    made.tops[i] = RABBET_EXPR_NONE;
  rabbet_dims_t dims = rabbet_shape_dims(infer->graph, &input->shape);
  int64_t strides[RABBET_MAX_RANK];
  reduce_strides(&dims, RABBET_OP_INT(infer, "axes"), strides);
  rabbet_walk_t walk;
  rabbet_walk_initialize(&dims, &walk);
  rabbet_walk_add(&walk, strides, 0);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    int64_t at = walk.offsets[0];
    assert(at >= 0 && at < count);
    rabbet_fraction_t total = {made.tops[at], made.bottoms[at]}, x;
    RABBET_RETURN_IF_ERROR(rabbet_fraction_at(infer, input, walk.linear, &x));
    if (rabbet_fraction_exists(total))
      RABBET_RETURN_IF_ERROR(
          rabbet_fraction_binary(infer, reduce_steps[op], total, x, &x));
    made.tops[at] = x.top;
    made.bottoms[at] = x.bottom;
  }
  rabbet_fractions_store(&made, (size_t)count, &infer->outputs[0]);
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

typedef union reduce_cell_t {
  double real;
  int64_t integer;
} reduce_cell_t;

static int64_t reduce_int_bound(rabbet_dtype_t dtype, bool greatest) {
  switch (dtype) {
    case RABBET_DTYPE_INT8:
      return greatest ? INT8_MAX : INT8_MIN;
    case RABBET_DTYPE_UINT8:
      return greatest ? UINT8_MAX : 0;
    case RABBET_DTYPE_INT32:
      return greatest ? INT32_MAX : INT32_MIN;
    default:
      return greatest ? INT64_MAX : INT64_MIN;
  }
}

static reduce_cell_t reduce_identity(int64_t op, rabbet_dtype_t dtype) {
  bool extreme = op == RABBET_REDUCE_MAX || op == RABBET_REDUCE_MIN;
  reduce_cell_t cell;
  if (rabbet_dtype_is_float(dtype)) {
    cell.real = extreme ? (op == RABBET_REDUCE_MIN ? INFINITY : -INFINITY)
                        : op == RABBET_REDUCE_PROD;
  } else {
    cell.integer = extreme ? reduce_int_bound(dtype, op == RABBET_REDUCE_MIN)
                           : op == RABBET_REDUCE_PROD;
  }
  return cell;
}

static double reduce_float(int64_t op, double total, double value) {
  switch (op) {
    case RABBET_REDUCE_PROD:
      return total * value;
    case RABBET_REDUCE_MAX:
      return isnan(value) || value > total ? value : total;
    case RABBET_REDUCE_MIN:
      return isnan(value) || value < total ? value : total;
    default:
      return total + value;
  }
}

static int64_t reduce_int(int64_t op, int64_t total, int64_t value) {
  switch (op) {
    case RABBET_REDUCE_PROD:
      return (int64_t)((uint64_t)total * (uint64_t)value);
    case RABBET_REDUCE_MAX:
      return value > total ? value : total;
    case RABBET_REDUCE_MIN:
      return value < total ? value : total;
    default:
      return (int64_t)((uint64_t)total + (uint64_t)value);
  }
}

static void reduce_gather(const rabbet_view_t* x, int64_t op, int64_t mask,
                          reduce_cell_t* cells) {
  int64_t strides[RABBET_MAX_RANK];
  reduce_strides(&x->dims, mask, strides);
  bool is_float = rabbet_dtype_is_float(x->dtype);
  rabbet_walk_t walk;
  rabbet_walk_initialize(&x->dims, &walk);
  rabbet_walk_add(&walk, strides, 0);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    reduce_cell_t* cell = &cells[walk.offsets[0]];
    if (is_float) {
      cell->real = reduce_float(
          op, cell->real, rabbet_load_double(x->dtype, x->data, walk.linear));
    } else {
      cell->integer = reduce_int(
          op, cell->integer, rabbet_load_int64(x->dtype, x->data, walk.linear));
    }
  }
}

static void reduce_store(const rabbet_view_t* y, int64_t op, int64_t i,
                         reduce_cell_t cell, int64_t reduced) {
  if (rabbet_dtype_is_float(y->dtype)) {
    rabbet_store_double(
        y->dtype, y->data, i,
        op == RABBET_REDUCE_AVG ? cell.real / (double)reduced : cell.real);
    return;
  }
  if (op == RABBET_REDUCE_AVG)
    cell.integer = reduced > 0 ? cell.integer / reduced : 0;
  rabbet_store_int64(y->dtype, y->data, i, cell.integer);
}

static rabbet_status_t reduce_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[0];
  const rabbet_view_t* y = &eval->outputs[0];
  int64_t op = RABBET_OP_INT(eval, "op");
  int64_t mask = RABBET_OP_INT(eval, "axes");
  int64_t count = rabbet_count_of(&y->dims), reduced = 1;
  for (int32_t i = 0; i < x->dims.rank; ++i) {
    if (mask >> i & 1) reduced *= x->dims.d[i];
  }
  reduce_cell_t* cells = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      eval->allocator, (size_t)count * sizeof(*cells), (void**)&cells));
  for (int64_t i = 0; i < count; ++i) {
    cells[i] = reduce_identity(op, x->dtype);
  }
  reduce_gather(x, op, mask, cells);
  for (int64_t i = 0; i < count; ++i) {
    reduce_store(y, op, i, cells[i], reduced);
  }
  rabbet_free(eval->allocator, cells);
  return rabbet_ok();
}

static const rabbet_op_operand_t reduce_inputs[] = {
    {"input", 0, RABBET_T_NUMBERS}};
static const rabbet_op_operand_t reduce_outputs[] = {
    {"output", 0, RABBET_T_NUMBERS}};
static const rabbet_op_attr_t reduce_attrs[] = {
    {"op", RABBET_ATTR_INT, true, 0, 0, reduce_ops},
    {"axes", RABBET_ATTR_INT, true, 0, 0, NULL},
    {"keep_dims", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_reduce = {
    .name = "reduce",
    .layer_type = "REDUCE",
    .inputs = reduce_inputs,
    .input_count = RABBET_OP_COUNT_OF(reduce_inputs),
    .outputs = reduce_outputs,
    .output_count = RABBET_OP_COUNT_OF(reduce_outputs),
    .attrs = reduce_attrs,
    .attr_count = RABBET_OP_COUNT_OF(reduce_attrs),
    .infer_shapes = reduce_infer_shapes,
    .infer_values = reduce_infer_values,
    .reference = reduce_reference,
};
