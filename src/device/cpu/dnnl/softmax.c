// Softmax over one axis, by oneDNN in FLOAT, since its BF16 code rounds twice.
#include "base/math.h"
#include "device/cpu/dnnl/simple.h"

// The axis of the layer's mask; if that is 0, the third from the end, or the
// first. -1: the mask has several axes.
static int softmax_axis(const rabbet_group_node_t* node, int32_t rank) {
  int64_t mask = rabbet_attr_int(node->attrs, node->op->attr_count, "axes", 0);
  if (mask == 0) return rank > 3 ? rank - 3 : 0;
  for (int axis = 0; axis < rank; ++axis) {
    if (mask == (INT64_C(1) << axis)) return axis;
  }
  return -1;
}

static rabbet_dnnl_spec_t softmax_spec(rabbet_dtype_t dtype,
                                       rabbet_format_t format,
                                       const rabbet_dims_t* dims, int axis) {
  rabbet_dnnl_spec_t spec = {.kind = RABBET_DNNL_SOFTMAX, .axis = axis};
  spec.src = spec.dst = rabbet_dnnl_layout(dtype, format, dims);
  return spec;
}

static rabbet_status_t cpu_dnnl_softmax_propose(const rabbet_propose_t* propose,
                                                rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (group->node_count != 1 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_SOFTMAX)) {
    return rabbet_ok();
  }
  const rabbet_group_value_t* x = &group->values[group->inputs[0]];
  int axis = softmax_axis(&group->nodes[0], x->dims.rank);
  if (x->dims.rank < 1 || axis < 0) return rabbet_ok();
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC};
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(propose, x->dtype, types);
  for (int i = 0; i < 2 * count; ++i) {
    rabbet_format_t format = formats[i % 2];
    if (format == RABBET_FORMAT_HWC && (x->dims.rank < 3 || axis != 1))
      continue;
    rabbet_dnnl_spec_t spec =
        softmax_spec(RABBET_DTYPE_FLOAT, format, &x->dims, axis);
    const rabbet_type_format_t tensors[] = {{types[i / 2], format},
                                            {types[i / 2], format}};
    RABBET_RETURN_IF_ERROR(rabbet_dnnl_offer_first(
        propose, sink, &rabbet_cpu_dnnl_softmax, &spec, tensors, true));
  }
  return rabbet_ok();
}

static rabbet_status_t cpu_dnnl_softmax_compile(
    rabbet_dnnl_program_t* program) {
  const rabbet_group_t* group = program->kernel->group;
  int32_t x = group->inputs[0];
  const rabbet_dims_t* dims = rabbet_dnnl_dims(program, x);
  rabbet_dnnl_spec_t spec =
      softmax_spec(RABBET_DTYPE_FLOAT, group->values[x].format, dims,
                   softmax_axis(&group->nodes[0], dims->rank));
  return rabbet_dnnl_compile_simple(program, &spec, RABBET_DTYPE_FLOAT, NULL,
                                    0);
}

static bool cpu_dnnl_softmax_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_takes_node(spec->group, RABBET_OP_SOFTMAX,
                           RABBET_TAKES_ONE_FORMAT) &&
         rabbet_takes_reals(spec->group);
}

RABBET_DNNL_CLASS(cpu_dnnl_softmax, "dnnl.softmax", 1);
