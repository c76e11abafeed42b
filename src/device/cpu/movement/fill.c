// Arithmetic sequences and random numbers; threads share the output.
#include "ops/movement/fill.h"

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

typedef struct cpu_fills_state_t {
  rabbet_fill_plan_t plan;
  rabbet_dtype_t dtype;
  int64_t count, beta_count;
} cpu_fills_state_t;

static rabbet_status_t cpu_fills_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "elements", -1);
}

RABBET_PROPOSE_FOR(cpu_fills, FILL)

static rabbet_status_t cpu_fills_prepare(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         cpu_fills_state_t** out_state,
                                         size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_dims_t* out = &shapes->dims[node->outputs[0]];
  int32_t beta = rabbet_node_input(node, 2);
  cpu_fills_state_t made = {.dtype =
                                kernel->group->values[node->outputs[0]].dtype};
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(out, &made.count));
  if (beta >= 0)
    RABBET_RETURN_IF_ERROR(
        rabbet_dims_count(&shapes->dims[beta], &made.beta_count));
  rabbet_fill_read(node->attrs, node->op->attr_count, out, &made.plan);
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(made), (void**)out_state));
  **out_state = made;
  return rabbet_ok();
}

typedef struct fill_call_t {
  const cpu_fills_state_t* state;
  const void *alpha, *beta;
  void* target;
} fill_call_t;

static void fill_part(void* context, int64_t begin, int64_t end) {
  const fill_call_t* call = context;
  rabbet_fill_run(&call->state->plan, call->state->dtype, call->alpha,
                  call->beta, call->state->beta_count, call->target, begin,
                  end);
}

static rabbet_status_t cpu_fills_enqueue(rabbet_kernel_t* base,
                                         cpu_fills_state_t* state,
                                         const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  fill_call_t run = {.state = state,
                     .alpha = rabbet_node_input_at(kernel, call, 1),
                     .beta = rabbet_node_input_at(kernel, call, 2),
                     .target = rabbet_node_output(kernel, call, 0)};
  rabbet_cpu_parallel(state->count, 4096, fill_part, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_fills, FILL, 0)

RABBET_NODE_CLASS_WITH(cpu_fills, "cpu.fill", 1, RABBET_KERNEL_DOUBLE);
