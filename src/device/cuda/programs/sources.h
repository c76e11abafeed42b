// The device's CUDA C++ files as text, made by the build (cmake/embed.cmake):
// programs ("reduction/reduce.cu") and the headers that they include
// ("device/cuda/programs/number.cuh").
#ifndef RABBET_SRC_DEVICE_CUDA_PROGRAMS_SOURCES_H_
#define RABBET_SRC_DEVICE_CUDA_PROGRAMS_SOURCES_H_

#include "device/cuda/programs/nvrtc.h"

extern const rabbet_cuda_header_t rabbet_cuda_sources[];
extern const size_t rabbet_cuda_source_count;
extern const rabbet_cuda_header_t rabbet_cuda_headers[];
extern const size_t rabbet_cuda_header_count;

#endif  // RABBET_SRC_DEVICE_CUDA_PROGRAMS_SOURCES_H_
