// Tiles of products/matmul_tiles.cuh: what the classes that launch it share.
#ifndef RABBET_SRC_DEVICE_CUDA_PRODUCTS_MATMUL_TILES_H_
#define RABBET_SRC_DEVICE_CUDA_PRODUCTS_MATMUL_TILES_H_

#include "base/math.h"
#include "core/view.h"
#include "device/cuda/cuda.h"
#include "device/cuda/products/matmul_tiles_params.h"

enum { TILES_ELEMENT = 2, TILES_CHUNK = 8, TILES_WIDTH = 4 };

// Options of the kernel, and the layouts of b that they are for.
enum { TILES_K = 1, TILES_COLUMNS = 2 };  // b's contiguous axis
typedef struct tiles_tactic_t {
  int rows, columns, stages, parts, along;
} tiles_tactic_t;

static inline bool tiles_computes(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_HALF || dtype == RABBET_DTYPE_BF16;
}

// A warp has 16 rows.
static inline int64_t tiles_threads(const tiles_tactic_t* t) {
  return (int64_t)2 * t->rows;
}

// Shared memory of a block, in bytes: its stages and its partial sums, which
// take the stages' place if the block needs no other's.
static inline int64_t tiles_shared(const tiles_tactic_t* t) {
  int64_t stage = (int64_t)(t->rows + t->columns) * TILES_INNER * TILES_ELEMENT;
  int64_t rows = rabbet_ceildiv((int64_t)t->rows / 8, (int64_t)t->parts) * 8;
  int64_t sums = t->parts * rows * (t->columns + 8) * (int64_t)sizeof(float);
  if (t->parts == 1) return rabbet_max_i64(t->stages * stage, sums);
  return t->stages * stage + sums;
}

// Lets the kernels of a tactic have its shared memory.
rabbet_status_t rabbet_cuda_tiles_permit(const rabbet_cuda_device_t* device,
                                         const tiles_tactic_t* tactic,
                                         CUfunction whole, CUfunction single);

#endif  // RABBET_SRC_DEVICE_CUDA_PRODUCTS_MATMUL_TILES_H_
