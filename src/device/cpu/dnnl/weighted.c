#include "device/cpu/dnnl/weighted.h"

#include <assert.h>

static rabbet_status_t allocate_scratch(rabbet_allocator_t allocator,
                                        const rabbet_quantized_t* quantized,
                                        float** out_scratch) {
  assert(quantized->w_count >= 0);
  size_t bytes = 2 * (size_t)quantized->w_count * sizeof(**out_scratch);
  return rabbet_allocate(allocator, bytes, (void**)out_scratch);
}

rabbet_status_t rabbet_dnnl_weighted_propose(
    const rabbet_dnnl_weighted_t* family, const rabbet_propose_t* propose,
    rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_quantized_t quantized;
  bool bytes = rabbet_quantized_parse(group, family->op, &quantized);
  if (!bytes && !family->matches(group)) return rabbet_ok();
  rabbet_dtype_t types[4] = {RABBET_DTYPE_FLOAT};
  int count = 1;
  if (!bytes) {
    count = rabbet_compute_types(
        propose, group->values[group->nodes[0].inputs[0]].dtype, types);
  }
  rabbet_dims_t* dims = NULL;
  rabbet_type_format_t* tensors = NULL;
  float* scratch = NULL;
  rabbet_status_t status =
      rabbet_group_opt_dims(group, propose->allocator, &dims);
  if (rabbet_is_ok(status) && bytes)
    status = allocate_scratch(propose->allocator, &quantized, &scratch);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(
        propose->allocator,
        sizeof(*tensors) * (group->input_count + group->output_count),
        (void**)&tensors);
  assert(count >= 1 && count <= (int)(sizeof(types) / sizeof(types[0])));
  const rabbet_dnnl_weighted_offer_t offer = {
      propose, sink, dims, tensors, bytes ? &quantized : NULL, scratch};
  for (int i = 0; rabbet_is_ok(status) && i < count; ++i)
    status = family->offer(&offer, types[i]);
  rabbet_free(propose->allocator, scratch);
  rabbet_free(propose->allocator, tensors);
  rabbet_free(propose->allocator, dims);
  return status;
}

rabbet_status_t rabbet_dnnl_weighted_compile(
    const rabbet_dnnl_weighted_t* family, rabbet_dnnl_program_t* program) {
  const rabbet_group_t* group = program->kernel->group;
  rabbet_quantized_t quantized;
  // An empty input: all windows lie in the padding, or K is 0, and the product
  // is all zeros.
  if (rabbet_dnnl_has_empty_input(program))
    return rabbet_dnnl_by_reference(program);
  if (!rabbet_quantized_parse(group, family->op, &quantized)) {
    if (!family->matches(group))
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "the group holds no %s that oneDNN does",
                           family->noun);
    return family->compile(program, group, NULL, NULL);
  }
  float* scratch = NULL;
  RABBET_RETURN_IF_ERROR(
      allocate_scratch(program->kernel->allocator, &quantized, &scratch));
  rabbet_status_t status =
      family->compile(program, &quantized.plain, &quantized, scratch);
  rabbet_free(program->kernel->allocator, scratch);
  return status;
}
