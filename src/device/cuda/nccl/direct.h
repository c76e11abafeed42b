// Exchanges by direct.cu: which collectives of which sizes, and their launches.
#ifndef RABBET_SRC_DEVICE_CUDA_NCCL_DIRECT_H_
#define RABBET_SRC_DEVICE_CUDA_NCCL_DIRECT_H_

#include "device/cuda/nccl/communicator.h"
#include "device/cuda/programs/node.h"
#include "ops/collective/dist_collective.h"

typedef struct rabbet_nccl_direct_t {
  CUfunction one_step;   // NULL: NCCL exchanges
  CUfunction two_steps;  // NULL: there is one step alone
  bool blocks;           // each rank is given another part of the input
  int64_t ranks;
} rabbet_nccl_direct_t;

// How bytes are exchanged directly.
typedef struct rabbet_nccl_direct_launch_t {
  CUfunction function;
  int64_t bytes;  // that a rank gives to another
  int64_t lines;  // of them in a step
} rabbet_nccl_direct_launch_t;

// Adds the programs to the node, its first ones; none for collectives that NCCL
// alone exchanges.
rabbet_status_t rabbet_nccl_direct_add(rabbet_cuda_node_t* node,
                                       const rabbet_kernel_spec_t* spec,
                                       const rabbet_collective_t* layer,
                                       rabbet_dtype_t dtype,
                                       rabbet_nccl_direct_t* out_direct);
// False: so many bytes, of a rank's input and output, are NCCL's.
bool rabbet_nccl_direct_find(const rabbet_nccl_direct_t* direct, size_t input,
                             size_t output,
                             rabbet_nccl_direct_launch_t* out_launch);
// Enqueues the exchange among `peers`.
rabbet_status_t rabbet_nccl_direct_run(const rabbet_nccl_direct_launch_t* with,
                                       const rabbet_nccl_peers_t* peers,
                                       const void* x,
                                       const rabbet_kernel_call_t* call);

#endif  // RABBET_SRC_DEVICE_CUDA_NCCL_DIRECT_H_
