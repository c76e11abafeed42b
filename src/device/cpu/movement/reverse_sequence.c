// Reverses the first elements of each sequence, one sequence after the other.
#include "ops/movement/reverse_sequence.h"

#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"

typedef struct cpu_reverse_sequence_state_t {
  rabbet_reverse_sequence_t plan;
  bool is_long;
  int64_t sequences, extent;
  int64_t bytes, step;  // of a contiguous step; stride of steps in bytes
} cpu_reverse_sequence_state_t;

static rabbet_status_t cpu_reverse_sequence_body(rabbet_proposal_t* proposal) {
  return rabbet_cpu_offer_same(proposal, RABBET_CPU_OFFER_LINEAR, "sequences",
                               -1);
}

RABBET_PROPOSE_FOR(cpu_reverse_sequence, REVERSE_SEQUENCE)

static rabbet_status_t cpu_reverse_sequence_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_reverse_sequence_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  const rabbet_reverse_sequence_t plan = rabbet_reverse_sequence_plan(
      &shapes->dims[node->inputs[0]], rabbet_node_int(node, "batch_axis"),
      rabbet_node_int(node, "sequence_axis"));
  int64_t size = rabbet_dtype_bits(values[node->inputs[0]].dtype) / 8;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_reverse_sequence_check(&plan, &shapes->dims[node->inputs[1]]),
      "layer '%s'", node->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_reverse_sequence_state_t* state = *out_state;
  state->plan = plan;
  state->is_long = values[node->inputs[1]].dtype == RABBET_DTYPE_INT64;
  state->extent = rabbet_reverse_sequence_extent(&plan);
  state->sequences = plan.outer * plan.middle *
                     (plan.sequence_first ? plan.second : plan.first);
  state->bytes = plan.inner * size;
  state->step = rabbet_reverse_sequence_step(&plan) * size;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct reverse_call_t {
  const cpu_reverse_sequence_state_t* state;
  const char* source;
  const void* lengths;
  char* target;
} reverse_call_t;

static int64_t reverse_length(const reverse_call_t* call, int64_t batch) {
  int64_t length = call->state->is_long
                       ? ((const int64_t*)call->lengths)[batch]
                       : ((const int32_t*)call->lengths)[batch];
  return rabbet_max_i64(0, rabbet_min_i64(length, call->state->extent));
}

// `sequence` counts (outer, batch, middle), or (outer, middle, batch).
static void reverse_one(const reverse_call_t* call, int64_t sequence) {
  const cpu_reverse_sequence_state_t* state = call->state;
  const rabbet_reverse_sequence_t* plan = &state->plan;
  int64_t lying = plan->sequence_first ? plan->middle * plan->second : 1;
  int64_t batch = plan->sequence_first ? sequence % plan->second
                                       : sequence / plan->middle % plan->first;
  int64_t offset = sequence / lying * state->extent * state->step +
                   sequence % lying * state->bytes;
  int64_t length = reverse_length(call, batch);
  const char* from = call->source + offset + (length - 1) * state->step;
  char* to = call->target + offset;
  for (int64_t i = 0; i < length; ++i, from -= state->step, to += state->step)
    rabbet_copy_bytes(to, from, state->bytes);
  from = call->source + offset + length * state->step;
  for (int64_t i = length; i < state->extent;
       ++i, from += state->step, to += state->step)
    rabbet_copy_bytes(to, from, state->bytes);
}

static void reverse_items(void* context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    reverse_one(context, i);
}

static rabbet_status_t cpu_reverse_sequence_enqueue(
    rabbet_kernel_t* base, cpu_reverse_sequence_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  reverse_call_t run = {.state = state,
                        .source = rabbet_node_input_at(kernel, call, 0),
                        .lengths = rabbet_node_input_at(kernel, call, 1),
                        .target = rabbet_node_output(kernel, call, 0)};
  int64_t bytes = rabbet_max_i64(1, state->extent * state->bytes);
  rabbet_cpu_parallel(state->sequences,
                      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / bytes),
                      reverse_items, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_reverse_sequence, REVERSE_SEQUENCE, 0)

RABBET_NODE_CLASS_WITH(cpu_reverse_sequence, "cpu.reverse_sequence", 1,
                       RABBET_KERNEL_DOUBLE);
