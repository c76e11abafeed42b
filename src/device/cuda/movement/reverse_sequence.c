// Reverses the first elements of each sequence. Bound by bytes.
#include "ops/movement/reverse_sequence.h"

#include "device/cuda/movement/move.h"
#include "device/cuda/movement/reverse_sequence_params.h"

enum { NARROW, WIDE, FUNCTIONS };
enum { WIDE_BYTES = 16 };

typedef struct cuda_reverse_kernel_t {
  rabbet_cuda_node_t node;
  int64_t size;                        // bytes of an element
  CUfunction functions[FUNCTIONS][2];  // for small tensors and for all
} cuda_reverse_kernel_t;

typedef struct cuda_reverse_sequence_state_t {
  bool is_empty, has_wide;
  reverse_sequence_t parameters[FUNCTIONS];
  rabbet_cuda_launch_t launches[FUNCTIONS];
} cuda_reverse_sequence_state_t;

static rabbet_status_t cuda_reverse_sequence_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(proposal, "sequences", -1);
}

RABBET_PROPOSE_FOR(cuda_reverse_sequence, REVERSE_SEQUENCE)

static rabbet_status_t cuda_reverse_sequence_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  static const char* const names[FUNCTIONS][2] = {
      [NARROW] = {"reverse_narrow", "reverse_narrow_large"},
      [WIDE] = {"reverse_wide", "reverse_wide_large"}};
  cuda_reverse_kernel_t* kernel = (cuda_reverse_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_REVERSE_SEQUENCE))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' reverses no sequences", layer->name);
  rabbet_dtype_t dtype = spec->group->values[layer->inputs[0]].dtype;
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DSIZE=%d", (int)kernel->size);
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "movement/reverse_sequence.cu", NULL, &options));
  for (int i = 0; i < 2 * FUNCTIONS; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(
        node, 0, names[i / 2][i % 2], &kernel->functions[i / 2][i % 2]));
  return rabbet_ok();
}

// Parameters in units of `by` elements.
static reverse_sequence_t reverse_parameters(
    const rabbet_reverse_sequence_t* plan, int64_t by) {
  int64_t inner = plan->inner / by;
  int64_t count =
      plan->outer * plan->first * plan->middle * plan->second * inner;
  return (reverse_sequence_t){.count = count,
                              .size = count,
                              .first = rabbet_cuda_divisor(plan->first),
                              .middle = rabbet_cuda_divisor(plan->middle),
                              .second = rabbet_cuda_divisor(plan->second),
                              .inner = rabbet_cuda_divisor(inner),
                              .extent = rabbet_reverse_sequence_extent(plan),
                              .step = rabbet_reverse_sequence_step(plan) / by,
                              .sequence_first = plan->sequence_first};
}

static void reverse_plan(const cuda_reverse_kernel_t* kernel,
                         const rabbet_reverse_sequence_t* plan, bool is_long,
                         cuda_reverse_sequence_state_t* state) {
  for (int i = 0; i < FUNCTIONS; ++i) {
    int64_t bytes = i == WIDE ? WIDE_BYTES : kernel->size;
    reverse_sequence_t* p = &state->parameters[i];
    *p = reverse_parameters(plan, bytes / kernel->size);
    p->is_long = is_long;
    bool large = !rabbet_cuda_is_small(p->count);
    int pieces = large ? 1 : i == WIDE ? 4 : 2;
    rabbet_cuda_pieces_t geometry =
        rabbet_cuda_pieces(kernel->node.device, p->count, bytes, pieces, large);
    state->launches[i] =
        (rabbet_cuda_launch_t){.function = kernel->functions[i][large],
                               .grid = {geometry.blocks, 1, 1},
                               .block = {geometry.threads, 1, 1}};
  }
}

static rabbet_status_t cuda_reverse_sequence_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_reverse_sequence_state_t** out_state, size_t* out_workspace) {
  const cuda_reverse_kernel_t* kernel = (const cuda_reverse_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const rabbet_group_value_t* values = kernel->node.node.group->values;
  const rabbet_reverse_sequence_t plan = rabbet_reverse_sequence_plan(
      &shapes->dims[layer->inputs[0]], rabbet_node_int(layer, "batch_axis"),
      rabbet_node_int(layer, "sequence_axis"));
  int64_t count = 0;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_dims_count(&shapes->dims[layer->inputs[0]], &count));
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_reverse_sequence_check(&plan, &shapes->dims[layer->inputs[1]]),
      "layer '%s'", layer->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_reverse_sequence_state_t* state = *out_state;
  state->is_empty = count == 0;
  if (state->is_empty) return rabbet_ok();
  state->has_wide = plan.inner * kernel->size % WIDE_BYTES == 0;
  bool is_long = values[layer->inputs[1]].dtype == RABBET_DTYPE_INT64;
  reverse_plan(kernel, &plan, is_long, state);
  return rabbet_ok();
}

static rabbet_status_t cuda_reverse_sequence_enqueue(
    rabbet_kernel_t* base, cuda_reverse_sequence_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_reverse_kernel_t* kernel = (const cuda_reverse_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  if (state->is_empty) return rabbet_ok();
  const void* data = rabbet_node_input_at(node, call, 0);
  const void* lengths = rabbet_node_input_at(node, call, 1);
  void* target = rabbet_node_output(node, call, 0);
  bool aligned = ((uintptr_t)data | (uintptr_t)target) % WIDE_BYTES == 0;
  int which = state->has_wide && aligned ? WIDE : NARROW;
  void* parameters[] = {&data, &lengths, &target, &state->parameters[which]};
  return rabbet_cuda_launch(kernel->node.device, &state->launches[which],
                            parameters, call->stream);
}

RABBET_TAKES_NODE(cuda_reverse_sequence, REVERSE_SEQUENCE, 0)

RABBET_CUDA_NODE_CLASS(cuda_reverse_sequence, cuda_reverse_kernel_t,
                       "cuda.reverse_sequence", 1);
