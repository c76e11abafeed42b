#include "core/attr_set.h"

#include "attr_check.h"
#include "faults/fault_allocator.h"

static int64_t ints[] = {1, 2, 3};
static double number = 0.5;
static rabbet_attr_t attrs[] = {
    {.name = "axis", .type = RABBET_ATTR_INT, .data = ints, .count = 1},
    {.name = "alpha", .type = RABBET_ATTR_FLOAT, .data = &number, .count = 1},
    {.name = "pads", .type = RABBET_ATTR_INTS, .data = ints, .count = 3},
    {.name = "none", .type = RABBET_ATTR_INTS, .data = NULL, .count = 0},
    {.name = "mode", .type = RABBET_ATTR_STRING, .data = "wrap!", .count = 4},
    {.name = "names", .type = RABBET_ATTR_STRINGS, .data = "a\0b", .count = 2},
    {.name = "value",
     .type = RABBET_ATTR_TENSOR,
     .data = ints,
     .count = 2,
     .dtype = RABBET_DTYPE_INT64,
     .dims = {1, {2}}},
};
#define COUNT (sizeof(attrs) / sizeof(attrs[0]))

static rabbet_status_t copy_all(rabbet_allocator_t allocator, void* user_data) {
  (void)user_data;
  rabbet_arena_t arena;
  rabbet_arena_initialize(allocator, &arena);
  rabbet_attr_t* copy = NULL;
  rabbet_status_t status = rabbet_attrs_copy(&arena, attrs, COUNT, &copy);
  for (size_t i = 0; rabbet_is_ok(status) && i < COUNT; ++i) {
    check_attr(&copy[i], &attrs[i]);
    assert_ptr_not_equal(copy[i].name, attrs[i].name);
    assert_ptr_not_equal(copy[i].data, attrs[i].data);
  }
  if (rabbet_is_ok(status)) {
    // Only `count` bytes are the string's, and a NUL follows.
    const rabbet_attr_t* mode = rabbet_attr_find(copy, COUNT, "mode");
    assert_string_equal(mode->data, "wrap");
    assert_int_equal(rabbet_attr_int(copy, COUNT, "axis", -7), 1);
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}

static void test_copy(void** state) {
  (void)state;
  rabbet_fault_run(copy_all, NULL);
}

static void test_readers(void** state) {
  (void)state;
  size_t count = 9;
  assert_int_equal(rabbet_attr_int(attrs, COUNT, "absent", -7), -7);
  assert_true(rabbet_attr_float(attrs, COUNT, "alpha", 9) == 0.5);
  assert_true(rabbet_attr_float(attrs, COUNT, "beta", 9) == 9);
  assert_ptr_equal(rabbet_attr_ints(attrs, COUNT, "pads", &count), ints);
  assert_int_equal(count, 3);
  assert_null(rabbet_attr_ints(attrs, COUNT, "absent", &count));
  assert_int_equal(count, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_copy),
      cmocka_unit_test(test_readers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
