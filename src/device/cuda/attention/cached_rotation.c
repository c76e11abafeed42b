// Rotation of queries and keys with the update of their caches, in place.
#include "ops/pointwise/cached_rotation.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda/pointwise/rotation_params.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"
#include "ops/enums.h"

enum {
  INPUT = RABBET_CACHED_INPUT,
  KEYS = RABBET_CACHED_KEYS,
  VALUES = RABBET_CACHED_VALUES,
  COSINES = RABBET_CACHED_COSINES,
  SINES = RABBET_CACHED_SINES,
  INDICES = RABBET_CACHED_INDICES,
  OPERANDS = RABBET_CACHED_OPERANDS
};
enum { THREADS = 256, OUTPUTS = 3 };
enum { SINGLE, VECTORS, FUNCTIONS };

typedef struct cuda_cached_rotation_kernel_t {
  rabbet_cuda_node_t node;
  rabbet_device_t* base;
  int64_t element, table;  // bytes
  CUfunction functions[FUNCTIONS];
} cuda_cached_rotation_kernel_t;

typedef struct cuda_cached_rotation_state_t {
  size_t bytes;  // of a cache
  bool has_vectors;
  int64_t alignment[2];  // of tensors and of tables, for vectors
  cached_rotation_t parameters[FUNCTIONS];
  rabbet_cuda_launch_t launches[FUNCTIONS];
} cuda_cached_rotation_state_t;

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t cuda_cached_rotation_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const int32_t* inputs = proposal->node->inputs;
  int32_t aliased[OUTPUTS] = {-1, -1, -1};
  for (size_t i = 0; i < group->output_count; ++i)
    for (int k = KEYS; k <= VALUES; ++k)
      if (group->outputs[i] == proposal->node->outputs[k])
        aliased[i] = rabbet_group_input_of(group, inputs[k]);
  rabbet_candidate_t candidate = {.kernel = proposal->kernel,
                                  .tensors = proposal->tensors,
                                  .aliased = aliased};
  if (!rabbet_cuda_type(group->values[inputs[INPUT]].dtype)) return rabbet_ok();
  snprintf(candidate.tactic_name, sizeof(candidate.tactic_name), "in place");
  return rabbet_offer(proposal->propose, proposal->sink, &candidate);
}

RABBET_PROPOSE_FOR(cuda_cached_rotation, CACHED_ROTATION)

// ---- The program -----------------------------------------------------------

static rabbet_status_t cached_check_types(const rabbet_group_t* group,
                                          const rabbet_group_node_t* layer) {
  rabbet_dtype_t types[OPERANDS];
  for (int i = 0; i < OPERANDS; ++i) {
    int32_t value = rabbet_node_input(layer, (size_t)i);
    types[i] = value < 0 ? RABBET_DTYPE_NONE : group->values[value].dtype;
  }
  bool fits =
      types[COSINES] == types[SINES] && types[KEYS] == types[INPUT] &&
      types[VALUES] == types[INPUT] && rabbet_dtype_is_float(types[INPUT]) &&
      rabbet_dtype_is_float(types[COSINES]) && rabbet_cuda_type(types[INPUT]) &&
      rabbet_cuda_type(types[COSINES]) &&
      (types[INDICES] == RABBET_DTYPE_NONE ||
       types[INDICES] == RABBET_DTYPE_INT32 ||
       types[INDICES] == RABBET_DTYPE_INT64);
  for (int i = 0; i < OUTPUTS; ++i)
    fits = fits && group->values[layer->outputs[i]].dtype == types[INPUT];
  if (fits) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "layer '%s': heads of type %s cannot be rotated by cosines of type %s "
      "and put into caches of types %s and %s",
      layer->name, rabbet_dtype_name(types[INPUT]),
      rabbet_dtype_name(types[COSINES]), rabbet_dtype_name(types[KEYS]),
      rabbet_dtype_name(types[VALUES]));
}

static rabbet_status_t cuda_cached_rotation_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  static const char* const names[FUNCTIONS] = {
      [SINGLE] = "rotate_single", [VECTORS] = "rotate_vectors"};
  cuda_cached_rotation_kernel_t* kernel = (cuda_cached_rotation_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  RABBET_RETURN_IF_ERROR(cached_check_types(spec->group, layer));
  rabbet_dtype_t type = spec->group->values[layer->inputs[INPUT]].dtype;
  rabbet_dtype_t table = spec->group->values[layer->inputs[COSINES]].dtype;
  rabbet_cuda_options_t options = {.count = 0};
  kernel->base = spec->device;
  kernel->element = rabbet_dtype_bits(type) / 8;
  kernel->table = rabbet_dtype_bits(table) / 8;
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(type));
  rabbet_cuda_option(&options, "-DTABLE=%s", rabbet_cuda_type(table));
  rabbet_cuda_option(&options, "-DVECTOR=%d", (int)(16 / kernel->element));
  rabbet_cuda_option(&options, "-DINTERLEAVED=%d",
                     rabbet_node_int(layer, "interleaved") != 0);
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "attention/cached_rotation.cu", NULL, &options));
  for (int i = 0; i < FUNCTIONS; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, names[i], &kernel->functions[i]));
  return rabbet_ok();
}

// ---- Preparing -------------------------------------------------------------

// `step`: elements of an item; of each half, where pairs are halves apart.
static rabbet_status_t cached_plan(const cuda_cached_rotation_kernel_t* kernel,
                                   const rabbet_cached_rotation_t* r,
                                   int function, int64_t step,
                                   cuda_cached_rotation_state_t* state) {
  const rabbet_group_node_t* layer = kernel->node.node.node;
  int32_t indices = rabbet_node_input(layer, INDICES);
  int64_t rotated = (r->interleaved ? r->size : r->size / 2) / step;
  int64_t items = rotated + rabbet_ceildiv(r->width - r->size, step);
  int64_t heads = r->queries + 2 * r->keys, tokens = r->batch * r->steps;
  if (tokens * heads >= RABBET_CUDA_MAX_COUNT / items - THREADS)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': the kernel does not take so many "
                         "elements",
                         layer->name);
  cached_rotation_t* p = &state->parameters[function];
  *p = (cached_rotation_t){
      .items = rabbet_cuda_divider(items),
      .heads = rabbet_cuda_divider(heads),
      .steps = rabbet_cuda_divider(rabbet_max_i64(r->steps, 1)),
      .count = (uint32_t)(tokens * heads * items),
      .rotated = (uint32_t)rotated,
      .queries = (uint32_t)r->queries,
      .keys = (uint32_t)r->keys,
      .width = (uint32_t)r->width,
      .turns = {.size = (uint32_t)r->size, .is_whole = r->is_whole},
      .extent = r->extent,
      .indices = indices < 0
                     ? 0
                     : rabbet_dtype_bits(
                           kernel->node.node.group->values[indices].dtype) /
                           8,
      .circular =
          rabbet_node_int(layer, "cache_mode") == RABBET_KV_CACHE_CIRCULAR};
  memcpy(p->strides, r->strides, sizeof(p->strides));
  state->launches[function] = (rabbet_cuda_launch_t){
      .function = kernel->functions[function],
      .grid = {(unsigned)rabbet_ceildiv((int64_t)p->count, (int64_t)THREADS), 1,
               1},
      .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cached_set(const cuda_cached_rotation_kernel_t* kernel,
                                  const rabbet_cached_rotation_t* r,
                                  cuda_cached_rotation_state_t* state) {
  int64_t part = r->interleaved ? r->size : r->size / 2;
  int64_t vector = 16 / kernel->element;
  bool pairs = r->interleaved && !r->is_whole;
  state->bytes =
      (size_t)(r->batch * r->keys * r->extent * r->width * kernel->element);
  state->has_vectors = part % vector == 0 && r->width % vector == 0;
  state->alignment[0] = 16;
  state->alignment[1] = vector / (pairs ? 2 : 1) * kernel->table;
  for (int k = 0; k < 2; ++k)
    for (int i = 0; i < 2; ++i)
      state->has_vectors &=
          r->strides[k][i] * kernel->table % state->alignment[1] == 0;
  RABBET_RETURN_IF_ERROR(
      cached_plan(kernel, r, SINGLE, r->interleaved ? 2 : 1, state));
  return state->has_vectors ? cached_plan(kernel, r, VECTORS, vector, state)
                            : rabbet_ok();
}

static rabbet_status_t cuda_cached_rotation_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_cached_rotation_state_t** out_state, size_t* out_workspace) {
  const cuda_cached_rotation_kernel_t* kernel =
      (const cuda_cached_rotation_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const rabbet_dims_t* operands[OPERANDS] = {NULL};
  rabbet_cached_rotation_t rotation;
  cuda_cached_rotation_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  for (int i = 0; i < OPERANDS; ++i) {
    int32_t value = rabbet_node_input(layer, (size_t)i);
    if (value >= 0) operands[i] = &shapes->dims[value];
  }
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_cached_rotation_read(layer->attrs, layer->op->attr_count, operands,
                                  &rotation),
      "layer '%s'", layer->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  return rabbet_node_state_finish(
      base, state, cached_set(kernel, &rotation, state), (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t cuda_cached_rotation_enqueue(
    rabbet_kernel_t* base, cuda_cached_rotation_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_cached_rotation_kernel_t* kernel =
      (const cuda_cached_rotation_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const void* inputs[OPERANDS];
  void* outputs[OUTPUTS];
  for (size_t i = 0; i < OPERANDS; ++i)
    inputs[i] = rabbet_node_input_at(node, call, i);
  for (size_t i = 0; i < OUTPUTS; ++i)
    outputs[i] = rabbet_node_output(node, call, i);
  for (int i = KEYS; i <= VALUES; ++i)
    if (outputs[i] != inputs[i] && state->bytes > 0)
      RABBET_RETURN_IF_ERROR(kernel->base->vtable->copy(
          kernel->base, outputs[i], inputs[i], state->bytes, call->stream));
  bool vectors = state->has_vectors &&
                 rabbet_cuda_is_aligned(inputs[INPUT], state->alignment[0]);
  for (int i = 0; i < OUTPUTS; ++i)
    vectors =
        vectors && rabbet_cuda_is_aligned(outputs[i], state->alignment[0]);
  for (int i = COSINES; i <= SINES; ++i)
    vectors = vectors && rabbet_cuda_is_aligned(inputs[i], state->alignment[1]);
  cached_rotation_t* p = &state->parameters[vectors ? VECTORS : SINGLE];
  if (p->count == 0) return rabbet_ok();
  void* parameters[] = {
      &inputs[INPUT], &inputs[COSINES], &inputs[SINES], &inputs[INDICES],
      &outputs[0],    &outputs[1],      &outputs[2],    p};
  return rabbet_cuda_launch(kernel->node.device,
                            &state->launches[vectors ? VECTORS : SINGLE],
                            parameters, call->stream);
}

RABBET_TAKES_NODE(cuda_cached_rotation, CACHED_ROTATION,
                  RABBET_TAKES_OTHER_TYPES)

RABBET_CUDA_NODE_CLASS(cuda_cached_rotation, cuda_cached_rotation_kernel_t,
                       "cuda.cached_rotation", 1);
