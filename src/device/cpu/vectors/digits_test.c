// Products of a row's digits with packed weights, against sums of doubles.
#include "device/cpu/vectors/digits.h"

#include <math.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/math.h"
#include "check.h"
#include "core/view.h"

enum { DEPTH = 300, ROWS = 7, BLOCK = 16, BLOCKS = DEPTH / BLOCK + 1 };

// Types, lengths of blocks and numbers of digits that there are loops for.
typedef struct kind_t {
  rabbet_packed_type_t type;
  rabbet_dtype_t dtype;
  int block, digits;
} kind_t;
#define WITH_BLOCKS(type, digits)                                 \
  {RABBET_PACKED_##type, RABBET_DTYPE_##type, 16, digits},        \
      {RABBET_PACKED_##type, RABBET_DTYPE_##type, 32, digits},    \
      {RABBET_PACKED_##type, RABBET_DTYPE_##type, 64, digits},    \
      {RABBET_PACKED_##type, RABBET_DTYPE_##type, 128, digits}, { \
    RABBET_PACKED_##type, RABBET_DTYPE_##type, 256, digits        \
  }
static const kind_t kinds[] = {WITH_BLOCKS(INT4, 3), WITH_BLOCKS(FP4, 3),
                               WITH_BLOCKS(INT8, 3), WITH_BLOCKS(UINT8, 3),
                               WITH_BLOCKS(INT4, 1), WITH_BLOCKS(FP4, 1),
                               WITH_BLOCKS(NF4, 3),  WITH_BLOCKS(FP8, 3)};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

enum { LOOPS = 3 };

// Loops that the processor runs, the best first: it has those of the older
// instruction set, too.
static int loops_here(const rabbet_digit_loops_t* out_loops[LOOPS]) {
  int count = 0;
  if (!rabbet_digits()) return 0;
  out_loops[count++] = rabbet_digits();
#if defined(__x86_64__)
  const rabbet_digit_loops_t* older[] = {&rabbet_digits_avx2,
                                         &rabbet_digits_avx2_halves};
  for (int i = 0; i < 2; ++i)
    if (out_loops[0] != older[i]) out_loops[count++] = older[i];
#endif
  return count;
}

typedef struct product_t {
  _Alignas(64) rabbet_digits_t digits[3];
  kind_t kind;
  uint8_t codes[ROWS * DEPTH];
  float scales[ROWS * BLOCKS], x[DEPTH], y[ROWS];
  bool has_zeros;
  int8_t zeros[ROWS * BLOCKS];  // without a row's padding
  float sums[BLOCKS];           // of x in each block
} product_t;

enum { ZERO_OFFSET = 3 };

static int blocks_of(const product_t* p, int depth) {
  return (depth + p->kind.block - 1) / p->kind.block;
}
static int zero_of(const product_t* p, int depth, int row, int k) {
  if (!p->has_zeros) return 0;
  return p->zeros[row * blocks_of(p, depth) + k / p->kind.block] + ZERO_OFFSET;
}

static rabbet_packed_t weights_of(const product_t* p, int depth) {
  bool has_nibbles = p->kind.type <= RABBET_PACKED_NF4;
  return (rabbet_packed_t){
      .codes = p->codes,
      .stride = has_nibbles ? DEPTH / 2 : DEPTH,
      .depth = depth,
      .scales = p->scales,
      .block = p->kind.block < depth ? p->kind.block : depth,
      .rows = 1,
      .scale_stride = BLOCKS};
}

// *error: the most that rounding the row may change the sum by. It is rounded
// to 24 bits that count from the largest of 128 numbers, or to 8 bits that
// count from that of a block.
static double expected(const product_t* p, int depth, int row, double* error) {
  bool rounded = p->kind.digits == 1;
  int part = rounded && p->kind.block < 128 ? p->kind.block : 128;
  double sum = 0, largest = 0;
  *error = 0;
  for (int k = 0; k < depth; ++k) {
    if (k % part == 0) {
      largest = 0;
      for (int i = k; i < k + part && i < depth; ++i)
        largest = fmax(largest, fabs(p->x[i]));
    }
    double code = rabbet_load_double(p->kind.dtype, p->codes, row * DEPTH + k);
    double scale = p->scales[row * BLOCKS + k / p->kind.block];
    double zero = zero_of(p, depth, row, k);
    sum += p->x[k] * (code - zero) * scale;
    *error += largest * fabs(code) * scale * (rounded ? 0.502 / 127 : 2e-7) +
              fabs(p->x[k] * zero) * scale * 2e-7;
    // With AVX2 the numbers of NF4 are rounded, too.
    if (p->kind.type == RABBET_PACKED_NF4) *error += largest * scale * 1.5e-7;
  }
  return sum;
}

static void check_loops(const rabbet_digit_loops_t* loops, product_t* p,
                        int depth, int begin, int end) {
  const rabbet_packed_t w = weights_of(p, depth);
  rabbet_packed_type_t type = p->kind.type;
  assert_true(
      rabbet_digits_convert(loops, type, &w, p->kind.digits, p->x, p->digits));
  for (int i = 0; i < ROWS; ++i)
    p->y[i] = -1e30f;
  for (int b = 0; b < blocks_of(p, depth); ++b) {
    double sum = 0;
    for (int k = b * p->kind.block; k < (b + 1) * p->kind.block && k < depth;
         ++k)
      sum += p->x[k];
    p->sums[b] = (float)sum;
  }
  const rabbet_packed_zeros_t zeros = {.codes = p->zeros,
                                       .blocks = blocks_of(p, depth),
                                       .offset = ZERO_OFFSET,
                                       .sums = p->sums};
  rabbet_digits_dots(loops, type, &w, p->has_zeros ? &zeros : NULL,
                     p->kind.digits, p->digits, begin, end, p->y);
  for (int i = 0; i < ROWS; ++i) {
    double error = 0, wanted = expected(p, depth, i, &error);
    if (i >= begin && i < end)
      assert_true(fabs(p->y[i] - wanted) <= error);
    else
      assert_true(p->y[i] == -1e30f);
  }
}

// Of the first `depth` elements of each row.
static void check_product(product_t* p, int depth) {
  const rabbet_digit_loops_t* loops[LOOPS] = {NULL};
  int count = loops_here(loops);
  bool is_certain = p->kind.type <= RABBET_PACKED_FP4;
  assert_true(rabbet_digits_fit(loops[0], p->kind.type, p->kind.digits) ||
              !is_certain);
  for (int i = 0; i < count; ++i)
    if (rabbet_digits_fit(loops[i], p->kind.type, p->kind.digits)) {
      check_loops(loops[i], p, depth, 0, ROWS);
      check_loops(loops[i], p, depth, 1, 1 + depth % ROWS);
    }
}

static void begin(product_t* p, int seed) {
  p->kind = kinds[seed % KINDS];
  uint32_t number = (uint32_t)seed * 2654435761u + 1;
  for (size_t i = 0; i < sizeof(p->codes); ++i)
    p->codes[i] = (uint8_t)((number = number * 1664525u + 1013904223u) >> 24);
  for (int i = 0; i < ROWS * DEPTH && p->kind.type == RABBET_PACKED_FP8; ++i)
    if ((p->codes[i] & 0x7f) == 0x7f) p->codes[i] = 0x7e;  // no NaN
  for (int i = 0; i < ROWS * BLOCKS; ++i)
    p->scales[i] = 0.01f + (float)(i % 7) * 0.003f;
  p->has_zeros = seed / KINDS % 2 != 0;
  for (int i = 0; i < ROWS * BLOCKS; ++i)
    p->zeros[i] = (int8_t)(i % 13 - 6);
  for (int k = 0; k < DEPTH; ++k)
    p->x[k] = (float)((number = number * 1664525u + 1013904223u) >> 8) /
                  (float)(1 << 23) -
              1;
}

// The largest element, whose digits are the largest, differs each time.
static void products(void** state) {
  (void)state;
  static product_t p;
  if (!rabbet_digits()) skip();
  for (int seed = 0; seed < 3000; ++seed) {
    begin(&p, seed);
    check_product(&p, DEPTH);
  }
}

// Chunks that are whole, and those of which all bytes or a part are there.
static void of_all_depths(void** state) {
  (void)state;
  static product_t p;
  if (!rabbet_digits()) skip();
  for (int seed = 0; seed < 2 * KINDS; ++seed) {
    begin(&p, seed);
    for (int depth = 1; depth <= DEPTH; ++depth)
      check_product(&p, depth);
  }
}

static void zeros_and_large_numbers(void** state) {
  (void)state;
  static product_t p;
  if (!rabbet_digits()) skip();
  for (int seed = 0; seed < KINDS; ++seed) {
    begin(&p, seed);
    for (int k = 0; k < DEPTH; ++k)
      p.x[k] = k < 128 ? 0 : k == 200 ? -1e30f : p.x[k];
    check_product(&p, DEPTH);
  }
}

// A thread's small numbers may count as 0.
static void threads_without_small_numbers(void** state) {
  (void)state;
  static product_t p;
  if (!rabbet_digits()) skip();
#if defined(__x86_64__)
  enum { SMALL_ARE_ZEROS = 0x40, MODE = 0x8000 | SMALL_ARE_ZEROS };
  const unsigned mode = _mm_getcsr();
  for (int seed = 0; seed < KINDS; ++seed) {
    begin(&p, seed);
    for (int i = 0; i < ROWS * DEPTH && p.kind.type == RABBET_PACKED_FP8; ++i)
      p.codes[i] &= 0x87;
    _mm_setcsr(mode | MODE);
    check_product(&p, DEPTH);
    assert_int_equal(_mm_getcsr() & MODE, MODE);
    _mm_setcsr(mode);
  }
#endif
}

static void numbers_that_have_no_digits(void** state) {
  (void)state;
  static product_t p;
  static const float strange[] = {NAN, INFINITY, -INFINITY, 1e-40f};
  enum { STRANGE = sizeof(strange) / sizeof(strange[0]) };
  if (!rabbet_digits()) skip();
  for (int i = 0; i < STRANGE * KINDS; ++i) {
    begin(&p, i / STRANGE);
    for (int k = 256; k < DEPTH; ++k)
      p.x[k] = k == 299 ? strange[i % STRANGE] : 0;
    const rabbet_packed_t w = weights_of(&p, DEPTH);
    const rabbet_digit_loops_t* loops[LOOPS] = {NULL};
    int count = loops_here(loops);
    for (int l = 0; l < count; ++l)
      if (rabbet_digits_fit(loops[l], p.kind.type, p.kind.digits))
        assert_false(rabbet_digits_convert(loops[l], p.kind.type, &w,
                                           p.kind.digits, p.x, p.digits));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products),
      cmocka_unit_test(of_all_depths),
      cmocka_unit_test(zeros_and_large_numbers),
      cmocka_unit_test(threads_without_small_numbers),
      cmocka_unit_test(numbers_that_have_no_digits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
