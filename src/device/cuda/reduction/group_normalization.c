// Normalization of groups of channels (of one channel: instances; of all: whole
// images) with channels last, and any chain of element-wise layers after it, by
// clusters of blocks that keep an image in shared memory
// (reduction/group_normalization.cuh). Where it does not fit there, or the
// device has no clusters, cuda.normalization reads it twice.
#include <assert.h>
#include <stdio.h>

#include "core/view.h"
#include "device/common/normalization.h"
#include "device/cuda/products/layers.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/reduction/group_normalization_params.h"
#include "ops/enums.h"

typedef struct group_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction function;
} group_kernel_t;

typedef struct cuda_group_normalization_state_t {
  group_normalization_t parameters;
  rabbet_cuda_layers_t layers;
  int x, scale, bias;  // boundary inputs; scale, bias -1: none
  bool is_empty;
  rabbet_cuda_launch_t launch;
} cuda_group_normalization_state_t;

// ---- Geometry --------------------------------------------------------------

static int64_t group_vector(rabbet_dtype_t dtype) {
  return 128 / rabbet_dtype_bits(dtype);
}

// The channels of a mean; 0: means are over others.
static int64_t group_each(const rabbet_normalization_t* layer) {
  const rabbet_dims_t* x = layer->x;
  int64_t spatial = (INT64_C(1) << x->rank) - 4;
  if (x->rank < 3 || layer->by_group) return 0;
  if (layer->mask == spatial)
    return layer->groups > 1 ? x->d[1] / layer->groups : 1;
  return layer->groups == 1 && layer->mask == (spatial | 2) ? x->d[1] : 0;
}

// Whether scale and bias have one number for each channel, or one for all.
static bool group_takes_operands(const rabbet_normalization_t* layer) {
  for (int k = RABBET_NORMALIZE_SCALE; k <= RABBET_NORMALIZE_BIAS; ++k)
    for (int32_t i = 0; i < layer->x->rank; ++i)
      if (layer->x->d[i] != 1 && layer->strides[k][i] != 0 &&
          (i != 1 || layer->strides[k][i] != 1))
        return false;
  return true;
}

// The channels of a cluster: the fewest whole groups and vectors that are
// pieces of 64 bytes, in which memory is best read.
static int64_t group_tile(int64_t channels, int64_t each, int64_t vector,
                          int64_t size) {
  enum { PIECE = 64 };
  int64_t unit = each;
  while (unit % vector != 0)
    unit += each;
  for (int64_t tile = unit; tile < channels; tile += unit)
    if (channels % tile == 0 && tile * size >= PIECE) return tile;
  return channels;
}

// Sets the geometry; false if the layer is none of this kernel, or too large
// for it.
static bool group_fill(const rabbet_cuda_device_t* device,
                       const rabbet_normalization_t* layer,
                       rabbet_dtype_t dtype, group_normalization_t* p,
                       rabbet_cuda_launch_t* out_launch) {
  int64_t size = rabbet_dtype_bits(dtype) / 8, vector = group_vector(dtype);
  int64_t channels = layer->x->d[1], each = group_each(layer), positions = 1;
  for (int32_t i = 2; i < layer->x->rank; ++i)
    positions *= layer->x->d[i];
  if (each == 0 || channels == 0 || channels % vector != 0 ||
      channels > INT32_MAX / 64 || positions > INT32_MAX / 64 ||
      !group_takes_operands(layer))
    return false;
  int64_t tile = group_tile(channels, each, vector, size);
  int64_t tiles = channels / tile, groups = tile / each;
  int64_t lanes = tile / vector, clusters = 0;
  if (lanes > GROUPS_THREADS ||
      __builtin_mul_overflow(layer->x->d[0], tiles, &clusters) ||
      clusters > INT32_MAX / 2 / GROUPS_BLOCKS)
    return false;
  int64_t rows = GROUPS_THREADS / lanes;
  int64_t kept =
      rabbet_ceildiv(positions, (int64_t)GROUPS_BLOCKS) * tile * size;
  int64_t floats =
      2 * rows * tile + 3 * tile + 3 * GROUPS_BLOCKS * groups + 2 * groups;
  int64_t bytes = kept + floats * (int64_t)sizeof(float);
  if (bytes > device->shared_bytes) return false;
  *p = (group_normalization_t){.channels = (int32_t)channels,
                               .positions = (int32_t)positions,
                               .each = (int32_t)each,
                               .tile = (int32_t)tile,
                               .tiles = (int32_t)tiles,
                               .rows = (int32_t)rows,
                               .scratch = (int32_t)kept};
  p->share = (float)(1.0 / ((double)positions * (double)each));
  p->scale_step = (int32_t)layer->strides[RABBET_NORMALIZE_SCALE][1];
  p->bias_step = (int32_t)layer->strides[RABBET_NORMALIZE_BIAS][1];
  *out_launch = (rabbet_cuda_launch_t){
      .grid = {(unsigned)(clusters * GROUPS_BLOCKS), 1, 1},
      .block = {GROUPS_THREADS, 1, 1},
      .shared_bytes = (unsigned)bytes,
      .cluster = GROUPS_BLOCKS};
  return true;
}

// ---- Proposing -------------------------------------------------------------

static bool group_matches(const rabbet_group_t* group) {
  return group->node_count > 0 && group->output_count == 1 &&
         rabbet_op_is(group->nodes[0].op, RABBET_OP_NORMALIZATION) &&
         rabbet_group_feeds(group, &group->nodes[0]);
}

static rabbet_status_t group_offer(rabbet_proposal_t* proposal,
                                   const rabbet_normalization_t* opt,
                                   const rabbet_normalization_t* max) {
  const rabbet_propose_t* propose = proposal->propose;
  const rabbet_group_t* group = propose->group;
  const rabbet_cuda_device_t* device = rabbet_cuda(propose->device);
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      propose, group->values[group->nodes[0].inputs[0]].dtype, types);
  for (int t = 0; t < count; ++t) {
    group_normalization_t p;
    rabbet_cuda_launch_t launch;
    if (!rabbet_cuda_layers_computes(types[t]) ||
        !group_fill(device, opt, types[t], &p, &launch) ||
        !group_fill(device, max, types[t], &p, &launch))
      continue;
    for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
      if (rabbet_dtype_is_float(proposal->tensors[i].dtype))
        proposal->tensors[i].dtype = types[t];
      proposal->tensors[i].format = rabbet_cuda_layers_format(group, i);
    }
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(
        proposal, "clusters", group->node_count == 1 ? 0 : -1));
  }
  return rabbet_ok();
}

static rabbet_status_t group_offer_at(rabbet_proposal_t* proposal,
                                      const rabbet_dims_t* opt,
                                      const rabbet_dims_t* max) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_normalization_t usual, largest;
  if (!rabbet_cuda_layers_fit(group, opt)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_normalization_read(group, opt, &usual));
  RABBET_RETURN_IF_ERROR(rabbet_normalization_read(group, max, &largest));
  return group_offer(proposal, &usual, &largest);
}

static rabbet_status_t cuda_group_normalization_body(
    rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  rabbet_dims_t *opt = NULL, *max = NULL;
  rabbet_status_t status =
      rabbet_group_opt_dims(propose->group, propose->allocator, &opt);
  if (rabbet_is_ok(status))
    status = rabbet_group_max_dims(propose->group, propose->allocator, &max);
  if (rabbet_is_ok(status)) status = group_offer_at(proposal, opt, max);
  rabbet_free(propose->allocator, opt);
  rabbet_free(propose->allocator, max);
  return status;
}

static rabbet_status_t cuda_group_normalization_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  // Clusters of blocks.
  if (rabbet_cuda(propose->device)->major < 9 || !group_matches(propose->group))
    return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_group_normalization,
                              NULL, cuda_group_normalization_body);
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t cuda_group_normalization_program(
    rabbet_cuda_node_t* base, const rabbet_kernel_spec_t* spec) {
  group_kernel_t* kernel = (group_kernel_t*)base;
  const rabbet_group_t* group = spec->group;
  const rabbet_group_node_t* node = base->node.node;
  if (!group_matches(group) || !rabbet_cuda_layers_take_images(group))
    return RABBET_STATUS(
        RABBET_STATUS_INCOMPATIBLE,
        "cuda.normalization.groups computes normalizations of images in HWC, "
        "of one floating type; '%s' is another layer",
        node->name);
  char begin[96];
  snprintf(begin, sizeof(begin), "#define ELEMENT %s\n#define CENTRED %d\n",
           rabbet_cuda_type(group->values[node->inputs[0]].dtype),
           rabbet_node_int(node, "is_rms") == 0);
  base->node.base.alignment = 16;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_layers_add(
      base, spec, "reduction/group_normalization.cu", begin,
      "device/cuda/reduction/group_normalization.cuh"));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(base, 0, "normalize_groups",
                                                   &kernel->function));
  // How much it needs only shapes tell.
  return rabbet_cuda_launch_permit(base->device, kernel->function, 0);
}

// ---- Preparing -------------------------------------------------------------

static rabbet_status_t group_prepare(const group_kernel_t* kernel,
                                     const rabbet_dims_t* dims,
                                     cuda_group_normalization_state_t* state) {
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* node = kernel->node.node.node;
  group_normalization_t* p = &state->parameters;
  rabbet_normalization_t layer;
  int64_t elements = 0;
  RABBET_RETURN_IF_ERROR(rabbet_normalization_read(group, dims, &layer));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(layer.x, &elements));
  int32_t values[] = {node->inputs[0],
                      rabbet_node_input(node, RABBET_NORMALIZE_SCALE),
                      rabbet_node_input(node, RABBET_NORMALIZE_BIAS)};
  int* inputs[] = {&state->x, &state->scale, &state->bias};
  for (int i = 0; i < 3; ++i)
    *inputs[i] = values[i] < 0 ? -1 : rabbet_group_input_of(group, values[i]);
  state->is_empty = elements == 0;
  if (state->is_empty) return rabbet_ok();
  char text[128];
  if (!group_fill(kernel->node.device, &layer, group->values[values[0]].dtype,
                  p, &state->launch))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': cuda.normalization.groups takes images "
                         "of which eight multiprocessors can keep a group; the "
                         "input is %s",
                         node->name,
                         rabbet_dims_print(layer.x, text, sizeof(text)));
  state->launch.function = kernel->function;
  p->epsilon =
      (float)rabbet_attr_float(node->attrs, node->op->attr_count, "epsilon", 0);
  const layer_operand_t result = {NULL, 0, p->channels, 1};
  return rabbet_cuda_layers_place(&kernel->node, group, dims, &result, false,
                                  &state->layers, &p->layers);
}

static rabbet_status_t cuda_group_normalization_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_group_normalization_state_t** out_state, size_t* out_workspace) {
  cuda_group_normalization_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      group_prepare((const group_kernel_t*)base, shapes->dims, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t cuda_group_normalization_enqueue(
    rabbet_kernel_t* base, cuda_group_normalization_state_t* state,
    const rabbet_kernel_call_t* call) {
  const group_kernel_t* kernel = (const group_kernel_t*)base;
  group_normalization_t* p = &state->parameters;
  if (state->is_empty) return rabbet_ok();
  p->x = call->inputs[state->x];
  p->scale = state->scale < 0 ? NULL : call->inputs[state->scale];
  p->bias = state->bias < 0 ? NULL : call->inputs[state->bias];
  p->y = call->outputs[0];
  rabbet_cuda_layers_bind(&state->layers, call, 0, &p->layers);
  void* parameters[] = {p};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

static bool cuda_group_normalization_takes(const rabbet_kernel_spec_t* spec) {
  return group_matches(spec->group);
}

RABBET_CUDA_NODE_CLASS(cuda_group_normalization, group_kernel_t,
                       "cuda.normalization.groups", 1);
