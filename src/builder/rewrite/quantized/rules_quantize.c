// Scales and zero points as element-wise kernels read them: of the input's
// rank, and left out if they have no effect. Weights of UINT8 as products read
// them: INT8.

#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"

enum { QUANTIZE_SCALE = 1, QUANTIZE_ZERO_POINT = 2 };

// The dims with which `value` broadcasts to an input of this rank: -1 along the
// axis that it is for.
static rabbet_dims_t quantize_dims(const rabbet_ir_t* ir,
                                   const rabbet_ir_node_t* node,
                                   const rabbet_ir_value_t* value,
                                   int32_t rank) {
  rabbet_dims_t own = rabbet_ir_dims(ir, value), dims = {.rank = rank};
  int64_t axis = rabbet_ir_int(node, "axis");
  bool is_one = own.rank == 0 || own.d[0] == 1;
  if (axis < 0) axis += rank;
  assert(is_one || (axis >= 0 && axis < rank));
  for (int32_t i = 0; i < rank; ++i)
    dims.d[i] = !is_one && i == axis ? -1 : 1;
  return dims;
}

static rabbet_status_t quantize_reshape(rabbet_build_t* build,
                                        rabbet_ir_node_t* node,
                                        const rabbet_ir_value_t* value,
                                        const rabbet_dims_t* dims,
                                        int32_t* out_value) {
  const int64_t to_scalar = dims->rank == 0, copies = 0;
  const rabbet_attr_t attrs[] = {{.name = "reshape_dims",
                                  .type = RABBET_ATTR_INTS,
                                  .data = dims->d,
                                  .count = (size_t)dims->rank},
                                 {.name = "zero_is_placeholder",
                                  .type = RABBET_ATTR_BOOL,
                                  .data = &copies,
                                  .count = 1},
                                 {.name = "reshape_to_scalar",
                                  .type = RABBET_ATTR_BOOL,
                                  .data = &to_scalar,
                                  .count = 1}};
  rabbet_ir_node_t* shuffle = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(&build->ir, RABBET_OP_SHUFFLE,
                                            value->name, attrs, 3, &value->id,
                                            1, node, &shuffle));
  *out_value = shuffle->outputs[0];
  return rabbet_ok();
}

static rabbet_status_t quantize_widen(rabbet_build_t* build,
                                      rabbet_ir_node_t* node, size_t input,
                                      bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  int32_t rank = rabbet_ir_input(ir, node, 0)->shape.rank, wide = -1;
  if (!value || value->shape.rank == rank) return rabbet_ok();
  rabbet_dims_t dims = quantize_dims(ir, node, value, rank);
  if (value->constant || value->is_refittable) {
    rabbet_dims_t own = rabbet_ir_dims(ir, value);
    for (int32_t i = 0; i < rank; ++i)
      if (dims.d[i] < 0) dims.d[i] = own.d[0];
    RABBET_RETURN_IF_ERROR(rabbet_ir_reshape_constant(ir, value, &dims, &wide));
  } else {
    RABBET_RETURN_IF_ERROR(quantize_reshape(build, node, value, &dims, &wide));
  }
  rabbet_ir_set_input(ir, node, input, wide);
  *changed = true;
  return rabbet_ok();
}

// ---- Weights of UINT8 -------------------------------------------------------

enum { QUANTIZE_MIDDLE = 128 };

static bool quantize_is_fixed(const rabbet_ir_value_t* value) {
  return value && value->constant && value->dtype == RABBET_DTYPE_UINT8;
}

// Whether constants of UINT8 stand for numbers on both sides of 128 alike.
static bool quantize_is_centred(const rabbet_ir_t* ir,
                                const rabbet_ir_node_t* node) {
  const rabbet_ir_value_t* zero =
      rabbet_ir_input(ir, node, QUANTIZE_ZERO_POINT);
  assert(rabbet_op_is(node->op, RABBET_OP_QUANTIZE) ||
         rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE));
  int64_t count = 1;
  if (!rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE) ||
      !quantize_is_fixed(rabbet_ir_input(ir, node, 0)) ||
      !quantize_is_fixed(zero))
    return false;
  rabbet_dims_t dims = rabbet_ir_dims(ir, zero);
  for (int32_t i = 0; i < dims.rank; ++i)
    count *= dims.d[i];
  for (int64_t i = 0; i < count; ++i)
    if (((const uint8_t*)zero->constant)[i] != QUANTIZE_MIDDLE) return false;
  return true;
}

// They become INT8 without a zero point, the weights that kernels take.
static rabbet_status_t quantize_centre(rabbet_build_t* build,
                                       rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, 0);
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  rabbet_ir_value_t* centred = NULL;
  uint8_t* data = NULL;
  size_t bytes = 0;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
      RABBET_DTYPE_INT8, RABBET_FORMAT_LINEAR, &dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, bytes + 1, (void**)&data));
  for (size_t i = 0; i < bytes; ++i)
    data[i] = ((const uint8_t*)value->constant)[i] ^ QUANTIZE_MIDDLE;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(
      ir, value->name, RABBET_DTYPE_INT8, &dims, data, &centred));
  rabbet_ir_set_input(ir, node, 0, centred->id);
  rabbet_ir_set_input(ir, node, QUANTIZE_ZERO_POINT, -1);
  *changed = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_quantize(rabbet_build_t* build,
                                     rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* zero =
      rabbet_ir_input(ir, node, QUANTIZE_ZERO_POINT);
  if (zero && rabbet_ir_is_number(ir, zero, 0)) {
    rabbet_ir_set_input(ir, node, QUANTIZE_ZERO_POINT, -1);
    *changed = true;
  }
  if (quantize_is_centred(ir, node))
    RABBET_RETURN_IF_ERROR(quantize_centre(build, node, changed));
  RABBET_RETURN_IF_ERROR(quantize_widen(build, node, QUANTIZE_SCALE, changed));
  return quantize_widen(build, node, QUANTIZE_ZERO_POINT, changed);
}

// ---- Weights with axes in front ---------------------------------------------

// Weights that get axes of extent 1 behind their dequantizing node, as in a
// product with a batch, get them before it, so that the product's factor is
// made by such a node.
enum { QUANTIZE_OPERANDS = 3 };

// Whether `dims` are ones, then `own`.
static bool quantize_leads(const rabbet_dims_t* dims,
                           const rabbet_dims_t* own) {
  int32_t more = dims->rank - own->rank;
  if (more <= 0) return false;
  for (int32_t i = 0; i < dims->rank; ++i)
    if (dims->d[i] != (i < more ? 1 : own->d[i - more])) return false;
  return true;
}

// All operands are weights of one rank, so that scales lie where weights do.
static bool quantize_is_whole(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* maker) {
  int32_t rank = rabbet_ir_input(ir, maker, 0)->shape.rank;
  for (size_t i = 0; i < maker->input_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, maker, i);
    if (value && (!(value->constant || value->is_refittable) ||
                  value->shape.rank != rank))
      return false;
  }
  return rabbet_dtype_bits(rabbet_ir_input(ir, maker, 0)->dtype) <= 8;
}

// The attributes with `more` blocks of one element in front.
static rabbet_status_t quantize_lead_attrs(rabbet_build_t* build,
                                           const rabbet_ir_node_t* maker,
                                           int32_t more,
                                           rabbet_attr_t** out_attrs) {
  size_t all = maker->op->attr_count, count = 0;
  const int64_t* given = rabbet_ir_ints(maker, "block_shape", &count);
  int64_t blocks[RABBET_MAX_RANK];
  size_t lead = (size_t)more;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&build->arena, maker->attrs,
                                           all * sizeof(rabbet_attr_t),
                                           (void**)out_attrs));
  assert(count + lead <= RABBET_MAX_RANK);
  for (size_t i = 0; i < count + lead; ++i)
    blocks[i] = i < lead ? 1 : given[i - lead];
  for (size_t i = 0; i < all && count > 0; ++i) {
    rabbet_attr_t* attr = *out_attrs + i;
    if (strcmp(attr->name, "block_shape") != 0) continue;
    attr->count = count + lead;
    return rabbet_arena_copy(&build->arena, blocks,
                             attr->count * sizeof(int64_t),
                             (void**)&attr->data);
  }
  return rabbet_ok();
}

static rabbet_status_t quantize_lead(rabbet_build_t* build,
                                     const rabbet_ir_node_t* maker,
                                     rabbet_ir_node_t* node, int32_t more) {
  rabbet_ir_t* ir = &build->ir;
  assert(more > 0 && maker->input_count <= QUANTIZE_OPERANDS);
  rabbet_ir_node_t* made = NULL;
  rabbet_attr_t* attrs = NULL;
  int32_t inputs[QUANTIZE_OPERANDS] = {-1, -1, -1};
  RABBET_RETURN_IF_ERROR(quantize_lead_attrs(build, maker, more, &attrs));
  for (size_t i = 0; i < maker->input_count && i < QUANTIZE_OPERANDS; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, maker, i);
    if (!value) continue;
    rabbet_dims_t own = rabbet_ir_dims(ir, value);
    rabbet_dims_t dims = {.rank = own.rank + more};
    for (int32_t k = 0; k < dims.rank; ++k)
      dims.d[k] = k < more ? 1 : own.d[k - more];
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_reshape_constant(ir, value, &dims, &inputs[i]));
  }
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_DEQUANTIZE, maker->name, attrs, maker->op->attr_count,
      inputs, maker->input_count, node, &made));
  rabbet_ir_replace_uses(ir, rabbet_ir_output(ir, node, 0),
                         rabbet_ir_output(ir, made, 0));
  rabbet_ir_kill(ir, node);
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_quantized_view(rabbet_build_t* build,
                                           rabbet_ir_node_t* node,
                                           bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, 0);
  const rabbet_ir_node_t* maker = input->producer;
  if (!maker || maker->dead || !rabbet_op_is(maker->op, RABBET_OP_DEQUANTIZE) ||
      rabbet_ir_has_wishes(ir, maker) || rabbet_ir_has_wishes(ir, node) ||
      !rabbet_ir_is_view(ir, node) || !quantize_is_whole(ir, maker) ||
      !rabbet_ir_can_replace(rabbet_ir_output(ir, node, 0), input))
    return rabbet_ok();
  rabbet_dims_t own = rabbet_ir_dims(ir, input);
  rabbet_dims_t dims = rabbet_ir_dims(ir, rabbet_ir_output(ir, node, 0));
  if (!quantize_leads(&dims, &own)) return rabbet_ok();
  *changed = true;
  return quantize_lead(build, maker, node, dims.rank - own.rank);
}
