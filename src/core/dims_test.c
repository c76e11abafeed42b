#include "check.h"
#include "rabbet/types.h"

static void test_count(void** state) {
  (void)state;
  int64_t count = -1;
  rabbet_dims_t scalar = {0}, dims = {3, {2, 3, 4}}, empty = {3, {2, 0, 4}};
  RABBET_EXPECT_OK(rabbet_dims_count(&scalar, &count));
  assert_int_equal(count, 1);
  RABBET_EXPECT_OK(rabbet_dims_count(&dims, &count));
  assert_int_equal(count, 24);
  RABBET_EXPECT_OK(rabbet_dims_count(&empty, &count));
  assert_int_equal(count, 0);
}

static void test_count_errors(void** state) {
  (void)state;
  int64_t count = -1;
  int64_t large = (int64_t)1 << 32;
  rabbet_dims_t overflow = {2, {large, large}}, open = {2, {0, -1}};
  rabbet_dims_t unknown = {.rank = -1}, zero = {3, {large, 1 << 16, 0}};
  rabbet_dims_t far = {3, {large, large, 0}}, most = {1, {large << 16}};
  RABBET_EXPECT_ERROR(rabbet_dims_count(&overflow, &count),
                      RABBET_STATUS_OUT_OF_RANGE, "(4294967296, 4294967296)");
  RABBET_EXPECT_ERROR(rabbet_dims_count(&open, &count),
                      RABBET_STATUS_OUT_OF_RANGE, "dimension 1 of shape");
  RABBET_EXPECT_ERROR(rabbet_dims_count(&unknown, &count),
                      RABBET_STATUS_OUT_OF_RANGE, "rank -1");
  RABBET_EXPECT_OK(rabbet_dims_count(&zero, &count));
  assert_int_equal(count, 0);
  // Strides are products of extents, also where there are no elements.
  RABBET_EXPECT_ERROR(rabbet_dims_count(&far, &count),
                      RABBET_STATUS_OUT_OF_RANGE, "too large");
  RABBET_EXPECT_OK(rabbet_dims_count(&most, &count));
  assert_int_equal(count, large << 16);
}

static void test_print(void** state) {
  (void)state;
  char text[200], small[6];
  rabbet_dims_t dims = {3, {2, 3, -1}}, one = {1, {5}}, scalar = {0};
  rabbet_dims_t unknown = {.rank = -1};
  assert_string_equal(rabbet_dims_print(&dims, text, sizeof(text)),
                      "(2, 3, -1)");
  assert_string_equal(rabbet_dims_print(&one, text, sizeof(text)), "(5,)");
  assert_string_equal(rabbet_dims_print(&scalar, text, sizeof(text)), "()");
  assert_string_equal(rabbet_dims_print(&unknown, text, sizeof(text)),
                      "(unknown rank)");
  assert_string_equal(rabbet_dims_print(&dims, small, sizeof(small)), "(2, 3");
  assert_string_equal(rabbet_dims_print(&dims, NULL, 0), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_count),
      cmocka_unit_test(test_count_errors),
      cmocka_unit_test(test_print),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
