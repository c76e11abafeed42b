// Kernels of our own: CUDA C++ sources, which a build compiles for its device;
// a run takes the code from the plan.
#ifndef RABBET_SRC_DEVICE_CUDA_PROGRAMS_PROGRAM_H_
#define RABBET_SRC_DEVICE_CUDA_PROGRAMS_PROGRAM_H_

#include "device/cuda/cuda.h"

// The source and options of a program. Sources lie in src/device/cuda and
// the build embeds them in this library (cmake/embed.cmake), with the headers
// that they include; a generated one has a text of its own.
typedef struct rabbet_cuda_source_t {
  const char* name;            // "reduction/reduce.cu"
  const char* text;            // NULL: the embedded source of that name
  const char* const* options;  // "-DT=float", ...
  size_t option_count;
  // Compiles machine code for exactly this compute capability: it may use
  // instructions of this one only (the compiler then defines
  // __CUDA_ARCH_FEAT_SM90_ALL). PTX does not use them.
  bool specific;
} rabbet_cuda_source_t;

// A program loaded on a device; reference-counted, shared by all its users.
typedef struct rabbet_cuda_program_t rabbet_cuda_program_t;

// Gets a program: a loaded one, else from the plan's artifacts, else compiled.
// Thread-safe.
rabbet_status_t rabbet_cuda_program_get(rabbet_cuda_device_t* device,
                                        const rabbet_cuda_source_t* source,
                                        const rabbet_artifact_t* artifacts,
                                        size_t artifact_count,
                                        rabbet_cuda_program_t** out_program);
// The same, but UNAVAILABLE while another thread makes it.
rabbet_status_t rabbet_cuda_program_get_now(
    rabbet_cuda_device_t* device, const rabbet_cuda_source_t* source,
    const rabbet_artifact_t* artifacts, size_t artifact_count,
    rabbet_cuda_program_t** out_program);
// The same, but NULL if there is none among the artifacts.
rabbet_status_t rabbet_cuda_program_find(rabbet_cuda_device_t* device,
                                         const rabbet_cuda_source_t* source,
                                         const rabbet_artifact_t* artifacts,
                                         size_t artifact_count,
                                         rabbet_cuda_program_t** out_program);
void rabbet_cuda_program_release(rabbet_cuda_program_t* program);
// A kernel by its name (sources declare them extern "C").
rabbet_status_t rabbet_cuda_program_function(rabbet_cuda_program_t* program,
                                             const char* name,
                                             CUfunction* out_function);
// The artifact of the program for a plan. Thread-safe; may compile.
rabbet_status_t rabbet_cuda_program_artifact(rabbet_cuda_program_t* program,
                                             rabbet_artifact_sink_t sink);

// All programs of a device.
rabbet_status_t rabbet_cuda_programs_create(
    rabbet_allocator_t allocator, rabbet_cuda_programs_t** out_programs);
void rabbet_cuda_programs_destroy(rabbet_cuda_programs_t* programs);

#endif  // RABBET_SRC_DEVICE_CUDA_PROGRAMS_PROGRAM_H_
