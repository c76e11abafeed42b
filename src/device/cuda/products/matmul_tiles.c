// Products of 8 to 2048 rows, and any chain of element-wise layers after them,
// by kernels of our own: transformers at small batches, where cuBLASLt takes
// several times as long as reading the weights, and at larger ones, where it
// lacks the layers after the product.
//
// Bound by latency, and by how much of a and b each multiprocessor reads. So
// tiles are small enough that every multiprocessor has one. If there are too
// few tiles, the blocks of a cluster split k and add up their sums through
// shared memory; all stages of a block are then in flight at once. If b is
// constant, its loads begin before the previous kernel has ended.
#include <assert.h>
#include <stdio.h>

#include "core/view.h"
#include "device/cuda/products/layers.h"
#include "device/cuda/products/matmul_tiles.h"
#include "device/cuda/programs/launch.h"
#include "ops/enums.h"

// Products from TILES_FEW to TILES_MOST rows are offered; gemv.c has those of
// fewer rows. TILES_SHORT: the least k.
enum { TILES_FEW = 8, TILES_MOST = 2048, TILES_SHORT = 64 };

// A tactic is an index into the table.
static const tiles_tactic_t tiles_tactics[] = {
    {64, 64, 4, 4, TILES_K | TILES_COLUMNS},
    {64, 32, 6, 2, TILES_K},
    {64, 48, 6, 1, TILES_K},
    {128, 48, 4, 2, TILES_K},
    {64, 64, 4, 2, TILES_COLUMNS},
    {128, 64, 4, 3, TILES_COLUMNS},
    {128, 64, 3, 1, TILES_K | TILES_COLUMNS},
    {128, 96, 3, 1, TILES_K},
    {128, 128, 3, 1, TILES_K | TILES_COLUMNS},
};
enum { TILES_TACTICS = sizeof(tiles_tactics) / sizeof(tiles_tactics[0]) };

typedef struct tiles_kernel_t {
  rabbet_cuda_node_t node;
  const tiles_tactic_t* tactic;
  bool constant;  // b
  CUfunction whole, single;
} tiles_kernel_t;

typedef struct cuda_matmul_tiles_state_t {
  rabbet_matmul_shape_t shape;
  tiles_t parameters;
  rabbet_cuda_layers_t layers;
  int a, b;  // boundary inputs
  bool is_whole, empty;
  rabbet_cuda_launch_t launch;
} cuda_matmul_tiles_state_t;

static bool tiles_along_columns(const rabbet_group_t* group) {
  return rabbet_node_int(&group->nodes[0], "op1") ==
         (int64_t)RABBET_MATRIX_NONE;
}

// ---- Proposing -------------------------------------------------------------

// Whether all lines are aligned to 16 bytes: other shapes would be slow.
static bool tiles_suits(const rabbet_group_t* group,
                        const rabbet_matmul_shape_t* s) {
  int64_t op1 = rabbet_node_int(&group->nodes[0], "op1");
  return s->m > TILES_FEW && s->m <= TILES_MOST && s->n > TILES_FEW &&
         s->k >= TILES_SHORT && s->k % TILES_CHUNK == 0 &&
         s->n % TILES_CHUNK == 0 && s->a_column == 1 &&
         s->a_row % TILES_CHUNK == 0 && op1 != (int64_t)RABBET_MATRIX_VECTOR;
}

static int64_t tiles_blocks(const tiles_tactic_t* t,
                            const rabbet_matmul_shape_t* s) {
  return rabbet_ceildiv(s->m, (int64_t)t->rows) *
         rabbet_ceildiv(s->n, (int64_t)t->columns) * t->parts * s->batch.size;
}

// Compiling a variant takes a second, so only those are offered that keep half
// of the GPU busy and need at most two waves, unless all variants have few
// blocks. `resident`: blocks that a multiprocessor has at once.
static bool tiles_fits(const rabbet_cuda_device_t* device,
                       const tiles_tactic_t* t, const rabbet_matmul_shape_t* s,
                       bool along_columns) {
  int64_t blocks = tiles_blocks(t, s), most = device->multiprocessors;
  int64_t resident = t->parts > 1 ? 1 : device->shared_bytes / tiles_shared(t);
  return (t->along & (along_columns ? TILES_COLUMNS : TILES_K)) != 0 &&
         2 * blocks >= most &&
         blocks <= rabbet_max_i64(2 * resident * most, 64) &&
         t->parts <= rabbet_ceildiv(s->k, (int64_t)TILES_INNER) &&
         tiles_shared(t) <= device->shared_bytes;
}

typedef struct tiles_choice_t {
  const rabbet_cuda_device_t* device;
  rabbet_matmul_shape_t shape;
} tiles_choice_t;

static rabbet_status_t tiles_offer(rabbet_proposal_t* proposal) {
  const tiles_choice_t* choice = proposal->context;
  bool along_columns = tiles_along_columns(proposal->propose->group);
  for (int i = 0; i < TILES_TACTICS; ++i) {
    const tiles_tactic_t* t = &tiles_tactics[i];
    if (!tiles_fits(choice->device, t, &choice->shape, along_columns)) continue;
    rabbet_candidate_t candidate = {
        .kernel = proposal->kernel, .tactic = i, .tensors = proposal->tensors};
    snprintf(candidate.tactic_name, sizeof(candidate.tactic_name),
             "%d x %d x %d", t->rows, t->columns, t->parts);
    RABBET_RETURN_IF_ERROR(
        rabbet_offer(proposal->propose, proposal->sink, &candidate));
  }
  return rabbet_ok();
}

static rabbet_status_t tiles_body(rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  size_t boundary = propose->group->input_count + propose->group->output_count;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(propose, proposal->tensors[0].dtype, types);
  for (int i = 0; i < count; ++i) {
    if (!tiles_computes(types[i])) continue;
    for (size_t k = 0; k < boundary; ++k)
      if (rabbet_dtype_is_float(proposal->tensors[k].dtype))
        proposal->tensors[k].dtype = types[i];
    RABBET_RETURN_IF_ERROR(tiles_offer(proposal));
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_matmul_tiles_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  tiles_choice_t choice = {.device = rabbet_cuda(propose->device)};
  rabbet_dims_t* dims = NULL;
  if (!rabbet_matmul_matches(group) || choice.device->major < 9 ||
      propose->optimization_level < 2)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, propose->allocator, &dims));
  bool fits = rabbet_cuda_layers_match(group, dims);
  rabbet_status_t status =
      fits ? rabbet_matmul_shape(&group->nodes[0], dims, &choice.shape)
           : rabbet_ok();
  rabbet_free(propose->allocator, dims);
  RABBET_RETURN_IF_ERROR(status);
  if (!fits || !tiles_suits(group, &choice.shape)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_matmul_tiles, &choice,
                              tiles_body);
}

// ---- The program -----------------------------------------------------------

rabbet_status_t rabbet_cuda_tiles_permit(const rabbet_cuda_device_t* device,
                                         const tiles_tactic_t* tactic,
                                         CUfunction whole, CUfunction single) {
  CUfunction functions[] = {whole, single};
  for (int i = 0; i < 2; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_launch_permit(device, functions[i], tiles_shared(tactic)));
  return rabbet_ok();
}

static rabbet_status_t cuda_matmul_tiles_program(
    rabbet_cuda_node_t* base, const rabbet_kernel_spec_t* spec) {
  tiles_kernel_t* kernel = (tiles_kernel_t*)base;
  const rabbet_group_t* group = spec->group;
  rabbet_dtype_t dtype = rabbet_cuda_layers_type(group);
  if (!tiles_computes(dtype) || spec->tactic < 0 ||
      spec->tactic >= TILES_TACTICS ||
      (tiles_along_columns(group) &&
       !(tiles_tactics[spec->tactic].along & TILES_COLUMNS)))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "cuda.matmul.tiles computes groups that begin with a "
                         "product and are HALF or BF16, all LINEAR; this one "
                         "is not, or has no tactic %d",
                         (int)spec->tactic);
  const tiles_tactic_t* t = &tiles_tactics[spec->tactic];
  char begin[256];
  kernel->tactic = t;
  kernel->constant = group->values[group->nodes[0].inputs[1]].constant != NULL;
  snprintf(begin, sizeof(begin),
           "#define ELEMENT %s\n#define ALONG_COLUMNS %d\n#define ROWS %d\n"
           "#define COLUMNS %d\n#define STAGES %d\n#define PARTS %d\n",
           rabbet_cuda_type(dtype), tiles_along_columns(group), t->rows,
           t->columns, t->stages, t->parts);
  base->specific = true;
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_layers_add(base, spec, "products/matmul_tiles.cu", begin,
                             "device/cuda/products/matmul_tiles.cuh"));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "tiles", &kernel->whole));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "tiles_single", &kernel->single));
  return rabbet_cuda_tiles_permit(base->device, t, kernel->whole,
                                  kernel->single);
}

// ---- Preparing -------------------------------------------------------------

static bool tiles_divides(int64_t by, int64_t size, int64_t stride) {
  return size == 1 || stride % by == 0;
}

// Whether lines consist of whole, aligned chunks in every batch and turn.
static bool tiles_is_whole(const cuda_matmul_tiles_state_t* state) {
  const rabbet_matmul_shape_t* s = &state->shape;
  const tiles_t* p = &state->parameters;
  const tiles_lines_t* lines[] = {&p->a, &p->b};
  bool fits = s->n % TILES_WIDTH == 0 &&
              tiles_divides(TILES_WIDTH, s->m, s->y_row) &&
              tiles_divides(TILES_WIDTH, s->batch.size, s->batch.y);
  for (int i = 0; i < 2; ++i)
    fits = fits && lines[i]->pace == 1 && lines[i]->length % TILES_CHUNK == 0 &&
           tiles_divides(TILES_CHUNK, lines[i]->count, lines[i]->step) &&
           tiles_divides(TILES_CHUNK, s->batch.size, lines[i]->batch);
  for (int i = 0; fits && i < s->loop_count; ++i)
    fits = tiles_divides(TILES_CHUNK, s->loops[i].size, s->loops[i].a) &&
           tiles_divides(TILES_CHUNK, s->loops[i].size, s->loops[i].b) &&
           tiles_divides(TILES_WIDTH, s->loops[i].size, s->loops[i].y);
  return fits;
}

static void tiles_parameters(const tiles_kernel_t* kernel,
                             const rabbet_matmul_shape_t* s, tiles_t* p) {
  bool along_columns = tiles_along_columns(kernel->node.node.group);
  p->a = (tiles_lines_t){.count = s->m,
                         .length = s->k,
                         .batch = s->batch.a,
                         .step = s->a_row,
                         .pace = s->a_column};
  p->b = (tiles_lines_t){.count = along_columns ? s->k : s->n,
                         .length = along_columns ? s->n : s->k,
                         .batch = s->batch.b,
                         .step = along_columns ? s->b_row : s->b_column,
                         .pace = along_columns ? s->b_column : s->b_row};
  p->rows = s->m;
  p->columns = s->n;
  p->y_batch = s->batch.y;
  p->y_row = s->y_row;
  p->stages = (int32_t)rabbet_ceildiv(s->k, (int64_t)TILES_INNER);
}

static rabbet_status_t tiles_launch(const tiles_kernel_t* kernel,
                                    cuda_matmul_tiles_state_t* state) {
  const tiles_tactic_t* t = kernel->tactic;
  const rabbet_matmul_shape_t* s = &state->shape;
  assert(s->m > 0 && s->n > 0 && s->batch.size > 0);
  int64_t x = rabbet_ceildiv(s->n, (int64_t)t->columns) * t->parts;
  int64_t y = rabbet_ceildiv(s->m, (int64_t)t->rows);
  if (x > INT32_MAX / 2 || y > 65535 || s->batch.size > 65535 ||
      s->k >= INT32_MAX / 16 || s->n >= INT32_MAX / 2)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the product '%s' has m %lld, n %lld, k %lld, batch "
                         "%lld, more than cuda.matmul.tiles counts",
                         kernel->node.node.node->name, (long long)s->m,
                         (long long)s->n, (long long)s->k,
                         (long long)s->batch.size);
  state->launch = (rabbet_cuda_launch_t){
      .grid = {(unsigned)x, (unsigned)y, (unsigned)s->batch.size},
      .block = {(unsigned)tiles_threads(t), 1, 1},
      .shared_bytes = (unsigned)tiles_shared(t),
      .cluster = (unsigned)t->parts,
      .overlaps = kernel->constant ? &state->parameters.ahead : NULL};
  return rabbet_ok();
}

static rabbet_status_t tiles_fill(const tiles_kernel_t* kernel,
                                  const rabbet_dims_t* dims,
                                  cuda_matmul_tiles_state_t* state) {
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* node = kernel->node.node.node;
  rabbet_matmul_shape_t* s = &state->shape;
  RABBET_RETURN_IF_ERROR(rabbet_matmul_shape(node, dims, s));
  state->a = rabbet_group_input_of(group, node->inputs[0]);
  state->b = rabbet_group_input_of(group, node->inputs[1]);
  assert(state->a >= 0 && state->b >= 0);  // rabbet_matmul_matches() was true
  state->empty = s->m == 0 || s->n == 0 || s->batch.size == 0;
  tiles_parameters(kernel, s, &state->parameters);
  const layer_operand_t result = {NULL, s->batch.y, s->y_row, 1};
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_layers_place(&kernel->node, group, dims, &result, false,
                               &state->layers, &state->parameters.layers));
  state->is_whole = tiles_is_whole(state);
  return state->empty ? rabbet_ok() : tiles_launch(kernel, state);
}

static rabbet_status_t cuda_matmul_tiles_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_matmul_tiles_state_t** out_state, size_t* out_workspace) {
  cuda_matmul_tiles_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      tiles_fill((const tiles_kernel_t*)base, shapes->dims, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static bool tiles_is_aligned(const cuda_matmul_tiles_state_t* state,
                             const rabbet_kernel_call_t* call) {
  enum { PIECE = TILES_WIDTH * TILES_ELEMENT };
  bool aligned = rabbet_cuda_is_aligned(call->inputs[state->a], 16) &&
                 rabbet_cuda_is_aligned(call->inputs[state->b], 16) &&
                 rabbet_cuda_is_aligned(call->outputs[0], PIECE);
  for (int i = 0; i < state->layers.count; ++i)
    aligned = aligned && (state->parameters.layers.operands[i].column == 0 ||
                          rabbet_cuda_is_aligned(
                              call->inputs[state->layers.inputs[i]], PIECE));
  return aligned;
}

static rabbet_status_t cuda_matmul_tiles_enqueue(
    rabbet_kernel_t* base, cuda_matmul_tiles_state_t* state,
    const rabbet_kernel_call_t* call) {
  const tiles_kernel_t* kernel = (const tiles_kernel_t*)base;
  tiles_t* p = &state->parameters;
  int64_t turns = rabbet_matmul_turns(&state->shape);
  bool whole = state->is_whole && tiles_is_aligned(state, call);
  state->launch.function = whole ? kernel->whole : kernel->single;
  for (int64_t turn = 0; !state->empty && turn < turns; ++turn) {
    rabbet_matmul_axis_t at = rabbet_matmul_turn(&state->shape, turn);
    p->a.data = (const char*)call->inputs[state->a] + at.a * TILES_ELEMENT;
    p->b.data = (const char*)call->inputs[state->b] + at.b * TILES_ELEMENT;
    p->y = (char*)call->outputs[0] + at.y * TILES_ELEMENT;
    rabbet_cuda_layers_bind(&state->layers, call, at.y * TILES_ELEMENT,
                            &p->layers);
    void* parameters[] = {p};
    RABBET_RETURN_IF_ERROR(rabbet_cuda_launch(
        kernel->node.device, &state->launch, parameters, call->stream));
  }
  return rabbet_ok();
}

static bool cuda_matmul_tiles_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_matmul_matches(spec->group);
}

RABBET_CUDA_NODE_CLASS(cuda_matmul_tiles, tiles_kernel_t, "cuda.matmul.tiles",
                       1);
