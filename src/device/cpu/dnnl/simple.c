#include "device/cpu/dnnl/simple.h"

#include <stdio.h>

typedef struct first_t {
  int32_t id;
  bool is_reference, found;
  char name[48];
} first_t;

static rabbet_status_t first_visit(
    void* context, const rabbet_dnnl_implementation_t* implementation) {
  first_t* first = context;
  if (first->found) return rabbet_ok();
  first->found = true;
  first->id = implementation->id;
  first->is_reference = implementation->is_reference;
  snprintf(first->name, sizeof(first->name), "%s", implementation->name);
  return rabbet_ok();
}

rabbet_status_t rabbet_dnnl_offer_first(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink,
                                        const rabbet_kernel_class_t* kernel,
                                        const rabbet_dnnl_spec_t* spec,
                                        const rabbet_type_format_t* tensors,
                                        bool in_place) {
  first_t first = {.found = false};
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_enumerate(rabbet_cpu_dnnl(propose->device),
                                               spec, propose->threads,
                                               first_visit, &first));
  if (!first.found || first.is_reference) return rabbet_ok();
  const int32_t over = 0;
  rabbet_candidate_t candidate = {
      .kernel = kernel,
      .tactic = first.id,
      .tensors = tensors,
      .in_place = in_place ? &over : NULL,
  };
  snprintf(candidate.tactic_name, sizeof(candidate.tactic_name), "%s",
           first.name);
  return rabbet_offer(propose, sink, &candidate);
}

rabbet_status_t rabbet_dnnl_compile_simple(rabbet_dnnl_program_t* program,
                                           const rabbet_dnnl_spec_t* spec,
                                           rabbet_dtype_t compute,
                                           const rabbet_dnnl_binding_t* extra,
                                           int extra_count) {
  const rabbet_group_t* group = program->kernel->group;
  rabbet_dnnl_binding_t bindings[8] = {{.arg = RABBET_DNNL_SRC},
                                       {.arg = RABBET_DNNL_DST}};
  rabbet_dnnl_primitive_t* primitive = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_input(program, group->nodes[0].inputs[0],
                                           compute, &bindings[0].ref));
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_begin_output(program, group->outputs[0],
                                                  compute, &bindings[1].ref));
  for (int i = 0; i < extra_count; ++i)
    bindings[2 + i] = extra[i];
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_make(program, spec, program->kernel->tactic, &primitive));
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_run(program, (rabbet_dnnl_when_t){.is = RABBET_DNNL_ALWAYS},
                      primitive, bindings, 2 + extra_count));
  return rabbet_dnnl_end_output(program, group->outputs[0], compute,
                                &bindings[1].ref);
}
