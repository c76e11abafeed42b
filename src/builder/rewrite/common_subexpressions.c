// Common subexpressions. Small constants are the same where their elements are,
// as exporters write a number for each of its readers.

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "builder/ir/passes.h"

// Larger ones are told apart by their values.
#define SUBEXPRESSION_CONSTANT ((size_t)4 << 10)

// Appends the elements of a small constant, and what they mean. False, with
// nothing appended, for other values.
static bool subexpression_constant(const rabbet_ir_t* ir,
                                   const rabbet_ir_value_t* value,
                                   rabbet_strbuf_t* key) {
  size_t bytes = 0;
  if (!value->constant || value->is_deferred || value->producer ||
      value->ranged || value->scale_of || value->range > 0)
    return false;
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  rabbet_status_t status =
      rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR, &dims, &bytes);
  if (!rabbet_is_ok(status) || bytes > SUBEXPRESSION_CONSTANT) {
    rabbet_status_ignore(status);
    return false;
  }
  const int64_t type[] = {-2, value->dtype, dims.rank};
  rabbet_strbuf_append(key, type, sizeof(type));
  rabbet_strbuf_append(key, dims.d, (size_t)dims.rank * sizeof(*dims.d));
  rabbet_strbuf_append(key, value->constant, bytes);
  return true;
}

static void subexpression_attr(const rabbet_attr_t* attr,
                               rabbet_strbuf_t* key) {
  const int64_t numbers[] = {attr->type, (int64_t)attr->count, attr->dtype,
                             attr->dims.rank};
  rabbet_strbuf_append(key, numbers, sizeof(numbers));
  rabbet_strbuf_append(key, attr->dims.d, sizeof(attr->dims.d));
  rabbet_strbuf_append(key, attr->data, rabbet_attr_bytes(attr));
}

// All that makes two nodes equal.
static void subexpression_key(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* node,
                              rabbet_strbuf_t* key) {
  rabbet_strbuf_append(key, &node->op, sizeof(node->op));
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
    if (input && subexpression_constant(ir, input, key)) continue;
    int64_t id = node->inputs[i];
    rabbet_strbuf_append(key, &id, sizeof(id));
  }
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
