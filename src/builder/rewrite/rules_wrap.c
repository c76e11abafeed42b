// Windows that go on at the beginning of an axis behind its end. Rolls and
// circular padding, written as concatenations of a tensor's windows, become one
// slice that wraps, and so do two such slices in a row: a shift of an image
// along two axes is one move.

#include <assert.h>

#include "builder/ir/passes.h"
#include "ops/enums.h"

// ---- Concatenations ---------------------------------------------------------

typedef struct wrap_t {
  rabbet_ir_value_t* x;
  int32_t axis;
  int64_t extent, start, size;  // along the axis
} wrap_t;

// Whether `value` is all of `wrap->x`, or a window of it that is whole along
// the other axes: finds the window's place.
static bool wrap_is_part(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                         const wrap_t* wrap, int64_t* start, int64_t* size) {
  rabbet_ir_window_t window;
  *start = 0;
  *size = rabbet_ir_dims(ir, value).d[wrap->axis];
  if (value == wrap->x) return true;
  const rabbet_ir_node_t* slice = value->producer;
  if (!slice || slice->dead || rabbet_ir_has_wishes(ir, slice) ||
      !rabbet_ir_window(ir, slice, &window) ||
      rabbet_ir_input(ir, slice, 0) != wrap->x)
    return false;
  for (int32_t i = 0; i < value->shape.rank; ++i)
    if (window.stride[i] != 1 ||
        (i != wrap->axis &&
         (window.start[i] != 0 || value->shape.d[i] != wrap->x->shape.d[i])))
      return false;
  *start = window.start[wrap->axis];
  return true;
}

static bool wrap_match(const rabbet_ir_t* ir, const rabbet_ir_node_t* join,
                       wrap_t* out) {
  const rabbet_ir_value_t* first = rabbet_ir_input(ir, join, 0);
  const rabbet_ir_node_t* slice = first->producer;
  if (join->input_count < 2 || !slice ||
      !rabbet_op_is(slice->op, RABBET_OP_SLICE) ||
      rabbet_dtype_bits(first->dtype) < 8 || rabbet_ir_has_wishes(ir, join))
    return false;
  int64_t axis = rabbet_ir_int(join, "axis");
  *out =
      (wrap_t){.x = rabbet_ir_input(ir, slice, 0),
               .axis = (int32_t)(axis < 0 ? axis + first->shape.rank : axis)};
  out->extent = rabbet_ir_dims(ir, out->x).d[out->axis];
  if (out->extent < 1) return false;
  for (size_t i = 0; i < join->input_count; ++i) {
    int64_t start = 0, size = 0;
    if (!wrap_is_part(ir, rabbet_ir_input(ir, join, i), out, &start, &size) ||
        size < 1)
      return false;
    if (i == 0) out->start = start;
    if (start != (out->start + out->size) % out->extent) return false;
    out->size += size;
  }
  // Kernels take indices at most one period outside for granted.
  return out->start + out->size <= 2 * out->extent;
}

static rabbet_status_t wrap_make(rabbet_build_t* build,
                                 const rabbet_ir_node_t* before,
                                 const rabbet_ir_value_t* x, size_t count,
                                 const int64_t* axes, const int64_t* start,
                                 const int64_t* size,
                                 rabbet_ir_node_t** out_node) {
  static const int64_t mode = RABBET_SAMPLE_WRAP;
  const rabbet_attr_t attrs[] = {
      {.name = "start",
       .type = RABBET_ATTR_INTS,
       .data = start,
       .count = count},
      {.name = "shape", .type = RABBET_ATTR_INTS, .data = size, .count = count},
      {.name = "mode", .type = RABBET_ATTR_INT, .data = &mode, .count = 1},
      {.name = "axes", .type = RABBET_ATTR_INTS, .data = axes, .count = count},
  };
  return rabbet_ir_add_node(&build->ir, RABBET_OP_SLICE, before->name, attrs, 4,
                            &x->id, 1, before, out_node);
}

static rabbet_status_t wrap_replace(rabbet_build_t* build,
                                    rabbet_ir_node_t* node,
                                    rabbet_ir_node_t* made, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, made);
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_wrapped_parts(rabbet_build_t* build,
                                          rabbet_ir_node_t* node,
                                          bool* changed) {
  wrap_t wrap;
  rabbet_ir_node_t* made = NULL;
  if (!wrap_match(&build->ir, node, &wrap)) return rabbet_ok();
  int64_t axis = wrap.axis;
  RABBET_RETURN_IF_ERROR(
      wrap_make(build, node, wrap.x, 1, &axis, &wrap.start, &wrap.size, &made));
  return wrap_replace(build, node, made, changed);
}

// ---- Two slices -------------------------------------------------------------

// A slice of rabbet_rule_wrapped_parts, or one like it, by axis; start -1: the
// axis is whole.
typedef struct wrapped_t {
  int64_t start[RABBET_MAX_RANK], size[RABBET_MAX_RANK];
} wrapped_t;

static bool wrapped_read(const rabbet_ir_t* ir, const rabbet_ir_node_t* slice,
                         wrapped_t* out) {
  size_t axes = 0, starts = 0, strides = 0;
  const int64_t* axis = rabbet_ir_ints(slice, "axes", &axes);
  const int64_t* start = rabbet_ir_ints(slice, "start", &starts);
  (void)rabbet_ir_ints(slice, "stride", &strides);
  rabbet_dims_t dims = rabbet_ir_dims(ir, rabbet_ir_output(ir, slice, 0));
  if (rabbet_ir_int(slice, "mode") != RABBET_SAMPLE_WRAP || axes == 0 ||
      starts != axes || strides > 0)
    return false;
  for (size_t i = 1; i < slice->input_count; ++i)
    if (rabbet_ir_input(ir, slice, i)) return false;
  for (int32_t i = 0; i < dims.rank; ++i)
    out->start[i] = out->size[i] = -1;
  for (size_t i = 0; i < axes; ++i) {
    int64_t at = axis[i] < 0 ? axis[i] + dims.rank : axis[i];
    assert(at >= 0 && at < dims.rank);
    out->start[at] = start[i];
    out->size[at] = dims.d[at];
    if (start[i] < 0 || dims.d[at] < 1) return false;
  }
  return true;
}

// `second` follows `first`; rotations of one axis add up.
static bool wrapped_join(const rabbet_dims_t* dims, const wrapped_t* first,
                         const wrapped_t* second, wrapped_t* out) {
  for (int32_t i = 0; i < dims->rank; ++i) {
    bool both = first->start[i] >= 0 && second->start[i] >= 0;
    const wrapped_t* one = first->start[i] >= 0 ? first : second;
    out->start[i] = one->start[i];
    out->size[i] = one->size[i];
    if (!both) continue;
    if (first->size[i] != dims->d[i] || second->size[i] != dims->d[i])
      return false;
    out->start[i] = (first->start[i] + second->start[i]) % dims->d[i];
  }
  return true;
}

rabbet_status_t rabbet_rule_wrapped_slices(rabbet_build_t* build,
                                           rabbet_ir_node_t* node,
                                           bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* before = rabbet_ir_sole_producer(
      ir, rabbet_ir_input(ir, node, 0), RABBET_OP_SLICE);
  wrapped_t first, second, both;
  if (!before || rabbet_ir_has_wishes(ir, node) ||
      !wrapped_read(ir, before, &first) || !wrapped_read(ir, node, &second))
    return rabbet_ok();
  const rabbet_ir_value_t* x = rabbet_ir_input(ir, before, 0);
  rabbet_dims_t dims = rabbet_ir_dims(ir, x);
  if (!wrapped_join(&dims, &first, &second, &both)) return rabbet_ok();
  int64_t axes[RABBET_MAX_RANK], start[RABBET_MAX_RANK], size[RABBET_MAX_RANK];
  size_t count = 0;
  for (int32_t i = 0; i < dims.rank; ++i) {
    if (both.start[i] < 0) continue;
    axes[count] = i;
    start[count] = both.start[i];
    size[count++] = both.size[i];
  }
  rabbet_ir_node_t* made = NULL;
  RABBET_RETURN_IF_ERROR(
      wrap_make(build, node, x, count, axes, start, size, &made));
  return wrap_replace(build, node, made, changed);
}
