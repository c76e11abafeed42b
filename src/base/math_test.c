#include "base/math.h"

#include <math.h>

#include "check.h"

// Doubles hold these quotients' roundings exactly.
static void test_divisions(void** state) {
  (void)state;
  for (int64_t a = -20; a <= 20; ++a) {
    for (int64_t b = -6; b <= 6; ++b) {
      if (b == 0) continue;
      double quotient = (double)a / (double)b;
      assert_int_equal(rabbet_floordiv(a, b), (int64_t)floor(quotient));
      assert_int_equal(rabbet_ceildiv(a, b), (int64_t)ceil(quotient));
    }
  }
}

static void test_checked(void** state) {
  (void)state;
  int64_t value = 0;
  assert_true(rabbet_checked_add(INT64_MAX - 1, 1, &value));
  assert_true(value == INT64_MAX);
  assert_false(rabbet_checked_add(INT64_MAX, 1, &value));
  assert_false(rabbet_checked_sub(INT64_MIN, 1, &value));
  assert_false(rabbet_checked_mul(INT64_MIN, -1, &value));
  size_t size = 0;
  assert_false(rabbet_checked_mul(SIZE_MAX / 2, (size_t)3, &size));
}

static void test_align_up(void** state) {
  (void)state;
  assert_int_equal(rabbet_align_up(0, 64), 0);
  assert_int_equal(rabbet_align_up(1, 64), 64);
  assert_int_equal(rabbet_align_up(64, 64), 64);
  assert_int_equal(rabbet_align_up(65, 64), 128);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_divisions),
      cmocka_unit_test(test_checked),
      cmocka_unit_test(test_align_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
