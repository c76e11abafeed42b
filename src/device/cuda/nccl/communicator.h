// Communicators of contexts.
//
// A context is given a communicator by its user. Runs use communicators of
// their own that are split from it, one for each group of ranks: these may be
// aborted when a rank fails, while the user's stays what it was.
//
// States: OPEN -> BROKEN, once. A broken one refuses runs. A thread of its own
// watches: what has begun and does not end within the time limit, an error that
// NCCL reports, and a wish to cancel break it, and its communicators are
// aborted, which ends their kernels.
#ifndef RABBET_SRC_DEVICE_CUDA_NCCL_COMMUNICATOR_H_
#define RABBET_SRC_DEVICE_CUDA_NCCL_COMMUNICATOR_H_

#include "device/cuda/nccl/nccl.h"
#include "device/cuda/nccl/peers.h"

// A communicator of the ranks of a group.
typedef struct rabbet_nccl_group_t {
  // NULL: this rank is not in the group, or the exchanges were given up.
  _Atomic(ncclComm_t) comm;
  rabbet_nccl_peers_t* peers;  // NULL: all exchanges are NCCL's
  int rank;                    // in the group; -1: not in it
  size_t count;  // of `ranks`; 0: all of the user's, in their order
  int64_t* ranks;
} rabbet_nccl_group_t;

// The device's table.
rabbet_status_t rabbet_nccl_communicator_open(
    rabbet_device_t* device, void* handle, rabbet_logger_t logger,
    rabbet_communicator_t** out_opened);
void rabbet_nccl_communicator_close(rabbet_device_t* device,
                                    rabbet_communicator_t* communicator);
rabbet_status_t rabbet_nccl_begin(rabbet_device_t* device,
                                  rabbet_communicator_t* communicator);
rabbet_status_t rabbet_nccl_end(rabbet_device_t* device,
                                rabbet_communicator_t* communicator,
                                void* stream, bool replayed,
                                rabbet_status_t status);
rabbet_status_t rabbet_nccl_check_exchanges(
    rabbet_device_t* device, rabbet_communicator_t* communicator);
void rabbet_nccl_cancel(rabbet_device_t* device,
                        rabbet_communicator_t* communicator);

// ---- For kernels
// -------------------------------------------------------------

const rabbet_nccl_t* rabbet_nccl_library(
    const rabbet_communicator_t* communicator);
// Of the user's communicator.
int rabbet_nccl_size(const rabbet_communicator_t* communicator);
// Makes the group's communicator, unless it is there: all ranks of the user's
// communicator do so, in one order. Waits for them, up to the time limit.
rabbet_status_t rabbet_nccl_join(rabbet_communicator_t* communicator,
                                 const int64_t* ranks, size_t count);
// The group of a join; NULL: there was none.
const rabbet_nccl_group_t* rabbet_nccl_find(
    const rabbet_communicator_t* communicator, const int64_t* ranks,
    size_t count);
// Pinned: not 0 once kernels that wait for other ranks are to end.
const int32_t* rabbet_nccl_given_up(const rabbet_communicator_t* communicator);
// An exchange is enqueued.
void rabbet_nccl_note(rabbet_communicator_t* communicator);

#endif  // RABBET_SRC_DEVICE_CUDA_NCCL_COMMUNICATOR_H_
