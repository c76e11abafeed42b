// Products with packed weights read no scale behind those of a row's blocks.
#include <math.h>
#include <string.h>

#include "check.h"
#include "core/view.h"
#include "device/cpu/vectors/vectors.h"

enum { MOST_DEPTH = 300, BLOCK = 16, COLUMNS = 5, ROWS = 3, PADDED = 512 };

typedef struct kind_t {
  rabbet_packed_type_t type;
  rabbet_dtype_t dtype;
} kind_t;

static const kind_t kinds[] = {{RABBET_PACKED_INT4, RABBET_DTYPE_INT4},
                               {RABBET_PACKED_FP4, RABBET_DTYPE_FP4},
                               {RABBET_PACKED_NF4, RABBET_DTYPE_NF4},
                               {RABBET_PACKED_INT8, RABBET_DTYPE_INT8},
                               {RABBET_PACKED_UINT8, RABBET_DTYPE_UINT8},
                               {RABBET_PACKED_FP8, RABBET_DTYPE_FP8}};

typedef struct product_t {
  uint8_t codes[COLUMNS * MOST_DEPTH];
  float scales[COLUMNS * (MOST_DEPTH / BLOCK + 1) + 16];
  float x[ROWS][MOST_DEPTH];
  _Alignas(64) float ordered[ROWS][PADDED];
  float y[ROWS][COLUMNS];
} product_t;

static double expected(const product_t* p, const kind_t* kind, int depth,
                       int64_t stride, int row, int column) {
  int blocks = (depth + BLOCK - 1) / BLOCK;
  double sum = 0;
  for (int k = 0; k < depth; ++k)
    sum += p->x[row][k] * p->scales[column * blocks + k / BLOCK] *
           rabbet_load_double(kind->dtype, p->codes + column * stride, k);
  return sum;
}

static void check_depth(const kind_t* kind, int depth, int rows) {
  static product_t p;
  const rabbet_vectors_t* vectors = rabbet_vectors();
  int blocks = (depth + BLOCK - 1) / BLOCK;
  int bits = rabbet_dtype_bits(kind->dtype);
  int64_t stride = ((int64_t)depth * bits + 7) / 8;
  const float* x[ROWS];
  memset(&p, 0xff, sizeof(p));  // NaN
  for (int i = 0; i < COLUMNS * stride; ++i)
    p.codes[i] = (uint8_t)(i * 37 % 119);
  for (int i = 0; i < COLUMNS * blocks; ++i)
    p.scales[i] = 0.25f + (float)(i % 7);
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < depth; ++k)
      p.x[r][k] = (float)((k * 5 + r) % 11) - 4;
    vectors->packed_order(kind->type, p.x[r], depth, p.ordered[r]);
    x[r] = p.ordered[r];
  }
  const rabbet_packed_t w = {.codes = p.codes,
                             .stride = stride,
                             .depth = depth,
                             .scales = p.scales,
                             .block = BLOCK,
                             .rows = 1,
                             .scale_stride = blocks};
  vectors->packed_dots[kind->type](&w, x, rows, 0, COLUMNS, p.y[0], COLUMNS);
  for (int r = 0; r < rows; ++r)
    for (int n = 0; n < COLUMNS; ++n) {
      double wanted = expected(&p, kind, depth, stride, r, n);
      assert_true(fabs(p.y[r][n] - wanted) <= 1e-5 * (fabs(wanted) + 1000));
    }
}

static void last_chunks(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i)
    for (int depth = 1; depth <= MOST_DEPTH; ++depth)
      for (int rows = 1; rows <= ROWS; ++rows)
        check_depth(&kinds[i], depth, rows);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(last_chunks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
