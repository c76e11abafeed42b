// A mask that replaces scores by a very low number before a softmax becomes a
// mask that is added to them, which kernels for attention support. In both
// forms exp gives 0.
#include <assert.h>
#include <math.h>

#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/enums.h"

#define MASK_LOW (-1e9)

static bool mask_is_low(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                        float* out_number) {
  return rabbet_ir_number(ir, value, out_number) &&
         (double)*out_number <= MASK_LOW;
}

// Whether each row keeps a score. Otherwise the forms differ: a row whose
// scores are all replaced is constant, a row with a number added to each is
// not.
static bool mask_keeps(const rabbet_ir_t* ir, const rabbet_ir_value_t* mask,
                       const rabbet_dims_t* scores) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, mask);
  if (!mask->constant || mask->dtype != RABBET_DTYPE_BOOL || dims.rank < 1 ||
      dims.rank != scores->rank)
    return false;
  int64_t columns = dims.d[dims.rank - 1], rows = 1;
  assert(columns >= 0);  // constants have constant shapes
  if (columns != scores->d[dims.rank - 1]) return false;
  for (int32_t i = 0; i < dims.rank - 1; ++i)
    rows *= dims.d[i];
  for (int64_t row = 0; row < rows; ++row) {
    bool keeps = false;
    for (int64_t i = 0; i < columns && !keeps; ++i)
      keeps = rabbet_load_int64(mask->dtype, mask->constant,
                                row * columns + i) != 0;
    if (!keeps) return false;
  }
  return true;
}

static rabbet_status_t mask_make(rabbet_build_t* build,
                                 const rabbet_ir_value_t* mask, float low,
                                 rabbet_ir_value_t** out_value) {
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, mask);
  float* data = NULL;
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_new_floats(build, mask->name, &dims, out_value, &data));
  for (int64_t i = 0; i < count; ++i)
    data[i] = rabbet_load_int64(mask->dtype, mask->constant, i) != 0 ? 0 : low;
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_mask(rabbet_build_t* build,
                                 rabbet_ir_node_t* softmax, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* masked = rabbet_ir_input(ir, softmax, 0);
  rabbet_dims_t dims = rabbet_ir_dims(ir, masked);
  rabbet_ir_node_t* select =
      rabbet_ir_sole_producer(ir, masked, RABBET_OP_SELECT);
  float low = 0;
  if (!select || masked->dtype != RABBET_DTYPE_FLOAT || dims.rank < 1 ||
      rabbet_ir_int(softmax, "axes") != (int64_t)1 << (dims.rank - 1) ||
      rabbet_ir_has_wishes(ir, select))
    return rabbet_ok();
  const rabbet_ir_value_t* mask = rabbet_ir_input(ir, select, 0);
  const rabbet_ir_value_t* scores = rabbet_ir_input(ir, select, 1);
  if (!mask_is_low(ir, rabbet_ir_input(ir, select, 2), &low) ||
      !mask_keeps(ir, mask, &dims) ||
      !rabbet_ir_shape_equal(&scores->shape, &masked->shape))
    return rabbet_ok();
  const int64_t op = RABBET_ELEMENTWISE_SUM;
  const rabbet_attr_t attr = {
      .name = "op", .type = RABBET_ATTR_INT, .data = &op, .count = 1};
  rabbet_ir_value_t* added = NULL;
  rabbet_ir_node_t* sum = NULL;
  RABBET_RETURN_IF_ERROR(mask_make(build, mask, low, &added));
  const int32_t inputs[2] = {scores->id, added->id};
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_ELEMENTWISE,
                                            select->name, &attr, 1, inputs, 2,
                                            select, &sum));
  if (rabbet_ir_bypass(ir, select, rabbet_ir_output(ir, sum, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, sum);
  return rabbet_ok();
}

// ---- Masks in FP16 ----------------------------------------------------------

// Far below all scores, and far enough from the end of HALF for sums of the
// two. Lower numbers of FLOAT would become -infinity in HALF, and a row that is
// masked altogether NaN.
#define MASK_LEAST (-30000.0f)

// Steps from a softmax to its mask, and from there to the mask's constant.
enum { MASK_STEPS = 6 };

static bool mask_is_kind(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                         int64_t kind) {
  return node && rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE) &&
         rabbet_ir_int(node, "op") == kind && !rabbet_ir_has_wishes(ir, node);
}

// Whether a constant has a finite number below MASK_LEAST.
static bool mask_is_too_low(const rabbet_ir_t* ir,
                            const rabbet_ir_value_t* value) {
  if (!value || !value->constant || value->dtype != RABBET_DTYPE_FLOAT)
    return false;
  const float* data = value->constant;
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  int64_t count = 0;
  if (!rabbet_is_ok(rabbet_dims_count(&dims, &count))) return false;
  for (int64_t i = 0; i < count; ++i)
    if (data[i] < MASK_LEAST && isfinite(data[i])) return true;
  return false;
}

static bool mask_moves(const rabbet_ir_node_t* node) {
  return node && (rabbet_op_is(node->op, RABBET_OP_SHUFFLE) ||
                  rabbet_op_is(node->op, RABBET_OP_SLICE) ||
                  rabbet_op_is(node->op, RABBET_OP_IDENTITY));
}

// Whether the value is an input of the network, perhaps moved.
static bool mask_is_given(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                          int steps) {
  for (; value && steps > 0 && mask_moves(value->producer); --steps)
    value = rabbet_ir_input(ir, value->producer, 0);
  return value && value->input >= 0;
}

// Whether the value is computed from this constant by choice, product, sum or
// movement.
static bool mask_comes_of_low(const rabbet_ir_t* ir,
                              const rabbet_ir_value_t* value, int steps) {
  if (mask_is_too_low(ir, value)) return true;
  const rabbet_ir_node_t* node = value ? value->producer : NULL;
  if (!node || steps == 0) return false;
  bool moves = mask_moves(node);
  if (!moves && !rabbet_op_is(node->op, RABBET_OP_SELECT) &&
      !mask_is_kind(ir, node, RABBET_ELEMENTWISE_PROD) &&
      !mask_is_kind(ir, node, RABBET_ELEMENTWISE_SUM))
    return false;
  size_t count = moves ? 1 : node->input_count;
  for (size_t i = 0; i < count; ++i)
    if (mask_comes_of_low(ir, rabbet_ir_input(ir, node, i), steps - 1))
      return true;
  return false;
}

// Whether the tensor that a sum adds to scores is a mask with these numbers, or
// a mask that is an input, whose numbers are not known.
static bool mask_is_added(const rabbet_ir_t* ir, const rabbet_ir_node_t* sum,
                          size_t input) {
  assert(input < 2);
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, sum, input);
  const rabbet_ir_value_t* other = rabbet_ir_input(ir, sum, 1 - input);
  return mask_comes_of_low(ir, value, MASK_STEPS) ||
         (mask_is_given(ir, value, MASK_STEPS) &&
          !mask_is_given(ir, other, MASK_STEPS) && !other->constant);
}

// The node behind the value's producer: there the addition may be fused with
// it.
static const rabbet_ir_node_t* mask_behind(const rabbet_ir_t* ir,
                                           const rabbet_ir_value_t* value,
                                           const rabbet_ir_node_t* reader) {
  for (size_t i = 0; value->producer && i + 1 < ir->nodes.count; ++i)
    if (ir->nodes.data[i] == value->producer) return ir->nodes.data[i + 1];
  return reader;
}

// node's input is max(input, MASK_LEAST).
static rabbet_status_t mask_raise(rabbet_build_t* build, rabbet_ir_node_t* node,
                                  size_t input, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  const int64_t op = RABBET_ELEMENTWISE_MAX;
  const rabbet_attr_t attr = {
      .name = "op", .type = RABBET_ATTR_INT, .data = &op, .count = 1};
  rabbet_dims_t dims = {.rank = value->shape.rank};
  rabbet_ir_value_t* least = NULL;
  rabbet_ir_node_t* raised = NULL;
  float* data = NULL;
  for (int32_t i = 0; i < dims.rank; ++i)
    dims.d[i] = 1;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_new_floats(build, "lowest score", &dims, &least, &data));
  assert(value->dtype == RABBET_DTYPE_FLOAT);
  data[0] = MASK_LEAST;
  const int32_t inputs[2] = {value->id, least->id};
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_node(ir, RABBET_OP_ELEMENTWISE, value->name, &attr, 1,
                         inputs, 2, mask_behind(ir, value, node), &raised));
  rabbet_ir_set_input(ir, node, input, rabbet_ir_output(ir, raised, 0)->id);
  *changed = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_mask_range(rabbet_build_t* build,
                                       rabbet_ir_node_t* softmax,
                                       bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* scores = rabbet_ir_input(ir, softmax, 0);
  const uint32_t narrow = 1u << RABBET_DTYPE_HALF | 1u << RABBET_DTYPE_BF16;
  if (!(build->extra_dtypes & narrow) || scores->dtype != RABBET_DTYPE_FLOAT)
    return rabbet_ok();
  for (int step = 0; step < MASK_STEPS && scores; ++step) {
    rabbet_ir_node_t* node = scores->producer;
    bool selects = node && rabbet_op_is(node->op, RABBET_OP_SELECT) &&
                   !rabbet_ir_has_wishes(ir, node);
    bool bounds = mask_is_kind(ir, node, RABBET_ELEMENTWISE_MAX);
    scores = NULL;
    if (!selects && !bounds && !mask_is_kind(ir, node, RABBET_ELEMENTWISE_SUM))
      break;
    for (size_t i = selects; i < node->input_count; ++i) {
      rabbet_ir_value_t* value = rabbet_ir_input(ir, node, i);
      bool low = selects || bounds ? mask_is_too_low(ir, value)
                                   : mask_is_added(ir, node, i);
      if (low) RABBET_RETURN_IF_ERROR(mask_raise(build, node, i, changed));
      if (!value->constant && (bounds || selects)) scores = value;
    }
  }
  return rabbet_ok();
}

// ---- Zeros in place of NaN --------------------------------------------------

// Whether each row of an added constant has a number above -infinity, and no
// element is more than a number.
static bool mask_keeps_numbers(const rabbet_ir_t* ir,
                               const rabbet_ir_value_t* mask) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, mask);
  if (!mask->constant || !rabbet_dtype_is_float(mask->dtype) || dims.rank < 1)
    return false;
  int64_t columns = dims.d[dims.rank - 1], count = rabbet_ir_count(ir, mask);
  for (int64_t row = 0; row < count; row += columns) {
    bool keeps = false;
    for (int64_t i = row; i < row + columns; ++i) {
      double number = rabbet_load_double(mask->dtype, mask->constant, i);
      if (!(number < INFINITY)) return false;
      keeps |= number > -INFINITY;
    }
    if (!keeps) return false;
  }
  return true;
}

// Whether scores that are multiplied with, or divided by, the constant keep
// their signs and infinities.
static bool mask_is_scale(const rabbet_ir_t* ir,
                          const rabbet_ir_value_t* factor) {
  if (!factor->constant || !rabbet_dtype_is_float(factor->dtype)) return false;
  for (int64_t i = 0; i < rabbet_ir_count(ir, factor); ++i) {
    double number = rabbet_load_double(factor->dtype, factor->constant, i);
    if (!(number > 0 && number < INFINITY)) return false;
  }
  return true;
}

// Whether the node casts, or reshapes rows as they are.
static bool mask_keeps_rows(const rabbet_ir_t* ir,
                            const rabbet_ir_node_t* node) {
  if (rabbet_op_is(node->op, RABBET_OP_CAST)) return true;
  if (!rabbet_op_is(node->op, RABBET_OP_SHUFFLE) ||
      !rabbet_ir_is_view(ir, node))
    return false;
  const rabbet_shape_t* from = &rabbet_ir_input(ir, node, 0)->shape;
  const rabbet_shape_t* to = &rabbet_ir_output(ir, node, 0)->shape;
  return from->rank > 0 && to->rank > 0 &&
         from->d[from->rank - 1] == to->d[to->rank - 1];
}

// The input of a node that scales scores by a constant, casts or reshapes them,
// or adds the one constant that leaves something of each row (*masked becomes
// true); NULL: it does something else.
static const rabbet_ir_value_t* mask_before(const rabbet_ir_t* ir,
                                            const rabbet_ir_node_t* node,
                                            bool* masked) {
  if (mask_keeps_rows(ir, node)) return rabbet_ir_input(ir, node, 0);
  bool sums = mask_is_kind(ir, node, RABBET_ELEMENTWISE_SUM);
  if (!sums && !mask_is_kind(ir, node, RABBET_ELEMENTWISE_PROD) &&
      !mask_is_kind(ir, node, RABBET_ELEMENTWISE_DIV))
    return NULL;
  size_t scores = rabbet_ir_input(ir, node, 0)->constant ? 1 : 0;
  const rabbet_ir_value_t* other = rabbet_ir_input(ir, node, 1 - scores);
  bool fits = sums ? !*masked && mask_keeps_numbers(ir, other)
                   : mask_is_scale(ir, other);
  if (!fits || (scores == 1 && mask_is_kind(ir, node, RABBET_ELEMENTWISE_DIV)))
    return NULL;
  *masked |= sums;
  return rabbet_ir_input(ir, node, scores);
}

// Whether scores are a product of which no row is masked altogether.
static bool mask_leaves_rows(const rabbet_ir_t* ir,
                             const rabbet_ir_value_t* scores) {
  bool masked = false;
  for (int i = 0; scores && scores->producer && i < MASK_STEPS; ++i) {
    if (rabbet_op_is(scores->producer->op, RABBET_OP_MATRIX_MULTIPLY))
      return true;
    scores = mask_before(ir, scores->producer, &masked);
  }
  return false;
}

// isnan(p) ? 0 : p of weights p is p, if no row of scores is masked altogether:
// torch's attention writes zeros for such rows alone. Scores that are NaN
// themselves stay so, as they do in torch.
rabbet_status_t rabbet_rule_weights_nan(rabbet_build_t* build,
                                        rabbet_ir_node_t* select,
                                        bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* weights = rabbet_ir_input(ir, select, 2);
  const rabbet_ir_node_t* test = rabbet_ir_input(ir, select, 0)->producer;
  const rabbet_ir_node_t* softmax = weights->producer;
  if (!test || !softmax || !rabbet_op_is(test->op, RABBET_OP_UNARY) ||
      rabbet_ir_int(test, "op") != RABBET_UNARY_ISNAN ||
      rabbet_ir_input(ir, test, 0) != weights ||
      !rabbet_op_is(softmax->op, RABBET_OP_SOFTMAX) ||
      weights->shape.rank < 1 ||
      rabbet_ir_int(softmax, "axes") != (int64_t)1
                                            << (weights->shape.rank - 1) ||
      !rabbet_ir_is_number(ir, rabbet_ir_input(ir, select, 1), 0) ||
      !mask_leaves_rows(ir, rabbet_ir_input(ir, softmax, 0)))
    return rabbet_ok();
  if (rabbet_ir_bypass(ir, select, weights)) *changed = true;
  return rabbet_ok();
}
