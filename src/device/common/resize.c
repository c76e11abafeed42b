#include "device/common/resize.h"

#include <assert.h>
#include <string.h>

#include "core/view.h"

// Inputs and the output.
enum { RABBET_RESIZE_OPERANDS = 4 };

// Axes of the memory, outermost first. False if the format pads, or if it has
// channels innermost and their extent changes.
static bool resize_steps(const rabbet_resize_t* resize, const rabbet_dims_t* in,
                         const rabbet_dims_t* out, rabbet_format_t format,
                         rabbet_resize_plan_t* plan) {
  rabbet_box_t source, target;
  if (!rabbet_box(in, format, &source) || !rabbet_box(out, format, &target) ||
      source.rank != target.rank)
    return false;
  bool moves = format != RABBET_FORMAT_LINEAR;
  if (moves && !resize->axes[1].is_same) return false;
  // The innermost axis holds the channels, or those of one block.
  int32_t last = source.rank > in->rank ? 2 : 1;
  for (int32_t k = 0; k < source.rank; ++k) {
    int32_t i = !moves ? k : k + 1 == source.rank ? last : k < last ? k : k + 1;
    plan->steps[k] =
        (rabbet_resize_step_t){.in = source.extent[i],
                               .out = target.extent[i],
                               .stride = source.stride[i],
                               .taps = resize->axes[source.axis[i]].taps,
                               .logical = source.axis[i]};
  }
  plan->rank = source.rank;
  return true;
}

static bool resize_is_same(const rabbet_resize_plan_t* plan, int32_t step) {
  return plan->resize.axes[plan->steps[step].logical].is_same;
}

static void resize_merge(rabbet_resize_plan_t* plan) {
  int32_t first = 0;
  plan->outer = plan->inner = 1;
  while (plan->rank > 1 && resize_is_same(plan, plan->rank - 1))
    plan->inner *= plan->steps[--plan->rank].in;
  while (first + 1 < plan->rank && resize_is_same(plan, first))
    plan->outer *= plan->steps[first++].in;
  plan->rank -= first;
  memmove(plan->steps, plan->steps + first,
          sizeof(plan->steps[0]) * (size_t)plan->rank);
  plan->in_plane = plan->out_plane = plan->inner;
  for (int32_t i = 0; i < plan->rank; ++i) {
    rabbet_resize_step_t* step = &plan->steps[i];
    plan->in_plane *= step->in;
    plan->out_plane *= step->out;
    assert(step->taps >= 1);
    step->table = plan->entries;
    plan->entries += step->out * step->taps;
  }
  assert(plan->rank >= 1);
}

static rabbet_status_t resize_refuse(const rabbet_group_node_t* node,
                                     const rabbet_dims_t* in,
                                     const rabbet_dims_t* out,
                                     rabbet_format_t format) {
  char a[128], b[128];
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "layer '%s': shape %s cannot be resized to %s in format %s", node->name,
      rabbet_dims_print(in, a, sizeof(a)), rabbet_dims_print(out, b, sizeof(b)),
      rabbet_format_name(format));
}

rabbet_status_t rabbet_resize_plan(const rabbet_node_kernel_t* kernel,
                                   const rabbet_kernel_shapes_t* shapes,
                                   rabbet_resize_plan_t* plan) {
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* x = &kernel->group->values[node->inputs[0]];
  const rabbet_group_value_t* y = &kernel->group->values[node->outputs[0]];
  const rabbet_dims_t* in = &shapes->dims[node->inputs[0]];
  const rabbet_dims_t* out = &shapes->dims[node->outputs[0]];
  int64_t in_count = 0, out_count = 0;
  memset(plan, 0, sizeof(*plan));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(in, &in_count));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(out, &out_count));
  rabbet_view_t views[RABBET_RESIZE_OPERANDS];
  rabbet_op_eval_t eval;
  rabbet_node_eval(kernel->group, shapes->dims, shapes->host_values,
                   kernel->allocator, views, &eval);
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_resize_read(&eval, &plan->resize), "layer '%s'", node->name));
  plan->is_empty = out_count == 0;
  if (plan->is_empty) return rabbet_ok();
  for (int32_t i = 0; i < in->rank; ++i)
    if (in->d[i] > INT32_MAX || out->d[i] > INT32_MAX / RABBET_RESIZE_TAPS)
      return resize_refuse(node, in, out, x->format);
  if (in->rank == 0) {
    plan->outer = plan->inner = plan->in_plane = plan->out_plane = 1;
    plan->entries = plan->rank = 1;
    plan->steps[0] = (rabbet_resize_step_t){
        .in = 1, .out = 1, .stride = 1, .taps = 1, .logical = -1};
    return rabbet_ok();
  }
  if (x->format != y->format || x->dtype != y->dtype ||
      !resize_steps(&plan->resize, in, out, x->format, plan))
    return resize_refuse(node, in, out, x->format);
  resize_merge(plan);
  return rabbet_ok();
}

void rabbet_resize_fill(const rabbet_resize_plan_t* plan, int32_t* positions,
                        float* weights) {
  for (int32_t i = 0; i < plan->rank; ++i) {
    const rabbet_resize_step_t* step = &plan->steps[i];
    assert(step->table + step->out * step->taps <= plan->entries);
    if (step->logical < 0 || step->in != plan->resize.axes[step->logical].in) {
      // Blocks of channels, or no axis at all, are not resized.
      for (int32_t k = 0; k < step->out; ++k) {
        positions[step->table + k] = k;
        weights[step->table + k] = 1;
      }
    } else {
      rabbet_resize_table(&plan->resize, step->logical, positions + step->table,
                          weights + step->table);
    }
  }
}

bool rabbet_resize_fits(const rabbet_propose_t* propose,
                        rabbet_format_t format) {
  const rabbet_group_t* group = propose->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_group_value_t* in = &group->values[node->inputs[0]];
  const rabbet_group_value_t* out = &group->values[node->outputs[0]];
  rabbet_box_t box;
  if (format == RABBET_FORMAT_LINEAR) return true;
  size_t scales = 0;
  const double* scale =
      rabbet_attr_floats(node->attrs, node->op->attr_count, "scales", &scales);
  return in->dims.rank > 2 && rabbet_box(&in->dims, format, &box) &&
         in->min.d[1] == in->max.d[1] && out->min.d[1] == in->min.d[1] &&
         out->max.d[1] == in->max.d[1] &&
         (scales < 2 || (scale[0] == 1 && scale[1] == 1)) &&
         rabbet_attr_int(node->attrs, node->op->attr_count,
                         "coordinate_transformation",
                         0) != RABBET_COORDINATE_CROP;
}
