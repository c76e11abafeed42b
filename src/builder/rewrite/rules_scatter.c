// Elements put at places that are constant and lie one behind the other along
// one axis, all of the others, are a concatenation: exporters write
//   y[..., first:end] = x
// as a scatter with an index for each row, or each element.

#include <assert.h>

#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/enums.h"

// Places [start, start + size) of an axis of the data.
typedef struct scatter_window_t {
  int32_t axis;
  int64_t start, size;
} scatter_window_t;

static int64_t scatter_index(const rabbet_ir_value_t* indices, int64_t at,
                             int64_t extent) {
  int64_t index = rabbet_load_int64(indices->dtype, indices->constant, at);
  return index < 0 ? index + extent : index;
}

// Takes what a dimension's places are: all of them, or the window.
static bool scatter_take(scatter_window_t* window, int32_t axis, int64_t start,
                         int64_t size, int64_t extent) {
  if (start < 0 || size <= 0 || start > extent - size) return false;
  if (start == 0 && size == extent) return true;
  if (window->axis >= 0) return false;
  *window = (scatter_window_t){axis, start, size};
  return true;
}

// ELEMENT: each index is its own place along the axis, from `start` on.
static bool scatter_elements(const rabbet_ir_t* ir,
                             const rabbet_ir_node_t* node,
                             scatter_window_t* out) {
  const rabbet_ir_value_t* indices = rabbet_ir_input(ir, node, 1);
  rabbet_dims_t data = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, 0));
  rabbet_dims_t dims = rabbet_ir_dims(ir, indices);
  int64_t axis = rabbet_ir_int(node, "axis"), inner = 1;
  int64_t count = rabbet_ir_count(ir, indices);
  if (axis < 0) axis += data.rank;
  for (int32_t i = 0; i < dims.rank; ++i) {
    if (i > axis) inner *= dims.d[i];
    if (i != axis && dims.d[i] != data.d[i]) return false;
  }
  if (count == 0 || data.d[axis] < 0) return false;
  int64_t start = scatter_index(indices, 0, data.d[axis]);
  for (int64_t i = 0; i < count; ++i)
    if (scatter_index(indices, i, data.d[axis]) !=
        start + i / inner % dims.d[axis])
      return false;
  return scatter_take(out, (int32_t)axis, start, dims.d[axis], data.d[axis]);
}

// ND: indices [.., depth] are those of a box of the first `depth` axes.
static bool scatter_box(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                        scatter_window_t* out) {
  const rabbet_ir_value_t* indices = rabbet_ir_input(ir, node, 1);
  rabbet_dims_t data = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, 0));
  rabbet_dims_t dims = rabbet_ir_dims(ir, indices);
  int32_t depth = dims.rank - 1;
  int64_t points = 1, inner = 1;
  if (depth < 1 || dims.d[depth] != depth) return false;
  for (int32_t i = 0; i < depth; ++i)
    points *= dims.d[i];
  if (points == 0) return false;
  for (int32_t axis = depth - 1; axis >= 0; inner *= dims.d[axis--]) {
    if (data.d[axis] < 0) return false;
    int64_t start = scatter_index(indices, axis, data.d[axis]);
    for (int64_t i = 0; i < points; ++i)
      if (scatter_index(indices, i * depth + axis, data.d[axis]) !=
          start + i / inner % dims.d[axis])
        return false;
    if (!scatter_take(out, axis, start, dims.d[axis], data.d[axis]))
      return false;
  }
  return true;
}

// The axis of `out` is -1 where all elements are replaced.
static bool scatter_match(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                          scatter_window_t* out) {
  const rabbet_ir_value_t* data = rabbet_ir_input(ir, node, 0);
  const rabbet_ir_value_t* indices = rabbet_ir_input(ir, node, 1);
  *out = (scatter_window_t){.axis = -1};
  // Small integer tensors are sizes: they stay as they are.
  if (!indices->constant || indices->is_deferred ||
      !rabbet_ir_is_real(data->dtype) || rabbet_ir_has_wishes(ir, node) ||
      rabbet_ir_int(node, "reduction") != RABBET_SCATTER_REDUCTION_NONE ||
      rabbet_ir_input(ir, node, 2)->shape.rank != data->shape.rank)
    return false;
  return rabbet_ir_int(node, "mode") == RABBET_SCATTER_ND
             ? scatter_box(ir, node, out)
             : scatter_elements(ir, node, out);
}

rabbet_status_t rabbet_rule_scattered_part(rabbet_build_t* build,
                                           rabbet_ir_node_t* node,
                                           bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  scatter_window_t window;
  if (!scatter_match(ir, node, &window)) return rabbet_ok();
  if (window.axis < 0) {
    *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_input(ir, node, 2));
    return rabbet_ok();
  }
  rabbet_ir_value_t* data = rabbet_ir_input(ir, node, 0);
  const int64_t axis = window.axis, end = window.start + window.size;
  const int64_t starts[] = {0, 0, end};
  const int64_t sizes[] = {window.start, 0,
                           rabbet_ir_dims(ir, data).d[axis] - end};
  const rabbet_attr_t attr = {
      .name = "axis", .type = RABBET_ATTR_INT, .data = &axis, .count = 1};
  rabbet_ir_node_t *part = NULL, *joined = NULL;
  int32_t inputs[3];
  size_t count = 0;
  for (int i = 0; i < 3; ++i) {
    if (i == 1) inputs[count++] = node->inputs[2];
    if (sizes[i] == 0) continue;
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_slice(
        build, node, node->name, data->id, axis, starts[i], sizes[i], &part));
    inputs[count++] = part->outputs[0];
  }
  assert(count > 1);
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_CONCATENATION,
                                            node->name, &attr, 1, inputs, count,
                                            node, &joined));
  // Nodes that nothing reads are swept.
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, joined, 0));
  return rabbet_ok();
}
