#include "device/common/node_kernel.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ops/enums.h"

bool rabbet_node_is(const rabbet_group_t* group, rabbet_op_id_t op) {
  return group->node_count == 1 && rabbet_op_is(group->nodes[0].op, op);
}

bool rabbet_node_is_log_softmax(const rabbet_group_t* group) {
  return group->node_count == 2 && group->output_count == 1 &&
         rabbet_op_is(group->nodes[0].op, RABBET_OP_SOFTMAX) &&
         rabbet_op_is(group->nodes[1].op, RABBET_OP_UNARY) &&
         rabbet_node_int(&group->nodes[1], "op") == RABBET_UNARY_LOG &&
         group->nodes[1].inputs[0] == group->nodes[0].outputs[0] &&
         group->outputs[0] == group->nodes[1].outputs[0];
}

bool rabbet_node_reads(const rabbet_group_node_t* node, int32_t value) {
  for (size_t i = 0; i < node->input_count; ++i)
    if (node->inputs[i] == value) return true;
  return false;
}

bool rabbet_group_reads_first(const rabbet_group_t* group, int32_t a,
                              int32_t b) {
  for (size_t i = 0; i < group->node_count; ++i) {
    if (rabbet_node_reads(&group->nodes[i], a)) return true;
    if (rabbet_node_reads(&group->nodes[i], b)) return false;
  }
  return true;
}

int32_t rabbet_node_output_of(const rabbet_group_t* group,
                              const rabbet_group_node_t* node, size_t index) {
  assert(index < node->output_count);
  for (size_t i = 0; i < group->output_count; ++i)
    if (group->outputs[i] == node->outputs[index]) return (int32_t)i;
  return -1;
}

void rabbet_node_eval(const rabbet_group_t* group, const rabbet_dims_t* dims,
                      const int64_t* const* host_values,
                      rabbet_allocator_t allocator, rabbet_view_t* views,
                      rabbet_op_eval_t* out_eval) {
  assert(group->node_count > 0);
  rabbet_group_node_eval(group, &group->nodes[0], dims, host_values, allocator,
                         views, out_eval);
}

void rabbet_group_node_eval(const rabbet_group_t* group,
                            const rabbet_group_node_t* node,
                            const rabbet_dims_t* dims,
                            const int64_t* const* host_values,
                            rabbet_allocator_t allocator, rabbet_view_t* views,
                            rabbet_op_eval_t* out_eval) {
  for (size_t i = 0; i < node->input_count + node->output_count; ++i) {
    int32_t value = i < node->input_count
                        ? node->inputs[i]
                        : node->outputs[i - node->input_count];
    views[i] = (rabbet_view_t){.dtype = RABBET_DTYPE_NONE};
    if (value < 0) continue;
    views[i].dtype = group->values[value].dtype;
    views[i].format = RABBET_FORMAT_LINEAR;
    views[i].dims = dims[value];
    views[i].data = (void*)(uintptr_t)group->values[value].constant;
    if (host_values && host_values[value]) {
      views[i].dtype = RABBET_DTYPE_INT64;
      views[i].data = (void*)(uintptr_t)host_values[value];
    }
  }
  *out_eval = (rabbet_op_eval_t){.op = node->op,
                                 .allocator = allocator,
                                 .attrs = node->attrs,
                                 .attr_count = node->op->attr_count,
                                 .inputs = views,
                                 .input_count = node->input_count,
                                 .outputs = views + node->input_count,
                                 .output_count = node->output_count};
}

// ---- Proposing -------------------------------------------------------------

rabbet_status_t rabbet_proposal_make(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink,
    const rabbet_kernel_class_t* kernel, void* context,
    rabbet_status_t (*body)(rabbet_proposal_t* proposal)) {
  const rabbet_group_t* group = propose->group;
  assert(group->node_count > 0 && kernel);
  rabbet_proposal_t proposal = {.propose = propose,
                                .sink = sink,
                                .kernel = kernel,
                                .node = &group->nodes[0],
                                .context = context};
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      propose->allocator,
      sizeof(rabbet_type_format_t) * (group->input_count + group->output_count),
      (void**)&proposal.tensors));
  rabbet_network_tensors(group, proposal.tensors);
  rabbet_status_t status = body(&proposal);
  rabbet_free(propose->allocator, proposal.tensors);
  return status;
}

rabbet_status_t rabbet_proposal_make_for(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink,
    rabbet_op_id_t op, const rabbet_kernel_class_t* kernel,
    rabbet_status_t (*body)(rabbet_proposal_t* proposal)) {
  if (!rabbet_node_is(propose->group, op)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, kernel, NULL, body);
}

void rabbet_proposal_set_input(rabbet_proposal_t* proposal, size_t input,
                               rabbet_dtype_t dtype, rabbet_format_t format) {
  int32_t value = rabbet_node_input(proposal->node, input);
  if (value < 0) return;
  int32_t at = rabbet_group_input_of(proposal->propose->group, value);
  assert(at >= 0);  // a node's inputs are the group's here
  proposal->tensors[at] = (rabbet_type_format_t){dtype, format};
}

void rabbet_proposal_set_output(rabbet_proposal_t* proposal,
                                rabbet_dtype_t dtype, rabbet_format_t format) {
  assert(proposal->propose->group->output_count > 0);
  proposal->tensors[proposal->propose->group->input_count] =
      (rabbet_type_format_t){dtype, format};
}

// Of output `index` of a node with several outputs, if it is used.
static void proposal_set_node_output(rabbet_proposal_t* proposal, size_t index,
                                     rabbet_dtype_t dtype,
                                     rabbet_format_t format) {
  const rabbet_group_t* group = proposal->propose->group;
  int32_t at = rabbet_node_output_of(group, proposal->node, index);
  if (at >= 0)
    proposal->tensors[group->input_count + (size_t)at] =
        (rabbet_type_format_t){dtype, format};
}

rabbet_status_t rabbet_proposal_offer_linear(rabbet_proposal_t* proposal,
                                             const char* tactic_name,
                                             int32_t in_place) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = proposal->node;
  rabbet_dtype_t types[4], network = group->values[node->inputs[0]].dtype;
  int count = rabbet_compute_types(proposal->propose, network, types);
  assert(count >= 1 && count <= 4);
  for (int t = 0; t < count; ++t) {
    for (size_t i = 0; i < node->input_count; ++i)
      if (node->inputs[i] >= 0 &&
          group->values[node->inputs[i]].dtype == network)
        rabbet_proposal_set_input(proposal, i, types[t], RABBET_FORMAT_LINEAR);
    for (size_t i = 0; i < node->output_count; ++i)
      if (group->values[node->outputs[i]].dtype == network)
        proposal_set_node_output(proposal, i, types[t], RABBET_FORMAT_LINEAR);
    RABBET_RETURN_IF_ERROR(
        rabbet_proposal_offer(proposal, tactic_name, in_place));
  }
  return rabbet_ok();
}

// How many of the node's inputs are this value.
static int node_reads(const rabbet_group_node_t* node, int32_t value) {
  int reads = 0;
  for (size_t i = 0; i < node->input_count; ++i) {
    reads += node->inputs[i] == value;
  }
  return reads;
}

static bool proposal_is_filled(const rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t value = rabbet_group_boundary(group, i);
    if (!rabbet_format_is_filled(&group->values[value],
                                 proposal->tensors[i].format))
      return false;
  }
  return true;
}

rabbet_status_t rabbet_proposal_offer(rabbet_proposal_t* proposal,
                                      const char* tactic_name,
                                      int32_t in_place) {
  const rabbet_group_t* group = proposal->propose->group;
  assert(in_place < (int32_t)group->input_count);
  if (!proposal->keeps_padding && !proposal_is_filled(proposal))
    return rabbet_ok();
  if (in_place >= 0 &&
      (group->values[group->inputs[in_place]].constant ||
       node_reads(proposal->node, group->inputs[in_place]) > 1)) {
    in_place = -1;
  }
  rabbet_candidate_t candidate = {.kernel = proposal->kernel,
                                  .tensors = proposal->tensors,
                                  .in_place = in_place < 0 ? NULL : &in_place};
  snprintf(candidate.tactic_name, sizeof(candidate.tactic_name), "%s",
           tactic_name);
  return rabbet_offer(proposal->propose, proposal->sink, &candidate);
}

// ---- The kernel ------------------------------------------------------------

rabbet_status_t rabbet_node_kernel_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    rabbet_kernel_t** out_kernel) {
  *out_kernel = NULL;
  if (spec->group->node_count == 0) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a group without layers has no kernel");
  }
  rabbet_node_kernel_t* kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  assert(!kernel_class->takes || kernel_class->takes(spec));
  kernel->base.kernel_class = kernel_class;
  kernel->allocator = spec->allocator;
  kernel->group = spec->group;
  kernel->node = &spec->group->nodes[0];
  *out_kernel = &kernel->base;
  return rabbet_ok();
}

void rabbet_node_kernel_destroy(rabbet_kernel_t* kernel) {
  if (kernel) rabbet_free(((rabbet_node_kernel_t*)kernel)->allocator, kernel);
}

rabbet_status_t rabbet_node_state_allocate(rabbet_kernel_t* kernel, size_t size,
                                           void** out_state) {
  return rabbet_allocate(((rabbet_node_kernel_t*)kernel)->allocator, size,
                         out_state);
}

void rabbet_node_state_destroy(rabbet_kernel_t* kernel,
                               rabbet_kernel_state_t* state) {
  rabbet_free(((rabbet_node_kernel_t*)kernel)->allocator, state);
}

rabbet_status_t rabbet_node_state_finish(rabbet_kernel_t* kernel, void* state,
                                         rabbet_status_t status,
                                         void** out_state) {
  assert(state || !rabbet_is_ok(status));
  if (!rabbet_is_ok(status)) {
    rabbet_node_state_destroy(kernel, state);
    state = NULL;
  }
  *out_state = state;
  return status;
}
