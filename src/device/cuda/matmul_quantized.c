// Matrix products of 8 bits: cuBLASLt's sums of 32 bits (INT32 of INT8, FLOAT
// of FP8), then one generated kernel for all that follows: scales, bias,
// functions, what is added, the rounding of the result to 8 bits.
//
// The second kernel reads four bytes for each element of the result, which is
// what it costs beside a product of 16 bits; it gains where k is large.
#include <string.h>

#include "base/math.h"
#include "device/common/quantized.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/matmul.h"
#include "ops/enums.h"

// The two groups: values are those of the whole group, and two more.
enum { MORE_VALUES = 2, TAIL_NODES = RABBET_QUANTIZED_NODES + 4 };
enum { PRODUCT = 0, TAIL = 1, PARTS = 2 };
// Of the tactic, which otherwise is the product's: threads of the tail do
// several vectors each (tactic 1 of cuda.pointwise), as pays in large results.
enum { TACTIC_LONG_TAIL = 1 << 30 };

typedef struct split_t {
  rabbet_quantized_t quantized;
  rabbet_group_value_t* values;  // of both groups
  rabbet_group_t parts[PARTS];
  int32_t sums, scaled;  // the two values: sums, and times x's scale
  rabbet_group_node_t nodes[TAIL_NODES];
  int32_t scale_inputs[2], factor_inputs[2];
  rabbet_attr_t elementwise[1];
  int64_t product_op;
  // Boundary inputs of the tail: the sums, then the group's but for x and w.
  int32_t inputs[RABBET_QUANTIZED_INPUTS + 1];
  int32_t from[RABBET_QUANTIZED_INPUTS + 1];  // the group's input; -1: sums
} split_t;

static rabbet_dims_t split_ones(int32_t rank) {
  rabbet_dims_t dims = {.rank = rank};
  for (int32_t i = 0; i < rank; ++i)
    dims.d[i] = 1;
  return dims;
}

// The node that makes the value.
static const rabbet_group_node_t* split_maker(const rabbet_group_t* group,
                                              int32_t value) {
  const rabbet_group_node_t* node = group->nodes;
  while (node->outputs[0] != value)
    ++node;
  return node;
}

// x's scale and w's, as they are read over the result: columns last.
static void split_scales(split_t* split, const rabbet_group_t* group,
                         const rabbet_group_node_t* product) {
  const rabbet_quantized_t* q = &split->quantized;
  const rabbet_group_node_t* x = split_maker(group, product->inputs[0]);
  const rabbet_group_node_t* w = split_maker(group, product->inputs[1]);
  int32_t rank = group->values[product->outputs[0]].dims.rank;
  rabbet_group_value_t* scale = &split->values[x->inputs[1]];
  rabbet_group_value_t* factor = &split->values[w->inputs[1]];
  scale->dims = scale->min = scale->max = split_ones(rank);
  factor->dims = split_ones(rank);
  if (rank > 0) factor->dims.d[rank - 1] = q->w_count;
  factor->min = factor->max = factor->dims;
  split->scale_inputs[0] = split->sums;
  split->scale_inputs[1] = x->inputs[1];
  split->factor_inputs[0] = split->scaled;
  split->factor_inputs[1] = w->inputs[1];
  split->nodes[0] = *x;
  split->nodes[0].inputs = split->scale_inputs;
  split->nodes[0].input_count = 2;
  split->nodes[0].outputs = &split->scaled;
  split->product_op = RABBET_ELEMENTWISE_PROD;
  split->elementwise[0] = (rabbet_attr_t){.name = "op",
                                          .type = RABBET_ATTR_INT,
                                          .data = &split->product_op,
                                          .count = 1};
  split->nodes[1] =
      (rabbet_group_node_t){.op = rabbet_op_get(RABBET_OP_ELEMENTWISE),
                            .name = product->name,
                            .attrs = split->elementwise,
                            .inputs = split->factor_inputs,
                            .input_count = 2,
                            .outputs = product->outputs,
                            .output_count = 1};
}

// Nodes of the whole group but the product and what makes its factors.
static bool split_tail_nodes(split_t* split, const rabbet_group_t* group,
                             const rabbet_group_node_t* product) {
  rabbet_group_t* tail = &split->parts[TAIL];
  tail->nodes = split->nodes;
  tail->node_count = 2;
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    if (node == product || node->outputs[0] == product->inputs[0] ||
        node->outputs[0] == product->inputs[1])
      continue;
    if (tail->node_count == TAIL_NODES) return false;
    split->nodes[tail->node_count++] = *node;
  }
  return true;
}

static void split_tail_inputs(split_t* split, const rabbet_group_t* group) {
  rabbet_group_t* tail = &split->parts[TAIL];
  size_t count = 0;
  split->inputs[count] = split->sums;
  split->from[count++] = -1;
  for (size_t i = 0; i < group->input_count; ++i) {
    bool reads = false;
    for (size_t n = 0; n < tail->node_count; ++n)
      for (size_t k = 0; k < split->nodes[n].input_count; ++k)
        reads = reads || split->nodes[n].inputs[k] == group->inputs[i];
    if (!reads) continue;
    split->inputs[count] = group->inputs[i];
    split->from[count++] = (int32_t)i;
  }
  tail->inputs = split->inputs;
  tail->input_count = count;
  tail->outputs = group->outputs;
  tail->output_count = 1;
}

static void split_parts(split_t* split, const rabbet_group_t* group) {
  rabbet_quantized_t* q = &split->quantized;
  q->nodes[0].outputs = &split->sums;
  q->nodes[0].input_count = 2;
  split->parts[PRODUCT] = (rabbet_group_t){.inputs = q->product_inputs,
                                           .input_count = 2,
                                           .outputs = &split->sums,
                                           .output_count = 1,
                                           .nodes = q->nodes,
                                           .node_count = 1};
  for (int i = 0; i < PARTS; ++i) {
    split->parts[i].values = split->values;
    split->parts[i].value_count = group->value_count + MORE_VALUES;
  }
}

// Fills *split, which then points into itself and into the group; `values` has
// room for the group's and MORE_VALUES more. False if the group is no quantized
// product of INT8 or FP8.
static bool split_make(const rabbet_group_t* group,
                       rabbet_group_value_t* values, split_t* split) {
  memset(split, 0, sizeof(*split));
  split->values = values;
  rabbet_quantized_t* q = &split->quantized;
  if (!rabbet_quantized_parse(group, RABBET_OP_MATRIX_MULTIPLY, q) ||
      q->x_zero != 0)
    return false;
  rabbet_dtype_t dtype = group->values[q->x].dtype;
  if (dtype != group->values[q->w].dtype ||
      (dtype != RABBET_DTYPE_INT8 && dtype != RABBET_DTYPE_FP8))
    return false;
  const rabbet_group_node_t* product =
      split_maker(group, q->nodes[0].outputs[0]);
  memcpy(values, group->values, group->value_count * sizeof(*values));
  split->sums = (int32_t)group->value_count;
  split->scaled = split->sums + 1;
  values[split->sums] = values[split->scaled] = values[product->outputs[0]];
  values[split->scaled].dtype = RABBET_DTYPE_FLOAT;
  values[split->sums].dtype =
      dtype == RABBET_DTYPE_INT8 ? RABBET_DTYPE_INT32 : RABBET_DTYPE_FLOAT;
  split_scales(split, group, product);
  bool fits = split_tail_nodes(split, group, product);
  split_tail_inputs(split, group);
  split_parts(split, group);
  return fits;
}

static size_t split_values_bytes(const rabbet_group_t* group) {
  return (group->value_count + MORE_VALUES) * sizeof(rabbet_group_value_t);
}

// ---- Proposing -------------------------------------------------------------

typedef struct quantized_offer_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  const rabbet_type_format_t* tensors;
  int32_t tail_tactics;  // that cuda.pointwise offers
} quantized_offer_t;

// A tactic of the product is one of the whole.
static rabbet_status_t quantized_add(void* context,
                                     const rabbet_candidate_t* product) {
  const quantized_offer_t* offer = context;
  rabbet_candidate_t candidate = *product;
  if (offer->tail_tactics > 1) candidate.tactic |= TACTIC_LONG_TAIL;
  candidate.kernel = &rabbet_cuda_matmul_quantized;
  candidate.tensors = offer->tensors;
  candidate.in_place = NULL;
  return rabbet_offer(offer->propose, offer->sink, &candidate);
}

static rabbet_status_t quantized_count(void* context,
                                       const rabbet_candidate_t* candidate) {
  int32_t* count = context;
  if (candidate->tactic >= *count) *count = candidate->tactic + 1;
  return rabbet_ok();
}

static rabbet_status_t quantized_offer(const rabbet_propose_t* propose,
                                       rabbet_candidate_sink_t sink,
                                       const split_t* split,
                                       rabbet_type_format_t* tensors) {
  int32_t tail_tactics = 0;
  rabbet_propose_t part = *propose;
  part.fixed = NULL;
  part.extra_dtypes = 0;
  part.group = &split->parts[TAIL];
  RABBET_RETURN_IF_ERROR(rabbet_cuda_pointwise.propose(
      &part, (rabbet_candidate_sink_t){&tail_tactics, quantized_count}));
  if (tail_tactics == 0) return rabbet_ok();
  rabbet_network_tensors(propose->group, tensors);
  quantized_offer_t offer = {propose, sink, tensors, tail_tactics};
  part.group = &split->parts[PRODUCT];
  return rabbet_cuda_matmul.propose(
      &part, (rabbet_candidate_sink_t){&offer, quantized_add});
}

static rabbet_status_t quantized_propose(const rabbet_propose_t* propose,
                                         rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  split_t split;
  rabbet_group_value_t* values = NULL;
  rabbet_type_format_t* tensors = NULL;
  if (group->node_count < 3) return rabbet_ok();
  rabbet_status_t status = rabbet_allocate(
      propose->allocator, split_values_bytes(group), (void**)&values);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(
        propose->allocator,
        (group->input_count + group->output_count) * sizeof(*tensors),
        (void**)&tensors);
  if (rabbet_is_ok(status) && split_make(group, values, &split))
    status = quantized_offer(propose, sink, &split, tensors);
  rabbet_free(propose->allocator, tensors);
  rabbet_free(propose->allocator, values);
  return status;
}

// ---- The kernel ------------------------------------------------------------

typedef struct quantized_kernel_t {
  rabbet_node_kernel_t node;
  split_t split;
  rabbet_kernel_t* parts[PARTS];
} quantized_kernel_t;

struct rabbet_kernel_state_t {
  rabbet_kernel_state_t* parts[PARTS];
  size_t sums_bytes;  // of the workspace
};

static const rabbet_kernel_class_t* quantized_class(int part) {
  return part == PRODUCT ? &rabbet_cuda_matmul : &rabbet_cuda_pointwise;
}

static void quantized_destroy(rabbet_kernel_t* base) {
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  if (!kernel) return;
  for (int i = 0; i < PARTS; ++i)
    if (kernel->parts[i]) quantized_class(i)->destroy(kernel->parts[i]);
  rabbet_free(kernel->node.allocator, kernel->split.values);
  rabbet_free(kernel->node.allocator, kernel);
}

static rabbet_status_t quantized_create_parts(
    quantized_kernel_t* kernel, const rabbet_kernel_spec_t* spec) {
  rabbet_group_value_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      spec->allocator, split_values_bytes(spec->group), (void**)&values));
  if (!split_make(spec->group, values, &kernel->split))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "cuda.matmul.quantized computes products of "
                         "dequantized INT8 or FP8 tensors; this group is none");
  for (int i = 0; i < PARTS; ++i) {
    rabbet_kernel_spec_t part = *spec;
    part.group = &kernel->split.parts[i];
    part.tactic = i == PRODUCT ? spec->tactic & ~TACTIC_LONG_TAIL
                               : (spec->tactic & TACTIC_LONG_TAIL) != 0;
    RABBET_RETURN_IF_ERROR(
        quantized_class(i)->create(&part, &kernel->parts[i]));
  }
  for (size_t i = 1; i < kernel->split.parts[TAIL].input_count; ++i)
    if (kernel->parts[TAIL]->own_constants >> i & 1)
      kernel->node.base.own_constants |= UINT64_C(1) << kernel->split.from[i];
  return rabbet_ok();
}

static rabbet_status_t quantized_create(const rabbet_kernel_spec_t* spec,
                                        rabbet_kernel_t** out_kernel) {
  quantized_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->node.base.kernel_class = &rabbet_cuda_matmul_quantized;
  kernel->node.allocator = spec->allocator;
  kernel->node.group = spec->group;
  kernel->node.node = &spec->group->nodes[0];
  rabbet_status_t status = quantized_create_parts(kernel, spec);
  if (!rabbet_is_ok(status)) {
    quantized_destroy(&kernel->node.base);
    return status;
  }
  *out_kernel = &kernel->node.base;
  return rabbet_ok();
}

static rabbet_status_t quantized_artifacts(rabbet_kernel_t* base,
                                           rabbet_artifact_sink_t sink) {
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  for (int i = 0; i < PARTS; ++i)
    RABBET_RETURN_IF_ERROR(
        quantized_class(i)->artifacts(kernel->parts[i], sink));
  return rabbet_ok();
}

// ---- Preparing -------------------------------------------------------------

static void quantized_destroy_state(rabbet_kernel_t* base,
                                    rabbet_kernel_state_t* state) {
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  if (!state) return;
  for (int i = 0; i < PARTS; ++i)
    quantized_class(i)->destroy_state(kernel->parts[i], state->parts[i]);
  rabbet_free(kernel->node.allocator, state);
}

// The dims of the whole group's values, and of those that the parts have of
// their own or see otherwise.
static rabbet_status_t quantized_dims(const quantized_kernel_t* kernel,
                                      const rabbet_kernel_shapes_t* shapes,
                                      rabbet_dims_t** out_dims) {
  const split_t* split = &kernel->split;
  const rabbet_group_t* group = kernel->node.group;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      kernel->node.allocator,
      (group->value_count + MORE_VALUES) * sizeof(rabbet_dims_t),
      (void**)out_dims));
  rabbet_dims_t* dims = *out_dims;
  memcpy(dims, shapes->dims, group->value_count * sizeof(*dims));
  dims[split->sums] = dims[split->scaled] =
      shapes->dims[split->nodes[1].outputs[0]];
  dims[split->scale_inputs[1]] = split->values[split->scale_inputs[1]].dims;
  dims[split->factor_inputs[1]] = split->values[split->factor_inputs[1]].dims;
  return rabbet_ok();
}

static rabbet_status_t quantized_prepare_parts(
    quantized_kernel_t* kernel, const rabbet_kernel_shapes_t* shapes,
    rabbet_dims_t* dims, rabbet_kernel_state_t* state, size_t* out_workspace) {
  rabbet_kernel_shapes_t part = *shapes;
  part.dims = dims;
  part.host_values = NULL;
  part.bytes = NULL;
  size_t most = 0, bytes = 0;
  for (int i = 0; i < PARTS; ++i) {
    bytes = 0;
    RABBET_RETURN_IF_ERROR(quantized_class(i)->prepare(
        kernel->parts[i], &part, &state->parts[i], &bytes));
    if (bytes > most) most = bytes;
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(RABBET_DTYPE_INT32, RABBET_FORMAT_LINEAR,
                          &dims[kernel->split.sums], &bytes));
  state->sums_bytes = rabbet_align_up(bytes, 256);
  *out_workspace = state->sums_bytes + most;
  return rabbet_ok();
}

static rabbet_status_t quantized_prepare(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         rabbet_kernel_state_t** out_state,
                                         size_t* out_workspace) {
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  rabbet_kernel_state_t* state = NULL;
  rabbet_dims_t* dims = NULL;
  *out_state = NULL;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), &state));
  rabbet_status_t status = quantized_dims(kernel, shapes, &dims);
  if (rabbet_is_ok(status))
    status =
        quantized_prepare_parts(kernel, shapes, dims, state, out_workspace);
  rabbet_free(kernel->node.allocator, dims);
  if (!rabbet_is_ok(status)) {
    quantized_destroy_state(base, state);
    return status;
  }
  *out_state = state;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t quantized_enqueue(rabbet_kernel_t* base,
                                         rabbet_kernel_state_t* state,
                                         const rabbet_kernel_call_t* call) {
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  const split_t* split = &kernel->split;
  const rabbet_group_t* group = kernel->node.group;
  void* sums = call->workspace;
  void* inputs[RABBET_QUANTIZED_INPUTS + 1] = {sums};
  void* factors[2] = {
      call->inputs[rabbet_group_input_of(group, split->quantized.x)],
      call->inputs[rabbet_group_input_of(group, split->quantized.w)]};
  for (size_t i = 1; i < split->parts[TAIL].input_count; ++i)
    inputs[i] = call->inputs[split->from[i]];
  const rabbet_kernel_call_t product = {
      .inputs = factors,
      .outputs = &sums,
      .workspace = (char*)call->workspace + state->sums_bytes,
      .stream = call->stream};
  const rabbet_kernel_call_t tail = {.inputs = inputs,
                                     .outputs = call->outputs,
                                     .workspace = product.workspace,
                                     .stream = call->stream};
  RABBET_RETURN_IF_ERROR(rabbet_cuda_matmul.enqueue(
      kernel->parts[PRODUCT], state->parts[PRODUCT], &product));
  return rabbet_cuda_pointwise.enqueue(kernel->parts[TAIL], state->parts[TAIL],
                                       &tail);
}

static uint64_t quantized_library(rabbet_device_t* device) {
  return rabbet_cublaslt_version(device) * 1000003u ^
         rabbet_cuda_pointwise.library_version(device);
}

const rabbet_kernel_class_t rabbet_cuda_matmul_quantized = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cuda.matmul.quantized",
    .version = 1,
    .propose = quantized_propose,
    .create = quantized_create,
    .destroy = quantized_destroy,
    .prepare = quantized_prepare,
    .destroy_state = quantized_destroy_state,
    .enqueue = quantized_enqueue,
    .artifacts = quantized_artifacts,
    .library_version = quantized_library,
    .tactic_sources =
        1u << RABBET_TACTIC_CUBLAS | 1u << RABBET_TACTIC_CUBLAS_LT,
};
