// A mixture of experts for few tokens, such as a decoder's. Pairs of a token
// and an expert are not sorted: each reads its expert's weights, as a product
// with one row does, so that all of the device's bandwidth is used. With many
// pairs for an expert, cuda.moe reads less.
#include <assert.h>

#include "device/common/moe.h"

#include "device/cuda/products/moe_params.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"
#include "ops/enums.h"

// Rows of a launch: the grid's limit. Pairs that the kernel is offered for, for
// each expert.
enum { MOST_ROWS = 32768, PAIRS_OF_EXPERT = 4 };

// Functions of a width, in the order of the lanes' numbers; the last one takes
// any alignment.
enum { NARROW, WIDE, SINGLE, WIDTHS };
enum { INNER, DOWN, PRODUCTS };
static const int few_lanes[WIDTHS] = {MOE_NARROW_LANES, MOE_WIDE_LANES,
                                      MOE_SINGLE_LANES};

typedef struct cuda_moe_few_kernel_t {
  rabbet_cuda_node_t node;
  int64_t size;  // bytes of an element
  CUfunction functions[PRODUCTS][WIDTHS];
} cuda_moe_few_kernel_t;

typedef struct cuda_moe_few_state_t {
  rabbet_moe_sizes_t sizes;
  int64_t step;  // tokens of one launch
  moe_t parameters;
} cuda_moe_few_state_t;

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t moe_few_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(proposal, "each pair", -1);
}

// Whether the last product's input is rounded, for which cuda.moe has a kernel.
static bool moe_few_rounds(const rabbet_group_node_t* node) {
  return rabbet_node_int(node, "quantization_to_type") != RABBET_DTYPE_FLOAT;
}

static rabbet_status_t cuda_moe_few_propose(const rabbet_propose_t* propose,
                                            rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_dims_t* dims = NULL;
  rabbet_moe_sizes_t sizes = {0};
  if (!rabbet_node_is(group, RABBET_OP_MOE) || moe_few_rounds(&group->nodes[0]))
    return rabbet_ok();
  rabbet_status_t status =
      rabbet_group_opt_dims(group, propose->allocator, &dims);
  if (rabbet_is_ok(status))
    status = rabbet_moe_resolve_node(&group->nodes[0], dims, &sizes);
  rabbet_free(propose->allocator, dims);
  bool is_few = sizes.tokens * sizes.chosen <= PAIRS_OF_EXPERT * sizes.experts;
  if (!rabbet_is_ok(status) || !is_few) return status;
  return rabbet_proposal_make_for(propose, sink, RABBET_OP_MOE,
                                  &rabbet_cuda_moe_few, moe_few_body);
}

static rabbet_status_t cuda_moe_few_program(rabbet_cuda_node_t* node,
                                            const rabbet_kernel_spec_t* spec) {
  static const char* const names[PRODUCTS][WIDTHS] = {
      {"few_inner_narrow", "few_inner_wide", "few_inner_single"},
      {"few_down_narrow", "few_down_wide", "few_down_single"}};
  cuda_moe_few_kernel_t* kernel = (cuda_moe_few_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  rabbet_cuda_options_t options = {.count = 0};
  if (!rabbet_node_is(spec->group, RABBET_OP_MOE) || moe_few_rounds(layer))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' has no experts, or rounds between them",
                         layer->name);
  RABBET_RETURN_IF_ERROR(rabbet_moe_check_types(spec->group, layer));
  rabbet_dtype_t dtype =
      spec->group->values[layer->inputs[RABBET_MOE_HIDDEN]].dtype;
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(dtype));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "products/moe_few.cu", NULL, &options));
  for (int i = 0; i < PRODUCTS * WIDTHS; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, names[i / WIDTHS][i % WIDTHS],
                                  &kernel->functions[i / WIDTHS][i % WIDTHS]));
  return rabbet_ok();
}

// ---- Geometry --------------------------------------------------------------

static rabbet_status_t cuda_moe_few_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_moe_few_state_t** out_state, size_t* out_workspace) {
  const cuda_moe_few_kernel_t* kernel = (const cuda_moe_few_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  rabbet_moe_sizes_t s;
  rabbet_moe_attrs_t attrs;
  cuda_moe_few_state_t* state = NULL;
  size_t place = 0;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_moe_resolve_node(layer, shapes->dims, &s));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_moe_read_attrs(layer->attrs, layer->op->attr_count, s.inner, &attrs);
  int64_t chosen = rabbet_max_i64(s.chosen, 1);
  state->sizes = s;
  state->step = rabbet_min_i64(rabbet_max_i64(s.tokens, 1),
                               rabbet_max_i64(1, MOST_ROWS / chosen));
  state->parameters =
      (moe_t){.pairs = state->step * s.chosen,
              .hidden = s.hidden,
              .inner = s.inner,
              .is_gated = s.is_gated,
              .chosen = rabbet_cuda_divisor(chosen),
              .experts = (int32_t)rabbet_min_i64(s.experts, INT32_MAX),
              .is_long = kernel->node.node.group
                             ->values[layer->inputs[RABBET_MOE_EXPERTS]]
                             .dtype == RABBET_DTYPE_INT64,
              .is_silu = attrs.activation == RABBET_MOE_ACT_SILU,
              .limit = attrs.limit,
              .alpha = attrs.alpha,
              .beta = attrs.beta};
  bool fits =
      s.chosen <= MOST_ROWS && s.experts <= INT32_MAX &&
      rabbet_moe_reserve(256, s.is_gated ? state->parameters.pairs : 0, s.inner,
                         (size_t)kernel->size, out_workspace, &place);
  rabbet_status_t status =
      fits ? rabbet_ok()
           : RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "layer '%s': the experts are too many or too large",
                           layer->name);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

// The widest function whose blocks keep the device busy, for rows of `columns`.
static int moe_few_width(const cuda_moe_few_kernel_t* kernel, int64_t columns,
                         int64_t rows, bool is_aligned) {
  int64_t vector = 16 / kernel->size;
  if (!is_aligned || columns % vector != 0) return SINGLE;
  int64_t blocks = rabbet_ceildiv(columns, vector * few_lanes[WIDE]) * rows;
  return blocks >= 2 * kernel->node.multiprocessors ? WIDE : NARROW;
}

static rabbet_status_t moe_few_launch(const cuda_moe_few_kernel_t* kernel,
                                      int product, int width, int64_t columns,
                                      int64_t rows, void** parameters,
                                      void* stream) {
  int64_t vector = width == SINGLE ? 1 : 16 / kernel->size;
  int64_t x = rabbet_ceildiv(columns, vector * few_lanes[width]);
  const rabbet_cuda_launch_t launch = {
      .function = kernel->functions[product][width],
      .grid = {(unsigned)x, (unsigned)rows, 1},
      .block = {MOE_FEW_THREADS, 1, 1}};
  assert(x >= 0 && x <= INT32_MAX && rows >= 0 && rows <= UINT16_MAX);
  if (x == 0 || rows == 0) return rabbet_ok();
  return rabbet_cuda_launch(kernel->node.device, &launch, parameters, stream);
}

static rabbet_status_t moe_few_run(const cuda_moe_few_kernel_t* kernel,
                                   moe_t* p, moe_inputs_t* in, int64_t tokens,
                                   void* inner, void* output, void* stream) {
  void* first[] = {in, &inner, p};
  void* last[] = {in, &inner, &output, p};
  if (p->is_gated) {
    bool is_aligned = rabbet_cuda_is_aligned(in->gate, 16) &&
                      rabbet_cuda_is_aligned(in->up, 16);
    int width = moe_few_width(kernel, p->inner, p->pairs, is_aligned);
    RABBET_RETURN_IF_ERROR(moe_few_launch(kernel, INNER, width, p->inner,
                                          p->pairs, first, stream));
  }
  int width = moe_few_width(kernel, p->hidden, tokens,
                            rabbet_cuda_is_aligned(in->down, 16));
  return moe_few_launch(kernel, DOWN, width, p->hidden, tokens, last, stream);
}

static rabbet_status_t cuda_moe_few_enqueue(rabbet_kernel_t* base,
                                            cuda_moe_few_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const cuda_moe_few_kernel_t* kernel = (const cuda_moe_few_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const rabbet_moe_sizes_t* s = &state->sizes;
  const char* in[RABBET_MOE_INPUTS];
  char* output = rabbet_node_output(node, call, 0);
  int64_t index = state->parameters.is_long ? 8 : 4;
  for (size_t i = 0; i < RABBET_MOE_INPUTS; ++i)
    in[i] = rabbet_node_input_at(node, call, i);
  for (int64_t first = 0; first < s->tokens; first += state->step) {
    int64_t pair = first * s->chosen;
    int64_t tokens = rabbet_min_i64(state->step, s->tokens - first);
    moe_t p = state->parameters;
    moe_inputs_t inputs = {
        .hidden =
            in[RABBET_MOE_HIDDEN] + first * rabbet_moe_width(s) * kernel->size,
        .experts = in[RABBET_MOE_EXPERTS] + pair * index,
        .scores = in[RABBET_MOE_SCORES]
                      ? in[RABBET_MOE_SCORES] + pair * kernel->size
                      : NULL,
        .gate = in[RABBET_MOE_GATE],
        .up = in[RABBET_MOE_UP],
        .down = in[RABBET_MOE_DOWN],
        .gate_bias = in[RABBET_MOE_GATE_BIAS],
        .up_bias = in[RABBET_MOE_UP_BIAS],
        .down_bias = in[RABBET_MOE_DOWN_BIAS]};
    p.pairs = tokens * s->chosen;
    assert(p.pairs <= state->parameters.pairs);
    RABBET_RETURN_IF_ERROR(
        moe_few_run(kernel, &p, &inputs, tokens, call->workspace,
                    output + first * s->hidden * kernel->size, call->stream));
  }
  return rabbet_ok();
}

RABBET_TAKES_NODE(cuda_moe_few, MOE, 0)

RABBET_CUDA_NODE_CLASS(cuda_moe_few, cuda_moe_few_kernel_t, "cuda.moe_few", 1);
