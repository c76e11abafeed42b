// Layers with outputs known before the run: shapes and constants. The values
// are kept in the device's memory, and a run copies them.
#include "device/cuda/cuda.h"

typedef struct cuda_constant_output_t {
  rabbet_node_kernel_t node;
  rabbet_device_t* device;
  void* constant;  // NULL: a shape
  size_t bytes;
} cuda_constant_output_t;

typedef struct cuda_constant_output_state_t {
  const void* data;
  size_t bytes;
  void* shape;  // owned
} cuda_constant_output_state_t;

static bool constant_output_is_one(const rabbet_group_t* group) {
  return rabbet_node_is(group, RABBET_OP_SHAPE) ||
         rabbet_node_is(group, RABBET_OP_CONSTANT);
}

static rabbet_status_t cuda_constant_output_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "copy", -1);
}

static rabbet_status_t cuda_constant_output_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  if (!constant_output_is_one(propose->group)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_constant_output, NULL,
                              cuda_constant_output_body);
}

static void cuda_constant_output_destroy(rabbet_kernel_t* base) {
  cuda_constant_output_t* kernel = (cuda_constant_output_t*)base;
  if (!kernel) return;
  kernel->device->vtable->free(kernel->device, kernel->constant);
  rabbet_free(kernel->node.allocator, kernel);
}

static rabbet_status_t cuda_constant_output_create(
    const rabbet_kernel_spec_t* spec, rabbet_kernel_t** out_kernel) {
  *out_kernel = NULL;
  const rabbet_group_node_t* node = &spec->group->nodes[0];
  cuda_constant_output_t* kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->node.base.kernel_class = &rabbet_cuda_constant_output;
  kernel->node.allocator = spec->allocator;
  kernel->node.group = spec->group;
  kernel->node.node = node;
  kernel->device = spec->device;
  rabbet_status_t status = rabbet_ok();
  if (rabbet_op_is(node->op, RABBET_OP_CONSTANT)) {
    const rabbet_attr_t* weights =
        rabbet_attr_find(node->attrs, node->op->attr_count, "weights");
    kernel->bytes = rabbet_attr_bytes(weights);
    status = rabbet_cuda_upload(spec->device, weights->data, kernel->bytes,
                                &kernel->constant);
  }
  if (!rabbet_is_ok(status)) {
    cuda_constant_output_destroy(&kernel->node.base);
    return status;
  }
  *out_kernel = &kernel->node.base;
  return rabbet_ok();
}

static void cuda_constant_output_destroy_state(
    rabbet_kernel_t* base, rabbet_kernel_state_t* prepared) {
  cuda_constant_output_state_t* state = (cuda_constant_output_state_t*)prepared;
  cuda_constant_output_t* kernel = (cuda_constant_output_t*)base;
  if (!state) return;
  kernel->device->vtable->free(kernel->device, state->shape);
  rabbet_free(kernel->node.allocator, state);
}

static rabbet_status_t cuda_constant_output_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    rabbet_kernel_state_t** out_state, size_t* out_workspace) {
  const cuda_constant_output_t* kernel = (const cuda_constant_output_t*)base;
  const rabbet_group_node_t* node = kernel->node.node;
  cuda_constant_output_state_t* state = NULL;
  rabbet_status_t status = rabbet_ok();
  *out_state = NULL;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  if (rabbet_op_is(node->op, RABBET_OP_SHAPE)) {
    const rabbet_dims_t* dims = &shapes->dims[node->inputs[0]];
    state->bytes = (size_t)dims->rank * sizeof(int64_t);
    status = rabbet_cuda_upload(kernel->device, dims->d, state->bytes,
                                &state->shape);
    state->data = state->shape;
  } else {
    state->bytes = kernel->bytes;
    state->data = kernel->constant;
  }
  if (!rabbet_is_ok(status)) {
    cuda_constant_output_destroy_state(base, (rabbet_kernel_state_t*)state);
    return status;
  }
  *out_state = (rabbet_kernel_state_t*)state;
  return rabbet_ok();
}

static rabbet_status_t cuda_constant_output_enqueue(
    rabbet_kernel_t* base, rabbet_kernel_state_t* prepared,
    const rabbet_kernel_call_t* call) {
  cuda_constant_output_state_t* state = (cuda_constant_output_state_t*)prepared;
  rabbet_device_t* device = ((const cuda_constant_output_t*)base)->device;
  return device->vtable->copy(device, call->outputs[0], state->data,
                              state->bytes, call->stream);
}

static bool cuda_constant_output_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_takes_node(spec->group, RABBET_OP_SHAPE, 0) ||
         rabbet_takes_node(spec->group, RABBET_OP_CONSTANT, 0);
}

const rabbet_kernel_class_t rabbet_cuda_constant_output = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cuda.constant_output",
    .version = 1,
    .propose = cuda_constant_output_propose,
    .create = cuda_constant_output_create,
    .takes = cuda_constant_output_takes,
    .destroy = cuda_constant_output_destroy,
    .prepare = cuda_constant_output_prepare,
    .destroy_state = cuda_constant_output_destroy_state,
    .enqueue = cuda_constant_output_enqueue,
};
