#include "device/cuda/nccl/direct.h"

#include <assert.h>

#include "base/math.h"

// ---- Which collectives ------------------------------------------------------

// In direct exchanges each rank waits for all others. Those with a root are
// NCCL's, as a sender need not wait for its receivers there: stages of a
// pipeline would stop each other.
static const struct {
  bool direct;
  bool blocks;
} direct_operations[RABBET_COLLECTIVE_COUNT] = {
    [RABBET_COLLECTIVE_ALL_REDUCE] = {.direct = true},
    [RABBET_COLLECTIVE_ALL_GATHER] = {.direct = true},
    [RABBET_COLLECTIVE_REDUCE_SCATTER] = {.direct = true, .blocks = true},
    [RABBET_COLLECTIVE_ALL_TO_ALL] = {.direct = true, .blocks = true},
};

static bool direct_reduces(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}

static bool direct_is_possible(const rabbet_collective_t* layer,
                               rabbet_dtype_t dtype) {
  return layer->ranks > 1 && layer->ranks <= DIRECT_RANKS &&
         direct_operations[layer->operation].direct &&
         (!rabbet_collective_reduces(layer->operation) ||
          direct_reduces(dtype));
}

rabbet_status_t rabbet_nccl_direct_add(rabbet_cuda_node_t* node,
                                       const rabbet_kernel_spec_t* spec,
                                       const rabbet_collective_t* layer,
                                       rabbet_dtype_t dtype,
                                       rabbet_nccl_direct_t* out_direct) {
  rabbet_cuda_options_t options = {.count = 0};
  bool reduces = rabbet_collective_reduces(layer->operation);
  *out_direct = (rabbet_nccl_direct_t){
      .blocks = direct_operations[layer->operation].blocks,
      .ranks = layer->ranks};
  if (!direct_is_possible(layer, dtype)) return rabbet_ok();
  rabbet_cuda_option(&options, "-DRANKS=%d", (int)layer->ranks);
  rabbet_cuda_option(&options, "-DBLOCKS=%d", out_direct->blocks);
  rabbet_cuda_option(&options, "-DGATHER=%d", !reduces);
  if (reduces) {
    rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(dtype));
    rabbet_cuda_option(&options, "-DREDUCE=%d", (int)layer->reduce_op);
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "nccl/direct.cu", NULL, &options));
  node->node.base.alignment = DIRECT_DATA;
  if (reduces && !out_direct->blocks && DIRECT_STEPS(layer->ranks) > 1)
    RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(
        node, 0, "direct_two_steps", &out_direct->two_steps));
  return rabbet_cuda_node_function(node, 0, "direct", &out_direct->one_step);
}

// ---- Which sizes ------------------------------------------------------------

// Up to how many bytes an all-reduce of so many ranks takes one step, in which
// each sends all to all. Two steps send less and wait twice.
static const int64_t direct_one_step[DIRECT_RANKS + 1] = {
    0,        0,        DIRECT_BYTES, 256 << 10, 128 << 10,
    64 << 10, 64 << 10, 32 << 10,     32 << 10};

// All ranks decide alike, as they have the same sizes.
bool rabbet_nccl_direct_find(const rabbet_nccl_direct_t* direct, size_t input,
                             size_t output,
                             rabbet_nccl_direct_launch_t* out_launch) {
  int64_t given = (int64_t)input;
  *out_launch = (rabbet_nccl_direct_launch_t){.function = NULL};
  if (!direct->one_step || input == 0 || input > DIRECT_BYTES ||
      output > DIRECT_BYTES)
    return false;
  if (direct->blocks) given /= direct->ranks;
  bool two = direct->two_steps && given > direct_one_step[direct->ranks];
  int64_t lines = rabbet_ceildiv(given, (int64_t)DIRECT_DATA);
  if (two) lines = rabbet_ceildiv(lines, direct->ranks);
  assert(lines <= DIRECT_CAPACITY(direct->ranks));
  *out_launch = (rabbet_nccl_direct_launch_t){
      two ? direct->two_steps : direct->one_step, given, lines};
  return true;
}

// ---- Launches ---------------------------------------------------------------

// As many threads as lines, up to DIRECT_CHANNELS.
static void direct_set_grid(int64_t lines, rabbet_cuda_launch_t* launch) {
  int64_t few = DIRECT_FEW_THREADS, most = DIRECT_THREADS / few;
  int64_t groups = rabbet_ceildiv(lines, few);
  int64_t of_block = rabbet_ceildiv(groups, (int64_t)DIRECT_BLOCKS);
  if (of_block > most) of_block = most;
  int64_t blocks = rabbet_ceildiv(groups, of_block);
  if (blocks > DIRECT_BLOCKS) blocks = DIRECT_BLOCKS;
  launch->grid[0] = (unsigned)blocks;
  launch->block[0] = (unsigned)(of_block * few);
}

rabbet_status_t rabbet_nccl_direct_run(const rabbet_nccl_direct_launch_t* with,
                                       const rabbet_nccl_peers_t* peers,
                                       const void* x,
                                       const rabbet_kernel_call_t* call) {
  direct_t d = {.given_up = rabbet_nccl_given_up(call->communicator),
                .bytes = (int32_t)with->bytes,
                .rank = peers->rank};
  for (int step = 0; step < peers->ranks; ++step)
    d.areas[step] = peers->areas[(peers->rank + step) % peers->ranks];
  void* y = call->outputs[0];
  void* parameters[] = {&x, &y, &d};
  rabbet_cuda_launch_t launch = {
      .function = with->function, .grid = {1, 1, 1}, .block = {1, 1, 1}};
  direct_set_grid(with->lines, &launch);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_launch(peers->device, &launch, parameters, call->stream));
  rabbet_nccl_note(call->communicator);
  return rabbet_ok();
}
