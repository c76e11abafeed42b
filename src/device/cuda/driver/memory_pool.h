// Memory of calls: taken and given back in stream order, from one pool of the
// driver's for each GPU, which all engines of the process share. The pool keeps
// freed memory until the device runs out of memory or the last engine goes.
//
// Without a pool (the GPU has none, or the device works in a context of the
// program's) it is memory of cuMemAlloc and cuMemFree.
#ifndef RABBET_SRC_DEVICE_CUDA_DRIVER_MEMORY_POOL_H_
#define RABBET_SRC_DEVICE_CUDA_DRIVER_MEMORY_POOL_H_

#include "device/cuda/cuda.h"

// Finds the pool of the device's GPU, or makes it; the driver is asked for one
// when memory is.
rabbet_status_t rabbet_cuda_pool_open(rabbet_cuda_device_t* device);
// The last one destroys it. `inside`: the device's context is current.
void rabbet_cuda_pool_close(rabbet_cuda_device_t* device, bool inside);
// Returns all unused memory to the driver. False: there is none. The device's
// context must be current.
bool rabbet_cuda_pool_trim(rabbet_cuda_device_t* device);
// A recording on one of the GPU's streams begins (1) or ends (-1); the GPU is
// not waited for meanwhile.
void rabbet_cuda_pool_recording(rabbet_cuda_device_t* device, int change);

// Of the device's table (device.h).
rabbet_status_t rabbet_cuda_allocate_async(rabbet_device_t* device, size_t size,
                                           void* stream, void** out_memory);
void rabbet_cuda_free_async(rabbet_device_t* device, void* memory,
                            void* stream);
void rabbet_cuda_retire(rabbet_device_t* device, void* memory);

#endif  // RABBET_SRC_DEVICE_CUDA_DRIVER_MEMORY_POOL_H_
