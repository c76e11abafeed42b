// Removes y * scale and y + offset after a convolution, deconvolution or matrix
// product with constant weights: weights and bias take the numbers.

#include <assert.h>

#include "builder/ir/passes.h"
#include "ops/enums.h"

// A constant number for each channel, or one for all.
typedef struct affine_t {
  const float* numbers;
  int64_t count;  // channels, or 1
} affine_t;

// The elementwise node as a step on input `*out_data`: `numbers` vary along
// `axis` alone.
static bool affine_match(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                         size_t constant, int32_t axis, int64_t channels,
                         affine_t* out) {
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, constant);
  if (!value->constant || value->dtype != RABBET_DTYPE_FLOAT) return false;
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  for (int32_t i = 0; i < dims.rank; ++i)
    if (dims.d[i] != 1 && (i != axis || dims.d[i] != channels)) return false;
  out->numbers = value->constant;
  out->count = axis < dims.rank && dims.d[axis] == channels ? channels : 1;
  return true;
}

static float affine_number(const affine_t* affine, int64_t channel) {
  assert(affine->count == 1 || (channel >= 0 && channel < affine->count));
  return affine->numbers[affine->count == 1 ? 0 : channel];
}

static void affine_scale_row(const float* from, int64_t count, float s,
                             bool divide, float* to) {
  if (divide)
    for (int64_t i = 0; i < count; ++i)
      to[i] = from[i] / s;
  else
    for (int64_t i = 0; i < count; ++i)
      to[i] = from[i] * s;
}

static rabbet_status_t affine_scale(rabbet_build_t* build,
                                    rabbet_ir_node_t* producer, size_t input,
                                    int32_t axis, const affine_t* scale,
                                    bool divide) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* old = rabbet_ir_input(ir, producer, input);
  rabbet_dims_t dims = rabbet_ir_dims(ir, old);
  assert(axis >= 0 && axis < dims.rank);
  int64_t inner = 1, count = 0;  // elements after the axis, and all
  for (int32_t i = axis + 1; i < dims.rank; ++i)
    inner *= dims.d[i];
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  rabbet_ir_value_t* scaled = NULL;
  float* data = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_new_floats(build, old->name, &dims, &scaled, &data));
  const float* from = old->constant;
  for (int64_t i = 0, channel = 0; i < count; i += inner) {
    affine_scale_row(from + i, inner, affine_number(scale, channel), divide,
                     data + i);
    channel = channel + 1 < dims.d[axis] ? channel + 1 : 0;
  }
  rabbet_ir_set_input(ir, producer, input, scaled->id);
  return rabbet_ok();
}

static bool affine_is_float_constant(const rabbet_ir_value_t* value) {
  return value && value->constant && value->dtype == RABBET_DTYPE_FLOAT;
}

// The range of the product's result does not hold for the new one.
static void affine_take_range(rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                              const rabbet_ir_node_t* producer) {
  const rabbet_ir_value_t* result = rabbet_ir_output(ir, node, 0);
  rabbet_ir_value_t* value = rabbet_ir_output(ir, producer, 0);
  value->range = result->range;
  value->ranged = result->ranged;
}

// ---- Convolutions -----------------------------------------------------------

static rabbet_status_t affine_offset(rabbet_build_t* build,
                                     rabbet_ir_node_t* conv, int64_t channels,
                                     const affine_t* offset, bool subtract) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* old = rabbet_ir_input(ir, conv, 2);
  const float* from = old ? old->constant : NULL;
  rabbet_dims_t dims = {.rank = 1, .d = {channels}};
  rabbet_ir_value_t* bias = NULL;
  float* data = NULL;
  const char* name = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(&build->arena, &name, "%s.bias", conv->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_new_floats(build, name, &dims, &bias, &data));
  for (int64_t i = 0; i < channels; ++i) {
    float number = affine_number(offset, i);
    data[i] = (from ? from[i] : 0) + (subtract ? -number : number);
  }
  if (conv->input_count <= 2) {
    int32_t* inputs = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, 3, sizeof(int32_t), (void**)&inputs));
    inputs[0] = conv->inputs[0];
    inputs[1] = conv->inputs[1];
    inputs[2] = -1;
    conv->inputs = inputs;
    conv->input_count = 3;
  }
  rabbet_ir_set_input(ir, conv, 2, bias->id);
  return rabbet_ok();
}

static rabbet_status_t affine_convolution(rabbet_build_t* build,
                                          rabbet_ir_node_t* node,
                                          rabbet_ir_node_t* conv,
                                          size_t constant, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* weights = rabbet_ir_input(ir, conv, 1);
  const rabbet_ir_value_t* bias = rabbet_ir_input(ir, conv, 2);
  if (!affine_is_float_constant(weights) ||
      (bias && !affine_is_float_constant(bias)))
    return rabbet_ok();
  // A deconvolution's weights are (channels, maps / groups, ...).
  bool transposed = rabbet_op_is(conv->op, RABBET_OP_DECONVOLUTION);
  if (transposed && rabbet_ir_int(conv, "num_groups") != 1) return rabbet_ok();
  int32_t axis = transposed ? 1 : 0;
  int64_t channels = rabbet_ir_dims(ir, weights).d[axis];
  int64_t op = rabbet_ir_int(node, "op");
  affine_t affine;
  if (!affine_match(ir, node, constant, 1, channels, &affine))
    return rabbet_ok();
  if (op == RABBET_ELEMENTWISE_SUM || op == RABBET_ELEMENTWISE_SUB) {
    RABBET_RETURN_IF_ERROR(affine_offset(build, conv, channels, &affine,
                                         op == RABBET_ELEMENTWISE_SUB));
  } else {
    RABBET_RETURN_IF_ERROR(affine_scale(build, conv, 1, axis, &affine,
                                        op == RABBET_ELEMENTWISE_DIV));
    if (bias)
      RABBET_RETURN_IF_ERROR(affine_scale(build, conv, 2, 0, &affine,
                                          op == RABBET_ELEMENTWISE_DIV));
  }
  affine_take_range(ir, node, conv);
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, conv, 0));
  assert(node->dead);  // or the weights would be scaled, and the result again
  return rabbet_ok();
}

// ---- Matrix products --------------------------------------------------------

static rabbet_status_t affine_matrix(rabbet_build_t* build,
                                     rabbet_ir_node_t* node,
                                     rabbet_ir_node_t* product, size_t constant,
                                     bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* weights = rabbet_ir_input(ir, product, 1);
  int64_t op = rabbet_ir_int(node, "op"), op1 = rabbet_ir_int(product, "op1");
  if (!affine_is_float_constant(weights) || op == RABBET_ELEMENTWISE_SUM ||
      op == RABBET_ELEMENTWISE_SUB ||
      (op1 != RABBET_MATRIX_NONE && op1 != RABBET_MATRIX_TRANSPOSE) ||
      rabbet_ir_int(product, "op0") > RABBET_MATRIX_TRANSPOSE)
    return rabbet_ok();
  rabbet_dims_t dims = rabbet_ir_dims(ir, weights);
  int32_t axis = op1 == RABBET_MATRIX_NONE ? dims.rank - 1 : dims.rank - 2;
  int32_t rank = rabbet_ir_output(ir, product, 0)->shape.rank;
  affine_t affine;
  if (!affine_match(ir, node, constant, rank - 1, dims.d[axis], &affine))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(affine_scale(build, product, 1, axis, &affine,
                                      op == RABBET_ELEMENTWISE_DIV));
  affine_take_range(ir, node, product);
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, product, 0));
  assert(node->dead);
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_affine(rabbet_build_t* build,
                                   rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int64_t op = rabbet_ir_int(node, "op");
  bool commutes = op == RABBET_ELEMENTWISE_SUM || op == RABBET_ELEMENTWISE_PROD;
  if (!commutes && op != RABBET_ELEMENTWISE_SUB && op != RABBET_ELEMENTWISE_DIV)
    return rabbet_ok();
  for (size_t data = 0; data < (commutes ? 2 : 1) && !node->dead; ++data) {
    rabbet_ir_value_t* value = rabbet_ir_input(ir, node, data);
    // Asked before any change.
    if (!rabbet_ir_can_bypass(ir, node, value)) continue;
    rabbet_ir_node_t* conv =
        rabbet_ir_sole_producer(ir, value, RABBET_OP_CONVOLUTION);
    if (!conv)
      conv = rabbet_ir_sole_producer(ir, value, RABBET_OP_DECONVOLUTION);
    rabbet_ir_node_t* product =
        rabbet_ir_sole_producer(ir, value, RABBET_OP_MATRIX_MULTIPLY);
    if (conv)
      RABBET_RETURN_IF_ERROR(
          affine_convolution(build, node, conv, 1 - data, changed));
    else if (product)
      RABBET_RETURN_IF_ERROR(
          affine_matrix(build, node, product, 1 - data, changed));
  }
  return rabbet_ok();
}
