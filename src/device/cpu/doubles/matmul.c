// Products of matrices of DOUBLE.
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/doubles/product.h"
#include "device/cpu/parallel.h"
#include "ops/products/matrix_multiply.h"

enum {
  // Rows up to which the other factor is read once, as it lies.
  FEW_ROWS = 3,
  FEW_COLUMNS = 1024,  // that a thread takes at once
};

typedef struct cpu_double_matmul_state_t {
  rabbet_matrix_product_t product;
  bool is_turned;  // the factors are exchanged
  bool has_few_rows;
  int64_t batches, blocks;  // of a batch
  size_t room;
} cpu_double_matmul_state_t;

static bool double_matmul_is_double(const rabbet_group_t* group) {
  return rabbet_node_is(group, RABBET_OP_MATRIX_MULTIPLY) &&
         group->values[group->outputs[0]].dtype == RABBET_DTYPE_DOUBLE;
}

static rabbet_status_t double_matmul_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "blocks", -1);
}

static rabbet_status_t cpu_double_matmul_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  if (!double_matmul_is_double(propose->group)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_double_matmul, NULL,
                              double_matmul_body);
}

// A product with a column is that of the row with the other matrix, turned.
static void double_matmul_turn(rabbet_matrix_product_t* p) {
  const rabbet_matrix_product_t from = *p;
  p->m = from.n;
  p->n = from.m;
  p->a_row = from.b_column;
  p->a_column = from.b_row;
  p->b_row = from.a_column;
  p->b_column = from.a_row;
  memcpy(p->a_batch, from.b_batch, sizeof(p->a_batch));
  memcpy(p->b_batch, from.a_batch, sizeof(p->b_batch));
}

static rabbet_status_t cpu_double_matmul_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_double_matmul_state_t** out_state, size_t* out_workspace) {
  const rabbet_group_node_t* node = ((rabbet_node_kernel_t*)base)->node;
  rabbet_matrix_product_t product;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(rabbet_matrix_product_resolve(
                          (rabbet_matrix_op_t)rabbet_node_int(node, "op0"),
                          &shapes->dims[node->inputs[0]],
                          (rabbet_matrix_op_t)rabbet_node_int(node, "op1"),
                          &shapes->dims[node->inputs[1]], &product),
                      "layer '%s'", node->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_double_matmul_state_t* state = *out_state;
  state->is_turned = product.n == 1 && product.m > 1;
  if (state->is_turned) double_matmul_turn(&product);
  state->product = product;
  state->has_few_rows =
      product.m <= FEW_ROWS && (product.b_row == 1 || product.b_column == 1);
  state->batches = 1;
  for (int32_t i = 0; i < product.batch.rank; ++i)
    state->batches *= product.batch.d[i];
  state->blocks = state->has_few_rows
                      ? rabbet_ceildiv(product.n, (int64_t)FEW_COLUMNS)
                      : rabbet_double_blocks(product.m, product.n);
  state->room = rabbet_double_room();
  *out_workspace = state->room * (size_t)rabbet_cpu_slots(shapes->threads);
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct double_matrix_t {
  const double* data;
  int64_t step, along;  // between its rows or columns, and along k
} double_matrix_t;

static void double_matrix_pack(const void* factor,
                               const rabbet_double_part_t* part, int64_t width,
                               double* panel) {
  const double_matrix_t* x = factor;
  const double* from = x->data + part->first * x->step + part->begin * x->along;
  for (int64_t k = 0; k < part->depth; ++k, panel += width, from += x->along) {
    for (int64_t i = 0; i < part->count; ++i)
      panel[i] = from[i * x->step];
    for (int64_t i = part->count; i < width; ++i)
      panel[i] = 0;
  }
}

// Independent sums, which do not wait for each other.
static double double_dot(const double* a, int64_t a_step, const double* b,
                         int64_t count) {
  enum { PARTS = 8 };
  double sums[PARTS] = {0};
  int64_t k = 0;
  for (; k + PARTS <= count; k += PARTS)
    for (int i = 0; i < PARTS; ++i)
      sums[i] += a[(k + i) * a_step] * b[k + i];
  for (; k < count; ++k)
    sums[0] += a[k * a_step] * b[k];
  for (int i = 1; i < PARTS; ++i)
    sums[0] += sums[i];
  return sums[0];
}

// A row of the product, columns `begin` to `end` - 1.
static void double_few_row(const rabbet_double_product_t* product, int64_t row,
                           int64_t begin, int64_t end) {
  const double_matrix_t *a = product->a, *b = product->b;
  const double* x = a->data + row * a->step;
  double* y = product->y + row * product->n;
  if (b->step != 1) {
    for (int64_t n = begin; n < end; ++n)
      y[n] = double_dot(x, a->along, b->data + n * b->step, product->k);
    return;
  }
  memset(y + begin, 0, (size_t)(end - begin) * sizeof(*y));
  for (int64_t k = 0; k < product->k; ++k) {
    const double *from = b->data + k * b->along, factor = x[k * a->along];
    for (int64_t n = begin; n < end; ++n)
      y[n] += factor * from[n];
  }
}

typedef struct double_matmul_call_t {
  const cpu_double_matmul_state_t* state;
  const double *a, *b;
  double* y;
  char* workspace;
} double_matmul_call_t;

static void double_matmul_part(void* context, int64_t begin, int64_t end) {
  const double_matmul_call_t* call = context;
  const cpu_double_matmul_state_t* state = call->state;
  const rabbet_matrix_product_t* p = &state->product;
  for (int64_t at = begin; at < end; ++at) {
    int64_t batch = at / state->blocks, rest = batch;
    double_matrix_t a = {call->a, p->a_row, p->a_column};
    double_matrix_t b = {call->b, p->b_column, p->b_row};
    for (int32_t i = p->batch.rank - 1; i >= 0; --i) {
      a.data += rest % p->batch.d[i] * p->a_batch[i];
      b.data += rest % p->batch.d[i] * p->b_batch[i];
      rest /= p->batch.d[i];
    }
    const rabbet_double_product_t product = {
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .pack_a = double_matrix_pack,
        .pack_b = double_matrix_pack,
        .a = &a,
        .b = &b,
        .y = call->y + batch * p->m * p->n};
    int64_t block = at % state->blocks, first = block * FEW_COLUMNS;
    for (int64_t m = 0; state->has_few_rows && m < p->m; ++m)
      double_few_row(&product, m, first,
                     rabbet_min_i64(first + FEW_COLUMNS, p->n));
    if (!state->has_few_rows)
      rabbet_double_block(
          &product, block,
          call->workspace + (size_t)rabbet_cpu_slot() * state->room);
  }
}

static rabbet_status_t cpu_double_matmul_enqueue(
    rabbet_kernel_t* base, cpu_double_matmul_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_matrix_product_t* p = &state->product;
  bool is_turned = state->is_turned;
  double_matmul_call_t run = {
      .state = state,
      .a = rabbet_node_input_at(kernel, call, is_turned),
      .b = rabbet_node_input_at(kernel, call, !is_turned),
      .y = call->outputs[0],
      .workspace = call->workspace};
  if (p->m == 0 || p->n == 0) return rabbet_ok();
  double work = (double)p->m * (double)p->n * (double)(p->k + 1) /
                (double)state->blocks;  // of a block
  int64_t grain = work < RABBET_CPU_GRAIN_BYTES
                      ? (int64_t)(RABBET_CPU_GRAIN_BYTES / work)
                      : 1;
  rabbet_cpu_parallel(state->batches * state->blocks, grain, double_matmul_part,
                      &run);
  return rabbet_ok();
}

static bool cpu_double_matmul_takes(const rabbet_kernel_spec_t* spec) {
  return double_matmul_is_double(spec->group) &&
         rabbet_takes_node(spec->group, RABBET_OP_MATRIX_MULTIPLY, 0);
}

RABBET_NODE_CLASS_WITH(cpu_double_matmul, "cpu.double.matmul", 1,
                       RABBET_KERNEL_DOUBLE);
