// Programs compiled once for all builds that share a store.
#ifndef RABBET_SRC_DEVICE_CUDA_PROGRAMS_COMPILE_H_
#define RABBET_SRC_DEVICE_CUDA_PROGRAMS_COMPILE_H_

#include "base/hash.h"
#include "device/cuda/cuda.h"
#include "device/cuda/programs/nvrtc.h"

// rabbet_nvrtc_compile, or what it made of this input before, from the device's
// store. `key` is of the input's name, text, headers and options. Thread-safe.
rabbet_status_t rabbet_cuda_compile(const rabbet_cuda_device_t* device,
                                    const rabbet_nvrtc_input_t* input,
                                    rabbet_hash_t key,
                                    rabbet_nvrtc_output_t* out_code);

#endif  // RABBET_SRC_DEVICE_CUDA_PROGRAMS_COMPILE_H_
