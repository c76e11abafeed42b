// Determinants, by elimination in FLOAT. The product of pivots is a double, so
// that it overflows only if the result does. Threads share the matrices, or the
// rows of each if there are few and large ones.
#include "ops/products/determinant.h"

#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"

enum { LARGE = 192 };  // order from which rows of a matrix are shared

typedef struct cpu_determinant_state_t {
  rabbet_determinant_t determinant;
  rabbet_dtype_t dtype;
  bool shares_rows;
  int64_t scratch_bytes;  // of a thread: a matrix
} cpu_determinant_state_t;

// Offers only the network's type: rounding the elements can change all digits
// of the result.
static rabbet_status_t cpu_determinant_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "elimination", -1);
}

RABBET_PROPOSE_FOR(cpu_determinant, DETERMINANT)

static rabbet_status_t cpu_determinant_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_determinant_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  rabbet_determinant_t d;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_determinant_read(&shapes->dims[node->inputs[0]], &d), "layer '%s'",
      node->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_determinant_state_t* state = *out_state;
  state->determinant = d;
  state->dtype = kernel->group->values[node->inputs[0]].dtype;
  state->shares_rows =
      d.order >= LARGE && d.count < rabbet_cpu_slots(shapes->threads);
  size_t bytes = (size_t)d.order * (size_t)d.order * sizeof(float);
  state->scratch_bytes = (int64_t)rabbet_align_up(bytes, 64);
  *out_workspace =
      (size_t)state->scratch_bytes *
      (size_t)(state->shares_rows ? 1 : rabbet_cpu_slots(shapes->threads));
  return rabbet_ok();
}

// ---- Elimination -----------------------------------------------------------

// A step of the elimination: column k of a matrix.
typedef struct determinant_column_t {
  const rabbet_vectors_t* vectors;
  float* matrix;
  int64_t order, k;
} determinant_column_t;

// Rows k + 1 + [first, last).
static void determinant_rows(void* context, int64_t first, int64_t last) {
  const determinant_column_t* c = context;
  const float* top = c->matrix + c->k * c->order + c->k;
  for (int64_t i = first; i < last; ++i) {
    float* row = c->matrix + (c->k + 1 + i) * c->order + c->k;
    c->vectors->weigh(top + 1, -row[0] / top[0], true, c->order - c->k - 1,
                      row + 1);
  }
}

// Swaps the row with the largest pivot of column k into row k; returns whether
// rows were swapped.
static bool determinant_pivot(const determinant_column_t* c) {
  int64_t best = c->k;
  for (int64_t i = c->k + 1; i < c->order; ++i)
    if (rabbet_determinant_better(c->matrix[i * c->order + c->k],
                                  c->matrix[best * c->order + c->k]))
      best = i;
  float* a = c->matrix + c->k * c->order;
  float* b = c->matrix + best * c->order;
  for (int64_t j = c->k; j < c->order && best != c->k; ++j) {
    float moved = a[j];
    a[j] = b[j];
    b[j] = moved;
  }
  return best != c->k;
}

static double determinant_of(float* matrix, int64_t order, bool shares_rows) {
  determinant_column_t c = {
      .vectors = rabbet_vectors(), .matrix = matrix, .order = order};
  double product = 1;
  for (; c.k < order; ++c.k) {
    bool turns = determinant_pivot(&c);
    double pivot = matrix[c.k * order + c.k];
    int64_t rest = order - c.k - 1;
    if (pivot == 0) return 0;
    product *= turns ? -pivot : pivot;
    if (shares_rows)
      rabbet_cpu_parallel(rest,
                          rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES /
                                                (rabbet_max_i64(rest, 1) * 2 *
                                                 (int64_t)sizeof(float))),
                          determinant_rows, &c);
    else
      determinant_rows(&c, 0, rest);
  }
  return product;
}

// ---- Matrices --------------------------------------------------------------

typedef struct determinant_call_t {
  const cpu_determinant_state_t* state;
  const char* source;
  void* target;
  char* workspace;
} determinant_call_t;

static void determinant_load(const cpu_determinant_state_t* state,
                             const char* source, float* matrix) {
  rabbet_convert_fn_t convert = rabbet_vectors()->to_float[state->dtype];
  int64_t size = rabbet_dtype_bits(state->dtype) / 8;
  int64_t count = (int64_t)state->determinant.order * state->determinant.order;
  if (!convert) {
    memcpy(matrix, source, (size_t)(count * size));
    return;
  }
  for (int64_t i = 0; i < count; i += RABBET_LANES)
    convert(source + i * size, matrix + i,
            rabbet_min_i64(RABBET_LANES, count - i));
}

static void determinant_items(void* context, int64_t first, int64_t last) {
  const determinant_call_t* call = context;
  const cpu_determinant_state_t* state = call->state;
  int64_t order = state->determinant.order;
  int64_t bytes = order * order * rabbet_dtype_bits(state->dtype) / 8;
  int64_t slot = state->shares_rows ? 0 : rabbet_cpu_slot();
  float* matrix = (float*)(call->workspace + slot * state->scratch_bytes);
  for (int64_t m = first; m < last; ++m) {
    if (order > 0) determinant_load(state, call->source + m * bytes, matrix);
    rabbet_store_double(state->dtype, call->target, m,
                        determinant_of(matrix, order, state->shares_rows));
  }
}

static rabbet_status_t cpu_determinant_enqueue(
    rabbet_kernel_t* base, cpu_determinant_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  determinant_call_t run = {.state = state,
                            .source = rabbet_node_input_at(kernel, call, 0),
                            .target = rabbet_node_output(kernel, call, 0),
                            .workspace = call->workspace};
  int64_t count = state->determinant.count;
  // Each column's step updates the rest of the matrix.
  int64_t work = (state->determinant.order + 3) * (state->scratch_bytes / 3);
  if (state->shares_rows)
    determinant_items(&run, 0, count);
  else
    rabbet_cpu_parallel(
        count,
        rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / rabbet_max_i64(work, 64)),
        determinant_items, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_determinant, DETERMINANT, 0)

RABBET_NODE_CLASS(cpu_determinant, "cpu.determinant", 1);
