// Common subexpressions. Small constants are compared by their elements: the
// importer makes a number for each node that needs it.

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "builder/ir/passes.h"
#include "core/view.h"

enum { SUBEXPRESSION_BYTES = 4096 };  // of a small constant

static void subexpression_attr(const rabbet_attr_t* attr,
                               rabbet_strbuf_t* key) {
  const int64_t numbers[] = {attr->type, (int64_t)attr->count, attr->dtype,
                             attr->dims.rank};
  rabbet_strbuf_append(key, numbers, sizeof(numbers));
  rabbet_strbuf_append(key, attr->dims.d, sizeof(attr->dims.d));
  rabbet_strbuf_append(key, attr->data, rabbet_attr_bytes(attr));
}

static bool subexpression_is_small(const rabbet_ir_value_t* value,
                                   const rabbet_dims_t* dims,
                                   size_t* out_bytes) {
  if (!value->constant || value->producer || value->is_deferred ||
      value->is_refittable || value->values || value->scale_of || value->ranged)
    return false;
  rabbet_status_t status =
      rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR, dims, out_bytes);
  bool known = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  return known && *out_bytes <= SUBEXPRESSION_BYTES;
}

static void subexpression_input(const rabbet_ir_t* ir, int32_t input,
                                rabbet_strbuf_t* key) {
  int32_t number = input;
  size_t bytes = 0;
  const rabbet_ir_value_t* value =
      input < 0 ? NULL : rabbet_ir_value(ir, input);
  rabbet_dims_t dims = {.rank = 0};
  if (value) dims = rabbet_ir_dims(ir, value);
  // Sizes that the host knows: equal expressions have one number.
  if (value && value->values && !value->producer && value->input < 0) {
    const int32_t sizes[] = {-3, (int32_t)value->dtype, value->shape.rank,
                             (int32_t)value->value_count};
    rabbet_strbuf_append(key, sizes, sizeof(sizes));
    rabbet_strbuf_append(key, value->shape.d,
                         (size_t)value->shape.rank * sizeof(value->shape.d[0]));
    rabbet_strbuf_append(key, value->values,
                         value->value_count * sizeof(value->values[0]));
    return;
  }
  bool is_small = value && subexpression_is_small(value, &dims, &bytes);
  if (is_small) number = -2;  // no value's
  rabbet_strbuf_append(key, &number, sizeof(number));
  if (!is_small) return;
  rabbet_strbuf_append(key, &value->dtype, sizeof(value->dtype));
  rabbet_strbuf_append(key, &dims.rank, sizeof(dims.rank));
  rabbet_strbuf_append(key, dims.d, (size_t)dims.rank * sizeof(dims.d[0]));
  rabbet_strbuf_append(key, value->constant, bytes);
}

// All that makes two nodes equal.
static void subexpression_key(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* node,
                              rabbet_strbuf_t* key) {
  rabbet_strbuf_append(key, &node->op, sizeof(node->op));
  rabbet_strbuf_append(key, &node->input_count, sizeof(node->input_count));
  for (size_t i = 0; i < node->input_count; ++i)
    subexpression_input(ir, node->inputs[i], key);
  for (size_t i = 0; i < node->op->attr_count; ++i)
    subexpression_attr(&node->attrs[i], key);
  for (size_t i = 0; i < node->output_count; ++i) {
    rabbet_dtype_t dtype = rabbet_ir_output(ir, node, i)->dtype;
    rabbet_strbuf_append(key, &dtype, sizeof(dtype));
  }
}

static rabbet_status_t subexpression_node(rabbet_build_t* build,
                                          rabbet_ir_node_t* node,
                                          rabbet_map_t* known,
                                          rabbet_strbuf_t* key) {
  rabbet_ir_t* ir = &build->ir;
  key->size = 0;
  subexpression_key(ir, node, key);
  RABBET_RETURN_IF_ERROR(rabbet_strbuf_status(key));
  rabbet_ir_node_t* first = rabbet_map_get(known, key->data, key->size);
  if (first) {
    assert(first != node && !first->dead && first->op == node->op);
    rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, first, 0));
    return rabbet_ok();
  }
  void* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&build->arena, key->data, key->size, &copy));
  return rabbet_map_set(known, copy, key->size, node);
}

rabbet_status_t rabbet_pass_common_subexpressions(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_map_t known;
  rabbet_strbuf_t key;
  rabbet_map_initialize(build->allocator, &known);
  rabbet_strbuf_initialize(build->allocator, &key);
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (!node->dead && !node->plugin && node->output_count == 1 &&
        (node->op->flags & RABBET_OP_NO_FOLD) == 0 &&
        !rabbet_ir_has_wishes(ir, node))
      status = subexpression_node(build, node, &known, &key);
  }
  rabbet_strbuf_deinitialize(&key);
  rabbet_map_deinitialize(&known);
  if (rabbet_is_ok(status)) status = rabbet_ir_sweep(ir);
  return status;
}
