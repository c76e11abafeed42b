// Scales of blocks, which element-wise kernels do not support. Each axis that
// is cut into blocks becomes two, and the scale is broadcast along the second.
// If the last block of an axis is smaller, the scale is repeated instead.

#include <assert.h>

#include "base/math.h"
#include "builder/ir/passes.h"
#include "ops/enums.h"

enum { INPUT = 0, SCALE = 1, ZERO_POINT = 2, OPERANDS = 3 };

// How a node's input is cut.
typedef struct blocks_t {
  rabbet_dims_t x;                 // -1: not constant
  int64_t block[RABBET_MAX_RANK];  // elements; 1 where the axis is not cut
  int32_t cuts;                    // axes with more than one block of several
  bool whole;
} blocks_t;

static rabbet_status_t blocks_find(const rabbet_ir_t* ir,
                                   const rabbet_ir_node_t* node,
                                   blocks_t* out) {
  size_t count = 0;
  const int64_t* given = rabbet_ir_ints(node, "block_shape", &count);
  rabbet_dims_t scales = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, SCALE));
  *out = (blocks_t){.x = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, INPUT)),
                    .whole = true};
  assert(count == 0 || count == (size_t)out->x.rank);
  for (int32_t i = 0; i < out->x.rank; ++i) {
    int64_t all = out->x.d[i], block = 1;
    if (scales.rank != out->x.rank || scales.d[i] == 1)
      block = 1;
    else if (count > 0)
      block = given[i] > 1 ? given[i] : 1;
    else if (all > 0 && scales.d[i] > 0)
      block = all / scales.d[i];
    out->block[i] = block;
    if (block == 1) continue;
    ++out->cuts;
    if (all < 0)
      return RABBET_STATUS(
          RABBET_STATUS_UNSUPPORTED,
          "axis %d of the input is cut into blocks of %lld, so that its extent "
          "must be constant",
          i, (long long)block);
    out->whole = out->whole && all % block == 0;
  }
  return rabbet_ok();
}

// ---- Another axis for each cut ----------------------------------------------

// A host value with these elements.
static rabbet_status_t blocks_shape_value(rabbet_build_t* build,
                                          const rabbet_ir_value_t* of,
                                          const rabbet_shape_t* shape,
                                          rabbet_ir_value_t** out_value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_dims_t dims = {.rank = 1, .d = {shape->rank}};
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_value(ir, of, of->name, out_value));
  rabbet_ir_value_t* value = *out_value;
  value->dtype = RABBET_DTYPE_INT64;
  value->value_count = (size_t)shape->rank;
  RABBET_RETURN_IF_ERROR(
      rabbet_shape_from_dims(ir->graph, &dims, &value->shape));
  return rabbet_arena_copy(&build->arena, shape->d,
                           (size_t)shape->rank * sizeof(*shape->d),
                           (void**)&value->values);
}

static rabbet_status_t blocks_reshape(rabbet_build_t* build,
                                      const rabbet_ir_value_t* value,
                                      const rabbet_shape_t* shape,
                                      const rabbet_ir_node_t* before,
                                      rabbet_ir_node_t** out_node) {
  rabbet_ir_value_t* wanted = NULL;
  RABBET_RETURN_IF_ERROR(blocks_shape_value(build, value, shape, &wanted));
  const int64_t no = 0;
  const rabbet_attr_t attrs[] = {{.name = "zero_is_placeholder",
                                  .type = RABBET_ATTR_BOOL,
                                  .data = &no,
                                  .count = 1}};
  const int32_t inputs[] = {value->id, wanted->id};
  return rabbet_ir_add_node(&build->ir, RABBET_OP_SHUFFLE, value->name, attrs,
                            1, inputs, 2, before, out_node);
}

// The value with an axis more behind each one that is cut. Scales have one
// element there, the input those of a block.
static rabbet_status_t blocks_split(rabbet_build_t* build,
                                    rabbet_ir_node_t* node, size_t input,
                                    const blocks_t* blocks,
                                    int32_t* out_value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  rabbet_shape_t shape = {.rank = 0};
  *out_value = value ? value->id : -1;
  if (!value || value->shape.rank != blocks->x.rank) return rabbet_ok();
  for (int32_t i = 0; i < blocks->x.rank; ++i) {
    int64_t block = blocks->block[i], count = blocks->x.d[i] / block;
    assert(block == 1 || blocks->x.d[i] % block == 0);
    shape.d[shape.rank++] = value->shape.d[i];
    if (block == 1) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(ir->graph, count, &shape.d[shape.rank - 1]));
    RABBET_RETURN_IF_ERROR(rabbet_expr_constant(
        ir->graph, input == INPUT ? block : 1, &shape.d[shape.rank++]));
  }
  if (value->constant) {
    rabbet_dims_t dims = rabbet_shape_dims(ir->graph, &shape);
    rabbet_ir_value_t* constant = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(
        ir, value->name, value->dtype, &dims, value->constant, &constant));
    *out_value = constant->id;
    return rabbet_ok();
  }
  rabbet_ir_node_t* reshape = NULL;
  RABBET_RETURN_IF_ERROR(blocks_reshape(build, value, &shape, node, &reshape));
  *out_value = reshape->outputs[0];
  return rabbet_ok();
}

// The node's output is made by `last` from now on, which takes the node's
// place.
static void blocks_take_over(rabbet_ir_t* ir, rabbet_ir_node_t* node,
                             rabbet_ir_node_t* last) {
  assert(node->output_count == 1 && last->output_count == 1);
  int32_t output = node->outputs[0];
  node->outputs[0] = last->outputs[0];
  last->outputs[0] = output;
  rabbet_ir_value(ir, output)->producer = last;
  rabbet_ir_value(ir, node->outputs[0])->producer = node;
  rabbet_ir_kill(ir, node);
}

static rabbet_status_t blocks_widen(rabbet_build_t* build,
                                    rabbet_ir_node_t* node,
                                    const blocks_t* blocks) {
  rabbet_ir_t* ir = &build->ir;
  assert(blocks->whole && blocks->x.rank + blocks->cuts <= RABBET_MAX_RANK);
  int32_t inputs[OPERANDS];
  for (size_t i = 0; i < OPERANDS; ++i)
    RABBET_RETURN_IF_ERROR(blocks_split(build, node, i, blocks, &inputs[i]));
  const int64_t to = rabbet_ir_int(node, "to_type");
  const rabbet_attr_t attrs[] = {
      {.name = "to_type", .type = RABBET_ATTR_INT, .data = &to, .count = 1}};
  bool quantizes = rabbet_op_is(node->op, RABBET_OP_QUANTIZE);
  rabbet_ir_node_t *inner = NULL, *last = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, quantizes ? RABBET_OP_QUANTIZE : RABBET_OP_DEQUANTIZE, node->name,
      attrs, 1, inputs, inputs[ZERO_POINT] < 0 ? 2 : 3, node, &inner));
  inner->precision = node->precision;
  RABBET_RETURN_IF_ERROR(blocks_reshape(build, rabbet_ir_output(ir, inner, 0),
                                        &rabbet_ir_output(ir, node, 0)->shape,
                                        node, &last));
  blocks_take_over(ir, node, last);
  return rabbet_ok();
}

// ---- A scale for each element -----------------------------------------------

static rabbet_status_t blocks_repeat_axis(rabbet_build_t* build,
                                          rabbet_ir_node_t* node, size_t input,
                                          const blocks_t* blocks,
                                          int32_t axis) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  const rabbet_dims_t dims = {.rank = 1, .d = {blocks->x.d[axis]}};
  if (!value || value->shape.rank != blocks->x.rank) return rabbet_ok();
  assert(dims.d[0] >= 0);  // an axis that is cut has a constant extent
  int64_t* data = NULL;
  rabbet_ir_value_t* indices = NULL;
  rabbet_ir_node_t* gather = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, (size_t)dims.d[0] + 1, sizeof(*data), (void**)&data));
  for (int64_t i = 0; i < dims.d[0]; ++i)
    data[i] = i / blocks->block[axis];
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(
      ir, value->name, RABBET_DTYPE_INT64, &dims, data, &indices));
  const int64_t at = axis, mode = RABBET_GATHER_DEFAULT;
  const rabbet_attr_t attrs[] = {
      {.name = "axis", .type = RABBET_ATTR_INT, .data = &at, .count = 1},
      {.name = "mode", .type = RABBET_ATTR_INT, .data = &mode, .count = 1}};
  const int32_t inputs[] = {value->id, indices->id};
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_GATHER, value->name, attrs, 2, inputs, 2, node, &gather));
  rabbet_ir_set_input(ir, node, input, gather->outputs[0]);
  return rabbet_ok();
}

static rabbet_status_t blocks_repeat(rabbet_build_t* build,
                                     rabbet_ir_node_t* node,
                                     const blocks_t* blocks) {
  for (int32_t i = 0; i < blocks->x.rank; ++i) {
    if (blocks->block[i] == 1) continue;
    for (size_t input = SCALE; input <= ZERO_POINT; ++input)
      RABBET_RETURN_IF_ERROR(blocks_repeat_axis(build, node, input, blocks, i));
  }
  return rabbet_ir_set_ints(build, node, "block_shape", NULL, 0);
}

// ---- The rule ---------------------------------------------------------------

// Powers of two as FLOAT.
static rabbet_status_t blocks_cast(rabbet_build_t* build,
                                   rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* scale = rabbet_ir_input(ir, node, SCALE);
  if (scale->dtype != RABBET_DTYPE_E8M0) return rabbet_ok();
  const int64_t to = RABBET_DTYPE_FLOAT;
  const rabbet_attr_t attrs[] = {
      {.name = "to_type", .type = RABBET_ATTR_INT, .data = &to, .count = 1}};
  rabbet_ir_node_t* cast = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_CAST, scale->name, attrs, 1, &scale->id, 1, node, &cast));
  rabbet_ir_set_input(ir, node, SCALE, cast->outputs[0]);
  *changed = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_blocks(rabbet_build_t* build,
                                   rabbet_ir_node_t* node, bool* changed) {
  RABBET_RETURN_IF_ERROR(blocks_cast(build, node, changed));
  if (rabbet_ir_is_packed(&build->ir, node)) return rabbet_ok();
  return rabbet_ir_spread_blocks(build, node, changed);
}

rabbet_status_t rabbet_ir_spread_blocks(rabbet_build_t* build,
                                        rabbet_ir_node_t* node, bool* changed) {
  blocks_t blocks;
  size_t given = 0;
  RABBET_RETURN_IF_ERROR(blocks_find(&build->ir, node, &blocks));
  rabbet_ir_ints(node, "block_shape", &given);
  if (blocks.cuts == 0 && given == 0) return rabbet_ok();
  *changed = true;
  if (blocks.cuts == 0)
    return rabbet_ir_set_ints(build, node, "block_shape", NULL, 0);
  if (blocks.whole && blocks.x.rank + blocks.cuts <= RABBET_MAX_RANK)
    return blocks_widen(build, node, &blocks);
  return blocks_repeat(build, node, &blocks);
}
