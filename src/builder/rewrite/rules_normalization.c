// Layer normalization written out, as exporters do:
//   mean = AVG(x), d = x - mean, variance = AVG(d ^ 2 or d * d)
//   y = d / SQRT(variance + epsilon), also as a product with the reciprocal
//   y * scale + bias
// becomes one normalization. Without the mean, d is x: RMS normalization.

#include <assert.h>

#include "builder/ir/passes.h"
#include "core/attr_set.h"
#include "ops/enums.h"

static rabbet_ir_node_t* norm_producer(const rabbet_ir_t* ir,
                                       const rabbet_ir_node_t* node,
                                       size_t input, rabbet_op_id_t op,
                                       int64_t kind) {
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  rabbet_ir_node_t* maker = value ? value->producer : NULL;
  if (!maker || maker->dead || !rabbet_op_is(maker->op, op) ||
      rabbet_ir_int(maker, "op") != kind || rabbet_ir_has_wishes(ir, maker))
    return NULL;
  return maker;
}

static bool norm_is_mean(const rabbet_ir_node_t* node, int64_t* out_axes) {
  *out_axes = rabbet_ir_int(node, "axes");
  return rabbet_ir_int(node, "keep_dims") != 0;
}

// The node that squares `value`, or NULL.
static bool norm_squares(const rabbet_ir_t* ir, const rabbet_ir_value_t* square,
                         int32_t value) {
  const rabbet_ir_node_t* node = square ? square->producer : NULL;
  if (!node || node->dead || !rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE) ||
      rabbet_ir_has_wishes(ir, node) || node->inputs[0] != value)
    return false;
  int64_t op = rabbet_ir_int(node, "op");
  return (op == RABBET_ELEMENTWISE_PROD && node->inputs[1] == value) ||
         (op == RABBET_ELEMENTWISE_POW &&
          rabbet_ir_is_number(ir, rabbet_ir_input(ir, node, 1), 2));
}

typedef struct norm_t {
  int32_t x;
  int64_t axes;
  int64_t is_rms;
  double epsilon;
} norm_t;

// The number that each element of a floating constant is.
static bool norm_number(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                        double* out_number) {
  if (!value || !value->constant || !rabbet_dtype_is_float(value->dtype) ||
      rabbet_ir_count(ir, value) == 0)
    return false;
  *out_number = rabbet_load_double(value->dtype, value->constant, 0);
  return rabbet_ir_is_number(ir, value, *out_number);
}

// Sets x of a layer normalization, whose difference from its mean `d` is;
// false if it is no difference, or from the mean over other axes.
static bool norm_match_mean(const rabbet_ir_t* ir, const rabbet_ir_value_t* d,
                            norm_t* out) {
  const rabbet_ir_node_t* difference = d->producer;
  if (!difference || !rabbet_op_is(difference->op, RABBET_OP_ELEMENTWISE) ||
      rabbet_ir_int(difference, "op") != RABBET_ELEMENTWISE_SUB ||
      rabbet_ir_has_wishes(ir, difference))
    return false;
  const rabbet_ir_node_t* mean =
      norm_producer(ir, difference, 1, RABBET_OP_REDUCE, RABBET_REDUCE_AVG);
  int64_t axes = 0;
  out->x = difference->inputs[0];
  return mean && norm_is_mean(mean, &axes) && axes == out->axes &&
         mean->inputs[0] == out->x;
}

// `root` is a function of AVG(d^2) + epsilon.
static bool norm_match_root(const rabbet_ir_t* ir, const rabbet_ir_node_t* root,
                            const rabbet_ir_value_t* d, norm_t* out) {
  const rabbet_ir_node_t* sum =
      norm_producer(ir, root, 0, RABBET_OP_ELEMENTWISE, RABBET_ELEMENTWISE_SUM);
  if (!sum) return false;
  size_t constant = rabbet_ir_input(ir, sum, 0)->constant ? 0 : 1;
  if (!norm_number(ir, rabbet_ir_input(ir, sum, constant), &out->epsilon))
    return false;
  const rabbet_ir_node_t* variance =
      norm_producer(ir, sum, 1 - constant, RABBET_OP_REDUCE, RABBET_REDUCE_AVG);
  if (!variance || !norm_is_mean(variance, &out->axes) ||
      !norm_squares(ir, rabbet_ir_input(ir, variance, 0), d->id))
    return false;
  out->is_rms = !norm_match_mean(ir, d, out);
  if (out->is_rms) out->x = d->id;
  return true;
}

// The node that computes SQRT(v) or v ^ -0.5 for the factor of number `input`:
// RECIP(SQRT(v)), 1 / SQRT(v), or the power; NULL: it is none of these.
static const rabbet_ir_node_t* norm_inverse_root(const rabbet_ir_t* ir,
                                                 const rabbet_ir_node_t* node,
                                                 size_t input) {
  const rabbet_ir_node_t* power = norm_producer(
      ir, node, input, RABBET_OP_ELEMENTWISE, RABBET_ELEMENTWISE_POW);
  if (power)
    return rabbet_ir_is_number(ir, rabbet_ir_input(ir, power, 1), -0.5) ? power
                                                                        : NULL;
  const rabbet_ir_node_t* inverse =
      norm_producer(ir, node, input, RABBET_OP_UNARY, RABBET_UNARY_RECIP);
  if (inverse)
    return norm_producer(ir, inverse, 0, RABBET_OP_UNARY, RABBET_UNARY_SQRT);
  inverse = norm_producer(ir, node, input, RABBET_OP_ELEMENTWISE,
                          RABBET_ELEMENTWISE_DIV);
  if (!inverse || !rabbet_ir_is_number(ir, rabbet_ir_input(ir, inverse, 0), 1))
    return NULL;
  return norm_producer(ir, inverse, 1, RABBET_OP_UNARY, RABBET_UNARY_SQRT);
}

// d / root, or d * (1 / root) in either order.
static bool norm_match(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                       norm_t* out) {
  int64_t op = rabbet_ir_int(node, "op");
  if (op == RABBET_ELEMENTWISE_DIV) {
    const rabbet_ir_node_t* root =
        norm_producer(ir, node, 1, RABBET_OP_UNARY, RABBET_UNARY_SQRT);
    return root && norm_match_root(ir, root, rabbet_ir_input(ir, node, 0), out);
  }
  if (op != RABBET_ELEMENTWISE_PROD) return false;
  for (size_t i = 0; i < 2; ++i) {
    const rabbet_ir_node_t* root = norm_inverse_root(ir, node, 1 - i);
    if (root && norm_match_root(ir, root, rabbet_ir_input(ir, node, i), out))
      return true;
  }
  return false;
}

// ---- Scale and bias ---------------------------------------------------------

// A constant that varies along normalized axes alone.
static bool norm_is_parameter(const rabbet_ir_t* ir,
                              const rabbet_ir_value_t* value,
                              const rabbet_ir_value_t* x, int64_t axes) {
  if (!value || !value->constant ||
      (value->dtype != x->dtype && value->dtype != RABBET_DTYPE_FLOAT))
    return false;
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  rabbet_dims_t full = rabbet_ir_dims(ir, x);
  if (dims.rank != full.rank) return false;
  for (int32_t i = 0; i < dims.rank; ++i)
    if (dims.d[i] != 1 && ((axes >> i & 1) == 0 || dims.d[i] != full.d[i]))
      return false;
  return true;
}

// The parameter in an input of a normalization: 1 scale, 2 bias.
static rabbet_status_t norm_absorb(rabbet_build_t* build,
                                   rabbet_ir_node_t* node,
                                   rabbet_ir_node_t* norm, size_t parameter,
                                   size_t input, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* made = rabbet_ir_output(ir, norm, 0);
  if (!rabbet_ir_can_bypass(ir, node, made)) return rabbet_ok();
  assert(parameter == 1 || parameter == 2);
  assert(!rabbet_ir_input(ir, norm, parameter) && norm->input_count <= 3);
  int32_t* inputs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, 3, sizeof(int32_t), (void**)&inputs));
  for (size_t i = 0; i < 3; ++i)
    inputs[i] = i < norm->input_count ? norm->inputs[i] : -1;
  norm->inputs = inputs;
  if (norm->input_count < parameter + 1) norm->input_count = parameter + 1;
  rabbet_ir_set_input(ir, norm, parameter, node->inputs[input]);
  *changed |= rabbet_ir_bypass(ir, node, made);
  assert(node->dead);  // or the parameter would be applied twice
  return rabbet_ok();
}

// The axes along which scale and bias may vary: those normalized, or, with
// groups of channels, the channels.
static int64_t norm_parameter_axes(const rabbet_ir_node_t* norm) {
  if (rabbet_ir_int(norm, "num_groups") == 1)
    return rabbet_ir_int(norm, "axes");
  return rabbet_ir_int(norm, "is_v2") ? 2 : 0;
}

static rabbet_status_t norm_parameters(rabbet_build_t* build,
                                       rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int64_t op = rabbet_ir_int(node, "op");
  if (op != RABBET_ELEMENTWISE_PROD && op != RABBET_ELEMENTWISE_SUM)
    return rabbet_ok();
  for (size_t i = 0; i < 2 && !node->dead; ++i) {
    rabbet_ir_node_t* norm = rabbet_ir_sole_producer(
        ir, rabbet_ir_input(ir, node, i), RABBET_OP_NORMALIZATION);
    if (!norm || !norm_is_parameter(ir, rabbet_ir_input(ir, node, 1 - i),
                                    rabbet_ir_input(ir, norm, 0),
                                    norm_parameter_axes(norm)))
      continue;
    // A scale must come before a bias.
    bool is_scale = op == RABBET_ELEMENTWISE_PROD;
    bool is_free = is_scale ? !rabbet_ir_input(ir, norm, 1) &&
                                  !rabbet_ir_input(ir, norm, 2)
                            : !rabbet_ir_input(ir, norm, 2);
    if (is_free)
      RABBET_RETURN_IF_ERROR(
          norm_absorb(build, node, norm, is_scale ? 1 : 2, 1 - i, changed));
  }
  return rabbet_ok();
}

static rabbet_status_t norm_make(rabbet_build_t* build, rabbet_ir_node_t* node,
                                 const norm_t* found, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_attr_t attrs[] = {
      {.name = "axes",
       .type = RABBET_ATTR_INT,
       .data = &found->axes,
       .count = 1},
      {.name = "epsilon",
       .type = RABBET_ATTR_FLOAT,
       .data = &found->epsilon,
       .count = 1},
      {.name = "is_rms",
       .type = RABBET_ATTR_BOOL,
       .data = &found->is_rms,
       .count = 1},
  };
  rabbet_ir_node_t* norm = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_NORMALIZATION,
                                            node->name, attrs, 3, &found->x, 1,
                                            node, &norm));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, norm, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, norm);
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_normalization(rabbet_build_t* build,
                                          rabbet_ir_node_t* node,
                                          bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  norm_t found;
  if (!rabbet_ir_is_real(rabbet_ir_output(ir, node, 0)->dtype) ||
      node->precision != RABBET_DTYPE_NONE)
    return rabbet_ok();
  if (norm_match(ir, node, &found))
    return norm_make(build, node, &found, changed);
  return norm_parameters(build, node, changed);
}

// ---- Transposes -------------------------------------------------------------

// `node` takes back the transpose before a normalization, whose axes can be
// those of the input instead: channels of an image, where exporters have layer
// normalization of the last axis alone.
rabbet_status_t rabbet_rule_transposed_normalization(rabbet_build_t* build,
                                                     rabbet_ir_node_t* node,
                                                     bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int64_t back[RABBET_MAX_RANK], there[RABBET_MAX_RANK];
  int32_t rank = rabbet_ir_output(ir, node, 0)->shape.rank, inputs[3];
  rabbet_ir_node_t *norm =
                       rabbet_ir_sole_producer(ir, rabbet_ir_input(ir, node, 0),
                                               RABBET_OP_NORMALIZATION),
                   *turn, *made = NULL;
  if (!norm || rabbet_ir_has_wishes(ir, node) ||
      rabbet_ir_int(norm, "num_groups") != 1 ||
      !rabbet_ir_permutation(ir, node, back))
    return rabbet_ok();
  turn = rabbet_ir_input(ir, norm, 0)->producer;
  if (!turn || turn->dead || !rabbet_op_is(turn->op, RABBET_OP_SHUFFLE) ||
      rabbet_ir_has_wishes(ir, turn) || !rabbet_ir_permutation(ir, turn, there))
    return rabbet_ok();
  int64_t axes = rabbet_ir_int(norm, "axes"), turned = 0;
  for (int32_t i = 0; i < rank; ++i) {
    if (there[back[i]] != i) return rabbet_ok();
    if (axes >> i & 1) turned |= INT64_C(1) << there[i];
  }
  bool views = false;
  inputs[0] = turn->inputs[0];
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_permute_operands(build, norm, back, rank, inputs, &views));
  if (!views) return rabbet_ok();  // the unread views are swept
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_node(ir, RABBET_OP_NORMALIZATION, norm->name, norm->attrs,
                         norm->op->attr_count, inputs, 3, node, &made));
  RABBET_RETURN_IF_ERROR(rabbet_ir_set_int(build, made, "axes", turned));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, made);
  return rabbet_ok();
}
