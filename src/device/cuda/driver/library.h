// Finding NVIDIA's libraries.
#ifndef RABBET_SRC_DEVICE_CUDA_DRIVER_LIBRARY_H_
#define RABBET_SRC_DEVICE_CUDA_DRIVER_LIBRARY_H_

#include "base/status.h"
#include "base/strbuf.h"

// Names to look for, and the message if no library is found.
typedef struct rabbet_cuda_library_t {
  const char* title;              // "the CUDA driver"
  const char* variable;           // environment variable that names the file
  const char* const* file_names;  // newest first, NULL at the end
  const char* hint;               // what to install
} rabbet_cuda_library_t;

// Opens the library, looked for in the order of docs/cuda.md ("Libraries"),
// which rabbet.parallel has for NCCL, too (python/rabbet/parallel/_nccl.py). It
// is never closed. UNAVAILABLE names the missing file and how to install it.
rabbet_status_t rabbet_cuda_library_open(const rabbet_cuda_library_t* library,
                                         void** out_handle);
// Fills a table of function pointers by name; the library's handle comes from
// the function above. UNAVAILABLE names a missing function.
typedef struct rabbet_cuda_symbol_t {
  const char* name;
  size_t offset;  // in the table
  bool optional;
} rabbet_cuda_symbol_t;
rabbet_status_t rabbet_cuda_library_bind(const rabbet_cuda_library_t* library,
                                         void* handle,
                                         const rabbet_cuda_symbol_t* symbols,
                                         size_t count, void* table);

// Adds VARIABLE=FILE and a NUL for the file that holds `symbol`.
void rabbet_cuda_library_setting(const char* variable, const void* symbol,
                                 rabbet_strbuf_t* out_settings);

#endif  // RABBET_SRC_DEVICE_CUDA_DRIVER_LIBRARY_H_
