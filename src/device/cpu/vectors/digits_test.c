// Products of a row's digits with INT4 and INT8, against sums of doubles.
#include "device/cpu/vectors/digits.h"

#include <math.h>
#include <stdlib.h>

#include "base/math.h"
#include "check.h"
#include "core/view.h"

enum {
  DEPTH = 300,
  ROWS = 5,
  BLOCK = 32,
  BLOCKS = (DEPTH + BLOCK - 1) / BLOCK
};

typedef struct product_t {
  _Alignas(64) rabbet_digits_t digits[3];
  rabbet_packed_type_t type;
  uint8_t codes[ROWS * DEPTH];
  float scales[ROWS * BLOCKS], x[DEPTH], y[ROWS];
} product_t;

static bool is_int4(const product_t* p) {
  return p->type == RABBET_PACKED_INT4;
}

// A chunk of INT8 has one scale.
static int block_of(const product_t* p) {
  return is_int4(p) ? BLOCK : RABBET_DIGIT_CHUNK;
}

// *size: of the result, if all elements were as large as the largest.
static double expected(const product_t* p, int depth, int row, double* size) {
  double sum = 0, largest = 0;
  *size = 0;
  for (int k = 0; k < depth; ++k)
    largest = fmax(largest, fabs(p->x[k]));
  for (int k = 0; k < depth; ++k) {
    double w =
        rabbet_load_double(is_int4(p) ? RABBET_DTYPE_INT4 : RABBET_DTYPE_INT8,
                           p->codes, row * DEPTH + k);
    w *= p->scales[row * BLOCKS + k / block_of(p)];
    sum += p->x[k] * w;
    *size += largest * fabs(w);
  }
  return sum;
}

// Of the first `depth` elements of each row.
static void check_product(product_t* p, int depth) {
  const rabbet_packed_t w = {.codes = p->codes,
                             .stride = is_int4(p) ? DEPTH / 2 : DEPTH,
                             .depth = depth,
                             .scales = p->scales,
                             .block = block_of(p),
                             .rows = 1,
                             .scale_stride = BLOCKS};
  assert_true(rabbet_digits_fit(p->type, &w));
  assert_true(rabbet_digits_convert(p->type, p->x, depth, p->digits));
  rabbet_digits_dots(p->type, &w, p->digits, 0, ROWS, p->y);
  for (int i = 0; i < ROWS; ++i) {
    double size = 0, wanted = expected(p, depth, i, &size);
    assert_true(fabs(p->y[i] - wanted) <= 2e-7 * size);
  }
}

static void begin(product_t* p, int seed) {
  p->type = seed % 2 ? RABBET_PACKED_INT8 : RABBET_PACKED_INT4;
  uint32_t number = (uint32_t)seed * 2654435761u + 1;
  for (size_t i = 0; i < sizeof(p->codes); ++i)
    p->codes[i] = (uint8_t)((number = number * 1664525u + 1013904223u) >> 24);
  for (int i = 0; i < ROWS * BLOCKS; ++i)
    p->scales[i] = 0.01f + (float)(i % 7) * 0.003f;
  for (int k = 0; k < DEPTH; ++k)
    p->x[k] = (float)((number = number * 1664525u + 1013904223u) >> 8) /
                  (float)(1 << 23) -
              1;
}

// The largest element, whose digits are the largest, differs each time.
static void products(void** state) {
  (void)state;
  static product_t p;
  if (!rabbet_digits_available()) skip();
  for (int seed = 0; seed < 2000; ++seed) {
    begin(&p, seed);
    check_product(&p, DEPTH);
  }
}

// Chunks that are whole, and those of which all bytes or a part are there.
static void of_all_depths(void** state) {
  (void)state;
  static product_t p;
  if (!rabbet_digits_available()) skip();
  for (int seed = 0; seed < 2; ++seed) {
    begin(&p, seed);
    for (int depth = 1; depth <= DEPTH; ++depth)
      check_product(&p, depth);
  }
}

static void zeros_and_large_numbers(void** state) {
  (void)state;
  static product_t p;
  if (!rabbet_digits_available()) skip();
  for (int seed = 0; seed < 2; ++seed) {
    begin(&p, seed);
    for (int k = 0; k < DEPTH; ++k)
      p.x[k] = k < 128 ? 0 : k == 200 ? -1e30f : p.x[k];
    check_product(&p, DEPTH);
  }
}

static void numbers_that_have_no_digits(void** state) {
  (void)state;
  static product_t p;
  static const float strange[] = {NAN, INFINITY, -INFINITY, 1e-40f};
  if (!rabbet_digits_available()) skip();
  for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); ++i) {
    begin(&p, 1);
    for (int k = 256; k < DEPTH; ++k)
      p.x[k] = k == 299 ? strange[i] : 0;
    assert_false(rabbet_digits_convert(p.type, p.x, DEPTH, p.digits));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products),
      cmocka_unit_test(of_all_depths),
      cmocka_unit_test(zeros_and_large_numbers),
      cmocka_unit_test(numbers_that_have_no_digits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
