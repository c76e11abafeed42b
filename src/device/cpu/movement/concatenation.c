// Concatenation along an axis. Each input is a contiguous run of the output for
// every position of the axes before. Threads share the output's bytes evenly.
#include <string.h>

#include "device/common/concatenation.h"
#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"

typedef struct cpu_concatenation_state_t {
  int64_t outer;  // positions of the axes before
  int64_t row;    // bytes of all inputs at one position
  size_t input_count;
  // Offsets of the inputs in a row, in bytes, and the row's size.
  int64_t begins[];
} cpu_concatenation_state_t;

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t cpu_concatenation_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = proposal->node;
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  rabbet_dtype_t types[4];
  proposal->keeps_padding = true;
  int count = rabbet_compute_types(proposal->propose,
                                   group->values[node->inputs[0]].dtype, types);
  for (int i = 0; i < 3 * count; ++i) {
    rabbet_format_t format = formats[i % 3];
    if (!rabbet_concatenation_fits(group, format)) continue;
    for (size_t k = 0; k < node->input_count; ++k) {
      rabbet_proposal_set_input(proposal, k, types[i / 3], format);
    }
    rabbet_proposal_set_output(proposal, types[i / 3], format);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "copies", -1));
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cpu_concatenation, CONCATENATION)

// ---- Preparing -------------------------------------------------------------

static rabbet_status_t cpu_concatenation_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_concatenation_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  size_t count = kernel->node->input_count;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_node_state_allocate(
      base, sizeof(**out_state) + (count + 1) * sizeof(int64_t),
      (void**)out_state));
  (*out_state)->input_count = count;
  rabbet_status_t status = rabbet_concatenation_begins(
      kernel, shapes->dims, (*out_state)->begins, &(*out_state)->outer);
  (*out_state)->row = (*out_state)->begins[count];
  if (!rabbet_is_ok(status)) {
    rabbet_node_state_destroy(base, (rabbet_kernel_state_t*)*out_state);
    *out_state = NULL;
  }
  return status;
}

// ---- Running ---------------------------------------------------------------

typedef struct concatenation_call_t {
  const rabbet_node_kernel_t* kernel;
  const cpu_concatenation_state_t* state;
  const rabbet_kernel_call_t* call;
} concatenation_call_t;

// Writes bytes [begin, end) of the output.
static void concatenation_copy(void* context, int64_t begin, int64_t end) {
  const concatenation_call_t* run = context;
  const cpu_concatenation_state_t* state = run->state;
  const rabbet_group_node_t* node = run->kernel->node;
  char* target = run->call->outputs[0];
  int64_t outer = begin / state->row, at = begin % state->row;
  size_t i = 0;
  while (state->begins[i + 1] <= at)
    ++i;
  while (begin < end) {
    int64_t size = state->begins[i + 1] - state->begins[i];
    int64_t count = rabbet_min_i64(state->begins[i + 1] - at, end - begin);
    const char* source = run->call->inputs[rabbet_group_input_of(
        run->kernel->group, node->inputs[i])];
    if (count > 0) {
      rabbet_copy_bytes(target + begin,
                        source + outer * size + at - state->begins[i], count);
    }
    begin += count;
    at += count;
    if (++i < state->input_count) continue;
    i = 0, at = 0, ++outer;
  }
}

static rabbet_status_t cpu_concatenation_enqueue(
    rabbet_kernel_t* base, cpu_concatenation_state_t* state,
    const rabbet_kernel_call_t* call) {
  concatenation_call_t run = {(const rabbet_node_kernel_t*)base, state, call};
  rabbet_cpu_parallel(state->outer * state->row, RABBET_CPU_GRAIN_BYTES,
                      concatenation_copy, &run);
  return rabbet_ok();
}

static bool cpu_concatenation_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_concatenation_takes(spec->group);
}

RABBET_NODE_CLASS_WITH(cpu_concatenation, "cpu.concatenation", 1,
                       RABBET_KERNEL_DOUBLE);
