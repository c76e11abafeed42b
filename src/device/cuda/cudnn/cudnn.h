// cuDNN, NVIDIA's convolutions and attention, opened when first needed.
#ifndef RABBET_SRC_DEVICE_CUDA_CUDNN_CUDNN_H_
#define RABBET_SRC_DEVICE_CUDA_CUDNN_CUDNN_H_

#include <stdatomic.h>

#include "device/cuda/cuda.h"
#include "device/cuda/cudnn/cudnn_api.h"

enum { RABBET_CUDNN_HANDLES = 64 };

// A handle serves one thread at a time.
typedef struct rabbet_cudnn_slot_t {
  atomic_bool busy;
  cudnnHandle_t handle;  // NULL until used; only the slot's owner accesses it
} rabbet_cudnn_slot_t;

typedef struct rabbet_cudnn_t {
#define RABBET_CUDNN_CALL(result, name, parameters) result(*name) parameters;
#include "device/cuda/cudnn/cudnn.def"
#undef RABBET_CUDNN_CALL
  size_t version;  // 91000 for 9.10
  rabbet_cudnn_slot_t slots[RABBET_CUDNN_HANDLES];
} rabbet_cudnn_t;

// Opened with the first call and kept by the device. Thread-safe. UNAVAILABLE
// names the missing library or function.
rabbet_status_t rabbet_cudnn_get(rabbet_cuda_device_t* device,
                                 rabbet_cudnn_t** out_library);
// The library's version, or 0 without the library: a class's library_version.
uint64_t rabbet_cudnn_version(rabbet_device_t* device);
// Called when the device is destroyed. inside: its context is current;
// otherwise the context is gone, and the library's objects with it.
void rabbet_cudnn_destroy(rabbet_cuda_device_t* device, bool inside);

// Takes a handle for this thread until it is released; the device's context
// must be current. Lock-free. A handle is created only when more threads than
// before use the library at the same time.
rabbet_status_t rabbet_cudnn_acquire(rabbet_cudnn_t* library,
                                     rabbet_cudnn_slot_t** out_slot);
void rabbet_cudnn_release(rabbet_cudnn_slot_t* slot);

// A status for a function's return code, with the library's own message.
rabbet_status_t rabbet_cudnn_status(const rabbet_cudnn_t* library,
                                    cudnnStatus_t result, const char* call);
// RABBET_CUDNN(library, cudnnSetStream, (handle, stream))
#define RABBET_CUDNN(library, name, arguments) \
  rabbet_cudnn_check((library), (library)->name arguments, #name)
static inline rabbet_status_t rabbet_cudnn_check(const rabbet_cudnn_t* library,
                                                 cudnnStatus_t result,
                                                 const char* call) {
  return result == CUDNN_STATUS_SUCCESS
             ? rabbet_ok()
             : rabbet_cudnn_status(library, result, call);
}

// CUDNN_DATA_...; -1 for types that Rabbet does not pass to cuDNN.
int rabbet_cudnn_type(rabbet_dtype_t dtype);

#endif  // RABBET_SRC_DEVICE_CUDA_CUDNN_CUDNN_H_
