// Quantized products: the nodes that make their factors are moved next to them,
// so that a kernel can take both.
//
// A constant factor gets two forms: its 8 bits, which the dequantizing node
// reads, and the numbers themselves, for kernels without 8 bits. This value has
// a producer and is a constant; the producer never runs alone.

#include <assert.h>
#include <string.h>

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

bool rabbet_ir_is_quantized_maximum(const rabbet_ir_t* ir,
                                    const rabbet_ir_node_t* node) {
  return rabbet_op_is(node->op, RABBET_OP_POOLING) &&
         rabbet_ir_int(node, "type") == RABBET_POOLING_MAX &&
         rabbet_ir_dequantizer(ir, node, 0);
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

static bool quantize_is_pointwise(const rabbet_ir_t* ir,
                                  const rabbet_ir_node_t* node) {
  return (node->op->flags & RABBET_OP_POINTWISE) != 0 ||
         quantize_is_product(node) || rabbet_ir_is_quantized_maximum(ir, node);
}

// Gives each reader that may share a kernel with its input a copy of the node;
// the last reader keeps the node itself.
static rabbet_status_t quantize_spread(rabbet_build_t* build,
                                       const rabbet_ir_node_t* node) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, node, 0);
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* reader = ir->nodes.data[i];
    if (reader->dead || !quantize_is_pointwise(ir, reader)) continue;
    for (size_t k = 0; k < reader->input_count; ++k)
      if (value->uses > 1 && reader->inputs[k] == value->id) {
        RABBET_RETURN_IF_ERROR(quantize_copy(build, node, reader, k));
        ++i;  // the copy lies before the reader
      }
  }
  return rabbet_ok();
}

// ---- Constant matrices with the sums' axis last -----------------------------

enum { QUANTIZE_OPERANDS = 3 };

// Kernels for 8 bits, and those that dequantize weights, need the elements of a
// sum to be contiguous. The node that makes the second factor of such a
// product, if its operands can be transposed; else NULL.
static rabbet_ir_node_t* quantize_to_turn(const rabbet_ir_t* ir,
                                          const rabbet_ir_node_t* node) {
  if (!rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY) ||
      rabbet_ir_int(node, "op1") != RABBET_MATRIX_NONE)
    return NULL;
  rabbet_ir_node_t* maker = rabbet_ir_is_quantized(ir, node)
                                ? rabbet_ir_dequantizer(ir, node, 1)
                                : rabbet_ir_packed_factor(ir, node);
  if (!maker || rabbet_ir_output(ir, maker, 0)->uses != 1) return NULL;
  int32_t rank = rabbet_ir_input(ir, maker, 0)->shape.rank;
  for (size_t i = 0; i < maker->input_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, maker, i);
    if (value && (!value->constant || value->shape.rank != rank)) return NULL;
  }
  return rank >= 2 ? maker : NULL;
}

// The node's attributes with the last two extents of blocks swapped.
static rabbet_status_t quantize_turned_attrs(rabbet_build_t* build,
                                             const rabbet_ir_node_t* node,
                                             rabbet_attr_t** out_attrs) {
  size_t all = node->op->attr_count, count = 0;
  const int64_t* given = rabbet_ir_ints(node, "block_shape", &count);
  int64_t turned[RABBET_MAX_RANK];
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&build->arena, node->attrs,
                                           all * sizeof(rabbet_attr_t),
                                           (void**)out_attrs));
  for (size_t i = 0; i < count; ++i)
    turned[i] = given[i + 2 < count ? i : 2 * count - 3 - i];
  for (size_t i = 0; i < all; ++i)
    if (count > 1 && strcmp((*out_attrs)[i].name, "block_shape") == 0)
      return rabbet_arena_copy(&build->arena, turned, count * sizeof(int64_t),
                               (void**)&(*out_attrs)[i].data);
  return rabbet_ok();
}

static rabbet_status_t quantize_turn(rabbet_build_t* build,
                                     rabbet_ir_node_t* node,
                                     const rabbet_ir_node_t* maker) {
  rabbet_ir_t* ir = &build->ir;
  int32_t inputs[QUANTIZE_OPERANDS] = {-1, -1, -1};
  rabbet_ir_node_t* made = NULL;
  rabbet_attr_t* attrs = NULL;
  RABBET_RETURN_IF_ERROR(quantize_turned_attrs(build, maker, &attrs));
  for (size_t i = 0; i < maker->input_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, maker, i);
    if (value)
      RABBET_RETURN_IF_ERROR(rabbet_ir_turn_constant(build, value, &inputs[i]));
  }
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_DEQUANTIZE, maker->name, attrs, maker->op->attr_count,
      inputs, maker->input_count, node, &made));
  rabbet_ir_set_input(ir, node, 1, made->outputs[0]);
  return rabbet_ir_set_int(build, node, "op1", RABBET_MATRIX_TRANSPOSE);
}

static rabbet_status_t quantize_turn_all(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    const rabbet_ir_node_t* maker =
        node->dead ? NULL : quantize_to_turn(ir, node);
    if (!maker) continue;
    RABBET_RETURN_IF_ERROR(quantize_turn(build, node, maker));
    ++i;  // the new node lies before the product
  }
  return rabbet_ok();
}

// Weights with blocks that can be refitted, and that no product reads after
// all, are dequantized by element-wise kernels.
static rabbet_status_t quantize_spread_blocks(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  bool changed = false;
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (node->dead || !rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE) ||
        rabbet_ir_is_packed(ir, node))
      continue;
    size_t before = ir->nodes.count;
    RABBET_RETURN_IF_ERROR(rabbet_ir_spread_blocks(build, node, &changed));
    i += ir->nodes.count - before;
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
    RABBET_RETURN_IF_ERROR(rabbet_ir_narrow(build, node));
    if (rabbet_ir_output(ir, node, 0)->uses > 1 &&
        rabbet_ir_output(ir, node, 0)->output < 0)
      RABBET_RETURN_IF_ERROR(quantize_spread(build, node));
  }
  RABBET_RETURN_IF_ERROR(quantize_turn_all(build));
  RABBET_RETURN_IF_ERROR(quantize_spread_blocks(build));
  RABBET_RETURN_IF_ERROR(rabbet_ir_sweep(ir));
  return rabbet_fold_factors(build);
}
