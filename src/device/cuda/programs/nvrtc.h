// NVRTC, NVIDIA's compiler for CUDA C++ at run time, opened when first needed.
#ifndef RABBET_SRC_DEVICE_CUDA_PROGRAMS_NVRTC_H_
#define RABBET_SRC_DEVICE_CUDA_PROGRAMS_NVRTC_H_

#include "base/status.h"
#include "rabbet/allocator.h"

// CUDA C++ to compile: `headers` can be included under their names.
typedef struct rabbet_cuda_header_t {
  const char* name;
  const char* text;
} rabbet_cuda_header_t;

typedef struct rabbet_nvrtc_input_t {
  const char* name;  // shown in messages: "reduction/reduce.cu"
  const char* text;
  const rabbet_cuda_header_t* headers;
  size_t header_count;
  const char* const* options;  // "-DT=float", ...
  size_t option_count;
  int major, minor;  // compute capability of the machine code
  bool specific;     // code for this architecture only, such as sm_90a
  bool only_ptx;     // no machine code, which takes half of the time
} rabbet_nvrtc_input_t;

// The language of all programs.
#define RABBET_NVRTC_STANDARD "--std=c++17"

// Machine code for the given architecture, and PTX for newer ones; one
// allocation, freed with rabbet_free(allocator, code->cubin).
typedef struct rabbet_nvrtc_output_t {
  void* cubin;
  size_t cubin_size;
  const char* ptx;  // NUL-terminated
  size_t ptx_size;  // with the NUL
} rabbet_nvrtc_output_t;

// Thread-safe. INVALID_ARGUMENT carries the compiler's own messages;
// UNAVAILABLE where there is no NVRTC.
rabbet_status_t rabbet_nvrtc_compile(const rabbet_nvrtc_input_t* input,
                                     rabbet_allocator_t allocator,
                                     rabbet_nvrtc_output_t* out_code);
// 13000 for 13.0.
rabbet_status_t rabbet_nvrtc_version(int* out_version);
// Whether programs get line numbers for profilers (RABBET_NVRTC_LINE_INFO).
bool rabbet_nvrtc_has_lines(void);

#endif  // RABBET_SRC_DEVICE_CUDA_PROGRAMS_NVRTC_H_
