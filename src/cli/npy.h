// NumPy's .npy arrays and .npz archives (format 1.0 to 3.0), row-major.
#ifndef RABBET_SRC_CLI_NPY_H_
#define RABBET_SRC_CLI_NPY_H_

#include "base/arena.h"
#include "base/strbuf.h"
#include "rabbet/types.h"

typedef struct rabbet_array_t {
  const char* name;  // "" for a lone .npy
  rabbet_dtype_t dtype;
  rabbet_dims_t dims;
  const void* data;
  size_t bytes;
} rabbet_array_t;

// Reads arrays into the arena: all of an .npz (stored or deflated), or the one
// of an .npy. DATA_LOSS describes the damage of the file, UNSUPPORTED names a
// type or order that tensors do not have.
rabbet_status_t rabbet_npy_read(const char* path, rabbet_arena_t* arena,
                                rabbet_array_t** out_arrays, size_t* out_count);
// Writes an .npz, uncompressed; BF16 and smaller types go as raw integers.
rabbet_status_t rabbet_npz_write(const char* path, const rabbet_array_t* arrays,
                                 size_t count, rabbet_allocator_t allocator);

#endif  // RABBET_SRC_CLI_NPY_H_
