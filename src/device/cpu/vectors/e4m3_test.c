// Products of a row with FP8 by tables, against sums of doubles.
#include "device/cpu/vectors/e4m3.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "core/view.h"

enum { DEPTH = 300, ROWS = 7, PADDED = 320, BLOCKS = DEPTH / 16 + 1 };

typedef struct product_t {
  uint8_t codes[ROWS * DEPTH + 64];
  float scales[ROWS * BLOCKS + 16], x[DEPTH], ordered[PADDED], y[ROWS];
} product_t;

static void begin(product_t* p, uint32_t seed) {
  uint32_t number = seed * 2654435761u + 1;
  for (size_t i = 0; i < sizeof(p->codes); ++i) {
    number = number * 1664525u + 1013904223u;
    p->codes[i] = (uint8_t)(number >> 24);
    if ((p->codes[i] & 0x7f) == 0x7f) p->codes[i] ^= 1;  // a NaN
  }
  for (int i = 0; i < ROWS * BLOCKS + 16; ++i)
    p->scales[i] = 0.01f + (float)(i % 7) * 0.003f;
  for (int k = 0; k < DEPTH; ++k)
    p->x[k] = (float)((number = number * 1664525u + 1013904223u) >> 8) /
                  (float)(1 << 23) -
              1;
}

static void multiply(product_t* p, int depth, int block) {
  const rabbet_packed_t w = {.codes = p->codes,
                             .stride = DEPTH,
                             .depth = depth,
                             .scales = p->scales,
                             .block = block < depth ? block : depth,
                             .rows = 1,
                             .scale_stride = BLOCKS};
  rabbet_e4m3_order(p->x, depth, p->ordered);
  rabbet_e4m3_dots(&w, p->ordered, 0, ROWS, p->y);
}

static void check_product(product_t* p, int depth, int block) {
  multiply(p, depth, block);
  for (int row = 0; row < ROWS; ++row) {
    double sum = 0, size = 0;
    for (int k = 0; k < depth; ++k) {
      double term =
          p->x[k] * (double)p->scales[row * BLOCKS + k / block] *
          rabbet_load_double(RABBET_DTYPE_FP8, p->codes, row * DEPTH + k);
      sum += term;
      size += fabs(term);
    }
    assert_true(fabs(p->y[row] - sum) <= 1e-6 * size);
  }
}

static void products(void** state) {
  (void)state;
  static product_t p;
  static const int blocks[] = {16, 32, 64, 128, 512};
  if (!rabbet_e4m3_available()) skip();
  for (uint32_t seed = 0; seed < 5; ++seed) {
    begin(&p, seed);
    for (int depth = 1; depth <= DEPTH; ++depth)
      for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); ++i)
        check_product(&p, depth, blocks[i]);
  }
}

static void each_code(void** state) {
  (void)state;
  static product_t p;
  if (!rabbet_e4m3_available()) skip();
  for (int code = 0; code < 256; ++code) {
    uint8_t byte = (uint8_t)code;
    begin(&p, 1);
    memset(p.codes, 0, sizeof(p.codes));
    p.codes[code] = byte;
    for (int k = 0; k < DEPTH; ++k)
      p.x[k] = k == code ? 3 : 0;
    p.scales[0] = 1;
    multiply(&p, DEPTH, 512);
    double wanted = 3 * rabbet_load_double(RABBET_DTYPE_FP8, &byte, 0);
    assert_true(wanted == p.y[0] || (wanted != wanted && p.y[0] != p.y[0]));
    assert_true(p.y[1] == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products),
      cmocka_unit_test(each_code),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
