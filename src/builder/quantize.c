// Quantized products: what makes their factors is brought next to them, so that
// a kernel can take both.
//
// A constant factor gets two forms: its 8 bits, which the node that dequantizes
// it reads, and the numbers themselves, for kernels that know no 8 bits. Such a
// value has a producer and is a constant; the producer alone is never run.

#include "builder/passes.h"

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
      // A transpose may yet become part of the product.
      if (reader->inputs[k] == output &&
          (rabbet_op_is(reader->op, RABBET_OP_SHUFFLE) ||
           (k < PRODUCT_FACTORS && rabbet_ir_is_quantized(ir, reader))))
        return true;
    }
  }
  return false;
}

// ---- A node for each reader -------------------------------------------------

// Input `input` of the reader is made by a copy of the node.
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

// All readers but one that may share a kernel with what they read.
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
  RABBET_RETURN_IF_ERROR(rabbet_ir_sweep(ir));
  return rabbet_fold_factors(build);
}
