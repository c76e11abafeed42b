// Quantized products: the nodes that make their factors are moved next to them,
// so that a kernel can take both.
//
// A constant factor gets two forms: its 8 bits, which the dequantizing node
// reads, and the numbers themselves, for kernels without 8 bits. This value has
// a producer and is a constant; the producer never runs alone.

#include <assert.h>

#include "builder/ir/passes.h"
#include "ops/enums.h"

enum { PRODUCT_FACTORS = 2 };

static bool quantize_is_product(const rabbet_ir_node_t* node) {
  return rabbet_op_is(node->op, RABBET_OP_CONVOLUTION) ||
         rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY);
}

rabbet_ir_node_t* rabbet_ir_dequantizer(const rabbet_ir_t* ir,
                                        const rabbet_ir_node_t* node,
                                        size_t input) {
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  rabbet_ir_node_t* maker = value ? value->producer : NULL;
  if (!maker || maker->dead || maker->precision != RABBET_DTYPE_NONE ||
      rabbet_ir_has_wishes(ir, maker) ||
      !rabbet_op_is(maker->op, RABBET_OP_DEQUANTIZE) ||
      rabbet_dtype_bits(rabbet_ir_input(ir, maker, 0)->dtype) != 8)
    return NULL;
  return maker;
}

bool rabbet_ir_is_quantized(const rabbet_ir_t* ir,
                            const rabbet_ir_node_t* node) {
  return quantize_is_product(node) && node->input_count >= PRODUCT_FACTORS &&
         rabbet_ir_dequantizer(ir, node, 0) &&
         rabbet_ir_dequantizer(ir, node, 1);
}

bool rabbet_ir_is_factor(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  if (!rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE) ||
      rabbet_dtype_bits(rabbet_ir_input(ir, node, 0)->dtype) != 8)
    return false;
  int32_t output = node->outputs[0];
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    const rabbet_ir_node_t* reader = ir->nodes.data[i];
    if (reader->dead) continue;
    for (size_t k = 0; k < reader->input_count; ++k) {
      // The product may take a transpose as an attribute later.
      if (reader->inputs[k] == output &&
          (rabbet_op_is(reader->op, RABBET_OP_SHUFFLE) ||
           (k < PRODUCT_FACTORS && rabbet_ir_is_quantized(ir, reader))))
        return true;
    }
  }
  return false;
}

// ---- A node for each reader -------------------------------------------------

// Lets input `input` of the reader read a new copy of the node.
static rabbet_status_t quantize_copy(rabbet_build_t* build,
                                     const rabbet_ir_node_t* node,
                                     rabbet_ir_node_t* reader, size_t input) {
  rabbet_ir_node_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      &build->ir, RABBET_OP_DEQUANTIZE, node->name, node->attrs,
      node->op->attr_count, node->inputs, node->input_count, reader, &copy));
  rabbet_ir_set_input(&build->ir, reader, input, copy->outputs[0]);
  return rabbet_ok();
}

static bool quantize_is_pointwise(const rabbet_ir_node_t* node) {
  return (node->op->flags & RABBET_OP_POINTWISE) != 0 ||
         quantize_is_product(node);
}

// Gives each reader that may share a kernel with its input a copy of the node;
// the last reader keeps the node itself.
static rabbet_status_t quantize_spread(rabbet_build_t* build,
                                       const rabbet_ir_node_t* node) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, node, 0);
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* reader = ir->nodes.data[i];
    if (reader->dead || !quantize_is_pointwise(reader)) continue;
    for (size_t k = 0; k < reader->input_count; ++k)
      if (value->uses > 1 && reader->inputs[k] == value->id) {
        RABBET_RETURN_IF_ERROR(quantize_copy(build, node, reader, k));
        ++i;  // the copy lies before the reader
      }
  }
  return rabbet_ok();
}

// ---- Constant matrices with the sums' axis last -----------------------------

// Libraries' kernels for 8 bits need the elements of a sum to be contiguous.
typedef struct turn_t {
  rabbet_ir_node_t* maker;
  const rabbet_ir_value_t *matrix, *scale;
  rabbet_dims_t dims, scale_dims;
} turn_t;

static void quantize_swap(rabbet_dims_t* dims) {
  assert(dims->rank >= 2);
  int64_t last = dims->d[dims->rank - 1];
  dims->d[dims->rank - 1] = dims->d[dims->rank - 2];
  dims->d[dims->rank - 2] = last;
}

static bool quantize_can_turn(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* node, turn_t* out) {
  if (!rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY) ||
      !rabbet_ir_is_quantized(ir, node) ||
      rabbet_ir_int(node, "op1") != RABBET_MATRIX_NONE)
    return false;
  out->maker = rabbet_ir_dequantizer(ir, node, 1);
  out->matrix = rabbet_ir_input(ir, out->maker, 0);
  out->scale = rabbet_ir_input(ir, out->maker, 1);
  if (rabbet_ir_output(ir, out->maker, 0)->uses != 1 ||
      !out->matrix->constant || !out->scale->constant ||
      rabbet_ir_input(ir, out->maker, 2))
    return false;
  out->dims = rabbet_ir_dims(ir, out->matrix);
  out->scale_dims = rabbet_ir_dims(ir, out->scale);
  int32_t rank = out->dims.rank;
  // Swapping leaves the scales where they are unless both axes have several.
  return rank >= 2 && out->scale_dims.rank == rank &&
         (out->scale_dims.d[rank - 1] == 1 || out->scale_dims.d[rank - 2] == 1);
}

static void quantize_turn_bytes(const rabbet_dims_t* dims, const uint8_t* from,
                                uint8_t* to) {
  int64_t rows = dims->d[dims->rank - 2], columns = dims->d[dims->rank - 1];
  int64_t matrices = 1;
  for (int32_t i = 0; i < dims->rank - 2; ++i)
    matrices *= dims->d[i];
  for (int64_t m = 0; m < matrices; ++m, from += rows * columns)
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r)
        *to++ = from[r * columns + c];
}

static rabbet_status_t quantize_turn(rabbet_build_t* build,
                                     rabbet_ir_node_t* node, turn_t* turn) {
  rabbet_ir_t* ir = &build->ir;
  assert(rabbet_dtype_bits(turn->matrix->dtype) == 8);
  size_t bytes = 0;
  void* data = NULL;
  rabbet_ir_value_t *matrix = NULL, *scale = NULL;
  rabbet_ir_node_t* maker = NULL;
  rabbet_dtype_t dtype = turn->matrix->dtype;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(dtype, RABBET_FORMAT_LINEAR, &turn->dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, bytes + 1, &data));
  quantize_turn_bytes(&turn->dims, turn->matrix->constant, data);
  quantize_swap(&turn->dims);
  quantize_swap(&turn->scale_dims);
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(ir, turn->matrix->name, dtype,
                                                &turn->dims, data, &matrix));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_constant(ir, turn->scale->name, turn->scale->dtype,
                             &turn->scale_dims, turn->scale->constant, &scale));
  const int32_t inputs[] = {matrix->id, scale->id};
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_DEQUANTIZE, turn->maker->name, turn->maker->attrs,
      turn->maker->op->attr_count, inputs, 2, node, &maker));
  rabbet_ir_set_input(ir, node, 1, maker->outputs[0]);
  return rabbet_ir_set_int(build, node, "op1", RABBET_MATRIX_TRANSPOSE);
}

static rabbet_status_t quantize_turn_all(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  turn_t turn;
  for (size_t i = 0; i < ir->nodes.count; ++i)
    if (!ir->nodes.data[i]->dead &&
        quantize_can_turn(ir, ir->nodes.data[i], &turn))
      RABBET_RETURN_IF_ERROR(quantize_turn(build, ir->nodes.data[i++], &turn));
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_quantize(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (node->dead || !rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE) ||
        rabbet_ir_has_wishes(ir, node))
      continue;
    if (rabbet_ir_output(ir, node, 0)->uses > 1 &&
        rabbet_ir_output(ir, node, 0)->output < 0)
      RABBET_RETURN_IF_ERROR(quantize_spread(build, node));
  }
  RABBET_RETURN_IF_ERROR(quantize_turn_all(build));
  RABBET_RETURN_IF_ERROR(rabbet_ir_sweep(ir));
  return rabbet_fold_factors(build);
}
