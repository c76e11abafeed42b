// Tensors of 8 bits stay so where no layer needs their numbers.

#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "core/view.h"

enum { REQUANTIZE_SCALE = 1, REQUANTIZE_ZERO_POINT = 2 };

// Whether an operand of a quantization is one number that the build knows;
// *out_number is 0 without a zero point.
static bool requantize_number(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* node, size_t input,
                              double* out_number) {
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  *out_number = 0;
  if (!value) return input == REQUANTIZE_ZERO_POINT;
  if (!value->constant || rabbet_ir_count(ir, value) != 1) return false;
  *out_number = rabbet_load_double(value->dtype, value->constant, 0);
  return true;
}

// The node that makes the value from integers of 8 bits, with one scale.
static const rabbet_ir_node_t* requantize_maker(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value) {
  const rabbet_ir_node_t* maker = value ? value->producer : NULL;
  double scale = 0, zero = 0;
  if (!maker || maker->dead || !rabbet_op_is(maker->op, RABBET_OP_DEQUANTIZE) ||
      rabbet_ir_has_wishes(ir, maker) ||
      !requantize_number(ir, maker, REQUANTIZE_SCALE, &scale) ||
      !requantize_number(ir, maker, REQUANTIZE_ZERO_POINT, &zero))
    return NULL;
  rabbet_dtype_t dtype = rabbet_ir_input(ir, maker, 0)->dtype;
  return dtype == RABBET_DTYPE_INT8 || dtype == RABBET_DTYPE_UINT8 ? maker
                                                                   : NULL;
}

// A quantization of numbers that it would make: they are there.
static void requantize_same(rabbet_ir_t* ir, rabbet_ir_node_t* node,
                            bool* changed) {
  const rabbet_ir_node_t* maker =
      requantize_maker(ir, rabbet_ir_input(ir, node, 0));
  double numbers[2][2];
  if (!maker) return;
  rabbet_ir_value_t* bytes = rabbet_ir_input(ir, maker, 0);
  for (size_t i = 0; i < 2; ++i)
    if (!requantize_number(ir, maker, i + REQUANTIZE_SCALE, &numbers[0][i]) ||
        !requantize_number(ir, node, i + REQUANTIZE_SCALE, &numbers[1][i]) ||
        numbers[0][i] != numbers[1][i])
      return;
  if (!(numbers[0][0] > 0) || bytes->constant ||
      bytes->dtype != rabbet_ir_output(ir, node, 0)->dtype)
    return;
  *changed |= rabbet_ir_bypass(ir, node, bytes);
}

// Whether the node makes 8 bits with one scale, so that it may be done to other
// elements, or in another order.
static bool requantize_can_move(const rabbet_ir_t* ir,
                                const rabbet_ir_node_t* node) {
  double ignored = 0;
  const rabbet_ir_value_t* result = rabbet_ir_output(ir, node, 0);
  return !rabbet_ir_has_wishes(ir, node) && result->output < 0 &&
         (result->dtype == RABBET_DTYPE_INT8 ||
          result->dtype == RABBET_DTYPE_UINT8) &&
         requantize_number(ir, node, REQUANTIZE_SCALE, &ignored) &&
         requantize_number(ir, node, REQUANTIZE_ZERO_POINT, &ignored);
}

static rabbet_status_t requantize_replace(rabbet_ir_t* ir,
                                          rabbet_ir_node_t* node,
                                          const rabbet_ir_node_t* made,
                                          bool* changed) {
  rabbet_ir_value_t* result = rabbet_ir_output(ir, node, 0);
  rabbet_ir_value_t* moved = rabbet_ir_output(ir, made, 0);
  if (!rabbet_ir_can_replace(result, moved)) return rabbet_ok();
  rabbet_ir_replace_uses(ir, result, moved);
  rabbet_ir_kill(ir, node);
  *changed = true;
  return rabbet_ok();
}

// ---- Shuffles ---------------------------------------------------------------

// A constant of one element with `rank` axes.
static rabbet_status_t requantize_widen(rabbet_ir_t* ir, int32_t value,
                                        int32_t rank, int32_t* out_value) {
  rabbet_dims_t ones = {.rank = rank};
  *out_value = value;
  if (value < 0) return rabbet_ok();
  for (int32_t i = 0; i < rank; ++i)
    ones.d[i] = 1;
  return rabbet_ir_reshape_constant(ir, rabbet_ir_value(ir, value), &ones,
                                    out_value);
}

// The node's attributes with axis 0: a single scale has no axis, and another
// rank may lack the node's.
static rabbet_status_t requantize_attrs(rabbet_build_t* build,
                                        const rabbet_ir_node_t* node,
                                        rabbet_attr_t** out_attrs) {
  static const int64_t first = 0;
  size_t count = node->op->attr_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&build->arena, node->attrs,
                                           count * sizeof(**out_attrs),
                                           (void**)out_attrs));
  for (size_t i = 0; i < count; ++i)
    if (strcmp((*out_attrs)[i].name, "axis") == 0)
      (*out_attrs)[i].data = &first;
  return rabbet_ok();
}

// A dequantized tensor is quantized before its elements are shuffled, which
// then moves bytes.
static rabbet_status_t requantize_shuffle(rabbet_build_t* build,
                                          rabbet_ir_node_t* node,
                                          bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  enum { MOST_OPERANDS = 3 };
  int32_t operands[MOST_OPERANDS] = {-1, -1, -1};
  rabbet_ir_node_t *made = NULL,
                   *shuffle = rabbet_ir_sole_producer(
                       ir, rabbet_ir_input(ir, node, 0), RABBET_OP_SHUFFLE);
  if (!shuffle || !requantize_can_move(ir, node) ||
      !requantize_maker(ir, rabbet_ir_input(ir, shuffle, 0)))
    return rabbet_ok();
  int32_t rank = rabbet_ir_input(ir, shuffle, 0)->shape.rank;
  assert(node->input_count <= MOST_OPERANDS &&
         shuffle->input_count <= MOST_OPERANDS);
  rabbet_attr_t* attrs = NULL;
  RABBET_RETURN_IF_ERROR(requantize_attrs(build, node, &attrs));
  operands[0] = shuffle->inputs[0];
  for (size_t i = 1; i < node->input_count; ++i)
    RABBET_RETURN_IF_ERROR(
        requantize_widen(ir, node->inputs[i], rank, &operands[i]));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_QUANTIZE, node->name, attrs, node->op->attr_count, operands,
      node->input_count, node, &made));
  operands[0] = made->outputs[0];
  for (size_t i = 1; i < shuffle->input_count; ++i)
    operands[i] = shuffle->inputs[i];
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_SHUFFLE, shuffle->name, shuffle->attrs,
      shuffle->op->attr_count, operands, shuffle->input_count, node, &made));
  return requantize_replace(ir, node, made, changed);
}

// ---- Concatenations ---------------------------------------------------------

static bool requantize_joins(const rabbet_ir_t* ir,
                             const rabbet_ir_node_t* join) {
  if (!join) return false;
  for (size_t i = 0; i < join->input_count; ++i)
    if (!requantize_maker(ir, rabbet_ir_input(ir, join, i))) return false;
  return join->input_count > 1;
}

// Joined tensors that were all dequantized are quantized before they are
// joined, which then moves bytes.
static rabbet_status_t requantize_join(rabbet_build_t* build,
                                       rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t *made = NULL, *join = rabbet_ir_sole_producer(
                                     ir, rabbet_ir_input(ir, node, 0),
                                     RABBET_OP_CONCATENATION);
  int32_t* inputs = NULL;
  if (!requantize_joins(ir, join) || !requantize_can_move(ir, node))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, join->input_count, sizeof(int32_t), (void**)&inputs));
  for (size_t i = 0; i < join->input_count; ++i) {
    const int32_t operands[] = {join->inputs[i], node->inputs[REQUANTIZE_SCALE],
                                node->input_count > REQUANTIZE_ZERO_POINT
                                    ? node->inputs[REQUANTIZE_ZERO_POINT]
                                    : -1};
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
        ir, RABBET_OP_QUANTIZE, node->name, node->attrs, node->op->attr_count,
        operands, node->input_count, node, &made));
    inputs[i] = made->outputs[0];
  }
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_CONCATENATION, join->name, join->attrs,
      join->op->attr_count, inputs, join->input_count, node, &made));
  return requantize_replace(ir, node, made, changed);
}

rabbet_status_t rabbet_rule_requantize(rabbet_build_t* build,
                                       rabbet_ir_node_t* node, bool* changed) {
  assert(rabbet_op_is(node->op, RABBET_OP_QUANTIZE));
  requantize_same(&build->ir, node, changed);
  if (!node->dead)
    RABBET_RETURN_IF_ERROR(requantize_shuffle(build, node, changed));
  return node->dead ? rabbet_ok() : requantize_join(build, node, changed);
}
