// Moving elements: strided windows, padding, transposes. One program for each
// element size (movement/move.cu).
#ifndef RABBET_SRC_DEVICE_CUDA_MOVEMENT_MOVE_H_
#define RABBET_SRC_DEVICE_CUDA_MOVEMENT_MOVE_H_

#include "device/common/box.h"
#include "device/common/slice.h"
#include "device/cuda/programs/node.h"

#include "device/cuda/movement/move_params.h"

enum { RABBET_CUDA_THREADS = 256, RABBET_CUDA_TILE_SIZES = 5 };

// The program's functions.
typedef struct rabbet_cuda_mover_t {
  const rabbet_cuda_device_t* device;
  int64_t size;  // bytes of an element
  // [0]: for small tensors, with 32-bit indices; [1]: for all.
  CUfunction narrow[2], wide[2];
  // [i]: transposes of elements of 1 << i bytes, or NULL.
  CUfunction tiles[RABBET_CUDA_TILE_SIZES], squares[RABBET_CUDA_TILE_SIZES];
  CUfunction elements;  // for elements that are not neighbours in the source
  // [i]: for i elements side by side.
  CUfunction split[MOVE_FEW_MOST + 1], join[MOVE_FEW_MOST + 1], second;
} rabbet_cuda_mover_t;

// Adds the program to the kernel: for windows, or also for transposes.
// UNSUPPORTED for types that are not whole bytes.
rabbet_status_t rabbet_cuda_mover_create(rabbet_cuda_node_t* kernel,
                                         const rabbet_kernel_spec_t* spec,
                                         rabbet_dtype_t dtype, bool transposes,
                                         rabbet_cuda_mover_t* out_mover);

// A launch of kernels that write a dense output by pieces of 16 bytes.
typedef struct rabbet_cuda_pieces_t {
  bool is_large;
  unsigned blocks, threads;
} rabbet_cuda_pieces_t;

// The geometry for `count` elements of `bytes` bytes; a thread writes `pieces`
// pieces, or one if the tensor is small.
rabbet_cuda_pieces_t rabbet_cuda_pieces(const rabbet_cuda_device_t* device,
                                        int64_t count, int64_t bytes,
                                        int pieces, bool is_large);
// Whether 32-bit arithmetic can count a tensor's elements, those beyond the end
// in the last block included.
static inline bool rabbet_cuda_is_small(int64_t count) {
  return count < INT32_MAX - 65536;
}

typedef struct rabbet_cuda_move_t {
  enum {
    RABBET_CUDA_MOVE_NOTHING,
    RABBET_CUDA_MOVE_FLAT,
    RABBET_CUDA_MOVE_PIECES,
    RABBET_CUDA_MOVE_TILES,
  } kind;
  int64_t bytes;  // FLAT
  // narrow: always possible; wide: by units of 16 bytes, for aligned addresses.
  rabbet_cuda_pieces_t narrow, wide;
  move_t narrow_parameters, wide_parameters;
  bool has_wide;
  bool is_single;  // narrow: element by element
  // TILES: log2 of an element's bytes; the sides that may be accessed by words.
  int tile_log;
  int32_t tile_wide;
  unsigned tile_blocks;
  tiles_t tiles;
  // The same by squares, for aligned addresses; 0 blocks: extents do not fit.
  unsigned square_blocks;
  tiles_t squares;
  // The same for a short axis, for aligned addresses; NULL: extents do not fit.
  CUfunction few_function;
  few_t few;
} rabbet_cuda_move_t;

// `source_count`: elements of the source, which is dense.
void rabbet_cuda_move_window(const rabbet_cuda_mover_t* mover,
                             const rabbet_slice_window_t* window,
                             int64_t source_count,
                             rabbet_cuda_move_t* out_move);
// The target is dense.
void rabbet_cuda_move_strided(const rabbet_cuda_mover_t* mover,
                              const rabbet_strided_t* strided,
                              int64_t source_count,
                              rabbet_cuda_move_t* out_move);
// `fill`: one element on the device; NULL: zero.
rabbet_status_t rabbet_cuda_move_enqueue(const rabbet_cuda_mover_t* mover,
                                         const rabbet_cuda_move_t* move,
                                         const void* source, void* target,
                                         const void* fill, void* stream);

// ---- Within move*.c

// Turns a move by pieces into one by tiles if it is a transpose.
void rabbet_cuda_move_find_tiles(const rabbet_cuda_mover_t* mover,
                                 const rabbet_strided_t* strided,
                                 rabbet_cuda_move_t* move);
// Whether move->tiles can be used; `both`: bitwise or of the two addresses.
bool rabbet_cuda_move_has_tiles(const rabbet_cuda_move_t* move, uintptr_t both);
rabbet_status_t rabbet_cuda_move_tiles(const rabbet_cuda_mover_t* mover,
                                       const rabbet_cuda_move_t* move,
                                       const void* source, void* target,
                                       void* stream);

// ----

#endif  // RABBET_SRC_DEVICE_CUDA_MOVEMENT_MOVE_H_
