// A mixture of experts. The device sorts pairs of a token and an expert by
// expert and multiplies tiles of them by the expert's weights. The host knows
// only an upper bound of the number of tiles; surplus blocks return at once.
// For few tokens the weights of the chosen experts are read once; if blocks are
// few, the latency of the loop over the inner index is the bound (one token on
// an H200 reaches a tenth of the bandwidth). Many tokens are bound by the
// products.
#include <assert.h>

#include "device/common/moe.h"

#include "device/cuda/products/moe_params.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"
#include "ops/enums.h"

// Rows of a tile if experts have few pairs, and if they have many; the most
// pairs of one launch, which have workspace.
enum { FEW_ROWS = 16, MANY_ROWS = 64, MOST_PAIRS = 32768, THREADS = 256 };
enum {
  SORT,
  INNER_FEW,
  INNER_MANY,
  DOWN_FEW,
  DOWN_MANY,
  SUM,
  ROUND,
  FUNCTIONS
};

typedef struct cuda_moe_kernel_t {
  rabbet_cuda_node_t node;
  int64_t size;  // bytes of an element
  bool rounds;
  CUfunction functions[FUNCTIONS];
} cuda_moe_kernel_t;

typedef struct cuda_moe_state_t {
  rabbet_moe_sizes_t sizes;
  int64_t step;  // tokens of one launch
  bool is_wide;  // all rows are multiples of 16 bytes
  moe_t parameters;
  // Offsets in the workspace, in bytes.
  size_t order, place, starts, tiles, inner, results;
} cuda_moe_state_t;

static rabbet_status_t cuda_moe_propose(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink) {
  return rabbet_moe_propose(propose, sink, &rabbet_cuda_moe);
}

// Whether, and to which type, results of the first products are quantized.
static rabbet_status_t moe_rounding(const rabbet_group_t* group,
                                    const rabbet_group_node_t* layer,
                                    rabbet_cuda_options_t* options,
                                    bool* out_rounds) {
  rabbet_moe_attrs_t attrs;
  int32_t scale = rabbet_node_input(layer, RABBET_MOE_SCALE);
  rabbet_moe_read_attrs(layer->attrs, layer->op->attr_count, 0, &attrs);
  const rabbet_moe_quantization_t* q = &attrs.quantization;
  *out_rounds = q->to != RABBET_DTYPE_FLOAT;
  if (!*out_rounds) return rabbet_ok();
  const char* factor =
      scale < 0 ? NULL : rabbet_cuda_type(group->values[scale].dtype);
  if ((q->to != RABBET_DTYPE_INT8 && q->to != RABBET_DTYPE_FP8) ||
      !rabbet_dtype_is_float(q->kept) || !rabbet_cuda_type(q->kept) || !factor)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': rows cannot be rounded to %s with scales "
                         "of %s",
                         layer->name, rabbet_dtype_name(q->to),
                         rabbet_dtype_name(q->kept));
  rabbet_cuda_option(options, "-DROUND=%s", rabbet_cuda_type(q->to));
  rabbet_cuda_option(options, "-DSCALE=%s", rabbet_cuda_type(q->kept));
  rabbet_cuda_option(options, "-DFACTOR=%s", factor);
  return rabbet_ok();
}

static rabbet_status_t cuda_moe_program(rabbet_cuda_node_t* node,
                                        const rabbet_kernel_spec_t* spec) {
  static const char* const names[FUNCTIONS] = {[SORT] = "moe_sort",
                                               [INNER_FEW] = "moe_inner_few",
                                               [INNER_MANY] = "moe_inner_many",
                                               [DOWN_FEW] = "moe_down_few",
                                               [DOWN_MANY] = "moe_down_many",
                                               [SUM] = "moe_sum",
                                               [ROUND] = "moe_round"};
  cuda_moe_kernel_t* kernel = (cuda_moe_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  rabbet_cuda_options_t options = {.count = 0};
  if (!rabbet_node_is(spec->group, RABBET_OP_MOE))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' has no experts", layer->name);
  RABBET_RETURN_IF_ERROR(rabbet_moe_check_types(spec->group, layer));
  rabbet_dtype_t dtype =
      spec->group->values[layer->inputs[RABBET_MOE_HIDDEN]].dtype;
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(dtype));
  RABBET_RETURN_IF_ERROR(
      moe_rounding(spec->group, layer, &options, &kernel->rounds));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "products/moe.cu", NULL, &options));
  for (int i = 0; i < (kernel->rounds ? FUNCTIONS : ROUND); ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, names[i], &kernel->functions[i]));
  return rabbet_ok();
}

// ---- Geometry --------------------------------------------------------------

// An upper bound of the number of tiles: each expert with pairs has at most one
// partial tile.
static int64_t moe_tiles(const moe_t* p) {
  assert(p->rows > 0 && p->pairs >= 0 && p->experts >= 0);
  int64_t busy = rabbet_min_i64(p->experts, p->pairs);
  return rabbet_min_i64(p->pairs, p->pairs / p->rows + busy);
}

static rabbet_status_t moe_lay_out(const cuda_moe_kernel_t* kernel,
                                   cuda_moe_state_t* state,
                                   size_t* out_workspace) {
  const rabbet_moe_sizes_t* s = &state->sizes;
  size_t total = 0;
  int64_t pairs = state->parameters.pairs;
  bool fits = s->experts < UINT16_MAX && pairs < INT32_MAX &&
              moe_tiles(&state->parameters) <= UINT16_MAX &&
              rabbet_moe_reserve(256, pairs, 1, sizeof(int32_t), &total,
                                 &state->order) &&
              rabbet_moe_reserve(256, pairs, 1, sizeof(int32_t), &total,
                                 &state->place) &&
              rabbet_moe_reserve(256, s->experts + 1, 1, sizeof(int32_t),
                                 &total, &state->starts) &&
              rabbet_moe_reserve(256, s->experts + 1, 1, sizeof(int32_t),
                                 &total, &state->tiles) &&
              rabbet_moe_reserve(256, s->is_gated ? pairs : 0, s->inner,
                                 (size_t)kernel->size, &total, &state->inner) &&
              rabbet_moe_reserve(256, pairs, s->hidden, sizeof(float), &total,
                                 &state->results);
  *out_workspace = total;
  if (fits) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': %lld experts for %lld tokens at once are "
                       "too many",
                       kernel->node.node.node->name, (long long)s->experts,
                       (long long)state->step);
}

static void moe_set(const cuda_moe_kernel_t* kernel, cuda_moe_state_t* state) {
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const rabbet_moe_sizes_t* s = &state->sizes;
  rabbet_moe_attrs_t attrs;
  int64_t chosen = rabbet_max_i64(s->chosen, 1), piece = 16 / kernel->size;
  rabbet_moe_read_attrs(layer->attrs, layer->op->attr_count, s->inner, &attrs);
  state->step = rabbet_min_i64(rabbet_max_i64(1, MOST_PAIRS / chosen),
                               rabbet_max_i64(s->tokens, 1));
  int64_t pairs = state->step * s->chosen;
  int64_t busy = rabbet_max_i64(1, rabbet_min_i64(s->experts, pairs));
  int64_t block = attrs.quantization.block;
  state->is_wide = s->hidden % piece == 0 && s->inner % piece == 0;
  state->parameters =
      (moe_t){.pairs = pairs,
              .hidden = s->hidden,
              .inner = s->inner,
              .is_gated = s->is_gated,
              .chosen = rabbet_cuda_divisor(chosen),
              .experts = (int32_t)rabbet_min_i64(s->experts, UINT16_MAX),
              .rows = pairs < busy * (MANY_ROWS / 2) ? FEW_ROWS : MANY_ROWS,
              .is_long = kernel->node.node.group
                             ->values[layer->inputs[RABBET_MOE_EXPERTS]]
                             .dtype == RABBET_DTYPE_INT64,
              .is_silu = attrs.activation == RABBET_MOE_ACT_SILU,
              .limit = attrs.limit,
              .alpha = attrs.alpha,
              .beta = attrs.beta,
              .finds = block > 0,
              .block = block > 0 ? block : rabbet_max_i64(1, s->inner)};
}

static rabbet_status_t cuda_moe_prepare(rabbet_kernel_t* base,
                                        const rabbet_kernel_shapes_t* shapes,
                                        cuda_moe_state_t** out_state,
                                        size_t* out_workspace) {
  const cuda_moe_kernel_t* kernel = (const cuda_moe_kernel_t*)base;
  rabbet_moe_sizes_t sizes;
  cuda_moe_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_moe_resolve_node(kernel->node.node.node, shapes->dims, &sizes));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  state->sizes = sizes;
  moe_set(kernel, state);
  return rabbet_node_state_finish(base, state,
                                  moe_lay_out(kernel, state, out_workspace),
                                  (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

// One part of the tokens.
typedef struct moe_call_t {
  const cuda_moe_kernel_t* kernel;
  void* stream;
  moe_t p;
  moe_inputs_t in;
  moe_order_t order;
  void *inner, *results, *output;
  int64_t tokens;
} moe_call_t;

static rabbet_status_t moe_launch(const moe_call_t* call, int function,
                                  int64_t x, int64_t y, int threads,
                                  void** parameters) {
  const rabbet_cuda_launch_t launch = {
      .function = call->kernel->functions[function],
      .grid = {(unsigned)x, (unsigned)y, 1},
      .block = {(unsigned)threads, 1, 1}};
  assert(x >= 0 && x <= INT32_MAX && y >= 0 && y <= UINT16_MAX);
  if (x == 0 || y == 0) return rabbet_ok();
  return rabbet_cuda_launch(call->kernel->node.device, &launch, parameters,
                            call->stream);
}

static rabbet_status_t moe_run(moe_call_t* call) {
  moe_t* p = &call->p;
  bool few = p->rows == FEW_ROWS;
  int64_t tiles = moe_tiles(p), count = call->tokens * p->hidden;
  divisor_t hidden = rabbet_cuda_divisor(p->hidden);
  void* sort[] = {&call->in.experts, &call->order, p};
  void* inner[] = {&call->in, &call->order, &call->inner, p};
  void* round[] = {&call->order, &call->inner, &call->in.scale, p};
  void* down[] = {&call->in, &call->order, &call->inner, &call->results, p};
  void* sum[] = {&call->in.scores,
                 &call->order,
                 &call->results,
                 &call->output,
                 &count,
                 &hidden,
                 p};
  RABBET_RETURN_IF_ERROR(moe_launch(call, SORT, 1, 1, MOE_SORT_THREADS, sort));
  if (p->is_gated)
    RABBET_RETURN_IF_ERROR(
        moe_launch(call, few ? INNER_FEW : INNER_MANY,
                   rabbet_ceildiv(p->inner, (int64_t)MOE_COLUMNS), tiles,
                   MOE_THREADS, inner));
  if (call->kernel->rounds)
    RABBET_RETURN_IF_ERROR(moe_launch(
        call, ROUND,
        rabbet_ceildiv(p->pairs * rabbet_ceildiv(p->inner, p->block) * 32,
                       (int64_t)THREADS),
        1, THREADS, round));
  RABBET_RETURN_IF_ERROR(
      moe_launch(call, few ? DOWN_FEW : DOWN_MANY,
                 rabbet_ceildiv(p->hidden, (int64_t)MOE_COLUMNS), tiles,
                 MOE_THREADS, down));
  return moe_launch(call, SUM, rabbet_ceildiv(count, (int64_t)THREADS), 1,
                    THREADS, sum);
}

static bool moe_is_aligned(const moe_inputs_t* in) {
  return rabbet_cuda_is_aligned(in->hidden, 16) &&
         rabbet_cuda_is_aligned(in->gate, 16) &&
         rabbet_cuda_is_aligned(in->up, 16) &&
         rabbet_cuda_is_aligned(in->down, 16);
}

static rabbet_status_t cuda_moe_enqueue(rabbet_kernel_t* base,
                                        cuda_moe_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  const cuda_moe_kernel_t* kernel = (const cuda_moe_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const rabbet_moe_sizes_t* s = &state->sizes;
  char* workspace = call->workspace;
  const char* in[RABBET_MOE_INPUTS];
  char* output = rabbet_node_output(node, call, 0);
  int64_t index = state->parameters.is_long ? 8 : 4;
  for (size_t i = 0; i < RABBET_MOE_INPUTS; ++i)
    in[i] = rabbet_node_input_at(node, call, i);
  for (int64_t first = 0; first < s->tokens; first += state->step) {
    int64_t pair = first * s->chosen, at = first * s->hidden * kernel->size;
    int64_t row = first * rabbet_moe_width(s) * kernel->size;
    moe_call_t run = {
        .kernel = kernel,
        .stream = call->stream,
        .p = state->parameters,
        .in = {.hidden = in[RABBET_MOE_HIDDEN] + row,
               .experts = in[RABBET_MOE_EXPERTS] + pair * index,
               .scores = in[RABBET_MOE_SCORES]
                             ? in[RABBET_MOE_SCORES] + pair * kernel->size
                             : NULL,
               .gate = in[RABBET_MOE_GATE],
               .up = in[RABBET_MOE_UP],
               .down = in[RABBET_MOE_DOWN],
               .gate_bias = in[RABBET_MOE_GATE_BIAS],
               .up_bias = in[RABBET_MOE_UP_BIAS],
               .down_bias = in[RABBET_MOE_DOWN_BIAS],
               .scale = in[RABBET_MOE_SCALE]},
        .order = {.order = (int32_t*)(void*)(workspace + state->order),
                  .place = (int32_t*)(void*)(workspace + state->place),
                  .starts = (int32_t*)(void*)(workspace + state->starts),
                  .tiles = (int32_t*)(void*)(workspace + state->tiles)},
        .inner = workspace + state->inner,
        .results = workspace + state->results,
        .output = output + at,
        .tokens = rabbet_min_i64(state->step, s->tokens - first)};
    run.p.pairs = run.tokens * s->chosen;
    // The workspace has room for the pairs of `step` tokens.
    assert(run.tokens > 0 && run.p.pairs <= state->parameters.pairs);
    run.p.wide = state->is_wide && moe_is_aligned(&run.in);
    // Without experts all results are 0, which the sum writes.
    RABBET_RETURN_IF_ERROR(moe_run(&run));
  }
  return rabbet_ok();
}

RABBET_TAKES_NODE(cuda_moe, MOE, 0)

RABBET_CUDA_NODE_CLASS(cuda_moe, cuda_moe_kernel_t, "cuda.moe", 1);
