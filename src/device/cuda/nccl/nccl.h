// NCCL, NVIDIA's collectives between GPUs, opened when first needed.
#ifndef RABBET_SRC_DEVICE_CUDA_NCCL_NCCL_H_
#define RABBET_SRC_DEVICE_CUDA_NCCL_NCCL_H_

#include "device/cuda/cuda.h"
#include "device/cuda/nccl/nccl_api.h"

typedef struct rabbet_nccl_t {
#define RABBET_NCCL_CALL(result, name, parameters) result(*name) parameters;
#include "device/cuda/nccl/nccl.def"
#undef RABBET_NCCL_CALL
  int version;  // 22105
} rabbet_nccl_t;

// Opened with the first call and kept by the device. Thread-safe. UNAVAILABLE
// if it is not found or older than 2.19.
rabbet_status_t rabbet_nccl_get(rabbet_cuda_device_t* device,
                                const rabbet_nccl_t** out_library);
void rabbet_nccl_destroy(rabbet_cuda_device_t* device);

// A status for a function's result, with NCCL's texts; ncclInProgress is an
// error here.
rabbet_status_t rabbet_nccl_status(const rabbet_nccl_t* library,
                                   ncclComm_t comm, ncclResult_t result,
                                   const char* call);
// Calls a function: RABBET_NCCL(library, comm, ncclCommAbort, (comm)).
#define RABBET_NCCL(library, comm, name, arguments) \
  rabbet_nccl_check((library), (comm), (library)->name arguments, #name)
static inline rabbet_status_t rabbet_nccl_check(const rabbet_nccl_t* library,
                                                ncclComm_t comm,
                                                ncclResult_t result,
                                                const char* call) {
  return result == ncclSuccess
             ? rabbet_ok()
             : rabbet_nccl_status(library, comm, result, call);
}

#endif  // RABBET_SRC_DEVICE_CUDA_NCCL_NCCL_H_
