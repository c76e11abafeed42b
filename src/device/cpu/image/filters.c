#include "device/cpu/image/filters.h"

#include <assert.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/vectors/vectors.h"
#include "ops/image/convolution.h"

const rabbet_dims_t* rabbet_cpu_filters_dims(const rabbet_group_t* group) {
  return &group->values[group->nodes[0].inputs[RABBET_CONVOLUTION_KERNEL]].dims;
}

bool rabbet_cpu_filters_fit(const rabbet_group_t* group,
                            rabbet_cpu_finish_t* out_finish) {
  if (!rabbet_cpu_finish_parse(group, out_finish) ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_CONVOLUTION))
    return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  for (size_t i = RABBET_CONVOLUTION_KERNEL; i < node->input_count; ++i)
    if (node->inputs[i] >= 0 && !group->values[node->inputs[i]].constant)
      return false;
  return true;
}

bool rabbet_cpu_filters_match(const rabbet_group_t* group, int64_t least,
                              rabbet_cpu_finish_t* out_finish) {
  if (!rabbet_cpu_filters_fit(group, out_finish)) return false;
  const rabbet_dims_t* w = rabbet_cpu_filters_dims(group);
  return rabbet_node_int(&group->nodes[0], "num_groups") == 1 &&
         w->d[0] >= least && w->d[1] >= least;
}

bool rabbet_cpu_filters_window(const rabbet_group_t* group,
                               rabbet_window_t* out_window) {
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_dims_t* w = rabbet_cpu_filters_dims(group);
  rabbet_status_t status = rabbet_window_read(
      node->attrs, node->op->attr_count, w->rank - 2, w->d + 2, out_window);
  bool fits = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  return fits;
}

rabbet_status_t rabbet_cpu_filters_place(const rabbet_cpu_filters_t* filters,
                                         const rabbet_dims_t* dims,
                                         rabbet_cpu_windows_t* out_windows) {
  const rabbet_group_node_t* node = filters->node.node;
  const rabbet_dims_t *x = &dims[node->inputs[RABBET_CONVOLUTION_INPUT]],
                      *y = &dims[node->outputs[0]];
  const rabbet_dims_t* w = rabbet_cpu_filters_dims(filters->node.group);
  int64_t before[RABBET_MAX_RANK], after[RABBET_MAX_RANK];
  int64_t channels = filters->channels * filters->groups;
  if (x->rank != w->rank || x->d[1] != channels)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': the input has %lld channels; the kernel "
                         "takes %lld",
                         node->name, (long long)x->d[1], (long long)channels);
  rabbet_cpu_windows_t* s = out_windows;
  rabbet_window_t* window = &s->window;
  RABBET_RETURN_IF_ERROR(rabbet_window_read(node->attrs, node->op->attr_count,
                                            x->rank - 2, w->d + 2, window));
  rabbet_window_pads(window, x->d + 2, y->d + 2, before, after);
  int32_t missing = RABBET_CPU_AXES - window->spatial;
  for (int32_t i = RABBET_CPU_AXES - 1; i >= 0; --i) {
    bool there = i >= missing;
    int32_t from = i - missing;
    s->in[i] = there ? x->d[from + 2] : 1;
    s->out[i] = there ? y->d[from + 2] : 1;
    s->before[i] = there ? before[from] : 0;
    window->size[i] = there ? window->size[from] : 1;
    window->stride[i] = there ? window->stride[from] : 1;
    window->dilation[i] = there ? window->dilation[from] : 1;
  }
  s->images = y->d[0];
  return rabbet_ok();
}

rabbet_status_t rabbet_cpu_filters_begin(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         size_t bytes, void** out_state) {
  const rabbet_cpu_filters_t* filters = (const rabbet_cpu_filters_t*)base;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cpu_finish_check(
      filters->node.group, &filters->finish, shapes->dims));
  return rabbet_node_state_allocate(base, bytes, out_state);
}

int64_t rabbet_cpu_filters_taps(const rabbet_group_t* group) {
  const rabbet_dims_t* w = rabbet_cpu_filters_dims(group);
  int64_t taps = 1;
  for (int32_t i = 2; i < w->rank; ++i)
    taps *= w->d[i];
  return taps;
}

int64_t rabbet_cpu_filters_width(const rabbet_cpu_filters_t* filters,
                                 int64_t panel) {
  return rabbet_min_i64(RABBET_PANEL,
                        filters->maps / filters->parts - panel * RABBET_PANEL);
}

void rabbet_cpu_filters_destroy(rabbet_kernel_t* base) {
  rabbet_cpu_filters_t* filters = (rabbet_cpu_filters_t*)base;
  if (!filters) return;
  rabbet_free(filters->node.allocator, filters->weights);
  rabbet_free(filters->node.allocator, filters->bias);
  rabbet_free(filters->node.allocator, filters);
}

// Columns beyond the maps stay zero.
static rabbet_status_t filters_constants(rabbet_cpu_filters_t* filters,
                                         rabbet_cpu_filters_pack_t* pack) {
  const rabbet_group_t* group = filters->node.group;
  const rabbet_group_node_t* node = filters->node.node;
  rabbet_allocator_t allocator = filters->node.allocator;
  size_t columns = (size_t)(filters->parts * filters->panels * RABBET_PANEL);
  size_t bytes =
      columns * (size_t)(filters->planes * filters->channels) * sizeof(float);
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, bytes, (void**)&filters->weights));
  filters->node.base.kept_bytes = bytes;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator, columns * sizeof(float),
                                         (void**)&filters->bias));
  pack(filters,
       group->values[node->inputs[RABBET_CONVOLUTION_KERNEL]].constant);
  int32_t bias = rabbet_node_input(node, RABBET_CONVOLUTION_BIAS);
  if (bias >= 0)
    memcpy(filters->bias, group->values[bias].constant,
           (size_t)filters->maps * sizeof(float));
  for (size_t i = RABBET_CONVOLUTION_KERNEL; i < node->input_count; ++i)
    if (node->inputs[i] >= 0)
      filters->node.base.own_constants |=
          UINT64_C(1) << rabbet_group_input_of(group, node->inputs[i]);
  return rabbet_ok();
}

rabbet_status_t rabbet_cpu_filters_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    int64_t parts, int64_t planes, rabbet_cpu_filters_pack_t* pack,
    rabbet_kernel_t** out_kernel) {
  const rabbet_group_t* group = spec->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  rabbet_cpu_filters_t* filters = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*filters), (void**)&filters));
  filters->node = (rabbet_node_kernel_t){.base = {.kernel_class = kernel_class},
                                         .allocator = spec->allocator,
                                         .group = group,
                                         .node = node};
  bool parsed = rabbet_cpu_finish_parse(group, &filters->finish);
  assert(parsed);  // the class's `takes` has checked it
  (void)parsed;
  const rabbet_dims_t* w = rabbet_cpu_filters_dims(group);
  filters->groups = rabbet_node_int(node, "num_groups");
  filters->maps = w->d[0];
  filters->channels = w->d[1];
  filters->planes = planes;
  filters->parts = parts;
  assert(parts > 0 && filters->maps % parts == 0);
  filters->panels =
      rabbet_ceildiv(filters->maps / parts, (int64_t)RABBET_PANEL);
  rabbet_status_t status = filters_constants(filters, pack);
  if (rabbet_is_ok(status))
    *out_kernel = &filters->node.base;
  else
    rabbet_cpu_filters_destroy(&filters->node.base);
  return status;
}
