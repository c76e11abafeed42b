// Scatters updates into a copy of the data, or in place. Bound by the bytes of
// the updates, and of the copy if there is one.
#include "device/common/scatter.h"

#include "core/view.h"
#include "device/cuda/movement/scatter_params.h"
#include "device/cuda/programs/node.h"
#include "ops/enums.h"

enum { THREADS = 256 };

typedef struct cuda_scatter_kernel_t {
  rabbet_cuda_node_t node;
  rabbet_device_t* base;
  CUfunction function;
} cuda_scatter_kernel_t;

typedef struct cuda_scatter_state_t {
  size_t bytes;  // of the data
  scatter_t parameters;
  rabbet_cuda_launch_t launch;
} cuda_scatter_state_t;

static rabbet_status_t cuda_scatter_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(
      proposal, "elements",
      rabbet_group_input_of(proposal->propose->group,
                            proposal->node->inputs[0]));
}

RABBET_PROPOSE_FOR(cuda_scatter, SCATTER)

static rabbet_status_t cuda_scatter_program(rabbet_cuda_node_t* node,
                                            const rabbet_kernel_spec_t* spec) {
  cuda_scatter_kernel_t* kernel = (cuda_scatter_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_SCATTER))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is no scatter", layer->name);
  const rabbet_group_value_t* values = spec->group->values;
  rabbet_dtype_t dtype = values[layer->inputs[0]].dtype;
  rabbet_dtype_t index = values[layer->inputs[1]].dtype;
  const char* type = rabbet_cuda_type(dtype);
  int64_t reduction = rabbet_node_int(layer, "reduction");
  bool has_order = dtype != RABBET_DTYPE_BOOL && dtype != RABBET_DTYPE_FP8;
  if (!type || values[layer->inputs[2]].dtype != dtype ||
      values[layer->outputs[0]].dtype != dtype ||
      (reduction != RABBET_SCATTER_REDUCTION_NONE && !has_order) ||
      (index != RABBET_DTYPE_INT32 && index != RABBET_DTYPE_INT64))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': elements of %s cannot be scattered so by "
                         "indices of %s",
                         layer->name, rabbet_dtype_name(dtype),
                         rabbet_dtype_name(index));
  rabbet_cuda_options_t options = {.count = 0};
  kernel->base = spec->device;
  rabbet_cuda_option(&options, "-DELEMENT=%s", type);
  rabbet_cuda_option(&options, "-DREDUCTION=%d", (int)reduction);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "movement/scatter.cu", NULL, &options));
  return rabbet_cuda_node_function(node, 0, "scatter", &kernel->function);
}

static rabbet_status_t scatter_set(const cuda_scatter_kernel_t* kernel,
                                   const rabbet_scatter_t* s,
                                   cuda_scatter_state_t* state) {
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const rabbet_group_value_t* values = kernel->node.node.group->values;
  scatter_t* p = &state->parameters;
  p->count = s->rows * s->row;
  p->row = rabbet_cuda_divisor(s->row);
  p->rank = s->rank;
  p->depth = s->depth;
  p->is_long = values[layer->inputs[1]].dtype == RABBET_DTYPE_INT64;
  for (int32_t i = 0; i < s->rank; ++i) {
    p->dims[i] = rabbet_cuda_divisor(s->dims[i]);
    p->steps[i] = s->steps[i];
  }
  for (int32_t i = 0; i < s->depth; ++i) {
    p->extent[i] = s->extent[i];
    p->stride[i] = s->stride[i];
  }
  state->bytes =
      (size_t)s->elements *
      (size_t)(rabbet_dtype_bits(values[layer->inputs[0]].dtype) / 8);
  int64_t blocks = rabbet_ceildiv(p->count, (int64_t)THREADS);
  if (blocks > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': there are too many updates", layer->name);
  state->launch = (rabbet_cuda_launch_t){.function = kernel->function,
                                         .grid = {(unsigned)blocks, 1, 1},
                                         .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cuda_scatter_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_scatter_state_t** out_state, size_t* out_workspace) {
  const cuda_scatter_kernel_t* kernel = (const cuda_scatter_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node.node.node;
  rabbet_scatter_t scatter;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_scatter_resolve(
      node, &shapes->dims[node->inputs[0]], &shapes->dims[node->inputs[1]],
      &shapes->dims[node->inputs[2]], &scatter));
  cuda_scatter_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status = scatter_set(kernel, &scatter, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

static rabbet_status_t cuda_scatter_enqueue(rabbet_kernel_t* base,
                                            cuda_scatter_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const cuda_scatter_kernel_t* kernel = (const cuda_scatter_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const void* data = rabbet_node_input_at(node, call, 0);
  const void* indices = rabbet_node_input_at(node, call, 1);
  const void* updates = rabbet_node_input_at(node, call, 2);
  void* y = rabbet_node_output(node, call, 0);
  if (y != data && state->bytes > 0)
    RABBET_RETURN_IF_ERROR(kernel->base->vtable->copy(
        kernel->base, y, data, state->bytes, call->stream));
  if (state->parameters.count == 0) return rabbet_ok();
  void* parameters[] = {&indices, &updates, &y, &state->parameters};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_scatter, SCATTER, 0)

RABBET_CUDA_NODE_CLASS(cuda_scatter, cuda_scatter_kernel_t, "cuda.scatter", 1);
