// Matrix products with more after them than cuBLASLt's epilogues: GELU by erf,
// swish, a residual behind a function. By cuDNN graphs, whose engines are
// compiled for the group. Bounded as products are.
#include "core/view.h"
#include "device/cuda/cudnn_kernel.h"
#include "device/cuda/matmul.h"
#include "ops/enums.h"

// [batch, rows, columns]; a batch of which all have the same matrix is one.
static rabbet_cudnn_shape_t fused_shape(int64_t batch, int64_t step,
                                        const int64_t sizes[2],
                                        const int64_t strides[2]) {
  bool same = batch == 1 || step == 0;
  return (rabbet_cudnn_shape_t){
      .rank = 3,
      .dims = {same ? 1 : batch, sizes[0], sizes[1]},
      .strides = {same ? sizes[0] * sizes[1] : step, strides[0], strides[1]}};
}

// Numbers for each column, one for all, or a tensor of the result's shape.
static bool fused_operand(const rabbet_cudnn_chain_t* chain, int32_t value,
                          rabbet_cudnn_shape_t* out_shape) {
  const rabbet_dims_t* dims = &chain->dims[value];
  const rabbet_dims_t* result = &chain->dims[chain->epilogue->result];
  const rabbet_group_node_t* node = &chain->group->nodes[0];
  *out_shape = chain->result;
  if (rabbet_cuda_dims_equal(dims, result)) return true;
  if (dims->rank != result->rank ||
      rabbet_node_int(node, "op1") == RABBET_MATRIX_VECTOR)
    return false;
  for (int i = 0; i < dims->rank - 1; ++i)
    if (dims->d[i] != 1) return false;
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

static bool rabbet_cuda_matmul_fused_describe(const rabbet_group_t* group,
                                              const rabbet_dims_t* dims,
                                              rabbet_cudnn_graph_t* graph) {
  rabbet_cuda_epilogue_t epilogue;
  rabbet_matmul_shape_t s;
  if (!rabbet_matmul_matches(group)) return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  // One tensor of the graph has one shape.
  if (node->inputs[0] == node->inputs[1] ||
      !rabbet_cuda_epilogue_parse(group, dims, 1, node->outputs[0], &epilogue))
    return false;
  for (int i = 0; i < epilogue.count; ++i)
    if (epilogue.items[i].operand == node->inputs[0] ||
        epilogue.items[i].operand == node->inputs[1])
      return false;
  for (size_t i = 0; i < group->input_count; ++i)
    if (group->values[group->inputs[i]].format != RABBET_FORMAT_LINEAR)
      return false;
  rabbet_status_t status = rabbet_matmul_shape(node, dims, &s);
  bool fits = rabbet_is_ok(status) && s.loop_count == 0 && s.k > 0;
  rabbet_status_ignore(status);
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

static rabbet_status_t fused_offer(const rabbet_propose_t* propose,
                                   rabbet_candidate_sink_t sink,
                                   rabbet_cudnn_t* library,
                                   rabbet_type_format_t* tensors) {
  const rabbet_group_t* group = propose->group;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      propose, group->values[group->nodes[0].inputs[0]].dtype, types);
  for (int i = 0; i < count; ++i) {
    if (rabbet_cudnn_type(types[i]) < 0) continue;
    rabbet_network_tensors(group, tensors);
    for (size_t k = 0; k < group->input_count + group->output_count; ++k)
      tensors[k].dtype = types[i];
    RABBET_RETURN_IF_ERROR(rabbet_cudnn_offer(&(rabbet_cudnn_offer_t){
        .propose = propose,
        .sink = sink,
        .kernel = &rabbet_cuda_matmul_fused,
        .describe = rabbet_cuda_matmul_fused_describe,
        .library = library,
        .tensors = tensors,
        .dtype = types[i],
    }));
  }
  return rabbet_ok();
}

// What cuBLASLt can do is left to it.
static rabbet_status_t fused_is_wanted(const rabbet_propose_t* propose,
                                       bool* out_wanted) {
  const rabbet_group_t* group = propose->group;
  rabbet_matmul_epilogue_t simple;
  rabbet_dims_t* dims = NULL;
  *out_wanted = false;
  if (group->node_count < 2 || group->output_count != 1 ||
      propose->optimization_level < 2 || !rabbet_matmul_matches(group))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, propose->allocator, &dims));
  *out_wanted = !rabbet_matmul_epilogue(group, dims, &simple);
  rabbet_free(propose->allocator, dims);
  return rabbet_ok();
}

static rabbet_status_t rabbet_cuda_matmul_fused_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_cudnn_t* library = NULL;
  rabbet_type_format_t* tensors = NULL;
  bool wanted = false;
  RABBET_RETURN_IF_ERROR(fused_is_wanted(propose, &wanted));
  if (!wanted) return rabbet_ok();
  rabbet_status_t status =
      rabbet_cudnn_get(rabbet_cuda(propose->device), &library);
  // Without cuDNN there are other ways to compute it.
  if (rabbet_status_code(status) == RABBET_STATUS_UNAVAILABLE) {
    rabbet_status_ignore(status);
    return rabbet_ok();
  }
  if (rabbet_is_ok(status))
    status = rabbet_allocate(
        propose->allocator,
        sizeof(*tensors) * (group->input_count + group->output_count),
        (void**)&tensors);
  if (rabbet_is_ok(status))
    status = fused_offer(propose, sink, library, tensors);
  rabbet_free(propose->allocator, tensors);
  return status;
}

RABBET_CUDNN_CLASS(rabbet_cuda_matmul_fused, "cuda.matmul.fused", 1);
