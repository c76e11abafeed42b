// Products that no library computes: of integers, and of matrices with an inner
// extent of 0, which are zeros.
#include "core/view.h"
#include "device/cuda/products/matmul.h"
#include "device/cuda/products/product_params.h"
#include "device/cuda/programs/node.h"

enum { PRODUCT_THREADS = 256 };

typedef struct cuda_product_kernel_t {
  rabbet_cuda_node_t node;
  int64_t element;  // bytes
  CUfunction function;
} cuda_product_kernel_t;

typedef struct cuda_product_state_t {
  rabbet_matmul_shape_t shape;
  product_t parameters;
  rabbet_cuda_launch_t launch;
} cuda_product_state_t;

static const char* product_type(rabbet_dtype_t dtype) {
  switch (rabbet_dtype_bits(dtype)) {
    case 16:
      return "uint16_t";
    case 32:
      return "uint32_t";
    case 64:
      return "uint64_t";
    default:
      return NULL;
  }
}

static bool product_matches(const rabbet_group_t* group) {
  return rabbet_node_is(group, RABBET_OP_MATRIX_MULTIPLY) &&
         product_type(group->values[group->nodes[0].inputs[0]].dtype);
}

static rabbet_status_t cuda_product_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "elements", -1);
}

static rabbet_status_t cuda_product_propose(const rabbet_propose_t* propose,
                                            rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_matmul_shape_t shape;
  rabbet_dims_t* dims = NULL;
  if (!product_matches(group)) return rabbet_ok();
  const rabbet_group_node_t* node = &group->nodes[0];
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, propose->allocator, &dims));
  rabbet_status_t status = rabbet_matmul_shape(node, dims, &shape);
  rabbet_free(propose->allocator, dims);
  RABBET_RETURN_IF_ERROR(status);
  if (rabbet_dtype_is_float(group->values[node->inputs[0]].dtype) &&
      shape.k > 0)
    return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_product, NULL,
                              cuda_product_body);
}

static rabbet_status_t cuda_product_program(rabbet_cuda_node_t* base,
                                            const rabbet_kernel_spec_t* spec) {
  cuda_product_kernel_t* kernel = (cuda_product_kernel_t*)base;
  const rabbet_group_node_t* node = base->node.node;
  if (!product_matches(spec->group))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is no product that cuda.product computes",
                         node->name);
  rabbet_dtype_t dtype = spec->group->values[node->inputs[0]].dtype;
  rabbet_cuda_options_t options = {.count = 0};
  kernel->element = rabbet_dtype_bits(dtype) / 8;
  rabbet_cuda_option(&options, "-DT=%s", product_type(dtype));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(base, spec, "products/product.cu", NULL, &options));
  return rabbet_cuda_node_function(base, 0, "product", &kernel->function);
}

static rabbet_status_t product_fill(const cuda_product_kernel_t* kernel,
                                    const rabbet_kernel_shapes_t* shapes,
                                    cuda_product_state_t* state) {
  const rabbet_group_node_t* node = kernel->node.node.node;
  rabbet_matmul_shape_t* s = &state->shape;
  RABBET_RETURN_IF_ERROR(rabbet_matmul_shape(node, shapes->dims, s));
  rabbet_dtype_t dtype = kernel->node.node.group->values[node->inputs[0]].dtype;
  if (rabbet_dtype_is_float(dtype) && s->k > 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the product '%s' was built for an inner extent of 0 "
                         "and has %lld",
                         node->name, (long long)s->k);
  state->parameters = (product_t){.count = s->batch.size * s->m * s->n,
                                  .rows = s->m,
                                  .columns = s->n,
                                  .k = s->k,
                                  .a_batch = s->batch.a,
                                  .a_row = s->a_row,
                                  .a_column = s->a_column,
                                  .b_batch = s->batch.b,
                                  .b_row = s->b_row,
                                  .b_column = s->b_column,
                                  .y_batch = s->batch.y,
                                  .y_row = s->y_row};
  int64_t blocks =
      rabbet_ceildiv(state->parameters.count, (int64_t)PRODUCT_THREADS);
  if (blocks > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the product '%s' has too many elements", node->name);
  state->launch = (rabbet_cuda_launch_t){.function = kernel->function,
                                         .grid = {(unsigned)blocks, 1, 1},
                                         .block = {PRODUCT_THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cuda_product_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_product_state_t** out_state, size_t* out_workspace) {
  cuda_product_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      product_fill((const cuda_product_kernel_t*)base, shapes, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

static rabbet_status_t cuda_product_enqueue(rabbet_kernel_t* base,
                                            cuda_product_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const cuda_product_kernel_t* kernel = (const cuda_product_kernel_t*)base;
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* node = kernel->node.node.node;
  int64_t turns = rabbet_matmul_turns(&state->shape), size = kernel->element;
  if (state->parameters.count == 0) return rabbet_ok();
  for (int64_t turn = 0; turn < turns; ++turn) {
    rabbet_matmul_axis_t at = rabbet_matmul_turn(&state->shape, turn);
    const char* a = call->inputs[rabbet_group_input_of(group, node->inputs[0])];
    const char* b = call->inputs[rabbet_group_input_of(group, node->inputs[1])];
    char* y = call->outputs[0];
    a += at.a * size;
    b += at.b * size;
    y += at.y * size;
    void* parameters[] = {&a, &b, &y, &state->parameters};
    RABBET_RETURN_IF_ERROR(rabbet_cuda_launch(
        kernel->node.device, &state->launch, parameters, call->stream));
  }
  return rabbet_ok();
}

static bool cuda_product_takes(const rabbet_kernel_spec_t* spec) {
  return product_matches(spec->group) &&
         rabbet_takes_node(spec->group, RABBET_OP_MATRIX_MULTIPLY, 0);
}

RABBET_CUDA_NODE_CLASS(cuda_product, cuda_product_kernel_t, "cuda.product", 1);
