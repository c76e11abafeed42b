// Products of few rows with constant weights along k, on the tensor cores, and
// any chain of element-wise layers after them: decoding, of one sequence or of
// a small batch.
//
// Bound by reading the weights once. Blocks are few and go over the lines of
// weights, so that the next kernel's blocks find room beside them and begin to
// load its own weights.
#include <assert.h>
#include <stdio.h>

#include "core/view.h"
#include "device/cuda/products/few_params.h"
#include "device/cuda/products/layers.h"
#include "device/cuda/programs/launch.h"

// Products of more rows would read the weights again.
enum { FEW_ROWS = 16, FEW_ELEMENT = 2, FEW_VECTOR = 8, FEW_OLDEST_MAJOR = 8 };
enum { FEW_MOST_BLOCKS = 65535 };  // along y

// CHUNKS of products/few.cuh, and blocks of a multiprocessor. A tactic is an
// index into the table, twice, plus 1 for 16 rows.
static const struct {
  int chunks, blocks;
} few_shapes[] = {{8, 2}, {8, 3}, {4, 3}, {2, 4}, {4, 4}};
enum {
  FEW_ROOM = 3,  // least blocks for which a program leaves registers
  FEW_SHAPES = sizeof(few_shapes) / sizeof(few_shapes[0]),
  FEW_TACTICS = 2 * FEW_SHAPES
};

typedef struct few_kernel_t {
  rabbet_cuda_node_t node;
  int rows, chunks, blocks;
  CUfunction wide, single;
} few_kernel_t;

typedef struct cuda_few_state_t {
  few_t parameters;
  rabbet_cuda_layers_t layers;
  int x, w;  // boundary inputs
  bool is_wide, empty;
  rabbet_cuda_launch_t launch;
} cuda_few_state_t;

// ---- Proposing -------------------------------------------------------------

static bool few_computes(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_HALF || dtype == RABBET_DTYPE_BF16;
}

// Whether the weights are a matrix of aligned lines that all rows share.
static bool few_fits(const rabbet_matmul_shape_t* s) {
  return s->batch.size == 1 && s->loop_count == 0 && s->b_row == 1 &&
         s->k % FEW_VECTOR == 0 && s->b_column % FEW_VECTOR == 0 &&
         s->a_column == 1 && s->n > 0 && s->n < INT32_MAX / 2 && s->k > 0 &&
         s->k < INT32_MAX / 2;
}

// Blocks along y of a grid.
static int64_t few_blocks(int64_t rows, bool wide) {
  return rabbet_ceildiv(rows, (int64_t)(wide ? FEW_ROWS : FEW_ROWS / 2));
}

static bool few_is_constant(const rabbet_group_t* group) {
  return group->values[group->nodes[0].inputs[1]].constant != NULL;
}

static rabbet_status_t few_offer(rabbet_proposal_t* proposal) {
  int wide = *(const int*)proposal->context;
  int shapes = proposal->propose->optimization_level >= 2 ? FEW_SHAPES : 1;
  for (int i = 0; i < shapes; ++i) {
    rabbet_candidate_t candidate = {.kernel = proposal->kernel,
                                    .tactic = 2 * i + wide,
                                    .tensors = proposal->tensors};
    snprintf(candidate.tactic_name, sizeof(candidate.tactic_name),
             "%d rows, %d x %d", wide ? 16 : 8, few_shapes[i].chunks,
             few_shapes[i].blocks);
    RABBET_RETURN_IF_ERROR(
        rabbet_offer(proposal->propose, proposal->sink, &candidate));
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_few_body(rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  size_t boundary = propose->group->input_count + propose->group->output_count;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(propose, proposal->tensors[0].dtype, types);
  for (int i = 0; i < count; ++i) {
    if (!few_computes(types[i])) continue;
    for (size_t k = 0; k < boundary; ++k)
      if (rabbet_dtype_is_float(proposal->tensors[k].dtype))
        proposal->tensors[k].dtype = types[i];
    RABBET_RETURN_IF_ERROR(few_offer(proposal));
  }
  return rabbet_ok();
}

typedef rabbet_status_t (*few_dims_fn_t)(const rabbet_group_t* group,
                                         rabbet_allocator_t allocator,
                                         rabbet_dims_t** out_dims);

// *out_rows: the product's rows at some dims of the profile; -1: it cannot be
// computed there.
static rabbet_status_t few_rows(const rabbet_propose_t* propose,
                                few_dims_fn_t find, int64_t* out_rows) {
  const rabbet_group_t* group = propose->group;
  rabbet_matmul_shape_t shape;
  rabbet_dims_t* dims = NULL;
  *out_rows = -1;
  RABBET_RETURN_IF_ERROR(find(group, propose->allocator, &dims));
  bool fits = rabbet_cuda_layers_match(group, dims);
  rabbet_status_t status =
      fits ? rabbet_matmul_shape(&group->nodes[0], dims, &shape) : rabbet_ok();
  rabbet_free(propose->allocator, dims);
  if (rabbet_is_ok(status) && fits && few_fits(&shape)) *out_rows = shape.m;
  return status;
}

static rabbet_status_t cuda_few_propose(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  int64_t rows = -1, most = -1;
  if (!rabbet_matmul_matches(group) || !few_is_constant(group) ||
      rabbet_cuda(propose->device)->major < FEW_OLDEST_MAJOR)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(few_rows(propose, rabbet_group_opt_dims, &rows));
  // A single row of a transposed factor lies along k, several do not.
  if (rows >= 0)
    RABBET_RETURN_IF_ERROR(few_rows(propose, rabbet_group_max_dims, &most));
  int wide = rows > FEW_ROWS / 2;
  if (rows < 0 || rows > FEW_ROWS || most < 0 ||
      few_blocks(most, wide) > FEW_MOST_BLOCKS)
    return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_few, &wide,
                              cuda_few_body);
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t cuda_few_program(rabbet_cuda_node_t* base,
                                        const rabbet_kernel_spec_t* spec) {
  few_kernel_t* kernel = (few_kernel_t*)base;
  rabbet_dtype_t dtype = rabbet_cuda_layers_type(spec->group);
  if (!few_computes(dtype) || !few_is_constant(spec->group) ||
      spec->tactic < 0 || spec->tactic >= FEW_TACTICS)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "cuda.matmul.few computes groups that begin with a "
                         "product by a constant and are HALF or BF16, all "
                         "LINEAR; this one is not, or has no tactic %d",
                         (int)spec->tactic);
  kernel->rows = spec->tactic % 2 ? FEW_ROWS : FEW_ROWS / 2;
  kernel->chunks = few_shapes[spec->tactic / 2].chunks;
  kernel->blocks = few_shapes[spec->tactic / 2].blocks;
  base->node.base.alignment = FEW_ELEMENT * FEW_VECTOR;
  char begin[128];
  snprintf(begin, sizeof(begin),
           "#define ELEMENT %s\n#define ROWS %d\n#define CHUNKS %d\n"
           "#define BLOCKS %d\n",
           rabbet_cuda_type(dtype), kernel->rows, kernel->chunks,
           kernel->blocks > FEW_ROOM ? kernel->blocks : FEW_ROOM);
  RABBET_RETURN_IF_ERROR(rabbet_cuda_layers_add(
      base, spec, "products/few.cu", begin, "device/cuda/products/few.cuh"));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "few", &kernel->wide));
  return rabbet_cuda_node_function(base, 0, "few_single", &kernel->single);
}

// ---- Preparing -------------------------------------------------------------

static rabbet_status_t few_launch(const few_kernel_t* kernel,
                                  cuda_few_state_t* state) {
  const few_t* p = &state->parameters;
  int64_t most = (int64_t)kernel->blocks * kernel->node.device->multiprocessors;
  int64_t x = rabbet_min_i64(p->tiles, rabbet_max_i64(most, 1));
  int64_t y = few_blocks(p->rows, kernel->rows == FEW_ROWS);
  if (y > FEW_MOST_BLOCKS)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the product '%s' has %d rows, more than "
                         "cuda.matmul.few counts",
                         kernel->node.node.node->name, (int)p->rows);
  state->launch = (rabbet_cuda_launch_t){
      .function = state->is_wide ? kernel->wide : kernel->single,
      .grid = {(unsigned)x, (unsigned)y, 1},
      .block = {32 * FEW_WARPS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t few_fill(const few_kernel_t* kernel,
                                const rabbet_dims_t* dims,
                                cuda_few_state_t* state) {
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* node = kernel->node.node.node;
  few_t* p = &state->parameters;
  rabbet_matmul_shape_t s;
  RABBET_RETURN_IF_ERROR(rabbet_matmul_shape(node, dims, &s));
  state->x = rabbet_group_input_of(group, node->inputs[0]);
  state->w = rabbet_group_input_of(group, node->inputs[1]);
  assert(state->x >= 0 && state->w >= 0);
  state->empty = s.m == 0;
  if (state->empty) return rabbet_ok();
  if (!few_fits(&s) || s.m >= INT32_MAX / 2)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the product '%s': at these shapes cuda.matmul.few "
                         "cannot read its factors",
                         node->name);
  p->x_row = s.a_row;
  p->w_line = s.b_column;
  p->y_row = s.y_row;
  p->rows = (int32_t)s.m;
  p->lines = (int32_t)s.n;
  p->k = (int32_t)s.k;
  p->tiles = (int32_t)rabbet_ceildiv(s.n, (int64_t)FEW_LINES);
  p->stages = (int32_t)rabbet_ceildiv(s.k, (int64_t)kernel->chunks * FEW_CHUNK);
  state->is_wide = s.m == 1 || s.a_row % FEW_VECTOR == 0;
  const layer_operand_t result = {NULL, 0, s.y_row, 1};
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_layers_place(&kernel->node, group, dims, &result, false,
                               &state->layers, &state->parameters.layers));
  return few_launch(kernel, state);
}

static rabbet_status_t cuda_few_prepare(rabbet_kernel_t* base,
                                        const rabbet_kernel_shapes_t* shapes,
                                        cuda_few_state_t** out_state,
                                        size_t* out_workspace) {
  cuda_few_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      few_fill((const few_kernel_t*)base, shapes->dims, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t cuda_few_enqueue(rabbet_kernel_t* base,
                                        cuda_few_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  const few_kernel_t* kernel = (const few_kernel_t*)base;
  few_t* p = &state->parameters;
  if (state->empty) return rabbet_ok();
  p->x = call->inputs[state->x];
  p->w = call->inputs[state->w];
  p->y = call->outputs[0];
  rabbet_cuda_layers_bind(&state->layers, call, 0, &p->layers);
  void* parameters[] = {p};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

static bool cuda_few_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_matmul_matches(spec->group);
}

RABBET_CUDA_NODE_CLASS(cuda_few, few_kernel_t, "cuda.matmul.few", 2);
