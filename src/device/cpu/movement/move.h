// Moves between two strided layouts: planned once for given strides, run in
// parallel.
#ifndef RABBET_SRC_DEVICE_CPU_MOVEMENT_MOVE_H_
#define RABBET_SRC_DEVICE_CPU_MOVEMENT_MOVE_H_

#include "device/common/box.h"
#include "device/cpu/vectors/vectors.h"

typedef struct rabbet_move_t {
  enum {
    RABBET_MOVE_NOTHING,
    RABBET_MOVE_FLAT,   // one piece of `unit` bytes
    RABBET_MOVE_ROWS,   // units, one after the other
    RABBET_MOVE_TILES,  // the last two axes are transposed
  } kind;
  int64_t unit;  // bytes that are contiguous in both
  int32_t rank;
  // Strides in bytes; axes from the outermost in the target to the innermost.
  int64_t extent[RABBET_BOX_AXES];
  int64_t source[RABBET_BOX_AXES];
  int64_t target[RABBET_BOX_AXES];
  // The number of pieces of work is the product of the outer axes, `pieces` of
  // the last axis (`piece` elements each), and for tiles `sides` of the axis
  // before (`side` elements each).
  int64_t piece, pieces, side, sides, items, item_bytes;
  rabbet_transpose_fn_t transpose;
} rabbet_move_t;

// Strides in elements of `size` bytes; those of the source may be 0 or
// negative, the elements of the target are distinct.
void rabbet_move_plan(int32_t rank, const int64_t* extents,
                      const int64_t* sources, const int64_t* targets,
                      int64_t size, rabbet_move_t* out_move);
// Source and target must not overlap, unless they are equal and the move
// changes nothing.
void rabbet_move_run(const rabbet_move_t* move, const void* source,
                     void* target);

// memcpy for pieces that are often small. A plan that is wrong may have a step
// write into what it reads: memmove's results are then some bytes of the two.
static inline void rabbet_copy_bytes(char* target, const char* source,
                                     int64_t size) {
  if (size >= 16 && size <= 64) {
    // Two pieces at the front and two at the back, which may overlap.
    typedef struct {
      char bytes[16];
    } piece_t;
    int64_t middle = size > 32 ? 16 : 0;
    piece_t a, b, c, d;
    __builtin_memcpy(&a, source, 16);
    __builtin_memcpy(&b, source + middle, 16);
    __builtin_memcpy(&c, source + size - 16 - middle, 16);
    __builtin_memcpy(&d, source + size - 16, 16);
    __builtin_memcpy(target, &a, 16);
    __builtin_memcpy(target + middle, &b, 16);
    __builtin_memcpy(target + size - 16 - middle, &c, 16);
    __builtin_memcpy(target + size - 16, &d, 16);
  } else if (size == 4) {
    __builtin_memcpy(target, source, 4);
  } else if (size == 8) {
    __builtin_memcpy(target, source, 8);
  } else if (size == 12) {
    __builtin_memcpy(target, source, 8);
    __builtin_memcpy(target + 8, source + 8, 4);
  } else {
    __builtin_memmove(target, source, (size_t)size);
  }
}

// Copies `count` elements of `size` bytes. The source has a stride of `step`
// bytes (also 0 or negative), the target is contiguous.
void rabbet_copy_strided(char* target, const char* source, int64_t step,
                         int64_t count, int64_t size);
// Writes `count` copies of one element.
void rabbet_fill_elements(char* target, const char* element, int64_t count,
                          int64_t size);
// Copies contiguous bytes in parallel; does nothing if the addresses are equal.
void rabbet_copy_flat(void* target, const void* source, int64_t bytes);

#endif  // RABBET_SRC_DEVICE_CPU_MOVEMENT_MOVE_H_
