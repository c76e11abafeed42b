// Arithmetic sequences and random numbers. Bound by the bytes of the output.
#include "ops/movement/fill.h"

#include "core/view.h"
#include "device/cuda/movement/fill_params.h"
#include "device/cuda/programs/node.h"

enum { THREADS = 256 };

typedef struct cuda_fill_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction function;
} cuda_fill_kernel_t;

typedef struct cuda_fills_state_t {
  fill_t parameters;
  rabbet_cuda_launch_t launch;
} cuda_fills_state_t;

static rabbet_status_t cuda_fills_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "elements", -1);
}

RABBET_PROPOSE_FOR(cuda_fills, FILL)

static rabbet_status_t cuda_fills_program(rabbet_cuda_node_t* node,
                                          const rabbet_kernel_spec_t* spec) {
  cuda_fill_kernel_t* kernel = (cuda_fill_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  const rabbet_group_value_t* values = spec->group->values;
  if (!rabbet_node_is(spec->group, RABBET_OP_FILL))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is %s; expected fill", layer->name,
                         layer->op->name);
  rabbet_dtype_t dtype = values[layer->outputs[0]].dtype;
  int64_t operation = rabbet_node_int(layer, "operation");
  bool integer = dtype == RABBET_DTYPE_INT32 || dtype == RABBET_DTYPE_INT64;
  bool real = rabbet_dtype_is_float(dtype) && rabbet_dtype_bits(dtype) >= 16;
  bool fits = real || (integer && operation == RABBET_FILL_LINSPACE);
  for (size_t i = 1; i < layer->input_count; ++i)
    fits = fits &&
           (layer->inputs[i] < 0 || values[layer->inputs[i]].dtype == dtype);
  if (!fits)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': tensors of %s cannot be filled so",
                         layer->name, rabbet_dtype_name(dtype));
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(dtype));
  rabbet_cuda_option(&options, "-DOPERATION=%d", (int)operation);
  rabbet_cuda_option(&options, "-DINTEGER=%d", (int)integer);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "movement/fill.cu", NULL, &options));
  return rabbet_cuda_node_function(node, 0, "fill", &kernel->function);
}

static rabbet_status_t cuda_fills_prepare(rabbet_kernel_t* base,
                                          const rabbet_kernel_shapes_t* shapes,
                                          cuda_fills_state_t** out_state,
                                          size_t* out_workspace) {
  const cuda_fill_kernel_t* kernel = (const cuda_fill_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node.node.node;
  const rabbet_dims_t* out = &shapes->dims[node->outputs[0]];
  int32_t beta = rabbet_node_input(node, 2);
  rabbet_fill_plan_t plan;
  int64_t count = 0, beta_count = 0;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(out, &count));
  if (beta >= 0)
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&shapes->dims[beta], &beta_count));
  if (rabbet_ceildiv(count, (int64_t)THREADS) > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': the output has too many elements",
                         node->name);
  rabbet_fill_read(node->attrs, node->op->attr_count, out, &plan);
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  fill_t* p = &(*out_state)->parameters;
  *p = (fill_t){.count = count,
                .alpha = plan.alpha,
                .beta = plan.beta,
                .seed = plan.seed,
                .rank = plan.rank,
                .beta_count = (int32_t)beta_count};
  for (int32_t i = 0; i < plan.rank; ++i)
    p->dims[i] = rabbet_cuda_divisor(plan.dims[i]);
  (*out_state)->launch = (rabbet_cuda_launch_t){
      .function = kernel->function,
      .grid = {(unsigned)rabbet_ceildiv(count, (int64_t)THREADS), 1, 1},
      .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cuda_fills_enqueue(rabbet_kernel_t* base,
                                          cuda_fills_state_t* state,
                                          const rabbet_kernel_call_t* call) {
  const cuda_fill_kernel_t* kernel = (const cuda_fill_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  if (state->parameters.count == 0) return rabbet_ok();
  const void* alpha = rabbet_node_input_at(node, call, 1);
  const void* beta = rabbet_node_input_at(node, call, 2);
  void* y = rabbet_node_output(node, call, 0);
  void* parameters[] = {&alpha, &beta, &y, &state->parameters};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_fills, FILL, 0)

RABBET_CUDA_NODE_CLASS(cuda_fills, cuda_fill_kernel_t, "cuda.fill", 1);
