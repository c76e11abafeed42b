// GPUs that sessions may choose: their memory as ONNX Runtime's allocators,
// copies, and streams.
//
// Written for CUDA, tried with the stand-in of tests/cuda_stand_in.
#ifndef RABBET_SRC_ORTEP_GPU_H_
#define RABBET_SRC_ORTEP_GPU_H_

#include "ortep/ort.h"

#define RABBET_ORT_GPU_VENDOR 0x10de
// At most so many are listed.
#define RABBET_ORT_MOST_GPUS 16
// The key of an OrtEpDevice's metadata that has the name of Rabbet's device.
#define RABBET_ORT_DEVICE_KEY "rabbet_device"

typedef struct rabbet_ort_gpu_t {
  char name[16];  // "cuda:1"
  struct rabbet_device_t* device;
  OrtMemoryInfo* memory;
  OrtHardwareDevice* virtual_device;  // of ours; NULL: ONNX Runtime found it
} rabbet_ort_gpu_t;

// UNAVAILABLE if there is no such GPU, or no driver.
rabbet_status_t rabbet_ort_gpu_open(int ordinal, rabbet_ort_gpu_t* out_gpu);
// The number in the name of a GPU that was opened.
int rabbet_ort_gpu_ordinal(const char* name);
void rabbet_ort_gpu_close(rabbet_ort_gpu_t* gpu);

// The GPUs outlive all that is made of them.
rabbet_status_t rabbet_ort_gpu_allocator(const rabbet_ort_gpu_t* gpu,
                                         OrtAllocator** out_allocator);
void rabbet_ort_gpu_release_allocator(OrtAllocator* allocator);
rabbet_status_t rabbet_ort_gpu_stream(const rabbet_ort_gpu_t* gpu,
                                      OrtSyncStreamImpl** out_stream);
// Whether a tensor is in the host's memory, or else in that of GPU `ordinal`.
// INVALID_ARGUMENT, which names the tensor: it is in memory of another device.
rabbet_status_t rabbet_ort_gpu_find_place(int ordinal, const OrtValue* tensor,
                                          const char* kind, const char* name,
                                          bool* out_is_on_host);
// Copies between the host's memory and that of `gpus`, and within it.
rabbet_status_t rabbet_ort_gpu_transfer(const rabbet_ort_gpu_t* gpus,
                                        size_t count,
                                        OrtDataTransferImpl** out_transfer);

#endif  // RABBET_SRC_ORTEP_GPU_H_
