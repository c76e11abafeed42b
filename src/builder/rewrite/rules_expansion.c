// A constant that is repeated along axes of extent 1 is computed with once:
// what repeats it moves behind layers of constants, which fold then, down to a
// layer whose other operand has these extents anyway. There nothing is
// repeated, be it constant or not.

#include <assert.h>

#include "builder/ir/passes.h"
#include "ops/enums.h"

// Layers of constants in a row that are looked through.
enum { MOST_LAYERS = 32 };

// Whether the value depends on constants alone.
static bool expansion_is_fixed(const rabbet_ir_t* ir,
                               const rabbet_ir_value_t* value, int layers) {
  const rabbet_ir_node_t* node = value->producer;
  if (value->constant) return true;
  if (!node || node->dead || node->plugin || node->input_count == 0 ||
      layers == 0 || (node->op->flags & RABBET_OP_NO_FOLD) != 0)
    return false;
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
    if (input && !expansion_is_fixed(ir, input, layers - 1)) return false;
  }
  return true;
}

// The tensor that the value is, but for axes along which it is repeated; NULL:
// it is not made so.
static const rabbet_ir_value_t* expansion_repeated(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value) {
  const rabbet_ir_node_t* node = value->producer;
  rabbet_ir_window_t window;
  if (!node || node->dead || value->constant ||
      rabbet_ir_has_wishes(ir, node) || !rabbet_ir_window(ir, node, &window))
    return NULL;
  const rabbet_ir_value_t* from = rabbet_ir_input(ir, node, 0);
  rabbet_dims_t dims = rabbet_ir_dims(ir, from);
  for (int32_t i = 0; i < dims.rank; ++i) {
    bool is_repeated = dims.d[i] == 1 && window.stride[i] == 0;
    bool is_whole = from->shape.d[i] == value->shape.d[i] &&
                    (window.stride[i] == 1 || dims.d[i] == 1);
    if (window.start[i] != 0 || (!is_repeated && !is_whole)) return NULL;
  }
  return from;
}

// The same, if it depends on constants alone.
static const rabbet_ir_value_t* expansion_source(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value) {
  const rabbet_ir_value_t* from = expansion_repeated(ir, value);
  return from && expansion_is_fixed(ir, from, MOST_LAYERS) ? from : NULL;
}

// Whether the layer computes the same for each position of the axis of its
// results that two tensors of extents 1 there have.
static bool expansion_passes(const rabbet_ir_node_t* node, int32_t axis,
                             int32_t rank) {
  if (rabbet_op_is(node->op, RABBET_OP_SOFTMAX)) {
    int64_t along = rabbet_ir_int(node, "axes");
    return along != 0 && (along >> axis & 1) == 0;
  }
  if (rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY)) return axis < rank - 2;
  return true;
}

// Whether the layer takes `source` for `value`: a product sums over the last
// axes of its operands, or has a row for each position there.
static bool expansion_is_taken(const rabbet_ir_node_t* node,
                               const rabbet_ir_value_t* value,
                               const rabbet_ir_value_t* source) {
  int32_t rank = value->shape.rank;
  if (!rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY)) return true;
  for (int32_t i = rank > 2 ? rank - 2 : 0; i < rank; ++i)
    if (source->shape.d[i] != value->shape.d[i]) return false;
  return true;
}

// The layer's operands without their repetitions. False if one is no constant,
// or none is repeated.
static bool expansion_operands(const rabbet_ir_t* ir,
                               const rabbet_ir_node_t* node,
                               int32_t inputs[2]) {
  bool any = false;
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
    const rabbet_ir_value_t* source =
        input ? expansion_source(ir, input) : NULL;
    if (source && !expansion_is_taken(node, input, source)) source = NULL;
    inputs[i] = source ? source->id : node->inputs[i];
    any = any || source;
    if (input && !source && !expansion_is_fixed(ir, input, MOST_LAYERS))
      return false;
  }
  return any;
}

// Repeats `value` to the shape of the node's output.
static rabbet_status_t expansion_repeat(rabbet_build_t* build,
                                        const rabbet_ir_node_t* node,
                                        const rabbet_ir_value_t* value,
                                        rabbet_ir_node_t** out_node) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_shape_t* shape = &rabbet_ir_output(ir, node, 0)->shape;
  int32_t rank = shape->rank;
  int64_t start[RABBET_MAX_RANK] = {0}, stride[RABBET_MAX_RANK];
  int32_t sizes = -1;
  for (int32_t i = 0; i < rank; ++i)
    stride[i] = value->shape.d[i] == shape->d[i];
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_sizes(build, node->name, shape->d, rank, &sizes));
  const rabbet_attr_t attrs[] = {
      {.name = "start",
       .type = RABBET_ATTR_INTS,
       .data = start,
       .count = (size_t)rank},
      {.name = "stride",
       .type = RABBET_ATTR_INTS,
       .data = stride,
       .count = (size_t)rank},
  };
  const int32_t inputs[] = {value->id, -1, sizes};
  return rabbet_ir_add_node(ir, RABBET_OP_SLICE, node->name, attrs, 2, inputs,
                            3, node, out_node);
}

// The layer of the operands before they are repeated, and its result repeated.
static rabbet_status_t expansion_sink(rabbet_build_t* build,
                                      rabbet_ir_node_t* node,
                                      const int32_t inputs[2], bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t *made = NULL, *repeat = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, rabbet_op_id(node->op), node->name, node->attrs, node->op->attr_count,
      inputs, node->input_count, node, &made));
  const rabbet_ir_value_t* small = rabbet_ir_output(ir, made, 0);
  const rabbet_shape_t* shape = &rabbet_ir_output(ir, node, 0)->shape;
  bool fits = small->shape.rank == shape->rank;
  for (int32_t i = 0; i < shape->rank && fits; ++i)
    fits = small->shape.d[i] == shape->d[i] ||
           (rabbet_ir_dims(ir, small).d[i] == 1 &&
            expansion_passes(node, i, shape->rank));
  if (fits)
    RABBET_RETURN_IF_ERROR(expansion_repeat(build, node, small, &repeat));
  if (fits && rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, repeat, 0))) {
    *changed = true;
    return rabbet_ok();
  }
  if (repeat) rabbet_ir_kill(ir, repeat);
  rabbet_ir_kill(ir, made);
  return rabbet_ok();
}

// An element-wise layer whose other operand has the extents reads what is
// repeated as it is.
static void expansion_absorb(rabbet_ir_t* ir, rabbet_ir_node_t* node,
                             bool* changed) {
  const rabbet_shape_t* shape = &rabbet_ir_output(ir, node, 0)->shape;
  for (size_t i = 0; i < 2; ++i) {
    const rabbet_ir_value_t* source =
        expansion_repeated(ir, rabbet_ir_input(ir, node, i));
    const rabbet_ir_value_t* other = rabbet_ir_input(ir, node, 1 - i);
    bool fits = source && other->shape.rank == shape->rank;
    for (int32_t k = 0; k < shape->rank && fits; ++k)
      fits =
          source->shape.d[k] == shape->d[k] || other->shape.d[k] == shape->d[k];
    if (!fits) continue;
    rabbet_ir_set_input(ir, node, i, source->id);
    *changed = true;
  }
}

rabbet_status_t rabbet_rule_expansion(rabbet_build_t* build,
                                      rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int32_t inputs[2] = {-1, -1};
  int64_t perm[RABBET_MAX_RANK];
  assert(node->output_count == 1);
  if (rabbet_ir_has_wishes(ir, node) || node->input_count > 2 ||
      (rabbet_op_is(node->op, RABBET_OP_SHUFFLE) &&
       !rabbet_ir_permutation(ir, node, perm)))
    return rabbet_ok();
  if (expansion_operands(ir, node, inputs))
    return expansion_sink(build, node, inputs, changed);
  if (rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE))
    expansion_absorb(ir, node, changed);
  return rabbet_ok();
}
