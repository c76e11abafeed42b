// Normalization over the last axes, done by oneDNN.
#include "device/cpu/dnnl/simple.h"

enum { INPUT = 0, SCALE = 1, BIAS = 2 };

// The first normalized axis if these are the last axes, else -1.
static int layer_norm_axis(const rabbet_group_node_t* node, int32_t rank) {
  size_t count = node->op->attr_count;
  int64_t mask = rabbet_attr_int(node->attrs, count, "axes", 0);
  if (rabbet_attr_int(node->attrs, count, "num_groups", 1) != 1) return -1;
  for (int axis = 0; axis < rank; ++axis) {
    if (mask == (INT64_C(1) << rank) - (INT64_C(1) << axis)) return axis;
  }
  return -1;
}

// Whether scale or bias has one element for each normalized element.
static bool layer_norm_takes(const rabbet_dims_t* given, const rabbet_dims_t* x,
                             int axis) {
  if (given->rank != x->rank) return false;
  for (int i = 0; i < x->rank; ++i) {
    if (given->d[i] != (i < axis ? 1 : x->d[i])) return false;
  }
  return true;
}

static int32_t layer_norm_value(const rabbet_group_node_t* node, size_t index) {
  return index < node->input_count ? node->inputs[index] : -1;
}

// One layer that normalizes over its last axes, with scale and bias: oneDNN has
// both or neither in its fast code.
static bool layer_norm_is_one(const rabbet_group_t* group, int* out_axis) {
  const rabbet_group_node_t* node = &group->nodes[0];
  if (!rabbet_node_is(group, RABBET_OP_NORMALIZATION) ||
      rabbet_node_int(node, "is_rms"))
    return false;
  *out_axis =
      layer_norm_axis(node, group->values[node->inputs[INPUT]].dims.rank);
  return *out_axis >= 0 && layer_norm_value(node, SCALE) >= 0 &&
         layer_norm_value(node, BIAS) >= 0;
}

static bool layer_norm_matches(const rabbet_group_t* group, int* out_axis) {
  if (!layer_norm_is_one(group, out_axis)) return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  for (size_t i = SCALE; i <= BIAS; ++i)
    if (!layer_norm_takes(&group->values[node->inputs[i]].max,
                          &group->values[node->inputs[INPUT]].max, *out_axis))
      return false;
  return true;
}

static rabbet_dnnl_spec_t layer_norm_spec(const rabbet_group_node_t* node,
                                          rabbet_dtype_t dtype,
                                          const rabbet_dims_t* x, int axis) {
  rabbet_dims_t flat = {.rank = 2, .d = {1, 1}};
  for (int i = 0; i < x->rank; ++i)
    flat.d[i < axis ? 0 : 1] *= x->d[i];
  rabbet_dnnl_spec_t spec = {
      .kind = RABBET_DNNL_LAYER_NORM,
      .has_scale = true,
      .has_shift = true,
      .epsilon = (float)rabbet_attr_float(node->attrs, node->op->attr_count,
                                          "epsilon", 1e-5),
  };
  spec.src = spec.dst = rabbet_dnnl_layout(dtype, RABBET_FORMAT_LINEAR, &flat);
  return spec;
}

static rabbet_status_t cpu_dnnl_layer_norm_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (group->node_count != 1 || group->nodes[0].input_count != 3)
    return rabbet_ok();
  const rabbet_group_value_t* x = &group->values[group->nodes[0].inputs[INPUT]];
  int axis = 0;
  if (!layer_norm_matches(group, &axis)) return rabbet_ok();
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(propose, x->dtype, types);
  for (int i = 0; i < count; ++i) {
    rabbet_type_format_t tensors[4];
    rabbet_network_tensors(group, tensors);
    for (size_t t = 0; t < group->input_count; ++t) {
      if (!group->values[group->inputs[t]].constant)
        tensors[t].dtype = types[i];
    }
    tensors[group->input_count].dtype = types[i];
    rabbet_dnnl_spec_t spec = layer_norm_spec(
        &group->nodes[0], rabbet_dnnl_compute_type(types[i]), &x->dims, axis);
    RABBET_RETURN_IF_ERROR(rabbet_dnnl_offer_first(
        propose, sink, &rabbet_cpu_dnnl_layer_norm, &spec, tensors,
        group->inputs[0] == group->nodes[0].inputs[INPUT]));
  }
  return rabbet_ok();
}

static rabbet_status_t cpu_dnnl_layer_norm_compile(
    rabbet_dnnl_program_t* program) {
  const rabbet_group_t* group = program->kernel->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  int32_t x = node->inputs[INPUT];
  const rabbet_dims_t* dims = rabbet_dnnl_dims(program, x);
  rabbet_dtype_t compute = rabbet_dnnl_compute_type(group->values[x].dtype);
  int axis = layer_norm_axis(node, dims->rank);
  // Scales that are broadcast only for these shapes.
  for (size_t i = SCALE; i <= BIAS; ++i)
    if (!layer_norm_takes(rabbet_dnnl_dims(program, node->inputs[i]), dims,
                          axis))
      return rabbet_dnnl_by_reference(program);
  rabbet_dnnl_spec_t spec = layer_norm_spec(node, compute, dims, axis);
  rabbet_dnnl_binding_t extra[] = {{.arg = RABBET_DNNL_SCALE},
                                   {.arg = RABBET_DNNL_SHIFT}};
  for (size_t i = 0; i < 2; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_dnnl_input(
        program, node->inputs[SCALE + i], RABBET_DTYPE_FLOAT, &extra[i].ref));
  return rabbet_dnnl_compile_simple(program, &spec, compute, extra, 2);
}

static bool cpu_dnnl_layer_norm_takes(const rabbet_kernel_spec_t* spec) {
  int axis = 0;
  return rabbet_takes_node(spec->group, RABBET_OP_NORMALIZATION,
                           RABBET_TAKES_OTHER_TYPES) &&
         rabbet_takes_reals(spec->group) &&
         layer_norm_is_one(spec->group, &axis);
}

RABBET_DNNL_CLASS(cpu_dnnl_layer_norm, "dnnl.layer_norm", 1);
