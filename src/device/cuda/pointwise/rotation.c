// Rotary position embedding. Vectors of 16 bytes where the parts of a row are
// multiples of them, else single pairs.
#include "ops/pointwise/rotation.h"

#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"
#include "device/cuda/reduction/axes.h"

#include "device/cuda/pointwise/rotation_params.h"

enum {
  INPUT = RABBET_ROTATION_INPUT,
  COSINES = RABBET_ROTATION_COSINES,
  SINES = RABBET_ROTATION_SINES,
  OPERANDS = RABBET_ROTATION_OPERANDS
};
enum { THREADS = 256 };
enum { SINGLE, VECTORS, FUNCTIONS };

typedef struct cuda_rotation_kernel_t {
  rabbet_cuda_node_t node;
  int64_t vector;  // elements to 16 bytes
  CUfunction functions[FUNCTIONS];
} cuda_rotation_kernel_t;

typedef struct rotation_launch_t {
  rabbet_cuda_launch_t launch;  // without function: none
  rotation_t parameters;
} rotation_launch_t;

typedef struct cuda_rotation_state_t {
  bool is_empty;
  rotation_launch_t launches[FUNCTIONS];
  int64_t alignment[OPERANDS];  // for vectors, in bytes
} cuda_rotation_state_t;

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t cuda_rotation_body(rabbet_proposal_t* proposal) {
  const rabbet_group_node_t* node = proposal->node;
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_dtype_t types[4];
  // Tables that are the input itself would need its type.
  if (node->inputs[COSINES] == node->inputs[INPUT] ||
      node->inputs[SINES] == node->inputs[INPUT])
    return rabbet_ok();
  int count = rabbet_compute_types(
      proposal->propose, group->values[node->inputs[INPUT]].dtype, types);
  for (int i = 0; i < count; ++i) {
    rabbet_proposal_set_input(proposal, INPUT, types[i], RABBET_FORMAT_LINEAR);
    rabbet_proposal_set_output(proposal, types[i], RABBET_FORMAT_LINEAR);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(
        proposal, "pairs", rabbet_group_input_of(group, node->inputs[INPUT])));
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cuda_rotation, ROTATION)

// ---- The programs ----------------------------------------------------------

static rabbet_status_t rotation_check_types(const rabbet_group_node_t* layer,
                                            const rabbet_dtype_t* types) {
  bool fits = types[COSINES] == types[SINES];
  for (int k = 0; k < OPERANDS; ++k)
    fits =
        fits && rabbet_dtype_is_float(types[k]) && rabbet_cuda_type(types[k]);
  if (fits) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "layer '%s': there is no rotation of type %s by cosines "
                       "of type %s and sines of type %s",
                       layer->name, rabbet_dtype_name(types[INPUT]),
                       rabbet_dtype_name(types[COSINES]),
                       rabbet_dtype_name(types[SINES]));
}

static rabbet_status_t cuda_rotation_program(rabbet_cuda_node_t* node,
                                             const rabbet_kernel_spec_t* spec) {
  static const char* const names[FUNCTIONS] = {
      [SINGLE] = "rotate_single", [VECTORS] = "rotate_vectors"};
  cuda_rotation_kernel_t* kernel = (cuda_rotation_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  rabbet_dtype_t types[OPERANDS];
  for (int k = 0; k < OPERANDS; ++k)
    types[k] = spec->group->values[layer->inputs[k]].dtype;
  RABBET_RETURN_IF_ERROR(rotation_check_types(layer, types));
  kernel->vector = 128 / rabbet_dtype_bits(types[INPUT]);
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(types[INPUT]));
  rabbet_cuda_option(&options, "-DTABLE=%s", rabbet_cuda_type(types[COSINES]));
  rabbet_cuda_option(&options, "-DVECTOR=%d", (int)kernel->vector);
  rabbet_cuda_option(&options, "-DINTERLEAVED=%d",
                     rabbet_node_int(layer, "interleaved") != 0);
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "pointwise/rotation.cu", NULL, &options));
  for (int i = 0; i < FUNCTIONS; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, names[i], &kernel->functions[i]));
  return rabbet_ok();
}

// ---- Preparing and running -------------------------------------------------

// `step`: elements of an item; of each half, where pairs are halves apart.
static rabbet_status_t rotation_plan(const cuda_rotation_kernel_t* kernel,
                                     const rabbet_rotation_t* r,
                                     const rabbet_axes_t* outer, int function,
                                     int64_t step, rotation_launch_t* out) {
  int64_t part = r->interleaved ? r->size : r->size / 2;
  int64_t rotated = part / step;
  int64_t items = rotated + rabbet_ceildiv(r->width - r->size, step);
  int64_t rows = rabbet_axes_positions(outer);
  if (rows >= RABBET_CUDA_MAX_COUNT / items - THREADS)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': the kernel does not take so many "
                         "elements",
                         kernel->node.node.node->name);
  out->parameters = (rotation_t){
      .outer = rabbet_cuda_axes_pack(outer, 1),
      .items = rabbet_cuda_divider(items),
      .count = (uint32_t)(rows * items),
      .rotated = (uint32_t)rotated,
      .width = (uint32_t)r->width,
      .turns = {.size = (uint32_t)r->size, .is_whole = r->is_whole}};
  out->launch = (rabbet_cuda_launch_t){
      .function = kernel->functions[function],
      .grid = {(unsigned)rabbet_ceildiv(rows * items, (int64_t)THREADS), 1, 1},
      .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t rotation_set(const cuda_rotation_kernel_t* kernel,
                                    const rabbet_rotation_t* r,
                                    cuda_rotation_state_t* state) {
  const rabbet_group_node_t* layer = kernel->node.node.node;
  rabbet_axes_t outer = {.rank = 0};
  for (int32_t i = 0; i < r->outer.rank; ++i) {
    const int64_t strides[RABBET_AXES_OPERANDS] = {
        r->strides[INPUT][i], r->strides[COSINES][i], r->strides[SINES][i]};
    rabbet_axes_add(&outer, r->outer.d[i], strides);
  }
  rabbet_axes_merge(&outer, OPERANDS);
  state->is_empty = rabbet_axes_positions(&outer) == 0;
  if (state->is_empty) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rotation_plan(kernel, r, &outer, SINGLE,
                                       r->interleaved ? 2 : 1,
                                       &state->launches[SINGLE]));
  int64_t vector = kernel->vector;
  int64_t part = r->interleaved ? r->size : r->size / 2;
  if (part % vector != 0 || r->width % vector != 0) return rabbet_ok();
  for (int k = 0; k < OPERANDS; ++k) {
    bool pairs = k != INPUT && r->interleaved && !r->is_whole;
    state->alignment[k] =
        vector / (pairs ? 2 : 1) *
        rabbet_dtype_bits(
            kernel->node.node.group->values[layer->inputs[k]].dtype) /
        8;
  }
  return rotation_plan(kernel, r, &outer, VECTORS, vector,
                       &state->launches[VECTORS]);
}

static rabbet_status_t cuda_rotation_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_rotation_state_t** out_state, size_t* out_workspace) {
  const cuda_rotation_kernel_t* kernel = (const cuda_rotation_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  cuda_rotation_state_t* state = NULL;
  rabbet_rotation_t rotation;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_rotation_read(layer->attrs, layer->op->attr_count,
                           &shapes->dims[layer->inputs[INPUT]],
                           &shapes->dims[layer->inputs[COSINES]],
                           &shapes->dims[layer->inputs[SINES]], &rotation),
      "layer '%s'", layer->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  return rabbet_node_state_finish(
      base, state, rotation_set(kernel, &rotation, state), (void**)out_state);
}

static rabbet_status_t cuda_rotation_enqueue(rabbet_kernel_t* base,
                                             cuda_rotation_state_t* state,
                                             const rabbet_kernel_call_t* call) {
  const cuda_rotation_kernel_t* kernel = (const cuda_rotation_kernel_t*)base;
  const void* operands[OPERANDS];
  void* target = call->outputs[0];
  if (state->is_empty) return rabbet_ok();
  bool vectors = state->launches[VECTORS].launch.function &&
                 rabbet_cuda_is_aligned(target, state->alignment[INPUT]);
  for (int k = 0; k < OPERANDS; ++k) {
    operands[k] = rabbet_node_input_at(&kernel->node.node, call, (size_t)k);
    vectors =
        vectors && rabbet_cuda_is_aligned(operands[k], state->alignment[k]);
  }
  rotation_launch_t* made = &state->launches[vectors ? VECTORS : SINGLE];
  void* parameters[] = {&operands[INPUT], &operands[COSINES], &operands[SINES],
                        &target, &made->parameters};
  return rabbet_cuda_launch(kernel->node.device, &made->launch, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_rotation, ROTATION, RABBET_TAKES_OTHER_TYPES)

RABBET_CUDA_NODE_CLASS(cuda_rotation, cuda_rotation_kernel_t, "cuda.rotation",
                       1);
