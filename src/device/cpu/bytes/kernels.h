// Inner loops of products of 8-bit integers, for each instruction set: tiles of
// 32-bit sums, and what becomes of them.
#ifndef RABBET_SRC_DEVICE_CPU_BYTES_KERNELS_H_
#define RABBET_SRC_DEVICE_CPU_BYTES_KERNELS_H_

#include "core/view.h"

enum {
  RABBET_BYTES_ROWS = 32,     // of a tile of sums, at most
  RABBET_BYTES_COLUMNS = 32,  // always
  RABBET_BYTES_POSTS = 12,
  // Weights are stored in panels [depth / 4][RABBET_BYTES_COLUMNS][4].
  RABBET_BYTES_QUAD = 4,
};

// A step of the epilogue, on floats.
typedef struct rabbet_bytes_post_t {
  enum {
    RABBET_BYTES_ROUND,  // min(max(round(x), low), high) * factor
    RABBET_BYTES_CLAMP,  // min(max(x, low), high)
    RABBET_BYTES_LEAKY,  // x < 0 ? factor x : x
    RABBET_BYTES_ADD,    // x + operand * factor + offset
  } kind;
  float low, high, factor, offset;
  int32_t operand;       // ADD: value number of the group's boundary input
  rabbet_dtype_t dtype;  // of that: INT8, UINT8, FLOAT
} rabbet_bytes_post_t;

// Rows of the first factor. They are read up to the depth.
typedef struct rabbet_bytes_rows_t {
  const void* data;
  int64_t stride;  // bytes
  int rows;        // 1 to RABBET_BYTES_ROWS
  bool is_signed;
  int* tile_rows;  // the rows that the thread's last call had; 0 before it
} rabbet_bytes_rows_t;

// Sums become results: y = posts((sum - offset) scale + bias), one offset,
// scale and bias for each column.
typedef struct rabbet_bytes_finish_t {
  const int32_t* offsets;
  const float *scales, *biases;
  const rabbet_bytes_post_t* posts;
  int post_count;
  // Of each post, at the tile's first element; rows are `stride` elements
  // apart, as in y.
  const char* operands[RABBET_BYTES_POSTS];
  char* y;
  // INT8, UINT8: y is rounded, and `zero` added, which fits; or FLOAT.
  rabbet_dtype_t dtype;
  int32_t zero;
  int64_t stride;
  int rows, columns;
} rabbet_bytes_finish_t;

typedef struct rabbet_bytes_lines_t {
  const char* from;
  int64_t lines, step;  // from one line to the next, in bytes
  int64_t count;        // bytes of a line
  uint8_t shift;        // 0, or 0x80 where the bytes are INT8 and is_shifted
  bool is_signed;
} rabbet_bytes_lines_t;

typedef struct rabbet_bytes_kernels_t {
  const char* name;
  int64_t step;     // the depth is a multiple of it
  int element;      // bytes of an element of the first factor: 1, or 2 (INT16)
  bool is_shifted;  // INT8 is read as UINT8, with 128 added
  void (*end)(void);  // after the calls of a thread, or NULL
  // sums[rows][RABBET_BYTES_COLUMNS]; `columns` of them are needed. The depth
  // is in elements.
  void (*multiply)(const rabbet_bytes_rows_t* a, const int8_t* panel,
                   int64_t depth, int columns, int32_t* sums);
  void (*finish)(const rabbet_bytes_finish_t* finish, const int32_t* sums);
  // Copies lines of bytes to elements of the first factor, where one lies
  // behind the other.
  void (*copy)(const rabbet_bytes_lines_t* lines, char* to);
  // y[i] = max(y[i], x[i]), of INT8 or UINT8.
  void (*maxima)(const char* x, int64_t count, bool is_signed, char* y);
} rabbet_bytes_kernels_t;

// The fastest ones of this processor; NULL: it has none.
const rabbet_bytes_kernels_t* rabbet_bytes_kernels(void);

#if defined(__x86_64__)
extern const rabbet_bytes_kernels_t rabbet_bytes_avx2, rabbet_bytes_vnni,
    rabbet_bytes_amx;
// Whether the processor has it, and the system lets this process use it.
bool rabbet_bytes_has_amx(void);
#endif

#endif  // RABBET_SRC_DEVICE_CPU_BYTES_KERNELS_H_
