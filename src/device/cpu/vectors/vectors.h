// A table of inner loops that are compiled for each instruction set
// (vectors_*.c). They work on rows of memory, not on tensors, and start no
// threads.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_VECTORS_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_VECTORS_H_

#include "core/view.h"
#include "ops/enums.h"
#include "ops/rnn.h"

// Element (i, j), `size` bytes, goes from source + i * source_stride + j * size
// to target + j * target_stride + i * size; strides are in bytes.
typedef void (*rabbet_transpose_fn_t)(const char* source, int64_t source_stride,
                                      char* target, int64_t target_stride,
                                      int64_t rows, int64_t columns);

// How elements are converted: through FLOAT, or through the integers that a
// narrower type keeps the low bits of. Blocks of up to RABBET_LANES elements.
enum { RABBET_LANES = 1024 };
typedef void (*rabbet_convert_fn_t)(const void* source, void* target,
                                    int64_t count);

// Elements while they are reduced: floating types as FLOAT, 8- and 32-bit
// integers as INT32, INT64 (and means of all integers) as INT64.
typedef enum rabbet_lane_t {
  RABBET_LANE_FLOAT = 0,
  RABBET_LANE_INT32 = 1,
  RABBET_LANE_INT64 = 2,
  RABBET_LANE_COUNT = 3,
} rabbet_lane_t;

// The parameters for a row of a normalization.
typedef struct rabbet_normalize_row_t {
  float mean, factor;  // y = (x - mean) * factor * scale + bias
  const float* scale;  // each `count` floats, or NULL
  const float* bias;
  float cell_scale, cell_bias;  // where the pointers are NULL
} rabbet_normalize_row_t;

// The same for a row of columns, each with its own mean.
typedef struct rabbet_normalize_columns_t {
  const float *mean, *factor, *scale, *bias;
} rabbet_normalize_columns_t;

typedef struct rabbet_moments_t {
  double count, mean, squares;  // squares: sum of squared distances
} rabbet_moments_t;

// A piece of a row to copy: offsets in the rows of target and source, in bytes;
// source -1: the pattern is written.
typedef struct rabbet_copy_run_t {
  int64_t target, source, bytes;
} rabbet_copy_run_t;
enum { RABBET_PATTERN_BYTES = 64 };
enum { RABBET_PRODUCT_ROWS = 4 };
// Rows of a tile of DOUBLE, and the most columns.
enum { RABBET_DOUBLE_ROWS = 6, RABBET_DOUBLE_COLUMNS = 16 };

// Weights of 4 or 8 bits that become floats in registers. Types of 4 bits have
// two elements in a byte, the first one in its lower half.
typedef enum rabbet_packed_type_t {
  RABBET_PACKED_INT4 = 0,
  RABBET_PACKED_FP4 = 1,
  RABBET_PACKED_NF4 = 2,  // the last one of 4 bits
  RABBET_PACKED_INT8 = 3,
  RABBET_PACKED_UINT8 = 4,
  RABBET_PACKED_FP8 = 5,
  RABBET_PACKED_COUNT = 6,
} rabbet_packed_type_t;
enum {
  // Elements with one scale: at least this many, and a power of two.
  RABBET_PACKED_BLOCK = 16,
  // The most elements of a chunk (rabbet_vectors_t).
  RABBET_PACKED_MOST = 128,
};
typedef struct rabbet_packed_t {
  const uint8_t* codes;
  int64_t stride;  // bytes of a row of weights
  int64_t depth;   // its elements
  // Scale k / block of a row is for element k; `rows` rows share their scales.
  const float* scales;
  int64_t block, rows, scale_stride;
} rabbet_packed_t;
// Zero points of blocks: of a row of weights and the sums of a row of x in each
// block, sum of scales[i] (codes[i] + offset) sums[i] is what they subtract.
typedef struct rabbet_packed_zeros_t {
  const int8_t* codes;  // [n][blocks]
  int64_t blocks;
  float offset;
  const float* sums;
} rabbet_packed_zeros_t;
// The block of element k of a row is k >> shift: divisions would take as long
// as the products of a chunk.
static inline int rabbet_packed_shift(const rabbet_packed_t* w) {
  return w->block < w->depth ? __builtin_ctzll((uint64_t)w->block) : 63;
}
// Columns of a panel of packed weights, which has them for each k.
enum { RABBET_PANEL = 64 };
// A product with `count` k of a panel, for its first `width` columns; the
// others' sums become anything. Sums begin at `column` of a row.
typedef struct rabbet_panel_t {
  const float* weights;
  int64_t count, column, width;
} rabbet_panel_t;

// Operations on a convolution's sums: x sigmoid(x) if it `gates`, an addition,
// then bounds.
typedef struct rabbet_finish_t {
  bool gates;
  float low, high;  // infinite where there are none
} rabbet_finish_t;

// Convolutions in groups of `size` channels and as many maps each, a power of
// two and at least 4: a block of the maps. `count` maps from `first` on.
enum { RABBET_GROUPED_BLOCK = 16, RABBET_GROUPED_PIXELS = 6 };
typedef struct rabbet_grouped_t {
  const float* weights;  // [taps][size][RABBET_GROUPED_BLOCK]
  const float* bias;     // of the block
  int64_t taps, size, first, count;
  rabbet_finish_t finish;
} rabbet_grouped_t;

// Elements of a tile's side in Winograd's F(4x4, 3x3), before and after.
enum { RABBET_WINOGRAD_IN = 6, RABBET_WINOGRAD_OUT = 4 };
// A tile's pixels in the result; NULL where it has none.
typedef struct rabbet_winograd_tile_t {
  const float* bias;  // of a whole panel
  float* y[RABBET_WINOGRAD_OUT * RABBET_WINOGRAD_OUT];
  const float* added[RABBET_WINOGRAD_OUT * RABBET_WINOGRAD_OUT];  // or NULL
  rabbet_finish_t finish;
} rabbet_winograd_tile_t;

typedef struct rabbet_vectors_t {
  rabbet_transpose_fn_t transpose[4];  // elements of 1, 2, 4, 8 bytes
  // Copies `rows` rows; the steps are bytes between rows of target and source.
  // `pattern` is RABBET_PATTERN_BYTES of an element repeated.
  void (*copy_runs)(char* target, int64_t target_step, const char* source,
                    int64_t source_step, int64_t rows, const char* pattern,
                    const rabbet_copy_run_t* runs, int64_t count);

  // To FLOAT from each type, and back (rounding, saturating); NULL for FLOAT
  // and for types that are converted one by one.
  rabbet_convert_fn_t to_float[RABBET_DTYPE_COUNT];
  rabbet_convert_fn_t from_float[RABBET_DTYPE_COUNT];
  // The same rounded to odd, for a further rounding to a narrower type.
  rabbet_convert_fn_t to_odd_float[RABBET_DTYPE_COUNT];
  // To INT32 (low bits) from integers and BOOL, and from INT32.
  rabbet_convert_fn_t to_int32[RABBET_DTYPE_COUNT];
  rabbet_convert_fn_t from_int32[RABBET_DTYPE_COUNT];
  rabbet_convert_fn_t int64_to_bool;

  // Reduces `count` lanes into *total, together with its previous value. FLOAT
  // sums are kept in double.
  void (*reduce_float)(rabbet_reduce_t op, const float* x, int64_t count,
                       double* total);
  // Reduces each of the contiguous rows of `width` floats to a float; no
  // products.
  void (*reduce_rows)(rabbet_reduce_t op, const float* x, int64_t rows,
                      int64_t width, float* y);
  void (*reduce_int32)(rabbet_reduce_t op, const int32_t* x, int64_t count,
                       int32_t* total);
  void (*reduce_int64)(rabbet_reduce_t op, const int64_t* x, int64_t count,
                       int64_t* total);
  // total[i] = total[i] op x[i], for one row or for `rows` that are `stride`
  // floats apart.
  void (*combine_float)(rabbet_reduce_t op, const float* x, int64_t rows,
                        int64_t stride, int64_t count, float* total);
  void (*combine_int32)(rabbet_reduce_t op, const int32_t* x, int64_t count,
                        int32_t* total);
  void (*combine_int64)(rabbet_reduce_t op, const int64_t* x, int64_t count,
                        int64_t* total);

  // total[i] = total[i] op x[i], in double.
  void (*flush_float)(rabbet_reduce_t op, const float* x, int64_t count,
                      double* total);

  // Combines mean and squares of a row with the previous ones.
  void (*moments)(const float* x, int64_t count, rabbet_moments_t* moments);
  // total[i] += (x[i] - mean[i])^2.
  void (*column_squares)(const float* x, int64_t width, const float* mean,
                         float* total);
  // x and y may be equal.
  void (*normalize)(const rabbet_normalize_row_t* row, const float* x,
                    int64_t count, float* y);
  void (*normalize_columns)(const rabbet_normalize_columns_t* columns,
                            const float* x, int64_t width, float* y);
  // y = x * cosine + sign * other * sine; no two of them overlap.
  void (*rotate)(const float* x, const float* other, const float* cosine,
                 const float* sine, float sign, int64_t count, float* y);

  // y = weight * x, or y += weight * x if it `adds`.
  void (*weigh)(const float* x, float weight, bool adds, int64_t count,
                float* y);
  // y[i], `inner` floats, is the sum over `taps` of x[positions[..]] by their
  // weights.
  void (*resample)(const float* x, const int32_t* positions,
                   const float* weights, int taps, int64_t count, int64_t inner,
                   float* y);

  // sums[r][i] += sum over `count` k of x[r][k] w[k][i], for at most
  // RABBET_PRODUCT_ROWS rows and `width` columns; strides are those of rows.
  void (*products)(const float* const* x, int rows, const float* w,
                   int64_t stride, int64_t count, int64_t width, float* sums,
                   int64_t sums_stride);

  // sums[r][c], a tile of RABBET_DOUBLE_ROWS rows and double_columns columns:
  // the sum over `depth` k of a[k][r] b[k][c].
  void (*double_tile)(const double* a, const double* b, int64_t depth,
                      double* sums);
  int64_t double_columns;

  // Lays out `count` floats for packed_dots, with zeros up to a whole chunk.
  void (*packed_order)(rabbet_packed_type_t type, const float* x, int64_t count,
                       float* y);
  // y[r][n] = sum over k of x[r][k] times weights [n][k], for rows `begin` to
  // `end` - 1 of the weights and at most RABBET_PRODUCT_ROWS rows of x, each in
  // the order of packed_order.
  void (*packed_dots[RABBET_PACKED_COUNT])(const rabbet_packed_t* w,
                                           const float* const* x, int x_rows,
                                           int64_t begin, int64_t end, float* y,
                                           int64_t y_stride);
  // A panel of weights [k][n] from chunk `first` of packed_chunk elements on.
  // Rows n are `begin` to `end` - 1, then zeros.
  void (*packed_panel)(rabbet_packed_type_t type, const rabbet_packed_t* w,
                       int64_t begin, int64_t end, int64_t first,
                       int64_t chunks, float* panel);
  // The sum of scales[i] (zeros[i] + offset) sums[i].
  float (*packed_zeros)(const float* scales, const int8_t* zeros, float offset,
                        const float* sums, int64_t count);
  int64_t packed_chunk;

  // sums[r][column + i] += sum over `count` k of x[r][k] weights[k][i], for any
  // number of rows. Rows of sums have room for all columns of the panel.
  void (*panel_products)(const float* const* x, float* const* sums,
                         int64_t rows, const rabbet_panel_t* panel);
  // `pixels` of a result, at most RABBET_GROUPED_PIXELS: x[tap][pixel], of
  // which all RABBET_GROUPED_PIXELS are read, y and added (or NULL) are
  // addresses of pixels' first channels.
  void (*grouped)(const rabbet_grouped_t* block, const float* const* x,
                  int pixels, const float* const* added, float* const* y);
  // y = what becomes of sums; added: NULL, or what is added.
  void (*finish)(const rabbet_finish_t* finish, const float* sums,
                 const float* added, int64_t count, float* y);
  // x[i] = f(x[i]). False if it has no vectors for the function.
  bool (*activate)(const rabbet_rnn_function_t* function, int64_t count,
                   float* x);

  // y = exp(x - max) / sum of that; x and y may be equal. With `log`, its
  // logarithm.
  void (*softmax)(const float* x, int64_t count, bool log, float* y);
  // The same down the columns of a tile of `count` rows of `width` floats, of
  // which x and y have `stride` floats.
  void (*softmax_columns)(const float* x, int64_t count, int64_t stride,
                          int64_t width, float* y);

  // Transforms the pixels of a tile, each of `channels` floats, at least as
  // many as the longest vector has; the results are `plane` floats apart.
  void (*winograd_input)(const float* const* x, int64_t channels, float* v,
                         int64_t plane);
  // Transforms `width` columns of a panel back and finishes them.
  void (*winograd_output)(const rabbet_winograd_tile_t* tile, const float* m,
                          int64_t plane, int64_t width);
} rabbet_vectors_t;

extern const rabbet_vectors_t rabbet_vectors_baseline;
#if defined(__x86_64__)
extern const rabbet_vectors_t rabbet_vectors_avx2;
extern const rabbet_vectors_t rabbet_vectors_avx512;
#endif
// The best table for this processor.
const rabbet_vectors_t* rabbet_vectors(void);

// y[n] -= what zero points subtract, for rows `begin` to `end` - 1 of the
// weights.
void rabbet_packed_subtract_zeros(const rabbet_packed_t* w,
                                  const rabbet_packed_zeros_t* zeros,
                                  int64_t begin, int64_t end, float* y);

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_VECTORS_H_
