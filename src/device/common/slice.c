#include "device/common/slice.h"

#include <assert.h>
#include <string.h>

enum { FILL = 4 };

static bool slice_is_whole(const rabbet_slice_axis_t* axis) {
  return axis->start == 0 && axis->stride == 1 && axis->in == axis->out;
}

// Whether axis a is inside of b in the output. If an axis of one element makes
// the strides equal, those of the input decide.
static bool slice_is_inside_of(const rabbet_slice_axis_t* a,
                               const rabbet_slice_axis_t* b) {
  return a->target != b->target ? a->target < b->target : a->source < b->source;
}

// The axes in the order of the output's memory. False if a format pads, or if
// blocked channels are not taken entirely.
static bool slice_axes(const rabbet_slice_t* slice, const rabbet_dims_t* in,
                       const rabbet_dims_t* out, rabbet_format_t format,
                       int64_t size, rabbet_slice_axis_t* axes,
                       int32_t* out_rank) {
  rabbet_box_t source, target;
  if (!rabbet_box(in, format, &source) || !rabbet_box(out, format, &target)) {
    return false;
  }
  bool blocked = source.rank > in->rank;
  assert(source.rank == target.rank);
  for (int32_t i = 0; i < source.rank; ++i) {
    int32_t logical = source.axis[i];
    axes[i] = (rabbet_slice_axis_t){.in = source.extent[i],
                                    .out = target.extent[i],
                                    .start = slice->start[logical],
                                    .stride = slice->stride[logical],
                                    .source = source.stride[i] * size,
                                    .target = target.stride[i] * size};
    if (blocked && logical == 1 &&
        (slice->start[1] != 0 || slice->stride[1] != 1 ||
         in->d[1] != out->d[1])) {
      return false;
    }
  }
  for (int32_t i = 1; i < source.rank; ++i) {
    rabbet_slice_axis_t axis = axes[i];
    int32_t k = i;
    for (; k > 0 && slice_is_inside_of(&axes[k - 1], &axis); --k)
      axes[k] = axes[k - 1];
    axes[k] = axis;
  }
  *out_rank = source.rank;
  return true;
}

// Merges the innermost axes into the unit if they are taken entirely, and
// others into the axis outside if both are.
static void slice_merge(rabbet_slice_window_t* window) {
  window->unit = window->size;
  while (window->rank > 0) {
    const rabbet_slice_axis_t* last = &window->axes[window->rank - 1];
    if (!slice_is_whole(last) || last->source != window->unit ||
        last->target != window->unit) {
      break;
    }
    window->unit *= last->in;
    --window->rank;
  }
  int32_t kept = 0;
  for (int32_t i = 1; i < window->rank; ++i) {
    rabbet_slice_axis_t* outer = &window->axes[kept];
    const rabbet_slice_axis_t* inner = &window->axes[i];
    if (slice_is_whole(outer) && slice_is_whole(inner) &&
        outer->source == inner->source * inner->in &&
        outer->target == inner->target * inner->in) {
      int64_t extent = outer->in * inner->in;
      *outer = *inner;
      outer->in = outer->out = extent;
    } else {
      window->axes[++kept] = *inner;
    }
  }
  if (window->rank > 0) window->rank = kept + 1;
}

// Whether all positions are inside the input, so that the mode does not matter.
static bool slice_is_inside(const rabbet_slice_axis_t* axis) {
  int64_t last = axis->start + (axis->out - 1) * axis->stride;
  return axis->out == 0 || (axis->start >= 0 && axis->start < axis->in &&
                            last >= 0 && last < axis->in);
}

// Start and stride for these dims; OUT_OF_RANGE in the same cases as for the
// reference kernel.
rabbet_status_t rabbet_slice_parameters(const rabbet_group_t* group,
                                        const rabbet_group_node_t* node,
                                        const rabbet_dims_t* dims,
                                        const int64_t* const* host_values,
                                        rabbet_allocator_t allocator,
                                        rabbet_slice_t* out_slice) {
  rabbet_view_t views[8];
  rabbet_op_eval_t eval;
  rabbet_group_node_eval(group, node, dims, host_values, allocator, views,
                         &eval);
  static const char* const names[] = {"",       "start", "shape",
                                      "stride", "",      "axes"};
  for (size_t i = 1; i < eval.input_count; ++i) {
    // The output's shape is known already.
    if (i == 2 || i == FILL || eval.inputs[i].dtype == RABBET_DTYPE_NONE ||
        eval.inputs[i].data) {
      continue;
    }
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s': the elements of '%s' are not known when "
                         "its shapes are",
                         node->name, names[i]);
  }
  return RABBET_ANNOTATE(rabbet_slice_resolve(&eval, out_slice), "layer '%s'",
                         node->name);
}

bool rabbet_slice_fits(const rabbet_propose_t* propose,
                       rabbet_format_t format) {
  const rabbet_group_t* group = propose->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_dims_t* in = &group->values[node->inputs[0]].dims;
  const rabbet_dims_t* out = &group->values[node->outputs[0]].dims;
  rabbet_box_t box;
  if (!rabbet_box(in, format, &box) || !rabbet_box(out, format, &box)) {
    return false;
  }
  if (box.rank == in->rank) return true;
  rabbet_slice_axis_t axes[RABBET_BOX_AXES];
  rabbet_slice_t slice;
  int32_t rank = 0;
  rabbet_view_t views[8];
  rabbet_op_eval_t eval;
  rabbet_dims_t dims[16];
  if (group->value_count > 16) return false;
  for (size_t i = 0; i < group->value_count; ++i) {
    dims[i] = group->values[i].dims;
  }
  rabbet_node_eval(group, dims, NULL, propose->allocator, views, &eval);
  for (size_t i = 1; i < eval.input_count; ++i) {
    if (i != FILL && eval.inputs[i].dtype != RABBET_DTYPE_NONE &&
        !eval.inputs[i].data) {
      return false;
    }
  }
  rabbet_status_t status = rabbet_slice_resolve(&eval, &slice);
  if (!rabbet_is_ok(status)) {
    rabbet_status_free(status);
    return false;
  }
  return slice_axes(&slice, in, out, format, 1, axes, &rank);
}

rabbet_status_t rabbet_slice_window(const rabbet_node_kernel_t* kernel,
                                    const rabbet_kernel_shapes_t* shapes,
                                    rabbet_slice_window_t* out_window) {
  const rabbet_group_t* group = kernel->group;
  const rabbet_dims_t* in = &shapes->dims[kernel->node->inputs[0]];
  const rabbet_dims_t* out = &shapes->dims[kernel->node->outputs[0]];
  const rabbet_group_value_t* value = &group->values[kernel->node->inputs[0]];
  rabbet_slice_window_t* window = out_window;
  rabbet_slice_t slice;
  int64_t count = 0;
  memset(window, 0, sizeof(*window));
  window->size = rabbet_dtype_bits(value->dtype) / 8;
  RABBET_RETURN_IF_ERROR(
      rabbet_slice_parameters(group, kernel->node, shapes->dims,
                              shapes->host_values, kernel->allocator, &slice));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(out, &count));
  if (!slice_axes(&slice, in, out, value->format, window->size, window->axes,
                  &window->rank)) {
    char a[128], b[128];
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': shape %s cannot be sliced to %s in "
                         "format %s by whole blocks of channels",
                         kernel->node->name,
                         rabbet_dims_print(in, a, sizeof(a)),
                         rabbet_dims_print(out, b, sizeof(b)),
                         rabbet_format_name(value->format));
  }
  window->mode = slice.mode;
  window->is_empty = count == 0;
  slice_merge(window);
  assert(window->is_empty || window->unit >= window->size);
  window->is_inside = true;
  for (int32_t i = 0; i < window->rank; ++i)
    window->is_inside = window->is_inside && slice_is_inside(&window->axes[i]);
  return rabbet_ok();
}
