// Structures of callers that are older and newer than ours.
#include "base/struct.h"

#include "check.h"

typedef struct thing_t {
  uint32_t struct_size;
  uint32_t first;
  uint64_t second;
  uint64_t third;
} thing_t;

typedef struct newer_t {
  thing_t thing;
  uint64_t fourth;
} newer_t;

static rabbet_status_t read(const void* given, thing_t* out) {
  return RABBET_STRUCT_READ(thing_t, given, first, out);
}

static void test_smaller_ones_end_in_zeros(void** state) {
  (void)state;
  const thing_t full = {sizeof(full), 1, 2, 3};
  for (uint32_t size = RABBET_SIZE_THROUGH(thing_t, first);
       size <= sizeof(full); size += 8) {
    thing_t given = full, out;
    given.struct_size = size;
    memset(&out, 0xff, sizeof(out));
    RABBET_EXPECT_OK(read(&given, &out));
    assert_int_equal(out.struct_size, sizeof(out));
    assert_int_equal(out.first, 1);
    assert_int_equal(out.second, size >= 16 ? 2 : 0);
    assert_int_equal(out.third, size >= 24 ? 3 : 0);
  }
}

static void test_sizes_below_the_least_are_refused(void** state) {
  (void)state;
  thing_t given = {0}, out;
  for (given.struct_size = 0; given.struct_size < 8; ++given.struct_size)
    RABBET_EXPECT_ERROR(read(&given, &out), RABBET_STATUS_INVALID_ARGUMENT,
                        "expected at least 8; set it to sizeof(thing_t)");
}

static void test_larger_ones_must_end_in_zeros(void** state) {
  (void)state;
  newer_t given = {{sizeof(given), 1, 2, 3}, 0};
  thing_t out;
  RABBET_EXPECT_OK(read(&given, &out));
  assert_int_equal(out.struct_size, sizeof(out));
  assert_int_equal(out.third, 3);
  given.fourth = UINT64_C(1) << 63;  // its last byte
  RABBET_EXPECT_ERROR(read(&given, &out), RABBET_STATUS_INVALID_ARGUMENT,
                      "struct_size is 32, that of rabbet");
  RABBET_EXPECT_ERROR(read(&given, &out), RABBET_STATUS_INVALID_ARGUMENT,
                      "is 24, and byte 31 is not 0");
}

static void test_null_is_all_zeros(void** state) {
  (void)state;
  thing_t out;
  memset(&out, 0xff, sizeof(out));
  RABBET_EXPECT_OK(read(NULL, &out));
  assert_int_equal(out.struct_size, sizeof(out));
  assert_int_equal(out.first + out.second + out.third, 0);
}

typedef struct element_t {
  uint32_t first, second;
} element_t;

static void test_elements_have_their_callers_size(void** state) {
  (void)state;
  element_t out[2];
  const uint32_t older[] = {1, 2};
  RABBET_EXPECT_OK(RABBET_ELEMENTS_READ(element_t, older, 4, 2, first, out));
  assert_int_equal(out[1].first, 2);
  assert_int_equal(out[1].second, 0);
  uint32_t newer[] = {1, 2, 0, 3, 4, 0};
  RABBET_EXPECT_OK(RABBET_ELEMENTS_READ(element_t, newer, 12, 2, first, out));
  assert_int_equal(out[1].first, 3);
  assert_int_equal(out[1].second, 4);
  newer[5] = 1;
  RABBET_EXPECT_ERROR(RABBET_ELEMENTS_READ(element_t, newer, 12, 2, first, out),
                      RABBET_STATUS_INVALID_ARGUMENT,
                      "the size of an element is 12");
  RABBET_EXPECT_ERROR(RABBET_ELEMENTS_READ(element_t, older, 0, 2, first, out),
                      RABBET_STATUS_INVALID_ARGUMENT, "expected at least 4");
  RABBET_EXPECT_OK(RABBET_ELEMENTS_READ(element_t, NULL, 0, 0, first, out));
}

static void test_callers_get_what_fits(void** state) {
  (void)state;
  const thing_t ours = {0, 1, 2, 3};
  thing_t out = {16, 9, 9, 9};
  rabbet_struct_write(&ours, sizeof(ours), &out);
  assert_int_equal(out.struct_size, 16);
  assert_int_equal(out.second, 2);
  assert_int_equal(out.third, 9);  // not the callee's
  newer_t newer = {{sizeof(newer), 9, 9, 9}, 9};
  rabbet_struct_write(&ours, sizeof(ours), &newer);
  assert_int_equal(newer.thing.struct_size, sizeof(newer));
  assert_int_equal(newer.thing.third, 3);
  assert_int_equal(newer.fourth, 0);
  thing_t unset = {0, 9, 9, 9};
  rabbet_struct_write(&ours, sizeof(ours), &unset);
  assert_int_equal(unset.first, 9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_smaller_ones_end_in_zeros),
      cmocka_unit_test(test_sizes_below_the_least_are_refused),
      cmocka_unit_test(test_larger_ones_must_end_in_zeros),
      cmocka_unit_test(test_null_is_all_zeros),
      cmocka_unit_test(test_elements_have_their_callers_size),
      cmocka_unit_test(test_callers_get_what_fits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
