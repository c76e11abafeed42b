// Memory of a group's ranks in which their GPUs write to each other directly.
//
// An exchange of few bytes by NCCL takes its kernel some ten microseconds, and
// no kernel overlaps with it. Where all ranks are processes of one host, whose
// GPUs reach each other, each maps the memory of all (CUDA IPC), and direct.cu
// exchanges.
#ifndef RABBET_SRC_DEVICE_CUDA_NCCL_PEERS_H_
#define RABBET_SRC_DEVICE_CUDA_NCCL_PEERS_H_

#include <stdatomic.h>

#include "device/cuda/nccl/direct_params.h"
#include "device/cuda/nccl/nccl.h"

typedef struct rabbet_nccl_peers_t {
  rabbet_cuda_device_t* device;
  int rank, ranks;
  char* areas[DIRECT_RANKS];  // DIRECT_AREA bytes each; the own among them
} rabbet_nccl_peers_t;

// All ranks of the communicator call it, outside of recordings. *out_peers is
// NULL for all of them if one cannot reach another, or is told not to
// (RABBET_CUDA_DIRECT=0). Fails if NCCL does, or memory. UNAVAILABLE: *comm
// became NULL, as the exchanges were given up.
rabbet_status_t rabbet_nccl_peers_create(rabbet_cuda_device_t* device,
                                         const rabbet_nccl_t* library,
                                         const _Atomic(ncclComm_t)* comm,
                                         int rank, int ranks,
                                         rabbet_nccl_peers_t** out_peers);
// NULL is allowed. No exchange is on its way. Other ranks may still map the own
// area: they do not come to it again, as they have sent what this rank awaited,
// and the driver keeps the pages until they close it, too.
void rabbet_nccl_peers_destroy(rabbet_nccl_peers_t* peers);

#endif  // RABBET_SRC_DEVICE_CUDA_NCCL_PEERS_H_
