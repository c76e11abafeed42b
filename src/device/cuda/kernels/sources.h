// The CUDA C++ files of this folder as text, made by the build
// (cmake/embed.cmake): *.cu are programs, *.cuh headers that they include.
#ifndef RABBET_SRC_DEVICE_CUDA_KERNELS_SOURCES_H_
#define RABBET_SRC_DEVICE_CUDA_KERNELS_SOURCES_H_

#include "device/cuda/nvrtc.h"

extern const rabbet_cuda_header_t rabbet_cuda_sources[];
extern const size_t rabbet_cuda_source_count;
extern const rabbet_cuda_header_t rabbet_cuda_headers[];
extern const size_t rabbet_cuda_header_count;

#endif  // RABBET_SRC_DEVICE_CUDA_KERNELS_SOURCES_H_
