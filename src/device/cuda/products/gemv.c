// Products of a matrix with few vectors, and any chain of element-wise layers
// after them: last layers, layers at batch 1, decoding.
//
// Bound by reading the matrix once, in vectors of 16 bytes. If it is contiguous
// along k, a warp has some columns and its lanes split k, or several warps
// share them: more loads are in flight, and warps end together. If it is
// contiguous along columns, the threads of a block split k, so that a few
// hundred columns make enough blocks. The few vectors are read repeatedly, from
// the caches.
//
// Where b lies along k, a kernel may begin with the RMS normalization of a's
// rows, whose squares each warp adds up beside its products, and have a second
// matrix (joint.h).
#include <assert.h>
#include <stdio.h>

#include "core/view.h"
#include "device/cuda/products/gemv_params.h"
#include "device/cuda/products/joint.h"
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
  // Sums of a warp: with many a thread has no registers left for loads in
  // flight, and a lane can have one at the end.
  GEMV_SUMS = 16,
};

// The parts of a group: pair.plain is a product with its epilogue.
typedef struct gemv_parts_t {
  rabbet_cuda_normalized_t rows;
  rabbet_cuda_pair_t pair;
} gemv_parts_t;

typedef struct gemv_kernel_t {
  rabbet_cuda_node_t node;
  gemv_parts_t parts;
  rabbet_dtype_t dtype;
  int64_t element, scale;  // bytes
  int rows, columns, lanes, split;
  CUfunction dot, spread, single;
} gemv_kernel_t;

typedef struct cuda_gemv_state_t {
  rabbet_matmul_shape_t shape;
  bool swapped;  // the result's columns are the rows
  gemv_t parameters;
  rabbet_cuda_layers_t layers;
  int a, b, second, scale;  // boundary inputs; -1: none
  bool has_vectors, empty;
  rabbet_cuda_launch_t vectors, single;
} cuda_gemv_state_t;

// ---- The group -------------------------------------------------------------

static bool gemv_parse(const rabbet_group_t* group, const rabbet_dims_t* dims,
                       gemv_parts_t* out) {
  return rabbet_cuda_normalized_parse(group, &out->rows) &&
         rabbet_cuda_pair_parse(&out->rows.plain, dims, &out->pair);
}

// Whether the kernel computes more than one product and its epilogue.
static bool gemv_is_joint(const gemv_parts_t* parts) {
  return parts->rows.is_normalized || parts->pair.weights >= 0;
}

// The numbers that multiply normalized rows may stay FLOAT.
static bool gemv_stays(const rabbet_group_t* group, const gemv_parts_t* parts,
                       size_t boundary) {
  int32_t value = rabbet_group_boundary(group, boundary);
  return parts->rows.is_normalized && value == parts->rows.scale &&
         group->values[value].dtype == RABBET_DTYPE_FLOAT;
}

// The type of all boundary values, which are LINEAR; RABBET_DTYPE_NONE if they
// differ.
static rabbet_dtype_t gemv_type(const rabbet_group_t* group,
                                const gemv_parts_t* parts) {
  rabbet_dtype_t dtype = group->values[group->outputs[0]].dtype;
  if (group->output_count != 1) return RABBET_DTYPE_NONE;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    const rabbet_group_value_t* value =
        &group->values[rabbet_group_boundary(group, i)];
    if (value->format != RABBET_FORMAT_LINEAR ||
        (value->dtype != dtype && !gemv_stays(group, parts, i)))
      return RABBET_DTYPE_NONE;
  }
  return dtype;
}

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
  const gemv_parts_t* parts;
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

// Whether a lane can have a sum of each.
static bool gemv_has_room(const gemv_parts_t* parts, int tactic) {
  int at = tactic % GEMV_TACTICS;
  int sums =
      gemv_rows[at / GEMV_WIDTHS] * gemv_widths[at % GEMV_WIDTHS].columns;
  return (parts->pair.weights >= 0 ? 2 * sums : sums) <= GEMV_SUMS;
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
  while (widths > 0 && !gemv_has_room(offer->parts, first + widths - 1))
    --widths;
  assert(widths > 0);
  int splits =
      offer->splits && propose->optimization_level >= 2 ? GEMV_SPLITS : 1;
  for (int i = 0; i < count; ++i) {
    if (!gemv_computes(types[i])) continue;
    for (size_t k = 0; k < boundary; ++k)
      if (rabbet_dtype_is_float(proposal->tensors[k].dtype) &&
          !gemv_stays(group, offer->parts, k))
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

// Whether a kernel is offered for the product, of these extents.
static bool gemv_wants(const rabbet_matmul_shape_t* s,
                       const gemv_parts_t* parts) {
  if (!gemv_is_joint(parts)) return gemv_is_thin(s) || gemv_is_small(s);
  return s->m <= GEMV_ROWS && s->k > 0 && s->a_column == 1 && s->b_row == 1;
}

static rabbet_status_t gemv_propose_parts(const rabbet_propose_t* propose,
                                          rabbet_candidate_sink_t sink,
                                          const rabbet_dims_t* dims) {
  gemv_parts_t parts;
  rabbet_matmul_shape_t shape;
  if (!gemv_parse(propose->group, dims, &parts) ||
      !rabbet_cuda_layers_match(&parts.pair.plain, dims))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_matmul_shape(&parts.pair.plain.nodes[0], dims, &shape));
  if (!gemv_wants(&shape, &parts)) return rabbet_ok();
  gemv_offer_t offer = {.parts = &parts, .splits = gemv_splits(&shape)};
  while (offer.rows < 3 && gemv_rows[offer.rows] < shape.m &&
         gemv_rows[offer.rows] < shape.n)
    ++offer.rows;
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_gemv, &offer,
                              cuda_gemv_body);
}

static rabbet_status_t cuda_gemv_propose(const rabbet_propose_t* propose,
                                         rabbet_candidate_sink_t sink) {
  rabbet_dims_t* dims = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(propose->group, propose->allocator, &dims));
  rabbet_status_t status = gemv_propose_parts(propose, sink, dims);
  rabbet_free(propose->allocator, dims);
  return status;
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t gemv_find_parts(gemv_kernel_t* kernel,
                                       const rabbet_kernel_spec_t* spec,
                                       bool* out_fits) {
  rabbet_dims_t* dims = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(spec->group, spec->allocator, &dims));
  *out_fits = gemv_parse(spec->group, dims, &kernel->parts) &&
              rabbet_matmul_matches(&kernel->parts.pair.plain);
  rabbet_free(spec->allocator, dims);
  return rabbet_ok();
}

static rabbet_dtype_t gemv_scale_type(const gemv_kernel_t* kernel,
                                      const rabbet_group_t* group) {
  int32_t scale = kernel->parts.rows.scale;
  return scale < 0 ? kernel->dtype : group->values[scale].dtype;
}

static rabbet_status_t gemv_add(gemv_kernel_t* kernel,
                                const rabbet_kernel_spec_t* spec) {
  const gemv_parts_t* parts = &kernel->parts;
  rabbet_kernel_spec_t plain = *spec;
  char begin[320];
  plain.group = &parts->pair.plain;
  snprintf(begin, sizeof(begin),
           "#define ELEMENT %s\n#define ROWS %d\n#define COLUMNS %d\n"
           "#define LANES %d\n#define SPLIT %d\n#define NORMALIZED %d\n"
           "#define SCALE %s\n#define SCALED %d\n#define PAIR %d\n"
           "#define OTHER %d\n",
           rabbet_cuda_type(kernel->dtype), kernel->rows, kernel->columns,
           kernel->lanes, kernel->split, parts->rows.is_normalized,
           rabbet_cuda_type(gemv_scale_type(kernel, spec->group)),
           parts->rows.scale >= 0, parts->pair.weights >= 0, parts->pair.other);
  return rabbet_cuda_layers_add(&kernel->node, &plain, "products/gemv.cu",
                                begin, "device/cuda/products/gemv.cuh");
}

static rabbet_status_t cuda_gemv_program(rabbet_cuda_node_t* base,
                                         const rabbet_kernel_spec_t* spec) {
  gemv_kernel_t* kernel = (gemv_kernel_t*)base;
  bool fits = false;
  RABBET_RETURN_IF_ERROR(gemv_find_parts(kernel, spec, &fits));
  if (fits) kernel->dtype = gemv_type(spec->group, &kernel->parts);
  if (!fits || !gemv_computes(kernel->dtype) || spec->tactic < 0 ||
      spec->tactic >= GEMV_SPLITS * GEMV_TACTICS ||
      !gemv_has_room(&kernel->parts, spec->tactic))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "cuda.gemv computes products with one floating type, "
                         "all LINEAR, with an epilogue, and a normalization of "
                         "the rows and a second product of them; this group "
                         "has another form, or has no tactic %d",
                         (int)spec->tactic);
  int tactic = spec->tactic % GEMV_TACTICS;
  kernel->rows = gemv_rows[tactic / GEMV_WIDTHS];
  kernel->columns = gemv_widths[tactic % GEMV_WIDTHS].columns;
  kernel->lanes = gemv_widths[tactic % GEMV_WIDTHS].lanes;
  kernel->split = 1 << spec->tactic / GEMV_TACTICS;
  kernel->element = rabbet_dtype_bits(kernel->dtype) / 8;
  kernel->scale = rabbet_dtype_bits(gemv_scale_type(kernel, spec->group)) / 8;
  RABBET_RETURN_IF_ERROR(gemv_add(kernel, spec));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "dot", &kernel->dot));
  if (!gemv_is_joint(&kernel->parts))
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
  state->has_vectors = along_k || (!gemv_is_joint(&kernel->parts) &&
                                   gemv_can_vectorise(state, false, vector));
  if (along_k)
    RABBET_RETURN_IF_ERROR(gemv_launch_warps(kernel, state, kernel->dot,
                                             kernel->rows, &state->vectors));
  else if (state->has_vectors)
    RABBET_RETURN_IF_ERROR(gemv_launch(kernel, state, &block, &state->vectors));
  return gemv_launch_warps(kernel, state, kernel->single, 1, &state->single);
}

// Boundary input of a value; -1: there is none.
static int gemv_input(const rabbet_group_t* group, int32_t value) {
  return value < 0 ? -1 : rabbet_group_input_of(group, value);
}

static rabbet_status_t gemv_fill(const gemv_kernel_t* kernel,
                                 const rabbet_dims_t* dims,
                                 cuda_gemv_state_t* state) {
  const gemv_parts_t* parts = &kernel->parts;
  const rabbet_group_t* group = &parts->pair.plain;
  const rabbet_group_node_t* node = &group->nodes[0];
  rabbet_matmul_shape_t* s = &state->shape;
  RABBET_RETURN_IF_ERROR(rabbet_matmul_shape(node, dims, s));
  state->swapped = s->n < s->m && !gemv_is_joint(parts);
  state->a = rabbet_group_input_of(group, node->inputs[state->swapped]);
  state->b = rabbet_group_input_of(group, node->inputs[!state->swapped]);
  state->second = gemv_input(group, parts->pair.weights);
  state->scale = gemv_input(group, parts->rows.scale);
  assert(state->a >= 0 && state->b >= 0);  // rabbet_matmul_matches() was true
  state->empty = s->m == 0 || s->n == 0 || s->batch.size == 0;
  gemv_parameters(s, state->swapped, &state->parameters);
  gemv_t* p = &state->parameters;
  p->epsilon = parts->rows.epsilon;
  const layer_operand_t result = {NULL, p->y_batch, p->y_row, p->y_column};
  RABBET_RETURN_IF_ERROR(rabbet_cuda_layers_place(&kernel->node, group, dims,
                                                  &result, state->swapped,
                                                  &state->layers, &p->layers));
  // The kernel does not read the second result from memory.
  if (parts->pair.other >= 0)
    state->layers.inputs[parts->pair.other] = state->a;
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
  if (state->second >= 0)
    p->second = (const char*)call->inputs[state->second] + b * size;
  if (state->scale >= 0) p->scale = call->inputs[state->scale];
  rabbet_cuda_layers_bind(&state->layers, call, at->y * size, &p->layers);
}

static rabbet_status_t cuda_gemv_enqueue(rabbet_kernel_t* base,
                                         cuda_gemv_state_t* state,
                                         const rabbet_kernel_call_t* call) {
  const gemv_kernel_t* kernel = (const gemv_kernel_t*)base;
  int64_t turns = rabbet_matmul_turns(&state->shape);
  const struct {
    int input;
    int64_t bytes;
  } factors[] = {{state->a, 16},
                 {state->b, 16},
                 {state->second, 16},
                 {state->scale, 16 / kernel->element * kernel->scale}};
  bool vectors = state->has_vectors;
  for (int i = 0; i < 4; ++i)
    vectors = vectors && (factors[i].input < 0 ||
                          rabbet_cuda_is_aligned(call->inputs[factors[i].input],
                                                 factors[i].bytes));
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
  rabbet_cuda_normalized_t rows;
  return rabbet_cuda_normalized_parse(spec->group, &rows) &&
         rabbet_matmul_matches(&rows.plain);
}

RABBET_CUDA_NODE_CLASS(cuda_gemv, gemv_kernel_t, "cuda.gemv", 4);
