// Concatenation in any format, by oneDNN. Elements are only moved, so only the
// size of types matters.
#include <string.h>

#include "device/common/concatenation.h"
#include "device/cpu/dnnl/simple.h"

static rabbet_dtype_t concat_type(rabbet_dtype_t dtype) {
  switch (rabbet_dtype_bits(dtype)) {
    case 8:
      return RABBET_DTYPE_UINT8;
    case 16:
      return RABBET_DTYPE_BF16;
    case 32:
      return RABBET_DTYPE_FLOAT;
    default:
      return RABBET_DTYPE_NONE;
  }
}

static int concat_axis(const rabbet_group_node_t* node, int32_t rank) {
  int64_t axis = rabbet_attr_int(node->attrs, node->op->attr_count, "axis", 0);
  return (int)(axis < 0 ? axis + rank : axis);
}

// Whether each input begins at a block of channels.
static bool concat_keeps_blocks(const rabbet_group_t* group,
                                rabbet_format_t format, int axis) {
  const rabbet_group_node_t* node = &group->nodes[0];
  for (size_t i = 0; axis == 1 && i < node->input_count; ++i) {
    if (!rabbet_format_is_filled(&group->values[node->inputs[i]], format))
      return false;
  }
  return true;
}

// Empty inputs are left out: oneDNN rejects them.
static bool concat_takes(const rabbet_dims_t* dims) {
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (dims->d[i] == 0) return false;
  }
  return true;
}

static void concat_spec(const rabbet_group_t* group, const rabbet_dims_t* dims,
                        rabbet_format_t format, rabbet_dnnl_layout_t* sources,
                        rabbet_dnnl_spec_t* spec) {
  const rabbet_group_node_t* node = &group->nodes[0];
  int32_t y = node->outputs[0];
  rabbet_dtype_t as = concat_type(group->values[y].dtype);
  int count = 0;
  for (size_t i = 0; i < node->input_count; ++i) {
    if (!concat_takes(&dims[node->inputs[i]])) continue;
    sources[count++] = rabbet_dnnl_layout(as, format, &dims[node->inputs[i]]);
  }
  *spec = (rabbet_dnnl_spec_t){
      .kind = RABBET_DNNL_CONCAT,
      .axis = concat_axis(node, dims[y].rank),
      .dst = rabbet_dnnl_layout(as, format, &dims[y]),
      .sources = sources,
      .source_count = count,
  };
}

static bool concat_matches(const rabbet_group_t* group) {
  if (group->node_count != 1 || group->output_count != 1 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_CONCATENATION) ||
      group->nodes[0].input_count > RABBET_DNNL_MAX_SOURCES) {
    return false;
  }
  return concat_type(group->values[group->outputs[0]].dtype) !=
         RABBET_DTYPE_NONE;
}

static rabbet_status_t concat_offer(const rabbet_propose_t* propose,
                                    rabbet_candidate_sink_t sink,
                                    const rabbet_dims_t* dims,
                                    rabbet_dtype_t dtype,
                                    rabbet_format_t format) {
  const rabbet_group_t* group = propose->group;
  int32_t rank = dims[group->outputs[0]].rank;
  int axis = concat_axis(&group->nodes[0], rank);
  if (!rabbet_dnnl_has_format(format, rank) ||
      !concat_keeps_blocks(group, format, axis)) {
    return rabbet_ok();
  }
  rabbet_type_format_t tensors[RABBET_DNNL_MAX_SOURCES + 1];
  rabbet_dnnl_layout_t sources[RABBET_DNNL_MAX_SOURCES];
  rabbet_dnnl_spec_t spec;
  for (size_t i = 0; i <= group->input_count; ++i)
    tensors[i] = (rabbet_type_format_t){dtype, format};
  concat_spec(group, dims, format, sources, &spec);
  if (spec.source_count == 0) return rabbet_ok();
  // A constant keeps the network's type, which may have another size.
  rabbet_dtype_t as = concat_type(dtype);
  for (int i = 0; i < spec.source_count; ++i)
    sources[i].dtype = as;
  spec.dst.dtype = as;
  return rabbet_dnnl_offer_first(propose, sink, &rabbet_cpu_dnnl_concat, &spec,
                                 tensors, false);
}

// Whether an input is a constant: constants stay LINEAR and of the network's
// type.
static bool concat_has_constant(const rabbet_group_t* group) {
  for (size_t i = 0; i < group->input_count; ++i) {
    if (group->values[group->inputs[i]].constant) return true;
  }
  return false;
}

static rabbet_status_t cpu_dnnl_concat_propose(const rabbet_propose_t* propose,
                                               rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (!concat_matches(group)) return rabbet_ok();
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  bool constant = concat_has_constant(group);
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      propose, group->values[group->outputs[0]].dtype, types);
  rabbet_dims_t* dims = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, propose->allocator, &dims));
  rabbet_status_t status = rabbet_ok();
  for (int i = 0; i < (constant ? 1 : count); ++i) {
    for (size_t f = 0; f < (constant ? 1 : 3) && rabbet_is_ok(status); ++f)
      status = concat_offer(propose, sink, dims, types[i], formats[f]);
  }
  rabbet_free(propose->allocator, dims);
  return status;
}

static rabbet_status_t cpu_dnnl_concat_compile(rabbet_dnnl_program_t* program) {
  const rabbet_group_t* group = program->kernel->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  int32_t y = group->outputs[0];
  rabbet_dtype_t dtype = group->values[y].dtype;
  rabbet_dnnl_layout_t sources[RABBET_DNNL_MAX_SOURCES];
  rabbet_dnnl_binding_t bindings[RABBET_DNNL_MAX_SOURCES + 1];
  rabbet_dnnl_spec_t spec;
  rabbet_dnnl_primitive_t* primitive = NULL;
  concat_spec(group, program->shapes->dims, group->values[y].format, sources,
              &spec);
  int count = 0;
  for (size_t i = 0; i < node->input_count; ++i) {
    if (!concat_takes(&program->shapes->dims[node->inputs[i]])) continue;
    bindings[count].arg = RABBET_DNNL_SOURCE(count);
    RABBET_RETURN_IF_ERROR(rabbet_dnnl_input(program, node->inputs[i], dtype,
                                             &bindings[count++].ref));
  }
  bindings[count].arg = RABBET_DNNL_DST;
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_begin_output(program, y, dtype, &bindings[count].ref));
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_make(program, &spec, program->kernel->tactic, &primitive));
  return rabbet_dnnl_run(program,
                         (rabbet_dnnl_when_t){.is = RABBET_DNNL_ALWAYS},
                         primitive, bindings, count + 1);
}

static bool cpu_dnnl_concat_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_concatenation_takes(spec->group) && concat_matches(spec->group);
}

RABBET_DNNL_CLASS(cpu_dnnl_concat, "dnnl.concat", 1);
