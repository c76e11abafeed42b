// The common part of classes with kernels of our own: the kernel object with
// its programs, and the compiler options of their sources.
//
// A class writes `propose`, `program` (which sources, with which options),
// `prepare` (geometry for concrete shapes) and `enqueue` (launches).
#ifndef RABBET_SRC_DEVICE_CUDA_PROGRAMS_NODE_H_
#define RABBET_SRC_DEVICE_CUDA_PROGRAMS_NODE_H_

#include "device/cuda/programs/program.h"

enum { RABBET_CUDA_NODE_PROGRAMS = 4, RABBET_CUDA_OPTIONS = 24 };

// A kernel class that keeps more begins its own struct with this one.
typedef struct rabbet_cuda_node_t {
  rabbet_node_kernel_t node;
  rabbet_cuda_device_t* device;
  rabbet_cuda_program_t* programs[RABBET_CUDA_NODE_PROGRAMS];
  size_t program_count;
  bool specific;  // as in rabbet_cuda_source_t, of programs added from now on
  struct rabbet_cuda_functions_t* functions;  // of rabbet_cuda_node_split
  // Of the device, for choosing functions; when a plan's functions are listed,
  // of other devices, too.
  int multiprocessors;
} rabbet_cuda_node_t;

// ---- Programs --------------------------------------------------------------

// Compiler options under construction; one that does not fit makes the
// program's status an error.
typedef struct rabbet_cuda_options_t {
  char text[RABBET_CUDA_OPTIONS][64];
  size_t count;
  bool overflow;
} rabbet_cuda_options_t;

// rabbet_cuda_option(&options, "-DT=%s", rabbet_cuda_type(dtype))
void rabbet_cuda_option(rabbet_cuda_options_t* options, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
// The name of a type in programs/number.cuh: "half_t"; NULL if it has none.
const char* rabbet_cuda_type(rabbet_dtype_t dtype);

// Formats that classes offer: LINEAR first, then those that suit this type, and
// those of the bits `asked` (rabbet_propose_t). Returns their number, at most
// RABBET_CUDA_FORMATS.
enum { RABBET_CUDA_FORMATS = 16 };
int rabbet_cuda_formats(rabbet_dtype_t dtype, uint64_t asked,
                        rabbet_format_t out_formats[]);
// The types to compute in (rabbet_compute_types, for the proposal's first
// input), each with the formats above. Returns their number, at most
// RABBET_CUDA_LAYOUTS.
enum { RABBET_CUDA_LAYOUTS = 4 * RABBET_CUDA_FORMATS };
int rabbet_cuda_layouts(const rabbet_proposal_t* proposal,
                        rabbet_type_format_t out_layouts[]);

// Adds a program, which the kernel then holds: from `spec`'s artifacts, else
// compiled. `text` NULL: the file `name` of kernels/. `options` may be NULL.
rabbet_status_t rabbet_cuda_node_add(rabbet_cuda_node_t* kernel,
                                     const rabbet_kernel_spec_t* spec,
                                     const char* name, const char* text,
                                     const rabbet_cuda_options_t* options);
// A function of the kernel's program number `program`.
rabbet_status_t rabbet_cuda_node_function(const rabbet_cuda_node_t* kernel,
                                          size_t program, const char* name,
                                          CUfunction* out_function);

// Gives the kernel a source of many functions, of which it launches few: each
// is a program of its own, made when `prepare` first asks for it, since a
// compiler takes seconds for all. The source declares each in KERNEL()
// (programs/choice.cuh). names[i] may be NULL: there is no such function.
//
// A plan keeps those that its shapes need on any number of multiprocessors, or
// all if there are several shapes; `prepare` compiles others.
enum { RABBET_CUDA_NODE_FUNCTIONS = 48 };
rabbet_status_t rabbet_cuda_node_split(rabbet_cuda_node_t* kernel,
                                       const rabbet_kernel_spec_t* spec,
                                       const char* source,
                                       const char* const* names, size_t count,
                                       const rabbet_cuda_options_t* options);
// Function names[i]. Thread-safe.
rabbet_status_t rabbet_cuda_node_make(const rabbet_cuda_node_t* kernel,
                                      size_t i, CUfunction* out_function);

// ---- For the class tables --------------------------------------------------

// `size` of the class's own struct, zeroed; `program` adds the programs and may
// look up functions. If it fails, the class's `destroy` is called.
rabbet_status_t rabbet_cuda_node_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    size_t size,
    rabbet_status_t (*program)(rabbet_cuda_node_t* kernel,
                               const rabbet_kernel_spec_t* spec),
    rabbet_kernel_t** out_kernel);
void rabbet_cuda_node_destroy(rabbet_kernel_t* kernel);
rabbet_status_t rabbet_cuda_node_artifacts(rabbet_kernel_t* kernel,
                                           rabbet_artifact_sink_t sink);
// The version of NVRTC, which compiles the programs: a class's library_version.
uint64_t rabbet_cuda_node_library(rabbet_device_t* device);

// Defines the class rabbet_<id>, whose kernels are `type`s, by
// RABBET_NODE_TABLE and from id_program.
#define RABBET_CUDA_NODE_CLASS(id, type, class_name, class_version)    \
  static rabbet_status_t id##_create(const rabbet_kernel_spec_t* spec, \
                                     rabbet_kernel_t** out_kernel) {   \
    return rabbet_cuda_node_create(spec, &rabbet_##id, sizeof(type),   \
                                   id##_program, out_kernel);          \
  }                                                                    \
  RABBET_NODE_TABLE(id, class_name, class_version,                     \
                    .destroy = rabbet_cuda_node_destroy,               \
                    .artifacts = rabbet_cuda_node_artifacts,           \
                    .library_version = rabbet_cuda_node_library)

#endif  // RABBET_SRC_DEVICE_CUDA_PROGRAMS_NODE_H_
