// Joins packed weights of products of one tensor (sibling_products.c). The
// weights lie as [columns][k], so that those of one product follow another's in
// memory, and so do the scales and zero points of their columns.
#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/enums.h"

enum { OPERANDS = 3 };  // weights, scale, zero point

// The operand's axis of columns; -1: it has one number for several columns.
static int32_t packed_axis(const rabbet_ir_t* ir, const rabbet_ir_node_t* maker,
                           const rabbet_ir_value_t* operand, int64_t columns) {
  int32_t rank = rabbet_ir_input(ir, maker, 0)->shape.rank;
  rabbet_dims_t dims = rabbet_ir_dims(ir, operand);
  int64_t axis = rabbet_ir_int(maker, "axis");
  if (axis < 0) axis += rank;
  int32_t own = dims.rank == rank                    ? rank - 2
                : dims.rank == 1 && axis == rank - 2 ? 0
                                                     : -1;
  for (int32_t i = 0; i < own; ++i)
    if (dims.d[i] != 1) return -1;
  return own >= 0 && dims.d[own] == columns ? own : -1;
}

// Bytes of the operand; 0: its last byte has other elements, too.
static size_t packed_bytes(const rabbet_ir_t* ir,
                           const rabbet_ir_value_t* operand) {
  int64_t bits = 0;
  if (__builtin_mul_overflow(rabbet_ir_count(ir, operand),
                             (int64_t)rabbet_dtype_bits(operand->dtype), &bits))
    return 0;
  return bits % 8 == 0 ? (size_t)(bits / 8) : 0;
}

bool rabbet_ir_packed_columns(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* maker, int64_t columns) {
  for (size_t i = 0; i < maker->input_count; ++i) {
    const rabbet_ir_value_t* operand = rabbet_ir_input(ir, maker, i);
    if (operand &&
        (!operand->constant || operand->is_refittable || operand->values ||
         packed_axis(ir, maker, operand, columns) < 0 ||
         packed_bytes(ir, operand) == 0))
      return false;
  }
  return true;
}

bool rabbet_ir_attrs_agree(const rabbet_ir_node_t* a,
                           const rabbet_ir_node_t* b) {
  assert(a->op == b->op);
  for (size_t i = 0; i < a->op->attr_count; ++i) {
    const rabbet_attr_t *x = &a->attrs[i], *y = &b->attrs[i];
    size_t bytes = rabbet_attr_bytes(x);
    if (x->type != y->type || bytes != rabbet_attr_bytes(y) ||
        (bytes > 0 && memcmp(x->data, y->data, bytes) != 0))
      return false;
  }
  return true;
}

bool rabbet_ir_packed_agree(const rabbet_ir_t* ir, const rabbet_ir_node_t* a,
                            const rabbet_ir_node_t* b) {
  if (!rabbet_ir_attrs_agree(a, b) || a->input_count != b->input_count)
    return false;
  for (size_t i = 0; i < a->input_count; ++i) {
    const rabbet_ir_value_t *x = rabbet_ir_input(ir, a, i),
                            *y = rabbet_ir_input(ir, b, i);
    if (!x != !y) return false;
    if (!x) continue;
    rabbet_dims_t s = rabbet_ir_dims(ir, x), t = rabbet_ir_dims(ir, y);
    if (x->dtype != y->dtype || s.rank != t.rank ||
        (s.rank > 1 && s.d[s.rank - 1] != t.d[t.rank - 1]))
      return false;
  }
  return rabbet_ir_output(ir, a, 0)->dtype == rabbet_ir_output(ir, b, 0)->dtype;
}

// Operand `input` of all of them, one behind the other.
static rabbet_status_t packed_beside(rabbet_build_t* build,
                                     rabbet_ir_node_t* const* makers,
                                     const int64_t* columns, size_t count,
                                     size_t input, int32_t* out_value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* first = rabbet_ir_input(ir, makers[0], input);
  rabbet_ir_value_t* joined = NULL;
  rabbet_dims_t dims = rabbet_ir_dims(ir, first);
  int32_t axis = packed_axis(ir, makers[0], first, columns[0]);
  size_t total = 0;
  char* data = NULL;
  assert(axis >= 0);
  dims.d[axis] = 0;
  for (size_t i = 0; i < count; ++i) {
    total += packed_bytes(ir, rabbet_ir_input(ir, makers[i], input));
    dims.d[axis] += columns[i];
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, total, (void**)&data));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(ir, first->name, first->dtype,
                                                &dims, data, &joined));
  *out_value = joined->id;
  for (size_t i = 0; i < count; ++i) {
    const rabbet_ir_value_t* part = rabbet_ir_input(ir, makers[i], input);
    memcpy(data, part->constant, packed_bytes(ir, part));
    data += packed_bytes(ir, part);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_ir_join_packed(rabbet_build_t* build,
                                      rabbet_ir_node_t* const* makers,
                                      const int64_t* columns, size_t count,
                                      const rabbet_ir_node_t* before,
                                      rabbet_ir_value_t** out_value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* like = makers[0];
  const rabbet_ir_value_t* made = rabbet_ir_output(ir, like, 0);
  rabbet_ir_node_t* node = NULL;
  int32_t inputs[OPERANDS] = {-1, -1, -1};
  assert(count >= 2 && like->input_count <= OPERANDS);
  for (size_t i = 0; i < like->input_count; ++i)
    if (rabbet_ir_input(ir, like, i))
      RABBET_RETURN_IF_ERROR(
          packed_beside(build, makers, columns, count, i, &inputs[i]));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_DEQUANTIZE, like->name, like->attrs, like->op->attr_count,
      inputs, like->input_count, before, &node));
  *out_value = rabbet_ir_output(ir, node, 0);
  (*out_value)->is_deferred = made->is_deferred;
  return rabbet_ok();
}
