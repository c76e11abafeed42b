// Memory of calls: allocated and freed in stream order, from one pool of the
// driver for each GPU, which all engines of the process share. The pool keeps
// freed memory until the device runs out of memory or the last engine is
// destroyed.
//
// Without a pool (the GPU does not support it, or the device uses a context of
// the program) cuMemAlloc and cuMemFree take its place.
#ifndef RABBET_SRC_DEVICE_CUDA_DRIVER_MEMORY_POOL_H_
#define RABBET_SRC_DEVICE_CUDA_DRIVER_MEMORY_POOL_H_

#include "device/cuda/cuda.h"

// Finds or creates the pool of the device's GPU. The driver's pool is created
// with the first allocation.
rabbet_status_t rabbet_cuda_pool_open(rabbet_cuda_device_t* device);
// Gives up the device's reference; the last one destroys the pool. `inside`:
// the device's context is current.
void rabbet_cuda_pool_close(rabbet_cuda_device_t* device, bool inside);
// Returns unused memory to the driver. False: there is no pool. The device's
// context must be current.
bool rabbet_cuda_pool_trim(rabbet_cuda_device_t* device);
// Counts a recording on one of the GPU's streams that begins (1) or ends (-1).
// Meanwhile no function here waits for the GPU.
void rabbet_cuda_pool_recording(rabbet_cuda_device_t* device, int change);

// Functions of the device's table (device.h).
rabbet_status_t rabbet_cuda_allocate_async(rabbet_device_t* device, size_t size,
                                           void* stream, void** out_memory);
void rabbet_cuda_free_async(rabbet_device_t* device, void* memory,
                            void* stream);
void rabbet_cuda_retire(rabbet_device_t* device, void* memory);

#endif  // RABBET_SRC_DEVICE_CUDA_DRIVER_MEMORY_POOL_H_
