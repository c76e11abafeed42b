#include "core/quantize.h"

#include <math.h>

#include "check.h"

static void along_the_middle(void** state) {
  (void)state;
  const rabbet_dims_t dims = {.rank = 3, .d = {2, 3, 2}};
  const float data[] = {1, -2, 0, 0, 0.5f, 0.25f, 4, 3, 0, 0, -127, 126.5f};
  float scales[3];
  int8_t out[12];
  assert_true(rabbet_quantize_measure(&dims, 1, data, scales));
  assert_true(scales[0] == 4 / 127.0f && scales[1] == 1 / 127.0f &&
              scales[2] == 1);
  rabbet_quantize_round(&dims, 1, data, scales, out);
  // Ties go to even: 0.5 and 126.5; 31.75 and 63.5 of the first channel.
  const int8_t expected[] = {32, -64, 0, 0, 0, 0, 127, 95, 0, 0, -127, 126};
  assert_memory_equal(out, expected, sizeof(expected));
}

static void extremes(void** state) {
  (void)state;
  const rabbet_dims_t dims = {.rank = 1, .d = {3}};
  const float tiny[] = {1e-44f, INFINITY, NAN};
  float scales[3];
  int8_t out[3];
  assert_false(rabbet_quantize_measure(&dims, 0, tiny, scales));
  assert_true(scales[0] == RABBET_QUANTIZE_LEAST_SCALE);
  const float ones[] = {1, 1, 1};
  rabbet_quantize_round(&dims, 0, tiny, ones, out);
  assert_int_equal(out[0], 0);
  assert_int_equal(out[1], 127);
  assert_true(rabbet_quantize_scale(254) == 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(along_the_middle),
      cmocka_unit_test(extremes),
  };
  return cmocka_run_group_tests_name("quantize", tests, NULL, NULL);
}
