// Softmax of DOUBLE, and its logarithm.
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

typedef struct cpu_double_softmax_state_t {
  int64_t rows, count, inner;  // a row's elements are `inner` apart
  bool takes_log;
} cpu_double_softmax_state_t;

static bool double_softmax_is_double(const rabbet_group_t* group) {
  return (rabbet_node_is(group, RABBET_OP_SOFTMAX) ||
          rabbet_node_is_log_softmax(group)) &&
         group->values[group->outputs[0]].dtype == RABBET_DTYPE_DOUBLE;
}

static rabbet_status_t double_softmax_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "rows", 0);
}

static rabbet_status_t cpu_double_softmax_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  if (!double_softmax_is_double(propose->group)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_double_softmax, NULL,
                              double_softmax_body);
}

static rabbet_status_t cpu_double_softmax_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_double_softmax_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_dims_t* x = &shapes->dims[node->inputs[0]];
  int64_t mask = rabbet_node_int(node, "axes");
  int32_t axis = x->rank > 3 ? x->rank - 3 : 0;
  if (mask != 0) axis = __builtin_ctzll((unsigned long long)mask);
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_double_softmax_state_t* s = *out_state;
  s->takes_log = kernel->group->node_count > 1;
  s->count = x->d[axis];
  s->rows = s->inner = 1;
  for (int32_t i = 0; i < x->rank; ++i) {
    if (i != axis) s->rows *= x->d[i];
    if (i > axis) s->inner *= x->d[i];
  }
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct double_softmax_call_t {
  const cpu_double_softmax_state_t* state;
  const double* x;
  double* y;
} double_softmax_call_t;

static void double_softmax_row(const cpu_double_softmax_state_t* s,
                               const double* x, double* y) {
  double highest = -INFINITY, total = 0;
  for (int64_t i = 0; i < s->count; ++i) {
    double v = x[i * s->inner];
    if (v > highest || isnan(v)) highest = v;
  }
  for (int64_t i = 0; i < s->count; ++i) {
    double distance = x[i * s->inner] - highest, e = exp(distance);
    total += e;
    y[i * s->inner] = s->takes_log ? distance : e;
  }
  double shift = log(total);
  for (int64_t i = 0; i < s->count; ++i)
    y[i * s->inner] =
        s->takes_log ? y[i * s->inner] - shift : y[i * s->inner] / total;
}

static void double_softmax_part(void* context, int64_t begin, int64_t end) {
  const double_softmax_call_t* call = context;
  const cpu_double_softmax_state_t* s = call->state;
  for (int64_t row = begin; row < end; ++row) {
    int64_t at = row / s->inner * s->count * s->inner + row % s->inner;
    double_softmax_row(s, call->x + at, call->y + at);
  }
}

static rabbet_status_t cpu_double_softmax_enqueue(
    rabbet_kernel_t* base, cpu_double_softmax_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  enum { EXPENSIVE = 64 };  // bytes that an exponential is worth
  double_softmax_call_t run = {.state = state,
                               .x = rabbet_node_input_at(kernel, call, 0),
                               .y = call->outputs[0]};
  rabbet_cpu_parallel(state->rows,
                      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / EXPENSIVE /
                                            rabbet_max_i64(1, state->count)),
                      double_softmax_part, &run);
  return rabbet_ok();
}

static bool cpu_double_softmax_takes(const rabbet_kernel_spec_t* spec) {
  return double_softmax_is_double(spec->group) &&
         (rabbet_node_is_log_softmax(spec->group)
              ? rabbet_takes_linear(spec->group)
              : rabbet_takes_node(spec->group, RABBET_OP_SOFTMAX, 0));
}

RABBET_NODE_CLASS_WITH(cpu_double_softmax, "cpu.double.softmax", 1,
                       RABBET_KERNEL_DOUBLE);
