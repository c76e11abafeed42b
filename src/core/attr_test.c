#include "rabbet/attr.h"

#include "check.h"

static const int64_t ints[] = {1, 2, 3};
static const rabbet_attr_t attrs[] = {
    {.name = "axis", .type = RABBET_ATTR_INT, .data = ints, .count = 1},
    {.name = "pads", .type = RABBET_ATTR_INTS, .data = ints, .count = 3},
    {.name = "mode", .type = RABBET_ATTR_STRING, .data = "wrap", .count = 4},
    {.name = "list",
     .type = RABBET_ATTR_STRINGS,
     .data = "a\0\0long",
     .count = 3},
    {.name = "axis", .type = RABBET_ATTR_INT, .data = ints + 1, .count = 1},
    {.name = "nibbles",
     .type = RABBET_ATTR_TENSOR,
     .data = ints,
     .count = 5,
     .dtype = RABBET_DTYPE_INT4},
};
#define COUNT (sizeof(attrs) / sizeof(attrs[0]))

static void test_find(void** state) {
  (void)state;
  assert_ptr_equal(rabbet_attr_find(attrs, COUNT, "axis"), &attrs[0]);
  assert_ptr_equal(rabbet_attr_find(attrs, COUNT, "mode"), &attrs[2]);
  assert_null(rabbet_attr_find(attrs, COUNT, "none"));
  assert_null(rabbet_attr_find(NULL, 0, "axis"));
}

static void test_bytes(void** state) {
  (void)state;
  static const size_t bytes[COUNT] = {8, 24, 4, 8, 8, 3};
  for (size_t i = 0; i < COUNT; ++i)
    assert_int_equal(rabbet_attr_bytes(&attrs[i]), bytes[i]);
}

static void test_type_names(void** state) {
  (void)state;
  assert_string_equal(rabbet_attr_type_name(RABBET_ATTR_INT), "int");
  assert_string_equal(rabbet_attr_type_name(RABBET_ATTR_STRINGS),
                      "list of strings");
  for (int i = RABBET_ATTR_INT; i <= RABBET_ATTR_TENSOR; ++i)
    assert_string_not_equal(rabbet_attr_type_name((rabbet_attr_type_t)i), "?");
  assert_string_equal(rabbet_attr_type_name(RABBET_ATTR_ANY), "anything");
  assert_string_equal(rabbet_attr_type_name((rabbet_attr_type_t)99), "?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_find),
      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_type_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
