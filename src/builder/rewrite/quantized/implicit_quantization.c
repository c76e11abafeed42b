// 8-bit products in a network without quantizations: ranges of tensors, set or
// calibrated by users, become pairs of nodes that quantize and dequantize.
//
// These nodes are no layers of the network, and so may be left out. A value
// between them is then the original one, in a floating type: `propose.c` offers
// both nodes as views, and the two forms are never converted into each other
// (tune.c). So the choice is made by time, tensor by tensor, as all others are.
// If the user asked for a layer in INT8, its nodes are like any others.
//
// Weights get a scale for each output channel. Their dequantized form, for
// kernels of floating types, is the original weights.

#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "core/quantize.h"
#include "ops/enums.h"

typedef struct quantized_value_t {
  rabbet_ir_value_t *bytes, *scale;
  bool is_forced;
} quantized_value_t;

typedef struct implicit_t {
  rabbet_build_t* build;
  size_t value_count;         // before the pass
  quantized_value_t* values;  // of each of them; bytes NULL: none
  size_t products, taken, unknown;
  const char* first_unknown;
} implicit_t;

static bool implicit_wanted(const rabbet_build_t* build) {
  int64_t flags = build->config->options[RABBET_BUILDER_OPTION_FLAGS];
  return (flags >> RABBET_BUILDER_INT8 & 1) != 0 && !build->ir.strongly_typed;
}

static bool implicit_is_product(const rabbet_ir_node_t* node) {
  return rabbet_op_is(node->op, RABBET_OP_CONVOLUTION) ||
         rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY);
}

// ---- Settings of the user --------------------------------------------------

// INT8 as the precision or type of a product quantizes its inputs. For other
// layers it has no effect: they do not compute in 8 bits, and a tensor is
// quantized for the products that read it.
rabbet_status_t rabbet_pass_wishes(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  if (!implicit_wanted(build)) return rabbet_ok();
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (node->precision != RABBET_DTYPE_INT8) continue;
    node->precision = RABBET_DTYPE_NONE;
    node->wants_bytes = implicit_is_product(node);
  }
  for (size_t i = 0; i < ir->values.count; ++i) {
    rabbet_ir_value_t* value = ir->values.data[i];
    if (value->wished == RABBET_DTYPE_INT8 && value->output < 0 &&
        value->input < 0 && rabbet_dtype_is_float(value->dtype))
      value->wished = RABBET_DTYPE_NONE;
  }
  return rabbet_ok();
}

// ---- Weights ----------------------------------------------------------------

// Constants of INT8 and of scales; *out_finite false: the weights are not.
static rabbet_status_t implicit_weights(rabbet_build_t* build,
                                        const rabbet_ir_value_t* weights,
                                        int32_t axis, int32_t out_ids[2],
                                        bool* out_finite) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_dims_t dims = rabbet_ir_dims(ir, weights), scale_dims = dims;
  for (int32_t i = 0; i < dims.rank; ++i)
    scale_dims.d[i] = i == axis ? dims.d[i] : 1;
  assert(axis >= 0 && axis < dims.rank);
  size_t bytes = 0;
  void* data = NULL;
  float* scales = NULL;
  const char* names[2];
  rabbet_ir_value_t *scale = NULL, *integers = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
      RABBET_DTYPE_INT8, RABBET_FORMAT_LINEAR, &dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, bytes + 1, &data));
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&build->arena, &names[0],
                                             "%s (INT8)", weights->name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&build->arena, &names[1],
                                             "%s scales", weights->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_new_floats(build, names[1], &scale_dims, &scale, &scales));
  *out_finite = rabbet_quantize_measure(&dims, axis, weights->constant, scales);
  if (!*out_finite) return rabbet_ok();
  rabbet_quantize_round(&dims, axis, weights->constant, scales, data);
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(ir, names[0], RABBET_DTYPE_INT8,
                                                &dims, data, &integers));
  out_ids[0] = integers->id;
  out_ids[1] = scale->id;
  if (!weights->is_refittable) return rabbet_ok();
  integers->is_refittable = scale->is_refittable = true;
  integers->bytes_of = weights->id;
  integers->bytes_scale = scale->id;
  return rabbet_ok();
}

// A constant matrix with the axis that is summed last, as kernels of 8 bits
// want it.
static rabbet_status_t implicit_turn(rabbet_build_t* build,
                                     rabbet_ir_node_t* node) {
  const rabbet_ir_value_t* matrix = rabbet_ir_input(&build->ir, node, 1);
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, matrix);
  assert(dims.rank >= 2 && matrix->dtype == RABBET_DTYPE_FLOAT);
  int64_t rows = dims.d[dims.rank - 2], columns = dims.d[dims.rank - 1];
  int64_t matrices = 1;
  for (int32_t i = 0; i < dims.rank - 2; ++i)
    matrices *= dims.d[i];
  dims.d[dims.rank - 2] = columns;
  dims.d[dims.rank - 1] = rows;
  rabbet_ir_value_t* turned = NULL;
  float* to = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_new_floats(build, matrix->name, &dims, &turned, &to));
  const float* from = matrix->constant;
  for (int64_t m = 0; m < matrices; ++m, from += rows * columns)
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r)
        *to++ = from[r * columns + c];
  rabbet_ir_set_input(&build->ir, node, 1, turned->id);
  return rabbet_ir_set_int(build, node, "op1", RABBET_MATRIX_TRANSPOSE);
}

// ---- Pairs ------------------------------------------------------------------

// The node before which the first reader of a value may stand.
static const rabbet_ir_node_t* implicit_place(const rabbet_ir_t* ir,
                                              const rabbet_ir_value_t* value) {
  size_t i = 0;
  while (value->producer && ir->nodes.data[i] != value->producer) {
    ++i;
    assert(i < ir->nodes.count);
  }
  return ir->nodes.data[value->producer ? i + 1 : 0];
}

static rabbet_status_t implicit_scale(implicit_t* pass,
                                      const rabbet_ir_value_t* value,
                                      rabbet_ir_value_t** out_scale) {
  rabbet_build_t* build = pass->build;
  rabbet_dims_t dims = {.rank = value->shape.rank};
  float* data = NULL;
  const char* name = NULL;
  for (int32_t i = 0; i < dims.rank; ++i)
    dims.d[i] = 1;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(&build->arena, &name, "%s scale", value->ranged));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_new_floats(build, name, &dims, out_scale, &data));
  assert(value->ranged && value->range >= 0);
  *data = rabbet_quantize_scale(value->range);
  (*out_scale)->scale_of = value->ranged;
  return rabbet_ok();
}

// The node that quantizes the value, made once.
static rabbet_status_t implicit_quantize(implicit_t* pass,
                                         const rabbet_ir_value_t* value,
                                         bool forced) {
  rabbet_ir_t* ir = &pass->build->ir;
  quantized_value_t* made = &pass->values[value->id];
  assert((size_t)value->id < pass->value_count);
  if (!made->bytes) {
    rabbet_ir_node_t* node = NULL;
    const char* name = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&pass->build->arena, &name,
                                               "%s (INT8)", value->name));
    RABBET_RETURN_IF_ERROR(implicit_scale(pass, value, &made->scale));
    const int32_t inputs[] = {value->id, made->scale->id};
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_add_node(ir, RABBET_OP_QUANTIZE, name, NULL, 0, inputs, 2,
                           implicit_place(ir, value), &node));
    node->is_implicit = node->is_optional = true;
    made->bytes = rabbet_ir_output(ir, node, 0);
  }
  assert(rabbet_op_is(made->bytes->producer->op, RABBET_OP_QUANTIZE));
  if (forced) made->bytes->producer->is_optional = false;
  made->is_forced |= forced;
  return rabbet_ok();
}

// Input `input` of the node is dequantized by a node of its own.
static rabbet_status_t implicit_dequantize(implicit_t* pass,
                                           rabbet_ir_node_t* reader,
                                           size_t input,
                                           const int32_t inputs[2], bool forced,
                                           rabbet_ir_value_t** out_value) {
  rabbet_ir_t* ir = &pass->build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, reader, input);
  rabbet_ir_node_t* node = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_DEQUANTIZE,
                                            value->name, NULL, 0, inputs, 2,
                                            reader, &node));
  node->is_implicit = true;
  node->is_optional = !forced;
  rabbet_ir_set_input(ir, reader, input, node->outputs[0]);
  *out_value = rabbet_ir_output(ir, node, 0);
  return rabbet_ok();
}

static rabbet_status_t implicit_read(implicit_t* pass, rabbet_ir_node_t* reader,
                                     size_t input, bool forced) {
  const rabbet_ir_value_t* value =
      rabbet_ir_input(&pass->build->ir, reader, input);
  RABBET_RETURN_IF_ERROR(implicit_quantize(pass, value, forced));
  const quantized_value_t* made = &pass->values[value->id];
  const int32_t inputs[] = {made->bytes->id, made->scale->id};
  rabbet_ir_value_t* read = NULL;
  return implicit_dequantize(pass, reader, input, inputs, forced, &read);
}

// ---- Products ---------------------------------------------------------------

// Why a product stays as it is; NULL: there is no reason.
static const char* implicit_obstacle(const implicit_t* pass,
                                     const rabbet_ir_node_t* node) {
  const rabbet_ir_t* ir = &pass->build->ir;
  const rabbet_ir_value_t* x = rabbet_ir_input(ir, node, 0);
  const rabbet_ir_value_t* w = rabbet_ir_input(ir, node, 1);
  if (node->precision != RABBET_DTYPE_NONE) return "it has another precision";
  if (rabbet_ir_dequantizer(ir, node, 0) || rabbet_ir_dequantizer(ir, node, 1))
    return "the network quantizes its inputs itself";
  if (!w || x->dtype != RABBET_DTYPE_FLOAT || w->dtype != RABBET_DTYPE_FLOAT)
    return "its inputs are not FLOAT";
  if (x->constant) return "its first input is constant";
  if (!rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY))
    return w->constant ? NULL : "its kernel is not constant";
  if (rabbet_ir_int(node, "op0") == RABBET_MATRIX_VECTOR ||
      rabbet_ir_int(node, "op1") == RABBET_MATRIX_VECTOR)
    return "it is a product of a vector";
  // Products of two tensors are those of an attention, which is one kernel.
  if (!w->constant && !node->wants_bytes)
    return "neither factor is constant, and INT8 was not asked for";
  return NULL;
}

// A shuffle's output has the range of its input.
static void implicit_inherit(rabbet_ir_t* ir, rabbet_ir_value_t* value) {
  const rabbet_ir_value_t* origin = value;
  while (origin && !origin->ranged && origin->producer &&
         rabbet_op_is(origin->producer->op, RABBET_OP_SHUFFLE))
    origin = rabbet_ir_input(ir, origin->producer, 0);
  if (!origin || !origin->ranged) return;
  value->range = origin->range;
  value->ranged = origin->ranged;
}

static void implicit_note_unknown(implicit_t* pass,
                                  const rabbet_ir_node_t* node,
                                  const rabbet_ir_value_t* value) {
  rabbet_log(pass->build->logger, RABBET_SEVERITY_VERBOSE,
             "layer '%s' stays in floating point: tensor '%s' has no range",
             node->name, value->name);
  if (pass->unknown++ == 0) pass->first_unknown = value->name;
}

// The range that a factor needs is there.
static rabbet_status_t implicit_check_range(implicit_t* pass,
                                            const rabbet_ir_node_t* node,
                                            size_t input, bool* out_known) {
  rabbet_ir_value_t* value = rabbet_ir_input(&pass->build->ir, node, input);
  implicit_inherit(&pass->build->ir, value);
  *out_known = value->constant || value->ranged;
  if (*out_known) return rabbet_ok();
  implicit_note_unknown(pass, node, value);
  if (!node->wants_bytes) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_FAILED_PRECONDITION,
      "layer '%s' is set to compute in INT8, but the range of its input '%s' "
      "is not known: set it (set_dynamic_range) or calibrate",
      node->name, value->name);
}

static rabbet_status_t implicit_second(implicit_t* pass, rabbet_ir_node_t* node,
                                       bool* out_done) {
  rabbet_build_t* build = pass->build;
  rabbet_ir_t* ir = &build->ir;
  bool is_matrix = rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY);
  const rabbet_ir_value_t* w = rabbet_ir_input(ir, node, 1);
  *out_done = true;
  if (!w->constant) return implicit_read(pass, node, 1, node->wants_bytes);
  if (is_matrix && !w->is_refittable &&
      rabbet_ir_int(node, "op1") == RABBET_MATRIX_NONE) {
    RABBET_RETURN_IF_ERROR(implicit_turn(build, node));
    w = rabbet_ir_input(ir, node, 1);
  }
  int32_t axis = 0;
  if (is_matrix)
    axis = rabbet_ir_int(node, "op1") == RABBET_MATRIX_NONE ? w->shape.rank - 1
                                                            : w->shape.rank - 2;
  int32_t inputs[2] = {-1, -1};
  rabbet_ir_value_t* read = NULL;
  RABBET_RETURN_IF_ERROR(implicit_weights(build, w, axis, inputs, out_done));
  if (!*out_done) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      implicit_dequantize(pass, node, 1, inputs, node->wants_bytes, &read));
  if (node->wants_bytes) return rabbet_ok();
  read->constant = w->constant;
  read->is_refittable = w->is_refittable;
  if (w->is_refittable) read->copy_of = w->id;
  return rabbet_ok();
}

static rabbet_status_t implicit_product(implicit_t* pass,
                                        rabbet_ir_node_t* node) {
  const char* obstacle = implicit_obstacle(pass, node);
  bool known = false, done = false;
  ++pass->products;
  if (obstacle && node->wants_bytes)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s' is set to compute in INT8, but %s",
                         node->name, obstacle);
  if (obstacle) {
    rabbet_log(pass->build->logger, RABBET_SEVERITY_VERBOSE,
               "layer '%s' is not quantized: %s", node->name, obstacle);
    return rabbet_ok();
  }
  for (size_t i = 0; i < 2; ++i) {
    RABBET_RETURN_IF_ERROR(implicit_check_range(pass, node, i, &known));
    if (!known) return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(implicit_second(pass, node, &done));
  if (!done) {
    if (!node->wants_bytes) return rabbet_ok();
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is set to compute in INT8, but its "
                         "weights hold infinities or NaN",
                         node->name);
  }
  ++pass->taken;
  return implicit_read(pass, node, 0, node->wants_bytes);
}

// ---- Tensors added to a convolution's result -------------------------------

// Whether the value is the result of a convolution of 8 bits, a bias included.
static bool implicit_is_result(const rabbet_ir_t* ir,
                               const rabbet_ir_value_t* value) {
  const rabbet_ir_node_t* node = value ? value->producer : NULL;
  return node && rabbet_op_is(node->op, RABBET_OP_CONVOLUTION) &&
         rabbet_ir_is_quantized(ir, node);
}

static bool implicit_adds(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                          size_t input) {
  if (node->dead || !rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE) ||
      rabbet_ir_int(node, "op") != RABBET_ELEMENTWISE_SUM ||
      node->precision != RABBET_DTYPE_NONE)
    return false;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  const rabbet_ir_value_t* other = rabbet_ir_input(ir, node, 1 - input);
  return implicit_is_result(ir, other) &&
         rabbet_ir_shape_equal(&value->shape, &other->shape);
}

// So that a tensor which a product reads as 8 bits is not kept in both forms
// for the sum behind the next.
static rabbet_status_t implicit_sums(implicit_t* pass) {
  rabbet_ir_t* ir = &pass->build->ir;
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    for (size_t k = 0; k < 2; ++k) {
      if (!implicit_adds(ir, node, k)) continue;
      size_t id = (size_t)node->inputs[k];
      if (id >= pass->value_count || !pass->values[id].bytes) continue;
      RABBET_RETURN_IF_ERROR(
          implicit_read(pass, node, k, pass->values[id].is_forced));
      break;
    }
  }
  return rabbet_ok();
}

// ---- The pass ---------------------------------------------------------------

static void implicit_tell(const implicit_t* pass) {
  rabbet_logger_t logger = pass->build->logger;
  rabbet_log(logger, RABBET_SEVERITY_INFO,
             "INT8: %zu of %zu matrix products and convolutions can be "
             "computed in 8 bits",
             pass->taken, pass->products);
  if (pass->unknown > 0)
    rabbet_log(logger, RABBET_SEVERITY_WARNING,
               "INT8: %zu layer%s stay%s in floating point, since ranges are "
               "not known; the first is that of tensor '%s'",
               pass->unknown, rabbet_plural(pass->unknown),
               pass->unknown == 1 ? "s" : "", pass->first_unknown);
}

static bool implicit_any_range(const rabbet_ir_t* ir) {
  for (size_t i = 0; i < ir->values.count; ++i)
    if (ir->values.data[i]->ranged) return true;
  for (size_t i = 0; i < ir->nodes.count; ++i)
    if (ir->nodes.data[i]->wants_bytes) return true;
  return false;
}

rabbet_status_t rabbet_pass_implicit(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  implicit_t pass = {.build = build, .value_count = ir->values.count};
  rabbet_ir_node_t** nodes = NULL;
  size_t count = ir->nodes.count;
  if (!implicit_wanted(build) || !implicit_any_range(ir)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&build->arena, pass.value_count,
                                  sizeof(*pass.values), (void**)&pass.values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      &build->arena, ir->nodes.data, count * sizeof(*nodes), (void**)&nodes));
  for (size_t i = 0; i < count; ++i)
    if (implicit_is_product(nodes[i]))
      RABBET_RETURN_IF_ERROR(implicit_product(&pass, nodes[i]));
  RABBET_RETURN_IF_ERROR(implicit_sums(&pass));
  implicit_tell(&pass);
  RABBET_RETURN_IF_ERROR(rabbet_ir_sweep(ir));
  return rabbet_fold_factors(build);
}

// ---- For the tuner ----------------------------------------------------------

bool rabbet_ir_is_quantize_result(const rabbet_ir_value_t* value) {
  return value->producer &&
         rabbet_op_is(value->producer->op, RABBET_OP_QUANTIZE);
}
