// Conversions between formats and floating types (groups of one identity or
// cast), by oneDNN.
#include "device/cpu/dnnl/simple.h"

// The type in which oneDNN moves or converts elements; NONE: none. A move
// without conversion uses any type of the same size. Conversions that oneDNN
// lacks go through FLOAT.
static rabbet_dtype_t reorder_type(rabbet_dtype_t from, rabbet_dtype_t to) {
  if (from == to) {
    int bits = rabbet_dtype_bits(from);
    if (from == RABBET_DTYPE_INT4 || from == RABBET_DTYPE_FP4 ||
        from == RABBET_DTYPE_NF4)
      return RABBET_DTYPE_NONE;
    return bits == 8    ? RABBET_DTYPE_UINT8
           : bits == 16 ? RABBET_DTYPE_BF16
           : bits == 32 ? RABBET_DTYPE_INT32
                        : RABBET_DTYPE_NONE;
  }
  bool reals = (from == RABBET_DTYPE_FLOAT || from == RABBET_DTYPE_HALF ||
                from == RABBET_DTYPE_BF16) &&
               (to == RABBET_DTYPE_FLOAT || to == RABBET_DTYPE_HALF ||
                to == RABBET_DTYPE_BF16);
  return reals ? RABBET_DTYPE_FLOAT : RABBET_DTYPE_NONE;
}

typedef struct reorder_case_t {
  rabbet_type_format_t from, to;
  rabbet_dtype_t as;  // type of the moved elements; conversions around it
  rabbet_dnnl_spec_t spec;
} reorder_case_t;

// oneDNN's reorder converts between FLOAT and BF16 itself.
static rabbet_dtype_t reorder_side(rabbet_dtype_t own, rabbet_dtype_t as) {
  return as == RABBET_DTYPE_FLOAT && own == RABBET_DTYPE_BF16 ? own : as;
}

static bool reorder_describe(rabbet_type_format_t from, rabbet_type_format_t to,
                             const rabbet_dims_t* dims, reorder_case_t* c) {
  *c = (reorder_case_t){
      .from = from, .to = to, .as = reorder_type(from.dtype, to.dtype)};
  if (c->as == RABBET_DTYPE_NONE || dims->rank < 1 ||
      !rabbet_dnnl_has_format(from.format, dims->rank) ||
      !rabbet_dnnl_has_format(to.format, dims->rank)) {
    return false;
  }
  c->spec.kind = RABBET_DNNL_REORDER;
  c->spec.src =
      rabbet_dnnl_layout(reorder_side(from.dtype, c->as), from.format, dims);
  c->spec.dst =
      rabbet_dnnl_layout(reorder_side(to.dtype, c->as), to.format, dims);
  return true;
}

static rabbet_status_t cpu_dnnl_reorder_propose(const rabbet_propose_t* propose,
                                                rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (group->node_count != 1 || group->input_count != 1 ||
      group->output_count != 1 ||
      !(rabbet_op_is(group->nodes[0].op, RABBET_OP_IDENTITY) ||
        rabbet_op_is(group->nodes[0].op, RABBET_OP_CAST))) {
    return rabbet_ok();
  }
  rabbet_type_format_t tensors[2];
  rabbet_network_tensors(group, tensors);
  for (int i = 0; propose->fixed && i < 2; ++i)
    tensors[i] = propose->fixed[i];
  reorder_case_t c;
  if (!reorder_describe(tensors[0], tensors[1],
                        &group->values[group->inputs[0]].dims, &c)) {
    return rabbet_ok();
  }
  return rabbet_dnnl_offer_first(propose, sink, &rabbet_cpu_dnnl_reorder,
                                 &c.spec, tensors, false);
}

static rabbet_status_t cpu_dnnl_reorder_compile(
    rabbet_dnnl_program_t* program) {
  const rabbet_group_t* group = program->kernel->group;
  int32_t x = group->inputs[0], y = group->outputs[0];
  const rabbet_group_value_t* from = &group->values[x];
  const rabbet_group_value_t* to = &group->values[y];
  reorder_case_t c;
  if (!reorder_describe((rabbet_type_format_t){from->dtype, from->format},
                        (rabbet_type_format_t){to->dtype, to->format},
                        rabbet_dnnl_dims(program, x), &c)) {
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED, "oneDNN does not convert %s %s to %s %s",
        rabbet_dtype_name(from->dtype), rabbet_format_name(from->format),
        rabbet_dtype_name(to->dtype), rabbet_format_name(to->format));
  }
  // Equal types need no conversion.
  bool moves = from->dtype == to->dtype;
  rabbet_dtype_t in = moves ? from->dtype : c.spec.src.dtype;
  rabbet_dtype_t out = moves ? to->dtype : c.spec.dst.dtype;
  rabbet_dnnl_binding_t bindings[] = {{.arg = RABBET_DNNL_SRC},
                                      {.arg = RABBET_DNNL_DST}};
  rabbet_dnnl_primitive_t* primitive = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_input(program, x, in, &bindings[0].ref));
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_begin_output(program, y, out, &bindings[1].ref));
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_make(program, &c.spec, program->kernel->tactic, &primitive));
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_run(program, (rabbet_dnnl_when_t){.is = RABBET_DNNL_ALWAYS},
                      primitive, bindings, 2));
  return rabbet_dnnl_end_output(program, y, out, &bindings[1].ref);
}

static bool cpu_dnnl_reorder_takes(const rabbet_kernel_spec_t* spec) {
  const uint32_t rules = RABBET_TAKES_FORMATS | RABBET_TAKES_ANY_TYPES;
  return rabbet_takes_node(spec->group, RABBET_OP_CAST, rules) ||
         rabbet_takes_node(spec->group, RABBET_OP_IDENTITY, rules);
}

RABBET_DNNL_CLASS(cpu_dnnl_reorder, "dnnl.reorder", 1);
