// Splitting a communicator with a way out.
//
// ncclCommSplit waits for all ranks and cannot be ended from outside but by an
// abort of the communicator that is split, which is the user's. So a thread
// calls it. Who no longer waits leaves the thread behind; if the split is ever
// made, the thread aborts what came of it.
#ifndef RABBET_SRC_DEVICE_CUDA_NCCL_SPLIT_H_
#define RABBET_SRC_DEVICE_CUDA_NCCL_SPLIT_H_

#include "device/cuda/nccl/nccl.h"

typedef struct rabbet_nccl_split_t {
  const rabbet_nccl_t* library;
  const rabbet_cuda_driver_t* driver;
  CUcontext context;
  ncclComm_t given;
  int color, key;
} rabbet_nccl_split_t;

// *out_comm is NULL for NCCL_SPLIT_NOCOLOR. Asks `is_over` from time to time:
// UNAVAILABLE once it holds.
rabbet_status_t rabbet_nccl_split(const rabbet_nccl_split_t* split,
                                  bool (*is_over)(void* context), void* context,
                                  ncclComm_t* out_comm);

#endif  // RABBET_SRC_DEVICE_CUDA_NCCL_SPLIT_H_
