// The best elements along an axis. Many rows with small k are bound by the
// bytes of the input, few rows by latency.
#include <assert.h>

#include "core/view.h"
#include "device/cuda/programs/node.h"
#include "device/cuda/selection/topk_params.h"
#include "ops/enums.h"

enum { FIRST, FIRST_COLUMNS, SORT, SELECT, SORT_LARGE, FUNCTIONS };
enum { SHARED_ITEMS = 2048, MOST_BLOCKS = 65535 };

typedef struct cuda_topk_kernel_t {
  rabbet_cuda_node_t node;
  int64_t item;  // bytes of an element with its index
  CUfunction functions[FUNCTIONS];
} cuda_topk_kernel_t;

typedef struct cuda_topk_state_t {
  bool is_empty, has_workspace;
  topk_t parameters;
  rabbet_cuda_launch_t launch;
} cuda_topk_state_t;

static rabbet_status_t cuda_topk_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(proposal, "rows", -1);
}

RABBET_PROPOSE_FOR(cuda_topk, TOPK)

static rabbet_status_t cuda_topk_program(rabbet_cuda_node_t* node,
                                         const rabbet_kernel_spec_t* spec) {
  static const char* const names[FUNCTIONS] = {
      [FIRST] = "topk_first",
      [FIRST_COLUMNS] = "topk_first_columns",
      [SORT] = "topk_sort",
      [SELECT] = "topk_select",
      [SORT_LARGE] = "topk_sort_large"};
  cuda_topk_kernel_t* kernel = (cuda_topk_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_TOPK))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' chooses no elements", layer->name);
  rabbet_dtype_t dtype = spec->group->values[layer->inputs[0]].dtype;
  const char* type = rabbet_cuda_type(dtype);
  if (!type || dtype == RABBET_DTYPE_BOOL || dtype == RABBET_DTYPE_FP8)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': type %s has no order", layer->name,
                         rabbet_dtype_name(dtype));
  bool is_long = dtype == RABBET_DTYPE_INT64;
  rabbet_cuda_options_t options = {.count = 0};
  kernel->item = is_long ? 16 : 8;
  rabbet_cuda_option(&options, "-DELEMENT=%s", type);
  rabbet_cuda_option(&options, "-DKEY_BITS=%d", is_long ? 64 : 32);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "selection/topk.cu", NULL, &options));
  for (int i = 0; i < FUNCTIONS; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, names[i], &kernel->functions[i]));
  return rabbet_ok();
}

// ---- Geometry --------------------------------------------------------------

static int64_t topk_power(int64_t count) {
  int64_t power = 1;
  while (power < count)
    power *= 2;
  return power;
}

static void topk_plan(const cuda_topk_kernel_t* kernel,
                      cuda_topk_state_t* state) {
  static const unsigned threads[FUNCTIONS] = {[FIRST] = 256,
                                              [FIRST_COLUMNS] = 256,
                                              [SORT] = 512,
                                              [SELECT] = 1024,
                                              [SORT_LARGE] = 1024};
  topk_t* p = &state->parameters;
  bool columns = p->inner.divisor >= 32 &&
                 p->rows >= 64 * (int64_t)kernel->node.device->multiprocessors;
  int function = p->k == 1                  ? (columns ? FIRST_COLUMNS : FIRST)
                 : p->count <= SHARED_ITEMS ? SORT
                 : p->k <= SHARED_ITEMS     ? SELECT
                                            : SORT_LARGE;
  assert(p->k >= 1 && p->k <= p->count && p->rows >= 1);
  int64_t blocks =
      function == FIRST_COLUMNS ? rabbet_ceildiv(p->rows, 256) : p->rows;
  if (function != FIRST_COLUMNS) blocks = rabbet_min_i64(blocks, MOST_BLOCKS);
  p->padded = topk_power(function == SELECT ? p->k : p->count);
  assert((function != SORT && function != SELECT) || p->padded <= SHARED_ITEMS);
  state->has_workspace = function == SORT_LARGE;
  state->launch =
      (rabbet_cuda_launch_t){.function = kernel->functions[function],
                             .grid = {(unsigned)blocks, 1, 1},
                             .block = {threads[function], 1, 1}};
}

static rabbet_status_t topk_set(const cuda_topk_kernel_t* kernel,
                                const rabbet_dims_t* in,
                                const rabbet_dims_t* out, topk_t* p) {
  const rabbet_group_node_t* layer = kernel->node.node.node;
  int32_t axis =
      __builtin_ctzll((unsigned long long)rabbet_node_int(layer, "axes"));
  int64_t inner = 1;
  p->rows = 1;
  for (int32_t i = 0; i < in->rank; ++i) {
    if (i != axis) p->rows *= in->d[i];
    if (i > axis) inner *= in->d[i];
  }
  p->count = in->d[axis];
  p->k = out->d[axis];
  p->inner = rabbet_cuda_divisor(inner);
  p->smallest = rabbet_node_int(layer, "op") == RABBET_TOPK_MIN;
  p->is_long = kernel->node.node.group->values[layer->outputs[1]].dtype ==
               RABBET_DTYPE_INT64;
  if (p->k > p->count)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': k is %lld; axis %d has %lld elements",
                         layer->name, (long long)p->k, axis,
                         (long long)p->count);
  if (p->count > INT32_MAX || p->rows > (int64_t)INT32_MAX * 256)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': an axis of %lld elements in %lld rows is "
                         "too large",
                         layer->name, (long long)p->count, (long long)p->rows);
  return rabbet_ok();
}

static rabbet_status_t cuda_topk_prepare(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         cuda_topk_state_t** out_state,
                                         size_t* out_workspace) {
  const cuda_topk_kernel_t* kernel = (const cuda_topk_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  topk_t p = {.rows = 0};
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(topk_set(kernel, &shapes->dims[layer->inputs[0]],
                                  &shapes->dims[layer->outputs[0]], &p));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_topk_state_t* state = *out_state;
  state->parameters = p;
  state->is_empty = p.rows == 0 || p.k == 0;
  if (state->is_empty) return rabbet_ok();
  topk_plan(kernel, state);
  if (state->has_workspace)
    *out_workspace = (size_t)(p.rows * state->parameters.padded * kernel->item);
  return rabbet_ok();
}

static rabbet_status_t cuda_topk_enqueue(rabbet_kernel_t* base,
                                         cuda_topk_state_t* state,
                                         const rabbet_kernel_call_t* call) {
  const cuda_topk_kernel_t* kernel = (const cuda_topk_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  if (state->is_empty) return rabbet_ok();
  const void* in = rabbet_node_input_at(node, call, 0);
  void* values = rabbet_node_output(node, call, 0);
  void* indices = rabbet_node_output(node, call, 1);
  void* workspace = call->workspace;
  void* plain[] = {&in, &values, &indices, &state->parameters};
  void* large[] = {&in, &workspace, &values, &indices, &state->parameters};
  return rabbet_cuda_launch(kernel->node.device, &state->launch,
                            state->has_workspace ? large : plain, call->stream);
}

RABBET_TAKES_NODE(cuda_topk, TOPK, RABBET_TAKES_UNREAD)

RABBET_CUDA_NODE_CLASS(cuda_topk, cuda_topk_kernel_t, "cuda.topk", 1);
