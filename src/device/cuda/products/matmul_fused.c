// Matrix products with epilogues that cuBLASLt lacks (GELU by erf, swish, a
// residual after a function), as cuDNN graphs, whose engines are compiled for
// the group. Bound like products.
#include "core/view.h"
#include "device/cuda/cudnn/kernel.h"
#include "device/cuda/products/matmul.h"
#include "ops/enums.h"

// The shape [batch, rows, columns]; if a batch shares one matrix, its extent is
// 1.
static rabbet_cudnn_shape_t fused_shape(int64_t batch, int64_t step,
                                        const int64_t sizes[2],
                                        const int64_t strides[2]) {
  bool same = batch == 1 || step == 0;
  return (rabbet_cudnn_shape_t){
      .rank = 3,
      .dims = {same ? 1 : batch, sizes[0], sizes[1]},
      .strides = {same ? sizes[0] * sizes[1] : step, strides[0], strides[1]}};
}

// Whether an operand has one number per column, is a scalar, or has the
// result's shape.
static bool fused_takes(const rabbet_group_node_t* product,
                        const rabbet_dims_t* dims,
                        const rabbet_dims_t* result) {
  if (rabbet_dims_equal(dims, result)) return true;
  if (dims->rank != result->rank ||
      rabbet_node_int(product, "op1") == RABBET_MATRIX_VECTOR)
    return false;
  for (int i = 0; i < dims->rank - 1; ++i)
    if (dims->d[i] != 1) return false;
  return true;
}

static bool fused_operand(const rabbet_cudnn_chain_t* chain, int32_t value,
                          rabbet_cudnn_shape_t* out_shape) {
  const rabbet_dims_t* dims = &chain->dims[value];
  const rabbet_dims_t* result = &chain->dims[chain->epilogue->result];
  *out_shape = chain->result;
  if (!fused_takes(&chain->group->nodes[0], dims, result)) return false;
  if (rabbet_dims_equal(dims, result)) return true;
  int64_t columns = dims->rank > 0 ? dims->d[dims->rank - 1] : 1;
  const int64_t flat[3] = {1, 1, columns};
  *out_shape = rabbet_cudnn_dense(3, flat, false);
  return true;
}

static bool fused_add(const rabbet_cudnn_chain_t* chain,
                      const rabbet_matmul_shape_t* s,
                      rabbet_cudnn_graph_t* graph) {
  const rabbet_group_t* group = chain->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  if (!rabbet_cudnn_chain_fits(chain)) return false;
  rabbet_cudnn_shape_t a =
      fused_shape(s->batch.size, s->batch.a, (const int64_t[]){s->m, s->k},
                  (const int64_t[]){s->a_row, s->a_column});
  rabbet_cudnn_shape_t b =
      fused_shape(s->batch.size, s->batch.b, (const int64_t[]){s->k, s->n},
                  (const int64_t[]){s->b_row, s->b_column});
  cudnnBackendDescriptor_t a_tensor = rabbet_cudnn_tensor(
      graph, &a, chain->dtype, rabbet_group_input_of(group, node->inputs[0]));
  cudnnBackendDescriptor_t b_tensor = rabbet_cudnn_tensor(
      graph, &b, chain->dtype, rabbet_group_input_of(group, node->inputs[1]));
  cudnnBackendDescriptor_t y = rabbet_cudnn_chain_start(chain, graph);
  rabbet_cudnn_matmul(graph, a_tensor, b_tensor, y);
  rabbet_cudnn_chain_add(chain, y, graph);
  return true;
}

static bool cuda_matmul_fused_describe(const rabbet_group_t* group,
                                       const rabbet_dims_t* dims,
                                       rabbet_cudnn_graph_t* graph) {
  rabbet_cuda_epilogue_t epilogue;
  rabbet_matmul_shape_t s;
  if (!rabbet_matmul_matches(group)) return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  // A tensor of the graph has one shape, so it cannot be both factors.
  if (node->inputs[0] == node->inputs[1] ||
      !rabbet_cuda_epilogue_parse(group, dims, 1, node->outputs[0], &epilogue))
    return false;
  for (int i = 0; i < epilogue.count; ++i)
    if (epilogue.items[i].operand == node->inputs[0] ||
        epilogue.items[i].operand == node->inputs[1])
      return false;
  bool turned = group->values[node->inputs[1]].format == RABBET_FORMAT_HWC;
  for (size_t i = 0; i < group->input_count; ++i)
    if (group->values[group->inputs[i]].format != RABBET_FORMAT_LINEAR &&
        !(turned && group->inputs[i] == node->inputs[1]))
      return false;
  rabbet_status_t status = rabbet_matmul_shape(node, dims, &s);
  bool fits = rabbet_is_ok(status) && s.loop_count == 0 && s.k > 0;
  rabbet_status_ignore(status);
  fits = fits && (!turned || rabbet_matmul_turn_weights(node, dims, &s));
  if (!fits) return false;
  const rabbet_cudnn_chain_t chain = {
      .group = group,
      .dims = dims,
      .epilogue = &epilogue,
      .result =
          fused_shape(s.batch.size, s.batch.y, (const int64_t[]){s.m, s.n},
                      (const int64_t[]){s.y_row, 1}),
      .dtype = group->values[epilogue.result].dtype,
      .operand = fused_operand};
  return fused_add(&chain, &s, graph);
}

// ---- Proposing -------------------------------------------------------------

static bool fused_can(rabbet_dtype_t dtype) {
  return rabbet_cudnn_type(dtype) >= 0;
}

// The boundary input of weights that are not contiguous along k and can be
// transposed; -1: none.
static int32_t fused_turned(const rabbet_group_t* group) {
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_group_value_t* b = &group->values[node->inputs[1]];
  bool by_columns = rabbet_node_int(node, "op1") == RABBET_MATRIX_NONE;
  return b->constant && b->dims.rank == 3 && b->dims.d[0] == 1 && by_columns
             ? rabbet_group_input_of(group, node->inputs[1])
             : -1;
}

// Checks operands at the largest shapes: one that looks like a single row at
// the optimum may be a batch of rows there.
static bool fused_takes_largest(const rabbet_group_t* group) {
  const rabbet_group_node_t* product = &group->nodes[0];
  for (size_t i = 0; i < group->input_count; ++i) {
    int32_t value = group->inputs[i];
    if (value != product->inputs[0] && value != product->inputs[1] &&
        !fused_takes(product, &group->values[value].max,
                     &group->values[group->outputs[0]].max))
      return false;
  }
  return true;
}

// Leaves groups that cuBLASLt supports to it.
static rabbet_status_t fused_is_wanted(const rabbet_propose_t* propose,
                                       bool* out_wanted) {
  const rabbet_group_t* group = propose->group;
  bool simple = false;
  *out_wanted = false;
  if (group->node_count < 2 || group->output_count != 1 ||
      propose->optimization_level < 2 || !rabbet_matmul_matches(group) ||
      !fused_takes_largest(group))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_matmul_has_epilogue(propose, &simple));
  *out_wanted = !simple;
  return rabbet_ok();
}

static rabbet_status_t cuda_matmul_fused_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  bool wanted = false;
  RABBET_RETURN_IF_ERROR(fused_is_wanted(propose, &wanted));
  if (!wanted) return rabbet_ok();
  return rabbet_cudnn_offer_linear(
      propose, sink, &rabbet_cuda_matmul_fused,
      group->values[group->nodes[0].inputs[0]].dtype, fused_can,
      fused_turned(group));
}

static bool cuda_matmul_fused_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_matmul_matches(spec->group);
}

RABBET_CUDNN_CLASS(cuda_matmul_fused, "cuda.matmul.fused", 2);
