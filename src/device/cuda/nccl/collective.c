// Collectives by NCCL, or direct. They are computed in the network's type
// alone: ranks that choose types by their own times would not fit each other.
#include "device/cuda/nccl/direct.h"

typedef struct collective_kernel_t {
  rabbet_cuda_node_t node;
  rabbet_collective_t layer;
  rabbet_dtype_t dtype;
  rabbet_nccl_direct_t direct;
} collective_kernel_t;

typedef struct cuda_collective_state_t {
  size_t count;  // elements of the input
  size_t input_bytes, output_bytes;
} cuda_collective_state_t;

// A call's side of an exchange.
typedef struct collective_call_t {
  const rabbet_nccl_t* library;
  ncclComm_t comm;
  int rank, ranks, root;  // of the group
  const char* input;
  char* output;
  size_t count;  // elements of the input
  size_t size;   // bytes of the input
  ncclDataType_t type;
  ncclRedOp_t reduce;
  cudaStream_t stream;
} collective_call_t;

// ---- Operations
// --------------------------------------------------------------

// Elements are moved as bytes, so that every type is.
static ncclResult_t collective_send(const collective_call_t* c,
                                    const char* from, size_t size, int peer) {
  return c->library->ncclSend(from, size, ncclInt8, peer, c->comm, c->stream);
}
static ncclResult_t collective_receive(const collective_call_t* c, char* to,
                                       size_t size, int peer) {
  return c->library->ncclRecv(to, size, ncclInt8, peer, c->comm, c->stream);
}

static ncclResult_t collective_all_reduce(const collective_call_t* c) {
  return c->library->ncclAllReduce(c->input, c->output, c->count, c->type,
                                   c->reduce, c->comm, c->stream);
}
static ncclResult_t collective_all_gather(const collective_call_t* c) {
  return c->library->ncclAllGather(c->input, c->output, c->size, ncclInt8,
                                   c->comm, c->stream);
}
static ncclResult_t collective_broadcast(const collective_call_t* c) {
  return c->library->ncclBroadcast(c->input, c->output, c->size, ncclInt8,
                                   c->root, c->comm, c->stream);
}
static ncclResult_t collective_reduce(const collective_call_t* c) {
  return c->library->ncclReduce(c->input, c->output, c->count, c->type,
                                c->reduce, c->root, c->comm, c->stream);
}
static ncclResult_t collective_reduce_scatter(const collective_call_t* c) {
  return c->library->ncclReduceScatter(c->input, c->output,
                                       c->count / (size_t)c->ranks, c->type,
                                       c->reduce, c->comm, c->stream);
}

// Sends and receives of a group happen together.
static ncclResult_t collective_all_to_all(const collective_call_t* c) {
  size_t block = c->size / (size_t)c->ranks;
  ncclResult_t result = ncclSuccess;
  for (int i = 0; result == ncclSuccess && i < c->ranks; ++i) {
    result = collective_send(c, c->input + (size_t)i * block, block, i);
    if (result == ncclSuccess)
      result = collective_receive(c, c->output + (size_t)i * block, block, i);
  }
  return result;
}
static ncclResult_t collective_gather(const collective_call_t* c) {
  ncclResult_t result = collective_send(c, c->input, c->size, c->root);
  for (int i = 0; result == ncclSuccess && c->rank == c->root && i < c->ranks;
       ++i)
    result = collective_receive(c, c->output + (size_t)i * c->size, c->size, i);
  return result;
}
static ncclResult_t collective_scatter(const collective_call_t* c) {
  size_t block = c->size / (size_t)c->ranks;
  ncclResult_t result = ncclSuccess;
  for (int i = 0; result == ncclSuccess && c->rank == c->root && i < c->ranks;
       ++i)
    result = collective_send(c, c->input + (size_t)i * block, block, i);
  return result == ncclSuccess
             ? collective_receive(c, c->output, block, c->root)
             : result;
}

static const struct {
  const char* call;
  ncclResult_t (*run)(const collective_call_t* c);
  bool grouped;       // sends and receives
  bool in_place;      // the output may be the input
  bool for_the_root;  // others receive nothing
} collective_operations[RABBET_COLLECTIVE_COUNT] = {
    [RABBET_COLLECTIVE_ALL_REDUCE] = {"ncclAllReduce", collective_all_reduce,
                                      .in_place = true},
    [RABBET_COLLECTIVE_ALL_GATHER] = {"ncclAllGather", collective_all_gather},
    [RABBET_COLLECTIVE_BROADCAST] = {"ncclBroadcast", collective_broadcast,
                                     .in_place = true},
    [RABBET_COLLECTIVE_REDUCE] = {"ncclReduce", collective_reduce,
                                  .in_place = true, .for_the_root = true},
    [RABBET_COLLECTIVE_REDUCE_SCATTER] = {"ncclReduceScatter",
                                          collective_reduce_scatter},
    [RABBET_COLLECTIVE_ALL_TO_ALL] = {"ncclSend and ncclRecv",
                                      collective_all_to_all, .grouped = true},
    [RABBET_COLLECTIVE_GATHER] = {"ncclSend and ncclRecv", collective_gather,
                                  .grouped = true, .for_the_root = true},
    [RABBET_COLLECTIVE_SCATTER] = {"ncclSend and ncclRecv", collective_scatter,
                                   .grouped = true},
};

// ---- Types
// -------------------------------------------------------------------

static const struct {
  rabbet_dtype_t dtype;
  ncclDataType_t type;
  int version;  // of the first library that reduces it
} collective_types[] = {
    {RABBET_DTYPE_FLOAT, ncclFloat32, 0},
    {RABBET_DTYPE_HALF, ncclFloat16, 0},
    {RABBET_DTYPE_BF16, ncclBfloat16, 0},
    {RABBET_DTYPE_DOUBLE, ncclFloat64, 0},
    {RABBET_DTYPE_INT8, ncclInt8, 0},
    {RABBET_DTYPE_UINT8, ncclUint8, 0},
    {RABBET_DTYPE_INT32, ncclInt32, 0},
    {RABBET_DTYPE_INT64, ncclInt64, 0},
    {RABBET_DTYPE_FP8, ncclFloat8e4m3, 22400},
};

// -1: NCCL does not reduce it.
static ncclDataType_t collective_type(rabbet_dtype_t dtype, int version) {
  for (size_t i = 0; i < sizeof(collective_types) / sizeof(*collective_types);
       ++i)
    if (collective_types[i].dtype == dtype &&
        collective_types[i].version <= version)
      return collective_types[i].type;
  return -1;
}

// ---- The class
// ---------------------------------------------------------------

static rabbet_status_t cuda_collective_body(rabbet_proposal_t* proposal) {
  rabbet_collective_t layer;
  rabbet_collective_read(proposal->node->attrs, &layer);
  bool in_place =
      layer.ranks == 1 || collective_operations[layer.operation].in_place;
  return rabbet_proposal_offer(
      proposal, "nccl",
      in_place ? rabbet_group_input_of(proposal->propose->group,
                                       proposal->node->inputs[0])
               : -1);
}
RABBET_PROPOSE_FOR(cuda_collective, DIST_COLLECTIVE)
RABBET_TAKES_NODE(cuda_collective, DIST_COLLECTIVE, 0)

static rabbet_status_t cuda_collective_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  collective_kernel_t* kernel = (collective_kernel_t*)node;
  rabbet_collective_read(node->node.node->attrs, &kernel->layer);
  kernel->dtype = spec->group->values[node->node.node->inputs[0]].dtype;
  node->node.base.exchanges = kernel->layer.ranks > 1;
  return rabbet_nccl_direct_add(node, spec, &kernel->layer, kernel->dtype,
                                &kernel->direct);
}

static rabbet_status_t collective_check_ranks(const collective_kernel_t* kernel,
                                              rabbet_communicator_t* c) {
  const rabbet_collective_t* layer = &kernel->layer;
  const char* name = kernel->node.node.node->name;
  int size = rabbet_nccl_size(c);
  int version = rabbet_nccl_library(c)->version;
  if (layer->group_count == 0 && size != layer->ranks)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is made for %lld ranks, and the "
                         "communicator has %d",
                         name, (long long)layer->ranks, size);
  for (size_t i = 0; i < layer->group_count; ++i)
    if (layer->group[i] >= size)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "layer '%s' has rank %lld in its group, and the "
                           "communicator has %d ranks",
                           name, (long long)layer->group[i], size);
  if (!rabbet_collective_reduces(layer->operation) ||
      collective_type(kernel->dtype, version) >= 0)
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "layer '%s' reduces %s, which NCCL %d does not", name,
                       rabbet_dtype_name(kernel->dtype), version);
}

static rabbet_status_t cuda_collective_join(rabbet_kernel_t* base,
                                            rabbet_communicator_t* communicator,
                                            bool check) {
  const collective_kernel_t* kernel = (const collective_kernel_t*)base;
  return check ? collective_check_ranks(kernel, communicator)
               : rabbet_nccl_join(communicator, kernel->layer.group,
                                  kernel->layer.group_count);
}

// Extents that only a run knows are checked here.
static rabbet_status_t cuda_collective_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_collective_state_t** out_state, size_t* out_workspace) {
  const collective_kernel_t* kernel = (const collective_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node.node.node;
  const rabbet_dims_t* x = &shapes->dims[node->inputs[0]];
  int64_t count = 0, made = 0, ranks = kernel->layer.ranks;
  rabbet_collective_op_t op = kernel->layer.operation;
  bool divides = op == RABBET_COLLECTIVE_REDUCE_SCATTER ||
                 op == RABBET_COLLECTIVE_ALL_TO_ALL ||
                 op == RABBET_COLLECTIVE_SCATTER;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(x, &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_dims_count(&shapes->dims[node->outputs[0]], &made));
  if (divides && x->d[0] % ranks != 0)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "dimension 0 is %lld; %s needs one that the number of "
                         "ranks, %lld, divides",
                         (long long)x->d[0], rabbet_collective_name(op),
                         (long long)ranks);
  cuda_collective_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  size_t bits = (size_t)rabbet_dtype_bits(kernel->dtype);
  state->count = (size_t)count;
  state->input_bytes = (size_t)count * bits / 8;
  state->output_bytes = (size_t)made * bits / 8;
  *out_state = state;
  return rabbet_ok();
}

static rabbet_status_t collective_copy(const collective_kernel_t* kernel,
                                       const rabbet_kernel_call_t* call,
                                       size_t bytes) {
  const void* input = rabbet_node_input_at(&kernel->node.node, call, 0);
  if (bytes == 0 || input == call->outputs[0]) return rabbet_ok();
  return RABBET_CUDA(
      kernel->node.device->driver, cuMemcpyDtoDAsync,
      ((CUdeviceptr)(uintptr_t)call->outputs[0], (CUdeviceptr)(uintptr_t)input,
       bytes, (CUstream)call->stream));
}

static rabbet_status_t collective_clear(const collective_kernel_t* kernel,
                                        const cuda_collective_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  if (state->output_bytes == 0) return rabbet_ok();
  return RABBET_CUDA(kernel->node.device->driver, cuMemsetD8Async,
                     ((CUdeviceptr)(uintptr_t)call->outputs[0], 0,
                      state->output_bytes, (CUstream)call->stream));
}

static rabbet_status_t collective_run(const collective_call_t* c,
                                      rabbet_collective_op_t operation) {
  const char* name = collective_operations[operation].call;
  bool grouped = collective_operations[operation].grouped;
  if (grouped)
    RABBET_RETURN_IF_ERROR(
        RABBET_NCCL(c->library, c->comm, ncclGroupStart, ()));
  rabbet_status_t status = rabbet_nccl_check(
      c->library, c->comm, collective_operations[operation].run(c), name);
  if (!grouped) return status;
  // Ends the group in any case.
  rabbet_status_t end = RABBET_NCCL(c->library, c->comm, ncclGroupEnd, ());
  return rabbet_is_ok(status) ? end : rabbet_status_join(status, end);
}

static int collective_root(const rabbet_collective_t* layer) {
  for (size_t i = 0; i < layer->group_count; ++i)
    if (layer->group[i] == layer->root) return (int)i;
  return (int)layer->root;
}

static rabbet_status_t collective_exchange_by_nccl(
    const collective_kernel_t* kernel, const cuda_collective_state_t* state,
    const rabbet_kernel_call_t* call, const rabbet_nccl_group_t* group,
    ncclComm_t comm) {
  const rabbet_collective_t* layer = &kernel->layer;
  const rabbet_nccl_t* library = rabbet_nccl_library(call->communicator);
  const collective_call_t c = {
      .library = library,
      .comm = comm,
      .rank = group->rank,
      .ranks = (int)layer->ranks,
      .root = collective_root(layer),
      .input = rabbet_node_input_at(&kernel->node.node, call, 0),
      .output = call->outputs[0],
      .count = state->count,
      .size = state->input_bytes,
      .type = collective_type(kernel->dtype, library->version),
      .reduce = (ncclRedOp_t)layer->reduce_op,
      .stream = (cudaStream_t)call->stream};
  // NCCL's kernels may begin early, as cuDNN's.
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_launch_close(kernel->node.device, call->stream));
  rabbet_cuda_launch_other(call->stream);
  RABBET_RETURN_IF_ERROR(collective_run(&c, layer->operation));
  rabbet_nccl_note(call->communicator);
  bool idle =
      collective_operations[layer->operation].for_the_root && c.rank != c.root;
  return idle ? collective_clear(kernel, state, call) : rabbet_ok();
}

static rabbet_status_t cuda_collective_enqueue(
    rabbet_kernel_t* base, cuda_collective_state_t* state,
    const rabbet_kernel_call_t* call) {
  const collective_kernel_t* kernel = (const collective_kernel_t*)base;
  const rabbet_collective_t* layer = &kernel->layer;
  if (layer->ranks == 1)
    return collective_copy(kernel, call, state->output_bytes);
  if (!call->communicator)
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "the context has no communicator");
  const rabbet_nccl_group_t* group =
      rabbet_nccl_find(call->communicator, layer->group, layer->group_count);
  ncclComm_t comm = group ? atomic_load(&group->comm) : NULL;
  if (group && group->rank < 0) return collective_clear(kernel, state, call);
  if (!comm)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "the exchanges with other ranks were given up");
  // All ranks have peers or none.
  rabbet_nccl_direct_launch_t direct;
  return group->peers &&
                 rabbet_nccl_direct_find(&kernel->direct, state->input_bytes,
                                         state->output_bytes, &direct)
             ? rabbet_nccl_direct_run(
                   &direct, group->peers,
                   rabbet_node_input_at(&kernel->node.node, call, 0), call)
             : collective_exchange_by_nccl(kernel, state, call, group, comm);
}

static rabbet_status_t cuda_collective_create(const rabbet_kernel_spec_t* spec,
                                              rabbet_kernel_t** out_kernel) {
  return rabbet_cuda_node_create(spec, &rabbet_cuda_collective,
                                 sizeof(collective_kernel_t),
                                 cuda_collective_program, out_kernel);
}

RABBET_NODE_TABLE(cuda_collective, "cuda.collective", 1,
                  .flags = RABBET_KERNEL_DOUBLE,
                  .destroy = rabbet_cuda_node_destroy,
                  .artifacts = rabbet_cuda_node_artifacts,
                  .library_version = rabbet_cuda_node_library,
                  .join = cuda_collective_join);
