// Reductions of DOUBLE.
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "ops/enums.h"

// The axes that are left, and those that are reduced, the last ones first,
// without the tensor's last axis. If that is left, a row of it is reduced at
// once.
typedef struct cpu_double_reduce_state_t {
  int64_t op;
  rabbet_dims_t left, reduced;
  int64_t left_strides[RABBET_MAX_RANK], reduced_strides[RABBET_MAX_RANK];
  int64_t steps;   // rows of a result
  int64_t row;     // elements of a row that is left, or that is reduced
  bool keeps_row;  // it is left
  int64_t rows;    // results, or rows of results
  int64_t count;   // elements of a result
} cpu_double_reduce_state_t;

static bool double_reduce_is_double(const rabbet_group_t* group) {
  return rabbet_node_is(group, RABBET_OP_REDUCE) &&
         group->values[group->outputs[0]].dtype == RABBET_DTYPE_DOUBLE;
}

static rabbet_status_t double_reduce_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "rows", -1);
}

static rabbet_status_t cpu_double_reduce_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  if (!double_reduce_is_double(propose->group)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_double_reduce, NULL,
                              double_reduce_body);
}

static rabbet_status_t cpu_double_reduce_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_double_reduce_state_t** out_state, size_t* out_workspace) {
  const rabbet_group_node_t* node = ((rabbet_node_kernel_t*)base)->node;
  const rabbet_dims_t* x = &shapes->dims[node->inputs[0]];
  int64_t mask = rabbet_node_int(node, "axes"), stride = 1;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_double_reduce_state_t* s = *out_state;
  int32_t last = x->rank - 1;
  s->op = rabbet_node_int(node, "op");
  s->rows = s->count = s->row = s->steps = 1;
  s->keeps_row = last >= 0 && !(mask >> last & 1);
  for (int32_t axis = last; axis >= 0; stride *= x->d[axis], --axis) {
    bool is_reduced = (mask >> axis & 1) != 0;
    if (is_reduced) s->count *= x->d[axis];
    if (axis == last) {
      s->row = x->d[axis];
      continue;
    }
    rabbet_dims_t* dims = is_reduced ? &s->reduced : &s->left;
    (is_reduced ? s->reduced_strides : s->left_strides)[dims->rank] = stride;
    dims->d[dims->rank++] = x->d[axis];
    *(is_reduced ? &s->steps : &s->rows) *= x->d[axis];
  }
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static inline double double_reduce_join(int64_t op, double a, double b) {
  switch (op) {
    case RABBET_REDUCE_PROD:
      return a * b;
    case RABBET_REDUCE_MAX:
      return b > a || b != b ? b : a;
    case RABBET_REDUCE_MIN:
      return b < a || b != b ? b : a;
    default:
      return a + b;
  }
}

static double double_reduce_first(int64_t op) {
  return op == RABBET_REDUCE_PROD  ? 1
         : op == RABBET_REDUCE_MAX ? -INFINITY
         : op == RABBET_REDUCE_MIN ? INFINITY
                                   : 0;
}

// Independent partial results, which do not wait for each other.
static double double_reduce_row(int64_t op, const double* x, int64_t count) {
  enum { PARTS = 8 };
  double parts[PARTS];
  int64_t i = 0;
  for (int k = 0; k < PARTS; ++k)
    parts[k] = double_reduce_first(op);
  for (; i + PARTS <= count; i += PARTS)
    for (int k = 0; k < PARTS; ++k)
      parts[k] = double_reduce_join(op, parts[k], x[i + k]);
  for (; i < count; ++i)
    parts[0] = double_reduce_join(op, parts[0], x[i]);
  for (int k = 1; k < PARTS; ++k)
    parts[0] = double_reduce_join(op, parts[0], parts[k]);
  return parts[0];
}

// Of position `at`; the last axis comes first.
static int64_t double_reduce_offset(const rabbet_dims_t* dims,
                                    const int64_t* strides, int64_t at) {
  int64_t offset = 0;
  for (int32_t i = 0; i < dims->rank; ++i) {
    offset += at % dims->d[i] * strides[i];
    at /= dims->d[i];
  }
  return offset;
}

typedef struct double_reduce_call_t {
  const cpu_double_reduce_state_t* state;
  const double* x;
  double* y;
} double_reduce_call_t;

static void double_reduce_result(const cpu_double_reduce_state_t* s,
                                 const double* x, double* y) {
  int64_t width = s->keeps_row ? s->row : 1;
  for (int64_t i = 0; i < width; ++i)
    y[i] = double_reduce_first(s->op);
  for (int64_t step = 0; step < s->steps; ++step) {
    const double* row =
        x + double_reduce_offset(&s->reduced, s->reduced_strides, step);
    if (!s->keeps_row)
      y[0] = double_reduce_join(s->op, y[0],
                                double_reduce_row(s->op, row, s->row));
    for (int64_t i = 0; s->keeps_row && i < width; ++i)
      y[i] = double_reduce_join(s->op, y[i], row[i]);
  }
  for (int64_t i = 0; s->op == RABBET_REDUCE_AVG && i < width; ++i)
    y[i] /= (double)s->count;
}

static void double_reduce_part(void* context, int64_t begin, int64_t end) {
  const double_reduce_call_t* call = context;
  const cpu_double_reduce_state_t* s = call->state;
  int64_t width = s->keeps_row ? s->row : 1;
  for (int64_t at = begin; at < end; ++at) {
    double_reduce_result(
        s, call->x + double_reduce_offset(&s->left, s->left_strides, at),
        call->y + at * width);
  }
}

static rabbet_status_t cpu_double_reduce_enqueue(
    rabbet_kernel_t* base, cpu_double_reduce_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  double_reduce_call_t run = {.state = state,
                              .x = rabbet_node_input_at(kernel, call, 0),
                              .y = call->outputs[0]};
  int64_t bytes = state->count * (int64_t)sizeof(double) *
                  (state->keeps_row ? state->row : 1);
  rabbet_cpu_parallel(
      state->rows,
      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / rabbet_max_i64(1, bytes)),
      double_reduce_part, &run);
  return rabbet_ok();
}

static bool cpu_double_reduce_takes(const rabbet_kernel_spec_t* spec) {
  return double_reduce_is_double(spec->group) &&
         rabbet_takes_node(spec->group, RABBET_OP_REDUCE, 0);
}

RABBET_NODE_CLASS_WITH(cpu_double_reduce, "cpu.double.reduce", 1,
                       RABBET_KERNEL_DOUBLE);
