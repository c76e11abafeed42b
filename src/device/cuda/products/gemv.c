// Products of a matrix with few vectors, and any chain of element-wise layers
// after them: last layers, layers at batch 1, decoding.
//
// Bound by reading the matrix once, in vectors of 16 bytes. If it is contiguous
// along k, a warp has some columns and its lanes split k, or several warps
// share them: more loads are in flight, and warps end together. If it is
// contiguous along columns, the threads of a block split k, so that a few
// hundred columns make enough blocks. The few vectors are read repeatedly, from
// the caches.
#include <assert.h>
#include <stdio.h>

#include "core/view.h"
#include "device/cuda/products/gemv_params.h"
#include "device/cuda/products/layers.h"
#include "device/cuda/programs/launch.h"

// Products of more rows are left to the libraries, unless their extents are
// small.
enum { GEMV_ROWS = 8, GEMV_SMALL = 64 };

// ROWS, COLUMNS and LANES of products/gemv.cuh: tactic 3 i + j has row i and
// width j, and SPLIT 1; GEMV_TACTICS more, SPLIT is twice as large.
static const int gemv_rows[] = {1, 2, 4, 8};
static const struct {
  int columns, lanes;
} gemv_widths[] = {{1, 2}, {2, 4}, {4, 8}};
enum {
  GEMV_WIDTHS = 3,
  GEMV_TACTICS = 4 * GEMV_WIDTHS,
  GEMV_SPLITS = 3,
  GEMV_LEAST_K = 512,  // for several warps
};

typedef struct gemv_kernel_t {
  rabbet_cuda_node_t node;
  rabbet_dtype_t dtype;
  int64_t element;  // bytes
  int rows, columns, lanes, split;
  CUfunction dot, spread, single;
} gemv_kernel_t;

typedef struct cuda_gemv_state_t {
  rabbet_matmul_shape_t shape;
  bool swapped;  // the result's columns are the rows
  gemv_t parameters;
  rabbet_cuda_layers_t layers;
  int a, b;  // boundary inputs
  bool has_vectors, empty;
  rabbet_cuda_launch_t vectors, single;
} cuda_gemv_state_t;

// ---- Proposing -------------------------------------------------------------

static bool gemv_computes(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}

static bool gemv_is_thin(const rabbet_matmul_shape_t* s) {
  return s->m <= GEMV_ROWS || s->n <= GEMV_ROWS;
}

// Products so small that their launch takes longer than they do. For odd
// extents the library may have no kernel, or none that rounds once.
static bool gemv_is_small(const rabbet_matmul_shape_t* s) {
  return s->m <= GEMV_SMALL && s->n <= GEMV_SMALL && s->k <= GEMV_SMALL;
}

typedef struct gemv_offer_t {
  int rows;
  bool splits;  // elements lie along k, which is long
} gemv_offer_t;

static rabbet_status_t gemv_offer(rabbet_proposal_t* proposal, int tactic) {
  rabbet_candidate_t candidate = {.kernel = proposal->kernel,
                                  .tactic = tactic,
                                  .tensors = proposal->tensors};
  int at = tactic % GEMV_TACTICS;
  snprintf(candidate.tactic_name, sizeof(candidate.tactic_name),
           "%d x %d columns, k in %d", gemv_rows[at / GEMV_WIDTHS],
           gemv_widths[at % GEMV_WIDTHS].columns, 1 << tactic / GEMV_TACTICS);
  return rabbet_offer(proposal->propose, proposal->sink, &candidate);
}

static rabbet_status_t cuda_gemv_body(rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  const rabbet_group_t* group = propose->group;
  size_t boundary = group->input_count + group->output_count;
  rabbet_dtype_t types[4], own = proposal->tensors[0].dtype;
  int count = rabbet_compute_types(propose, own, types);
  const gemv_offer_t* offer = proposal->context;
  int first = offer->rows * GEMV_WIDTHS;
  int widths = propose->optimization_level >= 2 ? GEMV_WIDTHS : 1;
  // With many sums a thread has no registers left for loads in flight.
  while (gemv_rows[first / GEMV_WIDTHS] * gemv_widths[widths - 1].columns > 16)
    --widths;
  assert(widths > 0);
  int splits =
      offer->splits && propose->optimization_level >= 2 ? GEMV_SPLITS : 1;
  for (int i = 0; i < count; ++i) {
    if (!gemv_computes(types[i])) continue;
    for (size_t k = 0; k < boundary; ++k)
      if (rabbet_dtype_is_float(proposal->tensors[k].dtype))
        proposal->tensors[k].dtype = types[i];
    for (int w = 0; w < widths; ++w)
      RABBET_RETURN_IF_ERROR(gemv_offer(proposal, first + w));
    for (int k = 1; k < splits; ++k)
      RABBET_RETURN_IF_ERROR(gemv_offer(proposal, first + k * GEMV_TACTICS));
  }
  return rabbet_ok();
}

static bool gemv_splits(const rabbet_matmul_shape_t* s) {
  int64_t step = s->n < s->m ? s->a_column : s->b_row;
  return step == 1 && s->k >= GEMV_LEAST_K;
}

static rabbet_status_t cuda_gemv_propose(const rabbet_propose_t* propose,
                                         rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_matmul_shape_t shape;
  rabbet_dims_t* dims = NULL;
  if (!rabbet_matmul_matches(group)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, propose->allocator, &dims));
  bool fits = rabbet_cuda_layers_match(group, dims);
  rabbet_status_t status =
      fits ? rabbet_matmul_shape(&group->nodes[0], dims, &shape) : rabbet_ok();
  rabbet_free(propose->allocator, dims);
  RABBET_RETURN_IF_ERROR(status);
  if (!fits || (!gemv_is_thin(&shape) && !gemv_is_small(&shape)))
    return rabbet_ok();
  gemv_offer_t offer = {.splits = gemv_splits(&shape)};
  while (offer.rows < 3 && gemv_rows[offer.rows] < shape.m &&
         gemv_rows[offer.rows] < shape.n)
    ++offer.rows;
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_gemv, &offer,
                              cuda_gemv_body);
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t cuda_gemv_program(rabbet_cuda_node_t* base,
                                         const rabbet_kernel_spec_t* spec) {
  gemv_kernel_t* kernel = (gemv_kernel_t*)base;
  kernel->dtype = rabbet_cuda_layers_type(spec->group);
  if (!gemv_computes(kernel->dtype) || spec->tactic < 0 ||
      spec->tactic >= GEMV_SPLITS * GEMV_TACTICS)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "cuda.gemv computes groups that begin with a product "
                         "and have one floating type, all LINEAR; this one "
                         "does not, or has no tactic %d",
                         (int)spec->tactic);
  int tactic = spec->tactic % GEMV_TACTICS;
  kernel->rows = gemv_rows[tactic / GEMV_WIDTHS];
  kernel->columns = gemv_widths[tactic % GEMV_WIDTHS].columns;
  kernel->lanes = gemv_widths[tactic % GEMV_WIDTHS].lanes;
  kernel->split = 1 << spec->tactic / GEMV_TACTICS;
  kernel->element = rabbet_dtype_bits(kernel->dtype) / 8;
  char begin[160];
  snprintf(begin, sizeof(begin),
           "#define ELEMENT %s\n#define ROWS %d\n#define COLUMNS %d\n"
           "#define LANES %d\n#define SPLIT %d\n",
           rabbet_cuda_type(kernel->dtype), kernel->rows, kernel->columns,
           kernel->lanes, kernel->split);
  RABBET_RETURN_IF_ERROR(rabbet_cuda_layers_add(
      base, spec, "products/gemv.cu", begin, "device/cuda/products/gemv.cuh"));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "dot", &kernel->dot));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "spread", &kernel->spread));
  return rabbet_cuda_node_function(base, 0, "single", &kernel->single);
}

// ---- Geometry --------------------------------------------------------------

// The side with few vectors becomes the rows.
static void gemv_parameters(const rabbet_matmul_shape_t* s, bool swapped,
                            gemv_t* p) {
  p->k = s->k;
  p->rows = swapped ? s->n : s->m;
  p->columns = swapped ? s->m : s->n;
  p->a_batch = swapped ? s->batch.b : s->batch.a;
  p->a_row = swapped ? s->b_column : s->a_row;
  p->a_k = swapped ? s->b_row : s->a_column;
  p->b_batch = swapped ? s->batch.a : s->batch.b;
  p->b_k = swapped ? s->a_column : s->b_row;
  p->b_column = swapped ? s->a_row : s->b_column;
  p->y_batch = s->batch.y;
  p->y_row = swapped ? 1 : s->y_row;
  p->y_column = swapped ? s->y_row : 1;
}

static bool gemv_divides(int64_t vector, int64_t size, int64_t stride) {
  return size == 1 || stride % vector == 0;
}

// Whether the vectors of b, and of a if b is contiguous along k, are aligned in
// every row, column and batch.
static bool gemv_can_vectorise(const cuda_gemv_state_t* state, bool along_k,
                               int64_t vector) {
  const gemv_t* p = &state->parameters;
  const rabbet_matmul_shape_t* s = &state->shape;
  bool fits =
      (along_k ? p->k : p->columns) % vector == 0 &&
      gemv_divides(vector, s->batch.size, p->b_batch) &&
      (along_k ? p->b_k == 1 && p->a_k == 1 &&
                     gemv_divides(vector, p->columns, p->b_column) &&
                     gemv_divides(vector, p->rows, p->a_row) &&
                     gemv_divides(vector, s->batch.size, p->a_batch)
               : p->b_column == 1 && gemv_divides(vector, p->k, p->b_k));
  for (int i = 0; fits && i < s->loop_count; ++i)
    fits = gemv_divides(vector, s->loops[i].size, s->loops[i].a) &&
           gemv_divides(vector, s->loops[i].size, s->loops[i].b);
  return fits;
}

// The part of the result that a block computes.
typedef struct gemv_block_t {
  CUfunction function;
  int64_t threads, rows, columns;
} gemv_block_t;

static rabbet_status_t gemv_launch(const gemv_kernel_t* kernel,
                                   const cuda_gemv_state_t* state,
                                   const gemv_block_t* block,
                                   rabbet_cuda_launch_t* out) {
  const gemv_t* p = &state->parameters;
  assert(block->columns > 0 && block->rows > 0 && block->threads % 32 == 0);
  int64_t x = rabbet_ceildiv(p->columns, block->columns);
  int64_t z = rabbet_ceildiv(p->rows, block->rows);
  if (x > INT32_MAX || state->shape.batch.size > 65535 || z > 65535)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the product '%s' has %lld rows, %lld columns and "
                         "batch %lld, more than cuda.gemv counts",
                         kernel->node.node.node->name, (long long)p->rows,
                         (long long)p->columns,
                         (long long)state->shape.batch.size);
  *out = (rabbet_cuda_launch_t){
      .function = block->function,
      .grid = {(unsigned)x, (unsigned)state->shape.batch.size, (unsigned)z},
      .block = {(unsigned)block->threads, 1, 1}};
  return rabbet_ok();
}

// `split` warps per set of columns; smaller blocks if there are too few for all
// multiprocessors.
static rabbet_status_t gemv_launch_warps(const gemv_kernel_t* kernel,
                                         const cuda_gemv_state_t* state,
                                         CUfunction function, int rows,
                                         rabbet_cuda_launch_t* out) {
  gemv_block_t block = {function, GEMV_BLOCK, rows, 0};
  int64_t warps =
      rabbet_ceildiv(state->parameters.columns, (int64_t)kernel->columns) *
      state->shape.batch.size * kernel->split;
  while (block.threads > 64 && block.threads > 32 * kernel->split &&
         warps * 32 < 2 * block.threads * kernel->node.device->multiprocessors)
    block.threads /= 2;
  block.columns = block.threads / 32 / kernel->split * kernel->columns;
  return gemv_launch(kernel, state, &block, out);
}

static rabbet_status_t gemv_launches(const gemv_kernel_t* kernel,
                                     cuda_gemv_state_t* state) {
  int64_t vector = 16 / kernel->element;
  const gemv_block_t block = {kernel->spread, GEMV_BLOCK, kernel->rows,
                              vector * kernel->lanes};
  bool along_k = gemv_can_vectorise(state, true, vector);
  state->has_vectors = along_k || gemv_can_vectorise(state, false, vector);
  if (along_k)
    RABBET_RETURN_IF_ERROR(gemv_launch_warps(kernel, state, kernel->dot,
                                             kernel->rows, &state->vectors));
  else if (state->has_vectors)
    RABBET_RETURN_IF_ERROR(gemv_launch(kernel, state, &block, &state->vectors));
  return gemv_launch_warps(kernel, state, kernel->single, 1, &state->single);
}

static rabbet_status_t gemv_fill(const gemv_kernel_t* kernel,
                                 const rabbet_dims_t* dims,
                                 cuda_gemv_state_t* state) {
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* node = kernel->node.node.node;
  rabbet_matmul_shape_t* s = &state->shape;
  RABBET_RETURN_IF_ERROR(rabbet_matmul_shape(node, dims, s));
  state->swapped = s->n < s->m;
  state->a = rabbet_group_input_of(group, node->inputs[state->swapped]);
  state->b = rabbet_group_input_of(group, node->inputs[!state->swapped]);
  assert(state->a >= 0 && state->b >= 0);  // rabbet_matmul_matches() was true
  state->empty = s->m == 0 || s->n == 0 || s->batch.size == 0;
  gemv_parameters(s, state->swapped, &state->parameters);
  const gemv_t* p = &state->parameters;
  const layer_operand_t result = {NULL, p->y_batch, p->y_row, p->y_column};
  RABBET_RETURN_IF_ERROR(rabbet_cuda_layers_place(
      &kernel->node, group, dims, &result, state->swapped, &state->layers,
      &state->parameters.layers));
  return state->empty ? rabbet_ok() : gemv_launches(kernel, state);
}

static rabbet_status_t cuda_gemv_prepare(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         cuda_gemv_state_t** out_state,
                                         size_t* out_workspace) {
  cuda_gemv_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      gemv_fill((const gemv_kernel_t*)base, shapes->dims, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static void gemv_bind(const gemv_kernel_t* kernel, cuda_gemv_state_t* state,
                      const rabbet_kernel_call_t* call,
                      const rabbet_matmul_axis_t* at) {
  gemv_t* p = &state->parameters;
  int64_t size = kernel->element;
  int64_t a = state->swapped ? at->b : at->a,
          b = state->swapped ? at->a : at->b;
  p->a = (const char*)call->inputs[state->a] + a * size;
  p->b = (const char*)call->inputs[state->b] + b * size;
  p->y = (char*)call->outputs[0] + at->y * size;
  rabbet_cuda_layers_bind(&state->layers, call, at->y * size, &p->layers);
}

static rabbet_status_t cuda_gemv_enqueue(rabbet_kernel_t* base,
                                         cuda_gemv_state_t* state,
                                         const rabbet_kernel_call_t* call) {
  const gemv_kernel_t* kernel = (const gemv_kernel_t*)base;
  int64_t turns = rabbet_matmul_turns(&state->shape);
  bool vectors = state->has_vectors &&
                 rabbet_cuda_is_aligned(call->inputs[state->a], 16) &&
                 rabbet_cuda_is_aligned(call->inputs[state->b], 16);
  for (int64_t turn = 0; !state->empty && turn < turns; ++turn) {
    rabbet_matmul_axis_t at = rabbet_matmul_turn(&state->shape, turn);
    gemv_bind(kernel, state, call, &at);
    void* parameters[] = {&state->parameters};
    RABBET_RETURN_IF_ERROR(rabbet_cuda_launch(
        kernel->node.device, vectors ? &state->vectors : &state->single,
        parameters, call->stream));
  }
  return rabbet_ok();
}

static bool cuda_gemv_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_matmul_matches(spec->group);
}

RABBET_CUDA_NODE_CLASS(cuda_gemv, gemv_kernel_t, "cuda.gemv", 3);
